import logging
import random
import tracemalloc

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
)

import jopeq
from jopeq.flower import JoPEQMod, JoPEQStrategy, RoundFailedError
from jopeq.flower.payload import from_content, to_record
from jopeq.flower.strategy import bad_metrics, too_far, weigh, weight_key
from jopeq.wire.payload import Header, seal
from jopeq.wire.scaling import Scale

EXACT = jopeq.scheme("none")
SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)
NODES = range(1, 8)


def start(scale=1.0):
    w = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30) * scale
    arrays = {"w": w, "b": np.zeros(3), "steps": np.array(4), "mask": np.array([True, False])}
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def train(node):
    def change(name, value):
        if value.dtype.kind in "iub":
            return value
        noise = np.random.default_rng(node).normal(0, 0.02, value.shape)
        return (value + noise).astype(value.dtype)

    return change


def federation(flower, strategy, mods, nodes=NODES):
    apps = {
        node: flower.trainer(train(node), [mod(node)] if mods else [], examples=10 * node)
        for node, mod in ((node, mods) for node in nodes)
    }
    return flower.Federation(strategy, apps)


def open_mod(_):
    """A mod that lets all metrics of ``flower.trainer`` through."""
    return JoPEQMod(SCHEME, metrics=["num-examples", "loss"])


def minimum(count):
    return {"min_train_nodes": count, "min_available_nodes": count, "fraction_evaluate": 0.0}


MAKERS = {
    "FedAvg": lambda: FedAvg(**minimum(7)),
    "FedProx": lambda: FedProx(proximal_mu=0.1, **minimum(7)),
    "FedAdam": lambda: FedAdam(**minimum(7)),
    "FedAdagrad": lambda: FedAdagrad(**minimum(7)),
    "FedYogi": lambda: FedYogi(**minimum(7)),
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9, **minimum(7)),
    "FedMedian": lambda: FedMedian(**minimum(7)),
    "FedTrimmedAvg": lambda: FedTrimmedAvg(beta=0.2, **minimum(7)),
    "Krum": lambda: Krum(num_malicious_nodes=1, **minimum(7)),
    "MultiKrum": lambda: MultiKrum(num_malicious_nodes=1, num_nodes_to_select=3, **minimum(7)),
    "Bulyan": lambda: Bulyan(num_malicious_nodes=1, **minimum(7)),
}


@pytest.mark.parametrize(
    ("name", "keep_bytes"), [*((name, 0) for name in MAKERS), ("FedMedian", 1 << 28)]
)
def test_any_strategy_gives_what_it_gives_alone(flower, name, keep_bytes):
    alone = federation(flower, MAKERS[name](), None)
    wrapped = federation(
        flower,
        JoPEQStrategy(MAKERS[name](), EXACT, keep_bytes=keep_bytes),
        lambda _: JoPEQMod(EXACT),
    )
    plain, coded = start(), start()
    for arrays in (plain, coded):
        del arrays["steps"], arrays["mask"]  # which Flower alone would turn into floats
        arrays["w"] = Array(arrays["w"].numpy()[::10, ::15].copy())  # Bulyan is slow
    for number in (1, 2):
        random.seed(number)  # Flower samples the nodes in an order, which breaks ties
        plain, _ = alone.round(number, plain)
        random.seed(number)
        coded, _ = wrapped.round(number, coded)
        for key in ("w", "b"):
            np.testing.assert_allclose(coded[key].numpy(), plain[key].numpy(), atol=1e-5)


def test_integers_types_and_frozen_arrays_are_the_servers(flower):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), EXACT)
    clients = federation(flower, strategy, lambda _: JoPEQMod(EXACT, frozen=["w"]))
    arrays, _ = clients.round(1, start())
    assert {name: array.dtype for name, array in arrays.items()} == {
        name: array.dtype for name, array in start().items()
    }
    assert arrays["steps"].numpy() == 4
    assert arrays["mask"].numpy().tolist() == [True, False]
    np.testing.assert_allclose(arrays["w"].numpy(), start()["w"].numpy(), rtol=1e-6)
    assert (arrays["b"].numpy() != 0).all()


def test_metrics_are_measured(flower):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME)
    clients = federation(flower, strategy, open_mod)
    arrays, metrics = clients.round(1, start())
    _, metrics = clients.round(2, arrays)
    assert metrics["loss"] == pytest.approx(0.5)  # the app's own that are let through
    assert len(metrics["jopeq-bytes-up"]) == 7
    assert max(metrics["jopeq-bytes-up"]) < 603 * 2 / 8 + 200
    assert metrics["jopeq-bits-per-parameter"] == 8 * sum(metrics["jopeq-bytes-up"]) / (7 * 603)
    assert metrics["jopeq-epsilon"] == pytest.approx([2 * 603 * SCHEME.guarantee.epsilon] * 7)
    assert [report.server_round for report in strategy.reports] == [1, 2]
    assert set(strategy.reports[1].bytes_up) == set(NODES)


@pytest.mark.parametrize("is_on", [True, False])
def test_settings_from_run_config(flower, is_on):
    config = {"jopeq-enabled": is_on, "jopeq-scheme": "sdq", "jopeq-rate": 3.0}
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), run_config=config)
    clients = federation(flower, strategy, lambda _: JoPEQMod())
    clients.contexts = {node: flower.context(config, node=node) for node in NODES}
    _, metrics = clients.round(1, start())
    assert metrics.get("jopeq-clients") == (7 if is_on else None)
    assert "loss" in metrics


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, r"run_config=context\.run_config"),
        ({"run_config": {}, "adaptive_clip": jopeq.AdaptiveClip()}, "adaptive_clip needs scheme"),
        *(
            ({"scheme": SCHEME, name: ratio}, f"{name} must be a number of at least 1")
            for name in ("max_weight_ratio", "max_norm_ratio")
            for ratio in (0.5, float("nan"), "10")
        ),
    ],
)
def test_bad_settings_are_errors_at_construction(given, words):
    with pytest.raises(ValueError, match=words):
        JoPEQStrategy(FedAvg(), **given)


def test_a_server_without_the_wrapper_fails_loudly(flower):
    clients = federation(flower, MAKERS["FedAvg"](), open_mod)
    with pytest.raises(TypeError, match=r"jopeq\.payload"):
        clients.round(1, start())
    clients = federation(flower, MAKERS["FedAvg"](), lambda _: JoPEQMod(SCHEME))
    with pytest.raises(InconsistentMessageReplies, match="one MetricRecord"):
        clients.round(1, start())


# Bad clients


def node_3(change):
    """Node 3 replies as ``change(content)`` makes it."""

    def spoil(node, reply):
        if node == 3:
            change(reply.content)
        return reply

    return spoil


def payload_as(change):
    def spoil(content):
        content["arrays"] = to_record(change(bytes(content["arrays"]["payload"].data)))

    return spoil


def record_in_the_models_place(content):
    content["jopeq-arrays"] = to_record(content["arrays"]["payload"].data)
    del content["arrays"]
    content["arrays"] = ConfigRecord({"x": 1})


STATE = {"w": np.ones((20, 30)), "b": np.ones(3)}
BAD = {
    "garbage": payload_as(lambda _: b"garbage"),
    "truncated": payload_as(lambda payload: payload[:-9]),
    "flipped": payload_as(
        lambda payload: payload[:-20] + bytes([payload[-20] ^ 1]) + payload[-19:]
    ),
    "another scheme": payload_as(
        lambda _: jopeq.encode_state(jopeq.scheme("sdq", rate=2.0), STATE)
    ),
    "other shapes": payload_as(lambda _: jopeq.encode_state(SCHEME, {"w": np.ones(5)})),
    "plain arrays": lambda content: content.update({"arrays": start()}),
    "no arrays": lambda content: content.pop("arrays"),
    "weight": lambda content: content["metrics"].update({"num-examples": float("nan")}),
    "metrics": lambda content: content.update({"metrics": MetricRecord({"x": 1})}),
    "list for a number": lambda content: content["metrics"].update({"loss": [0.5, 0.5]}),
    "record in the model's place": record_in_the_models_place,
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_client_is_rejected_by_name(flower, caplog, kind):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME)
    clients = federation(flower, strategy, open_mod)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        arrays, metrics = clients.round(1, start(), node_3(BAD[kind]))
    assert "rejected the reply of node 3" in caplog.text
    assert list(strategy.reports[0].rejected) == [3]
    assert (metrics["jopeq-clients"], metrics["jopeq-rejected"]) == (6, 1)
    assert np.isfinite(arrays["w"].numpy()).all()


def claiming(scheme, shapes):
    """A payload without a body, whose header claims these arrays."""
    seed = bytes(32) if scheme.is_seeded else b""
    scales = (Scale(1.0),) if scheme.clip is None else ()
    header = Header(scheme.spec, tuple(shapes), tuple(shapes.values()), seed, False, scales)
    return seal(header.to_bytes(), [], None)


@pytest.mark.parametrize(
    "shapes", [{"w": (10**11,)}, {"w": (20, 30), "b": (3,)}, {"w": (20, 30), "x": (0,)}]
)
def test_a_rejected_payload_changes_no_account(flower, shapes):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME)
    clients = federation(flower, strategy, open_mod)
    arrays, _ = clients.round(1, start())
    before = strategy._spent[3]
    clients.round(2, arrays, node_3(payload_as(lambda _: claiming(SCHEME, shapes))))
    report = strategy.reports[1]
    assert strategy._spent[3] == before
    for account in (report.epsilon, report.bytes_up, report.entries):
        assert set(account) == set(NODES) - {3}
    assert strategy.reports[0].epsilon[3] < report.epsilon[4]


# One client against the others


def test_without_weights_all_clients_count_the_same(flower):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME)
    clients = federation(flower, strategy, lambda _: JoPEQMod(SCHEME))
    arrays, _ = clients.round(1, start())
    messages = strategy.configure_train(2, arrays, ConfigRecord(), clients.grid)
    replies = clients._answers(messages, None)
    like = {"w": np.zeros((20, 30), np.float32), "b": np.zeros(3)}
    payloads = [from_content(reply.content) for reply in replies]
    updates = [jopeq.decode_state(SCHEME, payload, like)["w"] for payload in payloads]
    averaged, _ = strategy.aggregate_train(2, replies)
    expected = arrays["w"].numpy() + np.mean(updates, axis=0)
    np.testing.assert_allclose(averaged["w"].numpy(), expected, atol=1e-5)


def test_a_node_counts_once_and_its_error_stays_on_one_line(flower):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), EXACT)
    clients = federation(flower, strategy, lambda _: JoPEQMod(EXACT))
    expected, _ = clients.round(1, start())
    epsilon, sent = dict(strategy.reports[0].epsilon), dict(strategy.reports[0].bytes_up)
    messages = strategy.configure_train(2, start(), ConfigRecord(), clients.grid)
    replies = clients._answers(messages, None)
    arrays, _ = strategy.aggregate_train(2, [*replies, *[replies[0]] * 5])
    np.testing.assert_allclose(arrays["w"].numpy(), expected["w"].numpy(), atol=1e-6)
    assert (strategy.reports[1].epsilon, strategy.reports[1].bytes_up) == (epsilon, sent)

    def fail(node, reply):
        error = Error(code=0, reason="two\nlines" + "x" * 10_000)
        asked = next(m for m in messages if m.metadata.dst_node_id == node)
        return reply if node != 3 else Message(error, reply_to=asked)

    messages = strategy.configure_train(3, start(), ConfigRecord(), clients.grid)
    strategy.aggregate_train(3, clients._answers(messages, fail))
    (reason,) = strategy.reports[2].failed.values()
    assert reason.startswith("two\\nlines")
    assert len(reason) < 250


def test_one_weight_cannot_set_the_model(flower):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), EXACT)
    clients = federation(flower, strategy, lambda _: JoPEQMod(EXACT))
    moved = start()["w"].numpy() + 0.1

    def spoil(content):
        state = {"w": np.full((20, 30), 0.1), "b": np.zeros(3)}
        content["arrays"] = to_record(jopeq.encode_state(EXACT, state))
        content["metrics"]["num-examples"] = 1 << 62

    arrays, _ = clients.round(1, start(), node_3(spoil))
    share = np.mean(arrays["w"].numpy() - start()["w"].numpy()) / 0.1
    assert share == pytest.approx(400 / (400 + 250), abs=0.05)  # ten times the median of 40
    assert not np.allclose(arrays["w"].numpy(), moved, atol=1e-3)


@pytest.mark.parametrize("scheme", [EXACT, jopeq.scheme("jopeq", epsilon=4.0, rate=2.0)])
def test_one_update_cannot_set_the_model(flower, scheme):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), scheme)
    clients = federation(flower, strategy, lambda _: JoPEQMod(scheme))
    huge = jopeq.encode_state(scheme, {"w": np.full((20, 30), 1e30), "b": np.full(3, 1e30)})
    arrays, _ = clients.round(1, start(), node_3(payload_as(lambda _: huge)))
    assert "times the cohort's median" in strategy.reports[0].rejected[3]
    assert np.abs(arrays["w"].numpy()).max() < 10


def test_all_bad_fails_loudly_and_keeps_the_model(flower):
    clients = federation(flower, JoPEQStrategy(MAKERS["FedAvg"](), SCHEME), None)
    with pytest.raises(RoundFailedError, match="put JoPEQMod among the mods") as caught:
        clients.round(1, start())
    assert caught.value.arrays["steps"].numpy() == 4


def test_mismatch_fails_loudly_and_the_client_names_both(flower, caplog):
    clients = federation(
        flower, JoPEQStrategy(MAKERS["FedAvg"](), SCHEME), lambda _: JoPEQMod(EXACT)
    )
    with pytest.raises(RoundFailedError, match="settings of client and server do not fit"):
        clients.round(1, start())
    assert f"the server uses scheme {SCHEME.spec} and this client {EXACT.spec}" in caplog.text


def test_partial_participation_stragglers_and_errors(flower):
    strategy = JoPEQStrategy(
        FedAvg(fraction_train=0.5, min_train_nodes=4, min_available_nodes=7), SCHEME
    )
    clients = federation(flower, strategy, lambda _: JoPEQMod(SCHEME))
    seen = []

    def spoil(node, reply):
        seen.append(node)
        if len(seen) == 1:
            return None  # never answers
        if len(seen) == 2:
            return Message(Error(code=8, reason="crashed"), reply_to=reply)
        return reply

    arrays, metrics = clients.round(1, start(), spoil)
    assert arrays is not None
    assert (metrics["jopeq-clients"], metrics["jopeq-failed"]) == (2, 1)
    arrays, metrics = clients.round(2, arrays, lambda *_: None)  # nobody answers
    assert (arrays, metrics["jopeq-clients"]) == (None, 0)


def test_a_node_that_was_not_asked(flower):
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME)

    def spoil(node, reply):
        if node == 3:
            reply.metadata.__dict__["_src_node_id"] = 99
        return reply

    federation(flower, strategy, lambda _: JoPEQMod(SCHEME)).round(1, start(), spoil)
    assert "no train message" in strategy.reports[0].rejected[99]


def test_averaging_holds_one_decoded_update_at_a_time(flower):
    arrays = ArrayRecord({"w": Array(np.zeros(200_000, np.float32))})
    peaks = {}
    for keep_bytes in (0, 1 << 28):
        strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME, keep_bytes=keep_bytes)
        nodes = range(1, 21)
        clients = federation(flower, strategy, lambda _: JoPEQMod(SCHEME), nodes)
        messages = strategy.configure_train(1, arrays, ConfigRecord(), clients.grid)
        replies = clients._answers(messages, None)
        tracemalloc.start()
        strategy.aggregate_train(1, replies)
        peaks[keep_bytes] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[0] < 0.5 * peaks[1 << 28]  # of 20 clients


# Adaptive clip


def test_the_clip_follows_the_updates(flower):
    rule = jopeq.AdaptiveClip(epsilon=20.0, learning_rate=1.0)
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1.0)
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), scheme, adaptive_clip=rule)
    clients = federation(flower, strategy, lambda _: JoPEQMod(scheme, adaptive_clip=rule))
    arrays = start()
    for number in range(1, 13):
        arrays, metrics = clients.round(number, arrays)
    # three standard deviations of what ``train`` adds
    assert 0.03 < metrics["jopeq-clip"] < 0.12
    assert strategy.reports[0].clip == 1.0
    assert metrics["jopeq-epsilon"][0] == pytest.approx(
        12 * (603 * scheme.guarantee.epsilon + rule.guarantee.epsilon)
    )


def test_a_garbled_clip_bit_is_rejected(flower):
    rule = jopeq.AdaptiveClip()
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), SCHEME, adaptive_clip=rule)
    clients = federation(flower, strategy, lambda _: JoPEQMod(SCHEME, adaptive_clip=rule))
    clients.round(1, start(), node_3(lambda content: content["jopeq"].update({"clip-bit": 7})))
    assert "clip bit must be 0 or 1, got 7" in strategy.reports[0].rejected[3]


# Metrics, weights and norms of a cohort


def reply(**metrics):
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, message_type="train", dst_node_id=1)


GOOD = {"num-examples": 10, "loss": 1.0}


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (GOOD, {**GOOD, "extra": 1}),
        ({"loss": 1.0}, GOOD),  # a weight where no one else claims one
        *(({**GOOD, "loss": 1.0}, {**GOOD, "loss": loss}) for loss in ([1.0], [1.0, 2.0], [])),
        ({**GOOD, "loss": [1.0] * 3}, {**GOOD, "loss": [1.0] * 4}),
    ],
)
def test_the_odd_one_out(usual, odd):
    replies = [reply(**usual), reply(**odd), reply(**usual)]
    assert list(bad_metrics(replies, FedAvg())) == [1]
    assert bad_metrics(replies[::2], FedAvg()) == bad_metrics([], FedAvg()) == {}


@pytest.mark.parametrize(
    "weight", [-1, float("nan"), float("inf"), [1], 1e308, pytest.param(10**400, id="huge")]
)
def test_weights_must_be_weights(weight):
    bad = bad_metrics([reply(**GOOD), reply(**{**GOOD, "num-examples": weight})], FedAvg())
    assert "'num-examples' must be a number of at least 0" in bad[1]


def weights(replies):
    return [next(iter(r.content.metric_records.values()))["num-examples"] for r in replies]


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
    weigh(replies, FedAvg(), 10.0)
    assert weights(replies) == counted
    wrapped = DifferentialPrivacyServerSideFixedClipping(FedAvg(weighted_by_key="n"), 1.0, 1.0, 5)
    assert (weight_key(wrapped), weight_key(object())) == ("n", None)


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
