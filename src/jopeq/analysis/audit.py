"""``jopeq.audit``: what a scheme promises, what it delivers exactly, what an attack shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import NormalDist
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from jopeq.analysis.empirical import (
    CERTAIN,
    NO_BET,
    EmpiricalEpsilon,
    bet,
    check_effort,
    empirical_epsilon,
)
from jopeq.analysis.exact import ExactEpsilon, exact_epsilon
from jopeq.random.streams import SEED_BYTES, PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_accounting import RecordRounds, epsilon_of
from jopeq.sums.record_plan import RECORD_GRID, RecordPlan
from jopeq.sums.record_sample import draw_records
from jopeq.sums.record_sum import ClientSum, RecordSum
from jopeq.sums.shares import centre, rotate_back

Array = NDArray[np.float64]

_ENTRIES, _MOST_DRAWS = 512, 20_000_000  # of an attacked sum; of single shares' entries
_FINE = 1 << 12  # scores are bet on as integers
_COIN_LANE = 0  # of a private stream


@dataclass(frozen=True)
class Audit:
    """ε of one sample, report, record or client: requested, proven, and shown by an attack.

    ``exact`` is computed for scalar schemes. ``estimated``, of sums, composes how far a row of full
    norm moves a sum relative to the noise.
    """

    scheme: Any
    proven: float
    empirical: EmpiricalEpsilon
    explanation: str  # one sentence on why ε is what it is
    exact: ExactEpsilon | None = None
    estimated: float | None = None

    @property
    def nominal(self) -> float | None:
        """The requested ε."""
        asked: float | None = self.scheme.guarantee.nominal
        return asked

    @property
    def epsilon(self) -> float:
        """The exact ε against the server if it was computed, else the proven bound."""
        return self.proven if self.exact is None else self.exact.server

    @property
    def is_consistent(self) -> bool:
        """True if attack ≤ exact ε ≤ proven ε, with the attack's certain bound."""
        allowed = self.proven * (1 + 1e-6)
        return math.isinf(allowed) or self.empirical.certain <= self.epsilon <= allowed

    def as_dict(self) -> dict[str, Any]:
        """The audit, for JSON."""
        found, guarantee = asdict(self), self.scheme.guarantee
        del found["empirical"]["certain"]
        return found | {
            "scheme": self.scheme.spec,
            "unit": guarantee.unit,
            "nominal": self.nominal,
            "delta": guarantee.delta,
            "consistent": self.is_consistent,
            "assumptions": list(guarantee.assumptions),
        }


def audit(
    scheme: Scheme | Sphere | RecordSum | ClientSum,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> Audit:
    """Audit a sample or report of ``scheme`` against the server, or sums against their observers.

    >>> from jopeq import audit, scheme
    >>> report = audit(scheme("jopeq", epsilon=4.0, rate=1.0), draws=20_000)
    >>> report.nominal, round(report.exact.server, 2), report.is_consistent
    (4.0, 10.12, True)
    """
    if isinstance(scheme, RecordSum | ClientSum):
        return _audit_sums(scheme, draws, confidence)
    shown = empirical_epsilon(scheme, draws=draws, confidence=confidence, noise=noise)
    proven = scheme.guarantee.epsilon
    return Audit(scheme, proven, shown, _explain(scheme), exact=exact_epsilon(scheme))


def _explain(scheme: Scheme | Sphere) -> str:
    """One sentence on the reason for a sample's ε against the server."""
    if isinstance(scheme, Sphere) or scheme.codec.channel is not None:
        return (
            "The chance of every message is a ratio of integers that differs by at most e^ε "
            "between inputs, so the requested ε holds."
        )
    noise, target = scheme.codec.noise, cast(Any, getattr(scheme, "target", None))
    if target is None and scheme.is_private:
        return "The scheme's own class claims this ε; an attack looks for contradictions."
    if target is None:
        return "No noise is added: the server knows the dither, which hides nothing."
    if noise is None:
        return (
            "The dither alone has the target's variance, so no noise is added. The server can "
            "recreate the dither and rule out inputs with certainty."
        )
    own, wanted = math.sqrt(noise.variance), math.sqrt(target.noise.variance)
    if own == wanted:
        return (
            f"Noise of standard deviation {own:.3g} is added first, so everything after it is "
            "post-processing of an ε-private value."
        )
    return (
        f"Dither and noise together have the target's standard deviation {wanted:.3g}, but the "
        f"decoded value reveals the dither. Only noise of standard deviation {own:.3g} hides the "
        "sample, and its thinner tails tell the two ends of the ball apart."
    )


# Sums


def _audit_sums(scheme: RecordSum | ClientSum, draws: int, confidence: float) -> Audit:
    """Attack sums of the honest hospitals' real shares, in all rounds.

    The attacked rows are as long as the clip, each alone in one rotated coordinate. The attacker
    knows all other rows and computes the likelihood ratio of every round's sum with and without
    this one. Rows that surely move sums too far, or shares that repeat, break the promise too.

    >>> s = RecordSum(
    ...     epsilon=4.0, clip=1.0, records=1000, sampling=1.0, rounds=1, clients=4, threshold=3
    ... )
    >>> report = audit(s, draws=20_000)
    >>> 0.8 * report.proven < report.estimated <= report.proven <= 4.0, report.is_consistent
    (True, True)
    """
    draws = check_effort(draws, confidence)
    sums = scheme.sum if isinstance(scheme, ClientSum) else scheme
    plan = sums.plan(_ENTRIES)
    most = _MOST_DRAWS // (plan.honest * scheme.rounds)
    runs = islice(_attacks(sums, plan), max(1, min(draws, most) // _ENTRIES))
    scores, present, moved = zip(*runs, strict=True)
    score, is_in = np.concatenate(scores), np.concatenate(present)
    fine = np.rint(np.clip(score, -1e6, 1e6) * _FINE).astype(np.int64)
    count = min(int(is_in.sum()), int((~is_in).sum()))
    with_it, without = fine[is_in][:count, None], fine[~is_in][:count, None]
    lower, certain = bet(with_it, without, (confidence, CERTAIN), scheme.delta)
    event = "a row of full norm in one coordinate" if lower else NO_BET
    seen = np.concatenate(moved, axis=1)
    estimated, surely = (
        _compose(sums, _lower_strength(seen, limit)) for limit in (confidence, CERTAIN)
    )
    certain = max(certain, surely)
    if _repeats(sums, plan):
        lower = certain = math.inf
        event = "two shares of no record are the same"
    shown = EmpiricalEpsilon(lower, certain, confidence, 2 * count, event)
    return Audit(
        scheme=scheme,
        proven=plan.epsilon,
        empirical=shown,
        explanation=f"A {scheme.guarantee.unit} moves a sum by 1/{plan.noise_multiplier:.3g} of "
        f"the noise of {plan.honest} honest shares at most; sampling and rounds compose.",
        estimated=estimated,
    )


def _attacks(
    scheme: RecordSum, plan: RecordPlan
) -> Iterator[tuple[Array, NDArray[np.bool_], Array]]:
    """(log-likelihood ratios of all rounds, who is in, (values seen, which were sent)), for ever.

    Canaries are alone in a rotated coordinate each, and coins choose half of them.
    """
    count, seed, q = plan.dimension, bytes(SEED_BYTES), scheme.sampling
    canaries = np.eye(count) * scheme.clip
    for row in canaries:
        rotate_back(row, SharedStream(seed))
    shift, variance = plan.bound / RECORD_GRID, plan.honest * plan.sigma**2  # in steps
    empty = ClippedTotal(count, scheme.clip)
    while True:
        words = PrivateStream().words64(lane=_COIN_LANE, start=0, count=count)
        coins = (words & np.uint64(1)).astype(np.bool_)
        score, seen = np.zeros(count), list[Array]()
        for _ in range(scheme.rounds):
            is_sent = coins & draw_records(count, q, PrivateStream())
            total = ClippedTotal(count, scheme.clip).add(canaries[is_sent])
            shares = np.zeros(count, dtype=np.int64)
            for rows in (total, *[empty] * (plan.honest - 1)):
                shares += scheme.encode(rows, seed=seed, clients=plan.clients)
            values = centre(shares & ((1 << plan.bits) - 1), plan.bits, count)
            ratio = (shift * values - 0.5 * shift**2) / variance
            score += ratio if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + ratio)
            seen.append(np.stack((values, is_sent)))
        yield score, coins, np.concatenate(seen, axis=1)


def _repeats(sums: RecordSum, plan: RecordPlan) -> bool:
    """True if two shares are equal, so that the noise is not fresh."""
    empty, seed = ClippedTotal(plan.dimension, sums.clip), bytes(SEED_BYTES)
    one, other = (sums.encode(empty, seed=seed, clients=plan.clients) for _ in range(2))
    return bool((one == other).all())


def _compose(sums: RecordSum, strength: float) -> float:
    """ε of all rounds, each of which a record moves by so many standard deviations."""
    if not 0.0 < strength < math.inf:
        return max(0.0, strength)
    run = RecordRounds(1.0 / strength, sums.sampling, sums.hospitals_per_person, sums.rounds)
    return epsilon_of((run,), sums.delta, 4.0 * sums.epsilon)


def _lower_strength(seen: Array, confidence: float) -> float:
    """A lower limit, with this confidence, of a sum's shift by a record in standard deviations."""
    sent, rest = (seen[0][seen[1] == is_sent] for is_sent in (1.0, 0.0))
    if min(len(sent), len(rest)) < 2:
        return 0.0
    deviation = math.sqrt((sent.var() * len(sent) + rest.var() * len(rest)) / seen.shape[1])
    shift = float(sent.mean() - rest.mean())
    if deviation == 0.0:  # no noise
        return math.inf if shift else 0.0
    strength = shift / deviation
    error = math.sqrt(1.0 / len(sent) + 1.0 / len(rest) + 0.5 * strength**2 / seen.shape[1])
    return strength - NormalDist().inv_cdf(confidence) * error
