"""Noise from key stream words: ``portable`` and ``samplers`` in loops.

All is ``jopeq.random``, rounding by rounding. Draws come one block of samples at a time, so that
loops vectorise. ``place`` is that of the first word in its lane. One word in 4096 asks for another,
of the extra lane: as many are made for every block, so that time does not tell how many it needs.
"""

from __future__ import annotations

import math

import numpy as np

from jopeq.kernels.cpu.chacha import SIDE, side_by_side, side_start
from jopeq.kernels.cpu.native import as_bits, as_float, leading_zeros, part
from jopeq.random import portable
from jopeq.random.portable import EXTRA_LANE

_LN2_HIGH, _LN2_LOW = portable.LN2_HIGH, portable.LN2_LOW
_INVERSE_LN2 = 1.0 / math.log(2.0)
_ROOT_HALF = math.sqrt(0.5)
_HALF_BITS = np.uint64(0x3FE << 52)  # the exponent of numbers in [½, 1)
_FRACTION = np.uint64((1 << 52) - 1)
_LOW51 = np.uint64((1 << 51) - 1)
_LOW12 = np.uint64((1 << 12) - 1)
_QUADRANT = math.pi / 2
_TOP_BIT = np.uint64(1 << 63)
_WHOLE = 2.0**52  # its last bit counts ones
_WHOLE_BITS = np.uint64(0x433 << 52)

_A11, _A10, _A9, _A8, _A7, _A6, _A5, _A4, _A3, _A2, _A1 = portable.ATANH_TERMS
_E14, _E13, _E12, _E11, _E10, _E9, _E8, _E7, _E6, _E5, _E4, _E3, _E2, _E1 = portable.EXPM1_TERMS
_S8, _S7, _S6, _S5, _S4, _S3, _S2, _S1, _S0 = portable.SIN_TERMS
_C9, _C8, _C7, _C6, _C5, _C4, _C3, _C2, _C1, _C0 = portable.COS_TERMS


# ``portable``, one float at a time


@part
def log_of_parts(mantissa, exponent):
    """ln(mantissa·2^exponent), mantissa in [½, 1)."""
    small = mantissa < _ROOT_HALF
    m = mantissa + mantissa if small else mantissa
    power = exponent - 1.0 if small else exponent
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    h = (((_A11 * q + _A10) * q + _A9) * q + _A8) * q + _A7
    h = (((h * q + _A6) * q + _A5) * q + _A4) * q + _A3
    h = (h * q + _A2) * q + _A1
    tail = (s * q * h * 2.0 + power * _LN2_LOW) + s * 2.0
    return power * _LN2_HIGH + tail


@part
def exponent_bits(word):
    """The twelve bits that choose the binade of a fine uniform; 0 asks for more of them."""
    return (word >> np.uint64(51)) & _LOW12


@part
def log_uniform(word, zeros):
    """ln u of the fine uniform of a word that starts with so many zeros."""
    mantissa = as_float(_HALF_BITS | ((word & _LOW51) << np.uint64(1)) | np.uint64(1))
    return log_of_parts(mantissa, -np.float64(zeros))


@part
def expm1(x):
    """eˣ − 1 for 0 ≤ x < 700."""
    power = np.floor(x * _INVERSE_LN2 + 0.5)
    r = (x - power * _LN2_HIGH) - power * _LN2_LOW
    h = (((_E14 * r + _E13) * r + _E12) * r + _E11) * r + _E10
    h = (((h * r + _E9) * r + _E8) * r + _E7) * r + _E6
    h = (((h * r + _E5) * r + _E4) * r + _E3) * r + _E2
    h = h * r + _E1
    factor = as_float(np.uint64(np.int64(power) + 1023) << np.uint64(52))
    return factor * (r * h) + (factor - 1.0)


@part
def circle(word):
    """(cos, sin) of a uniform angle."""
    place = np.float64(np.int64((word >> np.uint64(10)) & _FRACTION))
    angle = ((place + 0.5) * 2.0**-52 - 0.5) * _QUADRANT
    q = angle * angle
    h = (((_S8 * q + _S7) * q + _S6) * q + _S5) * q + _S4
    h = (((h * q + _S3) * q + _S2) * q + _S1) * q + _S0
    sine = angle * h
    h = (((_C9 * q + _C8) * q + _C7) * q + _C6) * q + _C5
    h = (((h * q + _C4) * q + _C3) * q + _C2) * q + _C1
    cosine = h * q + _C0
    is_odd = (word >> np.uint64(62)) & np.uint64(1) == np.uint64(1)
    x = -sine if is_odd else cosine
    y = cosine if is_odd else sine
    is_flipped = (word >> np.uint64(63)) == np.uint64(1)
    return (-x, -y) if is_flipped else (x, y)


# ``samplers``


@part
def zeros_of(word, extra):
    """How many zeros the fine uniform of a word starts with."""
    bits = exponent_bits(word)
    goes_on = bits == 0
    counted = extra if goes_on else bits << np.uint64(52)  # chosen first, since counting is slow
    return min(leading_zeros(counted) + (12 if goes_on else 0), 75)


@part
def _first_zeros(word):
    """The leading zeros of words that need no extra one, as a float, and 1034 for others.

    Read from the exponent of a float: vectors of AVX2 can do that, and cannot count zeros.
    """
    bits = as_bits(as_float(exponent_bits(word) | _WHOLE_BITS) - _WHOLE)
    return (_WHOLE + 1034.0) - as_float((bits >> np.uint64(52)) | _WHOLE_BITS)


@part
def _count_zeros(words, stride, key, place, zeros):
    """``zeros_of`` every ``stride``-th word, which is word ``place``… of lane 0.

    ``SIDE`` extra words are made at a time. 1024 words need more of them once in 10¹¹ blocks.
    """
    rare, count = np.empty(len(zeros) + 1, dtype=np.int64), 0
    for i in range(len(zeros)):
        zeros[i] = _first_zeros(words[stride * i])
    for i in range(len(zeros)):
        rare[count] = i
        count += zeros[i] > 11.0
    start, found = side_start(key, EXTRA_LANE), np.empty((16, SIDE), dtype=np.uint32)
    first = 0
    while first == 0 or first < count:
        for j in range(SIDE):
            at = place + stride * (rare[first + j] if first + j < count else 0)
            start[12, j] = np.uint32(at // 8)
        side_by_side(start, found)
        for j in range(SIDE):
            i = rare[first + j] if first + j < count else 0
            word, at = words[stride * i], place + stride * i
            low = 2 * (at % 8)
            extra = np.uint64(found[low, j]) | (np.uint64(found[low + 1, j]) << np.uint64(32))
            zeros[i] = np.float64(zeros_of(word, extra))
        first += SIDE


@part
def laplace(words, key, place, draws):
    """Standard Laplace draws."""
    _count_zeros(words, 1, key, place, draws)
    for i in range(len(draws)):
        word = words[i]
        bits = as_bits(log_uniform(word, draws[i]))
        draws[i] = as_float(bits ^ (~word & _TOP_BIT))  # ln u, or its opposite


@part
def planar_t(words, key, place, nu, scale, radius, cosine, sine):
    """Points of the plane under the t law: one a pair of words, as radius·(cosine, sine)."""
    _count_zeros(words, 2, key, place, radius)
    slope = 2.0 / nu
    for i in range(len(radius)):
        draw = -log_uniform(words[2 * i], radius[i])
        radius[i] = np.sqrt(nu * expm1(draw * slope)) * scale
    for i in range(len(radius)):
        cosine[i], sine[i] = circle(words[2 * i + 1])
