"""What the ℓ2 law alone has: a gamma radius, a uniform direction, ends of its exponentials.

``test_law.py`` puts it to the tests of all laws.
"""

import math

import numpy as np
import pytest
from scipy import stats

from jopeq.noise import RadialExponential, add_noise
from jopeq.random.streams import PrivateStream


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 8])
def test_draws_have_a_gamma_radius_and_a_uniform_direction(
    dimension, private, assert_follows, assert_mean
):
    law = RadialExponential(2.5, dimension)
    draws = law.sample(private("radial draws"), 0, 60_000)
    radius = np.linalg.norm(draws, axis=1)
    assert_follows(radius, stats.gamma(dimension, scale=1 / 2.5).cdf)
    unit = draws / radius[:, None]
    assert_mean(unit, 0.0)
    outer = unit[:, :, None] * unit[:, None, :]
    assert_mean(outer.reshape(len(draws), -1) + 0.0, np.eye(dimension).ravel() / dimension)
    if dimension > 1:  # the square of one coordinate of a uniform direction is a beta
        assert_follows(unit[:, 0] ** 2, stats.beta(0.5, (dimension - 1) / 2).cdf)
        assert abs(np.corrcoef(radius, unit[:, 0])[0, 1]) < 5 / math.sqrt(len(draws))
    assert_mean(np.square(draws), law.variance)


class Largest(PrivateStream):
    """The largest exponentials of the radius; directions as they come."""

    def words64(self, *, lane, start, count):
        if lane & (1 << 20):
            return np.zeros(count, dtype=np.uint64)
        return super().words64(lane=lane, start=start, count=count)


@pytest.mark.parametrize("epsilon", [4.0, 20.0, 47.9])
@pytest.mark.parametrize("dimension", [2, 3, 4, 8, 16])
def test_each_exponential_reaches_across_the_ball_from_all_but_rare_draws(dimension, epsilon):
    """A sum up to its part's end has the gamma law; beyond, it lacks what a part cannot reach."""
    law = RadialExponential(epsilon / 2, dimension)
    longest = np.linalg.norm(law.sample(Largest(), 0, 3), axis=1) * law.decay
    end = longest / dimension - math.log(2)  # the last octave is lumped together
    rare = stats.gamma(dimension).isf(2.0**-71)
    assert (end >= rare + epsilon).all()
    assert law.lost < 1e-20


@pytest.mark.parametrize("dimension", [1, 15, 64, 1024])
def test_the_cut_is_beyond_all_that_is_drawn(dimension, private, assert_mean):
    """Twelve deviations of an entry: at 48/a, most samples of 1,024 entries would be cut."""
    law = RadialExponential(2.0, dimension)
    rows = 60_000 // dimension
    noisy = add_noise(law, np.zeros((rows, dimension)), private("cut"), 0)
    assert np.array_equal(noisy, law.sample(private("cut"), 0, rows))
    assert_mean(np.square(noisy).mean(axis=1), law.variance)
    least = 12 * math.sqrt(law.variance) * 0.999
    assert law.reach == 24.0 if dimension <= 15 else law.reach > least
    assert law.covers_ball
    assert not RadialExponential(24.1, dimension).covers_ball


def test_what_is_lost_grows_with_epsilon_and_never_for_one_entry():
    assert RadialExponential(2.0, 1).lost == 0.0
    lost = [RadialExponential(decay, 256).lost for decay in (1.0, 10.0, 20.0, 24.0)]
    assert lost == sorted(lost)
    assert 0 < lost[0] < 1e-20 < lost[-1] < 1e-5
    assert RadialExponential(1e6, 8).lost == 1.0
