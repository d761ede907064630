"""Hazard ratios from a piecewise-exponential model of the time until an event, with intervals.

In period j a record's hazard is exp(α_j + x·β). Its row, the sum of gradient and Hessian over its
periods, must be bounded without clipping, which would bias the estimate. So a record is watched
only until its expected number of events Λ reaches ½: later time and later events do not count.
That moment depends only on x and the public weights, so observed minus expected events stay a
martingale with mean 0, whose variance is the Hessian.

A row has the period's b = 1/B next to x, with ‖x‖² ≤ 1 − b². Let a² = 3 − 4b² and Λ ≤ ½. The row's
squared norm is at most Λ²(1 + a²) ≤ 1 without an event. With one it is at most
(1 − Λ)²(1 − b²) + b²(1 + Λ²) + a²Λ² ≤ 1, which is convex and 1 at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np

from jopeq.models import totals
from jopeq.models.design import Design
from jopeq.models.inference import FLOOR, Newton
from jopeq.models.method import Estimate, Records, State, invert
from jopeq.models.totals import Array, Integers
from jopeq.random.portable import exp
from jopeq.sums.clipped_total import ClippedTotal

_MOST = 0.5  # expected events until a record is no longer watched
_LEAST = 0.5  # events of a period, for its logarithm
_CLEAR = 5.0  # standard errors of a period's events
_TOLD = 2.5  # noise norms above which a direction is reported


class Risks:
    """The constants C and a that ``Newton`` needs from a family; ``length`` is B."""

    scale: ClassVar[float] = 1.0
    null: ClassVar[tuple[float, float]] = (_MOST, _MOST)

    def __init__(self, length: float) -> None:
        self.balance = math.sqrt(3.0 - 4.0 / length**2)


class Hazards(Newton):
    """``Newton`` for a constant in every period between ``cuts``, and slopes.

    Targets are the fractions of the whole time that a record was watched in each period, then the
    number of its event's period, from 1, or 0.
    """

    def __init__(self, design: Design, cuts: Array, messages: int | None) -> None:
        super().__init__(design, cast(Any, Risks(design.length)), messages)
        self.cuts, self.periods, self.slopes = cuts, len(cuts) - 1, self.size - 1
        self.size = self.periods + self.slopes
        periods, slopes, length = self.periods, self.slopes, self.length
        self.first = np.repeat((length * math.log(_MOST), 0.0), (periods, slopes))
        self._upper = np.triu_indices(slopes)
        self._double = np.where(self._upper[0] == self._upper[1], 1.0, math.sqrt(2.0))

    def dimension(self, step: int) -> int:
        return self.size + self.periods * (1 + self.slopes) + len(self._double)

    def total(self, records: Records, step: int, sent: Mapping[str, Array]) -> Integers:
        """Σ (gradient, Hessian)/C of a hospital."""
        weights = sent["weights"] if step else self.first
        total = ClippedTotal(self.dimension(step), 1.0)
        for piece in records.pieces():
            total.add(self.rows(piece, weights))
        return total.values

    def rows(self, records: Records, weights: Array) -> Array:
        """One row per record, of norm at most 1."""
        count, periods, (first, second) = len(records.rows), self.periods, self._upper
        slopes = np.append(0.0, weights[periods:])[:, None]
        whole = totals.row_integers(records.rows)
        risk = weights[:periods] / self.length + totals.logits(whole, slopes)
        constant, x = records.rows[:, :1], records.rows[:, 1:]
        expected = records.targets[:, :-1] * exp(np.clip(risk, -30.0, 30.0))
        until = np.cumsum(expected, axis=1)
        events = (records.targets[:, -1:] == np.arange(1, periods + 1)) & (until[:, -1:] <= _MOST)
        counted = np.diff(np.minimum(until, _MOST), axis=1, prepend=0.0)
        beyond, all_counted = counted - events, np.minimum(until[:, -1:], _MOST)
        mixed = constant[:, :, None] * counted[:, :, None] * x[:, None]
        parts = (
            constant * beyond,
            x * (all_counted - events.any(axis=1, keepdims=True)),
            self.family.balance * constant**2 * counted,
            self.family.balance * math.sqrt(2.0) * mixed.reshape(count, -1),
            self.family.balance * all_counted * x[:, first] * x[:, second] * self._double,
        )
        return np.concatenate(parts, axis=1)

    def unpack(self, total: Array) -> tuple[Array, Array]:
        places = np.cumsum((self.size, self.periods, self.periods * self.slopes))
        gradient, own, mixed, inner = np.split(total, places)
        hessian = np.zeros((self.size, self.size))
        hessian[: self.periods, self.periods :] = (mixed / math.sqrt(2.0)).reshape(self.periods, -1)
        hessian[self.periods :, self.periods :][self._upper] = inner / self._double
        hessian = np.triu(hessian, 1) + np.triu(hessian, 1).T + np.diag(np.diag(hessian))
        hessian[np.diag_indices(self.periods)] = own
        return gradient, hessian

    def solve(self, kept: Mapping[str, Array]) -> tuple[Array, Array, Array, Array]:
        """Solve by blocks: the periods' block is diagonal, and so needs no noisy entries off it.

        A period counts at least five standard errors of events; being wrong there hardly affects
        slopes. The noise's contribution to the square of the mixed block is subtracted.
        """
        count, periods = float(kept["count"]), self.periods
        noise = float(kept["noise"]) / self.family.balance / math.sqrt(count)
        hessian, gradient = kept["hessian"] / count, kept["gradient"] / count
        own = np.diag(hessian)[:periods]
        is_thin = own < _CLEAR * noise
        own = np.maximum(own, _CLEAR * noise)
        mixed = hessian[:periods, periods:] / own[:, None]
        inside = hessian[periods:, periods:] - mixed.T @ (own[:, None] * mixed)
        inside += np.eye(self.slopes) * float((noise**2 / 2.0 / own).sum())
        edge = noise * math.sqrt(2.0 * self.slopes)
        inverse, is_open = invert(inside, FLOOR * edge, _TOLD * edge, self.report[1:, 1:])
        both = mixed @ inverse
        whole = np.block([[np.diag(1.0 / own) + both @ mixed.T, -both], [-both.T, inverse]])
        return kept["weights"] / count, whole, whole @ gradient, np.append(is_thin, is_open)

    def start(self, kept: dict[str, Array]) -> Array:
        """Start at events over time in every period, and the slopes of one step from there."""
        noise, periods = float(kept["noise"]) * self.length, self.periods
        times = np.diag(kept["hessian"])[:periods] * self.length**2 / _MOST
        events = _MOST * times - kept["gradient"][:periods] * self.length
        times = np.maximum(times, 2.0 * noise * self.length)
        kept["records"], kept["events"] = np.array(times.sum()), np.array(events.sum())
        kept["clear"] = np.array(_CLEAR * noise * math.sqrt(periods))
        mean = max(float(events.sum()), 2.0 * noise * math.sqrt(periods)) / float(times.sum())
        rates = np.maximum(events, np.maximum(mean * times / 4.0, _LEAST)) / times
        _, _, move, _ = self.solve(kept)
        slopes = -move[periods:] * _MOST / mean
        slopes *= min(1.0, self.length / max(float(np.linalg.norm(slopes)), 1e-300))
        return np.concatenate((self.length * np.log(rates), slopes))

    def estimate(self, state: State) -> Estimate:
        """The mean of the periods' constants, and the slopes; the hazards go into the figures."""
        found, periods = super().estimate(state), self.periods
        mix = np.zeros((1 + self.slopes, self.size))
        mix[0, :periods], mix[1:, periods:] = 1.0 / periods, np.eye(self.slopes)
        why = next((one for one in found.hidden[:periods] if one), "")
        others = self.report[0, 1:] @ found.weights[periods:, 0]  # of the first levels
        hazards = np.exp(found.weights[:periods, 0] * self.report[0, 0] + others)
        hazards /= self.cuts[-1] - self.cuts[0]
        spans = zip(self.cuts[:-1], self.cuts[1:], hazards.tolist(), strict=True)
        rates = {f"hazard {low:g}–{high:g}": one for low, high, one in spans}
        return found._replace(
            weights=mix @ found.weights,
            covariance=mix @ cast(Array, found.covariance) @ mix.T,
            hidden=(why, *found.hidden[periods:]),
            figures={"events": found.figures["events"], **rates},
        )


def concordance(times: Array, events: Array, risks: Array) -> float:
    """Harrell's C, the frequency with which the patient with the earlier event has more risk."""
    right = pairs = 0.0
    for place in np.flatnonzero(events):
        later = times > times[place]
        pairs += later.sum()
        right += (risks[later] < risks[place]).sum() + 0.5 * (risks[later] == risks[place]).sum()
    return float(right / pairs) if pairs else math.nan
