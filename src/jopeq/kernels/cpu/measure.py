"""Sums and checks of a whole tensor by compiled kernels, in threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.cpu import sums as cpu_measure
from jopeq.kernels.threads import in_threads
from jopeq.wire.entries import READ_CHUNK

_NARROW, _WIDE = np.empty(0, dtype=np.float32), np.empty(0)


def chunk_sums(flat: NDArray[Any], mean: float | None) -> list[float]:
    """As ``scaling.sums``, for float32 and float64."""
    totals = np.empty(-(-len(flat) // READ_CHUNK))
    power = 1 if mean is None else 2
    if len(totals) == 1:
        cpu_measure.sums(*_typed(flat), mean or 0.0, power, totals)
        return totals.tolist()

    def work(begin: int, end: int) -> None:
        into = totals[begin // READ_CHUNK : -(-end // READ_CHUNK)]
        cpu_measure.sums(*_typed(flat[begin:end]), mean or 0.0, power, into)

    in_threads(work, len(flat), READ_CHUNK, 1)
    return totals.tolist()


def is_finite(flat: NDArray[Any]) -> bool:
    """Whether every entry is finite and within float32."""

    def work(begin: int, end: int) -> int:
        return cpu_measure.count_bad(*_typed(flat[begin:end]))

    return not any(in_threads(work, len(flat), READ_CHUNK, 1))


def _typed(flat: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    return (flat, _WIDE) if flat.dtype.char == "f" else (_NARROW, flat)
