"""Sums of a whole tensor, one compiled pass, in threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.cpu.native import F32, F64, I64, kernel, part, read, write
from jopeq.kernels.threads import in_threads
from jopeq.wire.entries import LANES, READ_CHUNK


@part
def fold(lanes):
    """The sum of the lanes, by halving; they are overwritten."""
    half = len(lanes) // 2
    while half >= 1:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half //= 2
    return lanes[0]


@part
def add_terms(row, mean, power, lanes):
    """Add entries (power 1) or their squares about a mean (power 2) to the lanes."""
    if power == 1:
        for i in range(len(row)):
            lanes[i] += np.float64(row[i])
    else:
        for i in range(len(row)):
            value = np.float64(row[i]) - mean
            lanes[i] += value * value


@kernel((read(F32), read(F64)), F64, I64, write(F64))
def _add_up(row, mean, power, totals):
    """Σ entry (power 1) or Σ (entry − mean)² (power 2) of every chunk, as ``lane_sum``."""
    lanes = np.empty(LANES)
    for number in range(len(totals)):
        lanes[:] = 0.0
        start = number * READ_CHUNK
        stop = min(start + READ_CHUNK, len(row))
        for first in range(start, stop, LANES):
            add_terms(row[first : min(first + LANES, stop)], mean, power, lanes)
        totals[number] = fold(lanes)


def chunk_sums(row: NDArray[Any], mean: float | None) -> list[float]:
    """``Entries.add_up`` of float32 or float64 entries that lie side by side."""
    totals = np.empty(-(-len(row) // READ_CHUNK))
    power = 1 if mean is None else 2

    def work(begin: int, end: int) -> None:
        into = totals[begin // READ_CHUNK : -(-end // READ_CHUNK)]
        _add_up(row[begin:end], mean or 0.0, power, into)

    in_threads(work, len(row), READ_CHUNK, 1)
    return totals.tolist()
