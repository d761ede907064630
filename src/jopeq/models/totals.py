"""Exact totals of products: rows and errors become integers, and one matrix product adds them up.

A row x of length at most 1 becomes 15-bit integers, an error of length at most 1 16-bit integers.
Float64 holds their products, and sums of fewer than 2²² of them, exactly: neither the order of
adding nor the number of threads changes a bit. Totals are in units of 2⁻³¹ like ``ClippedTotal``'s.
Every record moves one by a vector of norm at most 1, which is checked in integers: a record that
fails counts as zeros (docs/guarantees.md, section "models").
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jopeq.random.portable import squares

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CHUNK = 1024  # records in one matrix product
MOST_RECORDS = (1 << 22) - 1  # of one hospital: Σ|products| ≤ 2⁵²
ROW_SCALE = float((1 << 15) - 64)  # so that rounding leaves no row longer than 2¹⁵
ERROR_SCALE = float((1 << 16) - 256)
_ROW, _ERROR = 1 << 15, 1 << 16
_UNIT = 1 << 31
_ROOT, _ROOT_SHIFT = 1448, 9  # 1448/2⁹ is just below 2√2
_TINY = 1e-100  # of a norm: squares of smaller numbers vanish, and norms would be wrong
_WEIGHT_BITS = 37  # of the norm of integer weights: with rows of 15 bits below 2⁵³


def packed_size(size: int) -> int:
    """Entries of the upper triangle of a symmetric matrix."""
    return size * (size + 1) // 2


def to_integers(values: Array, scale: float, most: int) -> Array:
    """Rounded rows; zeros where the row's squares add up to more than ``most``."""
    found = np.rint(values * scale)
    found[~(squares(found) <= most)] = 0.0
    return found


def row_integers(rows: Array) -> Array:
    """Rows in 15 bits per entry, so short that packed x xᵀ has norm at most 2³¹ units."""
    return to_integers(rows, ROW_SCALE, (1 << 30) - _margin(rows.shape[1]))


def error_integers(errors: Array) -> Array:
    """Errors in 16 bits per entry, of length at most 2¹⁶."""
    return to_integers(errors, ERROR_SCALE, 1 << 32)


def products(rows: Array, errors: Array) -> Integers:
    """Σ x ⊗ e of integer rows and errors, in units of 2⁻³¹."""
    return (rows.T @ errors).astype(np.int64)


def weigh(rows: Array, errors: Array, weights: Array) -> tuple[Array, Array]:
    """(rows, √w·rows) in integers, so short that (x·e, packed w·x xᵀ) has norm at most 2³¹ units.

    Rows are integers, errors integers (m, 1), weights from 0 to 1. Rows that do not fit are zeros.
    """
    roots = np.rint(rows * np.sqrt(weights)[:, None])
    lengths, slopes = squares(rows), squares(errors)
    curves = 2.0 * squares(roots) + _margin(rows.shape[1])  # all three are whole, below 2⁵³
    fits = (curves <= _UNIT) & (slopes <= 1 << 32) & (lengths <= 1 << 30)
    length, slope, curve = (
        np.where(fits, one, 0.0).astype(np.int64) for one in (lengths, slopes, curves)
    )
    fits &= length * slope <= _UNIT**2 - curve**2  # of integers up to 2⁶²
    return np.where(fits[:, None], rows, 0.0), np.where(fits[:, None], roots, 0.0)


def pack(gram: Integers) -> Integers:
    """The upper triangle by rows: the diagonal twice, the rest times 1448/512, rounded down.

    Packed x xᵀ has a norm of at most 2‖x‖² plus one unit for every rounded entry.
    """
    rows = [(gram[index, index:] * _ROOT) >> _ROOT_SHIFT for index in range(len(gram))]
    for index, row in enumerate(rows):
        row[0] = 2 * gram[index, index]
    return np.concatenate(rows)


def unpack(values: Array, size: int) -> Array:
    """The symmetric matrix Σ x xᵀ of a packed total, in the rows' own units."""
    found, first = np.zeros((size, size)), 0
    for index in range(size):
        last = first + size - index
        found[index, index:] = found[index:, index] = values[first:last]
        first = last
    found *= 2.0 * (1 << _ROOT_SHIFT) / _ROOT
    np.fill_diagonal(found, found.diagonal() * _ROOT / (2 << _ROOT_SHIFT))
    return found * (_ROW / ROW_SCALE) ** 2


def unpack_products(values: Array, size: int) -> Array:
    """Σ x ⊗ e of a total, (size, errors), in the units of rows and errors."""
    return values.reshape(size, -1) * ((_ROW / ROW_SCALE) * (_ERROR / ERROR_SCALE))


def logits(rows: Array, weights: Array) -> Array:
    """⟨x, w⟩ for integer rows and every column of weights, (m, columns), exact in any order."""
    largest = float(np.sqrt(squares(weights.T)).max(initial=0.0)) / ROW_SCALE
    shift = _WEIGHT_BITS - 1 - math.frexp(max(largest, _TINY))[1]
    whole = np.rint(np.ldexp(weights / ROW_SCALE, shift))
    return np.ldexp(rows @ whole, -shift)


def _margin(size: int) -> int:
    """The norm that rounding down a packed product's entries can add, rounded up."""
    return math.isqrt(packed_size(size)) + 1
