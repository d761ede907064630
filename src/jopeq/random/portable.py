"""log, exp and circle points from +, −, ×, ÷ and √ alone.

Those five are exact to the last bit on every IEEE 754 machine, the library functions of the same
name are not. Written this way, NumPy, a compiled loop and a GPU draw the same noise from the same
bits. All are accurate to a few units of 10⁻¹⁶, relative; the tests compare them with NumPy's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LN2_HIGH = 6.93147180369123816490e-01  # trailing zeros, so that e·LN2_HIGH is exact
LN2_LOW = 1.90821492927058770002e-10
ATANH_TERMS = tuple(1.0 / (2 * k + 1) for k in range(11, 0, -1))
EXP_TERMS = tuple(1.0 / math.factorial(k) for k in range(14, -1, -1))
EXPM1_TERMS = tuple(1.0 / math.factorial(k) for k in range(14, 0, -1))
SIN_TERMS = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))
COS_TERMS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9, -1, -1))


def _horner(terms: tuple[float, ...], x: Array) -> Array:
    total = np.full_like(x, terms[0])
    for term in terms[1:]:
        total *= x
        total += term
    return total


def log(x: Array) -> Array:
    """ln x for x > 0: exponent·ln 2 + 2·artanh((m−1)/(m+1)) with m in [√½, √2)."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < math.sqrt(0.5)
    np.add(mantissa, mantissa, out=mantissa, where=small)
    power = (exponent - small).astype(np.float64)
    # In place from here on: fresh arrays of this size cost more than the arithmetic.
    s = mantissa - 1.0
    mantissa += 1.0
    s /= mantissa
    square = np.multiply(s, s, out=mantissa)
    tail = s * square
    tail *= _horner(ATANH_TERMS, square)
    tail *= 2.0
    tail += power * LN2_LOW
    s *= 2.0
    tail += s
    power *= LN2_HIGH
    power += tail
    return power


def exp(x: Array) -> Array:
    """eˣ: 2ᵏ · e^r with k = round(x / ln 2)."""
    power = np.floor(x * (1.0 / math.log(2.0)) + 0.5)
    rest = (x - power * LN2_HIGH) - power * LN2_LOW
    return np.ldexp(_horner(EXP_TERMS, rest), power.astype(np.int32))


def expm1(x: Array) -> Array:
    """eˣ − 1, also where x is tiny: 2ᵏ·(e^r − 1) + (2ᵏ − 1)."""
    power = np.floor(x * (1.0 / math.log(2.0)) + 0.5)
    rest = (x - power * LN2_HIGH) - power * LN2_LOW
    factor = np.ldexp(1.0, power.astype(np.int32))
    return np.asarray(factor * (rest * _horner(EXPM1_TERMS, rest)) + (factor - 1.0))


def circle(words: NDArray[np.uint64]) -> tuple[Array, Array]:
    """(cos, sin) of a uniform angle: two bits choose the quadrant, 52 the place in it."""
    quadrant = (words >> np.uint64(62)).astype(np.int64)
    place = ((words >> np.uint64(10)) & np.uint64((1 << 52) - 1)).astype(np.float64)
    angle = ((place + 0.5) * 2.0**-52 - 0.5) * (math.pi / 2)  # in (−π/4, π/4)
    square = angle * angle
    sine = angle * _horner(SIN_TERMS, square)
    cosine = _horner(COS_TERMS, square)
    is_odd = (quadrant & 1) == 1
    x = np.where(is_odd, -sine, cosine)
    y = np.where(is_odd, cosine, sine)
    flip = np.where(quadrant >= 2, -1.0, 1.0)
    return x * flip, y * flip


def total(rows: Array) -> Array:
    """Sum of each row, added from left to right."""
    return np.asarray(np.add.accumulate(rows, axis=1)[:, -1])


def squares(rows: Array, weights: tuple[float, ...] | None = None) -> Array:
    """(Weighted) sum of squares of each row, added from left to right."""
    total = np.zeros(len(rows))
    for column in range(rows.shape[1]):
        square = rows[:, column] * rows[:, column]
        total += square if weights is None else square * weights[column]
    return total
