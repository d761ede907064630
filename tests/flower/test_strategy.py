import logging
import math
import pickle
import random
import tracemalloc
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp import strategy as flwr_strategies
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq import kernels
from jopeq.flower import JoPEQMod, JoPEQStrategy, JoPEQSumStrategy, RoundFailedError
from jopeq.flower import strategy as strategies
from jopeq.flower.payload import from_content, to_record
from jopeq.flower.screening import bad_metrics, too_far, weigh, weight_key, weights_of
from jopeq.flower.strategy import averages
from jopeq.flower.wrapper import array_bytes
from jopeq.wire.payload import Header, open_payload, seal

EXACT = jopeq.scheme("none")
SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)
NODES = range(1, 8)


def record(**arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def start():
    w = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)
    return record(w=w, b=np.zeros(3), steps=np.array(4), mask=np.array([True, False]))


def train(node):
    def change(name, value):
        if value.dtype.kind in "iub":
            return value
        noise = np.random.default_rng(node).normal(0, 0.02, value.shape)
        return (value + noise).astype(value.dtype)

    return change


def federation(flower, strategy, mods=None, nodes=NODES):
    """Nodes that add noise of their own; ``mods(node)`` gives each its mod."""
    apps = {n: flower.trainer(train(n), [mods(n)] if mods else [], examples=10 * n) for n in nodes}
    return flower.Federation(strategy, apps)


def coded(flower, scheme=EXACT, inner=None, *, nodes=NODES, mod=None, **options):
    """Strategy and mods of one scheme, the mods with options of their own."""
    chosen = JoPEQMod(scheme, **(mod or {}))
    strategy = JoPEQStrategy(inner or FedAvg(**minimum(7)), scheme, **options)
    return federation(flower, strategy, lambda _: chosen, nodes)


OPEN = {"metrics": ["num-examples", "loss"]}  # all metrics of ``flower.trainer``


def minimum(count):
    return {"min_train_nodes": count, "min_available_nodes": count, "fraction_evaluate": 0.0}


def maker(name, *arguments, **options):
    return partial(getattr(flwr_strategies, name), *arguments, **options, **minimum(7))


def clipped(how, *arguments):
    kind = getattr(flwr_strategies, f"DifferentialPrivacyServerSide{how}Clipping")
    return lambda: kind(FedAvg(**minimum(7)), 0.0, *arguments)


MEANS = {
    **{name: maker(name) for name in ("FedAvg", "FedAdam", "FedAdagrad", "FedYogi")},
    "FedProx": maker("FedProx", proximal_mu=0.1),
    "FedAvgM": maker("FedAvgM", server_momentum=0.9),
}
MAKERS = {
    **MEANS,
    "FedMedian": maker("FedMedian"),
    "FedTrimmedAvg": maker("FedTrimmedAvg", beta=0.2),
    "Krum": maker("Krum", num_malicious_nodes=1),
    "MultiKrum": maker("MultiKrum", num_malicious_nodes=1, num_nodes_to_select=3),
    "Bulyan": maker("Bulyan", num_malicious_nodes=1),
    "QFedAvg": maker("QFedAvg", 0.1, train_loss_key="loss"),
    "fixed clipping": clipped("Fixed", 0.02, 7),
    "adaptive clipping": clipped("Adaptive", 7, 0.02),
}


@pytest.mark.parametrize("name", MAKERS)
def test_any_strategy_gives_what_it_gives_alone(flower, name):
    alone = federation(flower, MAKERS[name]())
    wrapped = coded(flower, EXACT, MAKERS[name]())
    # no integers, which Flower alone would turn into floats; few entries, as Bulyan is slow
    plain = both = record(w=start()["w"].numpy()[::10, ::15].copy(), b=np.zeros(3))
    for number in (1, 2):
        random.seed(number)  # Flower samples the nodes in an order, which breaks ties
        plain, _ = alone.round(number, plain)
        random.seed(number)
        both, _ = wrapped.round(number, both)
        for key in ("w", "b"):
            np.testing.assert_allclose(both[key].numpy(), plain[key].numpy(), atol=1e-5)


def test_integers_types_and_frozen_arrays_are_the_servers(flower):
    arrays, _ = coded(flower, mod={"frozen": ["w"]}).round(1, start())
    assert [array.dtype for array in arrays.values()] == [a.dtype for a in start().values()]
    assert arrays["steps"].numpy() == 4
    assert arrays["mask"].numpy().tolist() == [True, False]
    np.testing.assert_allclose(arrays["w"].numpy(), start()["w"].numpy(), rtol=1e-6)
    assert (arrays["b"].numpy() != 0).all()


def test_metrics_are_measured(flower):
    clients = coded(flower, SCHEME, mod=OPEN)
    arrays, metrics = clients.round(1, start())
    _, metrics = clients.round(2, arrays)
    assert metrics["loss"] == pytest.approx(0.5)  # the app's own that are let through
    assert all(isinstance(value, int | float) for value in metrics.values())
    sizes = [metrics[f"jopeq-bytes-up/{node}"] for node in NODES]
    assert max(sizes) < 603 * 2 / 8 + 200
    assert metrics["jopeq-bytes-up"] == sum(sizes)
    assert metrics["jopeq-bits-per-parameter"] == 8 * sum(sizes) / (7 * 603)
    spent = [metrics[f"jopeq-epsilon/{node}"] for node in NODES]
    assert spent == pytest.approx([2 * 603 * SCHEME.guarantee.epsilon] * 7)
    assert metrics["jopeq-epsilon"] == max(spent)
    assert [report.server_round for report in clients.strategy.reports] == [1, 2]
    assert set(clients.strategy.reports[1].bytes_up) == set(NODES)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "run_config"),
        *(
            ({"scheme": SCHEME, name: ratio}, name)
            for name in ("max_weight_ratio", "max_norm_ratio")
            for ratio in (0.5, math.nan, "10")
        ),
    ],
)
def test_bad_settings_are_errors_at_construction(given, words):
    with pytest.raises(ValueError, match=words):
        JoPEQStrategy(FedAvg(), **given)


def test_a_strategy_of_flowers_older_api_is_refused():
    summed = jopeq.SecureSum(epsilon=4.0, clip=1.0, clients=5, threshold=4)
    for make, scheme in ((JoPEQStrategy, SCHEME), (JoPEQSumStrategy, summed)):
        with pytest.raises(TypeError, match="inner"):
            make(LegacyFedAvg(), scheme)


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


def state(w=1.0, b=1.0):
    return {"w": np.full((20, 30), w), "b": np.full(3, b)}


def claiming(**shapes):
    """A payload without a body, whose header claims these arrays."""
    seed = bytes(32) if SCHEME.codec.has_dither else b""
    header = Header(SCHEME.spec, tuple(shapes), tuple(shapes.values()), seed, False, ())
    return payload_as(lambda _: seal(header.to_bytes(), [], None))


BAD = {
    "garbage": payload_as(lambda _: b"garbage"),
    "truncated": payload_as(lambda payload: payload[:-9]),
    "flipped": payload_as(lambda sent: sent[:-20] + bytes([sent[-20] ^ 1]) + sent[-19:]),
    "scheme": payload_as(lambda _: jopeq.scheme("sdq", rate=2.0).encode(state())),
    "other shapes": payload_as(lambda _: SCHEME.encode({"w": np.ones(5)})),
    "plain arrays": lambda content: content.update({"arrays": start()}),
    "no arrays": lambda content: content.pop("arrays"),
    "weight": lambda content: content["metrics"].update({"num-examples": math.nan}),
    "metrics": lambda content: content.update({"metrics": MetricRecord({"x": 1})}),
    "list for a number": lambda content: content["metrics"].update({"loss": [0.5, 0.5]}),
    "record in the model's place": record_in_the_models_place,
    "claims a huge array": claiming(w=(10**11,)),
    "claims the model": claiming(w=(20, 30), b=(3,)),
    "claims another array": claiming(w=(20, 30), x=(0,)),
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_client_is_rejected_by_name_and_counted_for_what_it_spent(flower, caplog, kind):
    clients = coded(flower, SCHEME, mod=OPEN)
    strategy, (arrays, _) = clients.strategy, clients.round(1, start())
    before = strategy._spent[3]
    with caplog.at_level(logging.WARNING, logger="flwr"):
        arrays, metrics = clients.round(2, arrays, node_3(BAD[kind]))
    assert "rejected the reply of node 3" in caplog.text
    first, report = strategy.reports
    assert list(report.rejected) == [3]
    assert (metrics["jopeq-clients"], metrics["jopeq-rejected"]) == (6, 1)
    assert np.isfinite(arrays["w"].numpy()).all()
    assert set(report.bytes_up) == set(report.entries) == set(NODES) - {3}
    is_spent = kind in ("weight", "metrics", "list for a number")  # beside a sound payload
    assert (strategy._spent[3] != before) == (3 in report.epsilon) == is_spent
    assert first.epsilon[3] < report.epsilon[4]


# One client against the others


def answered(clients, number, arrays):
    messages = clients.strategy.configure_train(number, arrays, ConfigRecord(), clients.grid)
    return clients._answers(messages, None)


@pytest.mark.parametrize(
    "scheme",
    [
        SCHEME,
        jopeq.Sphere(epsilon=8.0, clip=1.0, draws=1 << 12),
    ],
)
def test_without_weights_all_clients_count_the_same(flower, scheme):
    clients = coded(flower, scheme)
    arrays, metrics = clients.round(1, start())
    assert metrics["jopeq-epsilon"] == pytest.approx(scheme.cost({"w": 600, "b": 3}).epsilon)
    replies = answered(clients, 2, arrays)
    like = {"w": np.zeros((20, 30), np.float32), "b": np.zeros(3)}
    payloads = [from_content(reply.content) for reply in replies]
    updates = [scheme.decode(payload, like=like)["w"] for payload in payloads]
    averaged, _ = clients.strategy.aggregate_train(2, replies)
    expected = arrays["w"].numpy() + np.mean(updates, axis=0)
    np.testing.assert_allclose(averaged["w"].numpy(), expected, atol=1e-5)


def test_a_node_counts_once_and_its_error_stays_on_one_line(flower):
    clients = coded(flower)
    strategy, (expected, _) = clients.strategy, clients.round(1, start())
    replies = answered(clients, 2, start())
    arrays, _ = strategy.aggregate_train(2, [*replies, *[replies[0]] * 5])
    np.testing.assert_allclose(arrays["w"].numpy(), expected["w"].numpy(), atol=1e-6)
    first, second = strategy.reports
    assert (first.epsilon, first.bytes_up) == (second.epsilon, second.bytes_up)
    error = Error(code=0, reason="two\nlines" + "x" * 10_000)
    clients.round(3, start(), lambda n, r: r if n != 3 else Message(error, reply_to=r))
    (failure,) = strategy.reports[2].failed
    assert failure.reason.startswith("two\\nlines")
    assert (len(failure.reason) < 250, failure.is_refusal, failure.code) == (
        True,
        False,
        "flower-0",
    )


def test_one_weight_cannot_set_the_model(flower):
    def spoil(content):
        content["arrays"] = to_record(EXACT.encode(state(0.1, 0.0)))
        content["metrics"]["num-examples"] = 1 << 62

    arrays, _ = coded(flower).round(1, start(), node_3(spoil))
    moved = arrays["w"].numpy() - start()["w"].numpy()
    assert np.mean(moved) / 0.1 == pytest.approx(400 / (400 + 250), abs=0.05)  # median 40, tenfold
    assert not np.allclose(moved, 0.1, atol=1e-3)


@pytest.mark.parametrize("scheme", [EXACT, jopeq.scheme("jopeq", epsilon=4.0, rate=2.0)])
def test_one_update_cannot_set_the_model(flower, scheme):
    clients = coded(flower, scheme)
    huge = scheme.encode(state(1e30, 1e30))
    arrays, _ = clients.round(1, start(), node_3(payload_as(lambda _: huge)))
    assert "times the cohort's median" in clients.strategy.reports[0].rejected[3]
    assert np.abs(arrays["w"].numpy()).max() < 10


def test_a_round_without_a_usable_reply_fails_loudly_and_keeps_the_model(flower, caplog):
    for mods, codes in ((None, set()), (lambda _: JoPEQMod(EXACT), {"settings"})):
        clients = federation(flower, JoPEQStrategy(FedAvg(**minimum(7)), SCHEME), mods)
        with pytest.raises(RoundFailedError) as caught:
            clients.round(1, start())
        assert caught.value.arrays["steps"].numpy() == 4
        assert {failure.code for failure in caught.value.reports[-1].failed} == codes
    assert f"the server uses scheme {SCHEME.spec} and this client {EXACT.spec}" in caplog.text


def test_partial_participation_stragglers_errors_and_a_node_that_was_not_asked(flower):
    inner = FedAvg(fraction_train=0.7, min_train_nodes=4, min_available_nodes=7)
    clients, seen = coded(flower, SCHEME, inner), []

    def spoil(node, reply):
        seen.append(node)
        if len(seen) == 1:
            return None  # never answers
        if len(seen) == 2:
            return Message(Error(code=8, reason="crashed"), reply_to=reply)
        if len(seen) == 3:
            reply.metadata.__dict__["_src_node_id"] = 99
        return reply

    arrays, metrics = clients.round(1, start(), spoil)
    assert arrays is not None
    assert (metrics["jopeq-clients"], metrics["jopeq-failed"]) == (1, 1)
    assert "no train message" in clients.strategy.reports[0].rejected[99]
    arrays, metrics = clients.round(2, arrays, lambda *_: None)  # nobody answers
    assert (arrays, metrics["jopeq-clients"]) == (None, 0)


# The mean in one pass


class Louder(FedAvg):
    """Samples as it likes, averages as Flower does."""

    def configure_train(self, *arguments):
        return super().configure_train(*arguments)


class Different(FedAvg):
    def aggregate_train(self, server_round, replies):
        return super().aggregate_train(server_round, replies)


def test_who_averages():
    assert [name for name, make in MAKERS.items() if averages(make())] == list(MEANS)
    transparent = flwr_strategies.DifferentialPrivacyClientSideFixedClipping
    assert averages(Louder())
    assert averages(transparent(FedAvg(), 1.0, 1.0, 5))
    assert not averages(Different())


def test_averaging_decodes_no_update_and_gives_what_aggregate_gives(flower, monkeypatch):
    like = {"w": np.zeros(200_000, np.float32)}
    clients = coded(flower, SCHEME, nodes=range(1, 21), mod={"metrics": ["num-examples"]})
    replies = answered(clients, 1, record(**like))
    weights = [10.0 * reply.metadata.src_node_id for reply in replies]
    shares = [weight / sum(weights) for weight in weights]
    payloads = [from_content(reply.content) for reply in replies]
    expected = jopeq.aggregate(payloads, shares, scheme=SCHEME, like=like)["w"]
    monkeypatch.setattr(strategies, "decoded_floats", lambda *_: pytest.fail("decoded"))
    tracemalloc.start()
    averaged, _ = clients.strategy.aggregate_train(1, replies)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(averaged["w"].numpy(), expected, rtol=3e-7, atol=1e-8)
    assert peak < 8 * 800_000  # twenty models have 20 times 800,000 bytes


def test_another_layout_costs_no_more_than_its_own_pass(flower, monkeypatch):
    """Arrays in another order, or left out: no client makes the server decode all models."""
    strategy = JoPEQStrategy(MAKERS["FedAvg"](), EXACT)
    mods = {3: ["b"], 4: ["w"]}
    clients = federation(flower, strategy, lambda n: JoPEQMod(EXACT, frozen=mods.get(n, [])))

    def swapped(node, reply):
        if node == 5:
            payload = from_content(reply.content)
            like = {name: start()[name].numpy() for name in ("b", "w")}
            update = EXACT.decode(payload, like=like)
            reply.content["arrays"] = to_record(EXACT.encode(update))
        return reply

    monkeypatch.setattr(strategies, "decoded_floats", lambda *_: pytest.fail("decoded"))
    arrays, _ = clients.round(1, start(), swapped)
    for name, frozen_by in (("w", 4), ("b", 3)):
        before = start()[name].numpy()
        sent = [train(n)(name, before) if n != frozen_by else before for n in NODES]
        expected = np.average(sent, axis=0, weights=NODES)
        np.testing.assert_allclose(arrays[name].numpy(), expected, atol=1e-6)
    assert not strategy.reports[0].rejected


def outside_the_alphabet(payload):
    header, body = open_payload(payload)
    return seal(header.to_bytes(), [b"\xff" * len(body)], None)


@pytest.mark.parametrize("count", [2, 7])
@pytest.mark.parametrize(
    ("scheme", "spoiled"),
    [
        (jopeq.scheme("response", epsilon=1.0, rate=2.0, clip=0.1), outside_the_alphabet),
        (EXACT, lambda _: EXACT.encode({"w": np.full(600, 1e30)})),
    ],
    ids=["three letters", "too large for float16"],
)
def test_what_the_sum_finds_bad_is_taken_out_of_it(flower, count, scheme, spoiled):
    inner, nodes = FedAvg(**minimum(count)), range(2, count + 2)
    clients = coded(flower, scheme, inner, nodes=nodes, max_norm_ratio=math.inf)
    model = record(w=np.zeros(600, np.float16))
    after, metrics = clients.round(1, model, node_3(payload_as(spoiled)))
    assert list(clients.strategy.reports[0].rejected) == [3]
    assert metrics["jopeq-clients"] == count - 1
    assert 0 < np.abs(after["w"].numpy()).max() < 10


def test_kernels_are_loaded_before_the_round(flower, monkeypatch):
    announced, clients = [], coded(flower)
    monkeypatch.setattr(kernels, "prepare", announced.append)
    clients.strategy._rounds = 5  # as ``start`` sets it
    for number in (1, 2):
        replies = answered(clients, number, start())
        assert announced == [7 * 603 * 5, 7 * 603][:number]
        clients.strategy.aggregate_train(number, replies)


def moving(flower, strategy, mod, change):
    """All nodes train by one change."""
    return flower.Federation(strategy, dict.fromkeys(NODES, flower.trainer(change, [mod])))


@pytest.mark.parametrize(("clip", "is_warned"), [(0.005, True), (0.2, False)])
def test_a_mean_at_the_clip_is_told(flower, caplog, clip, is_warned):
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=clip)
    strategy, step = JoPEQStrategy(FedAvg(**minimum(7)), scheme), 2.0 * clip * is_warned
    clients = moving(flower, strategy, JoPEQMod(scheme), lambda _, v: v + np.float32(step))
    _, metrics = clients.round(1, record(w=np.zeros(4000, np.float32)))
    assert ("most of each update is cut off" in caplog.text) == is_warned
    # of 4,000 entries the estimate is good to 0.01
    assert metrics["jopeq-norm-to-clip"] == pytest.approx(float(is_warned), abs=0.1)


@pytest.mark.parametrize("clip", [0.1, "layers"])
def test_a_model_without_entries_to_send(flower, clip):
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=clip)
    arrays, metrics = coded(flower, scheme, mod={"frozen": ["*"]}).round(1, start())
    assert metrics["jopeq-clients"] == 7
    np.testing.assert_allclose(arrays["w"].numpy(), start()["w"].numpy(), rtol=1e-5)


class Gradients(FedAvg):
    """FedSGD: the clients' deltas are averaged and applied by the server."""

    def configure_train(self, server_round, arrays, config, grid):
        self.model = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        mean, metrics = super().aggregate_train(server_round, replies)
        return record(**{k: self.model[k].numpy() + 2 * mean[k].numpy() for k in mean}), metrics


def test_a_strategy_may_read_deltas(flower):
    """Of arrays that were not sent the delta is 0."""
    strategy = JoPEQStrategy(Gradients(**minimum(7)), EXACT, reply="delta")
    mod = JoPEQMod(EXACT, reply="delta", frozen=["b"])
    clients = moving(flower, strategy, mod, lambda _, value: np.full_like(value, 0.25))
    arrays, _ = clients.round(1, start())
    np.testing.assert_allclose(arrays["w"].numpy(), start()["w"].numpy() + 0.5, rtol=1e-6)
    assert not arrays["b"].numpy().any()
    assert arrays["steps"].numpy() == 4


@pytest.mark.parametrize("own", [True, False])
def test_lists_of_different_lengths_cost_no_client(flower, caplog, own):
    def longest(contents, _):
        models = [content["arrays"]["w"].numpy() for content in contents]  # all the mean
        assert all(np.array_equal(model, models[0]) for model in models)
        assert models[0].shape == (20, 30)
        lists = [content["metrics"]["losses"] for content in contents]
        return MetricRecord({"longest": max(map(len, lists))})

    def spoil(node, reply):
        reply.content["metrics"]["losses"] = [0.5] * node
        return reply

    inner = FedAvg(**minimum(7), **({"train_metrics_aggr_fn": longest} if own else {}))
    _, metrics = coded(flower, inner=inner).round(1, start(), spoil)
    assert (metrics["jopeq-clients"], metrics.get("longest")) == (7, 7 if own else None)
    assert ("metric 'losses' is left out" in caplog.text) != own
    assert own or metrics["loss"] == pytest.approx(0.5)


def test_error_replies_count_by_message_and_evaluation_by_bytes(flower):
    """The SuperLink answers for nodes that it lost, all under one id."""
    clients = coded(flower, inner=FedAvg(min_train_nodes=7, min_available_nodes=7))

    def lose(node, reply):
        if node < 4:
            reply = Message(Error(code=5, reason="gone"), reply_to=reply)
            reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    arrays, metrics = clients.round(1, start(), lose)
    failed = clients.strategy.reports[0].failed
    assert [(one.node, one.reason) for one in failed] == [(1, "gone")] * 3
    assert clients.strategy.reports[0].missing == [1, 2, 3][1:]  # it stands for node 1 as well
    assert (metrics["jopeq-failed"], metrics["jopeq-clients"]) == (3, 4)
    evaluated = clients.evaluate(1, arrays)
    first, second = (sum(len(a.data) for a in model.values()) for model in (start(), arrays))
    assert metrics["jopeq-bytes-down"] == 7 * first
    assert evaluated["jopeq-bytes-down"] == 7 * first + 7 * second


# Budgets and interrupted runs


def paid(flower, budgets):
    """Two clients are needed; each can pay for so many rounds."""
    cost = 603 * SCHEME.guarantee.epsilon
    mods = {
        node: JoPEQMod(SCHEME, budget=rounds * cost, ledger=flower.ledger(rounds * cost))
        for node, rounds in budgets.items()
    }
    return federation(
        flower, JoPEQStrategy(FedAvg(**minimum(2)), SCHEME), mods.__getitem__, budgets
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
    saved, same = (JoPEQStrategy(FedAvg(), SCHEME) for _ in range(2))
    state = saved.state_dict()
    for other, changed, words in (
        (JoPEQStrategy(FedAvg(), EXACT), {}, "scheme"),
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
    clients.apps[2] = flower.trainer(train(2), [JoPEQMod(EXACT)])  # another scheme
    clients.apps[4] = flower.trainer(train(4), [])  # no mod
    clients.round(1, start(), lambda node, reply: None if node == 6 else reply)
    said = warnings(caplog)
    for node, reason in ((2, "[settings]"), (4, "JoPEQMod"), (6, "did not answer")):
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

    strategy, again = (JoPEQStrategy(FedAvg(**minimum(7)), scheme) for _ in range(2))
    clients = moving(flower, strategy, JoPEQMod(scheme), change)
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


class Many(FedAvg):
    """Reads several metric records of a reply."""

    def aggregate_train(self, server_round, replies):
        return None, MetricRecord()


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
    evaluated = strategy.aggregate_evaluate(1, replies[:2] + replies[:1] + replies[2:])
    assert evaluated["loss"] == pytest.approx(1.0)
    one = reply(**GOOD)
    two_records(one.content)
    assert list(bad_metrics([one], flwr_strategies.FedMedian())) == [0]
    assert list(bad_metrics([one], Many(), "evaluate")) == [0]
    assert bad_metrics([one], Many()) == {}
