"""What shuffling adds: n reports of pure ε₀ that somebody mixes hide among each other.

Feldman, McMillan and Talwar (2021, 2023): whatever the ε₀-private randomizer is, telling two
neighbouring groups of n people apart by their shuffled reports is no easier than P from Q,

    C ~ Bin(n − 1, e^−ε₀),   A ~ Bin(C, ½),   α = e^ε₀/(e^ε₀ + 1),
    P: (A, C) with chance α, else (A + 1, C);   Q: the other way round.

δ(ε) of this pair is summed here over C, up to a tail that is added to δ.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@lru_cache(maxsize=8)
def _clones(local: float, people: int) -> tuple[NDArray[np.int64], Array, float]:
    """Values of C, their chances, and the chance of all other values."""
    from scipy.special import bdtr, bdtrc
    from scipy.stats import binom

    share = math.exp(-local)
    reach = 9.0 * math.sqrt(people * share) + 60.0
    mean = (people - 1) * share
    low, high = max(0, math.floor(mean - reach)), min(people - 1, math.ceil(mean + reach))
    values = np.arange(low, high + 1)
    outside = bdtrc(high, people - 1, share) + (bdtr(low - 1, people - 1, share) if low else 0.0)
    return values, binom.pmf(values, people - 1, share), float(outside)


def shuffled_delta(epsilon: float, local: float, people: int) -> float:
    """The δ that goes with ε after ``people`` reports of pure ε₀ = ``local`` were shuffled."""
    from scipy.special import bdtr

    if epsilon >= local:
        return 0.0
    values, chances, outside = _clones(local, people)
    alpha, ratio = 1.0 / (1.0 + math.exp(-local)), math.exp(epsilon)
    # P(A = x) > e^ε·Q(A = x) where x is below this share of C + 1
    for_p, for_q = alpha - ratio * (1.0 - alpha), ratio * alpha - (1.0 - alpha)
    last = np.ceil((values + 1.0) * (for_p / (for_p + for_q))) - 1.0
    at = np.where(last >= 0.0, bdtr(np.maximum(last, 0.0), values, 0.5), 0.0)
    below = np.where(last >= 1.0, bdtr(np.maximum(last - 1.0, 0.0), values, 0.5), 0.0)
    excess = np.maximum(at * for_p - below * for_q, 0.0)
    return min(1.0, float(chances @ excess) * (1.0 + 1e-9) + outside)


def shuffled_epsilon(local: float, people: int, delta: float) -> float:
    """The least ε at δ, to 10⁻⁴ of itself, from above; never above ``local``.

    >>> round(shuffled_epsilon(4.0, 100_000, 1e-6), 3)
    0.17
    """
    if shuffled_delta(0.0, local, people) <= delta:
        return 0.0
    low, high = 0.0, local
    while high - low > 1e-4 * high:
        middle = (low + high) / 2.0
        if shuffled_delta(middle, local, people) <= delta:
            high = middle
        else:
            low = middle
    return high
