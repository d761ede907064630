"""The laws of the noise: densities, characteristic functions, samples, ε, matching, cuts.

Densities are integrated numerically, ε is the largest log-ratio found on fine grids, samples are
compared with laws by Kolmogorov–Smirnov (threshold 1e-7) and moments within 5 standard errors. All
laws alike come first, then what t alone has.
"""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

import jopeq
from jopeq.lattice.lattices import NAMES, Lattice
from jopeq.noise import (
    DIAMETER,
    EuclideanLaplace,
    Gaussian,
    Laplace,
    MultivariateT,
    add_noise,
    t_epsilon,
)
from jopeq.noise.law import NoiseRecipe
from jopeq.privacy.calibration import calibrate_t
from jopeq.random.portable import MAX_EXPONENTIAL
from jopeq.random.streams import PrivateStream

SIGMA = ((1.3, 0.4), (0.4, 0.5))
LAWS = {
    "Laplace": Laplace(0.5),
    "Laplace 2": Laplace(0.7, 2),
    "Laplace 8": Laplace(0.9, 8),
    "t 1": MultivariateT(3.0, 0.6, 1),
    "t 2": MultivariateT(6.0, 1.131, 2),
    "t 2 full": MultivariateT(12.0, SIGMA, 2),
    "t 4": MultivariateT(14.0, 0.5, 4),
    "l2 2": EuclideanLaplace(0.5, 2),
    "l2 5": EuclideanLaplace(0.3, 5),
    "Gauss 1": Gaussian(0.6),
    "Gauss 2": Gaussian(0.6, 2),
    "Gauss 3": Gaussian(1.7, 3),
}
APART = {name: law for name, law in LAWS.items() if isinstance(law, Laplace)}
FLAT = {name: law for name, law in LAWS.items() if law.dimension == 1}
PLANE = {name: law for name, law in LAWS.items() if law.dimension == 2}
PURE = {name: law for name, law in (FLAT | PLANE).items() if not isinstance(law, Gaussian)}
ROWS = 200_000


def of(laws):
    return pytest.mark.parametrize("law", laws.values(), ids=laws.keys())


def characteristic(law, t):
    """E cos⟨t, n⟩ (paper, eq. 14)."""
    rows = np.reshape(t, (-1, law.dimension))
    if isinstance(law, Laplace):
        return np.prod(1 / (1 + (law.scale * rows) ** 2), axis=1)
    squares = np.square(rows).sum(axis=1)
    if isinstance(law, Gaussian):
        return np.exp(-0.5 * law.variance * squares)
    if isinstance(law, EuclideanLaplace):
        return (1.0 + law.scale**2 * squares) ** (-0.5 * (law.dimension + 1))
    half = law.nu / 2
    r = np.sqrt(law.nu * np.einsum("ij,jk,ik->i", rows, law.scale_matrix, rows))
    r = np.maximum(r, 1e-20)  # below, it is 1 to the last bit
    log_factor = half * np.log(r) - r - (half - 1) * math.log(2) - math.lgamma(half)
    return special.kve(half, r) * np.exp(log_factor)


def scale_of(law):
    return math.sqrt(law.variance)


@of(FLAT)
def test_density_distribution_and_characteristic_function_agree_on_the_line(law):
    def density(x):
        return law.density([x])[0]

    assert 2 * integrate.quad(density, 0, np.inf)[0] == pytest.approx(1.0, abs=1e-7)
    below, _ = integrate.quad(density, -np.inf, -0.4)
    assert below == pytest.approx(float(law.distribution(-0.4)), abs=1e-7)
    assert law.distribution([-1e3, 0.0, 1e3]) == pytest.approx([0.0, 0.5, 1.0], abs=1e-8)
    for t in (0.1, 0.7, 2.0, 5.0):
        half, _ = integrate.quad(density, 0, np.inf, weight="cos", wvar=t, limlst=200)
        assert characteristic(law, [t])[0] == pytest.approx(2 * half, abs=1e-6)


def plane_grid(scale, count=700):
    """Points and weights for the plane: x = s·u/(1−u²) on a midpoint grid of u, cut at the axes."""
    u = (np.arange(count) + 0.5) / count * 2.0 - 1.0
    x = scale * u / (1 - u * u)
    weight = scale * (1 + u * u) / (1 - u * u) ** 2 * 2.0 / count
    points = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    return points, np.outer(weight, weight).ravel()


@of(PLANE)
def test_density_moments_and_characteristic_function_agree_in_the_plane(law):
    points, weights = plane_grid(scale_of(law))
    mass = law.density(points) * weights
    assert mass.sum() == pytest.approx(1.0, abs=1e-4)
    second = (mass[:, None] * points).T @ points
    tolerance = 0.05 if isinstance(law, MultivariateT) else 2e-3  # heavy tails beyond the grid
    assert second == pytest.approx(law.covariance, abs=tolerance * law.variance)
    for t in ((0.3, 0.0), (0.0, -0.6), (0.8, 0.9), (2.0, -1.0)):
        value = (mass * np.cos(points @ t)).sum()
        assert characteristic(law, [t])[0] == pytest.approx(value, abs=1e-3)


@pytest.fixture(scope="module")
def samples(private):
    return {name: law.sample(private(name), 0, ROWS) for name, law in LAWS.items()}


@pytest.mark.parametrize("name", LAWS)
def test_samples_have_the_characteristic_function_and_the_covariance(name, samples, assert_mean):
    """Five standard errors; a t law needs ν > 8 for its squares to have one that settles."""
    law, x = LAWS[name], samples[name]
    rng = np.random.default_rng(5)
    frequencies = rng.normal(size=(8, law.dimension)) / scale_of(law) / math.sqrt(law.dimension)
    phase = x @ frequencies.T
    assert_mean(np.cos(phase), characteristic(law, frequencies))
    assert_mean(np.sin(phase), 0.0)
    if getattr(law, "nu", 9) > 8:
        products = x[:, :, None] * x[:, None, :]
        assert_mean(products.reshape(ROWS, -1), law.covariance.ravel())
    assert law.variance == pytest.approx(np.trace(law.covariance) / law.dimension)


@pytest.mark.parametrize("name", LAWS)
def test_the_first_entry_follows_the_distribution(name, samples, assert_follows):
    law = LAWS[name]
    assert_follows(samples[name][:, 0], law.distribution)


@pytest.mark.parametrize("name", APART)
def test_entries_of_laplace_noise_are_independent(
    name, samples, assert_follows, assert_independent
):
    law, x = LAWS[name], samples[name]
    one = stats.laplace(scale=law.scale)
    np.testing.assert_allclose(law.density(x[:500]), one.pdf(x[:500]).prod(axis=1), rtol=1e-12)
    far = law.variance**0.5 * np.array([-1e300, -25.0, 0.0, 25.0, 1e300])
    np.testing.assert_allclose(law.distribution(far), one.cdf(far), rtol=1e-13)
    bins = np.floor(8 * law.distribution(x)).astype(int)
    for i in range(law.dimension):
        assert_follows(x[:, i], one.cdf)
        if i > 0:
            assert_independent(bins[:, 0], bins[:, i])


@pytest.mark.parametrize("name", [n for n, law in LAWS.items() if isinstance(law, MultivariateT)])
def test_t_radius_follows_f_and_direction_is_uniform(name, samples, assert_follows, assert_mean):
    """xᵀΣ⁻¹x / L ~ F(L, ν): independent entries with t marginals would not do."""
    law, x = LAWS[name], samples[name]
    size = law.dimension
    white = np.linalg.solve(np.linalg.cholesky(law.scale_matrix), x.T).T
    squares = (white**2).sum(axis=1)
    assert_follows(squares / size, lambda v: special.fdtr(size, law.nu, v))
    direction = white / np.sqrt(squares)[:, None]
    outer = (direction[:, :, None] * direction[:, None, :]).reshape(ROWS, -1)
    assert_mean(outer, np.eye(size).ravel() / size)
    if size == 2:
        angle = np.arctan2(direction[:, 1], direction[:, 0]) / (2 * math.pi) + 0.5
        assert_follows(angle, lambda v: v)


@settings(max_examples=40)
@given(name=st.sampled_from(sorted(LAWS)), start=st.integers(0, 300), count=st.integers(0, 300))
def test_any_chunk_samples_what_the_whole_samples(name, start, count):
    stream = PrivateStream.reproducible(bytes(range(32)))
    law = LAWS[name]
    whole = law.sample(stream, 0, 600)
    assert np.array_equal(law.sample(stream, start, count), whole[start : start + count])


def log_ratio(law, x, shift):
    return np.log(law.density(x)) - np.log(law.density(x - shift))


@pytest.mark.parametrize("distance", [0.1, 1.0, 2.0, 5.0])
@of(PURE)
def test_epsilon_is_the_largest_log_ratio_of_the_density(law, distance):
    """Attained in the worst direction, and exceeded in none."""
    size = law.dimension
    if isinstance(law, MultivariateT):
        worst = np.linalg.eigh(law.scale_matrix)[1][:, 0]
    else:
        worst = np.full(size, 1 / math.sqrt(size))
    line = np.linspace(-12, 12, 200_001)[:, None] * worst * scale_of(law)
    found = log_ratio(law, line, distance * worst).max()
    epsilon = law.epsilon(distance)
    assert found == pytest.approx(epsilon, rel=1e-6)
    assert found <= epsilon * (1 + 1e-12)
    if size == 2:
        rng = np.random.default_rng(6)
        grid = plane_grid(scale_of(law), 150)[0]
        for angle in rng.uniform(0, 2 * math.pi, 24):
            shift = distance * np.array([math.cos(angle), math.sin(angle)])
            assert log_ratio(law, grid, shift).max() <= epsilon * (1 + 1e-12)


TARGETS = {
    "Laplace": lambda size: Laplace(0.5, size),
    "t": lambda size: MultivariateT(12.0, 0.614, size),
    "l2": lambda size: EuclideanLaplace(0.4, size) if size > 1 else Laplace(0.4),
    "Gauss": lambda size: Gaussian(0.7, size),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", NAMES)
def test_matched_noise_and_dither_have_the_target_covariance(target, name):
    unit = Lattice(name)
    law, cell = target(unit.dimension), unit.scale(0.4).covariance
    matched = law.match(cell)
    assert matched.covariance + cell == pytest.approx(law.covariance)
    assert type(matched) is type(law)
    assert matched.epsilon() >= law.epsilon()
    edge = math.sqrt(law.variance / unit.second_moment)  # nothing is left to match beyond
    assert law.match(unit.scale(edge * 1.0001).covariance) is None
    assert law.match(unit.scale(edge * 3).covariance) is None
    small = law.match(unit.scale(edge * 0.9999).covariance)
    assert 0 < small.variance < 3e-4 * law.variance


class Extreme(PrivateStream):
    """All words zero: the largest draw of every sampler."""

    def words64(self, *, lane, start, count):
        return np.zeros(count, dtype=np.uint64)


def test_the_end_of_the_sampler_cannot_be_seen():
    """From any input of the ball the extreme draw is cut to the same value."""
    law = Laplace(0.5)
    assert law.sample(Extreme(), 0, 1)[0, 0] == pytest.approx(MAX_EXPONENTIAL * 0.5)
    assert MAX_EXPONENTIAL > 52 > law.reach / law.scale
    for x in (-1.0, 0.0, 1.0):
        noisy = add_noise(law, np.full((3, 1), x), Extreme(), 0)
        assert (noisy == law.reach - 1.0).all()
    # every value up to the cut is reached from every input: |y − x| ≤ reach < the sampler's end
    assert law.reach - 1.0 + 1.0 < MAX_EXPONENTIAL * law.scale
    narrow = Laplace(2 / 48.1)  # too narrow to cut
    found = add_noise(narrow, np.ones((1, 1)), Extreme(), 0)[0, 0]
    assert found == pytest.approx(1 + MAX_EXPONENTIAL * narrow.scale)


def test_draws_reach_across_the_ball_and_kernels_cut_where_the_plain_path_cuts():
    for epsilon, covers in ((1.0, True), (48.0, True), (48.001, False)):
        law = Laplace(2.0 / epsilon)
        assert law.epsilon() == pytest.approx(epsilon)
        assert law.covers_ball is covers
    for scale, limit in ((0.5, 23.0), (2 / 48, 1.0), (2 / 48.001, math.inf)):
        expected = NoiseRecipe("laplace", scale, pytest.approx(limit, abs=1e-12))
        assert Laplace(scale).recipe() == Laplace(scale, 2).recipe() == expected


@of(LAWS)
def test_add_noise_adds_the_sample(law, private):
    x = np.random.default_rng(9).uniform(-0.3, 0.3, (500, law.dimension))
    noisy, limit = add_noise(law, x, private("add"), 7), law.reach - 1.0
    expected = x + law.sample(private("add"), 7, 500)
    assert np.array_equal(noisy, np.clip(expected, -limit, limit))
    assert np.array_equal(noisy, expected)  # the cut is far beyond 500 draws
    assert pickle.loads(pickle.dumps(law)) == law  # with all that sampling has cached
    assert law.epsilon() == law.epsilon(DIAMETER)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_scales_and_dimensions_are_checked(value):
    for make, name in (
        (lambda scale, size: Laplace(scale, size), "scale"),
        (lambda scale, size: MultivariateT(6.0, scale, size), "squared_scale"),
    ):
        with pytest.raises(ValueError, match=rf"{name} must be a positive finite .* got {value}"):
            make(value, 2)
        with pytest.raises(ValueError, match="dimension"):
            make(1.0, 0)


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
    matched = law.match(skewed.covariance)
    assert isinstance(matched.squared_scale, tuple)
    assert matched.covariance + skewed.covariance == pytest.approx(law.covariance)
    stretched = Lattice(generator=((0.1, 0.0), (0.0, 9.0)))
    assert law.match(stretched.covariance) is None  # too large in one direction is too large


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


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_l2_mechanism_reaches_as_far_as_its_longest_draw(size, assert_follows):
    """Lengths are Gamma(L); all that the cut leaves is within the longest, 185 scales."""
    law = EuclideanLaplace(0.5, size)
    lengths = np.linalg.norm(law.sample(PrivateStream.reproducible(bytes(32)), 0, ROWS), axis=1)
    assert_follows(lengths / law.scale, lambda r: special.gammainc(size, r))
    assert law.reach * math.sqrt(size) == pytest.approx(185.07 * law.scale, rel=1e-4)
    assert 0 < law.lost < 1e-9
    assert EuclideanLaplace(2 / 200, size).covers_ball is False


def test_the_end_of_gaussian_draws_is_within_delta():
    law = Gaussian(0.5)
    assert 2 * special.ndtr(-law.reach / law.scale) < 2.0**-70
    assert law.reach < 0.5 * math.sqrt(2 * 185)  # where draws end
    assert law.slope >= (law.reach + DIAMETER) / law.variance  # of −x²/2σ², at the cut


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


@pytest.mark.parametrize("name", NAMES)
def test_the_uniform_law_of_a_cell_vanishes_on_the_dual_lattice(name):
    """And Laplace and t do not: so (14)/(15) has poles, and is no characteristic function.

    The cells tile, so ∫ over a cell of e^{2πi w·x} is that over a parallelepiped: 0.
    """
    lattice = Lattice(name)
    size = lattice.dimension
    mixed = np.random.default_rng(8).integers(-1, 2, (20, size))
    whole = np.concatenate((np.eye(size, dtype=int), mixed[mixed.any(axis=1)]))
    frequencies = 2 * math.pi * whole @ np.linalg.inv(lattice.basis).T  # of the dual lattice
    levels = {1: 4096, 2: 256, 4: 16, 8: 4}[size]
    axis = np.arange(levels) * (65536 // levels)
    grid = np.stack(np.meshgrid(*[axis] * size), axis=-1).reshape(-1, size).astype(np.uint16)
    phases = lattice.dither(grid) @ frequencies.T
    assert np.abs(np.exp(1j * phases).mean(axis=0)).max() < 1e-9
    assert np.abs(np.exp(0.5j * phases).mean(axis=0)).max() > 0.1  # halfway nothing vanishes
    for law in (Laplace(0.02, size), MultivariateT(12.0, 0.02**2, size)):
        assert characteristic(law, frequencies[:10]).min() > 0.1
