"""Rounding by a discrete Gaussian: an integer whose law is centred at any point of a fine grid.

P(k | y) ∝ e^{−(k − y)²/2σ²} on the integers. The law has the mean y but for e^{−2π²σ²}, and the
Gaussian's variance: noise and rounding in one draw. Its probabilities are counts of 64-bit words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from operator import sub

import numpy as np
from numpy.typing import NDArray

GRID = 256  # places between two integers, a power of two
DRAW_LANE, ROUND_LANE = 0, 1  # of the private stream: words for the draws, bytes for the places
_TOTAL = 1 << 64
_CONTEXT = Context(prec=90, rounding=ROUND_HALF_EVEN)  # whatever the app has chosen
_SCALE = 288  # bits after the point of a weight
_REACH = 9  # standard deviations: 2·10⁻¹⁹ lie beyond, four words of 2⁶⁴
_SLACK = Decimal("1e-50")


@dataclass(frozen=True)
class GaussianRounding:
    """Draws of standard deviation ``sigma64``/64 about places y/``grid``.

    >>> law = GaussianRounding(96)
    >>> law.thresholds.shape, law.draw(np.array([128]), np.array([1 << 63], np.uint64)).tolist()
    ((256, 29), [1])
    """

    sigma64: int
    grid: int = GRID

    @property
    def reach(self) -> int:
        """T: letters are ⌊y⌋ − T … ⌊y⌋ + T + 1; the outermost stand for all beyond."""
        return math.ceil(_REACH * self.sigma64 / 64)

    @property
    def shift(self) -> int:
        """log2 of the grid."""
        return self.grid.bit_length() - 1

    @property
    def columns(self) -> int:
        """Thresholds of a row."""
        return 2 * self.reach + 1

    @cached_property
    def _rows(self) -> tuple[list[list[int]], Decimal]:
        return _rows(self.sigma64, self.reach, self.grid)

    @cached_property
    def thresholds(self) -> NDArray[np.uint64]:
        """Cumulative counts, a row for each place between two integers, without the last (2⁶⁴)."""
        return np.array(self._rows[0], dtype=np.uint64)

    @property
    def variation(self) -> Decimal:
        """The largest total variation between a row and its ideal law, rounded up."""
        return self._rows[1]

    @cached_property
    def search_table(self) -> NDArray[np.uint64]:
        """The thresholds, each row filled up to 2ⁿ with 2⁶⁴ − 1, for a search in n steps."""
        filled = (1 << self.columns.bit_length()) - self.columns
        return np.pad(self.thresholds, ((0, 0), (0, filled)), constant_values=~np.uint64(0))

    @cached_property
    def guide(self) -> NDArray[np.uint8]:
        """How many thresholds the first of the words with each upper byte has reached."""
        firsts = np.arange(256, dtype=np.uint64) << np.uint64(56)
        found = [np.searchsorted(row, firsts, side="right") for row in self.thresholds]
        return np.array(found, dtype=np.uint8)

    def draw(self, places: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The integer of each place: ⌊y⌋ − T plus how many thresholds of its row w has reached."""
        table = self.search_table
        width, flat = table.shape[1], table.reshape(-1)
        first = (places & (self.grid - 1)) * width
        count = np.zeros(len(places), dtype=np.int64)
        step = width // 2
        while step:
            count += step * (words >= flat[first + count + (step - 1)])
            step //= 2
        np.minimum(count, self.columns, out=count)  # a word of 2⁶⁴ − 1 passes them all
        return (places >> self.shift) - self.reach + count

    def chances(self, place: int) -> tuple[int, NDArray[np.float64]]:
        """(smallest letter, P of it and of those that follow) at y = place/grid."""
        counts = [0, *self._rows[0][place % self.grid], _TOTAL]
        chances = np.array([(high - low) / _TOTAL for low, high in pairwise(counts)])
        return place // self.grid - self.reach, chances


@lru_cache(maxsize=64)
def _rows(sigma64: int, reach: int, grid: int) -> tuple[list[list[int]], Decimal]:
    """Thresholds of every place, and the largest total variation.

    e^{−(k − f/G)²/2σ²} = E^{m²} with m = Gk − f and E = e^{−1/(2G²σ²)}: every weight comes from one
    row of powers, in fixed point. The powers are off by less than 2⁻²²⁰.
    """
    with localcontext(_CONTEXT):
        base = (-Decimal(64 * 64) / (2 * grid * grid * sigma64 * sigma64)).exp()
        factor = int(base * (1 << _SCALE))
    beyond = 2 * reach  # weights out there are below 10⁻⁷⁰
    square, power = factor * factor >> _SCALE, 1 << _SCALE
    powers = [power]
    for _ in range(grid * (beyond + 2)):
        power = power * factor >> _SCALE
        factor = factor * square >> _SCALE
        powers.append(power)
    rows, worst = [], Fraction(0)
    first, last = beyond - reach, beyond + reach + 1
    for place in range(grid):
        weights = powers[place + grid * beyond :: -grid]  # of k = −beyond … 0
        weights += powers[grid - place : grid * (beyond + 1) - place + 1 : grid]
        cumulative = list(accumulate(weights))
        total = cumulative[-1]
        half = total >> 1
        row = [((one << 64) + half) // total for one in cumulative[first:last]]
        for column in range(len(row) - 1, -1, -1):
            if row[column] < _TOTAL:
                break
            row[column] = _TOTAL - 1
        counts = map(sub, [*row, _TOTAL], [0, *row])
        ideal = (one << 64 for one in weights[first : last + 1])
        gap = sum(abs(mine * total - its) for mine, its in zip(counts, ideal, strict=True))
        lost = total - sum(weights[first : last + 1])
        worst = max(worst, Fraction(gap + (lost << 64), total << 65))
        rows.append(row)
    with localcontext(_CONTEXT):
        return rows, Decimal(worst.numerator) / Decimal(worst.denominator) + _SLACK
