from __future__ import annotations

import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from jopeq.flower.strategy import bad_metrics, too_far, weigh, weight_key


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


# Weights and norms


def weights(replies):
    return [next(iter(r.content.metric_records.values()))["num-examples"] for r in replies]


@pytest.mark.parametrize("huge", [1 << 62, 1e18, 401])
def test_nobody_weighs_more_than_ten_times_the_median(caplog, huge):
    replies = [reply(**{**GOOD, "num-examples": weight}) for weight in (40, 400, huge, 2, 40)]
    weigh(replies, FedAvg(), 10.0)
    assert weights(replies) == [40, 400, 400, 2, 40]
    assert "counts as 400" in caplog.text


def test_of_two_clients_neither_outweighs_the_other_without_bound():
    replies = [reply(**{**GOOD, "num-examples": weight}) for weight in (1 << 62, 5)]
    weigh(replies, FedAvg(), 10.0)
    assert weights(replies) == [50, 5]


def test_clients_without_examples_do_not_lower_the_median():
    replies = [reply(**{**GOOD, "num-examples": weight}) for weight in (0, 0, 0, 7)]
    weigh(replies, FedAvg(), 10.0)
    assert weights(replies) == [0, 0, 0, 7]


def test_replies_without_weights_weigh_the_same():
    bare = Message(content=RecordDict(), message_type="train", dst_node_id=1)
    replies = [bare, Message(content=RecordDict(), message_type="train", dst_node_id=1)]
    assert bad_metrics(replies, FedAvg()) == {}
    weigh(replies, FedAvg(), 10.0)
    assert weights(replies) == [1, 1]
    others = [reply(loss=1.0), reply(loss=2.0)]
    assert bad_metrics(others, FedAvg()) == {}
    weigh(others, FedAvg(), 10.0)
    assert weights(others) == [1, 1]


def test_one_that_claims_a_weight_where_no_one_does_is_the_odd_one_out():
    replies = [reply(loss=1.0), reply(**GOOD), reply(loss=1.0)]
    assert list(bad_metrics(replies, FedAvg())) == [1]


def test_a_strategy_that_wraps_another_weighs_as_that_one_does():
    wrapped = DifferentialPrivacyServerSideFixedClipping(FedAvg(weighted_by_key="n"), 1.0, 1.0, 5)
    assert weight_key(wrapped) == "n"
    assert weight_key(object()) is None


def test_an_update_far_longer_than_the_others_is_found():
    assert list(too_far([1.0, 2.0, 0.0, 1e34, 9.9, 1.0], 10.0)) == [3]
    assert too_far([0.0, 0.0], 10.0) == {}
    assert too_far([1e-29, 1.0], 10.0) == {}  # a tiny update does not shut the honest one out
    assert too_far([1e-29, 1.0, 0.0, 0.0], 10.0) == {}
    assert too_far([], 10.0) == {}
    assert too_far([1.0, 1e34], float("inf")) == {}


def test_of_two_layouts_that_of_the_lower_node_is_usual():
    first, second = reply(**{"num-examples": 1}), reply(**{"num-examples": 1, "extra": 1.0})
    first.metadata._src_node_id, second.metadata._src_node_id = 7, 3
    for replies in ([first, second], [second, first]):
        bad = bad_metrics(replies, FedAvg())
        assert [replies[index] for index in bad] == [first]


def test_weights_that_are_all_0_count_as_1():
    replies = [reply(**{**GOOD, "num-examples": 0}) for _ in range(2)]
    weigh(replies, FedAvg(), 10.0)
    assert weights(replies) == [1, 1]
