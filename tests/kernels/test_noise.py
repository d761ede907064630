"""Compiled logarithms, exponentials, circle points and rare draws have the plain path's bits."""

import math

import numpy as np
import pytest

from jopeq.random import portable
from jopeq.random.streams import PrivateStream

pytest.importorskip("numba")

from jopeq.kernels.cpu import noise

STREAM = PrivateStream.reproducible(bytes(range(7, 39)))
EXTRA_LANE = 1 << 31
RNG = np.random.default_rng(3)
WORDS = np.concatenate((
    RNG.integers(0, 1 << 64, 3000, dtype=np.uint64),
    np.array([0, 1, 2, (1 << 51) - 1, 1 << 51, (1 << 51) + 1, (1 << 52) - 1, 1 << 62, (1 << 62) - 1,
              (1 << 63) - 1, 1 << 63, (1 << 63) | 1, (1 << 64) - 1], np.uint64),
))  # fmt: skip


def assert_same_bits(one, two):
    one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
    assert one.tobytes() == two.tobytes(), (one[one != two], two[one != two])


def test_log():
    x = np.concatenate((
        np.exp(RNG.uniform(-700, 700, 3000)),
        1 + RNG.normal(0, 1e-8, 500),
        1 + RNG.normal(0, 1e-15, 99),
        [1.0, 0.5, 2.0, math.sqrt(0.5), math.nextafter(math.sqrt(0.5), 0), np.nextafter(1, 0),
         np.nextafter(1, 2), 2.0**-1022, 2.0**-76, 0.5 * 2.0**-64, 1.7e308],
    ))  # fmt: skip
    assert_same_bits([noise.log(value) for value in x], portable.log(x))


def test_exponentials():
    tiny = 10.0 ** RNG.uniform(-300, 0, 500)
    x = np.concatenate((RNG.uniform(0, 690, 1500), tiny, [0.0, 1e-17, 0.5 * math.log(2), 52.7]))
    assert_same_bits([noise.expm1(value) for value in x], portable.expm1(x))


@pytest.mark.parametrize("zeros", [0, 1, 11, 12, 40, 74, 75])
def test_log_uniform_down_to_the_end_of_the_tail(zeros):
    values = [noise.log_uniform(word, zeros) for word in WORDS]
    mantissa = ((WORDS & np.uint64((1 << 51) - 1)) + 0.5) * 2.0**-51 + 1.0
    assert_same_bits(values, portable.log(np.ldexp(mantissa, -1 - zeros)))
    assert max(map(abs, values)) <= portable.MAX_EXPONENTIAL


def test_zeros_are_counted():
    none = np.uint64(0)
    assert noise.log_uniform(np.uint64((1 << 63) - 1), 0) < 0.0  # none is zero
    for zeros in range(12):
        assert noise.zeros_of(np.uint64(1 << (62 - zeros)), none) == zeros
        assert noise.zeros_of(np.uint64((1 << 63) | ((1 << (63 - zeros)) - 1)), none) == zeros
        assert noise._first_zeros(np.uint64(1 << (62 - zeros))) == zeros
    low = np.uint64((1 << 63) | ((1 << 51) - 1))
    assert noise.exponent_bits(low) == 0
    assert noise.exponent_bits(np.uint64(1 << 51)) == 1
    assert [noise.zeros_of(low, np.uint64(1 << (63 - zeros))) for zeros in range(64)] == [
        min(12 + zeros, 75) for zeros in range(64)
    ]
    assert noise.zeros_of(low, none) == 75
    assert noise._first_zeros(low) > 11


def test_circle():
    got = np.array([noise.circle(word) for word in WORDS])
    cosine, sine = portable.circle(WORDS)
    assert_same_bits(got[:, 0], cosine)
    assert_same_bits(got[:, 1], sine)


# Words that ask for another, of the extra lane


def test_time_does_not_tell_how_many_draws_are_rare(monkeypatch):
    """As many extra words are made for none as for eight; with words of zeros counts go on."""
    calls = []

    def zeros(start, found):
        calls.append(start[12].copy())
        found[:] = 0

    monkeypatch.setattr(noise, "side_by_side", zeros)
    monkeypatch.setattr(noise, "side_start", lambda key, lane: np.zeros((16, 8), np.uint32))
    monkeypatch.setattr(noise, "start_state", lambda key, lane: None)
    monkeypatch.setattr(noise, "far_zeros", lambda state, lane, place: 100 + place)
    monkeypatch.setattr(noise, "leading_zeros", lambda word: 64 - int(word).bit_length())
    for rare, made in ((0, 1), (1, 1), (8, 1), (9, 2), (17, 3)):
        words, counts = np.full(1024, np.uint64(1 << 62)), np.empty(1024)
        words[100 : 100 + rare] = 5
        for goes_far in (False, True):
            calls.clear()
            noise._count_zeros.py_func(words, 1, None, 800, goes_far, counts)
            assert len(calls) == made
            found = 1000 + np.arange(rare) if goes_far else [75.0] * rare
            assert counts[100 : 100 + rare].tolist() == list(found)
            assert np.count_nonzero(counts) == rare


# Words that no known key leads to

EXTRAS = [(1 << 63,), (1,), (0, 1 << 63), (0, 5 << 30), (0, 1), (0, 0, 1 << 40), (0, 0, 0, 9)]


@pytest.mark.parametrize("extras", [*EXTRAS, (0,) * 4])
def test_draws_beyond_every_word_met_go_on_alike(extras, monkeypatch):
    """One in 2⁷⁶: no key is known that leads there, so the words are scripted."""
    lanes = {(EXTRA_LANE | 5) + (k << 28): word for k, word in enumerate(extras)}

    class Scripted(PrivateStream):
        def words64(self, *, lane, start, count):
            return np.full(count, lanes[lane], dtype=np.uint64)

    word = np.uint64(12345)
    expected = portable.exponential_of(
        np.array([word]), Scripted(), 5, np.array([77]), portable.FAR_WORDS
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
    assert draws.tobytes() == portable.gamma(30.0, Scripted(), 0, len(rows)).tobytes()
    assert portable.least_gamma(30.0) < draws.min() < 8.0


def one_word(lane, place):
    return STREAM.words64(lane=lane, start=place, count=1)[0]
