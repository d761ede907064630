"""The MVU baseline: stochastic rounding with private bits, then its channel."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from jopeq import scheme
from jopeq.random.rational import exp_floor
from jopeq.schemes import scheme_from_spec

INPUTS = (-1.0, -0.6, -1 / 3, 0.0, 0.25, 0.8, 1.0)


def mvu(**parameters):
    return scheme("mvu", **{"epsilon": 4.0, "rate": 1.0, "clip": 1.0, **parameters})


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_it_is_unbiased_and_as_exact_as_it_says(epsilon, rate, private, assert_mean):
    built = mvu(epsilon=epsilon, rate=rate)
    for x in INPUTS:
        payload = built.encode(np.full(40_000, x), noise=private(f"mvu {epsilon} {rate} {x}"))
        error = built.decode(payload).astype(np.float64) - x
        assert_mean(error, 0.0)
        # float32 on the way: at one bit every error at x = 0 is ±a, with nothing to average
        square = error**2
        tolerance = 5 * square.std() / math.sqrt(len(square)) + 1e-6
        assert abs(square.mean() - built.finite_channel.distortion(x)) < tolerance
    assert built.distortion == built.finite_channel.distortion(0.0)


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_epsilon_is_exact(epsilon, rate):
    """Rounding mixes two rows, and mixtures are never farther apart than the rows."""
    built = mvu(epsilon=epsilon, rate=rate)
    columns = list(zip(*built.finite_channel.counts, strict=True))
    worst = max(Fraction(max(column), min(column)) for column in columns)
    assert worst <= exp_floor(epsilon)
    assert built.guarantee.epsilon <= epsilon
    assert built.guarantee.epsilon == pytest.approx(epsilon, abs=1e-3)
    assert built.guarantee.is_exact


def test_one_bit_is_randomized_response_without_a_shared_dither():
    built = mvu()
    a = (math.exp(4.0) + 1) / (math.exp(4.0) - 1)
    assert built.distortion == pytest.approx(a**2, abs=1e-6)
    assert built.distortion == pytest.approx(1.08, abs=0.005)
    assert built.finite_channel.values == pytest.approx((-a, a), abs=1e-6)
    # the shared dither of ``response`` saves more than half of it
    assert scheme("response", epsilon=4.0, rate=1.0).distortion < 0.4 * built.distortion


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
def test_bits(rate, private):
    built = mvu(rate=rate)
    assert built.bits_per_entry == rate
    _, counted = built.encode(np.zeros(8000), noise=private("bits"), statistics=True)
    assert 8 * counted.body_bytes == rate * 8000
    assert built.distortion_for(1 / 3) == built.finite_channel.gaussian_distortion(1 / 3)


def test_rounding_is_stochastic_with_the_right_chances(private, monkeypatch, assert_mean):
    built = mvu(rate=2.0)
    seen = []
    kind = type(built.finite_channel)
    original = kind.sample

    def spy(self, levels, words):
        seen.append(np.asarray(levels))
        return original(self, levels, words)

    monkeypatch.setattr(kind, "sample", spy)
    for x in INPUTS:
        seen.clear()
        built.encode(np.full(50_000, x), noise=private(f"rounding {x}"))
        levels = np.concatenate(seen)
        place = (x + 1) * 1.5
        assert set(np.unique(levels)) <= {math.floor(place), math.ceil(place)}
        assert_mean(levels, place)
    for x in (-1.0, 1.0):  # nothing to round at the ends
        seen.clear()
        built.encode(np.full(50_000, x), noise=private("ends"))
        assert (np.concatenate(seen) == (0 if x < 0 else 3)).all()


def test_nothing_is_shared_with_the_server(private):
    built = mvu()
    assert not built.is_seeded
    with pytest.raises(ValueError, match="shares no randomness"):
        built.encode(np.zeros(3), seed=bytes(32))
    update = np.linspace(-1, 1, 64)
    payload = built.encode(update, noise=private("spec"))
    again = scheme_from_spec(built.spec)
    assert again == built
    np.testing.assert_array_equal(again.decode(payload), built.decode(payload))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive"),
        ({"epsilon": math.nan}, "epsilon must be a positive"),
        ({"epsilon": 20.0}, r"epsilon must be in \[0.1, 10.0\].*got 20.0.*scheme='response'"),
        ({"rate": 1.5}, "rate must be 1, 2, 3, 4 or 5"),
        ({"rate": 6.0}, "rate must be 1, 2, 3, 4 or 5"),
        ({"lattice": "A2"}, "has no parameter"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        mvu(**parameters)
