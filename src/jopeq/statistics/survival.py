"""Survival of patients by group: Kaplan–Meier curves with bands, and the log-rank test.

A record is in one cell: its group, the time bin in which it leaves, and whether by an event or
censored. Cells go through ``running_code``, events from the first bin on and censored records from
the last, as survival adds up events and those at risk add up what is left. With x the noisy cells
of a group, n = Mx are the records at risk, of which those who are censored in a bin count half in
it (the actuarial rule), and q = events/n. Errors are those of sampling (Greenwood's) and of the
noise, whose covariance s²PPᵀ is known exactly, to first order in both (the delta method).
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

from jopeq.statistics.parts import Array, Columns, Part, running_code
from jopeq.statistics.pictures import COLORS
from jopeq.statistics.questions import (
    Answer,
    Interval,
    Number,
    Question,
    Totals,
    Z,
    check_edges,
    check_words,
)
from jopeq.statistics.tables import Kind

ALL = "all"  # the group where there is none
_MOST_EDGES = 513
_FEWEST, _CLEAR = 10.0, 4.0  # at risk: records, and standard errors of their number
_MOST_RATE = 0.999  # of a bin: a curve never falls to 0 at once


@dataclass(frozen=True)
class Category:
    """A column whose public ``levels`` divide the records; others are left out."""

    column: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", str(self.column))
        object.__setattr__(self, "levels", check_words("levels", self.levels))


@dataclass(frozen=True)
class Courses(Part):
    """A cell for (group, bin, event or censored), coded; missing values of any kind are alone."""

    time: str
    event: str
    edges: tuple[float, ...]
    by: Category | None

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups."""
        return (ALL,) if self.by is None else self.by.levels

    @property
    def width(self) -> int:
        """Entries of a group: events in each bin; censored in each, and all that stay on."""
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
    def columns(self) -> tuple[tuple[str, Kind], ...]:
        by: tuple[tuple[str, Kind], ...] = () if self.by is None else ((self.by.column, "words"),)
        return ((self.time, "numbers"), (self.event, "numbers"), *by)

    def fill(self, rows: Array, columns: Columns) -> None:
        times, events = columns[self.time, "numbers"], columns[self.event, "numbers"]
        bins = len(self.edges) - 1
        cells = np.searchsorted(self.edges[1:], times, side="left")  # later times: all that stay on
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
    """(cells, entries) of a group; and P, (cells, entries), which decodes: P·entries = cells."""
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

    ``at_risk`` are the records still there at each time, ``events`` those until then. Times end
    where too few are at risk to tell them from noise.
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
    """The restricted mean: the mean time until the event or the ``horizon``."""
    horizon: float

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {
            name: one.tolist() if isinstance(one, np.ndarray) else one
            for name, one in vars(self).items()
        }


class LogRank(NamedTuple):
    """The log-rank test that all groups have one survival: its χ², degrees of freedom, p-value."""

    statistic: float
    freedom: int
    p: float


@dataclass(frozen=True)
class Survival(Question):
    """Kaplan–Meier curves of the time until an event, by group, and the log-rank test.

    ``column`` has the times, ``event`` is 1 (or True) where the time ends with the event and 0
    where it is censored; records with other values count as missing. Bins (edges[j], edges[j + 1]]
    are public, as are the levels of ``by``. Times begin at the first edge.

    >>> from jopeq.statistics import Survey
    >>> rng = np.random.default_rng(0)
    >>> hospitals = [
    ...     {"months": rng.exponential(30, 400), "death": np.ones(400), "arm": ["A", "B"] * 200}
    ...     for _ in range(10)
    ... ]
    >>> asked = Survival("months", "death", range(0, 61, 6), by=Category("arm", ["A", "B"]))
    >>> survey = Survey([asked], epsilon=1.0, clients=10, threshold=8)
    >>> answer = survey.ask(hospitals)["months"]["survival by arm"]
    >>> curve = answer.curves[0]
    >>> bool(abs(curve.median.value - 20.8) < 5), answer.log_rank.p > 1e-6
    (True, True)
    """

    event: str
    edges: tuple[float, ...]
    by: Category | None = field(default=None, kw_only=True)
    word: ClassVar[str] = "survival"
    height: ClassVar[float] = 4.4
    divides: ClassVar[float] = 0.01  # only the minimum reads the count

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "event", str(self.event))
        object.__setattr__(self, "edges", check_edges(self.edges, _MOST_EDGES))
        by = Category(**self.by) if isinstance(self.by, Mapping) else self.by
        if by is not None:
            if not (hasattr(by, "column") and hasattr(by, "levels")):
                raise ValueError(f"by must be a Category('arm', ['A', 'B']), got {by!r:.80}")
            by = Category(by.column, by.levels)  # also of a model's
        if len({self.column, self.event, by and by.column}) < 3:
            raise ValueError(
                f"time, event and by must be different columns, got {self.column!r}, "
                f"{self.event!r} and {by and by.column!r}"
            )
        object.__setattr__(self, "by", by)

    @property
    def name(self) -> str:
        return self.word if self.by is None else f"{self.word} by {self.by.column}"

    @property
    def parts(self) -> tuple[Courses]:
        return (Courses(self.column, self.event, self.edges, self.by),)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        told = [
            (f"{curve.group} {time:g}" if self.by else f"{time:g}", value, error)
            for curve in self._curves(self._courses(totals))
            for time, value, error in zip(
                *(one[1:].tolist() for one in (curve.times, curve.survival, curve.error)),
                strict=True,
            )
        ]
        return {one[0]: one[1] for one in told}, {one[0]: one[2] for one in told}

    def answer(self, totals: Totals, is_said: bool) -> SurvivalAnswer:
        plain, courses = super().answer(totals, is_said), self._courses(totals) if is_said else []
        return SurvivalAnswer(
            self, plain.value, plain.error, self._curves(courses), compare(courses)
        )

    def draw(self, answer: Answer, panel: Any) -> None:
        """Steps with bands, and a table of those at risk below."""
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
    """The noisy cells of a group; ``noise`` is a root of their covariance from the noise."""

    def __init__(self, cells: Array, noise: Array) -> None:
        bins = len(cells) // 2
        later = np.triu(np.ones((bins, bins)))
        self.exposure = np.hstack((later, later - np.eye(bins) / 2.0, np.ones((bins, 1))))
        self.noise, self.events, self.at_risk = noise, cells[:bins], self.exposure @ cells
        self.there = np.append(self.at_risk + cells[bins:-1] / 2.0, cells[-1])  # at the edges
        spread = np.linalg.norm(self.exposure @ noise, axis=1)
        is_clear = self.at_risk > np.maximum(_FEWEST, _CLEAR * spread)
        self.clear = int(np.logical_and.accumulate(is_clear).sum())  # bins that are told

    def curve(self, group: str, edges: Array, horizon: int) -> Curve:
        """The curve at all edges that are told; the mean is restricted to ``edges[horizon]``."""
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
        after = np.cumsum(parts[::-1])[::-1][1:]  # what a bin's hazard takes away from the mean
        square = max(float(after**2 @ np.diff(sampling)[:horizon]), 0.0)
        spread = Z * math.hypot(math.sqrt(square), *(parts @ noise[: horizon + 1]))
        mean, most = float(parts.sum()), float(edges[horizon] - edges[0])
        return Curve(
            group=group,
            times=times,
            survival=survival,
            error=survival * error,
            lower=lower,
            upper=upper,
            at_risk=_descend(self.there[: bins + 1], math.inf),
            events=np.maximum.accumulate(np.maximum(_from_zero(events), 0.0)),
            median=Interval(*(_crossing(times, one) for one in (survival, lower, upper))),
            mean=Interval(mean, max(mean - spread, 0.0), min(mean + spread, most)),
            horizon=float(edges[horizon]),
        )


def compare(courses: Sequence[Course]) -> LogRank | None:
    """The log-rank test over the bins that are told of all groups; None without two groups.

    U_g = Σ(e_g − E·n_g/n) over the bins, with the hypergeometric covariance and that of the noise,
    which comes from the slopes of U.
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
    """Running sums over the first axis, from 0 on."""
    return np.concatenate((np.zeros((1, *steps.shape[1:])), steps.cumsum(axis=0)))


def _descend(curve: Array, most: float = 1.0) -> Array:
    """Within 0 and ``most``, and falling: between the least so far and the most to come."""
    held = np.clip(curve, 0.0, most)
    found: Array = np.minimum.accumulate(held) + np.maximum.accumulate(held[::-1])[::-1]
    return found / 2.0


def _crossing(times: Array, curve: Array) -> float | None:
    """When a falling curve is at one half."""
    if curve[-1] > 0.5:
        return None
    return float(np.interp(-0.5, -curve, times))


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    found: Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return found


@dataclass(frozen=True)
class SurvivalAnswer(Answer):
    """``value`` and ``error`` have survival at each time that is told, of each group.

    Unlike those of other answers, errors and intervals are of sampling and noise together: they
    speak of the population that the patients came from.
    """

    curves: tuple[Curve, ...]
    log_rank: LogRank | None

    @property
    def told(self) -> str:  # type: ignore[override]
        """Medians, restricted means and the test, as text."""
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
        lines.append("Errors and intervals of survival are of sampling and noise together.")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        test = None if self.log_rank is None else self.log_rank._asdict()
        return super().as_dict() | {
            "curves": [curve.as_dict() for curve in self.curves],
            "log_rank": test,
        }


def _row(group: str, records: str, events: str, median: str, mean: str) -> str:
    return f"{group:14.14} {records:>7} {events:>7} {median:>24} {mean:>24}"


def _show(interval: Interval) -> str:
    value, *limits = ("–" if one is None else f"{one:.4g}" for one in interval)
    return f"{value} ({limits[0]} to {limits[1]})"
