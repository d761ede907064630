from dataclasses import replace

import numpy as np
import pytest
from flwr.app import RecordDict

import jopeq
from jopeq.flower import JoPEQMod
from jopeq.flower.arrays import Model
from jopeq.flower.refusals import read_failure
from jopeq.flower.settings import (
    Settings,
    SettingsMismatchError,
    agree,
    matches,
    offer,
    read_metrics,
    refuse_run_keys,
    warn_unused,
)

SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)


def test_the_run_chooses_nothing_of_jopeq(flower):
    """A run's configuration comes from whoever starts the run: keys are refused."""
    refuse_run_keys({"num-server-rounds": 3, "jopeq-clip": ""})  # empty: not given
    with pytest.raises(ValueError, match="jopeq-epsilon"):
        refuse_run_keys({"lr": 0.1, "jopeq-epsilon": 100.0})
    app = flower.trainer(lambda _, value: value, [JoPEQMod(SCHEME)])
    context = flower.context({"jopeq-enabled": False})
    reply = app(flower.train_message({"w": np.ones(2)}), context)
    assert read_failure(reply).code == "settings"


def test_frozen_patterns_match_with_and_without_the_record_or_warn(flower, caplog):
    """A pattern that fits nothing keeps nothing back: a typing error would send everything."""
    arrays = {name: np.ones(2) for name in ("features.0.weight", "head.bias", "head.weight")}
    content = RecordDict({**flower.records(arrays), **flower.records({"b": np.ones(1)}, "a")})
    model = Model(content)

    def left(patterns):
        warn_unused(model, patterns)
        places = model.places.values()
        return [own for record, own in places if not matches(record, own, patterns)]

    assert left(["features.*", "head.bias", "a/b"]) == ["head.weight"]
    assert not caplog.records
    assert left(["head", "feature.*", "a/b"]) == list(arrays)
    assert [record.args for record in caplog.records] == [("head",), ("feature.*",)]
    chosen = JoPEQMod(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1.0), frozen=["heads"])
    app = flower.trainer(lambda _, value: value, [chosen])
    app(flower.train_message(arrays), flower.context())
    assert ("heads",) in [record.args for record in caplog.records]


def test_metrics_that_are_let_through():
    assert read_metrics("num-examples = 600, loss") == {"num-examples": 600.0, "loss": None}
    assert Settings(scheme=SCHEME).metrics == {}
    for value in (None, "600", [600], float("nan"), float("inf")):
        with pytest.raises(ValueError, match="'n'"):
            read_metrics({"n": value})


def test_schemes_without_an_epsilon_are_not_private():
    for name, parameters in (("none", {}), ("sdq", {"rate": 2.0}), ("dq", {"rate": 2.0})):
        assert not Settings(scheme=jopeq.scheme(name, **parameters)).is_private
    assert Settings(scheme=SCHEME).is_private


# What the server offers each round


def test_schemes_and_protocols_must_match_and_both_are_named():
    mine = Settings(scheme=SCHEME)
    assert agree(mine, offer(SCHEME)) == SCHEME
    assert agree(mine, None) == SCHEME  # a server without jopeq gets a payload it cannot read
    older = offer(SCHEME)
    older["protocol"] = 1
    with pytest.raises(SettingsMismatchError, match="protocol 1 "):
        agree(mine, older)
    for change in ({"epsilon": 2.0}, {"clip": 0.2}):
        other = replace(SCHEME, **change)
        with pytest.raises(SettingsMismatchError) as caught:
            agree(mine, offer(other))
        assert all(spec in str(caught.value) for spec in (other.spec, SCHEME.spec))
