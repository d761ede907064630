"""Compiled exponentials, circle points and rare draws have the plain path's bits."""

import math

import numpy as np
import pytest

from jopeq.random import portable

pytest.importorskip("numba")

from jopeq.kernels.cpu import noise

RNG = np.random.default_rng(3)
WORDS = np.concatenate((
    RNG.integers(0, 1 << 64, 3000, dtype=np.uint64),
    np.array([0, 1, 2, (1 << 51) - 1, 1 << 51, (1 << 51) + 1, (1 << 52) - 1, 1 << 62, (1 << 62) - 1,
              (1 << 63) - 1, 1 << 63, (1 << 63) | 1, (1 << 64) - 1], np.uint64),
))  # fmt: skip


def assert_same_bits(one, two):
    one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
    assert one.tobytes() == two.tobytes(), (one[one != two], two[one != two])


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
    """As many extra words are made for none as for eight."""
    calls = []

    def zeros(start, found):
        calls.append(start[12].copy())
        found[:] = 0

    monkeypatch.setattr(noise, "side_by_side", zeros)
    monkeypatch.setattr(noise, "side_start", lambda key, lane: np.zeros((16, 8), np.uint32))
    monkeypatch.setattr(noise, "leading_zeros", lambda word: 64 - int(word).bit_length())
    for rare, made in ((0, 1), (1, 1), (8, 1), (9, 2), (17, 3)):
        words, counts = np.full(1024, np.uint64(1 << 62)), np.empty(1024)
        words[100 : 100 + rare] = 5
        calls.clear()
        noise._count_zeros.py_func(words, 1, None, 800, counts)
        assert len(calls) == made
        assert counts[100 : 100 + rare].tolist() == [75.0] * rare
        assert np.count_nonzero(counts) == rare
