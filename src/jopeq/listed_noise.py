"""Exponential noise on A2 from a list of its points with integer probabilities.

One 128-bit word draws a point: the list is sorted by probability, and the point is the number of
cumulative counts that the word has reached. Points up to 55/a have more than 2³⁸ words of 2¹²⁸, so
that no ratio of their probabilities is off by more than 10⁻¹¹, which the allowance of
``staircase_lattice`` covers. The list goes on by the longest move, so that what is within 55/a of
one input is listed for every other; rarer points have their share rounded up to a whole word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq.codebook import points_within
from jopeq.lattice import Lattice
from jopeq.randomness import PrivateStream

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_REACH = 55.0  # in units of 1/a: e⁻⁵⁵ is 2⁻⁷⁹
_TOTAL_BITS = 128
_MOST_POINTS = 1 << 19  # a ≥ 0.145
_LOW = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class ListedNoise:
    """Points in basis coordinates, most probable first, and their cumulative counts."""

    coordinates: Integers
    high: Words  # the upper 64 bits of the cumulative counts but the last
    low: Words
    escape: float  # probability of the points so far out that a move may carry them off the list

    def sample(self, stream: PrivateStream, start: int, count: int) -> Integers:
        """Basis coordinates of noise points ``start``…: words 2i (upper) and 2i + 1 of lane 0."""
        words = stream.words64(lane=0, start=2 * start, count=2 * count)
        upper, lower = words[0::2], words[1::2]
        places = np.searchsorted(self.high, upper, side="left")
        inside = np.minimum(places, len(self.high) - 1)
        for i in np.flatnonzero(self.high[inside] == upper):  # the lower halves decide
            while places[i] < len(self.high) and self._has_reached(places[i], upper[i], lower[i]):
                places[i] += 1
        return self.coordinates[places]

    def _has_reached(self, place: int, upper: np.uint64, lower: np.uint64) -> bool:
        return bool(self.high[place] == upper and self.low[place] <= lower)


@lru_cache(maxsize=8)
def listed_noise(name: str, decay: float, move: float = 0.0) -> ListedNoise | None:
    """The list for P(k) ∝ e^{−a‖k‖}; None on other lattices, and where it would be too long."""
    radius = _REACH / decay
    if name != "A2" or 2.0 * math.pi * radius * radius / math.sqrt(3.0) > _MOST_POINTS:
        return None
    found = points_within(Lattice(name), np.zeros(2), radius + move)
    squares = found[:, 0] ** 2 + found[:, 0] * found[:, 1] + found[:, 1] ** 2
    order = np.lexsort((found[:, 1], found[:, 0], squares))
    shells, sizes = np.unique(squares[order], return_counts=True)
    weights = np.exp(-decay * np.sqrt(shells.astype(np.float64)))
    total = math.fsum((weights * sizes).tolist())
    shares = weights / total * (1.0 - 2.0**-50)  # whatever was rounded, their sum is not above 1
    counts = [max(1, math.ceil(math.ldexp(share, _TOTAL_BITS))) for share in shares.tolist()]
    # what is left over, less than one part in 10¹², goes to the origin
    rest = (1 << _TOTAL_BITS) - sum(c * n for c, n in zip(counts, sizes.tolist(), strict=True))
    is_far = shells > radius * radius * (1.0 - 1e-9)
    if not 0 <= rest < counts[0] >> 40 or min(np.array(counts)[~is_far]) < 1 << 38:
        raise ArithmeticError("the counts of the listed noise do not fit 2¹²⁸ words")
    reached, cumulative = rest, []
    for shell, size in zip(counts, sizes.tolist(), strict=True):
        for _ in range(size):
            reached += shell
            cumulative.append(reached)
    beyond = sum(c * n for c, n, far in zip(counts, sizes.tolist(), is_far, strict=True) if far)
    escape = math.ldexp(beyond + len(found), -_TOTAL_BITS)  # and what was rounded up
    halves = [(value >> 64, value & _LOW) for value in cumulative[:-1]]
    high, low = np.array(halves, dtype=np.uint64).T
    ends = (np.ascontiguousarray(high), np.ascontiguousarray(low))
    return ListedNoise(found[order], *ends, escape)
