"""Each sampler against its law: 10⁶ draws by Kolmogorov–Smirnov, and the tails by counting.

A KS distance of 10⁶ draws passes below 0.0029 (probability 1e-7). Tails hold too few draws for it,
so their counts are compared with a Poisson law, and the rare path below 2⁻¹² is forced.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from jopeq.random import portable
from jopeq.random.streams import PrivateStream

DRAWS = 1_000_000


class Scripted(PrivateStream):
    """A private stream whose words in some lanes are chosen by the test."""

    def __init__(self, lanes):
        super().__init__()
        self.lanes = lanes

    def words64(self, *, lane, start, count):
        if lane not in self.lanes:
            return super().words64(lane=lane, start=start, count=count)
        chosen = self.lanes[lane]
        if isinstance(chosen, int):
            return np.full(count, chosen, dtype=np.uint64)
        return np.asarray(chosen, dtype=np.uint64)[start : start + count]


ELEMENTARY = {
    "uniform": (portable.uniform, stats.uniform),
    "exponential": (portable.exponential, stats.expon),
    "laplace": (portable.laplace, stats.laplace),
    "normal": (portable.normal, stats.norm),
}


@pytest.mark.parametrize("shape", [1.0, 1.025, 3.0, 50.0])
def test_gamma_law(shape, private, assert_follows, assert_rate):
    draws = portable.gamma(shape, private(f"gamma {shape}"), 0, DRAWS)
    assert_follows(draws, lambda x: special.gammainc(shape, x))
    for probability in (1e-3, 1e-4, 1e-5):
        high = special.gammainccinv(shape, probability)
        low = special.gammaincinv(shape, probability)
        assert_rate(np.count_nonzero(draws > high), DRAWS * probability)
        assert_rate(np.count_nonzero(draws < low), DRAWS * probability)


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_laws_and_their_tails(name, draws, assert_follows, assert_rate):
    """4·10⁶ draws: 40 of them are expected beyond the quantile of 1e-5 at either end."""
    law, found = ELEMENTARY[name][1], draws[name]
    assert_follows(found[:DRAWS], law.cdf)
    for probability in (1e-2, 1e-3, 1e-4, 1e-5):
        assert_rate(np.count_nonzero(found > law.isf(probability)), len(found) * probability)
        assert_rate(np.count_nonzero(found < law.ppf(probability)), len(found) * probability)


@pytest.fixture(scope="module")
def draws(private):
    chunks = range(0, 4 * DRAWS, DRAWS)
    return {
        name: np.concatenate([sampler(private("tail"), c, DRAWS) for c in chunks])
        for name, (sampler, _) in ELEMENTARY.items()
    }


def test_laplace_sign_is_fair_and_independent_of_the_size(draws, assert_mean, assert_independent):
    found = draws["laplace"][:DRAWS]
    assert_mean(found > 0, 0.5)
    size = np.minimum(np.floor(4 * np.abs(found)), 11).astype(int)
    assert_independent((found > 0).astype(int), size)


def test_the_two_normals_of_a_pair_are_independent(draws, assert_mean, assert_independent):
    one, two = draws["normal"][:DRAWS].reshape(-1, 2).T
    assert_mean(one * two, 0.0)
    assert_mean(one**2 * two**2, 1.0)
    parts = [np.floor(8 * special.ndtr(v)).astype(int) for v in (one, two)]
    assert_independent(*parts)


def test_normals_and_chi_squares_of_a_stream_are_independent(private, assert_independent):
    """The t law divides one by the other: they must not share words."""
    stream = private("pair")
    normal = portable.normal(stream, 0, 200_000)
    chi_square = 2.0 * portable.gamma(3.0, stream, 0, 200_000)
    ranks = [
        np.floor(6 * special.ndtr(normal)).astype(int),
        np.floor(6 * special.chdtr(6.0, chi_square)).astype(int),
    ]
    assert_independent(*ranks)
    assert_independent(ranks[0][:-1], ranks[1][1:])
    assert_independent(np.floor(6 * special.chdtr(1, normal**2)).astype(int), ranks[1])


# Below 2⁻¹²: the extra lane

MANTISSA = (1 << 51) - 1
EXTRA = 1 << 31


@pytest.mark.parametrize("low", [*range(13), 17, 52, 74, 75])
@pytest.mark.parametrize("sampler", [portable.exponential, portable.laplace])
def test_leading_zeros_choose_the_octave(sampler, low):
    """Twelve bits of the word, then the extra word; u is never below 2⁻⁷⁶."""
    first, extra = (1 << (62 - low), 0) if low < 12 else (0, 1 << (75 - low))
    for mantissa in (0, MANTISSA, MANTISSA // 3):
        stream = Scripted({0: first | mantissa, EXTRA: extra})
        value = sampler(stream, 5, 1)[0]
        assert low * math.log(2.0) * (1 - 1e-15) <= value <= (low + 1) * math.log(2.0)
        expected = (low + 1) * math.log(2.0) - math.log1p((mantissa + 0.5) * 2.0**-51)
        assert value == pytest.approx(expected, rel=1e-15, abs=3e-16)


@pytest.mark.parametrize("lane", [0, 3])
def test_the_extra_lane_is_read_at_the_place_of_the_draw(lane):
    """Each rare draw has its own extra word, so that chunks agree about it too."""
    extra = [1 << (63 - i) for i in range(40)]
    stream = Scripted({lane: 1 << 50, EXTRA | lane: extra})
    whole = portable.exponential(stream, 0, 40, lane=lane)
    assert np.floor(whole / math.log(2.0)) == pytest.approx(12.0 + np.arange(40))
    part = portable.exponential(stream, 7, 11, lane=lane)
    assert np.array_equal(part, whole[7:18])
    if lane == 0:  # of normals at the first word of the pair
        radius = np.hypot(*portable.normal(stream, 0, 40).reshape(-1, 2).T)
        assert np.floor(radius**2 / 2 / math.log(2.0)) == pytest.approx(12.0 + np.arange(0, 40, 2))


@pytest.mark.parametrize("sampler", [portable.exponential, portable.laplace, portable.normal])
def test_what_is_read_does_not_depend_on_the_noise(sampler):
    """An extra word for every draw, needed or not: its absence would tell how large draws are."""
    reads = []

    class Counted(Scripted):
        def words64(self, *, lane, start, count):
            reads.append((lane, start, count))
            return super().words64(lane=lane, start=start, count=count)

    for word in (0, 1 << 40, 1 << 55, (1 << 64) - 1):  # rare draws, and common ones
        sampler(Counted({0: word, EXTRA: 1 << 50}), 6, 10)
    rare, common = reads[:2], reads[4:6]
    assert len(reads) == 8
    assert rare == reads[2:4] == common == reads[6:]
    assert {lane for lane, _, _ in rare} == {0, EXTRA}


@pytest.mark.parametrize("extras", [1, 2, 3])
@pytest.mark.parametrize("zeros", [0, 17, 63])
def test_far_draws_go_on_in_further_words(extras, zeros):
    """Each word of zeros adds 64·ln 2; draws of one extra word end there."""
    lanes = {EXTRA + (k << 28): 0 for k in range(extras)}
    lanes |= {0: MANTISSA // 3, EXTRA + (extras << 28): 1 << (63 - zeros)}
    value = portable.exponential(Scripted(lanes), 5, 1, extra_words=4)[0]
    octaves = 12 + 64 * extras + zeros
    assert value == pytest.approx((octaves + 1) * math.log(2.0) - math.log(4 / 3), rel=1e-12)
    assert portable.exponential(Scripted(lanes), 5, 1)[0] < portable.MAX_EXPONENTIAL
    radius = np.hypot(*portable.normal(Scripted(lanes), 6, 2))
    assert radius**2 / 2 == pytest.approx(value, rel=1e-12)


def test_no_words_give_more_than_the_largest_draw():
    zero = Scripted(dict.fromkeys([0, EXTRA], 0))
    ones = Scripted(dict.fromkeys([0, EXTRA], (1 << 64) - 1))
    largest = portable.exponential(zero, 0, 3)
    assert (largest <= portable.MAX_EXPONENTIAL).all()
    assert largest == pytest.approx(portable.MAX_EXPONENTIAL, rel=1e-12)
    assert (np.abs(portable.laplace(zero, 0, 3)) <= portable.MAX_EXPONENTIAL).all()
    assert np.abs(portable.normal(zero, 0, 4)).max() <= math.sqrt(2 * portable.MAX_EXPONENTIAL)
    smallest = portable.exponential(ones, 0, 3)
    assert (smallest > 0).all()
    assert (smallest < 1e-15).all()
    assert portable.uniform(zero, 0, 1)[0] == 2.0**-65
    assert portable.uniform(ones, 0, 1)[0] == 1.0
    far = Scripted({0: 0} | {EXTRA + (k << 28): 0 for k in range(4)})
    end = portable.exponential(far, 0, 1, extra_words=4)[0]  # in the octave beyond the law
    assert end == pytest.approx(portable.FAR_EXPONENTIAL + math.log(2.0), rel=1e-12)


LONG = 600
ACCESS = PrivateStream.reproducible(bytes(range(32)))
SAMPLERS = {name: sampler for name, (sampler, _) in ELEMENTARY.items()} | {
    "gamma 1": lambda *place: portable.gamma(1.0, *place),
    "gamma 7": lambda *place: portable.gamma(7.0, *place),
    "chi_square": lambda *place: 2.0 * portable.gamma(3.0, *place),
}
WHOLE = {name: sampler(ACCESS, 0, LONG) for name, sampler in SAMPLERS.items()}


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(SAMPLERS)), start=st.integers(0, LONG), count=st.integers(0, LONG)
)
def test_any_chunk_draws_what_the_whole_draws(name, start, count):
    count = min(count, LONG - start)
    found = SAMPLERS[name](ACCESS, start, count)
    assert np.array_equal(found, WHOLE[name][start : start + count])


def test_golden_draws():
    """The first draws of the key 00 01 … 1f: another implementation must find the same bits."""
    found = {name: [v.hex() for v in draws[:2].tolist()] for name, draws in WHOLE.items()}
    assert found == GOLDEN


GOLDEN = {
    "uniform": ["0x1.a8671765f4affp-2", "0x1.252b72e1dc0efp-2"],
    "exponential": ["0x1.f8cfe83c44fcap-2", "0x1.8c989486efd58p-2"],
    "laplace": ["0x1.f8cfe83c44fcap-2", "0x1.8c989486efd58p-2"],
    "normal": ["0x1.0ce643d74408fp-1", "0x1.af75827c88234p-1"],
    "gamma 1": ["0x1.2b35db44ec989p-2", "0x1.4c7011112a4fep+0"],
    "gamma 7": ["0x1.5092799fb30c2p+2", "0x1.0bc56f7a7e412p+3"],
    "chi_square": ["0x1.d0e83a8fe3a4dp+1", "0x1.e546385100421p+2"],
}


def test_gamma_needs_a_shape_of_at_least_one_and_a_stream_that_is_random():
    for shape in (0.99, 0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="shape must be at least 1"):
            portable.gamma(shape, ACCESS, 0, 1)
    stuck = Scripted(dict.fromkeys(range(1, 200), (1 << 64) - 1))  # accepts with u = 1: never
    with pytest.raises(RuntimeError, match="not random"):
        portable.gamma(3.0, stuck, 0, 4)
