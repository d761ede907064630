"""What normal noise alone has: no ε, an end at 10 σ, no kernel.

``test_law.py`` puts it to the tests of all laws.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from jopeq.noise import Gaussian
from jopeq.random.samplers import MAX_EXPONENTIAL


@pytest.mark.parametrize("dimension", [1, 2, 8])
@pytest.mark.parametrize("sigma", [1e-3, 0.5, 40.0])
def test_density_is_the_product_of_normal_densities(sigma, dimension):
    law = Gaussian(sigma, dimension)
    x = sigma * np.random.default_rng(1).normal(0.0, 3.0, (500, dimension))
    expected = stats.norm.pdf(x, scale=sigma).prod(axis=1)
    np.testing.assert_allclose(law.density(x), expected, rtol=1e-12)
    np.testing.assert_allclose(law.covariance, sigma**2 * np.eye(dimension), rtol=1e-15)


def test_distribution_far_out():
    law = Gaussian(2.0)
    x = np.array([-1e308, -60.0, 0.0, 60.0, 1e308])
    np.testing.assert_allclose(law.distribution(x), stats.norm.cdf(x / 2.0), rtol=1e-13)
    assert law.distribution(-60.0) > 0.0


def test_entries_are_independent(private, assert_independent):
    law = Gaussian(0.8, 2)
    x = law.distribution(law.sample(private("Gaussian 2"), 0, 200_000))
    bins = np.floor(8 * x).astype(int)
    assert_independent(bins[:, 0], bins[:, 1])


def test_gaussian_has_no_epsilon():
    assert Gaussian(1.0).epsilon() == math.inf
    assert Gaussian(1.0).epsilon(0.0) == 0.0


def test_reach_of_the_normal_law_is_within_the_sampler():
    law = Gaussian(3.0)
    assert law.reach <= 3.0 * math.sqrt(2 * MAX_EXPONENTIAL)
    assert 2 * stats.norm.sf(law.reach / 3.0) < 1e-22


@pytest.mark.parametrize(("sigma", "covers"), [(3.0, True), (0.2, True), (0.1999, False)])
def test_the_sampler_reaches_across_the_ball_from_a_fifth_on(sigma, covers):
    assert Gaussian(sigma).covers_ball is covers


def test_the_plain_path_draws_it():
    assert Gaussian(1.0).recipe() is None


def test_matched_noise_is_computed_by_hand():
    matched = Gaussian(1.0, 2).matched(0.36 * np.eye(2))
    assert matched.dimension == 2
    assert matched.sigma == pytest.approx(0.8, rel=1e-14)
    assert Gaussian(1.0, 2).matched(np.eye(2)) is None  # nothing left
