from dataclasses import replace

import numpy as np
import pytest
from flwr.app import RecordDict

import jopeq
from jopeq.flower import JoPEQMod
from jopeq.flower.payload import Model
from jopeq.flower.settings import (
    Settings,
    SettingsMismatchError,
    agree,
    declared,
    matches,
    offer,
    warn_unused,
)

BASE = {"jopeq-scheme": "response", "jopeq-epsilon": 4, "jopeq-rate": 2.0}


def test_run_config_names_the_scheme(caplog):
    settings = Settings.from_config({**BASE, "jopeq-clip": 0.1, "num-server-rounds": 3})
    assert settings == Settings(scheme=jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1))
    paper = {"jopeq-scheme": "jopeq", "jopeq-lattice": "A2", "jopeq-paper-sensitivity": True}
    scheme = Settings.from_config({**BASE, **paper, "jopeq-clip": ""}).scheme  # empty: not given
    assert (scheme.lattice.name, scheme.paper_sensitivity, scheme.clip) == ("A2", True, None)
    assert Settings.from_config({**BASE, "jopeq-enabled": False}) is None
    # another scheme of the run leaves parameters of the app's scheme out
    settings = Settings.from_config({**BASE, "jopeq-scheme": "sdq", "jopeq-clip": 0.1})
    assert settings.scheme == jopeq.scheme("sdq", rate=2.0, clip=0.1)
    assert "scheme 'sdq' has no jopeq-epsilon: left out" in caplog.text
    assert Settings.from_config({**BASE, "jopeq-scheme": "none"}).scheme == jopeq.scheme("none")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"jopeq-enabled": "no"}, "jopeq-enabled"),
        ({"jopeq-scheme": ""}, "jopeq-scheme"),
        ({"jopeq-epsilom": 1.0}, "epsilom"),
        ({"jopeq-clip": "adaptive"}, "clip"),
    ],
)
def test_impossible_settings(extra, message):
    with pytest.raises(ValueError, match=message):
        Settings.from_config({**BASE, **extra})


def test_frozen_patterns_match_with_and_without_the_record_or_warn(flower, caplog):
    """A pattern that fits nothing keeps nothing back: a typing error would send everything."""
    arrays = {name: np.ones(2) for name in ("features.0.weight", "head.bias", "head.weight")}
    content = RecordDict({**flower.records(arrays), **flower.records({"b": np.ones(1)}, "a")})
    model = Model(content)

    def left(patterns):
        settings = Settings.from_config({**BASE, "jopeq-frozen": patterns})
        warn_unused(model, settings.frozen)
        return [
            own
            for record, own in model.places.values()
            if not matches(record, own, settings.frozen)
        ]

    assert left("features.*, head.bias, a/b") == ["head.weight"]
    assert not caplog.records
    assert left("head, feature.*, a/b") == list(arrays)
    assert [record.args for record in caplog.records] == [("head",), ("feature.*",)]
    chosen = JoPEQMod(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1.0), frozen=["heads"])
    app = flower.trainer(lambda _, value: value, [chosen])
    app(flower.train_message(arrays), flower.context())
    assert ("heads",) in [record.args for record in caplog.records]


def test_metrics_that_are_let_through():
    settings = Settings.from_config({**BASE, "jopeq-metrics": "num-examples = 600, loss"})
    assert settings.metrics == {"num-examples": 600.0, "loss": None}
    assert Settings.from_config(BASE).metrics == {}
    for value in (None, "600", [600], float("nan"), float("inf")):
        with pytest.raises(ValueError, match="'n'"):
            declared({"n": value})


def test_schemes_without_an_epsilon_are_not_private():
    for name, parameters in (("none", {}), ("sdq", {"rate": 2.0}), ("dq", {"rate": 2.0})):
        assert not Settings(scheme=jopeq.scheme(name, **parameters)).is_private
    assert Settings.from_config(BASE).is_private


# What the server offers each round


SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)


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
