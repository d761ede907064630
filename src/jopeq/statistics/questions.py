"""Questions about a column, with public bounds, edges and categories chosen beforehand.

A question says which parts of a row it needs and reads its answer, with a standard error, from
their noisy totals. Everything after the totals is post-processing and costs no ε.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jopeq.checks import set_fields
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.columns import (
    MISSING,
    OTHER,
    Bounded,
    Category,
    OfColumn,
    bin_labels,
    check_edges,
    check_words,
    show_few,
    split_words,
)
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
from jopeq.statistics.pictures import BAR, ERROR, plain, stack_panels

EVERYBODY = "*"  # instead of a column
QUARTILES = (0.25, 0.5, 0.75)
MOST_BINS = 4096
_CLEAR = 3.0  # standard errors

Number = float | dict[str, float]
"""One number, or one for each label."""
Read = tuple[Number, Number]


class Total(NamedTuple):
    """The noisy total of a part, and the standard errors of its entries."""

    values: Array
    errors: Array


Totals = Mapping[Part, Total]
Z = 1.959963984540054  # standard errors to each side of a 95% interval


class Interval(NamedTuple):
    """An estimate with its 95% interval; None where the data do not reach."""

    value: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Question(OfColumn, ABC):
    """One question about a column. ``importance`` weighs its error against the others'."""

    importance: float = field(default=1.0, kw_only=True)
    kinds: ClassVar[dict[str, Callable[..., Question]]] = {}  # by their words
    word: ClassVar[str]
    divides: ClassVar[float] = 0.25  # the count's part in an answer's variance
    height: ClassVar[float] = 0.0  # inches of its picture, if there is one

    def __init_subclass__(cls) -> None:
        Question.kinds.setdefault(cls.word, cls)  # what derives from a kind does not replace it

    def __post_init__(self) -> None:
        super().__post_init__()
        importance = as_annotated("importance", "float", self.importance)
        if not 0.0 < importance < math.inf:
            raise ValueError(f"importance must be a positive number, got {importance}")
        set_fields(self, importance=importance)

    @property
    def name(self) -> str:
        return self.word

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Entries that a row needs next to the 1 for everyone. The first counts missing values."""

    @abstractmethod
    def read(self, totals: Totals) -> Read:
        """The answer and its standard error."""

    def answer(self, totals: Totals, is_said: bool) -> Answer:
        return Answer(self, *(self.read(totals) if is_said else (None, None)))

    def draw(self, answer: Answer, panel: Any) -> None:
        """Draw the answer, if it has a picture."""

    def present(self, totals: Totals) -> float:
        """The noisy number of records with the value; few missing ones are taken for noise."""
        count = float(totals[Everyone()].values[0])
        if not self.parts:
            return count
        missing, error = (float(numbers[-1]) for numbers in totals[self.parts[0]])
        return _there(count, missing, error)


@dataclass(frozen=True)
class Answer:
    """``value`` and its standard ``error`` from the noise, as one number or one for each label.

    Both are None if the noisy count is below the survey's minimum.
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
        return {name: plain(one) for name, one in vars(self).items() if name != "question"}

    def plot(self) -> Any:
        """A Matplotlib figure of a histogram or of survival curves."""
        return plot_answers([self])


def plot_answers(answers: Iterable[Answer]) -> Any:
    """A Matplotlib figure of those answers that have a picture."""
    drawn = [answer for answer in answers if answer.question.height and answer.lines]
    if not drawn:
        raise ValueError("there is nothing to plot: no Histogram or Survival, or too few records")
    figure, panels = stack_panels([answer.question.height for answer in drawn])
    for answer, panel in zip(drawn, panels, strict=True):
        answer.question.draw(answer, panel)
    return figure


@dataclass(frozen=True)
class Count(Question):
    """The number of records, or of those that have a value in ``column``."""

    column: str = EVERYBODY
    word: ClassVar[str] = "count"

    @property
    def parts(self) -> tuple[Part, ...]:
        return () if self.column == EVERYBODY else (Categories(self.column, ()),)

    def read(self, totals: Totals) -> Read:
        found = [totals[Everyone()], *(totals[part] for part in self.parts)]
        count, *missing = (float(one.values[-1]) for one in found)
        errors = [float(one.errors[-1]) for one in found]
        return max(0.0, count - max(0.0, *missing, 0.0)), math.hypot(*errors)


@dataclass(frozen=True)
class Mean(Bounded, Question):
    """The mean of values clipped to public bounds.

    >>> Mean("age", 0, 120)
    Mean(column='age', importance=1.0, lower=0.0, upper=120.0)
    """

    word: ClassVar[str] = "mean"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.value,)

    def read(self, totals: Totals) -> Read:
        error = float(totals[self.value].errors[-1])

        def mean(count: float, total: float, missing: float) -> float:
            return self.value.middle + self.value.half * total / _there(count, missing, error)

        found, spread = _propagate(mean, totals, Everyone(), self.value)
        return min(max(found, self.lower), self.upper), spread


@dataclass(frozen=True)
class Variance(Bounded, Question):
    """The variance of values clipped to public bounds; its root is the standard deviation."""

    word: ClassVar[str] = "variance"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.value, Square(self.column, self.lower, self.upper))

    def read(self, totals: Totals) -> Read:
        half, error = self.value.half, float(totals[self.value].errors[-1])

        def variance(count: float, total: float, missing: float, squares: float) -> float:
            there = _there(count, missing, error)
            return half**2 * (squares / there + 0.5 - (total / there) ** 2)

        found, spread = _propagate(variance, totals, Everyone(), *self.parts)
        return min(max(found, 0.0), half**2), spread


@dataclass(frozen=True)
class Histogram(Question):
    """The number of values in each bin between public edges; those beyond are in the outer bins.

    The bins and the missing values add up to the count.
    """

    edges: tuple[float, ...]
    word: ClassVar[str] = "histogram"
    height: ClassVar[float] = 2.4

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, edges=check_edges("edges", self.edges, MOST_BINS))

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Cells(self.column, self.edges),)

    def read(self, totals: Totals) -> Read:
        cells, count = totals[self.parts[0]], totals[Everyone()]
        values = project(cells.values, float(count.values[0]))
        errors = np.hypot(cells.errors, count.errors[0] / len(values))
        return _label((*bin_labels(self.edges), MISSING), values, errors)

    def draw(self, answer: Answer, panel: Any) -> None:
        edges = np.array(self.edges)
        values, errors = np.array([numbers for _, *numbers in answer.lines[:-1]]).T  # none missing
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
        set_fields(self, categories=check_words("categories", self.categories))

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Categories(self.column, self.categories),)

    def read(self, totals: Totals) -> Read:
        cells, (count, error) = totals[self.parts[0]], _count(totals)
        values = project(cells.values / count, 1.0)
        errors = np.hypot(cells.errors, values * error) / count
        return _label((*self.categories, OTHER, MISSING), values, errors)


@dataclass(frozen=True)
class Quantiles(Bounded, Question):
    """Quantiles from a histogram of ``bins`` equal bins, a power of two, between public bounds."""

    at: tuple[float, ...] = QUARTILES
    bins: int = 128
    word: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        at = tuple(as_annotated("at", "float", one) for one in self.at)
        if not at or not all(0.0 < one < 1.0 for one in at) or list(at) != sorted(set(at)):
            raise ValueError(
                f"at must be ascending numbers between 0 and 1, got {show_few(at)}: 0.5 is the "
                "median"
            )
        bins = as_annotated("bins", "int", self.bins)
        if bins not in (1 << power for power in range(1, MOST_BINS.bit_length())):
            raise ValueError(f"bins must be a power of two from 2 to {MOST_BINS}, got {bins}")
        set_fields(self, at=at, bins=bins)

    @property
    def name(self) -> str:
        return "quartiles" if self.at == QUARTILES else self.word

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Tree(self.column, self.lower, self.upper, self.bins),)

    def read(self, totals: Totals) -> Read:
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
        return _label([f"{100.0 * one:g}%" for one in self.at], values, (above - under) / 2.0)


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
            set_fields(self, **{name: check_edges(name, getattr(self, name))})
        set_fields(self, other=str(self.other))
        if self.other in ("", self.column):
            raise ValueError(f"other must be a different column from {self.column!r}")

    @property
    def name(self) -> str:
        return f"correlation with {self.other}"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Pair(Value(self.column, *self.bounds), Value(self.other, *self.other_bounds)),)

    def read(self, totals: Totals) -> Read:
        errors = totals[self.parts[0]].errors.tolist()
        least = (errors[0] / _count(totals)[0]) ** 2

        def correlation(count: float, *moments: float) -> float:
            there = _there(count, moments[5], errors[5])
            one, two, square, other, product = (moment / there for moment in moments[:5])
            spreads = max(square + 0.5 - one**2, least) * max(other + 0.5 - two**2, least)
            return (product - one * two) / math.sqrt(spreads)

        found, spread = _propagate(correlation, totals, Everyone(), *self.parts)
        return min(max(found, -1.0), 1.0), spread


# Post-processing


def project(values: Array, total: float) -> Array:
    """The nearest non-negative numbers that add up to ``total``.

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
    """Ranks that rise from 0 to 1, halfway between running maximum and minimum to come."""
    held = np.clip(ranks, 0.0, 1.0)
    middle = np.maximum.accumulate(held) + np.minimum.accumulate(held[::-1])[::-1]
    found: Array = middle / 2.0 + 1e-12 * np.arange(len(held))
    return found


def _propagate(function: Callable[..., float], totals: Totals, *parts: Part) -> tuple[float, float]:
    """The function of these totals and its standard error, from steps of one standard error."""
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


def _label(labels: Sequence[str], values: Array, errors: Array) -> Read:
    value, error = (dict(zip(labels, one.tolist(), strict=True)) for one in (values, errors))
    return value, error


# Texts

_FORMS = (
    "'count', 'COLUMN: count', 'COLUMN: mean LOWER UPPER', 'COLUMN: variance LOWER UPPER', "
    "'COLUMN: histogram LOWER UPPER bins=20' (or all edges), 'COLUMN: quartiles LOWER UPPER', "
    "'COLUMN: quantiles LOWER UPPER at=0.1,0.9', 'COLUMN: proportions CATEGORY …', "
    "'COLUMN: correlation LOWER UPPER OTHER LOWER UPPER', "
    "'TIME: survival EVENT LOWER UPPER bins=12 by=COLUMN:LEVEL,LEVEL' (or all edges)"
)


def parse_question(text: str) -> Question:
    """A question from ``COLUMN: QUESTION …``, the form of the command line.

    >>> parse_question("age: quartiles 0 120").at
    (0.25, 0.5, 0.75)
    >>> parse_question("age: histogram 0 100 bins=4").edges
    (0.0, 25.0, 50.0, 75.0, 100.0)
    >>> parse_question("sex: proportions F M importance=2")
    Proportions(column='sex', importance=2.0, categories=('F', 'M'))
    """
    column, colon, rest = text.partition(": " if ": " in text else ":")
    try:
        (word, *words), named = split_words(rest if colon else text)
        read = {name: _READ[name](one) for name, one in named.items()}
        return _make(column.strip() if colon else "", word, words, read)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"ask {text!r} has an error ({error}); the forms are {_FORMS}") from None


def _make(column: str, word: str, words: Sequence[str], named: dict[str, Any]) -> Question:
    match word, words:
        case "count", []:
            return Count(column or EVERYBODY, **named)
        case _ if not column:
            raise ValueError("no column")
        case "mean" | "variance" | "quantiles" | "quartiles", [lower, upper]:
            return Question.kinds.get(word, Quantiles)(column, float(lower), float(upper), **named)
        case "histogram", edges:
            return Histogram(column, _edges(edges, named.pop("bins", None)), **named)
        case "proportions", categories:
            return Proportions(column, tuple(categories), **named)
        case "correlation", [lower, upper, other, low, high]:
            bounds = (float(lower), float(upper)), (float(low), float(high))
            return Correlation(column, other, *bounds, **named)
        case "survival", [event, *edges]:
            return Question.kinds[word](
                column, event, _edges(edges, named.pop("bins", None)), **named
            )
    raise ValueError("no such question, or too few or too many words")


def _edges(words: Sequence[str], bins: int | None) -> tuple[float, ...]:
    if bins is None:
        return tuple(map(float, words))
    lower, upper = check_edges("edges", [float(word) for word in words])
    return tuple(np.linspace(lower, upper, min(max(bins, 0), MOST_BINS) + 1).tolist())


def _category(text: str) -> Category:
    name, _, levels = text.partition(":")
    return Category(name, levels.split(","))


_READ: dict[str, Callable[[str], Any]] = {
    "importance": float,
    "bins": int,
    "at": lambda text: tuple(map(float, text.split(","))),
    "by": _category,
}
