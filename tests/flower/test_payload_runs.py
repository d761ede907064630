"""Budgets, verdicts and restarts of a run, and clips that follow it."""

import logging
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq.flower import PayloadMod, PayloadStrategy, RoundFailedError
from jopeq.flower.arrays import array_bytes
from tests.flower.test_payload_strategy import (
    EXACT,
    MAKERS,
    NODES,
    SCHEME,
    coded,
    federation,
    minimum,
    record,
    start,
    train,
)

# Budgets and interrupted runs


def paid(flower, budgets):
    """Two clients are needed; each can pay for so many rounds."""
    cost = 603 * SCHEME.guarantee.epsilon
    mods = {
        node: PayloadMod(SCHEME, budget=rounds * cost, ledger=flower.ledger(rounds * cost))
        for node, rounds in budgets.items()
    }
    return federation(
        flower, PayloadStrategy(FedAvg(**minimum(2)), SCHEME), mods.__getitem__, budgets
    )


def test_spent_clients_are_told_apart_and_not_sampled_again(flower, caplog):
    clients = paid(flower, {1: 1.5, 2: 9, 3: 9})
    arrays, seen = start(), []
    with caplog.at_level(logging.INFO, logger="flwr"):
        for number in range(1, 5):
            arrays, metrics = clients.round(number, arrays)
            seen.append((metrics["jopeq-clients"], metrics["jopeq-failed"]))
    assert seen == [(3, 0), (2, 1), (2, 0), (2, 0)]
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len([said for said in warnings if "node 1" in said and "[budget-spent]" in said]) == 1


def test_a_run_ends_with_its_history_when_too_few_can_pay(flower):
    """Flower would wait for ever for clients that do not come back."""
    clients = paid(flower, {1: 1.5, 2: 1.5, 3: 9})
    grid = SimpleNamespace(
        get_node_ids=lambda: [1, 2, 3],
        send_and_receive=lambda messages, timeout: clients._answers(messages, None),
    )
    found = MetricRecord({"accuracy": 0.5})
    result = clients.strategy.start(grid, start(), 9, evaluate_fn=lambda *_: found)
    assert [report.server_round for report in clients.strategy.reports] == [1, 2]
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2]
    assert not np.array_equal(result.arrays["w"].numpy(), start()["w"].numpy())
    with pytest.raises(RoundFailedError) as caught:  # for whoever drives the rounds
        clients.round(3, result.arrays)
    assert (caught.value.code, caught.value.arrays) == ("budget-spent", result.arrays)


@pytest.mark.parametrize("name", ["FedAdam", "FedAvgM"])
def test_a_resumed_run_goes_on_as_if_nothing_had_happened(flower, name):
    """Same model, ε, clip and bytes as of a server that was never stopped."""
    scheme = jopeq.scheme("response", epsilon=30.0, rate=6.0, clip=1.0)
    clients, other = (coded(flower, scheme, MAKERS[name]()) for _ in range(2))
    arrays, _ = clients.round(1, start())
    clients.round(2, arrays)
    strategy, clients.strategy = clients.strategy, other.strategy
    resumed = other.strategy
    resumed.load_state_dict(pickle.loads(pickle.dumps(strategy.state_dict())))
    for one in (strategy, resumed):
        one._spent[99] = one._spent[1]  # what happens to one does not happen to the other
    first = strategy.configure_train(3, arrays, ConfigRecord(), clients.grid)
    second = resumed.configure_train(3, arrays, ConfigRecord(), clients.grid)
    assert strategy.reports[-1] == resumed.reports[-1]
    by_node = {message.metadata.dst_node_id: message for message in first}
    for message in second:
        twin = by_node[message.metadata.dst_node_id]
        assert array_bytes(message.content) == array_bytes(twin.content)
        assert message.content["jopeq"] == twin.content["jopeq"]
    replies = clients._answers(second, None)
    copies = [Message(RecordDict(dict(r.content.items())), reply_to=by_node[1]) for r in replies]
    for copy, reply in zip(copies, replies, strict=True):
        copy.metadata.__dict__["_src_node_id"] = reply.metadata.src_node_id
    mine, metrics = resumed.aggregate_train(3, replies)
    theirs, expected = strategy.aggregate_train(3, copies)
    assert dict(metrics) == dict(expected)
    assert metrics["jopeq-epsilon/1"] > 2.9 * 603 * scheme.guarantee.epsilon
    np.testing.assert_array_equal(mine["w"].numpy(), theirs["w"].numpy())
    assert len(resumed.reports) == 3


def test_a_state_of_other_settings_is_refused():
    saved, same = (PayloadStrategy(FedAvg(), SCHEME) for _ in range(2))
    state = saved.state_dict()
    for other, changed, words in (
        (PayloadStrategy(FedAvg(), EXACT), {}, "scheme"),
        (same, {"inner": state["inner"] * 2}, "strategies inside"),
        (same, {"inner": [{"aggregate_train": print}]}, "strategies inside"),
        (same, {"format": 0}, "format"),
    ):
        with pytest.raises(ValueError, match=words):
            other.load_state_dict({**state, **changed})


# Before round 1, and what is said meanwhile


def warnings(caplog):
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def serve(clients):
    """The federation as a grid that ``start`` drives."""
    answer = lambda messages, timeout: clients._answers(messages, None)  # noqa: E731
    return SimpleNamespace(get_node_ids=clients.grid.get_node_ids, send_and_receive=answer)


@pytest.mark.parametrize(("epsilon", "is_hopeless"), [(0.5, True), (16.0, False)])
def test_a_run_begins_with_a_verdict(flower, caplog, epsilon, is_hopeless):
    clients = coded(flower, jopeq.Sphere(epsilon=epsilon, clip=1.0, draws=1 << 12))
    with caplog.at_level(logging.INFO, logger="flwr"):
        clients.strategy.start(serve(clients), start(), 2)
    (line,) = [one for one in caplog.records if "603 entries" in one.getMessage()]
    assert (line.levelno == logging.WARNING) == is_hopeless


def test_every_node_that_is_left_out_is_named_once_with_the_reason(flower, caplog):
    clients = coded(flower, SCHEME)
    clients.apps[2] = flower.trainer(train(2), [PayloadMod(EXACT)])  # another scheme
    clients.apps[4] = flower.trainer(train(4), [])  # no mod
    clients.round(1, start(), lambda node, reply: None if node == 6 else reply)
    said = warnings(caplog)
    for node, reason in ((2, "[settings]"), (4, "PayloadMod"), (6, "did not answer")):
        (mine,) = [text for text in said if f"node {node}" in text]
        assert reason in mine
    assert clients.strategy.reports[0].missing == [6]


def test_messages_of_one_process_may_share_their_records(flower):
    """The second client must find in the message what the first one found."""
    clients = coded(flower, jopeq.scheme("response", epsilon=6.0, rate=3.0, clip="layers"))
    arrays = record(w=start()["w"].numpy(), b=np.zeros(3))
    for number in (1, 2, 3):
        messages = clients.strategy.configure_train(number, arrays, ConfigRecord(), clients.grid)
        replies = [
            clients.apps[node](message, clients.contexts[node])
            for message in messages
            for node in [message.metadata.dst_node_id]
        ]
        arrays, metrics = clients.strategy.aggregate_train(number, replies)
        assert (metrics["jopeq-clients"], metrics["jopeq-rejected"]) == (7, 0)
        assert set(clients.strategy.reports[-1].entries.values()) == {603}


# Clips of layers


def test_every_tensor_gets_a_clip_that_follows_it_also_after_a_restart(flower):
    scheme = jopeq.scheme("response", epsilon=6.0, rate=3.0, clip="layers")
    size = {"w": 0.3, "b": 0.003}

    def change(name, value):
        rng = np.random.default_rng(5)
        return value + rng.normal(0, size[name], value.shape).astype(value.dtype)

    strategy, again = (PayloadStrategy(FedAvg(**minimum(7)), scheme) for _ in range(2))
    trainer = flower.trainer(change, [PayloadMod(scheme)])
    clients = flower.Federation(strategy, dict.fromkeys(NODES, trainer))
    arrays = record(**{name: np.zeros(2000, np.float32) for name in size})
    for number in range(1, 9):
        if number == 5:
            again.load_state_dict(strategy.state_dict())
            clients.strategy = again
        _, metrics = clients.round(number, arrays)
    message = again.configure_train(9, arrays, ConfigRecord(), clients.grid)[0]
    assert metrics["jopeq-clients"] == 7
    # 2.5 deviations
    assert message.content["jopeq"]["clips"] == pytest.approx([0.75, 0.0075], rel=0.2)
