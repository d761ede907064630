"""Compiled noise: the samplers' bits from the same words, and the laws themselves."""

import math

import numpy as np
import pytest
from scipy import special, stats

from jopeq.noise import MultivariateT
from jopeq.random import samplers
from jopeq.random.streams import PrivateStream

pytest.importorskip("numba")

from jopeq.kernels.cpu import noise
from jopeq.kernels.cpu.codec import KeyStream

KEY = bytes(range(7, 39))
STREAM = PrivateStream.reproducible(KEY)
BLOCK = 1 << 16
BINS = 1 << 12
EXTRA_LANE = 1 << 31
SIZES = [1 << 20, pytest.param(10**8, marks=pytest.mark.slow)]
EXPONENT = np.uint64(((1 << 12) - 1) << 51)


def rare(words):
    """Words whose twelve exponent bits are zero."""
    return words & EXPONENT == 0


def blocks(stream, per_draw, draws):
    """The words of so many draws and their extra words, a block at a time."""
    keys = [KeyStream(stream, lane, 0, 8 * per_draw * BLOCK) for lane in (0, EXTRA_LANE)]
    for first in range(0, draws, BLOCK):
        size = min(BLOCK, draws - first)
        yield size, *(lane.next(8 * per_draw * size).view("<u8") for lane in keys)


# The same bits


@pytest.mark.parametrize("lane", [0, 3])
@pytest.mark.parametrize("place", [0, 5, 100_000])
def test_laplace_draws_what_the_sampler_draws(place, lane):
    words = STREAM.words64(lane=lane, start=place, count=50_000)
    draws = np.empty(len(words))
    extra = STREAM.words64(lane=EXTRA_LANE | lane, start=place, count=len(words))
    noise.laplace(words, extra, draws)
    assert draws.tobytes() == samplers.laplace(STREAM, place, len(words), lane=lane).tobytes()
    assert rare(words).sum() > 2
    assert rare(words)[draws > 0].any()
    assert rare(words)[draws < 0].any()


@pytest.mark.parametrize("nu", [2.1, 4.0, 5.35, 60.0])
def test_planar_t(nu):
    count, first = 40_000, 77
    words = STREAM.words64(lane=0, start=2 * first, count=2 * count)
    radius, cosine, sine = np.empty((3, count))
    extra = STREAM.words64(lane=EXTRA_LANE, start=2 * first, count=2 * count)
    noise.planar_t(words, extra, nu, math.sqrt(0.5), radius, cosine, sine)
    plane = MultivariateT(nu, 0.5, 2).sample(STREAM, first, count)
    assert (cosine * radius).tobytes() == plane[:, 0].tobytes()
    assert (sine * radius).tobytes() == plane[:, 1].tobytes()
    line = MultivariateT(nu, 0.5, 1).sample(STREAM, first, count)
    assert (cosine * radius).tobytes() == line.tobytes()
    assert rare(words[::2]).sum() > 2


EXTRAS = [(1 << 63,), (1,), (0, 1 << 63), (0, 5 << 30), (0, 1), (0, 0, 1 << 40), (0, 0, 0, 9)]


@pytest.mark.parametrize("extras", [*EXTRAS, (0,) * 4])
def test_draws_beyond_every_word_met_go_on_alike(extras, monkeypatch):
    """One in 2⁷⁶: no key is known that leads there, so the words are scripted."""
    lanes = {(EXTRA_LANE | 5) + (k << 28): word for k, word in enumerate(extras)}

    class Scripted(PrivateStream):
        def words64(self, *, lane, start, count):
            return np.full(count, lanes[lane], dtype=np.uint64)

    word = np.uint64(12345)
    expected = samplers.exponential_of(
        np.array([word]), Scripted(), 5, np.array([77]), samplers.FAR_WORDS
    )[0]

    def scripted(state, place):
        assert place == 77
        return np.uint64(lanes[int(state[31])])

    zeros = noise.zeros_of(word, np.uint64(extras[0]))
    if extras[0] == 0:
        monkeypatch.setattr(noise, "word64", scripted)
        monkeypatch.setattr(noise, "leading_zeros", lambda word: 64 - int(word).bit_length())
        zeros = noise.far_zeros.py_func(np.zeros(32, dtype=np.uint32), 5, 77)
    assert -noise.log_uniform(word, zeros) == expected
    whole = 12 + sum(64 if word == 0 else 64 - word.bit_length() for word in extras)
    assert math.floor(expected / math.log(2)) == min(whole, 267)


@pytest.mark.parametrize("word", [0, 1, 77, 1023, 1024])
def test_gamma_from_words_that_a_further_one_refines(word, monkeypatch):
    """Words below 2¹⁰, one in 2⁵⁴, are scripted; the further word is of the stream."""
    rows = STREAM.words64(lane=1, start=0, count=4 * 100).reshape(-1, 4).copy()
    rows[:, 0] = word
    rows[:, 2] = np.uint64(1)  # accept what may be

    class Scripted(PrivateStream):
        def words64(self, *, lane, start, count):
            if lane == 1:
                return rows.reshape(-1)[start : start + count]
            return STREAM.words64(lane=lane, start=start, count=count)

    # the loop in Python, which saves compiling ChaCha20 into it
    monkeypatch.setattr(noise, "start_state", lambda key, lane: lane)
    monkeypatch.setattr(noise, "word64", one_word)
    monkeypatch.setattr(noise, "_try_gamma", noise._try_gamma.py_func)
    draws = np.empty(len(rows))
    assert noise.gamma.py_func(30.0, rows.reshape(-1), None, 0, draws)
    assert draws.tobytes() == samplers.gamma(30.0, Scripted(), 0, len(rows)).tobytes()
    assert samplers.least_gamma(30.0) < draws.min() < 8.0


def one_word(lane, place):
    return STREAM.words64(lane=lane, start=place, count=1)[0]


# The laws


def assert_uniform(counts):
    """Counts in equal bins: Kolmogorov's distance at the edges, and chi-square over all bins."""
    total = counts.sum()
    gap = np.cumsum(counts) / total - np.arange(1, len(counts) + 1) / len(counts)
    limit = math.sqrt(math.log(2 / 1e-7) / 2)
    assert np.abs(gap).max() * math.sqrt(total) < limit
    expected = total / len(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, len(counts) - 1) > 1e-7


def assert_halving(counts, total, assert_rate):
    """P(E > k·ln 2) = 2⁻ᵏ as far as draws go, across the twelfth bit and beyond."""
    last = int(math.log2(total)) + 2
    for k in range(8, last + 1):
        assert_rate(int(counts[k:].sum()), total * 2.0**-k)


@pytest.mark.parametrize("draws", SIZES)
def test_the_law_of_laplace_noise(draws, private, assert_rate):
    stream = private("compiled laplace")
    buffer, bins, tail = np.empty(BLOCK), np.zeros(BINS, np.int64), np.zeros(80, np.int64)
    for size, words, extra in blocks(stream, 1, draws):
        drawn = buffer[:size]
        noise.laplace(words, extra, drawn)
        lower = 0.5 * np.exp(-np.abs(drawn))
        places = np.where(drawn < 0, lower, 1.0 - lower) * BINS
        bins += np.bincount(places.astype(np.int64).clip(0, BINS - 1), minlength=BINS)
        tail += np.bincount((np.abs(drawn) / math.log(2)).astype(np.int64), minlength=80)
    assert_uniform(bins)
    assert_halving(tail, draws, assert_rate)


@pytest.mark.parametrize("nu", [4.0, 5.35])
@pytest.mark.parametrize("draws", SIZES)
def test_the_law_of_t_noise(draws, nu, private, assert_rate):
    """On the line against Student's law; in the plane radius and angle, and the tail."""
    stream = private(f"compiled t {nu}")
    buffers = np.empty((3, BLOCK))
    edges = special.stdtrit(nu, np.arange(1, BINS) / BINS)
    line, radii, angles = np.zeros((3, BINS), np.int64)
    tail = np.zeros(80, np.int64)
    for size, words, extra in blocks(stream, 2, draws):
        radius, cosine, sine = buffers[:, :size]
        noise.planar_t(words, extra, nu, 1.0, radius, cosine, sine)
        line += np.bincount(np.searchsorted(edges, radius * cosine), minlength=BINS)
        exceeded = -0.5 * nu * np.log1p(radius * radius / nu)  # ln P(R > radius)
        places = (np.exp(exceeded) * BINS).astype(np.int64).clip(0, BINS - 1)
        radii += np.bincount(places, minlength=BINS)
        turn = (np.arctan2(sine, cosine) / (2 * math.pi) + 0.5) * BINS
        angles += np.bincount(turn.astype(np.int64).clip(0, BINS - 1), minlength=BINS)
        tail += np.bincount((-exceeded / math.log(2)).astype(np.int64), minlength=80)
    for counts in (line, radii, angles):
        assert_uniform(counts)
    assert_halving(tail, draws, assert_rate)
