"""Plans and audits of ``records``: rounds and sampling to choose, and what real sums show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.analysis.empirical import CERTAIN, EmpiricalEpsilon, Findings, bet, check_effort
from jopeq.analysis.learning import CLEAR, Verdict, judge_records
from jopeq.random.streams import SEED_BYTES, PrivateStream
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_accounting import RecordRounds, epsilon_of, least_multiplier
from jopeq.sums.record_plan import RECORD_GRID, SAMPLINGS, RecordPlan, fit_records
from jopeq.sums.record_sum import RecordSum
from jopeq.sums.shares import centre, check_dimension, rotate_back, shared_stream

Array = NDArray[np.float64]

ROUNDS = (10, 30, 60, 100)
_SLACK = 1.02  # the price of a plan changes a little with the records
_DEARER = 1.25  # than full batches: a sample may make a round's squared error so much larger
_ENTRIES, _MOST_DRAWS = 512, 20_000_000  # of an attacked sum; of single shares' entries
_FINE = 1 << 12  # scores are bet on as integers
_COIN_LANE = 0  # of a private stream


# Plans


@dataclass(frozen=True)
class RecordRow:
    """A number of rounds, the smallest good sampling for it, and what they give."""

    scheme: RecordSum
    plan: RecordPlan

    @property
    def verdict(self) -> Verdict:
        """By the rule of ``analysis.learning``."""
        return judge_records(self.plan, self.scheme.rounds)

    @property
    def records_enough(self) -> int:
        """Records with which the same rounds and sampling lose next to nothing, in two digits."""
        needed = _SLACK * self.scheme.records * math.sqrt(self.verdict.averaged / CLEAR)
        unit = int(10 ** max(0, len(str(int(needed))) - 2))
        return math.ceil(needed / unit) * unit

    def as_dict(self) -> dict[str, Any]:
        """The row under the names that its JSON has."""
        plan, scheme = self.plan, self.scheme
        return {
            "scheme": scheme.spec,
            "rounds": scheme.rounds,
            "sampling": scheme.sampling,
            "noise_multiplier": plan.noise_multiplier,
            "bits": plan.bits,
            "payload_bytes": -(-plan.payload_bits // 8),
            "error": plan.error,
            "error_beside_central": plan.error / plan.central_error,
            "epsilon_per_record": plan.epsilon,
            "delta": plan.delta,
            "verdict": self.verdict.code,
            "records_enough": self.records_enough,
        }


def record_plans(
    epsilon: float,
    *,
    records: int,
    clients: int,
    dimension: int,
    delta: float = 1e-5,
    rounds: Iterable[int] = ROUNDS,
) -> Iterator[RecordRow]:
    """For each number of rounds the smallest sampling that is nearly as good as full batches.

    Half of the hospitals, at least three, are the threshold. Where that sampling has no plan, the
    largest that has one is taken. Rounds that no plan fits are left out; where none fits, the last
    refusal is raised.

    >>> rows = list(record_plans(1.0, records=4000, clients=10, dimension=5210, rounds=(30,)))
    >>> [(row.scheme.sampling, row.verdict.code) for row in rows]
    [(0.14, 'loses some')]
    """
    row, refused, place = None, None, len(SAMPLINGS) - 1
    dimension = check_dimension(dimension)
    for count in sorted(set(rounds)):
        full = RecordSum(
            epsilon=epsilon, delta=delta, clip=1.0, records=records, sampling=1.0, rounds=count,
            clients=clients, threshold=max(3, -(-clients // 2)),
        )  # fmt: skip
        # more rounds allow smaller samples, so the search goes on where it was
        while place and _ratio(full, SAMPLINGS[place - 1]) <= math.sqrt(_DEARER):
            place -= 1
        for sampling in sorted(SAMPLINGS, key=lambda q: (q != SAMPLINGS[place], -q)):
            if sampling * records >= 1.0:
                scheme = replace(full, sampling=sampling)
                try:
                    row = RecordRow(scheme, fit_records(scheme, dimension, clients))
                except ValueError:
                    refused = scheme
                else:
                    yield row
                    break
    if row is None:
        if refused is None:
            raise ValueError("rounds must name at least one number")
        refused.plan(dimension)  # raises, with what would do


def _ratio(full: RecordSum, sampling: float) -> float:
    """Noise of a mean beside that of full batches."""
    given, rounds = (full.epsilon, full.delta), full.rounds
    sampled, whole = (least_multiplier(*given, q, rounds, 1) / q for q in (sampling, 1.0))
    return sampled / whole


# Audits


@dataclass(frozen=True)
class RecordAudit(Findings):
    """ε of a record at δ: asked for, proven, and found by an attack on real sums.

    The attacked records are as long as the clip, and each is all alone in one turned coordinate:
    the attacker knows all other records and computes the likelihood ratio of every round's sum with
    and without the one. ``estimated`` composes how far a record moves a sum beside the noise.
    """

    estimated: float


def audit_records(
    scheme: RecordSum,
    *,
    dimension: int = _ENTRIES,
    draws: int = 200_000,
    confidence: float = 0.95,
) -> RecordAudit:
    """Attack sums of the honest hospitals' real shares, in all rounds.

    >>> s = RecordSum(
    ...     epsilon=4.0, clip=1.0, records=1000, sampling=1.0, rounds=1, clients=4, threshold=3
    ... )
    >>> report = audit_records(s, draws=20_000)
    >>> 0.8 * report.proven < report.estimated <= report.proven <= 4.0, report.is_consistent
    (True, True)
    """
    draws = check_effort(draws, confidence)
    plan = scheme.plan(dimension)
    most = _MOST_DRAWS // (plan.honest * scheme.rounds)
    runs = max(1, min(draws, most) // dimension)
    attack = _Attack(scheme, plan)
    scores, present, moved = zip(*(attack.run() for _ in range(runs)), strict=True)
    score, is_in = np.concatenate(scores), np.concatenate(present)
    fine = np.rint(np.clip(score, -1e6, 1e6) * _FINE).astype(np.int64)
    count = min(int(is_in.sum()), int((~is_in).sum()))
    with_it, without = fine[is_in][:count, None], fine[~is_in][:count, None]
    lower, certain, event = bet(with_it, without, (confidence, CERTAIN), scheme.delta)
    shown = EmpiricalEpsilon(
        lower, certain, confidence, 2 * count, event or "none better than guessing"
    )
    strength = _lower_strength(np.concatenate(moved, axis=1), confidence)
    estimated = 0.0
    if strength > 0.0:
        run = RecordRounds(
            1.0 / strength, scheme.sampling, scheme.hospitals_per_person, scheme.rounds
        )
        estimated = epsilon_of((run,), scheme.delta, 4.0 * scheme.epsilon)
    return RecordAudit(
        scheme=scheme,
        proven=plan.epsilon,
        empirical=shown,
        explanation=f"A record moves a sum by 1/{plan.noise_multiplier:.3g} of the noise of "
        f"{plan.honest} honest shares at most; sampling and rounds compose.",
        estimated=estimated,
    )


class _Attack:
    """Canaries, one for each coordinate, of which coins choose half."""

    def __init__(self, scheme: RecordSum, plan: RecordPlan) -> None:
        self._scheme, self._plan = scheme, plan
        self._seed = bytes(SEED_BYTES)
        self._canaries = np.eye(plan.dimension) * scheme.clip
        for row in self._canaries:
            rotate_back(row, shared_stream(self._seed))
        self._count = min(plan.dimension, scheme.most_records or scheme.records)
        self._shift = plan.bound / RECORD_GRID  # in steps
        self._variance = plan.honest * plan.sigma**2

    def run(self) -> tuple[Array, NDArray[np.bool_], Array]:
        """Log-likelihood ratios of all rounds, who is in, and (seen where sent, seen where not)."""
        scheme, count = self._scheme, self._count
        words = PrivateStream().words64(lane=_COIN_LANE, start=0, count=count)
        coins = (words & np.uint64(1)).astype(np.bool_)
        score, seen = np.zeros(count), list[Array]()
        for _ in range(scheme.rounds):
            is_sent = coins & scheme.sample(count)
            values = self._sum(is_sent)[:count]
            ratio = (self._shift * values - 0.5 * self._shift**2) / self._variance
            q = scheme.sampling
            score += ratio if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + ratio)
            seen.append(np.stack((values, is_sent)))
        return score, coins, np.concatenate(seen, axis=1)

    def _sum(self, is_sent: NDArray[np.bool_]) -> Array:
        """The sum of real shares, in steps, of turned coordinates."""
        scheme, plan = self._scheme, self._plan
        sent = self._canaries[: len(is_sent)][is_sent]
        total = ClippedTotal(plan.dimension, scheme.clip).add(sent)
        empty = ClippedTotal(plan.dimension, scheme.clip)
        shares = np.zeros(plan.dimension, dtype=np.int64)
        for hospital in range(plan.honest):
            rows = empty if hospital else total
            shares += scheme.encode(rows, seed=self._seed, clients=plan.clients, plan=plan)
        return centre(shares & ((1 << plan.bits) - 1), plan.bits, plan.dimension, plan.dimension)


def _lower_strength(seen: Array, confidence: float) -> float:
    """How many deviations a record moves a sum, at least, with this confidence."""
    sent, rest = (seen[0][seen[1] == is_sent] for is_sent in (1.0, 0.0))
    if min(len(sent), len(rest)) < 2:
        return 0.0
    deviation = math.sqrt((sent.var() * len(sent) + rest.var() * len(rest)) / seen.shape[1])
    strength = float(sent.mean() - rest.mean()) / deviation
    error = math.sqrt(1.0 / len(sent) + 1.0 / len(rest) + 0.5 * strength**2 / seen.shape[1])
    return strength - NormalDist().inv_cdf(confidence) * error
