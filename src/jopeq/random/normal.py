"""The standard normal law in portable arithmetic: its tail on a grid, 2¹⁶ equally likely draws.

Encoder and decoder must agree on every digit, so nothing here calls a library's erf or quantile.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq.random import portable

Array = NDArray[np.float64]

STEPS = 512  # grid points per unit
END = 16  # where the grid stops: beyond lies a mass of 10⁻⁵⁷
DRAW_UNIT = 4096  # draws are whole multiples of 1/4096 (about: see ``draws_rms``)


@lru_cache(maxsize=1)
def two_sided() -> tuple[Array, Array, Array]:
    """(z, P(|t| > z), P(|t| ≤ z)) for t ~ N(0, 1), by Simpson's rule on each cell of the grid."""
    z = np.arange(END * STEPS + 1) / STEPS
    middle = z[:-1] + 0.5 / STEPS
    at, between = _density(z), _density(middle)
    cells = (at[:-1] + 4.0 * between + at[1:]) / (6.0 * STEPS)
    above, below = np.zeros(len(z)), np.zeros(len(z))
    above[:-1] = np.add.accumulate(cells[::-1])[::-1]  # from the small ones on
    below[1:] = np.add.accumulate(cells)
    return z, above, below


def _density(z: Array) -> Array:
    """The density of |t|."""
    return math.sqrt(2.0 / math.pi) * portable.exp(-0.5 * z * z)


def tail_bound(chance: float) -> float:
    """A z with P(|t| > z) ≤ chance, to one cell of the grid."""
    z, above, _ = two_sided()
    return float(z[int(np.argmax(above <= chance))])


@lru_cache(maxsize=64)
def largest_moments(count: int, most: int) -> tuple[list[float], list[float]]:
    """Sums of E|t| and of E t² over the r largest |t| among ``count`` normal draws, r = 1…most.

    Σ_{q ≤ r} E|t|₍q₎ = ∫ E min(r, N(z)) dz with N(z) = #{|t_i| > z}, a binomial count; weigh by 2z
    for the squares.

    >>> first, second = largest_moments(512, 1)
    >>> round(first[0], 4), round(second[0], 3)
    (3.2484, 10.675)
    """
    z, above, below = (values[::8] for values in two_sided())
    inside = slice(1, -1)  # at z = 0 all draws are beyond, at the end none
    log_above, log_below = portable.log(above[inside]), portable.log(below[inside])
    weights = np.full(len(z), 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    weights *= 8.0 / (3.0 * STEPS)
    first, second = list[float](), list[float]()
    at_least = np.ones(len(z))  # P(N ≥ q)
    at_least[-1] = 0.0
    log_ways = 0.0
    total_first = total_second = 0.0
    for q in range(1, most + 1):
        # P(N ≥ q) = P(N ≥ q − 1) − P(N = q − 1)
        exactly = portable.exp(
            np.maximum(log_ways + (q - 1) * log_above + (count - q + 1) * log_below, -700.0)
        )
        at_least[inside] = np.maximum(at_least[inside] - exactly, 0.0)
        log_ways += float(portable.log(np.array([(count - q + 1.0) / q]))[0])
        weighted = weights * at_least
        total_first += float(np.add.accumulate(weighted)[-1])
        total_second += float(np.add.accumulate(2.0 * z * weighted)[-1])
        first.append(total_first)
        second.append(total_second)
    return first, second


@lru_cache(maxsize=1)
def draws() -> NDArray[np.int16]:
    """The normal draw, in units of 1/``DRAW_UNIT``, that each 16-bit word stands for.

    Bit 15 is the sign; the lower bits j name the median of |t| in the j-th of 2¹⁵ equally likely
    cells.
    """
    z, _, below = two_sided()
    chance = (np.arange(1 << 15) + 0.5) / (1 << 15)
    cell = np.searchsorted(below, chance, side="right") - 1
    start, density = z[cell], _density(z[cell])
    share = (chance - below[cell]) / density
    step = share.copy()
    for _ in range(3):  # Newton on the density's Taylor series, within one cell of 1/512
        value = step - start * step * step / 2.0 + (start * start - 1.0) * step * step * step / 6.0
        slope = 1.0 - start * step + (start * start - 1.0) * step * step / 2.0
        step = step - (value - share) / slope
    magnitude = np.floor((start + step) * DRAW_UNIT + 0.5).astype(np.int16)
    return np.concatenate((magnitude, -magnitude))


@lru_cache(maxsize=1)
def draws_rms() -> float:
    """The root mean square of all ``draws``, in their units: about 4096."""
    squares = draws().astype(np.int64) ** 2
    return math.sqrt(int(squares.sum()) / len(squares))
