"""How well a model does on the hospitals' records, from one more private sum.

A record's row is (1, 2·score − 1, 2·loss/L − 1)/√3, of norm at most 1: its score is from 0 to 1
(1 for a right answer), its loss is cut at the public L. The mean row p·(1, s, l)/√3 gives the score
(1 + s)/2 and the loss L(1 + l)/2; p is the records there are beside those expected, which nobody
has to tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jopeq.sums.record_sum import RecordSum

EVALUATED = 3
"""Entries of a row."""

_CLEAR = 5.0  # standard errors that p must have
_LEAST_LOSS, _MOST_LOSS = 1e-3, 1e6  # L = 1e-17 would magnify the last bits of floats


@dataclass(frozen=True)
class Evaluation:
    """Means over the records; errors are standard errors of the noise that makes them private."""

    accuracy: float
    accuracy_error: float
    loss: float
    loss_error: float
    records: float  # that took part, about


def check_largest_loss(value: Any) -> float:
    """L, or ``ValueError``."""
    if not isinstance(value, float | int) or not _LEAST_LOSS <= value <= _MOST_LOSS:
        raise ValueError(
            f"largest_loss must be a number from {_LEAST_LOSS:g} to {_MOST_LOSS:g}, got "
            f"{value!r:.40}"
        )
    return float(value)


def read_evaluation(
    scheme: RecordSum, mean: Any, *, clients: int, largest_loss: float
) -> Evaluation | None:
    """Read the decoded mean row of ``clients`` hospitals; None if it is mostly noise.

    ``scheme`` is ``evaluation`` of the scheme that trains.
    """
    present, score, loss = (float(one) * math.sqrt(EVALUATED) for one in mean)
    error = math.sqrt(scheme.plan(EVALUATED, clients).error)  # of each of the three
    if not present > _CLEAR * error:
        return None

    def ratio(total: float, unit: float) -> tuple[float, float]:
        """(1 + total/p)/2 within 0 to 1, and its error to first order."""
        found = min(max(total / present, -1.0), 1.0)
        return unit * (1.0 + found) / 2.0, unit * error * math.hypot(1.0, found) / (2.0 * present)

    return Evaluation(
        *ratio(score, 1.0), *ratio(loss, largest_loss), present * scheme.expected_batch
    )
