from __future__ import annotations

import pytest

import jopeq
from jopeq.flower.settings import Settings

BASE = {"jopeq-scheme": "response", "jopeq-epsilon": 4, "jopeq-rate": 2.0}


def test_run_config_names_the_scheme():
    settings = Settings.from_config({**BASE, "jopeq-clip": 0.1, "num-server-rounds": 3})
    assert settings == Settings(scheme=jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1))


def test_kebab_case_reaches_every_parameter():
    config = {"jopeq-scheme": "jopeq", "jopeq-epsilon": 3.0, "jopeq-rate": 2.0}
    settings = Settings.from_config(
        {**config, "jopeq-lattice": "A2", "jopeq-paper-sensitivity": True}
    )
    assert settings.scheme.lattice.name == "A2"
    assert settings.scheme.paper_sensitivity


def test_empty_text_counts_as_not_given():
    assert Settings.from_config({**BASE, "jopeq-clip": ""}).scheme.clip is None


def test_turned_off():
    assert Settings.from_config({**BASE, "jopeq-enabled": False}) is None
    with pytest.raises(ValueError, match="jopeq-enabled must be true or false, got 'no'"):
        Settings.from_config({**BASE, "jopeq-enabled": "no"})


def test_no_scheme_is_an_error_with_a_remedy():
    with pytest.raises(ValueError, match="set jopeq-scheme"):
        Settings.from_config({"lr": 0.1})


def test_unknown_parameter_is_named():
    with pytest.raises(ValueError, match="no parameter 'epsilom'"):
        Settings.from_config({**BASE, "jopeq-epsilom": 1.0})


def test_adaptive_clip():
    config = {**BASE, "jopeq-clip": "adaptive", "jopeq-initial-clip": 0.2}
    settings = Settings.from_config({**config, "jopeq-clip-quantile": 0.8})
    assert settings.scheme.clip == 0.2
    assert settings.adaptive_clip == jopeq.AdaptiveClip(quantile=0.8)
    assert settings.with_clip(0.3).clip == 0.3


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"jopeq-clip": "adaptive"}, "needs jopeq-initial-clip"),
        ({"jopeq-clip": 0.1, "jopeq-clip-epsilon": 1.0}, "belongs to jopeq-clip='adaptive'"),
        ({"jopeq-clip": 0.1, "jopeq-initial-clip": 1.0}, "belongs to jopeq-clip='adaptive'"),
    ],
)
def test_impossible_pairs(extra, message):
    with pytest.raises(ValueError, match=message):
        Settings.from_config({**BASE, **extra})


def test_adaptive_clip_needs_a_clip_to_start_from():
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0)
    with pytest.raises(ValueError, match="give the scheme a clip"):
        Settings(scheme=scheme, adaptive_clip=jopeq.AdaptiveClip())


def test_scheme_must_be_one():
    with pytest.raises(ValueError, match=r"made by jopeq\.scheme"):
        Settings(scheme="response")


def test_frozen_patterns():
    settings = Settings.from_config({**BASE, "jopeq-frozen": "features.*, head.bias"})
    assert settings.is_frozen("features.0.weight")
    assert settings.is_frozen("head.bias")
    assert not settings.is_frozen("head.weight")


def test_metrics_that_are_let_through():
    settings = Settings.from_config({**BASE, "jopeq-metrics": "num-examples, loss"})
    assert settings.metrics == ("num-examples", "loss")
    assert Settings.from_config(BASE).metrics == ()


@pytest.mark.parametrize("name", ["none", "sdq", "dq"])
def test_schemes_without_an_epsilon_are_not_private(name):
    parameters = {} if name == "none" else {"rate": 2.0}
    assert not Settings(scheme=jopeq.scheme(name, **parameters)).is_private
    assert Settings.from_config(BASE).is_private
