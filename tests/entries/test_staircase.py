"""``staircase``: its channel in exact integers, its error law, choices, rates, refusals."""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from jopeq import scheme
from jopeq.entries.staircase import Staircase
from jopeq.entries.staircase_noise import StaircaseLattice, StaircaseLine
from jopeq.lattice.codebook import unit_dither
from jopeq.lattice.lattices import Lattice
from jopeq.lattice.moves import moves
from jopeq.privacy.calibration import SAMPLER_END, TOO_NARROW
from jopeq.random.rational import exp_floor
from jopeq.random.streams import PrivateStream

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


def inputs():
    """A grid with both ends, their neighbours, zero and its neighbours."""
    grid = np.linspace(-1, 1, 41)
    near = [np.nextafter(1, 0), np.nextafter(-1, 0), 5e-324, -5e-324, 0.0, 1 / 3, -1 / 3]
    return np.concatenate((grid, np.nextafter(grid, 0), near))


@lru_cache(maxsize=4096)
def row(core, cell):
    """Words of 2⁶⁴ that give each output from this cell: counted, not computed in floats."""
    _, _, first, last = core.window
    counts = core.noise.counts
    outputs = [0] * (last - first + 1)
    for k in range(-core.noise.reach, core.noise.reach + 1):
        outputs[min(max(cell + k, first), last) - first] += counts[abs(k)]
    assert sum(outputs) == 2**64
    return tuple(outputs)


def largest_ratio(core, words):
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


def test_no_output_is_more_than_e_to_the_epsilon_times_as_likely(dither_words):
    """The privacy proof by test, in exact integers, for dithers at and around every extreme."""
    for epsilon, *size in CHANNELS:
        core = StaircaseLine(epsilon, *size)
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
    assert core.step == 2 / moves


def total_error(core, x, label, private, dither_words, rows=60_000):
    words = dither_words(label, rows, 1)
    samples = np.full((rows, 1), x)
    outputs, _ = core.encode(samples, words, private(label), 0)
    return core.decode(outputs, words)[:, 0] - x


def law_of_error(core):
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
    assert scheme("staircase", epsilon=epsilon).moves == moves  # of least error:
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


CORES = [
    StaircaseLattice(2.0, "A2", 3),
    StaircaseLattice(6.0, "A2", 12),
    StaircaseLattice(4.0, "D4", 7),
    StaircaseLattice(6.0, "E8", 10),
]


def in_ball(label, rows, size):
    generator = np.random.default_rng(list(label.encode()))
    points = generator.normal(size=(rows, size))
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points * np.maximum(generator.random((rows, 1)), generator.random((rows, 1)) < 0.7)


@pytest.mark.parametrize("core", CORES, ids=str)
def test_no_output_on_a_lattice_is_more_than_e_to_the_epsilon_times_as_likely(core, dither_words):
    """log P(o|x, d) − log P(o|x′, d) = a(‖o − λ′‖ − ‖o − λ‖) for real λ, λ′ and any output o."""
    rows, size = 60_000, core.dimension
    dither = core.cells.dither(dither_words("ratio", rows, size))
    x, y = in_ball("one", rows, size), in_ball("two", rows, size)
    y[::2] = -x[::2]
    here, there = core.cells.nearest(x + dither), core.cells.nearest(y + dither)
    generator = np.random.default_rng(8)
    outputs = generator.integers(-6, 7, size=(rows, size))
    outputs[::3], outputs[1::3] = here[::3], there[1::3] * 2 - here[1::3]
    unit, decay = core.cells.scaled(1.0), core.noise.decay

    def log_chance(cell):
        return -decay * np.linalg.norm(unit.points(outputs - cell), axis=1)

    ratio = log_chance(here) - log_chance(there)
    assert ratio.max() <= core.epsilon * (1 + 1e-9)
    assert ratio.max() >= 0.5 * core.epsilon
    move = moves(core.name)[core.moves - 1]
    assert decay * move.reach == pytest.approx(core.epsilon)
    assert core.cells.step == move.step


@pytest.mark.parametrize("epsilon", [12.0, 30.0, 50.0, 60.0])
def test_no_table_rules_an_input_out(epsilon, dither_words):
    """The integers of A2 from x and −x: Σ max(0, P(o|x) − e^ε·P(o|−x)) is below 2⁻⁷⁰, exactly."""
    core = Staircase(epsilon=epsilon, lattice="A2").core
    assert core.proven_epsilon == epsilon
    listed = core.noise.listed
    ends = [0, *(int(h) << 64 | int(w) for h, w in zip(listed.high, listed.low, strict=True))]
    counts = [b - a for a, b in pairwise([*ends, 1 << 128])]
    table = dict(zip(map(tuple, listed.coordinates.tolist()), counts, strict=True))
    angles = np.random.default_rng(4).uniform(0, 2 * math.pi, 12)
    x = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    dither = core.cells.dither(dither_words("tables", len(x), 2))
    factor = exp_floor(epsilon)
    pairs = zip(core.cells.nearest(x + dither), core.cells.nearest(-x + dither), strict=True)
    for here, there in pairs:
        move = tuple((here - there).tolist())
        assert any(move)
        excess = 0
        for k, count in table.items():
            other = table.get((k[0] + move[0], k[1] + move[1]), 0)
            excess += max(0, factor.denominator * count - factor.numerator * other)
        assert excess < factor.denominator << (128 - 70)


class Largest(PrivateStream):
    """The largest exponentials of the first proposals' radius; directions as they come."""

    def words64(self, *, lane, start, count):
        if lane & 3 == 1:
            return np.zeros(count, dtype=np.uint64)
        return super().words64(lane=lane, start=start, count=count)


@pytest.mark.parametrize("epsilon", [4.0, 30.0, 50.0, 60.0])
@pytest.mark.parametrize("name", ["D4", "E8"])
def test_rejection_reaches_across_every_move(name, epsilon):
    """One exponential of a proposal alone reaches what 2⁻⁷⁰ of the draws and a move come to."""
    core = Staircase(epsilon=epsilon, lattice=name).core
    assert core.proven_epsilon == epsilon
    assert core.assumptions == (SAMPLER_END,)
    noise, size = core.noise, core.dimension
    proposed = noise._propose(Largest(), 0, 4, np.arange(4), 0)
    end = np.linalg.norm(proposed, axis=1) * noise.decay / size - math.log(2)
    slack = 2 * noise.decay * Lattice(name).covering_radius
    assert (end >= stats.gamma(size).isf(2.0**-70 / math.exp(slack)) + epsilon + slack).all()
    assert noise.escape < 2.0**-70


@pytest.mark.parametrize("name", ["A2", "D4", "E8"])
def test_whatever_can_be_built_is_covered_or_promises_nothing(name):
    built = 0
    for epsilon in np.geomspace(1e-3, 400.0, 12).tolist():
        for chosen in range(1, len(moves(name)) + 1, 7):
            core = StaircaseLattice(epsilon, name, chosen)
            if core.noise.is_drawable:
                built += 1
                assert core.noise.escape < 2.0**-70
                assert core.proven_epsilon == pytest.approx(epsilon, rel=2e-5)
    assert built > 20
    narrow = StaircaseLattice(150.0, name, 1)
    if name != "A2":  # whose list is as long as it must be
        assert narrow.proven_epsilon == math.inf
        assert narrow.assumptions == (TOO_NARROW,)


@pytest.mark.parametrize("core", CORES, ids=str)
def test_the_error_on_a_lattice_does_not_depend_on_the_input(
    core, private, dither_words, assert_mean, assert_same_law
):
    rows, size = 12_000, core.dimension
    first = np.eye(size)[0]
    noise = core.cells.step**2 * core.noise.variance
    assert core.centre_distortion == pytest.approx(core.cells.second_moment + noise)
    lengths = []
    for i, x in enumerate((0 * first, first, -0.6 * first, np.full(size, size**-0.5))):
        words = dither_words(f"law {i}", rows, size)
        outputs, cut = core.encode(np.tile(x, (rows, 1)), words, private(f"law {i}"), 0)
        assert (outputs.shape, cut) == ((rows, size), 0)
        part, _ = core.encode(np.tile(x, (30, 1)), words[40:70], private(f"law {i}"), 40)
        np.testing.assert_array_equal(part, outputs[40:70])  # random access
        error = core.decode(outputs, words) - x
        assert_mean(error, 0.0)
        assert_mean(np.square(error).mean(axis=1), core.centre_distortion)
        lengths.append(np.linalg.norm(error, axis=1))
        assert_same_law(lengths[0], lengths[-1])
        outer = (error[:, :, None] * error[:, None, :]).reshape(rows, -1)
        assert_mean(outer, core.centre_distortion * np.eye(size).ravel())


@pytest.mark.parametrize(
    ("name", "moves", "letters"), [("A2", 3, 16), ("A2", 2, 7), ("D4", 4, 256), ("E8", 3, 256)]
)
def test_fixed_rate_codebooks(name, moves, letters, private, dither_words, assert_mean):
    core = StaircaseLattice(4.0, name, moves, letters)
    rows, size = 20_000, core.dimension
    words = dither_words("letters", rows, size)
    outputs, cut = core.encode(np.zeros((rows, size)), words, private("letters"), 0)
    assert outputs.min() >= 0
    assert outputs.max() < letters
    assert 0 < cut < rows
    free = StaircaseLattice(4.0, name, moves)
    assert core.proven_epsilon == free.proven_epsilon
    squares = np.square(core.decode(outputs, words)).mean(axis=1)
    simulated_error = squares.std() / math.sqrt(16 * 8192)  # of the 131,072 draws it is made of
    measured_error = squares.std() / math.sqrt(rows)
    gap = abs(squares.mean() - core.centre_distortion)
    assert gap < 5 * math.hypot(measured_error, simulated_error)
    assert core.centre_distortion < free.centre_distortion
    assert_mean(core.decode(outputs, words), 0.0)


@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 8.0])
def test_the_guarantee(epsilon, lattice):
    built = scheme("staircase", epsilon=epsilon, lattice=lattice, moves=4, clip=1.0)
    guarantee = built.guarantee
    assert guarantee.nominal == epsilon
    assert (guarantee.unit, guarantee.adversary) == ("sample", "server")
    assert guarantee.sample_size == built.dimension
    assert len(guarantee.assumptions) == (built.dimension > 1)  # the sampler ends
    if lattice == "Z":
        assert guarantee.epsilon <= epsilon
        assert guarantee.epsilon == pytest.approx(epsilon, abs=1e-6)
        assert guarantee.is_exact
    else:
        assert guarantee.epsilon == epsilon  # the noise is drawn for a little less
        assert not guarantee.is_exact
    assert "norm" in scheme("staircase", epsilon=4.0).guarantee.assumptions[0]


@pytest.mark.parametrize("rate", [1.0, 1.6, 2.0, 3.0, 8.0])
def test_a_fixed_rate_keeps_to_its_letters_and_its_epsilon(rate, private):
    built = scheme("staircase", epsilon=3.0, rate=rate, clip=1.0)
    free = scheme("staircase", epsilon=3.0, moves=built.moves)
    assert built.guarantee.epsilon == free.guarantee.epsilon <= 3.0
    update, seed = np.linspace(-1, 1, 30_000), bytes(32)
    payload, counted = built.encode(update, seed=seed, noise=private("rate"), counts=True)
    assert counted.bits_per_entry <= rate + 64 / len(update)  # the last word may be half empty
    assert counted.clipped == 0
    assert (counted.overloaded > 0) == (rate < 8)
    limit = built.core.step * math.floor(2**rate) / 2
    assert np.abs(built.decode(payload)).max() <= limit + 1e-6


@pytest.mark.parametrize("parameters", [{}, {"rate": 4.0}, {"rate": 64.0, "coding": "entropy"}])
def test_moves_are_chosen_whose_noise_can_be_drawn(parameters):
    """A small ε takes moves whose table is short enough, a large one those that are not rare."""
    built = scheme("staircase", epsilon=0.001, **parameters)
    assert built.guarantee.epsilon <= 0.001
    again = scheme("staircase", epsilon=0.001, moves=1, **parameters)
    assert built.distortion <= again.distortion
    # coarser cells, moves=1, would suit 8 letters too, but e⁻²⁴ is too rare to wait for
    large = {"epsilon": 24.0, "lattice": "A2"} | ({"rate": 1.5} if parameters else {})
    assert scheme("staircase", **large, coding=parameters.get("coding")).moves > 1
