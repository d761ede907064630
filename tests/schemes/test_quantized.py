"""No compression, and dithered quantization without privacy: errors, rates, figures, refusals."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import jopeq
from jopeq.analysis.exact import exact_epsilon
from jopeq.lattice.lattices import Lattice
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.ball import into_unit_ball, scaling_assumptions
from jopeq.schemes.quantized import SubtractiveDither

NONE = jopeq.scheme("none")


def test_float32_comes_back_bit_for_bit():
    source = np.random.default_rng(0)
    words = source.integers(0, 2**32, 10_000, dtype=np.uint64).astype(np.uint32)
    update = words.view(np.float32)
    update = np.concatenate((update[np.isfinite(update)], np.float32([0.0, -0.0, 1e-45, 3.4e38])))
    decoded = NONE.decode(NONE.encode(update))
    np.testing.assert_array_equal(decoded.view(np.uint32), update.view(np.uint32))


@pytest.mark.parametrize("parameter", ["clip", "center", "epsilon", "epsilom"])
def test_there_is_nothing_to_set(parameter):
    with pytest.raises(ValueError, match=f"scheme 'none' takes no parameters: drop {parameter}"):
        jopeq.scheme("none", **{parameter: 1.0})
    with pytest.raises(ValueError, match="takes no parameters: drop clip, rotate"):
        jopeq.Uncompressed(clip=1.0, rotate=True)


LATTICES = ["Z", "A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2))]
SEED = bytes(range(32))


def errors(scheme, x, count):
    """Decoded minus sent, one row a sample, through the real bytes; clip 1 makes the unit 1."""
    samples = np.tile(x, (count, 1))
    return scheme.decode(scheme.encode(samples, seed=SEED)).astype(np.float64) - samples


@pytest.mark.parametrize("lattice", LATTICES, ids=str)
@pytest.mark.parametrize("coding", ["fixed", "entropy"])
@pytest.mark.parametrize("place", [0.0, 0.3, -0.9])
def test_the_error_stays_in_the_cell(lattice, coding, place):
    rate = 1.0 if lattice == "E8" else 2.0
    scheme = jopeq.scheme("sdq", rate=rate, lattice=lattice, coding=coding, clip=1.0)
    x = [place] + [0.0] * (scheme.dimension - 1)
    off = errors(scheme, x, 4000)
    payload, counted = scheme.encode(np.tile(x, (4000, 1)), seed=SEED, statistics=True)
    assert len(payload) > 0
    if counted.overloaded == 0:
        assert np.linalg.norm(off, axis=1).max() <= scheme.cells.covering_radius * (1 + 1e-6)
        assert not scheme.cells.nearest(off * (1 - 1e-6)).any()
    else:  # few on lattices whose codebook is not quite round; never on Z
        assert lattice != "Z"
        assert counted.overloaded < 400


@pytest.mark.parametrize("rate", [1.0, 1.6, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("x", [-1.0, -0.37, 0.0, 0.5, 1.0])
def test_on_z_the_error_is_uniform_for_every_input(rate, x, assert_follows):
    scheme = jopeq.scheme("sdq", rate=rate, clip=1.0)
    step = scheme.cells.step
    off = errors(scheme, [x], 20_000)[:, 0]
    assert_follows(off, stats.uniform(-step / 2, step).cdf)


@pytest.mark.parametrize("lattice", ["A2", "D4", "E8"])
def test_the_law_of_the_error_does_not_depend_on_the_input(lattice, assert_same_law, assert_mean):
    scheme = jopeq.scheme("sdq", step=0.3, lattice=lattice, coding="entropy", clip=1.0)
    count = 20_000
    zeros = [0.0] * scheme.dimension
    here = errors(scheme, zeros, count)
    other = [0.61, *[-0.27] * (scheme.dimension - 1)]
    samples = np.tile(other, (count, 1))
    payload = scheme.encode(samples, seed=SEED[::-1])
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


def test_dq_keeps_the_dither_in():
    subtractive, kept = (jopeq.scheme(n, rate=2.0, clip=1.0) for n in ("sdq", "dq"))
    update = np.linspace(-0.9, 0.9, 501)
    one, two = (s.decode(s.encode(update, seed=SEED)) for s in (subtractive, kept))
    words = SharedStream(SEED).words16(lane=0, start=0, count=501)
    dither = subtractive.cells.dither(words[:, None])[:, 0]
    np.testing.assert_allclose(two - dither, one, atol=1e-6)
    assert len(np.unique(two)) == 4


@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_dq_makes_twice_the_error_on_average_over_inputs(lattice, assert_mean):
    kept = jopeq.scheme("dq", step=0.25, lattice=lattice, coding="entropy", clip=1.0)
    single = jopeq.scheme("sdq", step=0.25, lattice=lattice, coding="entropy", clip=1.0)
    samples = np.random.default_rng(3).uniform(-5, 5, (20_000, kept.dimension))
    off = kept.decode(kept.encode(samples, seed=SEED)).astype(np.float64) - samples
    assert kept.distortion == pytest.approx(2 * single.distortion)
    assert_mean(np.square(off).mean(axis=1), kept.distortion)
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


@pytest.mark.parametrize("coding", ["fixed", "entropy"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("lattice", "rate", "epsilon"),
    [
        *(("Z", rate, epsilon) for rate, epsilon in ((1.0, 4.0), (2.0, 1.0), (8.0, 4.0))),
        *(("A2", 2.0, 3.0), ("D4", 1.0, 3.0), ("E8", 1.0, 3.0)),
    ],
)
def test_distortion_is_what_the_bytes_show(name, lattice, rate, epsilon, coding):
    has_tails = name == "t+sdq" or (name == "jopeq" and lattice != "Z")
    law = T if has_tails and (coding == "entropy" or lattice != "Z") else {}
    scheme = made(name, epsilon, rate=rate, lattice=lattice, coding=coding, **law)
    if coding == "entropy" and name != "dq":
        noise = 0.0 if scheme.noise is None else scheme.noise.variance
        assert scheme.distortion == pytest.approx(noise + scheme.cells.second_moment)
    if coding == "fixed" or name != "dq":  # whose error depends on the input
        own = 131_072 if lattice != "Z" and coding == "fixed" else 0
        assert_distortion(scheme, 20_000, own_draws=own)


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


@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0, 8.0])
def test_entropy_coding_saves_bits_on_gaussian_updates(rate):
    """Same cells, no overload, and fewer bits than the letters of a fixed rate take."""
    scheme = jopeq.scheme("sdq", rate=rate, coding="entropy")
    fixed = jopeq.scheme("sdq", rate=rate)
    assert scheme.cells == fixed.cells
    assert scheme.bits_per_entry < fixed.bits_per_entry == rate
    # a uniform dither makes the rate the entropy of a density: h(x + cell) − log2 Δ
    spread = 1 / 3
    lower = 0.5 * math.log2(2 * math.pi * math.e * spread**2) - math.log2(scheme.cells.step)
    assert scheme.bits_per_entry > lower - 0.01


def test_lattices_come_as_names_generators_or_lattices():
    assert SubtractiveDither(rate=2.0, lattice=Lattice("A2", step=3.0)).lattice == Lattice("A2")
    generator = [[1.0, 0.3], [0.0, 1.2]]
    for version in (generator, tuple(map(tuple, generator)), np.array(generator)):
        built = jopeq.scheme("sdq", rate=2.0, lattice=version)
        assert built.lattice == Lattice(generator=((1.0, 0.3), (0.0, 1.2)))
        assert built.spec == '["sdq",{"lattice":[[1.0,0.3],[0.0,1.2]],"rate":2.0}]'
    for wrong in (None, 5, [1.0, 2.0], [[1.0], [2.0, 3.0]], [["a"]], {}):
        with pytest.raises(ValueError, match="lattice must be a name or a 2×2 generator, got"):
            jopeq.scheme("sdq", rate=2.0, lattice=wrong)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, r"scheme 'sdq' needs rate \(bits per entry\)$"),
        ({"coding": "entropy"}, "needs rate .*, or step, for the size of the cells"),
        ({"rate": 2.0, "coding": "huffman"}, "coding must be 'fixed' or 'entropy', got 'huffman'"),
        ({"rate": 2.0, "lattice": "A3"}, "lattice must be one of Z, A2, D4, E8 or a 2×2 generator"),
        ({"rate": 2.0, "lattice": [[1, 2], [2, 4]]}, "independent columns"),
        ({"step": 0.1}, "step needs coding='entropy'"),
        ({"rate": 2.0, "levels": "even"}, "levels must be 'all' or 'odd', got 'even'"),
        ({"rate": 2.0, "levels": "odd", "coding": "entropy"}, "levels='odd' needs coding='fixed'"),
        ({"rate": 1.0, "levels": "odd"}, "three letters, rate of at least 1.585 .*raise rate"),
        ({"step": 0.1, "rate": 2.0, "coding": "entropy"}, "give either step, or rate and gamma"),
        ({"step": -0.1, "coding": "entropy"}, "step must be a positive number"),
        ({"step": 1e-320, "coding": "entropy"}, "step must be a positive number, from 1e-38"),
        ({"rate": 0.5}, r"at least 1 bits per entry \(two letters\).*raise rate"),
        ({"rate": 0.1, "lattice": "E8"}, "rate must be at least 0.125 bits per entry"),
        ({"rate": math.nan}, "rate must be a positive number"),
        ({"rate": 65.0}, "rate must be at most 64 bits per entry"),
        ({"rate": 33.0}, "letters must be 2…4294967296 on Z"),
        ({"rate": 4.0, "lattice": "E8"}, "lower rate, or use coding='entropy'"),
        ({"rate": 2.0, "gamma": 0.0}, "gamma must be a positive number"),
        ({"rate": 1.0, "gamma": 1e200, "lattice": "E8"}, r"gamma must be .* got 1e\+200"),
        ({"rate": 0.125, "lattice": "E8"}, "too few to cover the unit ball.*raise rate or give"),
    ],
)
def test_impossible_combinations_name_the_remedy(parameters, message):
    with pytest.raises(ValueError, match=message):
        jopeq.scheme("sdq", **parameters)


def by_quadrature(scheme):
    """E(decoded²) at x = 0 on Z, from the density of the noise, dither by dither."""
    step, letters = scheme.cells.step, scheme.codebook.letters
    points = (np.arange(letters) - (letters - 1) / 2) * step
    law = stats.laplace(scale=scheme.noise.scale)

    def at(dither):
        edges = np.concatenate(([-np.inf], points[:-1] + step / 2, [np.inf])) - dither
        return float(np.diff(law.cdf(edges)) @ (points - dither) ** 2)

    return integrate.quad(at, -step / 2, step / 2, limit=200)[0] / step


NOISY = [
    scheme
    for name in ("laplace+sdq", "jopeq")
    for epsilon in (0.5, 2.0, 4.0, 8.0)
    for rate in (1.0, 1.6, 2.0, 4.0)
    if (scheme := jopeq.scheme(name, epsilon=epsilon, rate=rate)).noise is not None
]


@pytest.mark.parametrize("scheme", NOISY, ids=lambda s: s.spec)
def test_the_sum_over_dithers_is_the_integral(scheme):
    assert scheme.distortion == pytest.approx(by_quadrature(scheme), rel=1e-4)


def test_samples_are_moved_into_the_ball_along_their_ray():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-1e300, 0.0]])
    with np.errstate(over="ignore"):
        inside, moved = into_unit_ball(rows[:3])
    assert moved == 1
    np.testing.assert_allclose(inside, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-11)
    assert np.linalg.norm(inside, axis=1).max() <= 1.0
    scalar, moved = into_unit_ball(np.array([[2.0], [-3.0], [1.0], [0.5]]))
    assert scalar.ravel().tolist() == [1.0, -1.0, 1.0, 0.5]
    assert moved == 2


@pytest.mark.parametrize("dimension", [2, 4, 8])
def test_no_rounding_leaves_the_ball(dimension):
    rows = np.random.default_rng(1).standard_normal((50_000, dimension)) * 10
    inside, _ = into_unit_ball(rows)
    assert np.linalg.norm(inside, axis=1).max() <= 1.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"clip": 1.0}, []),
        ({}, ["the update's norm travels in the clear"]),
        ({"center": True}, ["the update's norm and mean travel in the clear"]),
        ({"per": "tensor"}, ["every tensor's norm travels in the clear"]),
        ({"clip": 1.0, "rotate": True}, ["a sample is one of the rotated update"]),
    ],
)
def test_what_the_scale_gives_away_is_said(parameters, words):
    found = scaling_assumptions(jopeq.scheme("laplace", epsilon=4.0, **parameters))
    assert len(found) == len(words)
    assert all(sentence.startswith(start) for sentence, start in zip(found, words, strict=True))
