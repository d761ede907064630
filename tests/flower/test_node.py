from dataclasses import replace

import numpy as np
import pytest
from flwr.app import RecordDict

import jopeq
from jopeq.flower import PayloadMod, check_node
from jopeq.flower.arrays import Model, sent_names, warn_unused
from jopeq.flower.node import read_metrics, refuse_run_keys
from jopeq.flower.payload_mod import offer
from jopeq.flower.refusals import read_failure
from tests.flower.identities import write_identity

SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)


def test_the_run_chooses_nothing_of_jopeq(flower):
    """A run's configuration comes from whoever starts the run: keys are refused."""
    refuse_run_keys({"num-server-rounds": 3, "jopeq-clip": ""})  # empty: not given
    with pytest.raises(ValueError, match="jopeq-epsilon"):
        refuse_run_keys({"lr": 0.1, "jopeq-epsilon": 100.0})
    app = flower.trainer(lambda _, value: value, [PayloadMod(SCHEME)])
    context = flower.context({"jopeq-enabled": False})
    reply = app(flower.train_message({"w": np.ones(2)}), context)
    assert read_failure(reply).code == "settings"


def test_frozen_patterns_match_or_warn(flower, caplog):
    """A pattern that fits nothing keeps nothing back: a typing error would send everything."""
    arrays = {name: np.ones(2) for name in ("features.0.weight", "head.bias", "head.weight")}
    model = Model(RecordDict(flower.records(arrays)))

    def left(patterns):
        warn_unused(model, patterns)
        return sent_names(model, patterns)

    assert left(["features.*", "head.bias"]) == ["head.weight"]
    assert not caplog.records
    assert left(["head", "feature.*"]) == list(arrays)
    assert [record.args for record in caplog.records] == [("head",), ("feature.*",)]
    chosen = PayloadMod(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1.0), frozen=["heads"])
    app = flower.trainer(lambda _, value: value, [chosen])
    app(flower.train_message(arrays), flower.context())
    assert ("heads",) in [record.args for record in caplog.records]


def test_metrics_that_are_let_through():
    assert read_metrics("num-examples = 600, loss") == {"num-examples": 600.0, "loss": None}
    for value in (None, "600", [600], float("nan"), float("inf")):
        with pytest.raises(ValueError, match="'n'"):
            read_metrics({"n": value})


def test_schemes_and_protocols_must_match_and_both_are_named(flower, caplog):
    """A server without jopeq gets a payload, which it cannot read."""
    older, others = (
        offer(SCHEME),
        [replace(SCHEME, **one) for one in ({"epsilon": 2.0}, {"clip": 0.2})],
    )
    older["protocol"] = 1
    app = flower.trainer(lambda _, value: value, [PayloadMod(SCHEME)])
    for offered, said in [(older, "protocol 1 "), *((offer(one), one.spec) for one in others)]:
        message = flower.train_message({"w": np.ones(2)}, jopeq=offered)
        assert read_failure(app(message, flower.context())).code == "settings"
        assert said in caplog.text
        assert SCHEME.spec in caplog.text or said == "protocol 1 "
    for given in ({}, {"jopeq": offer(SCHEME)}):
        message = flower.train_message({"w": np.ones(2)}, **given)
        assert not app(message, flower.context()).has_error()


# What a node says of itself


def test_a_node_is_checked_before_it_starts(flower, tmp_path):
    """Every problem is named with its key; a good configuration has none."""
    identity, public = write_identity(tmp_path, "one")
    (tmp_path / "trusted").write_text(public)
    good = {
        "jopeq-ledger": str(flower.ledger(4.0, 1e-5)),
        "jopeq-identity": str(identity),
        "jopeq-trusted": str(tmp_path / "trusted"),
        "jopeq-max-epsilon": 4.0,
        "jopeq-max-delta": "1e-5",
        "jopeq-columns": "age, sex = text",
        "part": 3,
    }
    assert check_node(good) == []
    stranger, _ = write_identity(tmp_path, "two")
    for change, words in (
        ({"jopeq-max-epsilom": 4.0}, "jopeq-max-epsilon, or leave it out"),
        ({"jopeq-max-epsilon": -4.0}, "jopeq-max-epsilon is -4.0"),
        ({"jopeq-max-delta": "small"}, "jopeq-max-delta is 'small'"),
        ({"jopeq-columns": "age=number"}, "jopeq-columns"),
        ({"jopeq-budget": 1.0}, "jopeq-budget"),
        ({"jopeq-identity": str(stranger)}, "must list the public key of this node"),
        ({"jopeq-ledger": str(tmp_path / "none.json")}, "jopeq ledger init"),
        *(({key: ""}, f"{key} is missing") for key in list(good)[:5]),
    ):
        (said,) = check_node({**good, **change})
        assert words in said
    identity.chmod(0o644)
    assert "chmod 600" in check_node(good)[0]
    assert len(check_node({})) == 5
