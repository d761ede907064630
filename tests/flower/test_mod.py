from __future__ import annotations

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SType

import jopeq
from jopeq.flower import JoPEQMod
from jopeq.flower.payload import STYPE, from_content
from jopeq.flower.settings import offer

SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)
EXACT = jopeq.scheme("none")
MODEL = {
    "w": np.ones((3, 4), np.float32),
    "scale": np.array(2.0),
    "steps": np.array(5),
    "mask": np.array([True, False]),
    "running": np.ones(2, np.float16),
}


def halve(name, value):
    return value if value.dtype.kind in "iub" else (value / 2).astype(value.dtype)


def refused(reply):
    assert reply.has_error()
    assert reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION
    return reply.error.reason


def test_update_becomes_one_payload(flower):
    reply = flower.trainer(halve, [JoPEQMod(EXACT)])(flower.train_message(MODEL), flower.context())
    (record,) = reply.content.array_records.values()
    assert [array.stype for array in record.values()] == [STYPE]
    like = {name: MODEL[name] for name in ("w", "scale", "running")}
    update = jopeq.decode_state(EXACT, from_content(reply.content), like)
    for name, value in like.items():
        np.testing.assert_array_equal(update[name], -value / 2)
    assert dict(reply.content["metrics"]) == {"num-examples": 10, "loss": 0.5}


def test_integers_are_never_sent(flower):
    reply = flower.trainer(lambda _, v: v + 1 if v.dtype.kind == "i" else v, [JoPEQMod(EXACT)])(
        flower.train_message(MODEL), flower.context()
    )
    assert b"steps" not in from_content(reply.content)
    assert b"mask" not in from_content(reply.content)


def test_zero_update(flower):
    norm_scaled = jopeq.scheme("jopeq", epsilon=4.0, rate=2.0)
    for scheme in (SCHEME, EXACT, norm_scaled):
        app = flower.trainer(lambda _, v: v, [JoPEQMod(scheme)])
        assert not app(flower.train_message(MODEL), flower.context()).has_error()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_refused_without_privacy(flower, bad):
    app = flower.trainer(lambda n, v: np.full_like(v, bad) if n == "w" else v, [JoPEQMod(EXACT)])
    assert "'w' holds" in refused(app(flower.train_message(MODEL), flower.context()))


def test_evaluation_passes_in_the_clear_and_the_log_says_so(flower, caplog):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    with caplog.at_level(logging.WARNING, logger="flwr"):
        reply = app(flower.train_message(MODEL, kind="evaluate"), flower.context())
    assert "'evaluate' leaves in the clear" in caplog.text
    assert reply.content["arrays"]["w"].numpy().tolist() == (MODEL["w"] / 2).tolist()


def test_custom_train_actions_are_train_messages(flower):
    app = ClientApp(mods=[JoPEQMod(SCHEME)])
    app.train("other")(lambda msg, _: Message(content=msg.content, reply_to=msg))
    message = flower.train_message(MODEL, kind="train.other")
    del message.content["config"]
    assert from_content(app(message, flower.context()).content)


def test_error_replies_of_the_app_pass_without_privacy(flower):
    app = ClientApp(mods=[JoPEQMod(EXACT)])
    app.train()(lambda msg, _: Message(Error(code=0, reason="mine"), reply_to=msg))
    assert app(flower.train_message(MODEL), flower.context()).error.reason == "mine"


def test_frozen_arrays_stay_at_home(flower):
    app = flower.trainer(halve, [JoPEQMod(EXACT, frozen=["run*", "scale"])])
    payload = from_content(app(flower.train_message(MODEL), flower.context()).content)
    assert list(jopeq.decode_state(EXACT, payload, {"w": MODEL["w"]})) == ["w"]


def test_several_records(flower):
    message = flower.train_message(
        {"w": np.ones(2)}, **flower.records({"w": np.zeros(3)}, "second")
    )
    app = ClientApp(mods=[JoPEQMod(EXACT)])
    app.train()(lambda msg, _: Message(content=msg.content, reply_to=msg))
    payload = from_content(app(message, flower.context()).content)
    like = {"arrays/w": np.ones(2), "second/w": np.zeros(3)}
    assert set(jopeq.decode_state(EXACT, payload, like)) == set(like)


def test_structure_errors_are_told_to_the_server_without_privacy(flower):
    app = flower.trainer(lambda _, v: np.zeros((7, 7)), [JoPEQMod(EXACT)])
    assert "(7, 7)" in refused(app(flower.train_message(MODEL), flower.context()))


# Settings


def test_run_config_decides_without_code(flower):
    config = {"jopeq-scheme": "sdq", "jopeq-rate": 2.0}
    app = flower.trainer(halve, [JoPEQMod()])
    payload = from_content(app(flower.train_message(MODEL), flower.context(config)).content)
    assert b'"sdq"' in payload


@pytest.mark.parametrize(
    "config", [{"jopeq-enabled": False}, {"jopeq-scheme": "none"}, {"jopeq-epsilon": 1}]
)
def test_code_wins(flower, config):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    payload = from_content(app(flower.train_message(MODEL), flower.context(config)).content)
    assert b'"response"' in payload


def test_turned_off_by_run_config(flower):
    app = flower.trainer(halve, [JoPEQMod()])
    reply = app(flower.train_message(MODEL), flower.context({"jopeq-enabled": False}))
    assert reply.content["arrays"]["w"].stype == "numpy.ndarray"


def test_no_settings_is_an_error_before_training(flower):
    app = flower.trainer(lambda *_: pytest.fail("trained"), [JoPEQMod()])
    assert "set jopeq-scheme" in refused(app(flower.train_message(MODEL), flower.context()))


def test_mismatch_is_an_error_before_training(flower):
    app = flower.trainer(lambda *_: pytest.fail("trained"), [JoPEQMod(SCHEME)])
    message = flower.train_message(MODEL, jopeq=offer(EXACT, None))
    reason = refused(app(message, flower.context()))
    assert '["none",{}]' in reason
    assert SCHEME.spec in reason


@pytest.mark.parametrize(
    "keywords",
    [
        {"frozen": ["w"]},
        {"metrics": ["loss"]},
        {"adaptive_clip": jopeq.AdaptiveClip()},
        {"delta": 1e-5},
    ],
)
def test_half_given_settings_are_refused_at_construction(keywords):
    with pytest.raises(ValueError, match="give it too"):
        JoPEQMod(**keywords)


@pytest.mark.parametrize("name", ["frozen", "metrics"])
def test_a_text_is_no_list_of_names(name):
    with pytest.raises(ValueError, match=f"{name} must be a list of names, got 'loss'"):
        JoPEQMod(SCHEME, **{name: "loss"})


# Metrics


def failing(msg, _):
    raise ValueError("the app's own")


def test_metrics_of_a_private_reply_stay_unless_they_are_named(flower, caplog):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    with caplog.at_level(logging.WARNING, logger="flwr"):
        reply = app(flower.train_message(MODEL), flower.context())
    assert list(reply.content) == ["arrays"]
    assert "'num-examples', 'loss' of the app's reply stay on this client" in caplog.text
    assert "jopeq-metrics" in caplog.text


def test_named_metrics_are_sent_alone(flower):
    config = {"jopeq-scheme": "response", "jopeq-epsilon": 4.0, "jopeq-rate": 2.0}
    run = {**config, "jopeq-clip": 0.1, "jopeq-metrics": "num-examples"}
    for mod, context in (
        (JoPEQMod(SCHEME, metrics=["num-examples"]), flower.context()),
        (JoPEQMod(), flower.context(run)),
    ):
        reply = flower.trainer(halve, [mod])(flower.train_message(MODEL), context)
        assert dict(reply.content["metrics"]) == {"num-examples": 10}


def test_an_app_that_fails_repeats_its_metrics(flower):
    mod, context = JoPEQMod(SCHEME, metrics=["num-examples", "loss"]), flower.context()
    broken = ClientApp(mods=[mod])
    broken.train()(failing)
    first = broken(flower.train_message(MODEL), context)
    assert dict(first.content["metrics"]) == {"num-examples": 1, "loss": 1}
    good = flower.trainer(halve, [mod])(flower.train_message(MODEL), context)
    again = broken(flower.train_message(MODEL), context)
    assert good.content["metrics"] == again.content["metrics"]
    assert dict(again.content["metrics"]) == {"num-examples": 10, "loss": 0.5}


def test_a_failed_app_moves_nothing_and_is_logged_with_its_traceback(flower, caplog):
    loud = jopeq.scheme("laplace", epsilon=1000.0, clip=1.0)  # noise of scale 0.002
    app = ClientApp(mods=[JoPEQMod(loud)])
    app.train()(failing)
    with caplog.at_level(logging.ERROR, logger="flwr"):
        reply = app(flower.train_message(MODEL), flower.context())
    like = {name: MODEL[name] for name in ("w", "scale", "running")}
    update = jopeq.decode_state(loud, from_content(reply.content), like)
    assert all(np.abs(value).max() < 0.1 for value in update.values())
    assert "the app's own" in caplog.text
    assert "Traceback" in caplog.text


def test_what_the_app_returns_is_still_what_is_sent(flower):
    loud = jopeq.scheme("laplace", epsilon=1000.0, clip=1.0)  # noise of scale 0.002
    app = flower.trainer(halve, [JoPEQMod(loud)])
    reply = app(flower.train_message(MODEL), flower.context())
    like = {name: MODEL[name] for name in ("w", "scale", "running")}
    update = jopeq.decode_state(loud, from_content(reply.content), like)
    for name, value in like.items():
        np.testing.assert_allclose(update[name], -value / 2, atol=0.1)


def test_a_failure_of_our_own_is_charged_and_has_one_reason(flower, monkeypatch, caplog):
    def broken(*_):
        raise ValueError("entry 3 is 0.25")

    monkeypatch.setattr("jopeq.flower.mod.encode_state", broken)
    context = flower.context()
    app = flower.trainer(halve, [JoPEQMod(SCHEME, budget=1000.0)])
    with caplog.at_level(logging.ERROR, logger="flwr"):
        reason = refused(app(flower.train_message(MODEL), context))
    assert reason == "JoPEQMod: the reply could not be made (see this node's log)"
    assert "entry 3 is 0.25" in caplog.text
    assert jopeq.Ledger.from_json(context.state["jopeq-ledger"]["ledger"]).rounds == 1


# Budget


def test_budget_over_rounds(flower):
    cost = SCHEME.guarantee.epsilon * 15
    app = flower.trainer(halve, [JoPEQMod(SCHEME, budget=2.5 * cost)])
    context = flower.context()
    replies = [app(flower.train_message(MODEL), context) for _ in range(3)]
    assert [reply.has_error() for reply in replies] == [False, False, True]
    assert "above its budget" in refused(replies[2])


def test_budget_of_the_node_and_then_of_the_run(flower):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    for configs in ({"node_config": {"jopeq-budget": 1}}, {"run_config": {"jopeq-budget": 1}}):
        context = flower.context(**configs)
        assert "above its budget of 1" in refused(app(flower.train_message(MODEL), context))
    own = flower.context(run_config={"jopeq-budget": 1}, node_config={"jopeq-budget": 1000})
    assert not app(flower.train_message(MODEL), own).has_error()


def test_the_ledger_of_a_node_keeps_the_budget_of_a_run(flower, tmp_path):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    kept, others = tmp_path / "node.json", tmp_path / "run.json"
    own = {"node_config": {"jopeq-ledger": str(kept)}}
    run = {"jopeq-budget": 1.5 * 15 * SCHEME.guarantee.epsilon, "jopeq-ledger": str(others)}
    jopeq.Ledger.create(kept, run["jopeq-budget"])
    first, second = (flower.context(run_config=run, **own) for _ in range(2))  # of two runs
    assert not app(flower.train_message(MODEL), first).has_error()
    assert "above its budget" in refused(app(flower.train_message(MODEL), second))
    assert jopeq.Ledger.load(kept).rounds == 1
    assert not others.exists()


def test_a_deleted_ledger_sends_nothing(flower, tmp_path):
    """The server, who is told why in one constant sentence, cannot have the client begin anew."""
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    kept = tmp_path / "ledger.json"
    own = {"jopeq-budget": 1000.0, "jopeq-ledger": str(kept)}
    reply = app(flower.train_message(MODEL), flower.context(node_config=own))
    assert "the ledger's file cannot be read or written" in refused(reply)
    assert not kept.exists()


def test_a_ledger_that_cannot_be_written_sends_nothing(flower, tmp_path):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    (tmp_path / "file").touch()
    kept = tmp_path / "file" / "ledger.json"  # below a file, not a folder
    own = {"jopeq-budget": 1000.0, "jopeq-ledger": str(kept)}
    reply = app(flower.train_message(MODEL), flower.context(node_config=own))
    reason = refused(reply)
    assert "the ledger's file cannot be read or written" in reason
    assert str(tmp_path) not in reason


def test_a_run_cannot_name_the_file_of_a_nodes_own_budget(flower, tmp_path):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    others = tmp_path / "run.json"
    context = flower.context(
        run_config={"jopeq-ledger": str(others)}, node_config={"jopeq-budget": 1000.0}
    )
    assert not app(flower.train_message(MODEL), context).has_error()
    assert context.state
    assert not others.exists()


@pytest.mark.parametrize(
    ("node", "run"),
    [
        ({"jopeq-ledger": "ledger.json"}, {}),
        ({}, {"jopeq-ledger": "ledger.json"}),
        ({}, {"jopeq-budget-delta": 1e-5, "jopeq-budget": ""}),
        ({"jopeq-budget-delta": 1e-6}, {"jopeq-budget": 1000}),
    ],
)
def test_what_belongs_to_a_budget_is_not_ignored_without_one(flower, node, run):
    app = flower.trainer(halve, [JoPEQMod(SCHEME)])
    context = flower.context(run_config=run, node_config=node)
    assert "set" in refused(app(flower.train_message(MODEL), context))
    assert not context.state


def test_no_budget_allows_a_scheme_without_privacy(flower):
    sdq = jopeq.scheme("sdq", rate=2.0)
    app = flower.trainer(halve, [JoPEQMod(sdq, budget=1e9)])
    reason = refused(app(flower.train_message(MODEL), flower.context()))
    assert "no privacy guarantee" in reason


def test_a_spent_budget_is_refused_before_training(flower):
    app = flower.trainer(lambda *_: pytest.fail("trained"), [JoPEQMod(SCHEME, budget=1.0)])
    context = flower.context()
    assert "above its budget of 1" in refused(app(flower.train_message(MODEL), context))
    assert not context.state


def test_the_charge_is_written_down_before_training(flower):
    context = flower.context()

    def change(_, value):
        ledger = jopeq.Ledger.from_json(context.state["jopeq-ledger"]["ledger"])
        assert ledger.spent.epsilon == pytest.approx(13 * SCHEME.guarantee.epsilon)
        return value

    app = flower.trainer(change, [JoPEQMod(SCHEME, budget=1000.0, frozen=["run*"])])
    app(flower.train_message(MODEL), context)
    assert context.state


def test_a_ledger_keeps_to_one_scheme(flower):
    context, others = flower.context(), jopeq.scheme("response", epsilon=1.0, rate=2.0, clip=0.1)
    flower.trainer(halve, [JoPEQMod(SCHEME, budget=1000.0)])(flower.train_message(MODEL), context)
    app = flower.trainer(lambda *_: pytest.fail("trained"), [JoPEQMod(others, budget=1000.0)])
    assert "bound to scheme" in refused(app(flower.train_message(MODEL), context))


def test_our_own_record_in_a_reply_is_refused_without_privacy(flower):
    def named_as_ours(msg, context, call_next):  # a mod nearer to the app
        reply = call_next(msg, context)
        reply.content["jopeq"] = ConfigRecord({"mine": 1})
        return reply

    app = flower.trainer(halve, [JoPEQMod(EXACT), named_as_ours])
    context = flower.context()
    assert "reserved: rename it" in refused(app(flower.train_message(MODEL), context))


# Adaptive clip


def test_clip_bit_is_answered_and_charged(flower):
    rule = jopeq.AdaptiveClip(epsilon=20.0)
    mod = JoPEQMod(SCHEME, adaptive_clip=rule, budget=10_000.0)
    app, context = flower.trainer(halve, [mod]), flower.context()
    bits = []
    for clip in (1e-3, 100.0):
        scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=clip)
        message = flower.train_message(MODEL, jopeq=offer(scheme, rule))
        reply = app(message, context)
        bits.append(reply.content["jopeq"]["clip-bit"])
    assert bits == [0, 1]
    ledger = jopeq.Ledger.from_json(context.state["jopeq-ledger"]["ledger"])
    expected = 2 * (15 * SCHEME.guarantee.epsilon + rule.guarantee.epsilon)
    assert ledger.spent.epsilon == pytest.approx(expected)


# Bad servers


HOSTILE = {
    "empty": Array("float32", (4,), SType.NUMPY, b""),
    "garbage": Array("float32", (4,), SType.NUMPY, b"garbage"),
    "unknown": Array("float32", (4,), "other", b""),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_arrays_that_cannot_be_read_are_refused_before_training(flower, kind):
    message = flower.train_message({}, jopeq=offer(SCHEME, None))
    message.content["arrays"] = ArrayRecord({"w": HOSTILE[kind]})

    def train(*_):
        raise AssertionError("must not train")

    assert refused(JoPEQMod(SCHEME)(message, flower.context(), train))


def test_a_model_that_cannot_be_encoded_is_refused_before_training(flower):
    message = flower.train_message({"w": np.ones(2, np.complex64)})
    context = flower.context()
    app = flower.trainer(lambda *_: pytest.fail("trained"), [JoPEQMod(SCHEME, budget=1000.0)])
    assert "complex64" in refused(app(message, context))
    assert not context.state


@pytest.mark.parametrize(("kind", "scheme"), [("train", EXACT), ("evaluate", SCHEME)])
def test_errors_of_the_app_are_its_own_where_nothing_is_private(flower, kind, scheme):
    message = flower.train_message(MODEL, kind=kind, jopeq=offer(scheme, None))
    with pytest.raises(ValueError, match="the app's own"):
        JoPEQMod(scheme)(message, flower.context(), failing)


def test_a_name_among_the_settings_is_refused(flower):
    config = {"jopeq-scheme": "sdq", "jopeq-rate": 2.0, "jopeq-name": "x"}
    app = flower.trainer(halve, [JoPEQMod()])
    assert refused(app(flower.train_message(MODEL), flower.context(config)))
