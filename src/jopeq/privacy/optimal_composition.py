"""The optimal composition of equal ε-DP mechanisms: a sum over binomial probabilities."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jopeq.privacy.checks import private_side

Array = NDArray[np.float64]

_SLACK = 1e-9  # relative error allowed for in every δ that is summed up
_TAIL = 1e-290  # more than the probability of all terms a sum leaves out
_LARGEST_SUM = 4_000_000  # terms; reached at about 5·10⁹ mechanisms


def optimal_epsilon(epsilon: float, times: int, delta: float) -> float | None:
    """The smallest ε at δ of ``times`` ε-DP mechanisms; None where the sum is too long to take.

    Binary randomized response dominates every ε-DP mechanism, and its privacy loss over n runs is
    L = ε(n − 2J), J ~ Binomial(n, 1/(1+e^ε)). Hence (Kairouz, Oh, Viswanath 2015, Theorem 3.3)

        δ(ε') = E[(1 − e^{ε'−L})₊],

    which no theorem about arbitrary ε-DP mechanisms can improve on. The sum is taken as it stands
    over all J within about 37 standard deviations; what lies beyond is bounded and counted in.

    >>> round(optimal_epsilon(4.0, 7850, 1e-5), 1)
    30647.6
    """
    if times == 0 or epsilon == 0.0:
        return 0.0
    if not 1e-280 < delta < 1.0:
        return epsilon * times if delta < 1.0 else 0.0
    window = _binomial_window(epsilon, times)
    if window is None:
        return None
    first, chances = window

    def delta_at(total: float) -> float:
        return _hockey_stick(epsilon, times, first, chances, total)

    def loss(flips: int) -> float:
        return epsilon * (times - 2 * flips)

    if delta_at(0.0) <= delta:
        return 0.0
    # the knots of δ(·) are the values of L: find the last one that is private enough
    low, high = first, min(first + len(chances), times // 2 + 1)
    if delta_at(loss(high)) <= delta:
        return max(0.0, loss(high))
    while high - low > 1:
        middle = (low + high) // 2
        if delta_at(loss(middle)) <= delta:
            low = middle
        else:
            high = middle
    # between two knots δ(ε') = A − e^{ε'} B
    kept = chances[: high - first]
    above = float(kept.sum())
    below = float((kept * np.exp(-2.0 * epsilon * np.arange(len(kept) - 1, -1, -1))).sum())
    total = loss(low) + (math.log((above - delta) / below) if below > 0.0 else 0.0)
    total = max(0.0, min(total, loss(low)))
    return private_side(total, epsilon * times, lambda at: delta_at(at) <= delta)


def _hockey_stick(epsilon: float, times: int, first: int, chances: Array, total: float) -> float:
    """Σ P(J = j)(1 − e^{ε'−L})₊ over j = first, first + 1, …, rounded up."""
    end = math.ceil((times - total / epsilon) / 2.0) + 1  # one term more: rounding cannot lose one
    kept = chances[: max(0, end - first)]
    loss = epsilon * (times - 2.0 * np.arange(first, first + len(kept)))
    gain = -np.expm1(np.minimum(total - loss, 0.0))
    return float(np.dot(kept, gain)) * (1.0 + _SLACK) + _TAIL


def _binomial_window(epsilon: float, times: int) -> tuple[int, Array] | None:
    """P(J = j) for all j of the window, and its first j. By Chernoff's bound,

    P(J < m−t) ≤ exp(−t²/2m) and P(J > m+t) ≤ exp(−t²/(2m + 2t/3)) with m = E[J].
    """
    flip = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    mean = times * flip
    exponent = 680.0  # e^−680 < 10⁻²⁹⁵
    first = max(0, math.floor(mean - math.sqrt(2.0 * exponent * mean)))
    reach = exponent / 3.0 + math.sqrt((exponent / 3.0) ** 2 + 2.0 * exponent * mean)
    last = min(times, math.ceil(mean + reach))
    if last - first > _LARGEST_SUM:
        return None
    return first, _binomial(np.arange(first, last + 1, dtype=np.float64), times, flip)


def _binomial(j: Array, n: int, flip: float) -> Array:
    """Binomial probabilities to 12 digits for any n, by Loader's saddle-point form (2000)."""
    from scipy import special

    mean, rest = n * flip, n * (1.0 - flip)
    inner = (j > 0) & (j < n)
    chances = np.exp(special.xlogy(j, flip) + special.xlog1py(n - j, -flip))  # right at both ends
    k = j[inner]
    if not len(k) or mean == 0.0:
        return np.asarray(chances)
    exponent = (
        _stirling(np.array([float(n)]))
        - _stirling(k)
        - _stirling(n - k)
        - _deviance(k, mean, k - mean)
        - _deviance(n - k, rest, mean - k)
    )
    chances[inner] = np.exp(exponent) * np.sqrt(n / (2.0 * math.pi * k * (n - k)))
    return np.asarray(chances)


def _stirling(n: Array) -> Array:
    """ln n! minus Stirling's formula, n ≥ 1."""
    from scipy import special

    small = np.minimum(n, 16.0)
    exact = special.gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small
    exact -= 0.5 * math.log(2.0 * math.pi)
    r = 1.0 / np.square(n)
    series = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / n
    return np.where(n < 16.0, exact, series)


def _deviance(x: Array, mean: float, difference: Array) -> Array:
    """x·ln(x/m) + m − x, without cancellation near x = m."""
    t = difference / mean
    near = np.clip(t, -0.1, 0.1)
    series = np.zeros_like(near)
    for k in range(18, 1, -1):
        series = (-1) ** k / (k * (k - 1)) + near * series
    far = x * np.log(x / mean) - difference
    return np.where(np.abs(t) < 0.1, mean * near**2 * series, far)
