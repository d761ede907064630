import re

import pytest

import jopeq
from jopeq.flower.settings import Settings, SettingsMismatchError, agree, declared, offer

BASE = {"jopeq-scheme": "response", "jopeq-epsilon": 4, "jopeq-rate": 2.0}


def test_run_config_names_the_scheme():
    settings = Settings.from_config({**BASE, "jopeq-clip": 0.1, "num-server-rounds": 3})
    assert settings == Settings(scheme=jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1))
    paper = {"jopeq-scheme": "jopeq", "jopeq-lattice": "A2", "jopeq-paper-sensitivity": True}
    settings = Settings.from_config({**BASE, **paper, "jopeq-clip": ""})  # empty: not given
    assert settings.scheme.lattice.name == "A2"
    assert (settings.scheme.paper_sensitivity, settings.scheme.clip) == (True, None)
    assert Settings.from_config({**BASE, "jopeq-enabled": False}) is None


def test_another_scheme_of_the_run_leaves_parameters_of_the_apps_scheme_out(caplog):
    settings = Settings.from_config({**BASE, "jopeq-scheme": "sdq", "jopeq-clip": 0.1})
    assert settings.scheme == jopeq.scheme("sdq", rate=2.0, clip=0.1)
    assert "scheme 'sdq' has no jopeq-epsilon: left out" in caplog.text
    assert Settings.from_config({**BASE, "jopeq-scheme": "none"}).scheme == jopeq.scheme("none")


def test_adaptive_clip():
    config = {**BASE, "jopeq-clip": "adaptive", "jopeq-initial-clip": 0.2}
    settings = Settings.from_config({**config, "jopeq-clip-quantile": 0.8})
    assert settings.scheme.clip == 0.2
    assert settings.adaptive_clip == jopeq.AdaptiveClip(quantile=0.8)
    assert settings.with_clip(0.3).clip == 0.3


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"jopeq-enabled": "no"}, "jopeq-enabled must be true or false, got 'no'"),
        ({"jopeq-scheme": ""}, "set jopeq-scheme"),
        ({"jopeq-epsilom": 1.0}, "no parameter 'epsilom'"),
        ({"jopeq-clip": "adaptive"}, "needs jopeq-initial-clip"),
        ({"jopeq-clip": 0.1, "jopeq-clip-epsilon": 1.0}, "belongs to jopeq-clip='adaptive'"),
        ({"jopeq-clip": "adaptive", "jopeq-initial-clip": 1e-36}, "clip must be a number from"),
    ],
)
def test_impossible_settings(extra, message):
    with pytest.raises(ValueError, match=message):
        Settings.from_config({**BASE, **extra})


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (jopeq.scheme("response", epsilon=4.0, rate=2.0), "give the scheme a clip"),
        ("response", r"made by jopeq\.scheme"),
    ],
)
def test_an_adaptive_clip_needs_a_scheme_with_a_clip_to_start_from(scheme, message):
    with pytest.raises(ValueError, match=message):
        Settings(scheme=scheme, adaptive_clip=jopeq.AdaptiveClip())


def test_frozen_patterns_match_with_and_without_the_record():
    settings = Settings.from_config({**BASE, "jopeq-frozen": "features.*, head.bias, a/b"})
    assert settings.is_frozen("arrays", "features.0.weight")
    assert settings.is_frozen("arrays", "head.bias")
    assert settings.is_frozen("a", "b")
    assert not settings.is_frozen("arrays", "head.weight")


def test_metrics_that_are_let_through():
    settings = Settings.from_config({**BASE, "jopeq-metrics": "num-examples = 600, loss"})
    assert settings.metrics == {"num-examples": 600.0, "loss": None}
    assert Settings.from_config(BASE).metrics == {}
    for value in (None, "600", [600], float("nan"), float("inf")):
        with pytest.raises(ValueError, match="metric 'n' must be declared as a number"):
            declared({"n": value})


@pytest.mark.parametrize("name", ["none", "sdq", "dq"])
def test_schemes_without_an_epsilon_are_not_private(name):
    parameters = {} if name == "none" else {"rate": 2.0}
    assert not Settings(scheme=jopeq.scheme(name, **parameters)).is_private
    assert Settings.from_config(BASE).is_private


# What the server offers each round


SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)
RULE = jopeq.AdaptiveClip()


def test_the_clip_of_the_round_is_the_servers():
    assert agree(Settings(scheme=SCHEME), offer(SCHEME, None)) == SCHEME
    mine = Settings(scheme=SCHEME, adaptive_clip=RULE)
    assert agree(mine, offer(mine.with_clip(0.25), RULE)).clip == 0.25


def test_a_server_without_jopeq_gets_a_payload_it_cannot_read():
    assert agree(Settings(scheme=SCHEME), None) == SCHEME
    with pytest.raises(SettingsMismatchError, match="wrap the server's strategy"):
        agree(Settings(scheme=SCHEME, adaptive_clip=RULE), None)


@pytest.mark.parametrize("change", [{"epsilon": 2.0}, {"clip": 0.2}])
def test_a_scheme_is_not_the_servers_to_change_and_both_are_named(change):
    other = jopeq.scheme("response", **{"epsilon": 4.0, "rate": 2.0, "clip": 0.1, **change})
    both = f"the server uses scheme {other.spec} and this client {SCHEME.spec}"
    with pytest.raises(SettingsMismatchError, match=re.escape(both)):
        agree(Settings(scheme=SCHEME), offer(other, None))


def test_clip_rules_and_protocols_must_match():
    with pytest.raises(SettingsMismatchError, match=r"AdaptiveClip\(.*'fixed'"):
        agree(Settings(scheme=SCHEME), offer(SCHEME, RULE))
    mine = Settings(scheme=SCHEME, adaptive_clip=jopeq.AdaptiveClip(epsilon=0.5))
    with pytest.raises(SettingsMismatchError, match=r"epsilon=1.0.*epsilon=0.5"):
        agree(mine, offer(SCHEME, RULE))
    record = offer(SCHEME, None)
    record["protocol"] = 1
    with pytest.raises(SettingsMismatchError, match="same jopeq version"):
        agree(Settings(scheme=SCHEME), record)


@pytest.mark.parametrize("clip", [0, "0.1", [0.1], 1e-31, 1e31, float("nan")])
def test_clip_must_be_a_number_that_the_rule_allows(clip):
    record = offer(SCHEME, RULE)
    record["clip"] = clip
    with pytest.raises(ValueError, match="clip must be a number"):
        agree(Settings(scheme=SCHEME, adaptive_clip=RULE), record)
