"""Guarantees compose as they say, and say what they mean."""

from __future__ import annotations

import math
import pickle

import pytest

from jopeq.privacy.guarantee import ADVERSARIES, Guarantee

PLAIN = Guarantee(epsilon=4.0, nominal=4.0, is_exact=True)


def test_an_update_composes_its_samples():
    update = PLAIN.for_update(7850)
    assert update.epsilon == update.nominal == 31400.0
    assert update.unit == "update"
    assert update.assumptions == ("7850 samples composed",)


@pytest.mark.parametrize(
    ("entries", "samples"), [(0, 0), (1, 1), (2, 1), (3, 2), (7850, 3925), (7851, 3926)]
)
def test_a_started_sample_counts_whole(entries, samples):
    guarantee = Guarantee(epsilon=3.0, nominal=2.0, delta=1e-6, sample_size=2)
    update = guarantee.for_update(entries)
    assert update.epsilon == 3.0 * samples
    assert update.nominal == 2.0 * samples
    assert update.delta == pytest.approx(1e-6 * samples)


def test_a_client_composes_its_updates():
    client = PLAIN.for_client(100, rounds=20)
    assert client.epsilon == 4.0 * 100 * 20
    assert client.unit == "client"
    assert client.assumptions == ("100 samples composed", "20 rounds composed")
    assert PLAIN.for_update(100).for_client(100, 20) == client
    assert PLAIN.for_client(100, 0).epsilon == 0.0


def test_delta_adds_up_to_at_most_one():
    guarantee = Guarantee(epsilon=1.0, delta=1e-3)
    assert guarantee.for_update(10).delta == pytest.approx(1e-2)
    assert guarantee.for_update(5000).delta == 1.0
    assert guarantee.for_client(10, 10).delta == pytest.approx(0.1)


def test_no_privacy_stays_none_unless_nothing_is_sent():
    none = Guarantee(epsilon=math.inf, nominal=4.0)
    assert none.for_update(10).epsilon == math.inf
    assert none.for_client(10, 5).epsilon == math.inf
    assert none.for_update(0).epsilon == 0.0
    assert none.for_client(10, 0).epsilon == 0.0
    assert Guarantee(epsilon=math.inf).for_update(3).nominal is None


def test_composition_keeps_what_it_does_not_change():
    guarantee = Guarantee(
        epsilon=1.0,
        adversary="decoded",
        is_exact=True,
        sample_size=8,
        assumptions=("the norm is sent in the clear",),
    )
    update = guarantee.for_update(80)
    assert (update.adversary, update.sample_size) == ("decoded", 8)
    assert not update.is_exact  # a known norm keeps samples from being worst together
    assert Guarantee(epsilon=1.0, is_exact=True).for_update(80).is_exact
    assert update.assumptions == ("the norm is sent in the clear", "10 samples composed")
    assert guarantee.unit == "sample"  # the original is untouched


def test_wrong_starts_raise():
    with pytest.raises(ValueError, match="dimension must not be negative, got -1"):
        PLAIN.for_update(-1)
    with pytest.raises(ValueError, match="rounds must not be negative, got -2"):
        PLAIN.for_client(10, -2)
    with pytest.raises(ValueError, match="starts from one sample, this is of one update"):
        PLAIN.for_update(10).for_update(10)
    with pytest.raises(ValueError, match="starts from one sample, this is of one client"):
        PLAIN.for_client(10, 2).for_client(10, 2)


SERVER = "the server, who knows payload, dither, scale and scheme"


@pytest.mark.parametrize(
    ("guarantee", "sentence"),
    [
        (PLAIN, f"ε = 4 per sample of 1 entry against {SERVER}."),
        (
            Guarantee(epsilon=4.41, nominal=4.0, sample_size=2),
            f"ε ≤ 4.41 per sample of 2 entries against {SERVER} (asked for: 4).",
        ),
        (
            Guarantee(epsilon=math.inf, nominal=4.0, assumptions=("no noise is added",)),
            f"No privacy per sample of 1 entry against {SERVER} (asked for: 4); no noise is added.",
        ),
        (Guarantee(epsilon=math.inf), f"No privacy per sample of 1 entry against {SERVER}."),
        (
            Guarantee(epsilon=3.0, delta=1e-5, adversary="decoded"),
            f"ε ≤ 3, δ ≤ 1e-05 per sample of 1 entry against {ADVERSARIES['decoded']}.",
        ),
        (
            Guarantee(epsilon=3.0, delta=2e-6, is_exact=True, adversary="network"),
            f"ε = 3, δ = 2e-06 per sample of 1 entry against {ADVERSARIES['network']}.",
        ),
        (
            PLAIN.for_update(7850),
            f"ε = 3.14e+04 per update against {SERVER}; 7850 samples composed.",
        ),
        (
            Guarantee(epsilon=0.5, nominal=0.5).for_client(10, 3),
            f"ε ≤ 15 per client against {SERVER}; 10 samples composed; 3 rounds composed.",
        ),
        (
            Guarantee(epsilon=math.inf, nominal=4.0).for_update(3),
            f"No privacy per update against {SERVER} (asked for: 12); 3 samples composed.",
        ),
    ],
)
def test_the_sentence(guarantee, sentence):
    assert str(guarantee) == sentence


def test_a_delta_of_one_is_no_privacy():
    assert str(Guarantee(epsilon=1.0, delta=0.01).for_update(100)) == (
        f"No privacy per update against {SERVER}; 100 samples composed."
    )


def test_a_delta_buys_a_smaller_epsilon():
    small = Guarantee(epsilon=0.01)
    client = small.for_client(1000, 10, delta=1e-5)
    assert client.epsilon < small.for_client(1000, 10).epsilon == pytest.approx(100.0)
    assert client.delta == 1e-5
    assert not client.is_exact
    assert str(client).startswith("ε ≤ 4.3")
    update = small.for_update(1000, delta=1e-5)
    assert update.epsilon < small.for_update(1000).epsilon


def test_asking_is_told_apart_from_getting():
    """A nominal ε within rounding of the proven one is not repeated."""
    assert "asked for" not in str(Guarantee(epsilon=4.0 * (1 - 1e-13), nominal=4.0))
    assert "asked for: 4)" in str(Guarantee(epsilon=4.001, nominal=4.0))


def test_every_adversary_has_its_words():
    assert ADVERSARIES.keys() >= {"server", "decoded", "network"}
    assert ADVERSARIES["server"] == SERVER
    assert ADVERSARIES["decoded"] == "an observer of the decoded update alone"
    assert ADVERSARIES["network"] == "an eavesdropper who sees the payload but lacks the key"
    for adversary, words in ADVERSARIES.items():
        assert words in str(Guarantee(epsilon=1.0, adversary=adversary))


def test_guarantees_are_values():
    assert pickle.loads(pickle.dumps(PLAIN)) == PLAIN
    assert hash(PLAIN) == hash(Guarantee(epsilon=4.0, nominal=4.0, is_exact=True))
    with pytest.raises(AttributeError):
        PLAIN.epsilon = 1.0
    with pytest.raises(TypeError):
        Guarantee(4.0)
