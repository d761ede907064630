"""``portable`` and ``samplers`` for one number at a time, rounding by rounding the same."""

from __future__ import annotations

import math

import numpy as np

from jopeq.kernels.cpu.native import as_bits, as_float, leading_zeros, part
from jopeq.random import portable

_LN2_HIGH, _LN2_LOW = portable.LN2_HIGH, portable.LN2_LOW
_INVERSE_LN2 = 1.0 / math.log(2.0)
_ROOT_HALF = math.sqrt(0.5)
_HALF_BITS = np.uint64(0x3FE << 52)  # the exponent of numbers in [½, 1)
_FRACTION = np.uint64((1 << 52) - 1)
_LOW51 = np.uint64((1 << 51) - 1)
_LOW12 = np.uint64((1 << 12) - 1)
_QUADRANT = math.pi / 2

_A11, _A10, _A9, _A8, _A7, _A6, _A5, _A4, _A3, _A2, _A1 = portable.ATANH_TERMS
_E14, _E13, _E12, _E11, _E10, _E9, _E8, _E7, _E6, _E5, _E4, _E3, _E2, _E1, _E0 = portable.EXP_TERMS
_S8, _S7, _S6, _S5, _S4, _S3, _S2, _S1, _S0 = portable.SIN_TERMS
_C9, _C8, _C7, _C6, _C5, _C4, _C3, _C2, _C1, _C0 = portable.COS_TERMS


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
def log(x):
    """ln x for a normal x > 0."""
    bits = as_bits(x)
    exponent = np.float64(np.int64(bits >> np.uint64(52)) - 1022)
    return log_of_parts(as_float((bits & _FRACTION) | _HALF_BITS), exponent)


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
def zeros_of(word):
    """Leading zeros of the twelve bits; twelve when there are none set."""
    return leading_zeros(exponent_bits(word)) - 52


@part
def zeros_beyond(extra):
    """All twelve being zero, the count goes on in another word."""
    return min(12 + leading_zeros(extra), 75)


@part
def _exp_parts(x):
    """eˣ = (1 + r·h)·factor, as (r, h, factor)."""
    power = np.floor(x * _INVERSE_LN2 + 0.5)
    r = (x - power * _LN2_HIGH) - power * _LN2_LOW
    h = (((_E14 * r + _E13) * r + _E12) * r + _E11) * r + _E10
    h = (((h * r + _E9) * r + _E8) * r + _E7) * r + _E6
    h = (((h * r + _E5) * r + _E4) * r + _E3) * r + _E2
    h = h * r + _E1
    return r, h, as_float(np.uint64(np.int64(power) + 1023) << np.uint64(52))


@part
def expm1(x):
    """eˣ − 1 for 0 ≤ x < 700."""
    r, h, factor = _exp_parts(x)
    return factor * (r * h) + (factor - 1.0)


@part
def exp(x):
    """eˣ for −700 < x < 700."""
    r, h, factor = _exp_parts(x)
    return (h * r + _E0) * factor


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


@part
def unit(word):
    """(w + ½)·2⁻⁶⁴."""
    return (np.float64(word) + 0.5) * 2.0**-64
