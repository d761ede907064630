import logging
import math
import random
import tracemalloc
from functools import partial

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.serverapp import strategy as flwr_strategies
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq.flower import PayloadMod, PayloadStrategy, RoundFailedError, SumStrategy
from jopeq.flower import payload_strategy as strategies
from jopeq.flower.arrays import from_content, to_record
from jopeq.flower.refusals import read_failure
from jopeq.flower.wrapper import averages
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
    chosen = PayloadMod(scheme, **(mod or {}))
    strategy = PayloadStrategy(inner or FedAvg(**minimum(7)), scheme, **options)
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
    arrays, _ = coded(flower, frozen=["w"], mod={"frozen": ["w"]}).round(1, start())
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
        ({"scheme": None}, "scheme"),
        *(
            ({"scheme": SCHEME, name: ratio}, name)
            for name in ("max_weight_ratio", "max_norm_ratio")
            for ratio in (0.5, math.nan, "10")
        ),
    ],
)
def test_bad_settings_are_errors_at_construction(given, words):
    with pytest.raises(ValueError, match=words):
        PayloadStrategy(FedAvg(), **given)


def test_a_strategy_of_flowers_older_api_is_refused():
    summed = jopeq.ClientSum(epsilon=4.0, clip=1.0, clients=5, threshold=4)
    for make in (partial(PayloadStrategy, scheme=SCHEME), partial(SumStrategy, scheme=summed)):
        with pytest.raises(TypeError, match="inner"):
            make(LegacyFedAvg())


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
    "another order": payload_as(lambda _: SCHEME.encode(dict(reversed(state().items())))),
    "an array left out": payload_as(lambda _: SCHEME.encode({"w": state()["w"]})),
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


def test_without_weights_all_clients_count_the_same(flower):
    scheme, clients = SCHEME, coded(flower, SCHEME)
    arrays, metrics = clients.round(1, start())
    assert metrics["jopeq-epsilon"] == pytest.approx(scheme.cost({"w": 600, "b": 3}).epsilon)
    replies = answered(clients, 2, arrays)
    like = {"w": np.zeros((20, 30), np.float32), "b": np.zeros(3)}
    payloads = [from_content(reply.content) for reply in replies]
    updates = [scheme.decode(payload, like=like)["w"] for payload in payloads]
    averaged, _ = clients.strategy.aggregate_train(2, replies)
    expected = arrays["w"].numpy() + np.mean(updates, axis=0)
    np.testing.assert_allclose(averaged["w"].numpy(), expected, atol=1e-5)


SPHERE = jopeq.Sphere(epsilon=8.0, clip=1.0, draws=1 << 12)


def test_reports_of_a_sphere_are_bare_bytes(flower):
    """Terms travel once with each message; the mean is that of ``Round``, and lies are named."""
    clients, seen = coded(flower, SPHERE, frozen=["b"], mod={"frozen": ["b"]}), []

    def spoil(node, reply):
        report = from_content(reply.content)
        seen.append((node, report))
        if node == 3:
            reply.content["arrays"] = to_record(report + b"?")
        return reply

    arrays, metrics = clients.round(1, start(), spoil)
    terms, numbers = clients.strategy._round, clients.strategy._numbers
    assert {len(report) for _, report in seen} == {2}
    assert (metrics["jopeq-clients"], metrics["jopeq-bytes-up"]) == (6, 12)
    assert list(clients.strategy.reports[0].rejected) == [3]
    total = terms.aggregator()
    for node, report in seen:
        if node != 3:
            total.add(report, client=numbers[node])
    expected = start()["w"].numpy() + total.mean().reshape(20, 30)
    np.testing.assert_allclose(arrays["w"].numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(arrays["b"].numpy(), start()["b"].numpy())
    assert metrics["jopeq-epsilon"] == SPHERE.epsilon
    first = terms.seed
    clients.round(2, arrays)
    assert clients.strategy._round.seed != first
    with pytest.raises(ValueError, match="average"):
        PayloadStrategy(MAKERS["FedMedian"](), SPHERE)


@pytest.mark.parametrize("change", ["frozen", "terms", "number", "no terms"])
def test_a_sphere_round_that_is_not_the_clients_is_refused_before_training(flower, change):
    clients = coded(flower, SPHERE, mod={"frozen": ["b"] if change == "frozen" else []})
    messages = clients.strategy.configure_train(1, start(), ConfigRecord(), clients.grid)
    message = flower.copied(next(iter(messages)))
    record = message.content["jopeq"]
    if change == "terms":
        record["terms"] = record["terms"].replace(b'"dimension": 603', b'"dimension": 602')
    elif change == "number":
        record["number"] = 7
    elif change == "no terms":
        del record["terms"]
    reply = clients.apps[1](message, clients.contexts[1])
    assert read_failure(reply).code in ("model", "settings")


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
    assert (len(failure.reason) < 450, failure.is_refusal, failure.code) == (
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
    for mods, codes in ((None, set()), (lambda _: PayloadMod(EXACT), {"settings"})):
        clients = federation(flower, PayloadStrategy(FedAvg(**minimum(7)), SCHEME), mods)
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


def test_flowers_wrapper_for_privacy_counts_every_reply(flower, caplog):
    wrapper = flwr_strategies.DifferentialPrivacyClientSideFixedClipping
    clients = coded(flower, EXACT, wrapper(FedAvg(**minimum(7)), 0.0, 1.0, 7))
    with caplog.at_level(logging.INFO, logger="flwr"):
        arrays, metrics = clients.round(1, start())
    assert "Received 7 results and 0 failures" in caplog.text
    sent = [train(n)("w", start()["w"].numpy()) for n in NODES]
    np.testing.assert_allclose(
        arrays["w"].numpy(), np.average(sent, axis=0, weights=NODES), atol=1e-5
    )
    assert metrics["jopeq-clients"] == 7


def test_averaging_decodes_no_update_and_gives_what_aggregate_gives(flower, monkeypatch):
    like = {"w": np.zeros(200_000, np.float32)}
    clients = coded(flower, SCHEME, nodes=range(1, 21), mod={"metrics": ["num-examples"]})
    replies = answered(clients, 1, record(**like))
    weights = [10.0 * reply.metadata.src_node_id for reply in replies]
    shares = [weight / sum(weights) for weight in weights]
    payloads = [from_content(reply.content) for reply in replies]
    expected = jopeq.aggregate(payloads, shares, scheme=SCHEME, like=like)["w"]
    monkeypatch.setattr(strategies, "decode_floats", lambda *_: pytest.fail("decoded"))
    tracemalloc.start()
    averaged, _ = clients.strategy.aggregate_train(1, replies)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(averaged["w"].numpy(), expected, rtol=3e-7, atol=1e-8)
    assert peak < 8 * 800_000  # twenty models have 20 times 800,000 bytes


def test_all_clients_of_a_round_get_one_model(flower):
    class Personal(FedAvg):
        def configure_train(self, *given):
            messages = list(super().configure_train(*given))
            messages[3].content = flower.copied(messages[3]).content
            messages[3].content["arrays"]["b"] = Array(np.ones(3))
            return messages

    with pytest.raises(ValueError, match="one model"):
        coded(flower, EXACT, Personal(**minimum(7))).round(1, start())


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


@pytest.mark.parametrize("clip", [0.1, "layers"])
def test_a_model_without_entries_to_send(flower, clip):
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=clip)
    clients = coded(flower, scheme, frozen=["*"], mod={"frozen": ["*"]})
    arrays, metrics = clients.round(1, start())
    assert metrics["jopeq-clients"] == 7
    np.testing.assert_allclose(arrays["w"].numpy(), start()["w"].numpy(), rtol=1e-5)


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
