"""How good a fitted model is on the hospitals' records, from one private sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from jopeq.models.columns import Key, read_table
from jopeq.models.fit import Fit
from jopeq.statistics.evaluation import Evaluation, Scoring
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sum import RecordSum

_JUMP = 1e-6  # of probabilities within which an answer is neither right nor wrong


class Group(Protocol):
    """A column whose public levels divide the records: of ``statistics`` or of ``models``."""

    @property
    def column(self) -> str: ...
    @property
    def levels(self) -> Sequence[Any]: ...


def scoring_of(fit: Fit, cut: float = 0.5, by: Group | None = None) -> Scoring:
    """The sum that evaluates a fit; ``ValueError`` if it is no classifier."""
    if fit.classes_ is None:
        raise ValueError("evaluate takes classifiers, such as Logistic: others have fit.score")
    levels = () if by is None else tuple(by.levels)
    is_pair = len(fit.classes_) == 2
    return Scoring(kind="outcomes" if is_pair else "classes", threshold=cut, levels=levels)


def score_table(fit: Fit, table: Any, scoring: Scoring, by: Group | None = None) -> ClippedTotal:
    """One hospital's exact total. Private. A record that lacks a value counts as zeros."""
    keys: tuple[Key, ...] = (
        fit.model.keys if by is None else (*fit.model.keys, (by.column, "words"))
    )
    values = read_table(table, tuple(dict.fromkeys(keys)))
    (targets, is_known), chances = fit.model.targets(values), fit.means(values)
    if scoring.kind == "outcomes":
        scores, outcomes = chances[:, 1], targets[:, 0]
    else:
        is_own = targets == np.arange(chances.shape[1])
        own, other = (np.where(mask, chances, 0.0).max(axis=1) for mask in (is_own, ~is_own))
        scores, outcomes = chances.max(axis=1), np.clip((own - other) / _JUMP, -1.0, 1.0) / 2 + 0.5
    outcomes = np.where(is_known, outcomes, np.nan)
    places = None if by is None else scoring.places(values[by.column, "words"])
    return ClippedTotal(scoring.dimension, 1.0).add(scoring.rows(scores, outcomes, places))


def evaluate(
    fit: Fit,
    tables: Sequence[Any],
    *,
    epsilon: float,
    records: int,
    threshold: int,
    delta: float = 1e-5,
    cut: float = 0.5,
    by: Group | None = None,
    colluding: int = 1,
    hospitals_per_person: int = 1,
) -> Evaluation:
    """AUC, calibration and error rates of a fit on these tables, all in this process.

    The tables go through real shares of one private sum, as in ``Model.fit``.

    Parameters
    ----------
    fit : Fit
        A fitted classifier. Records that it was fitted to make it look better than it is.
    tables : sequence
        The hospitals' tables, as for ``Model.fit``.
    epsilon, delta : float
        Privacy asked for, of one record; it adds to what the fit has cost.
    records : int
        Public estimate of all hospitals' records together.
    threshold : int
        Fewest hospitals in a sum.
    cut : float, default 0.5
        The predicted chance from which on the second class is predicted.
    by : Category, optional
        A column whose levels are also evaluated alone.
    colluding, hospitals_per_person : int, default 1
        As for the models.
    """
    count, scoring = len(tables), scoring_of(fit, cut, by)
    scheme = RecordSum(
        epsilon=epsilon, delta=delta, clip=1.0, records=records, sampling=1.0, rounds=1,
        clients=max(count, threshold), threshold=threshold, colluding=colluding,
        hospitals_per_person=hospitals_per_person,
    )  # fmt: skip
    mean = scheme.pool([score_table(fit, table, scoring, by) for table in tables])
    return scoring.read(mean, scheme, count)
