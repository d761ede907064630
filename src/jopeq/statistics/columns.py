"""Columns between public bounds and levels: numbers, bins, categories and rows of features."""

from __future__ import annotations

import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import set_fields
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.parts import Array, Categories, Cells, Part, Value, Vector
from jopeq.statistics.tables import Key, word_of

Bools = NDArray[np.bool_]

OTHER, MISSING = "(other)", "(missing)"
MOST_FEATURES = 1 << 13


# Checks of public terms


def check_edges(name: str, edges: Sequence[Any], most: int = 2) -> tuple[float, ...]:
    """From two to ``most`` finite ascending numbers, or ``ValueError``."""
    found = tuple(as_annotated(name, "float", edge) for edge in edges)
    is_ascending = all(one < two for one, two in pairwise(found))
    if not (2 <= len(found) <= most and all(map(math.isfinite, found)) and is_ascending):
        count = "two" if most == 2 else f"2 to {most}"
        raise ValueError(
            f"{name} must be {count} ascending numbers, got {show_few(found)}: choose public "
            "limits between which nearly all values lie"
        )
    return found


def check_words(name: str, words: Any) -> tuple[str, ...]:
    """Different categories as text, at least one, or ``ValueError``."""
    if isinstance(words, str):
        raise ValueError(f"{name} must be a list, got the text {words!r}")
    found = tuple(word_of(one) or "" for one in words)
    if not found or len({"", OTHER, MISSING, *found}) != len(found) + 3:
        raise ValueError(f"{name} must be different words, got {show_few(tuple(words))}")
    return found


def show_few(values: Sequence[Any]) -> str:
    """The values as text of at most 200 characters."""
    shown = ", ".join(f"{value:g}" if isinstance(value, float) else repr(value) for value in values)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


def bin_labels(edges: Sequence[float]) -> tuple[str, ...]:
    """Names of bins; only the last includes its upper edge.

    >>> bin_labels((0, 1.5, 2))
    ('[0, 1.5)', '[1.5, 2]')
    """
    labels = [f"[{one:g}, {two:g})" for one, two in pairwise(edges)]
    return (*labels[:-1], f"{labels[-1][:-1]}]")


# Columns


@dataclass(frozen=True)
class OfColumn:
    """A public term about a column."""

    column: str

    def __post_init__(self) -> None:
        set_fields(self, column=str(self.column))


@dataclass(frozen=True)
class Bounded(OfColumn):
    """Public bounds, to which the numbers of a column are clipped."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        super().__post_init__()
        lower, upper = check_edges("lower and upper", (self.lower, self.upper))
        set_fields(self, lower=lower, upper=upper)

    @property
    def value(self) -> Value:
        return Value(self.column, self.lower, self.upper)


@dataclass(frozen=True)
class Column(OfColumn, ABC):
    """One column of a table. ``missing=True`` says in public that values may be missing."""

    missing: bool = field(default=False, kw_only=True)
    reference: ClassVar[int | None] = None  # the label that others are compared with

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, missing=as_annotated("missing", "bool", self.missing))

    @property
    @abstractmethod
    def part(self) -> Part:
        """Entries as in a survey: one per label, then those for missing values."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The names of the part's entries."""

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.part.columns

    @property
    def coding(self) -> Array:
        """The entries that each label becomes, (labels, entries). Levels are simplex corners."""
        return np.eye(len(self.labels)) if self.reference is None else simplex(len(self.labels))

    @property
    def report(self) -> tuple[tuple[str, ...], Array, Array]:
        """(names of coefficients, coefficients per weight, the constant's share of the weights)."""
        names, found, base = list(self.labels), self.coding, np.zeros(self.coding.shape[1])
        if self.reference is not None:
            base = found[self.reference]
            found = np.delete(found - base, self.reference, axis=0)
            del names[self.reference]
        if self.missing:
            found, base = np.pad(found, (0, 1)), np.append(base, 0.0)
            found[-1, -1] = 1.0
            names.append(f"{self.column}: missing")
        return tuple(names), found, base

    def fill(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        """(entries of every record, which records lack the value)."""
        found = np.zeros((len(values[self.keys[0]]), self.part.size))
        self.part.fill(found, values)
        is_missing: Any = found[:, len(self.labels) :].any(axis=1)
        entries = found[:, : len(self.labels)]
        if self.reference is not None:
            entries = entries @ self.coding
        return (np.c_[entries, is_missing] if self.missing else entries), is_missing


def simplex(count: int) -> Array:
    """The corners of a simplex around 0, of length 1 and equally far apart: (count, count − 1).

    >>> simplex(2).tolist()
    [[1.0], [-1.0]]
    """
    found = np.zeros((count, count - 1))
    for place in range(1, count):
        found[:place, place - 1], found[place, place - 1] = 1.0, -place
        found[:, place - 1] *= math.sqrt(count / (count - 1) / (place * (place + 1)))
    return found


@dataclass(frozen=True)
class Number(Bounded, Column):
    """A number, clipped to public bounds. A ``missing`` one counts as the middle.

    >>> Number("age", 18, 100)
    Number(column='age', missing=False, lower=18.0, upper=100.0)
    """

    @property
    def part(self) -> Value:
        return self.value

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def report(self) -> tuple[tuple[str, ...], Array, Array]:
        names, found, base = super().report
        found[0] /= self.part.half
        return names, found, base


@dataclass(frozen=True)
class Bins(Bounded, Column):
    """A number as ``count`` equal bins between public bounds, to fit any shape."""

    count: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, count=as_annotated("count", "int", self.count))
        if not 2 <= self.count <= 256:
            raise ValueError(f"count must be from 2 to 256 bins, got {self.count}")

    @property
    def reference(self) -> int:  # type: ignore[override]
        return self.count // 2

    @property
    def edges(self) -> tuple[float, ...]:
        return tuple(np.linspace(self.lower, self.upper, self.count + 1).tolist())

    @property
    def part(self) -> Cells:
        return Cells(self.column, self.edges)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.column}: {label}" for label in bin_labels(self.edges))


@dataclass(frozen=True)
class Category(Column):
    """One of a few public words. Models compare the others with the first.

    Words beyond ``levels`` count as missing. With ``missing`` these are a level of their own.
    """

    levels: Sequence[Any]
    reference: ClassVar[int | None] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, levels=check_words("levels", self.levels))

    @property
    def part(self) -> Categories:
        return Categories(self.column, tuple(self.levels))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.column}: {level}" for level in self.levels)


@dataclass(frozen=True)
class Features(Column):
    """Rows of ``size`` numbers, computed by a public map such as a frozen network.

    Rows longer than 1 are scaled down to length 1.
    """

    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, size=as_annotated("size", "int", self.size))
        if not 1 <= self.size <= MOST_FEATURES:
            raise ValueError(f"size must be from 1 to {MOST_FEATURES} features, got {self.size}")

    @property
    def part(self) -> Vector:
        return Vector(self.column, self.size)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.column}[{index}]" for index in range(self.size))


# Texts and specs

KINDS: dict[str, type[Column]] = {
    one.__name__.lower(): one for one in (Number, Category, Bins, Features)
}


def column_from(given: Mapping[str, Any]) -> Column:
    """The column that ``describe`` has described."""
    return KINDS[given["kind"]](**{name: one for name, one in given.items() if name != "kind"})


def describe(column: Column) -> dict[str, Any]:
    """The kind of a column and its fields, for JSON."""
    return {"kind": type(column).__name__.lower(), **asdict(column)}


def split_words(text: str) -> tuple[list[str], dict[str, str]]:
    """(plain words, NAME=VALUE words) of a text in which quotes hold words together."""
    words = shlex.split(text)
    named = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], named


def parse_column(text: str) -> Column:
    """A column from ``KIND NAME …``, the form of command lines and files of columns.

    >>> parse_column("number age 18 100"), parse_column("category sex F M missing=true").missing
    (Number(column='age', missing=False, lower=18.0, upper=100.0), True)
    >>> parse_column("bins 'body mass' 15 45 count=8").count
    8
    """
    try:
        (kind, name, *words), named = split_words(text)
        given: dict[str, Any] = {"count": int(named.pop("count"))} if "count" in named else {}
        given["missing"] = {"true": True, "false": False}[named.pop("missing", "false")]
        if named or kind not in ("number", "category", "bins"):
            raise KeyError
        return KINDS[kind](name, *([words] if kind == "category" else map(float, words)), **given)
    except (KeyError, TypeError, ValueError) as error:
        reason = f": {error}" if type(error) is ValueError else ""
        raise ValueError(
            f"column {text!r} must be 'number NAME LOWER UPPER', 'category NAME LEVEL LEVEL …' or "
            f"'bins NAME LOWER UPPER count=16', with missing=true if values may be missing{reason}"
        ) from None
