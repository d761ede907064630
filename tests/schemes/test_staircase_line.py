"""The scalar staircase: its channel in exact integers, its error law, and why ties matter."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from jopeq.lattice.lattices import unit_dither
from jopeq.random.rational import exp_floor
from jopeq.schemes.staircase import StaircaseLine, gaussian_nodes
from jopeq.wire.coders import IntegerCoder, LetterCoder

ALL_WORDS = np.arange(1 << 16, dtype=np.uint16)
EXTREME_WORDS = np.array([0, 1, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF], dtype=np.uint16)
TABLE = [(1, 1, 7.699), (2, 1, 1.782), (3, 1, 0.774), (4, 2, 0.445), (6, 2, 0.194), (8, 3, 0.108)]
CHANNELS = [
    (epsilon, moves, letters)
    for epsilon in (0.3, 1.0, 2.7, 4.0, 9.0, 30.0)
    for moves in (1, 2, 3, 7)
    for letters in (None, 2, 3, 4, 8, 9, 256)
]


class ChosenWords:
    """A private stream that says what it is told to."""

    def __init__(self, words):
        self._words = np.asarray(words, dtype=np.uint64)

    def words64(self, *, lane, start, count):
        return self._words[start : start + count]


def inputs() -> np.ndarray:
    """A grid with both ends, their neighbours, zero and its neighbours."""
    grid = np.linspace(-1, 1, 41)
    near = [np.nextafter(1, 0), np.nextafter(-1, 0), 5e-324, -5e-324, 0.0, 1 / 3, -1 / 3]
    return np.concatenate((grid, np.nextafter(grid, 0), near))


@lru_cache(maxsize=4096)
def row(core: StaircaseLine, cell: int) -> tuple[int, ...]:
    """Words of 2⁶⁴ that give each output from this cell: counted, not computed in floats."""
    _, _, first, last = core.window
    counts = core.noise.counts
    outputs = [0] * (last - first + 1)
    for k in range(-core.noise.reach, core.noise.reach + 1):
        outputs[min(max(cell + k, first), last) - first] += counts[abs(k)]
    assert sum(outputs) == 2**64
    return tuple(outputs)


def largest_ratio(core: StaircaseLine, words: np.ndarray) -> Fraction:
    """max P(o|x, d)/P(o|x′, d) over outputs, pairs of inputs and these dithers."""
    x = inputs()
    worst = Fraction(1)
    reached = set()
    for dither in unit_dither(words):
        cells = core.levels_of(x, np.full(len(x), dither))
        reached.add(tuple(sorted(set(cells.tolist()))))
    for cells in reached:
        for column in zip(*(row(core, cell) for cell in cells), strict=True):
            assert min(column) > 0
            worst = max(worst, Fraction(max(column), min(column)))
    return worst


@pytest.mark.parametrize(("epsilon", "moves", "letters"), CHANNELS)
def test_no_output_is_more_than_e_to_the_epsilon_times_as_likely(
    epsilon, moves, letters, dither_words
):
    """The privacy proof by test, in exact integers, for dithers at and around every extreme."""
    core = StaircaseLine(epsilon, moves, letters)
    words = np.concatenate((EXTREME_WORDS, dither_words("channel", 24, 1)[:, 0]))
    ratio = largest_ratio(core, words)
    assert ratio <= exp_floor(epsilon)
    claimed = core.proven_epsilon
    assert claimed <= epsilon
    assert ratio <= exp_floor(math.nextafter(claimed, math.inf))
    if core.is_exact:
        assert math.log(ratio) == pytest.approx(claimed, rel=1e-9)


def test_epsilon_is_exact_only_where_it_is_attained():
    """At ε = 40 the last words of 2⁶⁴ show: two letters are better than what is claimed."""
    core = StaircaseLine(40.0, 1, 2)
    assert not core.is_exact
    assert math.log(largest_ratio(core, EXTREME_WORDS)) < core.proven_epsilon - 4.0
    assert StaircaseLine(4.0, 2, 8).is_exact


@pytest.mark.parametrize("letters", [None, 2, 5, 8, 1 << 20, 1 << 32])
@pytest.mark.parametrize("moves", [1, 2, 3, 5, 17, 64])
def test_inputs_move_the_cell_by_at_most_m_whatever_the_dither(moves, letters):
    core = StaircaseLine(4.0, moves, letters)
    dither = unit_dither(ALL_WORDS)
    ends = [core.levels_of(np.full(len(dither), x), dither) for x in (-1.0, 1.0)]
    assert (ends[1] - ends[0] == moves).all()
    lowest, highest, _, _ = core.window
    assert (ends[0].min(), ends[1].max()) == (lowest, highest)
    for x in (np.nextafter(-1, 0), -0.3, 0.0, 2**-30, 0.77, np.nextafter(1, 0)):
        between = core.levels_of(np.full(len(dither), x), dither)
        assert (ends[0] <= between).all()
        assert (between <= ends[1]).all()


def test_half_to_even_would_move_the_cell_by_one_more():
    """Why ties round with floor(x + ½), and why dithers are odd multiples of 2⁻¹⁷."""
    moves = 3
    ends = np.array([-1.0, 1.0]) * moves / 2
    tie = 0.0  # a dither that even multiples of 2⁻¹⁷ could take
    assert np.ptp(np.rint(ends + tie)) == moves + 1
    assert np.ptp(np.floor(ends + tie + 0.5)) == moves
    dither = unit_dither(ALL_WORDS)
    odd = dither * 2**17
    assert (odd == np.rint(odd)).all()
    assert (np.mod(odd, 2) == 1).all()
    assert np.abs(dither).max() == 0.5 - 2.0**-17
    # one cell more costs ε/m more, exactly
    noise = StaircaseLine(4.0, moves).noise
    ratio = Fraction(noise.counts[0], noise.counts[moves + 1])
    assert math.log(ratio) == pytest.approx(4.0 * (moves + 1) / moves, abs=1e-6)


@pytest.mark.parametrize("letters", [None, 5])
def test_ties_inside_all_round_the_same_way(letters):
    """x and the dither can still meet a tie inside: all go up, none to the even neighbour."""
    core = StaircaseLine(4.0, 8, letters)
    ties, dither = np.arange(-2.5, 3.0), np.full(6, 2.0**-17)
    x = (ties - dither) / 4
    cells = core.levels_of(x, dither) - math.floor(core.centre)
    np.testing.assert_array_equal(cells, ties + 0.5)
    below = core.levels_of(x - 1e-12, dither) - math.floor(core.centre)
    np.testing.assert_array_equal(below, ties - 0.5)


@pytest.mark.parametrize(("moves", "letters"), [(1, None), (2, None), (3, 4), (2, 3), (3, 8)])
def test_encode_is_the_clamped_sum_and_decode_undoes_it(moves, letters, dither_words):
    core = StaircaseLine(3.0, moves, letters)
    x = np.repeat(inputs(), 9)
    words = dither_words("encode", len(x), 1)
    k = np.tile(np.array([-1000, -2, -1, 0, 0, 0, 1, 2, 1000]), len(inputs()))
    k = np.clip(k, -core.noise.reach, core.noise.reach)
    first_words = np.append(np.uint64(0), core.noise.thresholds)
    private = ChosenWords(first_words[k + core.noise.reach])
    outputs, cut = core.encode(x[:, None], words, private, 0)
    _, _, first, last = core.window
    cells = core.levels_of(x, unit_dither(words[:, 0]))
    np.testing.assert_array_equal(outputs.ravel(), np.clip(cells + k, first, last))
    outside = np.count_nonzero((cells + k < first) | (cells + k > last))
    assert cut == (0 if letters is None else outside)
    if letters is not None:
        assert outputs.min() >= 0
        assert outputs.max() < letters
    decoded = core.decode(outputs, words)[:, 0]
    kept = (outputs.ravel() == cells + k) & (k == 0)
    assert kept.any()
    assert np.abs(decoded - x)[kept].max() <= core.step / 2 + 1e-12
    expected = isinstance(core.coder, IntegerCoder if letters is None else LetterCoder)
    assert (core.dimension, core.step, expected) == (1, 2 / moves, True)


def total_error(core: StaircaseLine, x: float, label: str, private, dither_words, rows=60_000):
    words = dither_words(label, rows, 1)
    samples = np.full((rows, 1), x)
    outputs, _ = core.encode(samples, words, private(label), 0)
    return core.decode(outputs, words)[:, 0] - x


def law_of_error(core: StaircaseLine):
    """Distribution function of uniform (−Δ/2, Δ/2) plus Δ·k."""
    k = np.arange(-core.noise.reach, core.noise.reach + 1)

    def cdf(t):
        places = np.clip(t[:, None] / core.step - k + 0.5, 0, 1)
        return places @ core.noise.chances

    return cdf


@pytest.mark.parametrize(("epsilon", "moves"), [(1.0, 1), (4.0, 2), (8.0, 3)])
def test_the_error_does_not_depend_on_the_input(
    epsilon, moves, private, dither_words, assert_follows, assert_same_law, assert_mean
):
    core = StaircaseLine(epsilon, moves)
    errors = [
        total_error(core, x, f"error at {x}", private, dither_words, 20_000)
        for x in (-1.0, -0.37, 0.0, 0.5, 1.0)
    ]
    for error in errors:
        assert_follows(error, law_of_error(core))
        assert_same_law(error, errors[2])
        assert_mean(error, 0.0)


@pytest.mark.parametrize(("epsilon", "moves", "variance"), TABLE)
def test_the_table_of_the_design(epsilon, moves, variance, private, dither_words, assert_mean):
    core = StaircaseLine(float(epsilon), moves)
    r = math.exp(-epsilon / moves)
    closed = core.step**2 * (1 / 12 + 2 * r / (1 - r) ** 2)
    assert closed == pytest.approx(variance, abs=6e-4)
    assert core.distortion(0.0) == pytest.approx(closed, rel=1e-12)
    assert core.distortion(0.9) == core.distortion(0.0)
    plenty = StaircaseLine(float(epsilon), moves, 1 << 12)  # letters that are never short
    assert plenty.distortion(0.9) == pytest.approx(closed, rel=1e-3)
    assert closed < 8 / epsilon**2
    error = total_error(core, 0.4, f"table {epsilon}", private, dither_words, 400_000)
    assert_mean(error**2, closed)
    for other in {*range(1, 20)} - {moves}:
        assert StaircaseLine(float(epsilon), other).distortion(0.0) > closed * 1.001


@pytest.mark.parametrize(("moves", "letters"), [(1, 2), (2, 3), (3, 4), (2, 8)])
def test_clamping_pulls_inwards_and_costs_no_privacy(
    moves, letters, private, dither_words, assert_mean
):
    core, free = StaircaseLine(2.0, moves, letters), StaircaseLine(2.0, moves)
    assert core.proven_epsilon == free.proven_epsilon
    assert core.bias(1.0) < -0.01
    assert core.bias(-1.0) > 0.01
    assert core.bias(0.0) == pytest.approx(0.0, abs=1e-12)
    assert abs(free.bias(1.0)) < 1e-9
    assert core.distortion(0.0) < free.distortion(0.0)
    for x in (-1.0, 0.0, 0.7):
        error = total_error(core, x, f"clamped {x}", private, dither_words)
        assert_mean(error, core.bias(x))
        # 64 midpoints stand for the dither, to about 1/64² of Δ²
        assert abs((error**2).mean() - core.distortion(x)) <= (
            5 * (error**2).std() / math.sqrt(len(error)) + core.step**2 / 4096
        )


def test_gaussian_nodes_have_the_moments_of_a_clipped_gaussian():
    nodes, weights = gaussian_nodes(1 / 3)
    assert weights.sum() == pytest.approx(1)
    assert weights @ nodes == pytest.approx(0, abs=1e-15)
    draws = np.clip(np.random.default_rng(1).normal(size=10**6) / 3, -1, 1)
    assert weights @ nodes**2 == pytest.approx(np.mean(draws**2), rel=0.01)
