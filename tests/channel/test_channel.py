import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from jopeq.channel.channel import TOTAL, Channel, best_response, randomized_response
from jopeq.random.rational import exp_floor, log_ceiling

QUARTER = TOTAL // 4
ASYMMETRIC = Channel(
    counts=((3 * QUARTER, 0, QUARTER), (QUARTER, QUARTER, 2 * QUARTER), (0, QUARTER, 3 * QUARTER)),
    values=(-2.0, -2.0, 2.0),
)


def ratios(channel):
    return [Fraction(max(column), min(column)) for column in zip(*channel.counts, strict=True)]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 7.7])
def test_epsilon_is_the_largest_log_ratio_of_a_column(epsilon):
    channel = randomized_response(epsilon, 5)
    largest = log_ceiling(max(ratios(channel)))
    assert channel.epsilon == largest == pytest.approx(epsilon, abs=2e-5)
    assert ASYMMETRIC.epsilon == math.inf  # of an impossible letter
    assert Channel(counts=((TOTAL, 0), (TOTAL, 0)), values=(0.0, 1.0)).epsilon == 0.0


def test_sampling_changes_letter_exactly_at_the_thresholds():
    for channel in (randomized_response(3.0, 4), ASYMMETRIC):
        for j, row in enumerate(channel.counts):
            start = 0
            for letter, count in enumerate(row):
                if count:
                    words = np.array([start, start + count - 1], dtype=np.uint32)
                    assert channel.sample(np.array([j, j]), words).tolist() == [letter] * 2
                start += count


def brute_force(channel, x):
    n = 20_000
    dither = ((np.arange(n) + 0.5) / n - 0.5) * channel.spacing
    levels = np.floor((x + dither) / channel.spacing + channel.levels / 2).astype(int)
    levels = np.clip(levels, 0, channel.levels - 1)
    shift = dither if channel.is_dither_shared else np.zeros(n)
    errors = np.array(channel.values) - shift[:, None] - x
    return float(np.mean(np.sum(channel.probabilities[levels] * errors**2, axis=1)))


@pytest.mark.parametrize("is_dither_shared", [True, False])
@pytest.mark.parametrize("base", [ASYMMETRIC, randomized_response(2.0, 4)])
def test_distortion_against_brute_force(base, is_dither_shared):
    channel = Channel(base.counts, base.values, is_dither_shared)
    for x in (-1.0, -0.83, -1 / 3, 0.0, 0.1, 0.55, 1.0):
        assert channel.distortion(x) == pytest.approx(brute_force(channel, x), rel=1e-3)


@pytest.mark.parametrize("is_dither_shared", [True, False])
@pytest.mark.parametrize("sigma", [1 / 3, 0.8])
def test_gaussian_distortion_against_quadrature(sigma, is_dither_shared):
    channel = Channel(ASYMMETRIC.counts, ASYMMETRIC.values, is_dither_shared)
    law = stats.norm(scale=sigma)
    inside = sum(
        integrate.quad(lambda x: channel.distortion(x) * law.pdf(x), a, b)[0]
        for a, b in ((-1, 0), (0, 1))
    )
    ends = law.cdf(-1) * (channel.distortion(-1) + channel.distortion(1))
    assert channel.gaussian_distortion(sigma) == pytest.approx(inside + ends, rel=1e-9)


def test_channels_are_values():
    channel = randomized_response(4.0, 4)
    twin = pickle.loads(pickle.dumps(channel))
    assert (twin, hash(twin), twin.fingerprint) == (channel, hash(channel), channel.fingerprint)
    lists = [list(row) for row in channel.counts], list(channel.values)
    assert hash(Channel(*lists)) == hash(channel)  # a change of the lists would change no channel
    private = Channel(channel.counts, channel.values, is_dither_shared=False)
    assert private != channel
    assert private.fingerprint != channel.fingerprint
    for table in (channel.thresholds, channel.probabilities, channel.conditional_variance):
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0


@pytest.mark.parametrize(
    ("counts", "values", "name"),
    [
        (((TOTAL,), (TOTAL,)), (0.0,), "values"),
        (((TOTAL, 0),), (0.0, 1.0), "counts"),
        (((TOTAL, 0), (TOTAL,)), (0.0, 1.0), "counts"),
        (((TOTAL, 1), (TOTAL, 0)), (0.0, 1.0), "counts"),
        (((TOTAL + 1, -1), (TOTAL, 0)), (0.0, 1.0), "counts"),
        (((TOTAL - 0.5, 0.5), (TOTAL, 0)), (0.0, 1.0), "counts"),
        (((TOTAL, 0), (TOTAL, 0)), (0.0, math.nan), "values"),
    ],
)
def test_bad_channels_are_refused(counts, values, name):
    with pytest.raises(ValueError, match=f"{name} must"):
        Channel(counts=counts, values=values)


def test_randomized_response_is_private_and_unbiased_in_exact_arithmetic():
    for epsilon in (0.01, 0.5, 1.0, 2.5, 4.0, 8.0, 16.0, 40.0):
        for letters in (2, 3, 5, 8, 17):
            channel = randomized_response(epsilon, letters)
            assert max(ratios(channel)) <= exp_floor(epsilon)
            assert channel.epsilon <= epsilon
            if epsilon <= 8:
                assert channel.epsilon > epsilon - 2e-5
            assert channel.bias <= 4e-16 * max(channel.values)


def test_best_response_is_the_best_of_all():
    for epsilon in (0.7, 3.0, 5.0):
        every = [randomized_response(epsilon, letters) for letters in range(2, 25)]
        assert best_response(epsilon, 24) == min(every, key=lambda c: c.gaussian_distortion())
    assert best_response(4.0, 10**9).letters == 5


def test_too_small_an_epsilon_leaves_no_signal():
    with pytest.raises(ValueError, match="raise epsilon"):
        randomized_response(1e-12, 3)
