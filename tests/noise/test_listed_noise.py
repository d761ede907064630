"""The list of points that A2's noise is drawn from: its counts, its order, and every threshold."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from jopeq.lattice.codebook import points_within
from jopeq.lattice.lattices import Lattice
from jopeq.noise.on_lattice import listed_noise
from jopeq.schemes.staircase import ALLOWANCE

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
def test_counts_are_positive_and_fill_all_words(decay):
    listed = listed_noise("A2", decay)
    found = counts(listed)
    assert len(found) == len(listed.coordinates)
    assert sum(found) == TOTAL
    assert min(found) >= 1 << 38


@pytest.mark.parametrize("decay", DECAYS)
def test_ratios_of_counts_are_those_of_the_law(decay):
    """log(c_j/c_k) = a(‖k‖ − ‖j‖) to 10⁻¹¹, which is below what the allowance gives away."""
    listed = listed_noise("A2", decay)
    found = counts(listed)
    lengths = np.linalg.norm(Lattice("A2").points(listed.coordinates), axis=1)
    rng = np.random.default_rng(1)
    picked = {0, 1, len(found) - 1, *rng.integers(0, len(found), 300).tolist()}
    for k in picked:
        ratio = Fraction(found[0], found[k])
        exact = math.log(ratio.numerator) - math.log(ratio.denominator)
        assert abs(exact - decay * lengths[k]) < 1e-11 + 1e-14 * decay * lengths[k]
    assert ALLOWANCE * 0.145 > 2e-11  # on the shortest vector, of length 1


@pytest.mark.parametrize("decay", DECAYS)
def test_every_point_within_the_reach_is_listed_once(decay):
    listed = listed_noise("A2", decay)
    points = Lattice("A2").points(listed.coordinates)
    lengths = np.linalg.norm(points, axis=1)
    assert len(np.unique(listed.coordinates, axis=0)) == len(points)
    assert (np.diff(lengths) > -1e-9).all()
    assert lengths[-1] <= 55.0 / decay * (1 + 1e-9)
    side = math.ceil(55.0 / decay * 2 / math.sqrt(3)) + 1
    grid = np.stack(np.meshgrid(*[np.arange(-side, side + 1)] * 2), axis=-1).reshape(-1, 2)
    inside = np.linalg.norm(Lattice("A2").points(grid), axis=1) <= 55.0 / decay * (1 + 1e-10)
    assert inside.sum() == len(points)


@pytest.mark.parametrize("decay", DECAYS)
def test_what_is_left_out_is_below_2_to_the_minus_70(decay):
    cells = Lattice("A2")
    wide = points_within(cells, np.zeros(2), 75.0 / decay)
    weights = np.exp(-decay * np.linalg.norm(cells.points(wide), axis=1))
    listed = np.exp(
        -decay * np.linalg.norm(cells.points(listed_noise("A2", decay).coordinates), axis=1)
    )
    beyond = math.fsum(np.sort(weights)[: len(weights) - len(listed)])
    assert beyond / math.fsum(listed) < 2.0**-70


@pytest.mark.parametrize("decay", [1.0, 3.0])
def test_a_word_draws_the_next_point_exactly_at_its_threshold(decay):
    listed = listed_noise("A2", decay)
    ends = cumulative(listed)
    places = [0, 1, 2, 7, len(ends) // 2, len(ends) - 2, len(ends) - 1]
    words = [word for place in places for word in (ends[place] - 1, ends[place])]
    drawn = listed.sample(FixedWords([*words, 0, TOTAL - 1]), 0, len(words) + 2)
    for i, place in enumerate(places):
        assert (drawn[2 * i] == listed.coordinates[place]).all()
        assert (drawn[2 * i + 1] == listed.coordinates[place + 1]).all()
    assert (drawn[-2] == 0).all()
    assert (drawn[-1] == listed.coordinates[-1]).all()


@pytest.mark.parametrize("decay", [1.0, 3.0])
def test_the_compiled_draw_is_the_same_at_every_threshold(decay):
    pytest.importorskip("numba")
    from jopeq.kernels.cpu import lattice_noise as cpu_lattice_noise

    listed = listed_noise("A2", decay)
    places = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    guide = np.searchsorted(listed.high, places, side="left").astype(np.uint32)
    rng = np.random.default_rng(2)
    ends = cumulative(listed)
    some = [ends[i] for i in rng.integers(0, len(ends), 200)]
    fair = [int.from_bytes(rng.bytes(16), "little") for _ in range(500)]
    words = [*some, *(end - 1 for end in some), *fair, 0, TOTAL - 1]
    stream = FixedWords(words)
    expected = listed.sample(stream, 0, len(words))
    for at in range(len(words)):
        place = cpu_lattice_noise.listed(stream._words, at, listed.high, listed.low, guide)
        assert (listed.coordinates[place] == expected[at]).all()


def test_draws_can_be_taken_from_anywhere(private):
    listed = listed_noise("A2", 1.0)
    whole = listed.sample(private("listed"), 0, 1000)
    assert (listed.sample(private("listed"), 400, 100) == whole[400:500]).all()


@pytest.mark.parametrize("decay", [0.55, 3.0])
def test_frequencies_follow_the_counts(decay, private, assert_counts):
    listed = listed_noise("A2", decay)
    drawn = listed.sample(private(f"frequencies {decay}"), 0, 400_000)
    squares = (drawn[:, 0] ** 2 + drawn[:, 0] * drawn[:, 1] + drawn[:, 1] ** 2).astype(int)
    shells = listed.coordinates[:, 0] ** 2 + listed.coordinates[:, 0] * listed.coordinates[:, 1]
    shells = shells + listed.coordinates[:, 1] ** 2
    chances = np.array([count / TOTAL for count in counts(listed)])
    last = 12
    expected = [chances[shells == n].sum() for n in range(last)]
    seen = [int((squares == n).sum()) for n in range(last)]
    kept = [n for n in range(last) if expected[n] * len(drawn) > 20]
    rest = len(drawn) - sum(seen[n] for n in kept)
    share = 1.0 - sum(expected[n] for n in kept)
    means = np.array([expected[n] for n in kept] + [share]) * len(drawn)
    assert_counts(np.array([seen[n] for n in kept] + [rest]), means)


@pytest.mark.parametrize(("name", "decay"), [("D4", 1.0), ("E8", 3.0), ("A2", 0.1)])
def test_there_is_no_list_on_other_lattices_or_for_wide_noise(name, decay):
    assert listed_noise(name, decay) is None


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


def test_no_decay_is_refused_by_its_own_checks():
    """From the widest noise that is listed to noise that hides nothing."""
    for step in range(40):
        assert listed_noise("A2", 0.1452 * 1.15**step) is not None
