"""The exact total of clipped rows, in threads over rows: the integers of ``sums.clipped_total``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.cpu.measure import add_terms, fold
from jopeq.kernels.cpu.native import F32, F64, I64, kernel, part, read, write
from jopeq.kernels.threads import in_threads
from jopeq.wire.entries import LANES, READ_CHUNK

_MEMORY = 1 << 25  # bytes for the totals of all threads but one


@part
def _energy(row, lanes):
    """Σ x² in the order of ``lane_sum``, a chunk at a time."""
    energy = 0.0
    for start in range(0, len(row), READ_CHUNK):
        stop = min(start + READ_CHUNK, len(row))
        lanes[:] = 0.0
        for first in range(start, stop, LANES):
            add_terms(row[first : min(first + LANES, stop)], 0.0, 2, lanes)
        energy += fold(lanes)
    return energy


@part
def _add_row(row, factor, sign, total):
    """Add the row's integers; whether Σn² ≤ 2⁶².

    The sum of the upper halves cannot wrap below 2³³ entries, and shows whether that of the whole
    squares has: |n| < 2³¹, as the norm is no less than any entry.
    """
    exactly, upper = np.int64(0), np.int64(0)
    for i in range(len(row)):
        n = np.int64(np.int32(np.float64(row[i]) * factor))
        total[i] += sign * n
        exactly += n * n
        upper += (n * n) >> 32
    return upper <= 3 << 29 and exactly <= 1 << 62


@part
def _add_clipped(row, zeros, clip, shrunk, lanes, total):
    energy = _energy(row, lanes)
    is_finite = np.isfinite(energy)
    factor = shrunk / max(np.sqrt(energy), clip) if is_finite else 0.0
    used = row if is_finite else zeros  # the same work for every row
    if not _add_row(used, factor, 1, total):
        _add_row(used, factor, -1, total)


@kernel((read(F32), read(F64)), I64, F64, F64, write(I64))
def _add_rows(rows, dimension, clip, shrunk, total):
    zeros, lanes = np.zeros(dimension, dtype=rows.dtype), np.empty(LANES)
    for start in range(0, len(rows), dimension):
        _add_clipped(rows[start : start + dimension], zeros, clip, shrunk, lanes, total)


@kernel(read(F32), read(F32), read(F32), I64, F64, F64, write(I64))
def _add_products(slopes, features, bias, count, clip, shrunk, total):
    classes, width, more = len(slopes) // count, len(features) // count, len(bias) // count
    row, lanes = np.empty(classes * width + more, dtype=np.float32), np.empty(LANES)
    none = np.zeros_like(row)
    for i in range(count):
        mine = features[i * width : (i + 1) * width]
        for one in range(classes):
            slope = slopes[i * classes + one]
            for j in range(width):
                row[one * width + j] = slope * mine[j]
        row[classes * width :] = bias[i * more : (i + 1) * more]
        _add_clipped(row, none, clip, shrunk, lanes, total)


def _in_parts(
    count: int, total: NDArray[np.int64], add: Callable[[slice, NDArray[np.int64]], None]
) -> None:
    """Add some of ``count`` rows to a total in each thread, and then the totals."""

    def work(begin: int, end: int) -> NDArray[np.int64]:
        mine = total if begin == 0 else np.zeros_like(total)
        add(slice(begin, end), mine)
        return mine

    parts = 1 + _MEMORY // total.nbytes
    for other in in_threads(work, count, -(-count // parts), len(total))[1:]:
        total += other


def add_clipped(rows: NDArray[Any], clip: float, shrunk: float, total: NDArray[np.int64]) -> None:
    """Add the integers of float32 or float64 rows, which lie side by side, to ``total``."""

    def add(some: slice, mine: NDArray[np.int64]) -> None:
        _add_rows(rows[some].reshape(-1), len(mine), clip, shrunk, mine)

    _in_parts(len(rows), total, add)


def add_products(
    products: tuple[NDArray[np.float32], ...],
    clip: float,
    shrunk: float,
    total: NDArray[np.int64],
) -> None:
    """``add_clipped`` for the rows slopes ⊗ features, then bias, which are made one at a time."""

    def add(some: slice, mine: NDArray[np.int64]) -> None:
        parts = [np.ascontiguousarray(one[some]).reshape(-1) for one in products]
        _add_products(*parts, some.stop - some.start, clip, shrunk, mine)

    _in_parts(len(products[0]), total, add)
