"""Survival of patients by group: Kaplan–Meier curves with bands, and the log-rank test.

A record is in one cell: its group, the time bin in which it leaves, and whether by an event or
censored. Cells go through ``running_code``: events from the first bin on, because survival adds
them up, and censored records from the last, because those at risk add up what is left. With x the
noisy cells of a group, n = Mx are the records at risk, where records censored in a bin count half
(the actuarial rule), and q = events/n. Errors combine sampling (Greenwood's formula) and the noise,
whose covariance s²PPᵀ is known exactly, to first order in both (the delta method).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from scipy.stats import chi2

from jopeq.checks import set_fields
from jopeq.statistics.columns import Category, check_edges
from jopeq.statistics.parts import Array, Columns, Part, running_code
from jopeq.statistics.pictures import COLORS
from jopeq.statistics.questions import Answer, Interval, Question, Read, Totals, Z
from jopeq.statistics.tables import Key

ALL = "all"  # the only group without ``by``
_MOST_EDGES = 513
_FEWEST, _CLEAR = 10.0, 4.0  # at risk: records, and standard errors of their number
_MOST_RATE = 0.999  # in a bin: a curve never falls to 0 at once


@dataclass(frozen=True)
class Courses(Part):
    """A coded cell for (group, bin, event or censored), or a last entry if a value is missing."""

    time: str
    event: str
    edges: tuple[float, ...]
    by: Category | None

    @property
    def groups(self) -> tuple[str, ...]:
        return (ALL,) if self.by is None else tuple(self.by.levels)

    @property
    def width(self) -> int:
        """Entries of a group: events in each bin, records censored in each, and those who stay."""
        return 2 * len(self.edges) - 1

    @property
    def size(self) -> int:
        return self.width * len(self.groups) + 1

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(running_code(len(self.edges))[0][:, 0]))

    @property
    def effect(self) -> float:
        return self.norm**2

    @property
    def columns(self) -> tuple[Key, ...]:
        by = () if self.by is None else self.by.keys
        return ((self.time, "numbers"), (self.event, "numbers"), *by)

    def fill(self, rows: Array, columns: Columns) -> None:
        times, events = columns[self.time, "numbers"], columns[self.event, "numbers"]
        bins = len(self.edges) - 1
        cells = np.searchsorted(self.edges[1:], times, side="left")  # the last: those who stay
        cells += np.where((events == 1.0) & (cells < bins), 0, bins)
        groups = np.zeros(len(times), dtype=np.int64)
        if self.by is not None:
            places = {level: place for place, level in enumerate(self.by.levels)}
            groups[:] = [places.get(word, -1) for word in columns[self.by.column, "words"]]
        groups[np.isnan(times) | ~np.isin(events, (0.0, 1.0))] = -1
        code = _codes(bins)[0]
        for group in range(len(self.groups)):
            there = groups == group
            rows[there, group * self.width : (group + 1) * self.width] = code[cells[there]]
        rows[groups < 0, -1] = 1.0


@lru_cache(maxsize=8)
def _codes(bins: int) -> tuple[Array, Array]:
    """(the codes of a group's cells, P), both (cells, entries); P·entries = cells."""
    width = 2 * bins + 1
    code, decode = np.zeros((width, width)), np.zeros((width, width))
    for place, (one, inverse) in enumerate((running_code(bins), running_code(bins + 1))):
        part = slice(bins, None) if place else slice(None, bins)
        step = -1 if place else 1
        code[part, part], decode[part, part] = one.T[::step, ::step], inverse[::step, ::step]
    return code, decode


@dataclass(frozen=True)
class Curve:
    """Survival of a group at ``times``; ``lower`` and ``upper`` are pointwise 95% bands.

    ``at_risk`` counts the records still there at each time, ``events`` the events until then.
    ``mean`` is restricted: the mean time until the event or the ``horizon``. Times end where too
    few are at risk to tell them from noise.
    """

    group: str
    times: Array
    survival: Array
    error: Array
    lower: Array
    upper: Array
    at_risk: Array
    events: Array
    median: Interval
    mean: Interval
    horizon: float


class LogRank(NamedTuple):
    """The log-rank test of equal survival in all groups: χ², degrees of freedom, p-value."""

    statistic: float
    freedom: int
    p: float


@dataclass(frozen=True)
class Survival(Question):
    """Kaplan–Meier curves of the time until an event, by group, and the log-rank test.

    ``column`` has the times. ``event`` is 1 (or True) if the time ends with the event and 0 if it
    is censored; records with other values count as missing. Bins (edges[j], edges[j + 1]] and the
    levels of ``by`` are public. Times begin at the first edge.
    """

    event: str
    edges: tuple[float, ...]
    by: Category | None = field(default=None, kw_only=True)
    word: ClassVar[str] = "survival"
    height: ClassVar[float] = 4.4
    divides: ClassVar[float] = 0.01  # only the minimum reads the count

    def __post_init__(self) -> None:
        super().__post_init__()
        by = Category(**self.by) if isinstance(self.by, Mapping) else self.by  # from a spec
        if not isinstance(by, Category | None):
            raise ValueError(f"by must be a Category('arm', ['A', 'B']), got {by!r:.80}")
        edges = check_edges("edges", self.edges, _MOST_EDGES)
        set_fields(self, event=str(self.event), edges=edges, by=by)
        if len({self.column, self.event, by and by.column}) < 3:
            raise ValueError(
                f"time, event and by must be different columns, got {self.column!r}, "
                f"{self.event!r} and {by and by.column!r}"
            )

    @property
    def name(self) -> str:
        return self.word if self.by is None else f"{self.word} by {self.by.column}"

    @property
    def parts(self) -> tuple[Courses]:
        return (Courses(self.column, self.event, self.edges, self.by),)

    def read(self, totals: Totals) -> Read:
        values, errors = dict[str, float](), dict[str, float]()
        for curve in self._curves(self._courses(totals)):
            columns = (one[1:].tolist() for one in (curve.times, curve.survival, curve.error))
            for time, value, error in zip(*columns, strict=True):
                label = f"{curve.group} {time:g}" if self.by else f"{time:g}"
                values[label], errors[label] = value, error
        return values, errors

    def answer(self, totals: Totals, is_said: bool) -> SurvivalAnswer:
        usual, courses = super().answer(totals, is_said), self._courses(totals) if is_said else []
        curves = self._curves(courses)
        return SurvivalAnswer(self, usual.value, usual.error, curves, compare(courses))

    def draw(self, answer: Answer, panel: Any) -> None:
        """Draw steps with bands, and a table of those at risk below."""
        curves = cast(SurvivalAnswer, answer).curves
        for color, curve in zip(cycle(COLORS), curves, strict=False):
            panel.step(curve.times, curve.survival, where="post", color=color, label=curve.group)
            bands = (curve.lower, curve.upper)
            panel.fill_between(curve.times, *bands, step="post", color=color, alpha=0.2, lw=0)
        panel.set(xlabel=self.column, ylabel="survival", ylim=(0.0, 1.02))
        first, last = self.edges[0], self.edges[-1]
        shown = [first]
        for edge in self.edges:
            if edge - shown[-1] >= (last - first) / 7.5:
                shown.append(edge)
        panel.set_xlim(first, last)
        panel.set_xticks(shown, [f"{edge:g}" for edge in shown])
        if self.by is not None:
            test = cast(SurvivalAnswer, answer).log_rank
            title = self.by.column + ("" if test is None else f", log-rank p = {test.p:.2g}")
            panel.legend(title=title, frameon=False, loc="lower left")
        beside, below = ("axes fraction", -24, "right"), (panel.get_xaxis_transform(), 0, "center")
        rows: list[tuple[str, str, list[Any]]] = [("black", "at risk", [])]
        for color, curve in zip(cycle(COLORS), curves, strict=False):
            pairs = zip(curve.times.tolist(), curve.at_risk.tolist(), strict=True)
            rows.append((color, curve.group, [pair for pair in pairs if pair[0] in shown]))
        for place, (color, name, counts) in enumerate(rows):
            cells: list[Any] = [((0.0, 0.0), name, beside)]
            cells += [((time, 0.0), f"{count:,.0f}", below) for time, count in counts]
            for where, text, (system, right, side) in cells:
                panel.annotate(
                    text, where, xycoords=system, ha=side, color=color, size="small",
                    xytext=(right, -42 - 13 * place), textcoords="offset points", va="top",
                )  # fmt: skip

    def _courses(self, totals: Totals) -> list[Course]:
        values, errors = totals[self.parts[0]]
        decode = _codes(len(self.edges) - 1)[1]
        coded = values[:-1].reshape(-1, len(decode))
        return [Course(decode @ one, float(errors[0]) * decode) for one in coded]

    def _curves(self, courses: Sequence[Course]) -> tuple[Curve, ...]:
        horizon = min((course.clear for course in courses), default=0)
        return tuple(
            course.curve(group, np.array(self.edges), horizon)
            for group, course in zip(self.parts[0].groups, courses, strict=False)
        )


class Course:
    """The noisy cells of a group; ``noise`` is a root of the noise's covariance."""

    def __init__(self, cells: Array, noise: Array) -> None:
        bins = len(cells) // 2
        later = np.triu(np.ones((bins, bins)))
        self.exposure = np.hstack((later, later - np.eye(bins) / 2.0, np.ones((bins, 1))))
        self.noise, self.events, self.at_risk = noise, cells[:bins], self.exposure @ cells
        self.there = np.append(self.at_risk + cells[bins:-1] / 2.0, cells[-1])  # at the edges
        spread = np.linalg.norm(self.exposure @ noise, axis=1)
        is_clear = self.at_risk > np.maximum(_FEWEST, _CLEAR * spread)
        self.clear = int(np.logical_and.accumulate(is_clear).sum())  # bins that are reported

    def curve(self, group: str, edges: Array, horizon: int) -> Curve:
        """The curve at all reported edges; the mean is restricted to ``edges[horizon]``."""
        bins, times = self.clear, edges[: self.clear + 1]
        at_risk, events = self.at_risk[:bins], self.events[:bins]
        rates = np.minimum(events / at_risk, _MOST_RATE)
        slopes = -rates[:, None] * self.exposure[:bins]  # of the rates, times those at risk
        slopes[:, :bins] += np.eye(bins)
        weights = 1.0 / (at_risk * (1.0 - rates))
        hazard = _from_zero(-np.log1p(-rates))
        noise = _from_zero((weights[:, None] * slopes) @ self.noise)
        sampling = _from_zero(rates * weights)
        error = np.sqrt(np.maximum(sampling, 0.0) + (noise**2).sum(axis=1))
        survival, lower, upper = (
            _descend(np.exp(-hazard + side * Z * error)) for side in (0.0, -1.0, 1.0)
        )
        # the mean by trapezoids
        steps = np.diff(edges[: horizon + 1])
        parts = survival[: horizon + 1] * (np.append(steps, 0.0) + np.append(0.0, steps)) / 2.0
        after = np.cumsum(parts[::-1])[::-1][1:]  # the mean's loss per hazard of a bin
        square = max(float(after**2 @ np.diff(sampling)[:horizon]), 0.0)
        spread = Z * math.hypot(math.sqrt(square), *(parts @ noise[: horizon + 1]))
        mean, most = float(parts.sum()), float(edges[horizon] - edges[0])
        return Curve(
            group=group, times=times, survival=survival, error=survival * error,
            lower=lower, upper=upper, horizon=float(edges[horizon]),
            at_risk=_descend(self.there[: bins + 1], math.inf),
            events=np.maximum.accumulate(np.maximum(_from_zero(events), 0.0)),
            median=Interval(*(_crossing(times, one) for one in (survival, lower, upper))),
            mean=Interval(mean, max(mean - spread, 0.0), min(mean + spread, most)),
        )  # fmt: skip


def compare(courses: Sequence[Course]) -> LogRank | None:
    """The log-rank test over the bins reported for all groups; None without two groups.

    U_g = Σ(e_g − E·n_g/n) over the bins. Its covariance is the hypergeometric one plus the noise's,
    from the slopes of U.
    """
    bins, groups = min((course.clear for course in courses), default=0), len(courses)
    if groups < 2 or not bins:
        return None
    at_risk = np.stack([course.at_risk[:bins] for course in courses])
    events = np.stack([course.events[:bins] for course in courses])
    everybody, all_events = at_risk.sum(axis=0), events.sum(axis=0)
    rates, shares = all_events / everybody, at_risk / everybody
    apart = np.eye(groups)[:, :, None] - shares[:, None]  # ∂(n_g/n)/∂n_h, times n
    score = (events - all_events * shares).sum(axis=1)
    spread = all_events * (everybody - all_events) / (everybody - 1.0)
    variance = _positive(np.einsum("j,gj,ghj->gh", spread, shares, apart.swapaxes(0, 1)))
    for group, course in enumerate(courses):
        slopes = -(rates * apart[:, group]) @ course.exposure[:bins]
        slopes[:, :bins] += apart[:, group]
        noise = slopes @ course.noise
        variance += noise @ noise.T
    found, inner = score[:-1], variance[:-1, :-1]
    statistic = float(found @ np.linalg.solve(inner, found))
    return LogRank(statistic, groups - 1, float(chi2.sf(statistic, groups - 1)))


def _from_zero(steps: Array) -> Array:
    """Running sums along the first axis, starting at 0."""
    return np.concatenate((np.zeros((1, *steps.shape[1:])), steps.cumsum(axis=0)))


def _descend(curve: Array, most: float = 1.0) -> Array:
    """A falling curve from 0 to ``most``, halfway between the least so far and the most to come."""
    held = np.clip(curve, 0.0, most)
    found: Array = np.minimum.accumulate(held) + np.maximum.accumulate(held[::-1])[::-1]
    return found / 2.0


def _crossing(times: Array, curve: Array) -> float | None:
    """The time at which a falling curve reaches one half."""
    if curve[-1] > 0.5:
        return None
    return float(np.interp(-0.5, -curve, times))


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    found: Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return found


@dataclass(frozen=True)
class SurvivalAnswer(Answer):
    """Survival of each group at each reported time, as ``value`` and ``error``.

    Unlike in other answers, errors and intervals include sampling: they describe the population
    that the patients came from.
    """

    curves: tuple[Curve, ...]
    log_rank: LogRank | None

    @property
    def told(self) -> str:  # type: ignore[override]
        if not self.curves:
            return ""
        until = f"mean up to {self.curves[0].horizon:g}"
        lines = [f"{self.question.name}, with 95% intervals"]
        lines.append(_row("", "records", "events", "median", until))
        for one in self.curves:
            there, events = (f"{count:,.0f}" for count in (one.at_risk[0], one.events[-1]))
            lines.append(_row(one.group, there, events, _show(one.median), _show(one.mean)))
        if self.log_rank is not None:
            chi, freedom, p = self.log_rank
            lines.append(f"log-rank test: χ² = {chi:.2f} ({freedom} d.f.), p = {p:.2g}")
        lines.append("Errors and intervals of survival include sampling and noise.")
        return "\n".join(lines)


def _row(group: str, records: str, events: str, median: str, mean: str) -> str:
    return f"{group:14.14} {records:>7} {events:>7} {median:>24} {mean:>24}"


def _show(interval: Interval) -> str:
    value, *limits = ("–" if one is None else f"{one:.4g}" for one in interval)
    return f"{value} ({limits[0]} to {limits[1]})"
