"""Questions about a column: bounds, edges and categories are public, chosen before.

A question says which parts of a row it needs and reads its answer, with a standard error, from
their noisy totals. All that follows the totals is post-processing and costs no ε.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.parts import (
    Array,
    Categories,
    Cells,
    Everyone,
    Pair,
    Part,
    Square,
    Tree,
    Value,
    haar,
)
from jopeq.statistics.pictures import BAR, ERROR, stack_panels
from jopeq.statistics.tables import word_of

EVERYBODY = "*"  # instead of a column
OTHER, MISSING = "(other)", "(missing)"
QUARTILES = (0.25, 0.5, 0.75)
MOST_BINS = 4096
_CLEAR = 3.0  # standard errors

Number = float | dict[str, float]
"""One number, or one for each label."""


class Total(NamedTuple):
    """The noisy total of a part, and the standard errors of its entries."""

    values: Array
    errors: Array


Totals = Mapping[Part, Total]
Z = 1.959963984540054  # of a 95% interval


class Interval(NamedTuple):
    """An estimate with its 95% interval; None where the data do not reach."""

    value: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Question(ABC):
    """One question about a column. ``importance`` weighs its error against other questions'."""

    column: str
    importance: float = field(default=1.0, kw_only=True)
    word: ClassVar[str]
    divides: ClassVar[float] = 0.25  # of an answer's variance: what the count does to it
    height: ClassVar[float] = 0.0  # inches of its picture, where there is one

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", str(self.column))
        importance = as_annotated("importance", "float", self.importance)
        if not 0.0 < importance < math.inf:
            raise ValueError(f"importance must be a positive number, got {importance}")
        object.__setattr__(self, "importance", importance)

    @property
    def name(self) -> str:
        """The name of the answer."""
        return self.word

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Entries that a row needs beside the 1 for everyone. The first counts missing values."""

    @abstractmethod
    def read(self, totals: Totals) -> tuple[Number, Number]:
        """The answer and its standard error."""

    def answer(self, totals: Totals, is_said: bool) -> Answer:
        """The answer, or nothing where there are too few records."""
        return Answer(self, *(self.read(totals) if is_said else (None, None)))

    def draw(self, answer: Answer, panel: Any) -> None:
        """Draw the answer into axes of Matplotlib."""
        raise ValueError(f"{self.name} has no picture: ask for a Histogram or Survival")

    def present(self, totals: Totals) -> float:
        """The noisy number of records that have the value.

        Missing values count where they are clearly more than noise: most columns have none.
        """
        count = float(totals[Everyone()].values[0])
        if not self.parts:
            return count
        missing, error = (float(numbers[-1]) for numbers in totals[self.parts[0]])
        return _there(count, missing, error)


@dataclass(frozen=True)
class Answer:
    """``value`` and its standard ``error`` from the noise: a number each, or one for each label.

    Both are None where the noisy count is below the survey's minimum.
    """

    question: Question
    value: Number | None
    error: Number | None
    told: ClassVar[str] = ""  # text that follows the table of all answers

    @property
    def lines(self) -> list[tuple[str, float, float]]:
        """(label, value, error) of every number."""
        if self.value is None or self.error is None:
            return []
        if isinstance(self.value, dict) and isinstance(self.error, dict):
            return [(label, one, self.error[label]) for label, one in self.value.items()]
        return [("", float(self.value), float(self.error))]  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """Value and error, as JSON can hold them."""
        return {"value": self.value, "error": self.error}

    def plot(self) -> Any:
        """A Matplotlib figure of a histogram or of survival curves."""
        if not self.lines:
            raise ValueError(f"{self.question.name} was not told: too few records")
        figure, (panel,) = stack_panels([self.question.height or 1.0])
        self.question.draw(self, panel)
        return figure


@dataclass(frozen=True)
class Count(Question):
    """How many records there are, or have a value in ``column``."""

    column: str = EVERYBODY
    word: ClassVar[str] = "count"

    @property
    def parts(self) -> tuple[Part, ...]:
        return () if self.column == EVERYBODY else (Categories(self.column, ()),)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        found = [totals[Everyone()], *(totals[part] for part in self.parts)]
        count, *missing = (float(one.values[-1]) for one in found)
        errors = [float(one.errors[-1]) for one in found]
        return max(0.0, count - max(0.0, *missing, 0.0)), math.hypot(*errors)


@dataclass(frozen=True)
class _Bounded(Question):
    lower: float
    upper: float

    def __post_init__(self) -> None:
        super().__post_init__()
        lower, upper = check_bounds("lower and upper", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def value(self) -> Value:
        """The part that has the scaled value."""
        return Value(self.column, self.lower, self.upper)


@dataclass(frozen=True)
class Mean(_Bounded):
    """The mean of values clipped to public bounds.

    >>> Mean("age", 0, 120)
    Mean(column='age', importance=1.0, lower=0.0, upper=120.0)
    """

    word: ClassVar[str] = "mean"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.value,)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        error = float(totals[self.value].errors[-1])

        def mean(count: float, total: float, missing: float) -> float:
            return self.value.middle + self.value.half * total / _there(count, missing, error)

        found, spread = _propagate(mean, totals, Everyone(), self.value)
        return min(max(found, self.lower), self.upper), spread


@dataclass(frozen=True)
class Variance(_Bounded):
    """The variance of values clipped to public bounds; its root is the standard deviation."""

    word: ClassVar[str] = "variance"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.value, Square(self.column, self.lower, self.upper))

    def read(self, totals: Totals) -> tuple[Number, Number]:
        half, error = self.value.half, float(totals[self.value].errors[-1])

        def variance(count: float, total: float, missing: float, squares: float) -> float:
            there = _there(count, missing, error)
            return half**2 * (squares / there + 0.5 - (total / there) ** 2)

        found, spread = _propagate(variance, totals, Everyone(), *self.parts)
        return min(max(found, 0.0), half**2), spread


@dataclass(frozen=True)
class Histogram(Question):
    """How many values are in each bin between public edges; those beyond are in the outer bins.

    The bins and the missing values add up to the count.
    """

    edges: tuple[float, ...]
    word: ClassVar[str] = "histogram"
    height: ClassVar[float] = 2.4

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", check_edges(self.edges, MOST_BINS))

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Cells(self.column, self.edges),)

    @property
    def labels(self) -> tuple[str, ...]:
        """The bins, and the missing values."""
        *inner, last = pairwise(self.edges)
        bins = [f"[{one:g}, {two:g})" for one, two in inner]
        return (*bins, f"[{last[0]:g}, {last[1]:g}]", MISSING)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        cells, count = totals[self.parts[0]], totals[Everyone()]
        values = project(cells.values, float(count.values[0]))
        errors = np.hypot(cells.errors, count.errors[0] / len(values))
        return _label(self.labels, values), _label(self.labels, errors)

    def draw(self, answer: Answer, panel: Any) -> None:
        edges, cells = np.array(self.edges), answer.lines[:-1]  # the last are missing
        values, errors = (np.array([cell[place] for cell in cells]) for place in (1, 2))
        panel.bar(edges[:-1], values, np.diff(edges), align="edge", color=BAR, edgecolor="w")
        middles = (edges[1:] + edges[:-1]) / 2.0
        panel.errorbar(middles, values, 2.0 * errors, fmt="none", ecolor=ERROR, capsize=2)
        panel.set(xlabel=self.column, ylabel="records", ylim=(0.0, None))
        panel.set_title("bars of error: two standard errors", loc="left", fontsize=8)


@dataclass(frozen=True)
class Proportions(Question):
    """The share of each category among all records; the rest is other or missing.

    Categories are compared as text; 1 and 1.0 are both "1".
    """

    categories: tuple[str, ...]
    word: ClassVar[str] = "proportions"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "categories", check_words("categories", self.categories))

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Categories(self.column, self.categories),)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        cells, (count, error) = totals[self.parts[0]], _count(totals)
        values = project(cells.values / count, 1.0)
        errors = np.hypot(cells.errors, values * error) / count
        labels = (*self.categories, OTHER, MISSING)
        return _label(labels, values), _label(labels, errors)


@dataclass(frozen=True)
class Quantiles(_Bounded):
    """Quantiles from a histogram of ``bins`` equal bins, a power of two, between public bounds."""

    at: tuple[float, ...] = QUARTILES
    bins: int = 128
    word: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        at = tuple(as_annotated("at", "float", one) for one in self.at)
        if not at or not all(0.0 < one < 1.0 for one in at) or list(at) != sorted(set(at)):
            raise ValueError(
                f"at must be numbers between 0 and 1 that ascend, got {show_few(at)}: 0.5 is the "
                "median"
            )
        bins = as_annotated("bins", "int", self.bins)
        if bins not in (1 << power for power in range(1, MOST_BINS.bit_length())):
            raise ValueError(f"bins must be a power of two from 2 to {MOST_BINS}, got {bins}")
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "bins", bins)

    @property
    def name(self) -> str:
        return "quartiles" if self.at == QUARTILES else self.word

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Tree(self.column, self.lower, self.upper, self.bins),)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        tree, there, (_, error) = totals[self.parts[0]], self.present(totals), _count(totals)
        nodes, sizes = haar(self.bins)
        below = np.cumsum(nodes / sizes, axis=0)  # the part of each node that is in a rank
        moved = below @ tree.values[:-1] / there  # from where equal bins would put them
        ranks = np.arange(1, self.bins + 1) / self.bins + moved
        errors = np.sqrt(below**2 @ tree.errors[:-1] ** 2) / there
        errors = np.hypot(errors, moved * error / there)
        edges = np.linspace(self.lower, self.upper, self.bins + 1)
        ranks = _ascend(np.concatenate(((0.0,), ranks[:-1], (1.0,))))
        at = np.array(self.at)
        values = np.interp(at, ranks, edges)
        spread = np.interp(values, edges[1:], errors)
        above, under = (np.interp(at + side * spread, ranks, edges) for side in (1.0, -1.0))
        labels = [f"{100.0 * one:g}%" for one in self.at]
        return _label(labels, values), _label(labels, (above - under) / 2.0)


@dataclass(frozen=True)
class Correlation(Question):
    """Pearson's correlation of two columns, over records that have both.

    >>> Correlation("age", "pressure", (0, 120), (50, 220)).name
    'correlation with pressure'
    """

    other: str
    bounds: tuple[float, float]
    other_bounds: tuple[float, float]
    word: ClassVar[str] = "correlation"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bounds", "other_bounds"):
            object.__setattr__(self, name, check_bounds(name, *getattr(self, name)))
        if str(self.other) in ("", self.column):
            raise ValueError(f"other must be another column than {self.column!r}")
        object.__setattr__(self, "other", str(self.other))

    @property
    def name(self) -> str:
        return f"correlation with {self.other}"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Pair(Value(self.column, *self.bounds), Value(self.other, *self.other_bounds)),)

    def read(self, totals: Totals) -> tuple[Number, Number]:
        errors = totals[self.parts[0]].errors.tolist()
        least = (errors[0] / _count(totals)[0]) ** 2

        def correlation(count: float, *moments: float) -> float:
            there = _there(count, moments[5], errors[5])
            one, two, square, other, product = (moment / there for moment in moments[:5])
            spreads = max(square + 0.5 - one**2, least) * max(other + 0.5 - two**2, least)
            return (product - one * two) / math.sqrt(spreads)

        found, spread = _propagate(correlation, totals, Everyone(), *self.parts)
        return min(max(found, -1.0), 1.0), spread


# Checks


def check_bounds(name: str, *bounds: Any) -> tuple[float, float]:
    """Two finite numbers, the lower one first, or ``ValueError``."""
    found = tuple(as_annotated(name, "float", bound) for bound in bounds)
    if len(found) != 2 or not all(map(math.isfinite, found)) or not found[0] < found[1]:
        raise ValueError(
            f"{name} must be a lower bound below an upper one, got {show_few(found)}: public "
            "limits between which nearly all values are"
        )
    return found


def check_edges(edges: Sequence[Any], most: int, name: str = "edges") -> tuple[float, ...]:
    """From two to ``most`` finite numbers that ascend, or ``ValueError``."""
    found = tuple(as_annotated(name, "float", edge) for edge in edges)
    is_ascending = all(one < two for one, two in pairwise(found))
    if not (2 <= len(found) <= most and all(map(math.isfinite, found)) and is_ascending):
        raise ValueError(
            f"{name} must be 2 to {most} numbers, each above the one before, got "
            f"{show_few(found)}: sort them and leave doubles out"
        )
    return found


def check_words(name: str, words: Any) -> tuple[str, ...]:
    """Different categories as text, at least one, or ``ValueError``."""
    if isinstance(words, str):
        raise ValueError(f"{name} must be a list, got the text {words!r}")
    found = tuple(word_of(one) or "" for one in words)
    if not found or len({"", OTHER, MISSING, *found}) != len(found) + 3:
        raise ValueError(
            f"{name} must be different words, at least one, got {show_few(tuple(words))}"
        )
    return found


def show_few(values: Sequence[Any]) -> str:
    """The values as text, at most 200 characters of it."""
    shown = ", ".join(f"{value:g}" if isinstance(value, float) else repr(value) for value in values)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


# Post-processing


def project(values: Array, total: float) -> Array:
    """The nearest numbers that are not negative and add up to ``total``.

    >>> project(np.array([3.0, -1.0, 0.5]), total=3.0)
    array([2.75, 0.  , 0.25])
    """
    total = max(total, 0.0)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(falling > excess)
    level = excess[kept[-1]] if len(kept) else falling[0]
    found: Array = np.maximum(values - level, 0.0)
    return found


def _ascend(ranks: Array) -> Array:
    """Ranks that rise from 0 to 1: the middle of the running maximum and the minimum to come."""
    held = np.clip(ranks, 0.0, 1.0)
    middle = np.maximum.accumulate(held) + np.minimum.accumulate(held[::-1])[::-1]
    found: Array = middle / 2.0 + 1e-12 * np.arange(len(held))
    return found


def _propagate(function: Callable[..., float], totals: Totals, *parts: Part) -> tuple[float, float]:
    """The function of these totals, and its standard error from changes by one standard error."""
    values = np.concatenate([totals[part].values for part in parts])
    errors = np.concatenate([totals[part].errors for part in parts])
    steps = np.diag(errors)
    changes = [(function(*(values + step)) - function(*(values - step))) / 2.0 for step in steps]
    return float(function(*values)), float(np.linalg.norm(changes))


def _count(totals: Totals) -> tuple[float, float]:
    found = totals[Everyone()]
    return max(float(found.values[0]), 1.0), float(found.errors[0])


def _there(count: float, missing: float, error: float) -> float:
    """Records that have a value, at least 1; missing ones count above three standard errors."""
    return max(count - (missing if missing > _CLEAR * error else 0.0), 1.0)


def _label(labels: Sequence[str], values: Array) -> dict[str, float]:
    return dict(zip(labels, values.tolist(), strict=True))
