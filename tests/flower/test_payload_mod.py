import logging
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.common.constant import ErrorCode, SType

import jopeq
from jopeq.flower import PayloadMod, find_frozen
from jopeq.flower.arrays import STYPE, from_content
from jopeq.flower.payload_mod import SECAGG, offer
from jopeq.flower.refusals import SENTENCES, read_failure
from jopeq.wire.payload import open_payload

SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)


EXACT = jopeq.scheme("none")
MODEL = {
    "w": np.ones((3, 4), np.float32),
    "scale": np.array(2.0),
    "steps": np.array(5),
    "mask": np.array([True, False]),
    "running": np.ones(2, np.float16),
}
FLOATS = {name: MODEL[name] for name in ("w", "scale", "running")}
COST = 15 * SCHEME.guarantee.epsilon  # of one update of all floats


def halve(name, value):
    return value if value.dtype.kind in "iub" else (value / 2).astype(value.dtype)


def must_not_train(*_):
    pytest.fail("trained")


def failing(msg, _):
    raise ValueError("the app's own")


QUOTING = "could not convert 'Jane Doe'"


def returning(msg, _):
    return Message(Error(1, QUOTING), reply_to=msg)


def echo(msg, _):
    return Message(content=msg.content, reply_to=msg)


def app_of(answer, *mods):
    app = ClientApp(mods=list(mods))
    app.train()(answer)
    return app


def answer(flower, chosen, *, change=halve, context=None, model=MODEL, **message):
    """What the mod makes of the reply of an app that trains by ``change``."""
    app = flower.trainer(change, [chosen])
    return app(flower.train_message(model, **message), context or flower.context())


def refused(reply, code=None):
    """The reason of a refusal; its sentence is all that the server may read."""
    assert reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION
    failure = read_failure(reply)
    assert (failure.made_by, code or failure.code) == ("PayloadMod", failure.code)
    assert code is None or reply.error.reason.endswith(f": {SENTENCES[code]}")
    return reply.error.reason


# Updates


def test_update_becomes_one_payload_without_integers(flower):
    reply = answer(flower, PayloadMod(EXACT))
    (record,) = reply.content.array_records.values()
    assert [array.stype for array in record.values()] == [STYPE]
    payload = from_content(reply.content)
    assert open_payload(payload)[0].names == tuple(FLOATS)
    update = EXACT.decode(payload, like=FLOATS)
    for name, value in FLOATS.items():
        np.testing.assert_array_equal(update[name], -value / 2)
    assert dict(reply.content["metrics"]) == {"num-examples": 10, "loss": 0.5}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.full((3, 4), np.nan), "'w' holds"),
        (np.full((3, 4), np.inf), "'w' holds"),
        (np.zeros((7, 7)), "(7, 7)"),
        (None, "reserved: rename it"),
    ],
)
def test_a_bad_reply_is_told_to_the_server_without_privacy(flower, value, reason):
    def spoil(msg, context, call_next):  # a mod nearer to the app
        reply = call_next(msg, context)
        if value is None:
            reply.content["jopeq"] = ConfigRecord({"mine": 1})  # our own record
        else:
            reply.content["arrays"]["w"] = Array(value.astype(np.float32))
        return reply

    app = flower.trainer(halve, [PayloadMod(EXACT), spoil])
    assert reason in refused(app(flower.train_message(MODEL), flower.context()))


@pytest.mark.parametrize("scheme", [EXACT, SCHEME])
@pytest.mark.parametrize("extra", [{}, {"z": np.zeros(0)}])
def test_a_server_that_adds_records_gets_nothing(flower, scheme, extra):
    """A second record could call a frozen array by another name."""
    message = flower.train_message({"w": np.ones(3)}, x=flower.records(extra)["arrays"])
    app = app_of(must_not_train, PayloadMod(scheme, frozen=["w"]))
    refused(app(message, flower.context()), "model")


class Layer:
    """A part of a PyTorch module, as far as names and ``requires_grad`` go."""

    def __init__(self, parameters, buffers=()):
        self.parameters, self.buffers = parameters, buffers

    def named_parameters(self, recurse):
        return [(name, SimpleNamespace(requires_grad=on)) for name, on in self.parameters.items()]

    def named_buffers(self, recurse):
        return [(name, None) for name in self.buffers]


class Adapted:
    """A frozen base with a normalisation layer, and a head that trains."""

    def named_modules(self):
        statistics = ("running_mean", "num_batches_tracked")
        return [
            ("", Layer({"scale": False})),
            ("base", Layer({"weight": False, "bias": False})),
            ("bn", Layer({"weight": False}, statistics)),
            ("plain", Layer({}, statistics)),
            ("head", Layer({"weight": True, "bias": False})),
        ]


def test_what_the_model_trains_is_sent(flower, caplog):
    names = ("scale", "base.weight", "bn.running_mean", "plain.running_mean", "head.weight")
    message = flower.train_message({name: np.ones(2) for name in (*names, "head.bias")})
    app = app_of(echo, PayloadMod(SCHEME, frozen=find_frozen(Adapted())))
    payload = from_content(app(message, flower.context()).content)
    assert open_payload(payload)[0].names == ("plain.running_mean", "head.weight")
    assert "'base.bias' matches no array" in caplog.text  # of this message


# Settings


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"scheme": None}, "scheme"),
        ({"scheme": SCHEME, "delta": 1e-5}, "budget"),
        ({"scheme": SCHEME, "ledger": "ledger.json"}, "budget"),
        *(({"scheme": SCHEME, name: "loss"}, name) for name in ("frozen", "metrics")),
        ({"scheme": SCHEME, "budget": -1.0}, "budget"),
        ({"scheme": jopeq.Response(epsilon=4.0, rate=2.0), "budget": 1.0}, "clip"),
    ],
)
def test_settings_that_do_not_fit_are_refused_at_construction(keywords, words):
    with pytest.raises(ValueError, match=words):
        PayloadMod(**keywords)


# Messages that do not train


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_other_replies_keep_the_metrics_that_are_named_and_lose_all_else(flower, caplog, kind):
    app = flower.trainer(halve, [PayloadMod(SCHEME, metrics=["loss"])])
    for node, expected in (
        ({}, {"loss": 0.5}),
        ({"jopeq-metrics": "num-examples=7"}, {"num-examples": 7}),
    ):
        reply = app(flower.train_message(MODEL, kind=kind), flower.context(node_config=node))
        assert {key: dict(one) for key, one in reply.content.items()} == {"metrics": expected}
    bare = flower.trainer(halve, [PayloadMod(SCHEME)])
    assert not len(bare(flower.train_message(MODEL, kind=kind), flower.context()).content)
    assert "'arrays'" in caplog.text


def test_a_legacy_client_does_not_hand_out_its_parameters(flower):
    message = flower.train_message(MODEL, kind="get_parameters")
    reply = PayloadMod(SCHEME)(message, flower.context(), must_not_train)
    refused(reply, "message-type")
    for kind in ("get_parameters", "evaluate"):  # without privacy all replies pass
        message = flower.train_message(MODEL, kind=kind)
        assert PayloadMod(EXACT)(message, flower.context(), echo).content["arrays"]


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_errors_of_the_app_are_its_own_where_nothing_is_private(flower, kind):
    message = flower.train_message(MODEL, kind=kind, jopeq=offer(EXACT))
    with pytest.raises(ValueError, match="the app's own"):
        PayloadMod(EXACT)(message, flower.context(), failing)
    message = flower.train_message(MODEL, kind=kind)
    assert PayloadMod(EXACT)(message, flower.context(), returning).error.reason == QUOTING


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_the_text_of_an_error_may_quote_a_record_and_stays(flower, caplog, kind):
    for app in (failing, returning):
        message = flower.train_message(MODEL, kind=kind)
        assert not len(PayloadMod(SCHEME)(message, flower.context(), app).content)
    assert "the app's own" in caplog.text
    assert QUOTING in caplog.text


# Metrics


def test_metrics_of_a_private_reply_stay_unless_they_are_named(flower, caplog):
    with caplog.at_level(logging.WARNING, logger="flwr"):
        reply = answer(flower, PayloadMod(SCHEME))
    assert list(reply.content) == ["arrays"]
    assert "'num-examples', 'loss' of the app's reply stay on this client" in caplog.text
    assert "jopeq-metrics" in caplog.text
    reply = answer(flower, PayloadMod(SCHEME, metrics=["num-examples"]))
    assert dict(reply.content["metrics"]) == {"num-examples": 10}


@pytest.mark.parametrize(
    ("chosen", "node"),
    [
        (PayloadMod(SCHEME, metrics={"num-examples": 600}), {}),
        (PayloadMod(SCHEME), {"jopeq-metrics": "num-examples=600"}),
    ],
)
def test_a_declared_metric_is_a_constant_from_the_first_round_on(flower, chosen, node):
    for app in (app_of(failing, chosen), flower.trainer(halve, [chosen])):
        reply = app(flower.train_message(MODEL), flower.context(node_config=node))
        assert dict(reply.content["metrics"]) == {"num-examples": 600}


def test_a_metric_that_is_only_named_repeats_its_last_value(flower):
    chosen, context = PayloadMod(SCHEME, metrics=["num-examples", "loss"]), flower.context()
    broken = app_of(failing, chosen)
    first = broken(flower.train_message(MODEL), context)
    assert dict(first.content["metrics"]) == {"num-examples": 1, "loss": 1}
    good = answer(flower, chosen, context=context)
    again = broken(flower.train_message(MODEL), context)
    assert good.content["metrics"] == again.content["metrics"]
    assert dict(again.content["metrics"]) == {"num-examples": 10, "loss": 0.5}


# Failures


PRECISE = jopeq.scheme("response", epsilon=30.0, rate=6.0, clip=1.0)  # errors below 0.05


def test_a_private_payload_holds_the_update_and_that_of_a_failed_app_is_zero(flower, caplog):
    payload = from_content(answer(flower, PayloadMod(PRECISE)).content)
    update = PRECISE.decode(payload, like=FLOATS)
    for name, value in FLOATS.items():
        np.testing.assert_allclose(update[name], -value / 2, atol=0.1)
    with caplog.at_level(logging.ERROR, logger="flwr"):
        reply = app_of(failing, PayloadMod(PRECISE))(flower.train_message(MODEL), flower.context())
    update = PRECISE.decode(from_content(reply.content), like=FLOATS)
    assert all(np.abs(value).max() < 0.1 for value in update.values())
    assert "the app's own" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("failures", [1, 2])
def test_an_update_that_cannot_be_encoded_becomes_zero(flower, monkeypatch, caplog, failures):
    """Only if 0 cannot be encoded either, the server gets an error, always the same one."""
    encode, seen = jopeq.Scheme.encode, []

    def broken(scheme, update, **keywords):
        seen.append(update)
        if len(seen) <= failures:
            raise ValueError("entry 3 is 0.25")
        return encode(scheme, update, **keywords)

    monkeypatch.setattr(jopeq.Scheme, "encode", broken)
    chosen, path = charged(flower, 1e6, PRECISE, metrics={"n": 3})
    with caplog.at_level(logging.ERROR, logger="flwr"):
        reply = answer(flower, chosen, jopeq=offer(PRECISE))
    assert all(not value.any() for value in seen[1].values())
    assert "entry 3 is 0.25" in caplog.text
    assert jopeq.Ledger.load(path).rounds == 1
    if failures == 1:
        assert list(reply.content) == ["metrics", "arrays"]
        update = PRECISE.decode(from_content(reply.content), like=FLOATS)
        assert all(np.abs(value).max() < 0.1 for value in update.values())
    else:
        refused(reply, "encoding")


# Budget


def charged(flower, budget=1000.0, scheme=SCHEME, **options):
    """A mod with a budget, and the ledger that it is charged to."""
    path = flower.ledger(budget)
    return PayloadMod(scheme, budget=budget, ledger=path, **options), path


def test_messages_at_once_share_one_budget(flower):
    """A SuperNode answers each message in a task of its own, with a copy of Flower's state."""
    (chosen, _), ready = charged(flower, 1.5 * COST), threading.Barrier(5)

    def task(_):
        message, context = flower.train_message(MODEL), flower.context()
        ready.wait()
        return chosen(message, context, echo).has_error()

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(task, range(5))) == [False, True, True, True, True]


def test_budget_and_ledger_of_the_node(flower):
    path = str(flower.ledger(1.5 * COST))
    own = {"jopeq-budget": 1.5 * COST, "jopeq-ledger": path}
    context = flower.context(node_config=own)
    replies = [answer(flower, PayloadMod(SCHEME), context=context) for _ in range(2)]
    assert [reply.has_error() for reply in replies] == [False, True]
    assert jopeq.Ledger.load(path).rounds == 1
    in_code = PayloadMod(SCHEME, budget=1.5 * COST)  # the app's budget, the node's file
    refused(answer(flower, in_code, context=flower.context(node_config={"jopeq-ledger": path})))


def test_the_nodes_budget_wins_over_the_apps_code(flower, tmp_path):
    """The app comes from whoever starts the run, the node's configuration from the site."""
    mine, theirs = flower.ledger(1e6, 1e-5), flower.ledger(1e6, 0.1)
    generous = PayloadMod(SCHEME, budget=1e6, delta=0.1, ledger=theirs)
    small = flower.context(node_config={"jopeq-budget": 1})
    refused(answer(flower, generous, change=must_not_train, context=small), "budget-spent")
    own = jopeq.Ledger.load(tmp_path / "flower-home/jopeq/ledgers/client.json")
    assert (own.budget, own.delta, own.rounds) == (1.0, 0.0, 0)
    partly = flower.context(node_config={"jopeq-budget-delta": 1e-5, "jopeq-ledger": str(mine)})
    assert not answer(flower, generous, context=partly).has_error()
    assert [jopeq.Ledger.load(path).rounds for path in (mine, theirs)] == [1, 0]


def ledgers(home):
    found = sorted((home / "jopeq" / "ledgers").glob("[!.]*"))
    return {path.stem: jopeq.Ledger.load(path).rounds for path in found}


def test_a_budget_without_a_file_has_one_in_flowers_home_for_each_client(flower, tmp_path):
    """By the node's own words: a node id is the server's."""
    home, node = tmp_path / "flower-home", {"jopeq-budget": 1.5 * COST}
    for keywords, own in (
        ({"budget": 1.5 * COST}, {"partition-id": 3}),
        ({}, {**node, "partition-id": 3, "jopeq-client": "ward-7"}),
        ({}, node),
    ):
        for number, expected in ((7, None), (8, "budget-spent")):  # the node came back as 8
            context = flower.context({}, own, number)
            reply = answer(flower, PayloadMod(SCHEME, **keywords), context=context)
            assert refused(reply, expected) if expected else not reply.has_error()
    assert ledgers(home) == {"client": 1, "partition-3": 1, "ward-7": 1}


def test_a_first_ledger_is_announced(flower, tmp_path, caplog):
    """A lost home takes every trace of the old ledger along: the operator has to notice."""
    path = tmp_path / "flower-home/jopeq/ledgers/client.json"
    answer(flower, PayloadMod(SCHEME, budget=1e6))
    (told,) = [one.getMessage() for one in caplog.records if str(path) in one.getMessage()]
    assert "jopeq-ledger" in told
    caplog.clear()
    answer(flower, PayloadMod(SCHEME, budget=1e6))  # now it is there
    assert str(path) not in caplog.text


@pytest.mark.parametrize("damage", ["file", "folder", "older copy"])
def test_a_deleted_ledger_does_not_count_as_unspent(flower, tmp_path, caplog, damage):
    chosen, context = PayloadMod(SCHEME, budget=1e6), flower.context()
    path = tmp_path / "flower-home" / "jopeq" / "ledgers" / "client.json"
    answer(flower, chosen, context=context)
    before = path.read_bytes()
    answer(flower, chosen, context=context)
    if damage == "older copy":
        path.write_bytes(before)
    elif damage == "folder":
        shutil.rmtree(path.parent)
    else:
        path.unlink()
        context = flower.context()  # a later run, with a new state, can tell too
    refused(answer(flower, chosen, change=must_not_train, context=context), "budget")
    assert ("an older copy" if damage == "older copy" else "is gone") in caplog.text


@pytest.mark.parametrize(
    ("damage", "logged"),
    [
        ("deleted", "jopeq ledger init"),
        ("damaged", "not a ledger"),
        ("below a file", "PayloadMod"),
        ("another budget", "budget 2000 at δ = 0, its settings now say 1000"),
    ],
)
def test_a_ledger_that_cannot_be_used_sends_nothing(flower, caplog, damage, logged):
    path = flower.ledger(2000.0 if damage == "another budget" else 1000.0)
    if damage == "deleted":
        path.unlink()
    elif damage == "damaged":
        path.write_text('{"a": 1}\nsecret line\n')
    elif damage == "below a file":
        path /= "ledger.json"
    before = path.read_bytes() if path.is_file() else None
    chosen = PayloadMod(SCHEME, budget=1000.0, ledger=path)
    refused(answer(flower, chosen, change=must_not_train), "budget")
    assert logged in caplog.text
    assert (path.read_bytes() if path.is_file() else None) == before


def test_every_link_to_a_ledger_has_the_same_lock_and_stays_a_link(flower, tmp_path):
    path, link = flower.ledger(1000.0), tmp_path / "link.json"
    link.symlink_to(path.name)
    lock = path.with_name(f".{path.name}.lock")
    lock.write_text("precious")
    assert not answer(flower, PayloadMod(SCHEME, budget=1000.0, ledger=link)).has_error()
    assert jopeq.Ledger.load(path).rounds == 1
    assert link.is_symlink()
    assert lock.read_text() == "precious"
    assert not link.with_name(f".{link.name}.lock").exists()


def test_the_charge_is_written_down_before_training(flower):
    (chosen, path), seen = charged(flower, frozen=["run*"]), []

    def change(_, value):
        seen.append(jopeq.Ledger.load(path).spent.epsilon)
        return value

    answer(flower, chosen, change=change)
    assert seen == pytest.approx([13 * SCHEME.guarantee.epsilon] * len(MODEL))


# Beside other parts of Flower


@pytest.mark.parametrize("kind", ["fixed", "adaptive", "local"])
def test_flowers_mods_for_privacy_work_behind_jopeqs(flower, kind):
    """They see the app's config record alone, and clip what the app returned."""
    theirs = {
        "fixed": fixedclipping_mod,
        "adaptive": adaptiveclipping_mod,
        "local": LocalDpMod(clipping_norm=0.5, sensitivity=1.0, epsilon=1e12, delta=1e-5),
    }[kind]

    def train(msg, _):
        arrays = flower.records({"w": msg.content["arrays"]["w"].numpy() + 3.0})
        return Message(RecordDict({**arrays, "metrics": MetricRecord({"n": 1})}), reply_to=msg)

    app = app_of(train, PayloadMod(EXACT), theirs)
    message = flower.train_message({"w": np.ones(4)}, jopeq=offer(EXACT))
    message.content["config"]["clipping_norm"] = 0.5
    reply = app(message, flower.context())
    update = EXACT.decode(from_content(reply.content), like={"w": np.ones(4)})["w"]
    np.testing.assert_allclose(update, 0.25, atol=1e-6)  # norm 6 became 0.5
    assert ("norm_bit" in reply.content["metrics"]) == (kind == "adaptive")


# What is refused before training, and charged to nobody


BAD_KEYS = {
    "jopeq-client": "../ward",
    "jopeq-identity": 7,
    "jopeq-metric": "loss",
    "jopeq-budget": -1,
    "jopeq-max-delta": "small",
}
SMALL = jopeq.Sphere(epsilon=4.0, clip=1.0, max_entries=14)
TERMS = {"jopeq": offer(SMALL, SMALL.round(dimension=13, seed=bytes(32)))}
CLEAR = [jopeq.scheme("sdq", rate=4.0), jopeq.scheme("response", epsilon=4.0, rate=2.0)]
CLEAR += [jopeq.scheme("response", epsilon=4.0, rate=2.0, per="tensor", center=True)]
UNREADABLE = [Array("float32", (4,), SType.NUMPY, data) for data in (b"", b"garbage")]
UNREADABLE += [Array("float32", (4,), "other", b""), Array(np.ones(2, np.complex64))]


@pytest.mark.parametrize(
    ("chosen", "run", "node", "message", "code", "logged"),
    [
        (PayloadMod(SCHEME), {"jopeq-budget": 1e3}, {}, {}, "settings", "jopeq-budget"),
        (PayloadMod(SCHEME), {}, {}, {"jopeq": offer(EXACT)}, "settings", SCHEME.spec),
        *(
            (PayloadMod(SCHEME), {}, node, {}, "budget", "")
            for node in (
                {"jopeq-ledger": "ledger.json"},
                {"jopeq-budget-delta": 1e-5, "jopeq-budget": ""},
            )
        ),
        *(
            (PayloadMod(SCHEME), {}, {key: value}, {}, "settings", f"{key} is {value!r}")
            for key, value in BAD_KEYS.items()
        ),
        *(
            (PayloadMod(clear), {}, {"jopeq-budget": 1e9}, {"kind": kind}, None, "")
            for clear, kind in (*((clear, "train") for clear in CLEAR), (CLEAR[1], "evaluate"))
        ),
        (PayloadMod(SCHEME), {}, {}, {SECAGG: ConfigRecord()}, "secagg", "SumMod"),
        (PayloadMod(SMALL, budget=1e3), {}, {}, TERMS, "too-many-entries", "max_entries"),
        (PayloadMod(SMALL, budget=1e3), {}, {}, {}, "settings", "no terms of a round"),
        *(
            (PayloadMod(SCHEME, budget=1e3), {}, {}, {"model": {"w": array}}, "model", "")
            for array in UNREADABLE
        ),
    ],
)
def test_what_is_refused_before_training_and_charged_to_nobody(
    flower, tmp_path, caplog, chosen, run, node, message, code, logged
):
    context = flower.context(run, node)
    refused(answer(flower, chosen, change=must_not_train, context=context, **message), code)
    assert logged in caplog.text
    assert not any(ledgers(tmp_path / "flower-home").values())


def test_frozen_arrays_do_not_count_against_the_most_entries(flower):
    mod = PayloadMod(SMALL, budget=1e3, frozen=["running"])
    assert not answer(flower, mod, **TERMS).has_error()
