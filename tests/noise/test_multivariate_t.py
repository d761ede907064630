"""What the t law alone has: Bessel functions, its ε, full matrices, heavy tails.

``test_law.py`` puts it to the tests of all laws.
"""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import jopeq
from jopeq.lattice.lattices import Lattice
from jopeq.noise import MultivariateT, t_epsilon
from jopeq.privacy.calibration import calibrate_t
from jopeq.random.samplers import MAX_EXPONENTIAL


@pytest.mark.parametrize("nu", [50.0, 399.7, 400.0, 1000.0])
def test_characteristic_function_of_nearly_normal_t(nu):
    """K of order ν/2 overflows near t = 0 here; φ is the normal one but for O(1/ν)."""
    law = MultivariateT(nu, 1.0, 1)
    t = np.array([0.0, 1e-9, 1e-3, 0.1, 1.0, 2.0])
    normal = np.exp(-0.5 * t * t)
    assert np.abs(law.characteristic(t) - normal).max() < 2.0 / nu
    value, _ = integrate.quad(lambda x: 2 * law.density([x])[0] * math.cos(x), 0, 60, limit=200)
    assert law.characteristic([1.0])[0] == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize("nu", [2.05, 6.0, 14.0, 400.0])
@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
def test_t_epsilon_is_the_formula_of_the_design(nu, dimension):
    """ln [(1+c²/ν)/(1+(c−Δ)²/ν)]^{(ν+L)/2} at c = (Δ+√(Δ²+4ν))/2."""
    for shift in (1e-6, 0.3, 2.0, 40.0):
        c = (shift + math.sqrt(shift**2 + 4 * nu)) / 2
        ratio = math.log1p(c * c / nu) - math.log1p((c - shift) ** 2 / nu)
        expected = 0.5 * (nu + dimension) * ratio
        assert t_epsilon(shift, nu, dimension) == pytest.approx(expected, rel=1e-8)
    assert t_epsilon(0.0, nu, dimension) == 0.0


def test_t_is_matched_to_a_skewed_cell_with_a_full_matrix():
    law = MultivariateT(12.0, 0.614, 2)
    skewed = Lattice(generator=((1.0, 0.4), (0.0, 1.6)), step=0.5)
    matched = law.matched(skewed.covariance)
    assert isinstance(matched.squared_scale, tuple)
    assert matched.covariance + skewed.covariance == pytest.approx(law.covariance)
    stretched = Lattice(generator=((0.1, 0.0), (0.0, 9.0)))
    assert law.matched(stretched.covariance) is None  # too large in one direction is too large


@pytest.mark.parametrize("nu", [2.05, 3.0, 6.0, 14.0, 100.0, 400.0])
@pytest.mark.parametrize("squared_scale", [1e-4, 0.614, 30.0])
def test_reach_of_t_is_beyond_all_but_one_in_a_trillion(nu, squared_scale):
    law = MultivariateT(nu, squared_scale, 2)
    assert 2 * stats.t.sf(law.reach / math.sqrt(squared_scale), nu) < 2.0**-40
    assert law.reach >= 2.0  # the cut never touches the unit ball
    full = MultivariateT(nu, ((squared_scale, 0.0), (0.0, squared_scale / 2)), 2)
    assert full.reach == law.reach if nu < 20 else full.reach <= law.reach  # thin tails end sooner


def farthest(law):
    """The longest radius of the planar sampler before its last octave, which is lumped together."""
    largest = MAX_EXPONENTIAL - math.log(2.0)
    return math.sqrt(law.squared_scale * law.nu * math.expm1(2.0 * largest / law.nu))


def test_epsilon_is_promised_only_where_draws_reach_every_output():
    for nu in (None, 2.5, 12.0, 50.0, 400.0):
        for epsilon in (1.0, 30.0, 48.0, 60.0, 80.0, 99.0):
            for dimension in (1, 2):
                law = calibrate_t(epsilon, dimension, nu=nu)
                corner = law.reach * math.sqrt(dimension)  # the cut, seen from across the ball
                assert law.covers_ball == (farthest(law) >= 2.0 * math.sqrt(dimension))
                if law.covers_ball:
                    assert corner <= farthest(law) * (1 + 1e-12)


def test_two_inputs_with_no_output_in_common_have_no_epsilon():
    scheme = jopeq.scheme("t", epsilon=99.0, nu=12.0, size=1, clip=1.0)
    ends = [scheme.decode(scheme.encode(np.full(10_000, x))) for x in (-1.0, 1.0)]
    assert ends[0].max() < ends[1].min()
    assert scheme.guarantee.epsilon == math.inf


@pytest.mark.parametrize("dimension", [3, 8, 64, 1024, 65536])
@pytest.mark.parametrize("epsilon", [0.001, 4.0, 10.0])
def test_quotients_lose_nothing_that_counts(dimension, epsilon):
    """Calibrated laws: normals and chi-squares end beyond all that 2⁻⁷⁰ of the draws need."""
    assert 0 < calibrate_t(epsilon, dimension).lost < 1e-9


@pytest.mark.parametrize(
    ("nu", "matrix", "message"),
    [
        (6.0, ((1.0, 0.5), (0.2, 1.0)), "symmetric"),
        (6.0, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)), "symmetric"),
        (6.0, ((1.0, math.nan), (math.nan, 1.0)), "symmetric"),
        (6.0, ((1.0, 2.0), (2.0, 1.0)), "positive definite"),
        (6.0, ((1.0, 1.0), (1.0, 1.0)), "positive definite"),
        *((nu, 1.0, r"nu must be above 2 \(finite variance\)") for nu in (2.0, math.nan, math.inf)),
    ],
)
def test_parameters_are_checked(nu, matrix, message):
    with pytest.raises(ValueError, match=message):
        MultivariateT(nu, matrix, 2)
