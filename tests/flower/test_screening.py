from __future__ import annotations

import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from jopeq.flower.screening import bad_metrics


def reply(**metrics):
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, message_type="train", dst_node_id=1)


GOOD = {"num-examples": 10, "loss": 1.0}


def test_good_replies_pass():
    assert bad_metrics([reply(**GOOD), reply(**GOOD)], FedAvg()) == {}
    assert bad_metrics([], FedAvg()) == {}


def test_the_odd_one_out():
    odd = reply(**GOOD, extra=1)
    assert list(bad_metrics([reply(**GOOD), odd, reply(**GOOD)], FedAvg())) == [1]


@pytest.mark.parametrize(
    "weight", [-1, float("nan"), float("inf"), [1], 1e308, pytest.param(10**400, id="huge")]
)
def test_weights_must_be_weights(weight):
    bad = bad_metrics([reply(**GOOD), reply(**{**GOOD, "num-examples": weight})], FedAvg())
    assert "'num-examples' must be a number of at least 0" in bad[1]


def test_strategies_without_weights_do_not_need_them():
    assert bad_metrics([reply(loss=1.0)], object()) == {}


@pytest.mark.parametrize("loss", [[1.0], [1.0, 2.0], []])
def test_a_list_among_numbers_would_stop_the_run(loss):
    odd = reply(**{**GOOD, "loss": loss})
    assert list(bad_metrics([reply(**GOOD), odd, reply(**GOOD)], FedAvg())) == [1]


def test_lists_of_another_length_would_stop_the_run():
    replies = [reply(**{**GOOD, "loss": [1.0] * length}) for length in (3, 3, 4)]
    assert list(bad_metrics(replies, FedAvg())) == [2]
