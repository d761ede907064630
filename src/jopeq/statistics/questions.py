"""What can be asked of a column: bounds, edges and categories are public, chosen before.

A question says which parts of a row it needs and reads its answer, with a standard error, from
their noisy totals. All that follows the totals is post-processing and costs no ε.
"""

from __future__ import annotations

import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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
from jopeq.statistics.tables import word_of

EVERYBODY = "*"  # in place of a column
OTHER, MISSING = "(other)", "(missing)"
QUARTILES = (0.25, 0.5, 0.75)
_MOST_BINS = 4096
_CLEAR = 3.0  # standard errors

Number = float | dict[str, float]
"""One number, or one for each label."""


class Total(NamedTuple):
    """The noisy total of a part, and the standard errors of its entries."""

    values: Array
    errors: Array


Totals = Mapping[Part, Total]


@dataclass(frozen=True)
class Question(ABC):
    """One question about a column. ``importance`` weighs its error against other questions'."""

    column: str
    importance: float = field(default=1.0, kw_only=True)
    word: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", str(self.column))
        importance = as_annotated("importance", "float", self.importance)
        if not 0.0 < importance < math.inf:
            raise ValueError(f"importance must be a positive number, got {importance}")
        object.__setattr__(self, "importance", importance)

    @property
    def name(self) -> str:
        """What the answer is called."""
        return self.word

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Entries that a row needs beside the 1 for everyone. The first counts missing values."""

    @abstractmethod
    def read(self, totals: Totals) -> tuple[Number, Number]:
        """The answer and its standard error."""

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
        _set_bounds(self, "lower", "upper")

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

    def __post_init__(self) -> None:
        super().__post_init__()
        edges = tuple(as_annotated("edges", "float", edge) for edge in self.edges)
        is_ascending = all(one < two for one, two in pairwise(edges))
        if not (2 <= len(edges) <= _MOST_BINS and all(map(math.isfinite, edges)) and is_ascending):
            raise ValueError(
                f"edges must be 2 to {_MOST_BINS} numbers, each above the one before, got "
                f"{_few(edges)}: sort them and leave doubles out"
            )
        object.__setattr__(self, "edges", edges)

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


@dataclass(frozen=True)
class Proportions(Question):
    """The share of each category among all records; the rest is other or missing.

    Categories are compared as text; 1 and 1.0 are both "1".
    """

    categories: tuple[str, ...]
    word: ClassVar[str] = "proportions"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.categories, str):
            raise ValueError(f"categories must be a list, got the text {self.categories!r}")
        words = tuple(word_of(one) or "" for one in self.categories)
        if not words or len({"", OTHER, MISSING, *words}) != len(words) + 3:
            raise ValueError(
                f"categories must be different words, at least one, got {_few(self.categories)}"
            )
        object.__setattr__(self, "categories", words)

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
                f"at must be numbers between 0 and 1 that ascend, got {_few(at)}: 0.5 is the median"
            )
        bins = as_annotated("bins", "int", self.bins)
        if bins not in (1 << power for power in range(1, _MOST_BINS.bit_length())):
            raise ValueError(f"bins must be a power of two from 2 to {_MOST_BINS}, got {bins}")
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
            object.__setattr__(self, name, _check_bounds(name, *getattr(self, name)))
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


KINDS: dict[str, type[Question]] = {
    kind.word: kind
    for kind in (Count, Mean, Variance, Histogram, Quantiles, Proportions, Correlation)
}


def parse_question(text: str) -> Question:
    """A question from ``COLUMN: QUESTION …``, as the command line takes it.

    >>> parse_question("age: quartiles 0 120").at
    (0.25, 0.5, 0.75)
    >>> parse_question("age: histogram 0 100 bins=4").edges
    (0.0, 25.0, 50.0, 75.0, 100.0)
    >>> parse_question("sex: proportions F M importance=2")
    Proportions(column='sex', importance=2.0, categories=('F', 'M'))
    """
    column, colon, rest = text.partition(": " if ": " in text else ":")
    column, words = (column, shlex.split(rest)) if colon else ("", shlex.split(text))
    named = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    plain = [word for word in words[1:] if "=" not in word]
    word = words[0] if words else ""
    column = column.strip() or (EVERYBODY if word == "count" else "")
    made = _PARSERS.get(word)
    if made is None or not column or not set(named) <= {"importance", *_NAMED.get(word, ())}:
        raise ValueError(
            f"ask must be 'COLUMN: QUESTION …' with a question of {', '.join(_PARSERS)}, got "
            f"{text!r}: such as 'age: mean 0 120'"
        )
    try:
        return made(column, plain, named)
    except (TypeError, IndexError):
        raise ValueError(f"ask {text!r} lacks or has too many words: {_FORMS[word]}") from None


def question_from(word: str, given: Mapping[str, Any]) -> Question:
    """A question from its word and fields, as ``Survey.spec`` has them."""
    kind = KINDS[word]
    names = {field.name for field in fields(kind)}
    if not set(given) <= names:
        raise ValueError(f"question {word!r} has no {', '.join(set(given) - names)}")
    return kind(**{name: _as_tuple(value) for name, value in given.items()})


# Parsing

_FORMS = {
    "count": "'count' or 'COLUMN: count'",
    "mean": "'COLUMN: mean LOWER UPPER'",
    "variance": "'COLUMN: variance LOWER UPPER'",
    "histogram": "'COLUMN: histogram EDGE EDGE …' or 'COLUMN: histogram LOWER UPPER bins=20'",
    "quartiles": "'COLUMN: quartiles LOWER UPPER'",
    "quantiles": "'COLUMN: quantiles LOWER UPPER at=0.1,0.9'",
    "proportions": "'COLUMN: proportions CATEGORY …'",
    "correlation": "'COLUMN: correlation LOWER UPPER OTHER LOWER UPPER'",
}
_NAMED = {"histogram": ("bins",), "quartiles": ("bins",), "quantiles": ("bins", "at")}


def _numbers(words: Sequence[str]) -> list[float]:
    try:
        return [float(word) for word in words]
    except ValueError:
        raise ValueError(f"ask takes numbers here, got {' '.join(words)!r}") from None


def _importance(named: Mapping[str, str]) -> dict[str, Any]:
    return {"importance": _numbers([named["importance"]])[0]} if "importance" in named else {}


def _parse_bounded(kind: Any) -> Callable[..., Question]:
    def parse(column: str, words: list[str], named: dict[str, str]) -> Question:
        lower, upper = _two(words)
        more: dict[str, Any] = _importance(named)
        if "at" in named:
            more["at"] = tuple(_numbers(named["at"].split(",")))
        if "bins" in named:
            more["bins"] = int(_numbers([named["bins"]])[0])
        found: Question = kind(column, lower, upper, **more)
        return found

    return parse


def _parse_histogram(column: str, words: list[str], named: dict[str, str]) -> Question:
    edges: Sequence[float] = _numbers(words)
    if "bins" in named:
        lower, upper = _check_bounds("edges", *_two(words))
        bins = int(min(max(_numbers([named["bins"]])[0], 0.0), _MOST_BINS))
        edges = np.linspace(lower, upper, bins + 1).tolist()
    return Histogram(column, tuple(edges), **_importance(named))


def _parse_count(column: str, words: list[str], named: dict[str, str]) -> Question:
    return Count(column, *words, **_importance(named)) if not words else _two([])


def _parse_proportions(column: str, words: list[str], named: dict[str, str]) -> Question:
    return Proportions(column, tuple(words), **_importance(named))


def _parse_correlation(column: str, words: list[str], named: dict[str, str]) -> Question:
    bounds, other_bounds = _two(words[:2]), _two(words[3:])
    return Correlation(column, words[2], bounds, other_bounds, **_importance(named))


def _two(words: Sequence[str]) -> Any:
    if len(words) != 2:
        raise TypeError
    return tuple(_numbers(words))


_PARSERS: dict[str, Callable[[str, list[str], dict[str, str]], Question]] = {
    "count": _parse_count,
    "mean": _parse_bounded(Mean),
    "variance": _parse_bounded(Variance),
    "histogram": _parse_histogram,
    "quartiles": _parse_bounded(Quantiles),
    "quantiles": _parse_bounded(Quantiles),
    "proportions": _parse_proportions,
    "correlation": _parse_correlation,
}


# Checks


def _check_bounds(name: str, *bounds: Any) -> tuple[float, float]:
    found = tuple(as_annotated(name, "float", bound) for bound in bounds)
    if len(found) != 2 or not all(map(math.isfinite, found)) or not found[0] < found[1]:
        raise ValueError(
            f"{name} must be a lower bound below an upper one, got {_few(found)}: public limits "
            "between which nearly all values are"
        )
    return found


def _set_bounds(question: Any, *names: str) -> None:
    found = _check_bounds(" and ".join(names), *(getattr(question, name) for name in names))
    for name, bound in zip(names, found, strict=True):
        object.__setattr__(question, name, bound)


def _few(values: Sequence[Any]) -> str:
    shown = ", ".join(f"{value:g}" if isinstance(value, float) else repr(value) for value in values)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


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
