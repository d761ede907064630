"""The search behind ``RecordSum.propose``: rounds, sampling, bits and threshold for a job.

Smaller samples cost less computing and raise the noise of a mean: for each number of rounds the
smallest sampling is taken that is nearly as good as full batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jopeq.sums.record_accounting import least_multiplier
from jopeq.sums.record_plan import SAMPLINGS, RecordPlan, fit_records
from jopeq.sums.shares import check_dimension

if TYPE_CHECKING:
    from jopeq.sums.record_sum import RecordSum

ROUNDS = (10, 30, 60, 100)
_DEARER = 1.25  # than full batches: a sample may make a round's squared error so much larger
_LEAST_ROUNDS = 30  # training by gradients needs as many, private or not
SIGNAL = 0.1
"""Length of the mean gradient in units of the clip that is assumed for a verdict on records.

Gradients of records point in many ways, and their mean gets shorter as a model learns. Ten
hospitals at ε = 1 fit the verdict: 60,000 digits (0.002) lose 0.1 points, 4,000 digits (0.5) lose
1.5, 400 patients (0.5) lose 3."""


@dataclass(frozen=True)
class Proposal:
    """A ``RecordSum`` for a job, its plan, and why these numbers; ``options`` were considered."""

    options: tuple[tuple[RecordSum, RecordPlan], ...]

    @cached_property
    def _chosen(self) -> tuple[RecordSum, RecordPlan]:
        enough = [option for option in self.options if option[0].rounds >= _LEAST_ROUNDS]
        clear = [option for option in enough if option[1].error <= SIGNAL**2]
        return [*enough[:1], *clear][-1] if enough else self.options[-1]

    @property
    def scheme(self) -> RecordSum:
        """The option of most rounds whose mean gradients stand out of the noise, else of fewest."""
        return self._chosen[0]

    @property
    def plan(self) -> RecordPlan:
        """The scheme's plan for the whole cohort."""
        return self._chosen[1]

    @property
    def why(self) -> str:
        """Why these rounds, sampling, bits and threshold, a line for each."""
        scheme, plan = self._chosen
        listed = ", ".join(f"{plan.error:.2g} ({one.rounds})" for one, plan in self.options)
        stands = "stands out of" if plan.error <= SIGNAL**2 else "is below"
        sampled = (
            "every record is in every round: smaller samples need more noise"
            if scheme.sampling == 1.0
            else f"the smallest sample whose squared error is at most {_DEARER:g} times that of "
            "full batches"
        )
        return (
            f"rounds={scheme.rounds}: the noise over a whole run hardly depends on the rounds, and "
            f"training converges in {_LEAST_ROUNDS} to {ROUNDS[-1]}; a round's mean gradient of "
            f"{SIGNAL:g}·C {stands} its noise, whose error/C² is (rounds): {listed}.\n"
            f"sampling={scheme.sampling:g}: {sampled}.\n"
            f"bits={plan.bits}: the fewest whose error is within 5% of a central Gaussian's.\n"
            f"threshold={scheme.threshold}: half of the {scheme.clients} hospitals, or "
            f"colluding + 2. A whole cohort answers, so a low threshold costs no noise."
        )

    def __str__(self) -> str:
        return f"{self.scheme}\n{self.why}"


def fit_rounds(
    full: RecordSum, dimension: int, rounds: Iterable[int]
) -> Iterator[tuple[RecordSum, RecordPlan]]:
    """For each number of rounds the smallest sampling that is nearly as good as full batches.

    Where that sampling has no plan, the largest that has one is taken. Rounds that no plan fits are
    left out; where none fits, the last refusal is raised.
    """
    place, refused, is_any = len(SAMPLINGS) - 1, None, False
    dimension = check_dimension(dimension)
    for count in sorted(set(rounds)):
        here = replace(full, rounds=count)
        # more rounds allow smaller samples, so the search goes on where it was
        while place and _ratio(here, SAMPLINGS[place - 1]) <= math.sqrt(_DEARER):
            place -= 1
        for sampling in sorted(SAMPLINGS, key=lambda q: (q != SAMPLINGS[place], -q)):
            if sampling * full.records >= 1.0:
                scheme = replace(here, sampling=sampling)
                try:
                    plan = fit_records(scheme, dimension, full.clients)
                except ValueError:
                    refused = scheme
                else:
                    is_any = True
                    yield scheme, plan
                    break
    if not is_any:
        if refused is None:
            raise ValueError("rounds must name at least one number")
        refused.plan(dimension)  # raises, with what would do


def _ratio(full: RecordSum, sampling: float) -> float:
    """Noise of a mean compared with that of full batches."""
    given, rounds = (full.epsilon, full.delta), full.rounds
    sampled, whole = (least_multiplier(*given, q, rounds, 1) / q for q in (sampling, 1.0))
    return sampled / whole
