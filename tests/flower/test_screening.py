"""Metrics, weights and norms of a cohort: who is odd, who weighs too much, who is too far."""

import math

import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flwr_strategies
from flwr.serverapp.strategy import FedAvg

from jopeq.flower.wrapper import bad_metrics, too_far, weigh, weight_key, weights_of
from tests.flower.test_payload_strategy import OPEN, SCHEME, coded, minimum, node_3, start


def reply(**metrics):
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, message_type="train", dst_node_id=1)


GOOD = {"num-examples": 10, "loss": 1.0}


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (GOOD, {**GOOD, "extra": 1}),
        ({"loss": 1.0}, GOOD),  # a weight where no one else claims one
        *((GOOD, {**GOOD, "loss": loss}) for loss in ([1.0], [1.0, 2.0], [])),
        *(
            (GOOD, {**GOOD, "num-examples": weight})
            for weight in (-1, math.nan, math.inf, [1], 1e308, 10**400)
        ),
    ],
    ids=str,
)
def test_the_odd_one_out(usual, odd):
    replies = [reply(**usual), reply(**odd), reply(**usual)]
    bad = bad_metrics(replies, FedAvg())
    assert list(bad) == [1]
    told = "'num-examples' must be a number of at least 0" in bad[1]
    assert told == (odd.get("num-examples", 10) != 10)
    assert bad_metrics(replies[::2], FedAvg()) == bad_metrics([], FedAvg()) == {}


def test_of_two_layouts_that_of_the_lower_node_is_usual():
    first, second = reply(**{"num-examples": 1}), reply(**{"num-examples": 1, "extra": 1.0})
    first.metadata._src_node_id, second.metadata._src_node_id = 7, 3
    for replies in ([first, second], [second, first]):
        assert [replies[index] for index in bad_metrics(replies, FedAvg())] == [first]


@pytest.mark.parametrize(
    ("claimed", "counted"),
    [
        *(((40, 400, huge, 2, 40), [40, 400, 400, 2, 40]) for huge in (1 << 62, 1e18, 401)),
        ((1 << 62, 5), [50, 5]),  # of two clients neither outweighs the other without bound
        ((0, 0, 0, 7), [0, 0, 0, 7]),  # clients without examples do not lower the median
        ((0, 0), [1, 1]),
        ((None, None), [1, 1]),
    ],
)
def test_nobody_weighs_more_than_ten_times_the_median(claimed, counted):
    replies = [reply(loss=1.0, **({} if w is None else {"num-examples": w})) for w in claimed]
    weigh(replies, FedAvg(), weights_of(replies, FedAvg(), 10.0))
    assert [one.content["metrics"]["num-examples"] for one in replies] == counted
    fixed = flwr_strategies.DifferentialPrivacyServerSideFixedClipping
    wrapped = fixed(FedAvg(weighted_by_key="n"), 1.0, 1.0, 5)
    assert (weight_key(wrapped), weight_key(object())) == ("n", None)


@pytest.mark.parametrize(
    ("norms", "far"),
    [
        ([1.0, 2.0, 0.0, 1e34, 9.9, 1.0], [3]),
        ([1e-29, 1.0], []),  # a tiny update does not shut the honest one out
        ([1e-29, 1.0, 0.0, 0.0], []),
        ([0.0, 0.0], []),
        ([], []),
    ],
)
def test_an_update_far_longer_than_the_others_is_found(norms, far):
    assert list(too_far(norms, 10.0)) == far
    assert too_far(norms, math.inf) == {}


def two_records(content):
    content["more-metrics"] = MetricRecord({"x": 1.0})


def test_a_second_metric_record_stops_nobody_else(flower):
    """Flower raises if a reply has two: here it is the lower node's, which decides between two."""
    clients = coded(flower, SCHEME, FedAvg(**minimum(2)), nodes=(3, 4), mod=OPEN)
    strategy = clients.strategy
    _, metrics = clients.round(1, start(), node_3(two_records))
    assert "2 metric records" in strategy.reports[0].rejected[3]
    assert metrics["jopeq-clients"] == 1
    replies = [reply(**GOOD), reply(**GOOD), reply(**GOOD)]
    replies[1].metadata._src_node_id = 0
    two_records(replies[1].content)
    replies[2].content["metrics"] = MetricRecord({"loss": 9.0})  # no weight
    for order in ((0, 1, 0, 2), (2, 0, 1, 0)):
        evaluated = strategy.aggregate_evaluate(1, [replies[index] for index in order])
        assert evaluated["loss"] == pytest.approx(1.0)
    one = reply(**GOOD)
    two_records(one.content)
    assert list(bad_metrics([one], flwr_strategies.FedMedian())) == [0]
