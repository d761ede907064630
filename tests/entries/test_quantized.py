"""No compression, and dithered quantization without privacy: errors, rates, figures, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

import jopeq
from jopeq.analysis.exact import exact_epsilon
from jopeq.entries.quantized import SubtractiveDither
from jopeq.lattice.lattices import Lattice
from jopeq.noise import into_unit_ball
from jopeq.random.streams import PrivateStream

SEED = bytes(range(32))


def errors(scheme, x, count):
    """Decoded minus sent, one row a sample, through the real bytes; clip 1 makes the unit 1."""
    samples = np.tile(x, (count, 1))
    return scheme.decode(scheme.encode(samples, seed=SEED)).astype(np.float64) - samples


@pytest.mark.parametrize("rate", [1.0, 1.6, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("x", [-1.0, -0.37, 0.0, 0.5, 1.0])
def test_on_z_the_error_is_uniform_for_every_input(rate, x, assert_follows):
    scheme = jopeq.scheme("sdq", rate=rate, clip=1.0)
    step = scheme.cells.step
    off = errors(scheme, [x], 20_000)[:, 0]
    assert_follows(off, stats.uniform(-step / 2, step).cdf)


@pytest.mark.parametrize(("lattice", "rate"), [("A2", 3.0), ("D4", 2.5), ("E8", 2.0)])
def test_the_law_of_the_error_does_not_depend_on_the_input(
    lattice, rate, assert_same_law, assert_mean
):
    scheme = jopeq.scheme("sdq", rate=rate, gamma=3.0, lattice=lattice, clip=1.0)
    count = 20_000
    zeros = [0.0] * scheme.dimension
    here = errors(scheme, zeros, count)
    other = [0.61, *[-0.27] * (scheme.dimension - 1)]
    samples = np.tile(other, (count, 1))
    payload, counted = scheme.encode(samples, seed=SEED[::-1], counts=True)
    assert counted.overloaded == 0
    there = scheme.decode(payload).astype(np.float64) - samples
    for axis in range(scheme.dimension):
        assert_same_law(here[:, axis], there[:, axis])
    assert_same_law(np.linalg.norm(here, axis=1), np.linalg.norm(there, axis=1))
    assert_mean(there, 0.0)
    assert_mean(np.square(there).mean(axis=1), scheme.distortion)


@pytest.mark.parametrize(("lattice", "rate"), [("Z", 2.0), ("Z", 5.0), ("A2", 1.0), ("E8", 0.5)])
@pytest.mark.parametrize("name", ["sdq", "laplace+sdq", "jopeq"])
def test_odd_levels_have_the_origin_and_keep_rate_and_privacy(name, lattice, rate):
    """One letter fewer, symmetric about a codeword at 0; ε of the channel is within the proven."""
    private = {} if name == "sdq" else {"epsilon": 4.0}
    given = {"rate": rate, "lattice": lattice, "gamma": 3.0, **private}
    even, odd = (jopeq.scheme(name, **given, levels=levels) for levels in ("all", "odd"))
    letters = odd.codebook.letters
    assert letters == even.codebook.letters - 1
    points = odd.codebook.points(np.arange(letters))
    assert (np.abs(points).max(axis=1) == 0.0).sum() == 1
    assert not (np.abs(even.codebook.points(np.arange(letters + 1))).max(axis=1) == 0.0).any()
    np.testing.assert_allclose(np.sort(points, axis=0), np.sort(-points, axis=0), atol=1e-12)
    assert odd.codebook.gamma == pytest.approx(3.0)
    assert odd.bits_per_entry <= rate
    assert jopeq.scheme_from_spec(odd.spec) == odd
    if private and lattice == "Z":
        exact = exact_epsilon(odd)
        assert exact.server == pytest.approx(odd.guarantee.epsilon, rel=1e-6)
        assert odd.guarantee.epsilon >= 4.0 - 1e-9


@pytest.mark.parametrize("lattice", ["Z", "A2"])
def test_dq_makes_twice_the_error_on_average_over_inputs(lattice, assert_mean):
    given = {"rate": 6.0, "gamma": 8.0, "lattice": lattice, "levels": "odd", "clip": 1.0}
    kept = jopeq.scheme("dq", **given)
    samples = np.random.default_rng(3).uniform(-4, 4, (20_000, kept.dimension))
    off = kept.decode(kept.encode(samples, seed=SEED)).astype(np.float64) - samples
    assert_mean(np.square(off).mean(axis=1), 2 * kept.cells.second_moment)
    assert not errors(kept, [0.0] * kept.dimension, 500).any()  # it depends on the input


SEED, NOISE = bytes(range(50, 82)), bytes(range(150, 182))
T = {"nu": 12.0, "squared_scale": 0.75}
NAMES = ["sdq", "dq", "laplace+sdq", "t+sdq", "jopeq"]


def made(name, epsilon, **parameters):
    private = {} if name in ("sdq", "dq") else {"epsilon": epsilon}
    return jopeq.scheme(name, clip=1.0, **private, **parameters)


def squares(scheme, count):
    """Squared error per entry of ``count`` samples at x = 0, through the real bytes."""
    zeros = np.zeros((count, scheme.dimension), np.float32)
    payload = scheme.encode(zeros, seed=SEED, noise=PrivateStream.reproducible(NOISE))
    return np.square(scheme.decode(payload).astype(np.float64)).mean(axis=1)


def assert_distortion(scheme, count, *, own_draws=0):
    off = squares(scheme, count)
    variance = off.var() * (1 / count + (1 / own_draws if own_draws else 0.0))
    gap = abs(off.mean() - scheme.distortion)
    assert gap <= 5 * math.sqrt(variance) + 1e-5 * scheme.distortion, (off.mean(), gap)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("lattice", "rate", "epsilon"),
    [
        *(("Z", rate, epsilon) for rate, epsilon in ((1.0, 4.0), (2.0, 1.0), (8.0, 4.0))),
        *(("A2", 2.0, 3.0), ("D4", 1.0, 3.0), ("E8", 1.0, 3.0)),
    ],
)
def test_distortion_is_what_the_bytes_show(name, lattice, rate, epsilon):
    has_tails = name in ("t+sdq", "jopeq") and lattice != "Z"
    scheme = made(name, epsilon, rate=rate, lattice=lattice, **(T if has_tails else {}))
    assert_distortion(scheme, 20_000, own_draws=131_072 if lattice != "Z" else 0)


@pytest.mark.parametrize(
    ("name", "lattice"),
    [*(("sdq", n) for n in ("A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2)))), ("jopeq", "A2")],
    ids=str,
)
def test_distortion_counts_overload_where_no_noise_is_added(name, lattice):
    """So few letters that they do not cover the cell around 0."""
    scheme = made(name, 4.0, rate=0.5, lattice=lattice, gamma=3.0)
    assert scheme.noise is None
    assert_distortion(scheme, 20_000, own_draws=131_072)
    assert scheme.distortion > scheme.cells.second_moment * 1.001


def test_lattices_come_as_names_generators_or_lattices():
    assert SubtractiveDither(rate=2.0, lattice=Lattice("A2", step=3.0)).lattice == Lattice("A2")
    generator = [[1.0, 0.3], [0.0, 1.2]]
    for version in (generator, tuple(map(tuple, generator)), np.array(generator)):
        built = jopeq.scheme("sdq", rate=2.0, lattice=version)
        assert built.lattice == Lattice(generator=((1.0, 0.3), (0.0, 1.2)))
        assert built.spec == '["sdq",{"lattice":[[1.0,0.3],[0.0,1.2]],"rate":2.0}]'


@pytest.mark.parametrize("rate", [1.0, 1.6, 2.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("name", ["laplace+sdq", "jopeq"])
def test_the_sum_over_dithers_is_the_integral(name, epsilon, rate):
    """E(decoded²) at x = 0 on Z, from the density of the noise, dither by dither."""
    scheme = jopeq.scheme(name, epsilon=epsilon, rate=rate)
    step, letters = scheme.cells.step, scheme.codebook.letters
    points = (np.arange(letters) - (letters - 1) / 2) * step
    scale = 1e-9 * step if scheme.noise is None else scheme.noise.scale

    def at(dither):
        edges = np.concatenate(([-np.inf], points[:-1] + step / 2, [np.inf])) - dither
        chances = np.diff(stats.laplace.cdf(edges, scale=scale))
        return float(chances @ (points - dither) ** 2)

    found = integrate.quad(at, -step / 2, step / 2, limit=200)[0] / step
    assert scheme.distortion == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
def test_samples_are_moved_into_the_ball_along_their_ray(dimension):
    rows = np.random.default_rng(1).standard_normal((50_000, dimension)) * 2
    norms = np.linalg.norm(rows, axis=1)
    inside, moved = into_unit_ball(rows)
    assert 0 < moved == (norms > 1.0).sum() < len(rows)
    assert np.linalg.norm(inside, axis=1).max() <= 1.0  # no rounding leaves it
    np.testing.assert_allclose(inside, rows / np.maximum(norms, 1.0)[:, None], rtol=1e-11)


def test_what_the_scale_gives_away_is_said():
    for parameters, starts in (
        ({"clip": 1.0}, []),
        ({}, ["the update's norm may be known: it travels in the clear"]),
        ({"center": True}, ["the update's norm and mean may be known: they travel in the clear"]),
        ({"per": "tensor"}, ["every tensor's norm may be known: it travels in the clear"]),
    ):
        found = jopeq.scheme("laplace", epsilon=4.0, **parameters).scaling.assumptions
        assert [said[: len(start)] for said, start in zip(found, starts, strict=True)] == starts


def test_the_mean_of_the_target_is_a_public_shift(assert_mean):
    """Decoded values keep μ; ε and the noise are those without it."""
    mean = (0.5, -0.25)
    plain = jopeq.scheme("jopeq", epsilon=4.0, rate=7.0, lattice="A2", gamma=200.0, clip=1.0)
    shifted = replace(plain, mean=mean)
    update = np.tile(np.float32([0.3, 0.1]), 20_000)
    errors = (shifted.decode(shifted.encode(update)) - update).reshape(-1, 2)
    assert_mean(errors, mean)
    assert_mean(np.square(errors - mean), plain.target.noise.covariance.diagonal())
    assert shifted.distortion == pytest.approx(plain.distortion + np.square(mean).mean(), rel=0.02)
    assert shifted.bias() == pytest.approx(0.5, abs=0.02)
    assert shifted.guarantee == plain.guarantee
    assert jopeq.scheme_from_spec(shifted.spec) == shifted
    line = jopeq.scheme("jopeq", epsilon=4.0, rate=3.0, mean=(0.5,))
    assert line.bias() == pytest.approx(0.5, abs=0.05)
    assert exact_epsilon(line).server == pytest.approx(line.guarantee.epsilon, rel=1e-6)
    for wrong in ((0.5,), (0.9, 0.9), (math.nan, 0.0)):
        with pytest.raises(ValueError, match="mean must be a point of the unit ball with 2"):
            replace(plain, mean=wrong)


def test_a_matrix_of_the_target_is_the_covariance_of_the_errors(assert_mean):
    matrix = ((0.9, 0.2), (0.2, 0.7))
    given = {"epsilon": 4.0, "rate": 7.0, "lattice": "A2", "gamma": 200.0, "clip": 1.0}
    built = jopeq.scheme("jopeq", **given, nu=12, squared_scale=matrix)
    assert jopeq.scheme_from_spec(built.spec) == built
    assert built.target.noise.covariance == pytest.approx(np.array(matrix) * 12 / 10)
    update = np.zeros(100_000, np.float32) + 0.1
    errors = (built.decode(built.encode(update)) - update).reshape(-1, 2)
    products = errors[:, :, None] * errors[:, None, :]
    assert_mean(products.reshape(-1, 4), built.target.noise.covariance.ravel())
    assert built.guarantee.epsilon > built.target.noise.epsilon()


def test_gaussian_noise_needs_a_delta_and_other_laws_have_none():
    for given in ({"law": "gaussian"}, {"delta": 1e-5}, {"law": "gaussian", "delta": 0.7}):
        with pytest.raises(ValueError, match="delta"):
            jopeq.scheme("jopeq", epsilon=4.0, rate=2.0, **given)
    built = jopeq.scheme("jopeq", epsilon=4.0, rate=2.0, law="gaussian", delta=1e-5)
    assert built.guarantee.for_update(100).delta == pytest.approx(1e-3)
    assert exact_epsilon(built) is None
