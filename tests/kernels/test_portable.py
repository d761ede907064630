"""Compiled logarithms, exponentials and circle points have the bits of ``random.portable``."""

import math

import numpy as np
import pytest

from jopeq.random import portable, samplers
from jopeq.random.streams import PrivateStream

pytest.importorskip("numba")

from jopeq.kernels.cpu import noise as compiled

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
    assert_same_bits([compiled.log(value) for value in x], portable.log(x))


@pytest.mark.parametrize("name", ["exp", "expm1"])
def test_exponentials(name):
    tiny = 10.0 ** RNG.uniform(-300, 0, 500)
    x = np.concatenate((RNG.uniform(0, 690, 1500), tiny, [0.0, 1e-17, 0.5 * math.log(2), 52.7]))
    if name == "exp":
        x = np.concatenate((x, -x, [-690.0, -0.0]))
    assert_same_bits([getattr(compiled, name)(value) for value in x], getattr(portable, name)(x))


@pytest.mark.parametrize("zeros", [0, 1, 11, 12, 40, 74, 75])
def test_log_uniform_down_to_the_end_of_the_tail(zeros):
    values = [compiled.log_uniform(word, zeros) for word in WORDS]
    mantissa = ((WORDS & np.uint64((1 << 51) - 1)) + 0.5) * 2.0**-51 + 1.0
    assert_same_bits(values, portable.log(np.ldexp(mantissa, -1 - zeros)))
    assert max(map(abs, values)) <= samplers.MAX_EXPONENTIAL


def test_zeros_are_counted():
    none = np.uint64(0)
    assert compiled.log_uniform(np.uint64((1 << 63) - 1), 0) < 0.0  # none is zero
    for zeros in range(12):
        assert compiled.zeros_of(np.uint64(1 << (62 - zeros)), none) == zeros
        assert compiled.zeros_of(np.uint64((1 << 63) | ((1 << (63 - zeros)) - 1)), none) == zeros
    low = np.uint64((1 << 63) | ((1 << 51) - 1))
    assert compiled.exponent_bits(low) == 0
    assert compiled.exponent_bits(np.uint64(1 << 51)) == 1
    assert [compiled.zeros_of(low, np.uint64(1 << (63 - zeros))) for zeros in range(64)] == [
        min(12 + zeros, 75) for zeros in range(64)
    ]
    assert compiled.zeros_of(low, none) == 75


def test_circle():
    got = np.array([compiled.circle(word) for word in WORDS])
    cosine, sine = portable.circle(WORDS)
    assert_same_bits(got[:, 0], cosine)
    assert_same_bits(got[:, 1], sine)


def test_unit_is_the_plain_uniform():
    stream = PrivateStream.reproducible(bytes(32))
    words = stream.words64(lane=5, start=0, count=1000)
    expected = samplers.uniform(stream, 0, 1000, lane=5)
    assert_same_bits([compiled.unit(word) for word in words], expected)
    assert compiled.unit(np.uint64(0)) == 2.0**-65
