"""Exponential noise on lattices: theta series, shells, directions, rejection, listed points."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from jopeq.entries.staircase_noise import ALLOWANCE
from jopeq.lattice.codebook import points_within
from jopeq.lattice.lattices import Lattice
from jopeq.noise.on_lattice import LatticeExponential, listed_noise, shells

THETA = {
    "A2": [1, 6, 0, 6, 6, 0, 0, 12, 0, 6, 0, 0, 6, 12, 0, 0, 6],
    "D4": [1, 24, 24, 96, 24, 144, 96, 192, 24],
    "E8": [1, 240, 2160, 6720, 17520],
}
NAMES = list(THETA)


@pytest.mark.parametrize("name", NAMES)
def test_shells_are_the_theta_series(name):
    lattice = Lattice(name)
    squares, counts = shells(name, 3.0)
    unit = squares[1]
    assert unit == {"A2": 1.0, "D4": 2.0, "E8": 2.0}[name]
    known = THETA[name]
    assert counts[: len(known)].tolist() == known
    radius = {"A2": 12.0, "D4": 6.0, "E8": 8**0.5}[name]
    points = lattice.points(points_within(lattice, np.zeros(lattice.dimension), radius))
    shell = np.rint((points**2).sum(axis=1) / unit).astype(int)
    enumerated = np.bincount(shell)
    np.testing.assert_array_equal(enumerated, counts[: len(enumerated)])


@pytest.mark.parametrize(("name", "decay"), [("A2", 0.7), ("A2", 4.0), ("D4", 2.5), ("E8", 3.5)])
def test_draws_follow_the_law(name, decay, private, assert_counts, assert_mean):
    noise, lattice = LatticeExponential(name, decay), Lattice(name)
    rows = 20_000
    coordinates = noise.sample(private(f"lattice noise {name}"), 0, rows)
    points = lattice.points(coordinates)
    squares, counts = shells(name, decay)
    weights = counts * np.exp(-decay * np.sqrt(squares))
    expected = rows * weights / weights.sum()
    shell = np.rint((points**2).sum(axis=1) / squares[1]).astype(int)
    observed = np.bincount(shell, minlength=len(expected))[: len(expected)]
    kept = expected >= 20
    assert_counts(
        np.append(observed[kept], observed[~kept].sum()),
        np.append(expected[kept], expected[~kept].sum()),
    )
    # within the first shell every point is as likely as any other
    nearest, tally = np.unique(coordinates[shell == 1], axis=0, return_counts=True)
    assert len(nearest) == counts[1]
    assert_counts(tally)
    # isotropy
    assert_mean(points, 0.0)
    size = lattice.dimension
    outer = (points[:, :, None] * points[:, None, :]).reshape(rows, -1)
    assert_mean(outer, noise.variance * np.eye(size).ravel())


@pytest.mark.parametrize(
    ("name", "decay", "radius"),
    [("A2", 0.2, 150.0), ("A2", 2.0, 20.0), ("D4", 6.0, 6.0), ("E8", 16.0, 8**0.5)],
)
def test_variance_is_that_of_the_enumerated_points(name, decay, radius):
    lattice = Lattice(name)
    points = lattice.points(points_within(lattice, np.zeros(lattice.dimension), radius))
    squares = (points**2).sum(axis=1)
    chances = np.exp(-decay * np.sqrt(squares))
    expected = (chances @ squares) / chances.sum() / lattice.dimension
    assert LatticeExponential(name, decay).variance == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_random_access(name, private):
    noise, stream = LatticeExponential(name, 2.0), private("lattice access")
    whole = noise.sample(stream, 0, 200)
    for start, count in ((71, 50), (0, 40), (40, 160)):
        part = noise.sample(stream, start, count)
        np.testing.assert_array_equal(part, whole[start : start + count])


def test_impossible_decays_are_refused():
    for decay in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="decay must be a positive number"):
            LatticeExponential("A2", decay)
    with pytest.raises(ValueError, match="raise epsilon"):
        shells("A2", 1e-3)  # its table would be too long
    for name in NAMES:
        drawable = [LatticeExponential(name, decay).is_drawable for decay in (0.01, 8.0, 30.0)]
        assert drawable == [True, True, False]  # too narrow
    for name, decay in (("D4", 1.0), ("E8", 3.0), ("A2", 0.1)):
        assert listed_noise(name, decay) is None  # other lattices, and wide noise


# The list of points that the noise of A2 is drawn from

DECAYS = [0.2, 0.55, 1.0, 3.0, 20.0]
TOTAL = 1 << 128


def cumulative(listed):
    return [int(h) << 64 | int(low) for h, low in zip(listed.high, listed.low, strict=True)]


def counts(listed):
    ends = [0, *cumulative(listed), TOTAL]
    return [b - a for a, b in pairwise(ends)]


class FixedWords:
    """Stands in for a private stream."""

    def __init__(self, values):
        self._words = np.array(
            [half for value in values for half in (value >> 64, value & (1 << 64) - 1)],
            dtype=np.uint64,
        )

    def words64(self, *, lane, start, count):
        assert lane == 0
        return self._words[start : start + count]


@pytest.mark.parametrize("decay", DECAYS)
def test_every_point_within_the_reach_is_listed_once_and_as_often_as_the_law_says(decay):
    """log(c_j/c_k) = a(‖k‖ − ‖j‖) to 10⁻¹¹, which is below what the allowance gives away."""
    listed, cells, reach = listed_noise("A2", decay), Lattice("A2"), 55.0 / decay
    lengths = np.linalg.norm(cells.points(listed.coordinates), axis=1)
    assert len(np.unique(listed.coordinates, axis=0)) == len(lengths)
    assert (np.diff(lengths) > -1e-9).all()
    assert lengths[-1] <= reach * (1 + 1e-9)
    side = math.ceil(75.0 / decay * 2 / math.sqrt(3)) + 1
    grid = np.stack(np.meshgrid(*[np.arange(-side, side + 1)] * 2), axis=-1).reshape(-1, 2)
    every = np.linalg.norm(cells.points(grid), axis=1)
    is_inside = every <= reach * (1 + 1e-10)
    assert is_inside.sum() == len(lengths)
    beyond = np.exp(-decay * every[~is_inside & (every <= 75.0 / decay)])
    assert math.fsum(beyond) / math.fsum(np.exp(-decay * lengths)) < 2.0**-70
    found = counts(listed)
    assert len(found) == len(lengths)
    assert sum(found) == TOTAL
    assert min(found) >= 1 << 38
    picked = np.random.default_rng(1).integers(0, len(found), 300).tolist()
    for k in {0, 1, len(found) - 1, *picked}:
        ratio = Fraction(found[0], found[k])
        exact = math.log(ratio.numerator) - math.log(ratio.denominator)
        assert abs(exact - decay * lengths[k]) < 1e-11 + 1e-14 * decay * lengths[k]
    assert ALLOWANCE * 0.145 > 2e-11  # on the shortest vector, of length 1


@pytest.mark.parametrize("decay", [1.0, 3.0])
def test_a_word_draws_the_next_point_exactly_at_its_threshold_compiled_too(decay):
    listed, rng = listed_noise("A2", decay), np.random.default_rng(2)
    ends = cumulative(listed)
    picked = rng.integers(0, len(ends), 200).tolist()
    places = [0, 1, 2, 7, len(ends) // 2, len(ends) - 2, len(ends) - 1, *picked]
    words = [word for place in places for word in (ends[place] - 1, ends[place])]
    fair = [int.from_bytes(rng.bytes(16), "little") for _ in range(500)]
    stream = FixedWords([*words, 0, TOTAL - 1, *fair])
    drawn = listed.sample(stream, 0, len(words) + 502)
    expected = [listed.coordinates[at] for place in places for at in (place, place + 1)]
    assert (drawn[: len(words)] == expected).all()
    assert (drawn[len(words)] == 0).all()
    assert (drawn[len(words) + 1] == listed.coordinates[-1]).all()

    pytest.importorskip("numba")
    from jopeq.kernels.cpu.lattice import draw_listed

    starts = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    guide = np.searchsorted(listed.high, starts, side="left").astype(np.uint32)
    for at, point in enumerate(drawn):
        place = draw_listed(stream._words, at, listed.high, listed.low, guide)
        assert (listed.coordinates[place] == point).all()


@pytest.mark.parametrize(("decay", "move"), [(0.2, 5.0), (1.0, 7.0), (4.0, 11.0), (20.0, 3.0)])
def test_the_list_goes_on_by_a_move(decay, move):
    """Each point within 55/a is listed when moved; those beyond are what may escape."""
    short, long = listed_noise("A2", decay), listed_noise("A2", decay, move)
    assert (long.coordinates[: len(short.coordinates)] == short.coordinates).all()
    found = counts(long)
    assert sum(found) == TOTAL
    assert min(found) >= 1
    lengths = np.linalg.norm(Lattice("A2").points(long.coordinates), axis=1)
    assert lengths[-1] <= 55.0 / decay + move + 1e-6
    assert lengths[-1] > 55.0 / decay + move - 1.0
    beyond = sum(c for c, r in zip(found, lengths, strict=True) if r > 55.0 / decay)
    assert beyond / TOTAL <= long.escape < 2.0**-70
    # what is drawn is the same but for one word in 10¹⁵
    assert np.abs((long.high[:30] - short.high[:30]).astype(np.int64)).max() < 1 << 16
