"""``response`` and ``mvu``: the design's table, exact ε of letters, no bias, the rate kept."""

import math
from fractions import Fraction

import numpy as np
import pytest

from jopeq import scheme, scheme_from_spec
from jopeq.channel.channel import TOTAL, Channel, level_positions
from jopeq.random.rational import exp_floor
from jopeq.random.streams import PrivateStream, SharedStream


@pytest.mark.parametrize("name", ["response", "mvu"])
def test_another_fingerprint_is_refused(name):
    built = scheme(name, epsilon=4.0, rate=2.0)
    assert scheme_from_spec(built.spec) == built
    with pytest.raises(ValueError, match="same jopeq and SciPy versions on both ends"):
        scheme_from_spec(built.spec.replace(built.fingerprint, "ff" * 8))
    with pytest.raises(ValueError, match="has no parameter 'fingerprint'"):
        scheme(name, epsilon=4.0, rate=2.0, fingerprint=built.fingerprint)


SEED = bytes(range(32))
TABLE = [  # ε, rate, error at the centre, at the worst input, letters
    (1.0, 1.0, 4.016, 4.016, 2), (1.0, 2.0, 3.279, 5.025, 3), (1.0, 3.0, 3.279, 5.025, 3),
    (2.0, 1.0, 1.057, 1.057, 2), (2.0, 2.0, 0.543, 1.013, 3), (2.0, 3.0, 0.543, 1.013, 3),
    (3.0, 1.0, 0.554, 0.554, 2), (3.0, 2.0, 0.201, 0.387, 4), (3.0, 3.0, 0.201, 0.387, 4),
    (4.0, 1.0, 0.409, 0.409, 2), (4.0, 2.0, 0.090, 0.156, 4), (4.0, 3.0, 0.072, 0.165, 5),
    (6.0, 1.0, 0.343, 0.343, 2), (6.0, 2.0, 0.044, 0.053, 4), (6.0, 3.0, 0.016, 0.035, 8),
]  # fmt: skip
INPUTS = np.array(
    [-1.0, np.nextafter(-1, 0), -0.71, -0.5, -1 / 3, -5e-324, 0.0, 0.2, 0.5, 0.93, 1.0]
)


class EveryDither(SharedStream):
    """All 65,536 words, in order, again and again."""

    def words16(self, *, lane, start, count):
        return (np.arange(start, start + count) % 65536).astype(np.uint16)


def response(**parameters):
    return scheme("response", **{"epsilon": 4.0, "rate": 2.0, "clip": 1.0, **parameters})


@pytest.fixture
def seen(monkeypatch):
    """The levels that encoders hand to their channels."""
    found, sample = [], Channel.sample

    def spy(self, levels, words):
        found.append(np.asarray(levels))
        return sample(self, levels, words)

    monkeypatch.setattr(Channel, "sample", spy)
    return found


@pytest.mark.parametrize(("epsilon", "rate", "centre", "worst", "letters"), TABLE)
def test_the_table_of_the_design(epsilon, rate, centre, worst, letters, private, assert_mean):
    built = response(epsilon=epsilon, rate=rate)
    assert built.finite_channel.letters == letters
    assert round(built.distortion, 3) == centre
    ends = level_positions(built.finite_channel.levels)  # the error is linear between levels
    assert round(max(map(built.finite_channel.distortion, ends)), 3) == worst
    payload = built.encode(np.zeros(200_000), seed=SEED, noise=private(f"table {epsilon} {rate}"))
    error = built.decode(payload).astype(np.float64)
    assert_mean(error**2, built.distortion)
    assert_mean(error, 0.0)


@pytest.mark.parametrize("name", ["response", "mvu"])
@pytest.mark.parametrize(("epsilon", "rate"), [(1.0, 1.0), (2.0, 2.0), (4.0, 3.0), (6.0, 4.0)])
def test_it_is_unbiased_and_as_exact_as_it_says(epsilon, rate, name, private, assert_mean):
    built = scheme(name, epsilon=epsilon, rate=rate, clip=1.0)
    seed = {"seed": SEED} if built.codec.has_dither else {}
    for x in INPUTS:
        noise = private(f"bias {epsilon} {name} {x}")
        payload = built.encode(np.full(40_000, x), noise=noise, **seed)
        error = built.decode(payload).astype(np.float64) - x
        assert_mean(error, 0.0)
        # float32 on the way: at one bit every error of mvu at x = 0 is ±a, with nothing to average
        square, rounding = error**2, 1e-6 if name == "mvu" else 1e-15
        tolerance = 5 * square.std() / math.sqrt(len(square)) + rounding
        assert abs(square.mean() - built.finite_channel.distortion(x)) < tolerance
    assert built.distortion == built.finite_channel.distortion(0.0)


@pytest.mark.parametrize(("epsilon", "rate"), [(0.5, 1.0), (1.0, 2.0), (3.0, 3.0), (4.0, 4.0)])
def test_epsilon_is_exact_given_any_dither(epsilon, rate, seen):
    """P(letter | x, dither) is a row of counts: compare all rows that inputs can reach."""
    built = response(epsilon=epsilon, rate=rate)
    counts = built.finite_channel.counts
    for x in INPUTS:  # the level of each for every dither, read from the real encoder
        built.codec.to_letters(np.full((65536, 1), x), 0, EveryDither(bytes(32)), PrivateStream())
    levels = np.array(seen)
    assert (levels[0] == 0).all()  # x = −1: no dither leaves the range
    assert (levels[-1] == len(counts) - 1).all()
    assert 0 <= levels.min() <= levels.max() < len(counts)
    worst = Fraction(1)
    for word in {0, 1, 0x7FFF, 0x8000, 0xFFFF, *range(0, 65536, 4099)}:
        rows = [counts[j] for j in set(levels[:, word].tolist())]
        for column in zip(*rows, strict=True):
            worst = max(worst, Fraction(max(column), min(column)))
    assert all(sum(row) == TOTAL for row in counts)
    assert worst <= exp_floor(epsilon)
    guarantee = built.guarantee
    assert guarantee.epsilon <= epsilon
    assert math.log(worst) <= guarantee.epsilon * (1 + 1e-15)
    assert (guarantee.is_exact, guarantee.nominal, guarantee.delta) == (True, epsilon, 0.0)
    # the inputs ±1 reach both outer rows under every dither, so ε is attained
    outer = max(Fraction(a, b) for a, b in zip(counts[0], counts[-1], strict=True))
    assert math.log(outer) == pytest.approx(guarantee.epsilon, abs=1e-12)
    assert guarantee.epsilon == pytest.approx(epsilon, abs=1e-6)


def test_the_distortion_for_gaussian_entries(private, assert_mean):
    built = response(rate=3.0)
    update = np.clip(np.random.default_rng(6).normal(size=300_000) / 3, -1, 1)
    payload = built.encode(update, seed=SEED, noise=private("gaussian"))
    assert_mean((built.decode(payload) - update) ** 2, built.codec.distortion_for(1 / 3))


def mvu(**parameters):
    return scheme("mvu", **{"epsilon": 4.0, "rate": 1.0, "clip": 1.0, **parameters})


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


def test_rounding_is_stochastic_with_the_right_chances(private, seen, assert_mean):
    built = mvu(rate=2.0)
    for x in (-1.0, -0.6, -1 / 3, 0.0, 0.25, 0.8, 1.0):  # nothing to round at the ends
        seen.clear()
        built.encode(np.full(50_000, x), noise=private(f"rounding {x}"))
        levels, place = np.concatenate(seen), (x + 1) * 1.5
        assert set(np.unique(levels)) <= {math.floor(place), math.ceil(place)}
        assert_mean(levels, place)
