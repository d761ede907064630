"""How privacy adds up: the smallest ε at a given δ of many mechanisms run one after another.

Nothing here knows about schemes. All results err to the private side: the ε returned holds, and
exceeds the theorem's by about one part in 10⁹. Only NumPy and SciPy are needed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_delta

Array = NDArray[np.float64]
BASIC = "basic composition"
OPTIMAL = "optimal composition of pure mechanisms (Kairouz, Oh, Viswanath 2015)"
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
    knots = range(low + 1, high)
    high = low + 1 + bisect_left(knots, True, key=lambda flips: delta_at(loss(flips)) > delta)
    low = high - 1
    # between two knots δ(ε') = A − e^{ε'} B
    kept = chances[: high - first]
    above = float(kept.sum())
    below = float((kept * np.exp(-2.0 * epsilon * np.arange(len(kept) - 1, -1, -1))).sum())
    total = loss(low) + (math.log((above - delta) / below) if below > 0.0 else 0.0)
    total, most = max(0.0, min(total, loss(low))), epsilon * times
    step = max(total, 1e-3) * 1e-15  # floats may end on the wrong side by as much
    while total < most and delta_at(total) > delta:
        total += step
        step *= 2.0
    return min(total, most)


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
    from scipy import stats

    flip = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    mean = times * flip
    exponent = 680.0  # e^−680 < 10⁻²⁹⁵
    first = max(0, math.floor(mean - math.sqrt(2.0 * exponent * mean)))
    reach = exponent / 3.0 + math.sqrt((exponent / 3.0) ** 2 + 2.0 * exponent * mean)
    last = min(times, math.ceil(mean + reach))
    if last - first > _LARGEST_SUM:
        return None
    return first, stats.binom.pmf(np.arange(first, last + 1), times, flip)  # to ten digits


class Mechanism(NamedTuple):
    """(ε, δ)-DP."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True)
class Composition:
    """Mechanisms with how often each was run, on the same secret and with independent noise.

    >>> day = Composition.of(Mechanism(0.1), times=100)
    >>> day.basic()
    (10.0, 0.0)
    >>> epsilon, theorem = day.epsilon_at(1e-5)
    >>> round(epsilon, 3), theorem
    (4.307, 'optimal composition of pure mechanisms (Kairouz, Oh, Viswanath 2015)')
    """

    counts: tuple[tuple[Mechanism, int], ...] = ()

    @classmethod
    def of(cls, mechanism: Mechanism, times: int = 1) -> Composition:
        """One mechanism, ``times`` times."""
        return cls(((mechanism, times),) if times else ())

    def times(self, rounds: int) -> Composition:
        """These mechanisms in each of so many rounds."""
        return Composition(tuple((m, n * rounds) for m, n in self.counts) if rounds else ())

    def __add__(self, other: Composition) -> Composition:
        total: Counter[Mechanism] = Counter()
        for mechanism, count in (*self.counts, *other.counts):
            total[mechanism] += count
        return Composition(tuple(total.items()))

    def basic(self) -> tuple[float, float]:
        """Σε and Σδ."""
        return (
            math.fsum(m.epsilon * n for m, n in self.counts),
            math.fsum(m.delta * n for m, n in self.counts),
        )

    def epsilon_at(self, delta: float) -> tuple[float, str]:
        """The smallest ε that a theorem gives at this δ, and the theorem's name; inf if none does.

        (ε, δ) mechanisms are taken as ε-DP ones that fail with probability δ (Kairouz, Oh,
        Viswanath 2015, Theorem 3.3). The rest of δ is spent on composing the ε-DP mechanisms.
        """
        check_delta(delta)
        epsilon, own = self.basic()
        best = (epsilon if own <= delta else math.inf, BASIC)
        if delta == 0.0 or epsilon in (0.0, math.inf):
            return best
        room = delta
        if own:  # 1 − (1−δ)/Π(1−δᵢ) is left for the pure parts
            survival = math.fsum(n * math.log1p(-min(m.delta, 1.0 - 1e-16)) for m, n in self.counts)
            room = -math.expm1(math.log1p(-delta) - survival) - 1e-12 * delta
        if room <= 0.0:
            return best
        # randomized response of a smaller ε is a post-processing of one of a larger ε
        largest = max(mechanism.epsilon for mechanism, _ in self.counts)
        times = sum(times for mechanism, times in self.counts if mechanism.epsilon)
        exact = optimal_epsilon(largest, times, room)
        return best if exact is None else min(best, (exact, OPTIMAL))
