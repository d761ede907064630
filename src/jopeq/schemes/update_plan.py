"""How ``response`` codes a whole update: how many coordinates, which, and with how many letters.

Only +, −, ×, ÷, √ and the portable functions are used, so that both ends choose alike on any
machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq import portable
from jopeq.channel import MAX_LETTERS
from jopeq.codebook import letters_for_rate
from jopeq.randomness import SharedStream
from jopeq.rational import MAX_EPSILON
from jopeq.schemes.response import Response

Array = NDArray[np.float64]

CLAMPED_CHANCE = 1e-6  # that some kept coordinate of an update is beyond the bound
_CHOICE_LANE = 2
# (i + ½)/16 quantiles of |N(0, 1)|, written out so that both ends choose alike on any machine
_NORMAL = (
    *(0.0392, 0.1178, 0.1971, 0.2777, 0.3601, 0.4451, 0.5334, 0.6261),
    *(0.7245, 0.8305, 0.9468, 1.0775, 1.2299, 1.4178, 1.6759, 2.1539),
)


@dataclass(frozen=True)
class Plan:
    """How an update of one dimension is coded: n, k, β, and the response of each coordinate."""

    dimension: int
    padded: int
    kept: int
    bound: float
    response: Response

    def choose(self, shared: SharedStream) -> NDArray[np.int64]:
        """The kept coordinates, in ascending order, every set of k equally likely.

        The first m distinct values of w mod n, over the 64-bit words w of lane 2 (exactly uniform,
        as n is a power of two), are those kept if m = k ≤ n/2, else those left out, m = n − k.
        """
        leaves_out = 2 * self.kept > self.padded
        wanted = self.padded - self.kept if leaves_out else self.kept
        drawn = wanted + wanted // 2
        while True:
            words = shared.words64(lane=_CHOICE_LANE, start=0, count=drawn)
            values, first = np.unique(words & np.uint64(self.padded - 1), return_index=True)
            if len(values) >= wanted:
                break
            drawn = 2 * drawn + 1
        chosen = np.sort(values[np.argsort(first)[:wanted]]).astype(np.int64)
        return np.delete(np.arange(self.padded), chosen) if leaves_out else chosen


@lru_cache(maxsize=1024)
def plan_for(epsilon: float, rate: float, k: int | None, dimension: int) -> Plan:
    """The plan of least expected error, or the one with ``k`` coordinates."""
    padded = 1 << (dimension - 1).bit_length()
    counts = np.array(counts_to_try(epsilon, dimension) if k is None else [k])
    letters = np.arange(2, min(letters_for_rate(rate, 1), MAX_LETTERS) + 1)
    errors = expected_errors(epsilon, dimension, padded, counts[:, None], letters[None, :])
    row, column = divmod(int(np.argmin(errors)), len(letters))  # ties: fewest coordinates, letters
    kept, levels = int(counts[row]), int(letters[column])
    response = Response(
        epsilon=_each(epsilon, kept), rate=rate, channel="randomized", levels=levels, clip=1.0
    )
    bound = math.sqrt(float(_square_bound(counts, padded)[row]))
    return Plan(dimension, padded, kept, bound, response)


def counts_to_try(epsilon: float, dimension: int) -> list[int]:
    """Values of k to try, ascending. Beyond 2ε each coordinate's ε is below ½: never worth it."""
    most = max(1, math.floor(min(float(dimension), 2.0 * epsilon)))
    tried = {most, *range(1, min(most, 32) + 1)}
    for zeros in range(most.bit_length()):
        tried.update(digits << zeros for digits in range(32, 64) if digits << zeros <= most)
    return sorted(tried)


def _square_bound(counts: NDArray[np.int64], padded: int) -> Array:
    """β²."""
    tail = 2.0 * portable.log(2.0 / CLAMPED_CHANCE * counts.astype(np.float64))
    return np.minimum(1.0, tail / padded)


def expected_errors(
    epsilon: float,
    dimension: int,
    padded: int,
    counts: NDArray[np.int64],
    letters: NDArray[np.int64],
) -> Array:
    """E‖h̃ − h‖²/C² at ‖h‖ = C, the coordinates taken as Gaussian."""
    square_bound = _square_bound(counts, padded)
    square = 1.0 / (padded * square_bound)  # mean square of a coordinate, in units of β²C²
    reach = np.sqrt(square)
    rounding = np.zeros(np.broadcast_shapes(counts.shape, letters.shape))
    for quantile in _NORMAL:
        place = (np.minimum(quantile * reach, 1.0) + 1.0) * (letters - 1) * 0.5
        rest = place - np.floor(place)
        rounding += rest * (1.0 - rest)
    spacing = 4.0 / ((letters - 1) * (letters - 1))  # Δ²
    level = square + spacing * (rounding * (1.0 / len(_NORMAL)))  # E v_j²
    ratio = portable.exp(np.minimum(epsilon / counts, MAX_EPSILON))
    gain = (ratio + (letters - 1)) / (ratio - 1.0)
    all_levels = letters * (letters + 1) / (3.0 * (letters - 1))  # Σ_j v_j²
    channel = gain * (all_levels / (ratio - 1.0) + level) - level + spacing / 12.0
    sampling = (dimension - 1.0) * (padded - counts) / (counts * max(padded - 1.0, 1.0))
    errors: Array = sampling + (dimension / counts) * (padded * square_bound) * channel
    return errors


def _each(epsilon: float, kept: int) -> float:
    """The largest ε′ with kε′ ≤ ε, exactly."""
    each = epsilon / kept
    return each if Fraction(each) * kept <= Fraction(epsilon) else math.nextafter(each, 0.0)
