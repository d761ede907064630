"""The yardstick for whole updates, and how near ``sphere`` comes to it."""

import math

import pytest
from scipy import integrate, stats

import jopeq


@pytest.fixture
def privunit(load):
    return load("privunit")


DIMENSIONS = (1_000, 7_850, 100_000, 1_000_000)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
def test_the_error_is_that_of_the_law(privunit, epsilon):
    """E t = γ and the error, from the density of t by quadrature; the density's ratio is e^ε."""
    gamma = privunit.threshold(epsilon)
    outside = 1.0 / (1.0 + stats.norm.sf(gamma) * math.expm1(epsilon))  # of the density, below γ

    def moment(k):
        below, _ = integrate.quad(lambda t: t**k * stats.norm.pdf(t), -40.0, gamma)
        above, _ = integrate.quad(lambda t: t**k * stats.norm.pdf(t), gamma, 40.0)
        return outside * (below + math.exp(epsilon) * above)

    assert moment(0) == pytest.approx(1.0, abs=1e-9)
    assert moment(1) == pytest.approx(gamma, rel=1e-7)
    expected = (1000 - 1 + moment(2)) / gamma**2 - 1.0
    assert privunit.best_known_error(1000, epsilon) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", [1, 2, 4, 8, 16])
def test_sphere_comes_near(privunit, dimension, epsilon):
    beyond, bits = (1.08, 11) if epsilon <= 8 else (1.17, 22)
    scheme = jopeq.Sphere(epsilon=float(epsilon), clip=1.0)
    ratio = scheme.expected_error(dimension) / privunit.best_known_error(dimension, epsilon)
    assert 1.0 < ratio <= beyond
    assert scheme.bits_for(dimension) <= bits
