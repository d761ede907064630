"""Theorems III.1 to III.5: the formulas against schemes, payloads and simulation."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, stats

from jopeq.analysis.exact import exact_epsilon
from jopeq.analysis.theory import (
    BOUNDARY,
    FORMS,
    ConvergenceBound,
    DitheredLaplace,
    StaircaseLaw,
    aggregation_bound,
    aggregation_error,
    coarseness,
    distance,
    dithered_density,
    hexagon,
    noise_share,
    overload_chance,
    plane_distance,
    radial_distribution,
    scalar_distance,
    total_error,
)
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Laplace, MultivariateT
from jopeq.schemes.quantized import JoPEQ
from jopeq.schemes.staircase import Staircase


def test_equal_weights_fall_as_one_over_k():
    errors = [aggregation_error(np.full(k, 1 / k), np.ones(k), 0.5) for k in (1, 10, 100)]
    assert errors == pytest.approx([4.5, 0.45, 0.045])


def test_the_bound_is_attained_by_equal_gradients():
    steps, xi = np.array([0.1, 0.1, 0.1]), 2.0
    update = xi * steps.sum()  # all gradients alike and as long as allowed
    error = aggregation_error([0.3, 0.7], [update, update], 0.5)
    assert aggregation_bound([0.3, 0.7], [xi**2, xi**2], 0.5, steps) == pytest.approx(error)


@pytest.mark.parametrize("spread", [2.0, 3.0])
def test_the_error_is_that_of_a_payload(private, spread):
    """Uniform entries never leave the ball at these spreads: within five standard errors."""
    update = np.random.default_rng(0).uniform(-1.0, 1.0, 200_000)
    scheme = JoPEQ(epsilon=4.0, rate=2.0, coding="entropy", spread=spread)
    payload, counted = scheme.encode(
        update, seed=bytes(32), noise=private("aggregation"), statistics=True
    )
    squares = np.square(scheme.decode(payload) - update)
    variance = scheme.target.noise.variance
    expected = aggregation_error([1.0], [np.linalg.norm(update)], variance, spread)
    assert counted.clipped == 0
    assert abs(squares.sum() - expected) <= 5 * squares.std() * len(squares) ** 0.5


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 4.39, 4.41, 8.0])
@pytest.mark.parametrize("letters", [2, 3, 16])
def test_the_share_is_the_schemes(epsilon, letters):
    scheme = JoPEQ(epsilon=epsilon, rate=math.log2(letters))
    gamma = scheme.target.gamma(scheme.rate)
    share = float(noise_share(epsilon, letters, gamma))
    own = 0.0 if scheme.noise is None else scheme.noise.variance
    assert share == pytest.approx(own / scheme.target.noise.variance, abs=1e-12)
    in_region = float(coarseness(epsilon, letters, gamma)) >= BOUNDARY
    assert in_region == (scheme.noise is None)


@pytest.mark.parametrize(("epsilon", "letters"), [(2.0, 2), (4.0, 2), (4.0, 4), (6.0, 16)])
def test_the_servers_epsilon_is_the_one_asked_for_over_the_root_of_the_share(epsilon, letters):
    scheme = JoPEQ(epsilon=epsilon, rate=math.log2(letters))
    share = float(noise_share(epsilon, letters, scheme.target.gamma(scheme.rate)))
    assert exact_epsilon(scheme).server == pytest.approx(epsilon / math.sqrt(share), rel=1e-6)


def test_no_noise_is_no_privacy():
    scheme = JoPEQ(epsilon=6.0, rate=1.0)
    assert noise_share(6.0, 2, scheme.target.gamma(1.0)) == 0.0
    assert exact_epsilon(scheme).server == math.inf


BOUND = ConvergenceBound(
    tau=4,
    convexity=0.2,
    smoothness=1.0,
    gap=0.3,
    variance=0.5,
    weights=(0.25, 0.75),
    gradient_bounds=(4.0, 1.0),
    start=2.0,
)


def test_the_constants_by_hand():
    shares = 0.25**2 * 4 + 0.75**2
    expected = (1 + 36 * 16 * 0.5) * shares + 6 * 1.0 * 0.3 + 8 * 9 * (0.25 * 4 + 0.75)
    assert BOUND.b == pytest.approx(expected)
    assert BOUND.phi == 4 * 4 * 1.0 / 0.2
    assert float(BOUND.step_size(0)) == pytest.approx(1 / (4 * BOUND.smoothness))
    printed = max((0.2**2 + 16 * expected) / (4 * 0.2), BOUND.phi * 2.0)
    assert float(BOUND.at(20, "printed")) == pytest.approx(0.5 * printed / (20 + BOUND.phi))
    assert BOUND.constant("proof") == pytest.approx((0.2**2 + 16 * expected) / (4 * 0.2**2))


@pytest.mark.parametrize("tau", [2, 3, 10])
@pytest.mark.parametrize("start", [0.0, 1e4])
def test_the_corrected_constant_bounds_the_recursion(tau, start):
    bound = dataclasses.replace(BOUND, tau=tau, start=start)
    assert max(bound.recursion(5000)) <= bound.constant("corrected") * (1 + 1e-12)


@pytest.mark.parametrize("form", ["printed", "proof"])
def test_the_papers_constants_do_not(form):
    bound = dataclasses.replace(BOUND, tau=2, start=0.0)
    assert max(bound.recursion(20_000)) > 1.5 * bound.constant(form)


def test_the_recursion_comes_as_close_as_one_likes_to_the_corrected_constant():
    bound = dataclasses.replace(BOUND, start=0.0)
    assert max(bound.recursion(40_000)) > 0.99 * bound.constant("corrected")


def test_units_do_not_matter_but_to_the_printed_bound():
    """A loss a hundred times smaller: curvatures and gap fall by 100, squared gradients by 100²."""
    small = dataclasses.replace(
        BOUND,
        convexity=BOUND.convexity / 100,
        smoothness=BOUND.smoothness / 100,
        gap=BOUND.gap / 100,
        gradient_bounds=tuple(xi / 100**2 for xi in BOUND.gradient_bounds),
        start=0.0,
    )
    large = dataclasses.replace(BOUND, start=0.0)
    ratios = {form: float(large.at(100, form) / small.at(100, form)) for form in FORMS}
    assert ratios["corrected"] == pytest.approx(100)
    assert ratios["printed"] == pytest.approx(100**2)


def test_one_local_step_has_no_constant():
    bound = dataclasses.replace(BOUND, tau=1, start=0.0)
    assert bound.constant("corrected") == np.inf
    scaled = list(bound.recursion(20_000))
    assert scaled[-1] > 1.3 * scaled[2000]  # grows as log t


def test_bad_constants_are_refused():
    with pytest.raises(ValueError, match="tau must be a whole number of at least 1, got 0"):
        dataclasses.replace(BOUND, tau=0)
    with pytest.raises(ValueError, match="convexity <= smoothness"):
        dataclasses.replace(BOUND, convexity=2.0)
    with pytest.raises(ValueError, match="as many"):
        dataclasses.replace(BOUND, weights=(1.0,))
    with pytest.raises(ValueError, match="form must be one of printed, proof, corrected"):
        BOUND.constant("best")


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


LAW = MultivariateT(5.0, 0.4, 2)


def test_the_hexagon_is_the_cell(dither_words):
    corners = hexagon(2.0)
    lattice = Lattice("A2", step=2.0)
    area = 0.5 * np.sum(
        corners[:, 0] * np.roll(corners[:, 1], -1) - corners[:, 1] * np.roll(corners[:, 0], -1)
    )
    assert area == pytest.approx(lattice.cell_volume)
    assert not lattice.nearest(corners * 0.999).any()
    assert lattice.nearest(corners * 1.001).any(axis=1).all()
    inside = dithered_density(None, 2.0, lattice.dither(dither_words("cell", 1000, 2))) > 0
    assert inside.all()


@pytest.mark.parametrize("squared_scale", [0.003, 0.1, 2.0])
def test_the_density_is_the_mean_over_the_cell(squared_scale, dither_words):
    """Against 400,000 dithers, five standard errors."""
    law = MultivariateT(5.0, squared_scale, 2)
    points = np.array([[0.0, 0.0], [0.3, 0.1], [0.5, 0.0], [0.45, 0.3], [1.2, -0.7]])
    dither = Lattice("A2").dither(dither_words("density", 400_000, 2))
    found = dithered_density(law, 1.0, points)
    for point, value in zip(points, found, strict=True):
        each = law.density(point - dither)
        assert abs(each.mean() - value) <= 5 * each.std() / len(each) ** 0.5 + 1e-12


def test_far_out_and_far_in():
    assert dithered_density(LAW, 1e-3, np.array([[0.4, 0.2]])) == pytest.approx(
        LAW.density([0.4, 0.2]), rel=1e-5
    )
    narrow = MultivariateT(5.0, 1e-8, 2)
    middle = dithered_density(narrow, 1.0, np.array([[0.1, 0.05]]))
    assert middle == pytest.approx(1.0 / Lattice("A2").cell_volume, rel=1e-5)


def test_the_distance_agrees_with_samples(private, dither_words):
    """Of ‖n + u‖, 2¹⁶ samples, false alarm 1e-7."""
    scheme = JoPEQ(epsilon=4.0, rate=1.0, lattice=Lattice("A2"))
    found = plane_distance(scheme)
    noise = scheme.noise.sample(private("plane"), 0, 1 << 16)
    total = noise + scheme.cells.dither(dither_words("plane", 1 << 16, 2))
    places = np.sort(radial_distribution(scheme.target.noise, np.linalg.norm(total, axis=1)))
    measured = np.abs(places - (np.arange(1 << 16) + 0.5) / (1 << 16)).max()
    assert abs(measured - found.kolmogorov) < 2.9 / (1 << 8)
    assert found.defect < 1e-4
    assert found.kolmogorov <= found.total_variation


def test_other_schemes_are_refused():
    with pytest.raises(ValueError, match="t target on A2"):
        plane_distance(JoPEQ(epsilon=4.0, rate=2.0))
    with pytest.raises(ValueError, match="isotropic"):
        radial_distribution(MultivariateT(5.0, 1.0, 4), np.ones(1))
