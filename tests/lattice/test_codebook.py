"""Codebooks against brute force: how many letters, which points, which one is nearest."""

import itertools
import math
import pickle
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq.lattice import codebook as module
from jopeq.lattice import reduced
from jopeq.lattice.codebook import codebook, letters_for_rate, step_for_support, step_for_unit_ball
from jopeq.lattice.lattices import NAMES, Lattice

LATTICES = {name: Lattice(name, step=0.3) for name in NAMES} | {
    "skewed": Lattice(generator=((1.0, 0.7), (0.0, 1.0)), step=0.4),
    "square": Lattice(generator=((1.0, 0.0), (0.0, 1.0))),
    "tiny": Lattice(generator=((3e-6, 1e-6), (0.0, 2e-6))),
    "huge": Lattice(generator=((4e9, 1e9), (0.0, 3e9))),
    "body-centred": Lattice(generator=((-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0))),
}
LETTERS = (2, 3, 4, 5, 7, 8, 9, 16, 25, 64, 100, 255, 256)


def of(lattices):
    return pytest.mark.parametrize("lattice", lattices.values(), ids=lattices.keys())


@settings(max_examples=300)
@given(letters=st.integers(2, 1 << 20), dimension=st.sampled_from([1, 2, 4, 8]))
def test_the_rate_of_whole_letters_gives_them_back(letters, dimension):
    """log2(N)/L is rounded: neither lose a letter to that nor gain one that costs more bits."""
    rate = math.log2(letters) / dimension
    assert letters_for_rate(rate, dimension) == letters
    if letters > 2:
        assert letters_for_rate(rate * (1 - 1e-9), dimension) == letters - 1


@settings(max_examples=200)
@given(rate=st.floats(1.0, 20.0), dimension=st.sampled_from([1, 2]))
def test_no_rate_is_exceeded(rate, dimension):
    letters = letters_for_rate(rate, dimension)
    assert math.log2(letters) <= rate * dimension + 2e-12
    assert math.log2(letters + 1) > rate * dimension - 1e-12
    assert letters_for_rate(32, 1) == 1 << 32


def test_impossible_rates_and_letters_name_the_remedy():
    flat = [(rate, 1) for rate in (0.0, -1.0, math.nan, math.inf, None, "2", 0.9)]
    for rate, dimension in (*flat, (0.4, 2), (9, 8)):
        with pytest.raises(ValueError, match="rate"):
            letters_for_rate(rate, dimension)
    most = {"Z": module.MAX_SCALAR_LETTERS} | dict.fromkeys(NAMES[1:], module.MAX_LATTICE_LETTERS)
    for name, largest in most.items():
        for letters in (largest + 1, 1, 0):
            with pytest.raises(ValueError, match="letters"):
                codebook(Lattice(name), letters)
    assert codebook(Lattice("Z"), module.MAX_SCALAR_LETTERS).letters == 1 << 32
    with pytest.raises(ValueError, match="rate or give gamma"):
        step_for_unit_ball(Lattice("E8"), 2)
    for gamma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="gamma"):
            step_for_support(Lattice("Z"), 4, gamma)


def test_points_are_counted_before_they_are_listed():
    for lattice, radius in ((Lattice("Z"), 3e6), (Lattice("A2"), 1500.0), (Lattice("E8"), 6.0)):
        tracemalloc.start()
        with pytest.raises(ValueError, match="points to list within"):
            reduced.points_within(lattice.basis, 0 * lattice.basis[0], radius)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * reduced.MAX_POINTS * lattice.dimension * 8


def all_words(codes):
    return codes.points(np.arange(codes.letters))


@of(LATTICES)
def test_letters_are_distinct_symmetric_and_a_shifted_lattice(lattice):
    for letters in LETTERS:
        words = all_words(codebook(lattice, letters))
        assert words.shape == (letters, lattice.dimension)
        unit = words / lattice.covering_radius
        keys = np.rint(unit * 1e6).astype(np.int64)
        assert len(np.unique(keys, axis=0)) == letters
        assert {tuple(k) for k in keys} == {tuple(-k) for k in keys}
        twice = (words - words[0]) @ np.linalg.inv(lattice.basis)  # lattice points
        assert np.abs(twice - np.rint(twice)).max() < 1e-6
        is_centred = (np.abs(unit).sum(axis=1) < 1e-9).any()
        assert is_centred == bool(letters % 2)


@cache
def e8_points():
    """All points of E8 of norm up to √8."""
    points = np.concatenate([np.indices((6,) * 8).reshape(8, -1).T - at for at in (3.0, 2.5)])
    points = points[((points**2).sum(axis=1) <= 8) & (points.sum(axis=1) % 2 == 0)]
    assert len(points) == 1 + 240 + 2160 + 6720 + 17520
    return points


def brute_force_energies(lattice, shift, count):
    """The ``count`` lowest |p|² of the lattice plus shift, from its own definition."""
    if lattice.name == "E8":
        points = e8_points()
    elif lattice.name == "D4":
        whole = np.array(list(itertools.product(np.arange(-7, 8.0), repeat=4)))
        points = whole[whole.sum(axis=1) % 2 == 0]
    else:
        reach = {2: 40, 3: 12}[lattice.dimension]
        axis = np.arange(-reach, reach + 1)
        whole = np.array(list(itertools.product(axis, repeat=lattice.dimension)))
        points = whole @ lattice.scale(1.0).basis
    return np.sort(((points + shift) ** 2).sum(axis=1))[:count]


@of({k: v for k, v in LATTICES.items() if k != "Z"})
def test_letters_have_the_lowest_energy_there_is(lattice):
    """Among all shifts by half a lattice vector on offer, as brute force adds them up."""
    unit = lattice.scale(1.0)
    halves = [brute_force_energies(lattice, s, 256) for s in unit.points(lattice.geometry.halves)]
    unshifted = [brute_force_energies(lattice, np.zeros(unit.dimension), 256)]
    for letters in (n for n in LETTERS if n <= 256):
        codes = codebook(lattice, letters)
        found = (all_words(codes) ** 2).sum(axis=1) / lattice.step**2
        assert (np.diff(found) >= -1e-9 * found.max()).all()  # listed by energy
        found = np.sort(found)
        candidates = [energies[:letters] for energies in (unshifted if letters % 2 else halves)]
        best = min(candidates, key=np.sum)
        assert found == pytest.approx(best, rel=1e-9, abs=1e-12 * best.max())


@pytest.mark.parametrize("name", ["A2", "D4", "E8"])
def test_no_other_half_vector_would_do_better(name):
    """The shifts on offer stand for all 2^L − 1 classes of half vectors, by symmetry."""
    lattice = Lattice(name)
    size = lattice.dimension
    found = {n: (all_words(codebook(lattice, n)) ** 2).sum() for n in (2, 16, 100)}
    corners = np.array(list(itertools.product((0.0, 0.5), repeat=size)))[1:]
    for corner in corners:
        # the class of the half vector, moved near the origin, so that few points are enough
        shift = lattice.points(corner)
        shift = shift - lattice.points(lattice.nearest(shift[None]))[0]
        energies = brute_force_energies(lattice, shift, max(found))
        for letters, energy in found.items():
            assert energy <= energies[:letters].sum() * (1 + 1e-9)


@of(LATTICES)
def test_quantize_finds_the_nearest_codeword(lattice):
    for letters in (2, 3, 5, 16, 64, 255):
        codes = codebook(lattice, letters)
        words = all_words(codes)
        rng = np.random.default_rng(1)
        rows = 600
        directions = rng.normal(size=(rows, lattice.dimension))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        radii = rng.uniform(0, 2.5, (rows, 1)) * codes.gamma
        radii[::60] = 1000.0 * codes.gamma  # far outside
        x = directions * radii
        x[1::3] = words[rng.integers(letters, size=len(x[1::3]))]
        x[2::3] = x[1::3] + 0.5 * lattice.basis[0] * (1 + 1e-9 * rng.normal(size=(len(x[2::3]), 1)))
        indices, overloaded = codes.quantize(x)
        gaps = np.linalg.norm(x[:, None, :] - words, axis=2)
        found = gaps[np.arange(rows), indices]
        assert (found <= gaps.min(axis=1) + 1e-12 * np.abs(x).max()).all()
        # overloaded: some point of the infinite shifted lattice is nearer than every codeword
        shift = words[0]
        lattice_point = lattice.points(lattice.nearest(x - shift)) + shift
        nearest = np.linalg.norm(x - lattice_point, axis=1)
        slack = 1e-9 * lattice.covering_radius
        assert (found[~overloaded] <= nearest[~overloaded] + slack).all()
        clear = found > nearest + slack
        assert overloaded[clear].all()
        # flagged without a nearer point: only on a face shared by a codeword and an outsider
        ties = overloaded & ~clear
        away = (x - lattice_point)[ties, None, :] - neighbours(lattice)
        nearest_two = np.sort(np.linalg.norm(away, axis=2))[:, :2]
        assert (np.ptp(nearest_two, axis=1) < 10 * slack).all()
        assert overloaded[::60].all()


def neighbours(lattice):
    few = np.array(list(itertools.product((-1, 0, 1), repeat=lattice.dimension)))
    if lattice.name == "E8":
        points = few.astype(float)
        points = np.concatenate((points, points[(points != 0).all(axis=1)] / 2))
        points = points[(points.sum(axis=1) % 2 == 0) & ((points**2).sum(axis=1) <= 4)]
        return points * lattice.step
    return lattice.points(few)


@of(LATTICES)
def test_index_and_point_name_each_other(lattice):
    large = {"A2": 4096, "D4": 4096, "E8": 6561}.get(lattice.name, 256)
    for letters in (2, 3, 9, 64, 100, large):
        codes = codebook(lattice, letters)
        words = all_words(codes)
        away = np.random.default_rng(3).uniform(-0.3, 0.3, words.shape) * lattice.covering_radius
        if letters == large:
            assert np.abs(words.sum(axis=0)).max() < 1e-9 * np.abs(words).max()
            words = words + away / math.sqrt(lattice.dimension) * (lattice.generator is None)
        indices, overloaded = codes.quantize(words)
        assert np.array_equal(indices, np.arange(letters))
        assert not overloaded.any()
    indices, overloaded = codes.quantize(np.zeros((0, lattice.dimension)))
    assert indices.shape == overloaded.shape == (0,)
    assert pickle.loads(pickle.dumps(codes)) == codes
    kind = module.ScalarCodebook if lattice.name == "Z" else module.LatticeCodebook
    assert isinstance(codes, kind)


def test_z_is_the_grid_and_the_interval_of_the_paper():
    """[−γ, γ) with 2γ = N·Δ, closed on the left as floor(x + ½) has it."""
    codes = codebook(Lattice("Z", step=0.5), 6)
    x = np.array([-1.5001, -1.5, -1.4999, 0.0, 1.4999, 1.5, 1.5001, 1e9])[:, None]
    indices, overloaded = codes.quantize(x)
    assert codes.gamma == 1.5
    assert indices.tolist() == [0, 0, 0, 3, 5, 5, 5, 5]
    assert overloaded.tolist() == [True, False, False, False, False, True, True, True]
    for letters in (2, 3, 4, 5, 255, 256, 65536):
        expected = (np.arange(letters) - (letters - 1) / 2) * 0.25
        words = all_words(codebook(Lattice("Z", step=0.25), letters))
        assert np.array_equal(words[:, 0], expected)
        assert step_for_support(Lattice("Z"), letters, 1.25) == pytest.approx(2.5 / letters, rel=0)
        assert step_for_unit_ball(Lattice("Z"), letters) == pytest.approx(2 / (letters - 1), rel=0)


@of(LATTICES)
def test_the_cells_fill_the_ball_of_radius_gamma(lattice):
    for letters in (2, 3, 16, 100):
        for gamma in (0.3, 1.0, 4.5):
            step = step_for_support(lattice, letters, gamma)
            codes = codebook(lattice.scale(step), letters)
            assert codes.gamma == pytest.approx(gamma, rel=1e-12)
            volume = letters * codes.lattice.cell_volume
            assert volume == pytest.approx(module.ball_volume(lattice.dimension, gamma), rel=1e-9)
            assert step_for_support(lattice.scale(7.0), letters, gamma) == pytest.approx(step)


@pytest.mark.parametrize("letters", [2, 3, 4, 5, 6, 7, 8, 16, 31, 255, 256, 1000, 65535, 65536])
def test_dithered_inputs_of_the_interval_never_overload(letters):
    """All 65536 dithers at both ends and in between: exact, not statistical."""
    lattice = Lattice("Z").scale(step_for_unit_ball(Lattice("Z"), letters))
    codes = codebook(lattice, letters)
    dither = lattice.dither(np.arange(65536, dtype=np.uint16)[:, None])
    for x in (-1.0, 1.0, np.nextafter(1, 0), np.nextafter(-1, 0), 0.0, 1 / 3, -0.99999):
        indices, overloaded = codes.quantize(x + dither)
        assert not overloaded.any()
        error = codes.points(indices) - dither - x
        assert np.abs(error).max() <= lattice.step / 2 * (1 + 1e-9)
    # the step is the smallest that does: a little beyond the ball it overloads
    assert codes.quantize(1.0 + 1e-4 * lattice.step + dither)[1].any()


def test_scalar_dither_is_the_signed_word_and_a_half():
    codes = codebook(Lattice("Z", 0.75), 4)
    words = np.array([[0], [1], [32767], [32768], [65535]], dtype="<u2")
    expected = 0.75 * (np.array([0, 1, 32767, -32768, -1]) + 0.5) / 65536
    assert np.array_equal(codes.dither(words)[:, 0], expected)
