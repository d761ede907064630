"""Rounding by a discrete Gaussian: an integer whose law is centred at any point of a grid of 1/256.

P(k | y) ∝ e^{−(k − y)²/2σ²} on the integers. The law has the mean y but for e^{−2π²σ²}, and the
Gaussian's variance: noise and rounding in one draw. Its probabilities are counts of 64-bit words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

GRID = 256  # places between two integers
DRAW_LANE, ROUND_LANE = 0, 1  # of the private stream: words for the draws, bytes for the places
_TOTAL = 1 << 64
_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)  # whatever the app has chosen
_REACH = 9  # standard deviations: 2·10⁻¹⁹ lie beyond, four words of 2⁶⁴
_SLACK = Decimal("1e-50")
_NOTHING = Decimal(0)


@dataclass(frozen=True)
class GaussianRounding:
    """Draws of standard deviation ``sigma64``/64 about places y/256.

    >>> law = GaussianRounding(96)
    >>> law.thresholds.shape, law.draw(np.array([128]), np.array([1 << 63], np.uint64)).tolist()
    ((256, 29), [1])
    """

    sigma64: int

    @property
    def reach(self) -> int:
        """T: letters are ⌊y⌋ − T … ⌊y⌋ + T + 1; the outermost stand for all beyond."""
        return math.ceil(_REACH * self.sigma64 / 64)

    @property
    def columns(self) -> int:
        """Thresholds of a row."""
        return 2 * self.reach + 1

    @cached_property
    def _rows(self) -> tuple[list[list[int]], Decimal]:
        return _rows(self.sigma64, self.reach)

    @cached_property
    def thresholds(self) -> NDArray[np.uint64]:
        """Cumulative counts, a row for each of 256 places, without the last (2⁶⁴)."""
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
        first = (places & (GRID - 1)) * width
        count = np.zeros(len(places), dtype=np.int64)
        step = width // 2
        while step:
            count += step * (words >= flat[first + count + (step - 1)])
            step //= 2
        np.minimum(count, self.columns, out=count)  # a word of 2⁶⁴ − 1 passes them all
        return (places >> 8) - self.reach + count

    def chances(self, place: int) -> tuple[int, NDArray[np.float64]]:
        """(smallest letter, P of it and of those that follow) at y = place/256."""
        counts = [0, *self._rows[0][place % GRID], _TOTAL]
        chances = np.array([(high - low) / _TOTAL for low, high in pairwise(counts)])
        return place // GRID - self.reach, chances


@lru_cache(maxsize=64)
def _rows(sigma64: int, reach: int) -> tuple[list[list[int]], Decimal]:
    """Thresholds of every place, and the largest total variation.

    e^{−(k − f/256)²/2σ²} = E^{m²} with m = 256k − f and E = e^{−1/(2·256²σ²)}: every weight comes
    from one row of powers.
    """
    with localcontext(_CONTEXT):
        beyond = 2 * reach  # weights out there are below 10⁻⁷⁰
        base = (-Decimal(64 * 64) / (2 * GRID * GRID * sigma64 * sigma64)).exp()
        square, power, factor = base * base, Decimal(1), base
        powers = [power]
        for _ in range(GRID * (beyond + 2)):
            power *= factor
            factor *= square
            powers.append(power)
        rows, worst = [], _NOTHING
        for place in range(GRID):
            weights = [powers[abs(GRID * k - place)] for k in range(-beyond, beyond + 2)]
            total, inner = sum(weights, _NOTHING), slice(beyond - reach, beyond + reach + 2)
            cumulative = sum(weights[: inner.start], _NOTHING) / total
            lost = 1 - sum(weights[inner], _NOTHING) / total
            row, reached, variation = [], 0, _NOTHING
            for weight in weights[inner][:-1]:
                cumulative += weight / total
                threshold = min(int((cumulative * _TOTAL).to_integral_value()), _TOTAL - 1)
                variation += abs(Decimal(threshold - reached) / _TOTAL - weight / total)
                row.append(threshold)
                reached = threshold
            variation += abs(Decimal(_TOTAL - reached) / _TOTAL - weights[inner][-1] / total)
            worst = max(worst, (variation + lost) / 2 + _SLACK)
            rows.append(row)
        return rows, worst
