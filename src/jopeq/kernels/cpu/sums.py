"""Sums over an update and a look for what is not finite, in one pass each."""

from __future__ import annotations

import numpy as np

from jopeq.kernels.cpu.native import F32, F64, I64, kernel, part, read, write
from jopeq.wire.scaling import LANES

_LARGEST = float(np.finfo(np.float32).max)


@part
def _fold(lanes):
    half = len(lanes) // 2
    while half >= 1:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half //= 2
    return lanes[0]


@kernel(read(F32), read(F64), F64, I64, write(F64))
def sums(narrow, wide, mean, power, totals):
    """Σ entry (power 1) or Σ (entry − mean)² (power 2) of every 65,536 entries, as ``lane_sum``."""
    lanes = np.empty(LANES)
    count = max(len(narrow), len(wide))
    for number in range(len(totals)):
        lanes[:] = 0.0
        start = number * 65536
        stop = min(start + 65536, count)
        for first in range(start, stop, LANES):
            size = min(LANES, stop - first)
            if len(narrow):
                row = narrow[first : first + size]
                if power == 1:
                    for i in range(size):
                        lanes[i] += np.float64(row[i])
                else:
                    for i in range(size):
                        value = np.float64(row[i]) - mean
                        lanes[i] += value * value
            else:
                wider = wide[first : first + size]
                if power == 1:
                    for i in range(size):
                        lanes[i] += wider[i]
                else:
                    for i in range(size):
                        value = wider[i] - mean
                        lanes[i] += value * value
        totals[number] = _fold(lanes)


@kernel(read(F32), read(F64), returns=I64)
def count_bad(narrow, wide):
    """How many entries are not finite, or beyond float32."""
    bad = 0
    for i in range(len(narrow)):
        bad += not abs(narrow[i]) <= np.float32(_LARGEST)
    for i in range(len(wide)):
        bad += not abs(wide[i]) <= _LARGEST
    return bad
