"""From ε to a law: the design's numbers, the round trip, and the best ν against a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from jopeq.noise import Laplace, MultivariateT, t_epsilon
from jopeq.privacy.calibration import calibrate_laplace, calibrate_t, check_epsilon

EPSILONS = [0.01, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 20.0, 50.0]
DIMENSIONS = [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("epsilon", "squared_scale", "variance"), [(3.0, 1.131, 1.697), (4.0, 0.614, 0.921)]
)
def test_the_pairs_of_the_design(epsilon, squared_scale, variance):
    law = calibrate_t(epsilon, 2, nu=6)
    assert law.squared_scale == pytest.approx(squared_scale, abs=5e-4)
    assert law.variance == pytest.approx(variance, abs=5e-4)
    assert (law.nu, law.dimension) == (6, 2)


@pytest.mark.parametrize(
    ("squared_scale", "nu", "published", "true"), [(1.0, 12, 2.014, 3.99), (0.5, 14, 3.006, 5.91)]
)
def test_the_pairs_of_the_paper_hold_for_half_the_diameter(squared_scale, nu, published, true):
    law = MultivariateT(nu, squared_scale, 2)
    assert law.epsilon(1.0) == pytest.approx(published, abs=5e-4)
    assert law.epsilon() == pytest.approx(true, abs=5e-3)
    again = calibrate_t(law.epsilon(1.0), 2, nu=nu, paper_sensitivity=True)
    assert again.squared_scale == pytest.approx(squared_scale, rel=1e-9)
    assert calibrate_t(law.epsilon(), 2, nu=nu).squared_scale == pytest.approx(squared_scale)


@pytest.mark.parametrize("nu", [2.05, 3.0, 6.0, 14.0, 100.0, 400.0, None])
@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_round_trip_never_exceeds_epsilon(epsilon, dimension, nu):
    law = calibrate_t(epsilon, dimension, nu=nu)
    assert epsilon - 1e-9 <= law.epsilon() <= epsilon
    paper = calibrate_t(epsilon, dimension, nu=nu, paper_sensitivity=True)
    assert epsilon - 1e-9 <= paper.epsilon(1.0) <= epsilon
    assert paper.epsilon() > epsilon


@settings(max_examples=200, deadline=None)
@given(
    epsilon=st.floats(1e-3, 100.0),
    dimension=st.sampled_from(DIMENSIONS),
    nu=st.floats(2.01, 1000.0),
)
def test_round_trip_of_any_epsilon(epsilon, dimension, nu):
    law = calibrate_t(epsilon, dimension, nu=nu)
    assert epsilon * (1 - 1e-12) <= law.epsilon() <= epsilon


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 10.0, 50.0])
def test_calibration_inverts_the_formula_of_the_paper(epsilon, dimension):
    """Solve e^ε = [(1+c²/ν)/(1+(c−Δ)²/ν)]^{(ν+L)/2} for Δ numerically, without the closed form."""
    nu = 6.0

    def excess(shift):
        c = (shift + math.sqrt(shift**2 + 4 * nu)) / 2
        ratio = math.log1p(c * c / nu) - math.log1p((c - shift) ** 2 / nu)
        return 0.5 * (nu + dimension) * ratio - epsilon

    shift = optimize.brentq(excess, 0.0, 1e6, xtol=1e-15)
    assert calibrate_t(epsilon, dimension, nu=nu).squared_scale == pytest.approx(
        (2 / shift) ** 2, rel=1e-8
    )


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_free_nu_has_the_smallest_variance(epsilon, dimension):
    best = calibrate_t(epsilon, dimension)
    for nu in np.concatenate((np.linspace(2.06, 30, 120), np.geomspace(30, 390, 20))):
        assert best.variance <= calibrate_t(epsilon, dimension, nu=nu).variance * (1 + 1e-9)


def test_the_best_nu_is_near_six_in_the_plane():
    for epsilon in (0.01, 3.0, 4.0):
        assert 4.5 < calibrate_t(epsilon, 2).nu < 6.5
    assert calibrate_t(0.01, 2).nu == pytest.approx(6.0, abs=1e-3)  # ν = L + 4 as ε → 0


def test_more_privacy_is_more_noise():
    for dimension in DIMENSIONS:
        variances = [calibrate_t(e, dimension).variance for e in EPSILONS]
        assert (np.diff(variances) < 0).all()
        assert all(math.isfinite(v) and v > 0 for v in variances)


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace(epsilon, dimension):
    law = calibrate_laplace(epsilon, dimension)
    assert law == Laplace(2 * math.sqrt(dimension) / epsilon, dimension)
    assert law.epsilon() == pytest.approx(epsilon, rel=1e-15)
    paper = calibrate_laplace(epsilon, dimension, paper_sensitivity=True)
    assert paper.scale == 2 / epsilon
    assert paper.epsilon() == pytest.approx(epsilon * math.sqrt(dimension))


def test_laplace_of_the_paper():
    assert calibrate_laplace(4.0).variance == 0.5
    assert calibrate_laplace(3.0).variance == pytest.approx(0.889, abs=5e-4)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.inf, math.nan, "3", None, [1.0]])
def test_epsilon_must_be_a_positive_finite_number(epsilon):
    for calibrate in (check_epsilon, calibrate_laplace, lambda e: calibrate_t(e, 2)):
        with pytest.raises(ValueError, match=r"epsilon must be a positive finite.*scheme='sdq'"):
            calibrate(epsilon)


@pytest.mark.parametrize("nu", [2.0, 0.0, -3.0, math.nan, math.inf])
def test_nu_must_leave_a_finite_variance(nu):
    with pytest.raises(ValueError, match="nu must be above 2"):
        calibrate_t(3.0, 2, nu=nu)


def test_an_epsilon_beyond_any_noise_is_refused():
    with pytest.raises(ValueError, match=r"epsilon must be at most 2400.*nu=6.*scheme='sdq'"):
        calibrate_t(3000.0, 2, nu=6)
    with pytest.raises(ValueError, match="epsilon must be at most"):
        calibrate_t(1e6, 2)
    assert calibrate_t(1000.0, 2).epsilon() <= 1000.0


def test_epsilon_grows_with_the_shift():
    shifts = np.geomspace(1e-9, 1e9, 50)
    values = [t_epsilon(s, 6.0, 2) for s in shifts]
    assert (np.diff(values) > 0).all()
