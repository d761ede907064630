"""The staircase on A2, D4 and E8: the ratio bound, the error law, and fixed-rate codebooks."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from jopeq.lattice.lattices import Lattice
from jopeq.lattice.moves import moves
from jopeq.privacy.calibration import SAMPLER_END, TOO_NARROW
from jopeq.random.rational import exp_floor
from jopeq.random.streams import PrivateStream
from jopeq.schemes.staircase import Staircase, StaircaseLattice
from jopeq.wire.coders import IntegerCoder, LetterCoder

CORES = [
    StaircaseLattice(2.0, "A2", 3),
    StaircaseLattice(6.0, "A2", 12),
    StaircaseLattice(4.0, "D4", 7),
    StaircaseLattice(6.0, "E8", 10),
]


def in_ball(label: str, rows: int, size: int) -> np.ndarray:
    generator = np.random.default_rng(list(label.encode()))
    points = generator.normal(size=(rows, size))
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points * np.maximum(generator.random((rows, 1)), generator.random((rows, 1)) < 0.7)


@pytest.mark.parametrize("core", CORES, ids=str)
def test_no_output_is_more_than_e_to_the_epsilon_times_as_likely(core, dither_words):
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
    for epsilon in np.geomspace(1e-3, 400.0, 23).tolist():
        for chosen in range(1, len(moves(name)) + 1, 7):
            core = StaircaseLattice(epsilon, name, chosen)
            if core.noise.is_drawable:
                built += 1
                assert core.noise.escape < 2.0**-70
                assert core.proven_epsilon == pytest.approx(epsilon, rel=2e-5)
    assert built > 50
    narrow = StaircaseLattice(150.0, name, 1)
    if name != "A2":  # whose list is as long as it must be
        assert narrow.proven_epsilon == math.inf
        assert narrow.assumptions == (TOO_NARROW,)


@pytest.mark.parametrize("core", CORES, ids=str)
def test_the_printed_epsilon_allows_for_the_arithmetic_alone(core):
    assert core.proven_epsilon == core.epsilon
    assert core.noise.decay * core._move.reach < core.epsilon * (1 - 0.99e-9)
    assert not core.is_exact


@pytest.mark.parametrize("core", CORES, ids=str)
def test_the_error_does_not_depend_on_the_input(
    core, private, dither_words, assert_mean, assert_same_law
):
    rows, size = 12_000, core.dimension
    first = np.eye(size)[0]
    lengths = []
    for i, x in enumerate((0 * first, first, -0.6 * first, np.full(size, size**-0.5))):
        words = dither_words(f"law {i}", rows, size)
        outputs, cut = core.encode(np.tile(x, (rows, 1)), words, private(f"law {i}"), 0)
        assert (outputs.shape, cut) == ((rows, size), 0)
        error = core.decode(outputs, words) - x
        assert_mean(error, 0.0)
        assert_mean(np.square(error).mean(axis=1), core.centre_distortion)
        lengths.append(np.linalg.norm(error, axis=1))
        assert_same_law(lengths[0], lengths[-1])
        outer = (error[:, :, None] * error[:, None, :]).reshape(rows, -1)
        assert_mean(outer, core.centre_distortion * np.eye(size).ravel())


@pytest.mark.parametrize("core", CORES, ids=str)
def test_the_distortion_is_dither_plus_noise(core):
    noise = core.cells.step**2 * core.noise.variance
    assert core.centre_distortion == pytest.approx(core.cells.second_moment + noise)
    assert core.simulated_distortion(0.2) == pytest.approx(core.centre_distortion, rel=0.05)


@pytest.mark.parametrize("core", CORES, ids=str)
def test_without_noise_the_decoded_sample_is_within_the_cell(core, dither_words, monkeypatch):
    rows, size = 2000, core.dimension
    monkeypatch.setattr(
        type(core.noise), "sample", lambda self, stream, start, count: np.zeros((count, size), int)
    )
    x, words = in_ball("quiet", rows, size), dither_words("quiet", rows, size)
    outputs, _ = core.encode(x, words, None, 0)
    error = core.decode(outputs, words) - x
    assert np.linalg.norm(error, axis=1).max() <= core.cells.covering_radius * (1 + 1e-12)
    assert not core.cells.nearest(error * (1 - 1e-9)).any()


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
    assert core.coder == LetterCoder(letters)
    free = StaircaseLattice(4.0, name, moves)
    assert free.coder == IntegerCoder(size)
    assert core.proven_epsilon == free.proven_epsilon
    squares = np.square(core.decode(outputs, words)).mean(axis=1)
    simulated_error = squares.std() / math.sqrt(16 * 8192)  # of the 131,072 draws it is made of
    measured_error = squares.std() / math.sqrt(rows)
    gap = abs(squares.mean() - core.centre_distortion)
    assert gap < 5 * math.hypot(measured_error, simulated_error)
    assert core.centre_distortion < free.centre_distortion
    assert_mean(core.decode(outputs, words), 0.0)


@pytest.mark.parametrize("name", ["A2", "D4", "E8"])
def test_encoding_is_random_access(name, private, dither_words):
    core = StaircaseLattice(4.0, name, 4)
    size = core.dimension
    x, words = in_ball("access", 100, size), dither_words("access", 100, size)
    whole, _ = core.encode(x, words, private("access"), 0)
    part, _ = core.encode(x[30:60], words[30:60], private("access"), 30)
    np.testing.assert_array_equal(part, whole[30:60])


@pytest.mark.parametrize("chosen", [0, 99, -1])
def test_moves_outside_the_table_are_refused(chosen):
    with pytest.raises(ValueError, match="moves must be 1…"):
        StaircaseLattice(4.0, "A2", chosen).check()


def test_noise_that_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"epsilon=40\.0 leaves too little noise.*raise moves"):
        StaircaseLattice(40.0, "A2", 1).check()
    StaircaseLattice(40.0, "A2", 20).check()


def test_a_codebook_needs_letters():
    with pytest.raises(ValueError, match="no codebook"):
        StaircaseLattice(4.0, "A2", 1).codebook  # noqa: B018
    with pytest.raises(ValueError, match="lower rate"):
        StaircaseLattice(4.0, "A2", 1, letters=1 << 22).check()
