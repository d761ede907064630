"""Audits of secure sums: what a sum shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.analysis.empirical import CERTAIN, EmpiricalEpsilon, Findings, bet, check_effort
from jopeq.noise.gaussian_rounding import GaussianRounding
from jopeq.random.streams import PrivateStream, private_stream
from jopeq.sums.secure_sum import SecureSum
from jopeq.sums.sum_plan import SumPlan

Array = NDArray[np.float64]

_MOST_SHARES, _MOST_ROUNDS = 500, 64  # whose exact law is computed
_BINS, _ERROR = 1 << 20, 1e-3  # of privacy losses, and how much ε is overestimated at most
_MOST_DRAWS = 20_000_000  # of single shares
_ENOUGH = 64  # entries: shares that are drawn afresh do not repeat


@dataclass(frozen=True)
class SumAudit(Findings):
    """ε of a client at δ: asked for, proven, exact for the worst spike, and shown by an attack.

    The attacked client's update has all its norm in one turned coordinate, against a zero update.
    """

    exact: float | None

    @property
    def is_consistent(self) -> bool:
        """Whether no attack surely did better than the exact ε allows, nor that than the proof."""
        exact = self.proven if self.exact is None else self.exact
        return self.empirical.certain <= exact <= self.proven * (1 + 1e-6)


def audit_sum(
    scheme: SecureSum,
    *,
    dimension: int = 1000,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> SumAudit:
    """Audit sums of the fewest honest shares, for updates of that dimension.

    >>> s = SecureSum(epsilon=4.0, clip=1.0, clients=5, threshold=4)
    >>> report = audit_sum(s, draws=20_000)
    >>> 3.8 < report.exact <= report.proven <= 4.0, report.is_consistent
    (True, True)
    """
    draws = check_effort(draws, confidence)
    plan = scheme.plan(dimension)
    apart = plan.bound if scheme.neighbours == "zeroed" else 2 * plan.bound
    private = private_stream(noise)
    return SumAudit(
        scheme=scheme,
        proven=plan.epsilon,
        empirical=_attack(scheme, plan, apart, draws, confidence, private),
        explanation=f"The sum of {scheme.honest} shares is a rounded Gaussian value up to factors "
        "that a theta series bounds; wrapping around costs accuracy, never privacy.",
        exact=_exact(scheme, plan, apart),
    )


def _exact(scheme: SecureSum, plan: SumPlan, apart: int) -> float | None:
    """The smallest ε at δ, from the integer tables, over all rounds; rounded up by at most 10⁻³."""
    from scipy import optimize

    rounds = scheme.participations
    if scheme.honest > _MOST_SHARES or rounds > _MOST_ROUNDS:
        return None
    first, others = 0, np.ones(1)
    for bit in f"{scheme.honest - 1:b}":  # the power of a law by squaring
        first, others = 2 * first, np.convolve(others, others)
        if bit == "1":
            first, others = _with_share(plan.law, first, others, 0)
    (low, p), (other_low, q) = (_with_share(plan.law, first, others, y) for y in (apart, 0))
    shifted = np.zeros(len(p))
    overlap = max(0, len(p) - (low - other_low))
    shifted[:overlap] = q[low - other_low :][:overlap]
    unit = _ERROR / rounds
    value = np.fft.fftfreq(_BINS, 1.0 / (_BINS * unit))
    p, shifted = p[p > 0], shifted[p > 0]
    with np.errstate(divide="ignore"):
        losses = np.ceil(np.log(p / shifted) / unit)
    near = np.abs(losses) < _BINS // (2 * rounds)
    once = np.bincount(losses[near].astype(np.int64) % _BINS, p[near], _BINS)
    chances = np.fft.irfft(np.fft.rfft(once) ** rounds, _BINS)
    lost = rounds * float(p[~near & (losses > 0)].sum())

    def excess(epsilon: float) -> float:
        gain = -np.expm1(np.minimum(epsilon - value, 0.0))
        return float(chances @ gain) + lost - scheme.delta

    if excess(0.0) <= 0.0:
        return 0.0
    most = scheme.epsilon + 1.0
    return float(optimize.brentq(excess, 0.0, most)) if excess(most) < 0.0 else math.inf


def _with_share(law: GaussianRounding, first: int, chances: Array, place: int) -> tuple[int, Array]:
    start, row = law.chances(place)
    return first + start, np.convolve(chances, row)


def _attack(
    scheme: SecureSum,
    plan: SumPlan,
    apart: int,
    draws: int,
    confidence: float,
    private: PrivateStream,
) -> EmpiricalEpsilon:
    """A bet on sums that the real sampler draws, modulo 2^bits."""
    update, seed = np.zeros(plan.dimension), bytes(32)
    one, two = (scheme.encode(update, seed=seed) for _ in range(2))
    if plan.kept >= _ENOUGH and (one == two).all():
        same = "two shares of one update are the same"
        return EmpiricalEpsilon(math.inf, math.inf, confidence, draws, same)
    count = min(draws // 2, _MOST_DRAWS // scheme.honest)
    half, mask = 1 << (plan.bits - 1), (1 << plan.bits) - 1
    seen = []
    for lane, place in enumerate((apart, 0)):
        total = np.zeros(count, dtype=np.int64)
        for share in range(scheme.honest):
            words = private.words64(lane=lane, start=share * count, count=count)
            total += plan.law.draw(np.full(count, place if share == 0 else 0), words)
        seen.append((((total + half) & mask) - half)[:, None])
    lower, certain, event = bet(seen[0], seen[1], (confidence, CERTAIN), scheme.delta)
    return EmpiricalEpsilon(
        lower, certain, confidence, 2 * count, event or "none better than guessing"
    )
