"""Laws of noise plus dither on Z: closed forms against integrals, distances against brute force."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from jopeq.analysis.theory import (
    DitheredLaplace,
    StaircaseLaw,
    distance,
    overload_chance,
    scalar_distance,
    total_error,
)
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Laplace
from jopeq.schemes.quantized import JoPEQ
from jopeq.schemes.staircase import Staircase

LAWS = [
    DitheredLaplace(Laplace(0.5), 1.0),
    DitheredLaplace(Laplace(0.05), 2.0),
    DitheredLaplace(None, 1.5),
    StaircaseLaw(0.3, 1.0),
    StaircaseLaw(0.9, 0.25),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_density_is_the_derivative_of_the_distribution(law):
    x = np.linspace(-6.0, 6.0, 1201) + 1e-3  # off the jumps
    slope = (law.distribution(x + 1e-6) - law.distribution(x - 1e-6)) / 2e-6
    assert np.allclose(slope, law.density(x), atol=1e-6)
    assert law.distribution(-200.0) == pytest.approx(0.0, abs=1e-12)
    assert law.distribution(200.0) == pytest.approx(1.0, abs=1e-12)


def test_the_sum_is_the_convolution():
    law = DitheredLaplace(Laplace(0.4), 1.3)
    for x in (0.0, 0.3, 0.65, 0.9, 2.5):
        expected = integrate.quad(
            lambda u, x=x: float(Laplace(0.4).density([x - u])[0]),
            -0.65,
            0.65,
            points=[x],
            limit=200,
        )[0]
        assert law.density(x) == pytest.approx(expected / 1.3, rel=1e-8)


def test_the_variance_is_that_of_the_density():
    law = DitheredLaplace(Laplace(0.4), 1.3)
    x = np.linspace(-30.0, 30.0, 600_001)
    assert integrate.trapezoid(x * x * law.density(x), x) == pytest.approx(law.variance, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("rate", [1.0, 3.0, 6.0])
def test_the_distance_is_what_a_fine_grid_gives(epsilon, rate):
    scheme = JoPEQ(epsilon=epsilon, rate=rate)
    found = scalar_distance(scheme)
    total, target = total_error(scheme), scheme.target.noise
    x = np.linspace(-60 / epsilon, 60 / epsilon, 400_001)
    variation = 0.5 * integrate.trapezoid(np.abs(total.density(x) - target.density(x)), x)
    kolmogorov = np.abs(total.distribution(x) - target.distribution(x)).max()
    assert found.total_variation == pytest.approx(variation, abs=2e-4)
    assert found.kolmogorov == pytest.approx(kolmogorov, abs=2e-4)
    assert found.kolmogorov <= found.total_variation


def test_the_distance_of_known_laws():
    """Uniform on (−1, 1) is above Laplace of scale 1 inside, and ½ − (½ − ½/e) ahead at 1."""
    found = distance(DitheredLaplace(None, 2.0), Laplace(1.0), reach=80.0, kinks=(1.0,))
    assert found.kolmogorov == pytest.approx(0.5 / math.e)
    assert found.total_variation == pytest.approx(1.0 / math.e)


def test_the_distance_of_a_law_from_itself_is_nothing():
    law = DitheredLaplace(Laplace(0.5), 1.0)
    assert distance(law, law, reach=40.0).total_variation == 0.0


def test_matched_noise_is_never_the_target_and_comes_closer_with_the_rate():
    distances = [scalar_distance(JoPEQ(epsilon=4.0, rate=r)).total_variation for r in range(1, 9)]
    assert distances == sorted(distances, reverse=True)
    assert 0 < distances[-1] < 0.01 < 0.2 < distances[0]


def test_the_overload_chance_is_that_of_payloads(private):
    scheme = JoPEQ(epsilon=2.0, rate=1.0, clip=1.0)
    for x in (0.0, 1.0):
        update = np.full(1 << 16, x)
        _, counted = scheme.encode(
            update, seed=bytes(32), noise=private(f"overload {x}"), statistics=True
        )
        law = stats.binom(counted.samples, overload_chance(scheme, x))
        assert min(law.cdf(counted.overloaded), law.sf(counted.overloaded - 1)) > 1e-7


def test_the_staircase_law_has_the_schemes_error():
    core = Staircase(epsilon=4.0).core
    law = StaircaseLaw(core.noise.ratio, core.step)
    x = (np.arange(-400_000, 400_000) + 0.5) / 20_000
    variance = float((law.density(x) * x * x).sum() / 20_000)
    assert variance == pytest.approx(Staircase(epsilon=4.0).distortion, rel=1e-6)


def test_what_it_cannot_tell_is_refused():
    with pytest.raises(ValueError, match="step must be a positive number, got 0"):
        DitheredLaplace(Laplace(1.0), 0.0)
    with pytest.raises(ValueError, match="law on the line"):
        DitheredLaplace(Laplace(1.0, dimension=2), 1.0)
    plane = JoPEQ(epsilon=4.0, rate=2.0, lattice=Lattice("A2"))
    with pytest.raises(ValueError, match="Laplace target on Z"):
        scalar_distance(plane)
    with pytest.raises(ValueError, match="Laplace noise on Z"):
        total_error(plane)
