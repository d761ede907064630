"""What Laplace noise alone has: entries apart, ε by ℓ1, an end at 48 scales, a kernel's recipe.

``test_law.py`` puts it to the tests of all laws.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from jopeq.kernels.recipe import Noise
from jopeq.noise import Laplace


@pytest.mark.parametrize("dimension", [1, 2, 8])
@pytest.mark.parametrize("scale", [1e-3, 0.5, 40.0])
def test_density_is_the_product_of_laplace_densities(scale, dimension):
    law = Laplace(scale, dimension)
    x = scale * np.random.default_rng(1).normal(0.0, 3.0, (500, dimension))
    expected = stats.laplace.pdf(x, scale=scale).prod(axis=1)
    np.testing.assert_allclose(law.density(x), expected, rtol=1e-12)
    np.testing.assert_allclose(law.covariance, 2 * scale**2 * np.eye(dimension), rtol=1e-15)
    assert law.epsilon(0.3) == pytest.approx(math.sqrt(dimension) * 0.3 / scale, rel=1e-15)


def test_distribution_far_out():
    """Neither tail overflows, and the lower one keeps its digits to the last."""
    law = Laplace(2.0)
    x = np.array([-1e308, -1400.0, -80.0, 0.0, 80.0, 1e308])
    expected = [0.0, 0.5 * math.exp(-700), 0.5 * math.exp(-40), 0.5, 1.0, 1.0]
    np.testing.assert_allclose(law.distribution(x), expected, rtol=1e-13)


def test_laplace_entries_are_independent(private, assert_independent):
    law = Laplace(0.7, 2)
    x = law.distribution(law.sample(private("Laplace 2"), 0, 200_000))
    bins = np.floor(8 * x).astype(int)
    assert_independent(bins[:, 0], bins[:, 1])


def test_epsilon_of_a_shift_along_an_axis_is_smaller_for_laplace_in_the_plane():
    law = Laplace(0.7, 2)
    axis = np.linspace(-9, 9, 301)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    ratio = np.log(law.density(grid)) - np.log(law.density(grid - np.array([2.0, 0.0])))
    assert ratio.max() == pytest.approx(2.0 / law.scale)
    assert law.epsilon(2.0) == pytest.approx(math.sqrt(2) * 2.0 / law.scale)


@pytest.mark.parametrize(("epsilon", "covers"), [(1.0, True), (48.0, True), (48.001, False)])
def test_the_sampler_reaches_across_the_ball_up_to_epsilon_48(epsilon, covers):
    law = Laplace(2.0 / epsilon)
    assert law.epsilon() == pytest.approx(epsilon)
    assert law.covers_ball is covers


@pytest.mark.parametrize(("scale", "limit"), [(0.5, 23.0), (2 / 48, 1.0), (2 / 48.001, math.inf)])
def test_kernels_cut_where_the_plain_path_cuts(scale, limit):
    for dimension in (1, 2):
        recipe = Laplace(scale, dimension).recipe()
        assert recipe == Noise("laplace", scale, pytest.approx(limit, abs=1e-12))


def test_matched_noise_is_computed_by_hand():
    """2b² = 2·1² − 1/2 for a dither of variance 1/2."""
    matched = Laplace(1.0, 2).matched(0.5 * np.eye(2))
    assert matched.dimension == 2
    assert matched.scale == pytest.approx(math.sqrt(0.75), rel=1e-14)
    assert Laplace(1.0, 2).matched(2.0 * np.eye(2)) is None  # nothing left
