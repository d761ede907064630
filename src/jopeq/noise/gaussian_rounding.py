"""Rounding by a discrete Gaussian: an integer whose law is centred at any point of a fine grid.

P(k | y) ∝ e^{−(k − y)²/2σ²} on the integers. The law has the mean y but for e^{−2π²σ²}, and the
Gaussian's variance: noise and rounding in one draw. Its probabilities are counts of 64-bit words.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from operator import sub

import numpy as np
from numpy.typing import NDArray

from jopeq.kept import Kept

GRID = 256  # places between two integers, a power of two
DRAW_LANE, ROUND_LANE = 0, 1  # of the private stream: words for the draws, bytes for the places
_TOTAL = 1 << 64
_CONTEXT = Context(prec=90, rounding=ROUND_HALF_EVEN)  # whatever the app has chosen
_SCALE = 288  # bits after the point of a weight
_REACH = 9  # standard deviations: 2·10⁻¹⁹ lie beyond, four words of 2⁶⁴
_BEYOND = 8  # words: a variation is below half a word a threshold and these, mostly tails
_SLACK = Decimal("1e-50")
_KEPT = Kept(__file__, most=16)
_DIGITS = 112  # bytes of the variation before thresholds that are kept
_NEAR = 1e-12  # of a chance: floats that are added up are off by less


@dataclass(frozen=True)
class GaussianRounding:
    """Draws of standard deviation ``sigma64``/64 about places y/``grid``.

    >>> law = GaussianRounding(96)
    >>> law.thresholds.shape, law.draw(np.array([128]), np.array([1 << 63], np.uint64)).tolist()
    ((256, 29), [1])
    """

    sigma64: int
    grid: int = GRID

    @cached_property
    def reach(self) -> int:
        """T: letters are ⌊y⌋ − T … ⌊y⌋ + T + 1; the outermost stand for all beyond."""
        return math.ceil(_REACH * self.sigma64 / 64)

    @cached_property
    def shift(self) -> int:
        """log2 of the grid."""
        return self.grid.bit_length() - 1

    @cached_property
    def columns(self) -> int:
        """Thresholds of a row."""
        return 2 * self.reach + 1

    @cached_property
    def _rows(self) -> tuple[NDArray[np.uint64], Decimal]:
        """Thresholds and variation, from the disk if these chances are there."""
        told = _KEPT.find(self.sigma64, self.grid)
        if told is not None and len(told) == 8 * self.grid * self.columns + _DIGITS:
            rows = np.frombuffer(told, dtype="<u8", offset=_DIGITS).reshape(self.grid, -1)
            with suppress(ValueError, ArithmeticError):
                variation = Decimal(told[:_DIGITS].decode())
                most = (self.columns / 2 + _BEYOND) / _TOTAL
                if _SLACK <= variation <= most and self._has_chances(rows):
                    return rows, variation
        listed, variation = _rows(self.sigma64, self.reach, self.grid)
        rows = np.array(listed, dtype=np.uint64)
        if self.grid > GRID:  # the others are quick
            digits = str(variation).encode().ljust(_DIGITS)
            _KEPT.put(digits + rows.astype("<u8").tobytes(), self.sigma64, self.grid)
        return rows, variation

    def _has_chances(self, rows: NDArray[np.uint64]) -> bool:
        """True if thresholds are those of this law, as far as floats can tell."""
        letters = np.arange(-self.reach, self.reach + 2)
        off = letters - np.arange(self.grid)[:, None] / self.grid
        cumulative = np.cumsum(np.exp(off * off * (-(64.0**2) / 2.0 / self.sigma64**2)), axis=1)
        ideal = cumulative[:, :-1] / cumulative[:, -1:]
        return bool(np.all(np.abs(rows / 2.0**64 - ideal) <= _NEAR))

    @property
    def thresholds(self) -> NDArray[np.uint64]:
        """Cumulative counts, a row for each place between two integers, without the last (2⁶⁴)."""
        return self._rows[0]

    @property
    def variation(self) -> Decimal:
        """The largest total variation between a row and its ideal law, rounded up."""
        return self._rows[1]

    @cached_property
    def search_table(self) -> NDArray[np.uint64]:
        """The thresholds, each row filled up to 2ⁿ with 2⁶⁴ − 1, for a search in n steps."""
        filled = (1 << self.columns.bit_length()) - self.columns
        return np.pad(self.thresholds, ((0, 0), (0, filled)), constant_values=~np.uint64(0))

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
        counts = [0, *self.thresholds[place % self.grid].tolist(), _TOTAL]
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
