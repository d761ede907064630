# mypy: ignore-errors
# ruff: noqa: N803 (Triton's spelling of compile-time numbers; its tuples only add)
"""``portable`` and ``samplers`` for Triton tensors, rounding by rounding the same."""

from __future__ import annotations

import math

from jopeq.kernels.gpu.jit import constant, jit, tl
from jopeq.random import portable

_ATANH, _EXPM1 = constant(portable.ATANH_TERMS), constant(portable.EXPM1_TERMS)
_SIN, _COS = constant(portable.SIN_TERMS), constant(portable.COS_TERMS)
_LN2_HIGH, _LN2_LOW = constant(portable.LN2_HIGH), constant(portable.LN2_LOW)
_INVERSE_LN2 = constant(1.0 / math.log(2.0))
_ROOT_HALF = constant(math.sqrt(0.5))
_QUADRANT = constant(math.pi / 2)


@jit
def _horner(TERMS: tl.constexpr, COUNT: tl.constexpr, x):
    total = x * TERMS[0] + TERMS[1]
    for i in tl.static_range(2, COUNT):
        total = total * x + TERMS[i]
    return total


@jit
def as_float(high, low):
    """The float64 with these halves."""
    bits = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
    return bits.to(tl.float64, bitcast=True)


@jit
def _bit_length(x):
    """Of 32-bit words; without the bit below the first, rounding to float32 keeps the exponent."""
    power = (x ^ (x & (x >> 1))).to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.where(x == 0, 0, power - 126)


@jit
def exponent_bits(high):
    """The twelve bits that choose the binade of a fine uniform; 0 asks for more of them."""
    return (high >> 19) & 0xFFF


@jit
def zeros_of(bits):
    """Leading zeros of twelve bits, not all zero."""
    return 138 - (bits.to(tl.float32).to(tl.int32, bitcast=True) >> 23)


@jit
def zeros_beyond(high, low):
    """All twelve being zero, the count goes on in another word."""
    length = tl.where(high == 0, _bit_length(low), 32 + _bit_length(high))
    return tl.minimum(76 - length, 75)


@jit
def exponential(high, low, zeros):
    """−ln u of the fine uniform of a 64-bit word that starts with so many zeros."""
    mantissa = as_float(
        ((high & 0x7FFFF) << 1) | (low >> 31) | 0x3FE00000, (low << 1) | 1
    )  # in (½, 1)
    is_small = mantissa < _ROOT_HALF
    m = tl.where(is_small, mantissa + mantissa, mantissa)
    power = (-zeros - is_small.to(tl.int32)).to(tl.float64)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    tail = (s * q * _horner(_ATANH, 11, q) * 2.0 + power * _LN2_LOW) + s * 2.0
    return -(power * _LN2_HIGH + tail)


@jit
def expm1(x):
    """eˣ − 1 for 0 ≤ x < 700."""
    power = tl.floor(x * _INVERSE_LN2 + 0.5)
    r = (x - power * _LN2_HIGH) - power * _LN2_LOW
    factor = as_float((power.to(tl.int32) + 1023) << 20, power.to(tl.int32) & 0)
    return factor * (r * _horner(_EXPM1, 14, r)) + (factor - 1.0)


@jit
def circle(high, low):
    """(cos, sin) of a uniform angle."""
    place = (((high & 0x3FFFFFFF).to(tl.int64) << 22) | (low >> 10).to(tl.int64)).to(tl.float64)
    angle = ((place + 0.5) * 2.0**-52 - 0.5) * _QUADRANT
    q = angle * angle
    sine = angle * _horner(_SIN, 9, q)
    cosine = _horner(_COS, 10, q)
    is_odd = (high & 0x40000000) != 0
    x = tl.where(is_odd, -sine, cosine)
    y = tl.where(is_odd, cosine, sine)
    is_flipped = (high >> 31) != 0
    return tl.where(is_flipped, -x, x), tl.where(is_flipped, -y, y)


@jit
def dither(word):
    """The two dithers of a 32-bit word, in units of the step: (signed half + ½)/65536."""
    signed = word.to(tl.int32, bitcast=True)
    first = (((signed << 16) >> 16).to(tl.float64) + 0.5) * 2.0**-16
    return first, ((signed >> 16).to(tl.float64) + 0.5) * 2.0**-16
