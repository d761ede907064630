"""Arithmetic and draws that have the same bits on every machine.

log, exp and circle points are made of +, −, ×, ÷ and √ alone, which are exact to the last bit on
every IEEE 754 machine, so that NumPy, a compiled loop and a GPU draw the same noise from the same
bits. All are accurate to a few units of 10⁻¹⁶, relative.

The elementary laws are drawn from a private stream, entry by entry and in any order. Draw ``i`` of
a sampler reads its own fixed words of the stream, so a chunk can be drawn without drawing what
comes before it. Where a logarithm follows, the uniform is drawn as a floating-point number (a
geometric exponent and 51 random bits of mantissa), so that the tails are as fine, relative to their
probability, as the centre: down to 2⁻⁷⁶, or 2⁻²⁶⁸ where draws are added up or divided. The extra
word of an exponent is always read, so that reading it tells nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

LN2_HIGH = 6.93147180369123816490e-01  # trailing zeros, so that e·LN2_HIGH is exact
LN2_LOW = 1.90821492927058770002e-10
ATANH_TERMS = tuple(1.0 / (2 * k + 1) for k in range(11, 0, -1))
EXP_TERMS = tuple(1.0 / math.factorial(k) for k in range(14, -1, -1))
EXPM1_TERMS = tuple(1.0 / math.factorial(k) for k in range(14, 0, -1))
SIN_TERMS = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))
COS_TERMS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9, -1, -1))

GAMMA_LANE = 1  # attempt a of the rejection loop reads lane 1 + a
MAX_ATTEMPTS = 128  # each attempt accepts with probability > 0.95
EXTRA_LANE = 1 << 31  # where the rare uniforms below 2⁻¹² continue
NEXT_LANE = 1 << 28  # from there to the lanes of those below 2⁻⁷⁶, 2⁻¹⁴⁰ and 2⁻²⁰⁴
FAR_WORDS = 4
_TOP_BIT = np.uint64(1 << 63)
_MANTISSA = np.uint64((1 << 51) - 1)
_WHOLE = np.uint64(0x433 << 52)  # the exponent of floats whose last bit counts ones
_HALF = np.uint64(0x3FE << 52)  # the exponent of floats in [½, 1)
_EXPONENT_BITS = 12
_EXPONENT = np.uint64(((1 << _EXPONENT_BITS) - 1) << 51)  # below the sign
DEEP = np.uint64(1 << 10)
MAX_EXPONENTIAL = 76 * math.log(2.0)  # no draw of ``exponential`` or |``laplace``| is larger
# Exponentials of ``FAR_WORDS`` and the half square radius of two normals follow their law up to
# here; one octave further they end
FAR_EXPONENTIAL = (_EXPONENT_BITS + 64 * FAR_WORDS - 1) * math.log(2.0)


def _horner(terms: tuple[float, ...], x: Array) -> Array:
    total = terms[0] * x
    total += terms[1]
    for term in terms[2:]:
        total *= x
        total += term
    return total


def log(x: Array) -> Array:
    """ln x for x > 0."""
    mantissa, exponent = np.frexp(x)
    return np.subtract(0.0, _minus_log(mantissa, -exponent.astype(np.float64)))  # ln 1 is 0, not −0


def _minus_log(mantissa: Array, zeros: Array) -> Array:
    """−ln(m·2⁻ᶻ) for m in [½, 1): z·ln 2 + 2·artanh((1−m)/(1+m)), m moved into [√½, √2).

    Both arguments are lost: fresh arrays of this size cost more than the arithmetic.
    """
    small = (mantissa < math.sqrt(0.5)).astype(np.float64)
    zeros += small
    small += 1.0
    mantissa *= small
    s = np.subtract(1.0, mantissa, out=small)
    mantissa += 1.0
    s /= mantissa
    square = np.multiply(s, s, out=mantissa)
    tail = _horner(ATANH_TERMS, square)
    s *= 2.0  # exact, wherever it is done
    square *= s
    tail *= square
    tail += np.multiply(zeros, LN2_LOW, out=square)
    tail += s
    zeros *= LN2_HIGH
    zeros += tail
    return zeros


def exp(x: Array) -> Array:
    """eˣ: 2ᵏ · e^r with k = round(x / ln 2)."""
    power = np.floor(x * (1.0 / math.log(2.0)) + 0.5)
    rest = (x - power * LN2_HIGH) - power * LN2_LOW
    return np.ldexp(_horner(EXP_TERMS, rest), power.astype(np.int32))


def expm1(x: Array) -> Array:
    """eˣ − 1 for |x| < 700, also where x is tiny: 2ᵏ·(e^r − 1) + (2ᵏ − 1)."""
    power = x * (1.0 / math.log(2.0))
    power += 0.5
    np.floor(power, out=power)
    rest = power * LN2_HIGH
    np.subtract(x, rest, out=rest)
    rest -= power * LN2_LOW
    total = _horner(EXPM1_TERMS, rest)
    total *= rest
    factor = ((power.astype(np.int64) + 1023) << 52).view(np.float64)
    total *= factor
    factor -= 1.0
    total += factor
    return total


def circle(words: NDArray[np.uint64]) -> tuple[Array, Array]:
    """(cos, sin) of a uniform angle: two bits choose the quadrant, 52 the place in it."""
    place = words >> np.uint64(10)
    place &= np.uint64((1 << 52) - 1)
    angle = place.view(np.int64).astype(np.float64)  # signed integers convert three times as fast
    angle += 0.5
    angle *= 2.0**-52
    angle -= 0.5
    angle *= math.pi / 2  # in (−π/4, π/4)
    square = angle * angle
    sine = _horner(SIN_TERMS, square)
    sine *= angle
    cosine = _horner(COS_TERMS, square)
    sign = words & _TOP_BIT  # a half turn: the signs of both
    x, y = cosine.view(np.uint64), sine.view(np.uint64)
    # In odd quadrants they change places, and x its sign: without a branch, in place.
    swap = np.left_shift(words, np.uint64(1), out=place)
    np.right_shift(swap.view(np.int64), 63, out=swap.view(np.int64))
    change = np.bitwise_xor(x, y)
    change &= swap
    x ^= change
    y ^= change
    swap &= _TOP_BIT
    x ^= swap
    x ^= sign
    y ^= sign
    return cosine, sine


def squares(rows: Array) -> Array:
    """The sum of squares of each row, added from left to right."""
    total = rows[:, 0] * rows[:, 0]
    for column in range(1, rows.shape[1]):
        total += rows[:, column] * rows[:, column]
    return np.asarray(total)


# Draws


def uniform(stream: PrivateStream, start: int, count: int, *, lane: int = 0) -> Array:
    """Uniform on (0, 1]: (w + ½)·2⁻⁶⁴."""
    return _unit(stream.words64(lane=lane, start=start, count=count))


def exponential(
    stream: PrivateStream, start: int, count: int, *, lane: int = 0, extra_words: int = 1
) -> Array:
    """Standard exponential: −ln u, up to ``MAX_EXPONENTIAL``, or further by more extra words."""
    words = stream.words64(lane=lane, start=start, count=count)
    return exponential_of(words, stream, lane, start, extra_words=extra_words)


def laplace(stream: PrivateStream, start: int, count: int, *, lane: int = 0) -> Array:
    """Standard Laplace: the top bit is the sign, the other 63 make −ln u."""
    words = stream.words64(lane=lane, start=start, count=count)
    draws = exponential_of(words, stream, lane, start)
    draws.view(np.uint64)[...] ^= words & _TOP_BIT
    return draws


def normal(stream: PrivateStream, start: int, count: int, *, lane: int = 0) -> Array:
    """Standard normal by Box–Muller; draws 2i and 2i+1 share words 2i and 2i+1."""
    first, last = start // 2, (start + count + 1) // 2
    words = stream.words64(lane=lane, start=2 * first, count=2 * (last - first))
    halves = exponential_of(words[0::2], stream, lane, 2 * first, 2, FAR_WORDS)
    radius = np.sqrt(2.0 * halves)
    cosine, sine = circle(words[1::2])
    offset = start - 2 * first
    return np.stack((radius * cosine, radius * sine), axis=1).reshape(-1)[offset : offset + count]


def exponential_of(
    words: Words,
    stream: PrivateStream,
    lane: int,
    first: int,
    stride: int = 1,
    extra_words: int = 1,
) -> Array:
    """The exponential of each word; word i is word ``first + stride·i`` of the lane.

    It is −ln u, u = 2^{−1−G}·m: m from the low 51 bits is uniform on (1, 2), and G is the number of
    leading zeros of the 12 bits above; where all are zero, it goes on in a word of the extra lane
    (and in further lanes while that is zero, up to ``extra_words``).
    """
    mantissa = words & _MANTISSA
    mantissa <<= np.uint64(1)
    mantissa |= _HALF | np.uint64(1)
    zeros = _leading_zeros(words, stream, lane, first, stride, extra_words)
    return _minus_log(mantissa.view(np.float64), zeros)


def gamma(shape: float, stream: PrivateStream, start: int, count: int) -> Array:
    """Gamma(shape ≥ 1, scale 1) by Marsaglia and Tsang (2000), in the lanes from 1 on."""
    if not shape >= 1.0:
        raise ValueError(f"shape must be at least 1, got {shape}")
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    result = np.empty(count)
    pending = np.arange(count)
    for attempt in range(MAX_ATTEMPTS):
        lane = GAMMA_LANE + attempt
        words = stream.words64(lane=lane, start=4 * start, count=4 * count)
        mine = words.reshape(count, 4)[pending]
        uniforms = _deep_unit(mine[:, 0], stream, lane, 4 * (start + pending))
        radius = np.sqrt(-2.0 * log(uniforms))
        z = radius * circle(mine[:, 1])[0]
        root = 1.0 + c * z
        v = root * root * root
        is_positive = v > 0.0
        log_v = log(np.where(is_positive, v, 1.0))
        limit = 0.5 * z * z + d - d * v + d * log_v
        accepted = is_positive & (log(_unit(mine[:, 2])) < limit)
        result[pending[accepted]] = d * v[accepted]
        pending = pending[~accepted]
        if not pending.size:
            return result
    raise RuntimeError("the gamma sampler did not accept: the stream is not random")


def least_gamma(shape: float) -> float:
    """Down to here ``gamma`` follows its law: its normal does up to 12.8, e^{−82} of it beyond."""
    d = shape - 1.0 / 3.0
    return d * max(0.0, 1.0 - 12.8 / math.sqrt(9.0 * d)) ** 3


def _leading_zeros(
    words: Words, stream: PrivateStream, lane: int, first: int, stride: int, extra_words: int
) -> Array:
    if not words.size:
        return np.empty(0)
    count = stride * (len(words) - 1) + 1
    extra = stream.words64(lane=EXTRA_LANE | lane, start=first, count=count)[::stride]
    extra >>= np.uint64(_EXPONENT_BITS + 1)
    # Twelve bits, or else the extra word: the larger number, and as a float it is exact
    bits = words & _EXPONENT
    np.maximum(bits, extra, out=bits)
    leading = bits.view(np.int64).astype(np.float64)  # signed ones convert three times as fast
    exponent = leading.view(np.uint64) >> np.uint64(52)
    exponent |= _WHOLE  # 2⁵² + exponent, as a float
    zeros = exponent.view(np.float64)
    np.subtract(2.0**52 + 1023.0 + 62.0, zeros, out=zeros)
    for i in np.flatnonzero(bits == 0):  # one draw in 2⁶³
        zeros[i] = _far_zeros(stream, lane, first + stride * int(i), extra_words)
    return zeros


def _far_zeros(stream: PrivateStream, lane: int, place: int, extra_words: int) -> int:
    zeros = _EXPONENT_BITS
    for number in range(extra_words):
        extra_lane = (EXTRA_LANE | lane) + number * NEXT_LANE
        word = int(stream.words64(lane=extra_lane, start=place, count=1)[0])
        zeros += 64 - word.bit_length()
        if word:
            break
    return min(zeros, _EXPONENT_BITS + 64 * extra_words - 1)


def _deep_unit(words: Words, stream: PrivateStream, lane: int, places: Integers) -> Array:
    """``_unit`` but for words below 2¹⁰, which 64 bits of the extra lane refine."""
    draws = _unit(words)
    for i in np.flatnonzero(words < DEEP):  # one draw in 2⁵⁴
        more = stream.words64(lane=EXTRA_LANE | lane, start=int(places[i]), count=1)
        draws[i] = (float(words[i]) + float(_unit(more)[0])) * 2.0**-64
    return draws


def _unit(words: Words) -> Array:
    return (words.astype(np.float64) + 0.5) * 2.0**-64
