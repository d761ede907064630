"""The learning rule: will a run with this much noise learn anything?

Noise of independent rounds averages out and signal adds up, so what counts is the error of the mean
over all rounds, ``error ÷ rounds``, relative to the update's energy. The bounds are calibrated on
real runs (table in ``tests/analysis/test_learning.py``).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from jopeq.checks import check_count
from jopeq.entries.spread import best_spread, normalised_error
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_plan import SIGNAL, RecordPlan
from jopeq.sums.record_sum import ClientSum

CLEAR, NOISY, DROWNED = 0.1, 1.0, 10.0
"""Upper bounds of ``error ÷ rounds``: the run learns, loses some accuracy, loses much."""

REMEDY = "use more clients, a smaller model (freeze tensors) or a larger ε"
_SENTENCES = {
    "learns": "it learns",
    "loses some": "it learns, and loses some accuracy",
    "loses much": "it learns, and loses much accuracy",
    "noise": f"HOPELESS, the mean is noise: {REMEDY}",
}


@dataclass(frozen=True)
class Verdict:
    """The outlook of a run; ``averaged`` is the error of the mean over all its rounds."""

    code: str  # "learns", "loses some", "loses much" or "noise"
    error: float
    averaged: float

    @property
    def is_hopeless(self) -> bool:
        """True if nothing reliable will be learnt."""
        return self.code == "noise"

    def __str__(self) -> str:
        each, overall = (
            f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            for value in (self.error, self.averaged)
        )
        return f"error {each} per round, {overall} over all rounds: {_SENTENCES[self.code]}"


def judge(error: float, rounds: int, *, lasting: float = 0.0) -> Verdict:
    """The verdict on ``rounds`` rounds whose means have this error relative to the signal.

    ``lasting`` is the error's part from biases, which no number of rounds lowers.

    >>> print(judge(29.0, rounds=20))
    error 29 per round, 1.45 over all rounds: it learns, and loses much accuracy
    """
    averaged = lasting + (error - lasting) / check_count("rounds", rounds, 1)
    place = bisect_left((CLEAR, NOISY, DROWNED), averaged)
    return Verdict(list(_SENTENCES)[place], error, averaged)


def judge_records(plan: RecordPlan, rounds: int) -> Verdict:
    """The verdict on sums of records, if their mean gradient is ``SIGNAL``·C long."""
    return judge(plan.error / SIGNAL**2, rounds)


def mean_error(
    scheme: Scheme | Sphere | ClientSum, dimension: int, clients: int
) -> tuple[float, float]:
    """(E‖error of one round's mean‖² over the update's energy, its lasting part).

    Updates are as long as the clip, or Gaussian at the best spread if entries are clipped.
    """
    if isinstance(scheme, ClientSum):
        count = min(max(clients, scheme.threshold), scheme.clients)
        return scheme.expected_error(dimension, clients=count), 0.0
    if isinstance(scheme, Sphere):
        return scheme.expected_error(dimension) / clients, 0.0
    if not scheme.codec.is_bounded:
        sigma = 1.0 / (scheme.spread * math.sqrt(scheme.dimension))
        return scheme.distortion / clients / sigma**2, 0.0
    spread = best_spread(scheme, clients)
    lasting = normalised_error(scheme, spread, math.inf)
    return normalised_error(scheme, spread, clients), lasting
