"""How privacy adds up: the smallest ε at a given δ of many mechanisms run one after another.

Nothing here knows about schemes. All results err to the private side: the ε returned holds, and
exceeds the theorem's by about one part in 10⁹. Only NumPy and SciPy are needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jopeq.privacy.checks import check_delta
from jopeq.privacy.gaussian import gaussian_epsilon
from jopeq.privacy.optimal_composition import optimal_epsilon
from jopeq.privacy.renyi import renyi_epsilon

BASIC = "basic composition"
OPTIMAL = "optimal composition of pure mechanisms (Kairouz, Oh, Viswanath 2015)"
RENYI = "Rényi composition (Mironov 2017)"
GAUSSIAN = "Gaussian composition (Dong, Roth, Su 2022) and the analytic formula (Balle, Wang 2018)"


class Mechanism(NamedTuple):
    """(ε, δ)-DP; with ``mu`` also μ-Gaussian DP, which then decides how it composes."""

    epsilon: float
    delta: float = 0.0
    mu: float | None = None


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
        """All of it again and again."""
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
        Viswanath 2015, Theorem 3.3): of the δ asked for, what their failures leave is spent.
        """
        check_delta(delta)
        epsilon, own = self.basic()
        best = (epsilon if own <= delta else math.inf, BASIC)
        if delta == 0.0 or any(math.isinf(m.epsilon) and m.mu is None for m, _ in self.counts):
            return best
        return min([best, *self._candidates(delta)])

    def _candidates(self, delta: float) -> Iterable[tuple[float, str]]:
        plain = [(m, n) for m, n in self.counts if m.mu is None]
        room = delta
        if any(m.delta for m, _ in plain):  # 1 − (1−δ)/Π(1−δᵢ) is left for the pure parts
            survival = math.fsum(n * math.log1p(-min(m.delta, 1.0 - 1e-16)) for m, n in plain)
            room = -math.expm1(math.log1p(-delta) - survival) - 1e-12 * delta
            if room <= 0.0:
                return
        pure: Counter[float] = Counter()
        for mechanism, times in plain:
            if mechanism.epsilon > 0.0:
                pure[mechanism.epsilon] += times
        total = math.fsum(e * n for e, n in pure.items())
        mu = math.sqrt(math.fsum(n * m.mu**2 for m, n in self.counts if m.mu is not None))
        if mu == 0.0:
            yield _pure_epsilon(pure, room)
            return
        if not pure:
            yield gaussian_epsilon(mu, room), GAUSSIAN
            return
        yield gaussian_epsilon(mu, room) + total, f"{GAUSSIAN}, the rest by {BASIC}"
        half, theorem = _pure_epsilon(pure, 0.5 * room)
        yield gaussian_epsilon(mu, 0.5 * room) + half, f"{GAUSSIAN}, with {theorem} at half the δ"
        yield renyi_epsilon(pure, room, mu=mu), RENYI


def _pure_epsilon(pure: Counter[float], delta: float) -> tuple[float, str]:
    """The best of the theorems for ε-DP mechanisms, several of each ε."""
    total = math.fsum(e * n for e, n in pure.items())
    best = (total, BASIC)
    if not pure:
        return best
    heaviest = max(pure, key=lambda e: e * pure[e])
    exact = optimal_epsilon(heaviest, pure[heaviest], delta)
    if len(pure) == 1:
        if exact is not None:
            return min(best, (exact, OPTIMAL))
        return min(best, (renyi_epsilon(pure, delta), RENYI))
    if exact is not None:
        rest = math.fsum(e * n for e, n in pure.items() if e != heaviest)
        best = min(best, (exact + rest, f"{OPTIMAL}, the rest by {BASIC}"))
    # randomized response of a smaller ε is a post-processing of one of a larger ε
    raised = optimal_epsilon(max(pure), sum(pure.values()), delta)
    if raised is not None:
        best = min(best, (raised, f"{OPTIMAL}, each taken at the largest ε"))
    return min(best, (renyi_epsilon(pure, delta), RENYI))


def subsampled_epsilon(epsilon: float, probability: float) -> float:
    """ε' = ln(1 + q(e^ε − 1)), for any ε.

    >>> round(subsampled_epsilon(1.0, 0.01), 6), round(subsampled_epsilon(2000.0, 0.01), 4)
    (0.017037, 1995.3948)
    """
    if probability == 0.0 or epsilon == 0.0:
        return 0.0
    if epsilon < 50.0:
        amplified = math.log1p(probability * math.expm1(epsilon))
    else:
        amplified = epsilon + math.log(probability + (1.0 - probability) * math.exp(-epsilon))
    return min(epsilon, amplified * (1.0 + 1e-15) + 1e-16)
