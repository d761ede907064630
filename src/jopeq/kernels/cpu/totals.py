"""The exact total of clipped rows, in threads over rows: the integers of ``sums.clipped_total``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.cpu.measure import add_terms, fold
from jopeq.kernels.cpu.native import F32, F64, I64, kernel, part, read, write
from jopeq.kernels.threads import in_threads
from jopeq.wire.entries import LANES, READ_CHUNK

_NARROW, _WIDE = np.empty(0, dtype=np.float32), np.empty(0)
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


@kernel(read(F32), read(F64), I64, F64, F64, write(I64))
def _add_rows(narrow, wide, dimension, clip, shrunk, total):
    lanes = np.empty(LANES)
    if len(narrow):
        none = np.zeros(dimension, dtype=np.float32)
        for start in range(0, len(narrow), dimension):
            row = narrow[start : start + dimension]
            _add_clipped(row, none, clip, shrunk, lanes, total)
    else:
        zeros = np.zeros(dimension)
        for start in range(0, len(wide), dimension):
            row = wide[start : start + dimension]
            _add_clipped(row, zeros, clip, shrunk, lanes, total)


def add_clipped(rows: NDArray[Any], clip: float, shrunk: float, total: NDArray[np.int64]) -> None:
    """Add the integers of float32 or float64 rows, which lie side by side, to ``total``."""
    count, dimension = rows.shape
    flat = rows.reshape(-1)
    narrow, wide = (flat, _WIDE) if rows.dtype.char == "f" else (_NARROW, flat)

    def work(begin: int, end: int) -> NDArray[np.int64]:
        mine = total if begin == 0 else np.zeros_like(total)
        some = slice(begin * dimension, end * dimension)
        _add_rows(narrow[some], wide[some], dimension, clip, shrunk, mine)
        return mine

    parts = 1 + _MEMORY // total.nbytes
    for other in in_threads(work, count, -(-count // parts), dimension)[1:]:
        total += other
