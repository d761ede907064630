"""Columns of a model: what a record's row says about each, between public bounds and levels.

A column turns its value into a few entries of norm at most 1, whatever the value is, so the row of
a record with the constant 1 is never longer than B = √(1 + columns). Every row is a function of
its own record and of public values. A record whose value is missing, in a column that was not said
to have missing values, becomes a row of zeros.
"""

from __future__ import annotations

import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.models.totals import Array
from jopeq.random.portable import squares
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.parts import Part
from jopeq.statistics.questions import Histogram, Mean, Proportions
from jopeq.statistics.tables import Tell, check_columns, count_rows, read_column, read_csv

Bools = NDArray[np.bool_]
Key = tuple[str, str]
"""A column's name, and how it is read: as numbers, words or rows."""

CONSTANT = 0.3  # before rows of features are scaled to length 1; the constant's weight is the bias
LENGTH = math.hypot(1.0, CONSTANT)  # what rows of features are divided by
_LEVEL = 0.5  # of a number within −1 and 1
CONSTANT_NAME = "(constant)"
_MOST_FEATURES = 1 << 13
_LARGEST_FEATURE = 1e100  # squares of larger ones leave float64


@dataclass(frozen=True)
class Column(ABC):
    """One column of a table. ``missing`` says that values may be missing, which is public then."""

    column: str
    missing: bool = field(default=False, kw_only=True)
    reference: ClassVar[int | None] = None  # the label that others are compared with

    @property
    @abstractmethod
    def part(self) -> Part:
        """Entries as statistics has them: one for each label, then those of missing values."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The names of the part's entries."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The columns of the table that are read, and how."""
        return self.part.columns

    @property
    def coding(self) -> Array:
        """(labels, entries): what a label's 1 becomes. Levels are corners of a simplex."""
        return np.eye(len(self.labels)) if self.reference is None else simplex(len(self.labels))

    @property
    def report(self) -> tuple[tuple[str, ...], Array, Array]:
        """(names of coefficients, what they are of the weights, what the constant gets)."""
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
        """The entries of every record, and whose value is missing."""
        found = np.zeros((len(values[self.keys[0]]), self.part.size))
        self.part.fill(found, values)  # type: ignore[arg-type]
        is_missing: Any = found[:, len(self.labels) :].any(axis=1)
        entries = found[:, : len(self.labels)] @ self.coding
        return (np.c_[entries, is_missing] if self.missing else entries), is_missing


def simplex(count: int) -> Array:
    """The corners of a simplex around 0, of length 1: (count, count − 1), as far apart as can be.

    >>> simplex(2).tolist()
    [[1.0], [-1.0]]
    """
    found = np.zeros((count, count - 1))
    for place in range(1, count):
        found[:place, place - 1], found[place, place - 1] = 1.0, -place
        found[:, place - 1] *= math.sqrt(count / (count - 1) / (place * (place + 1)))
    return found


@dataclass(frozen=True)
class Number(Column):
    """A number, clipped to public bounds. Where it may be ``missing``, it is in the middle then.

    >>> Number("age", 18, 100)
    Number(column='age', missing=False, lower=18.0, upper=100.0)
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        asked = Mean(self.column, self.lower, self.upper)
        _set(self, column=asked.column, lower=asked.lower, upper=asked.upper)

    @property
    def half(self) -> float:
        """Half the range: entries are in these units, from the middle on."""
        return self.upper / 2.0 - self.lower / 2.0

    def as_bins(self) -> Bins:
        """The number as bins."""
        return Bins(self.column, self.lower, self.upper, missing=self.missing)

    @property
    def part(self) -> Part:
        return Mean(self.column, self.lower, self.upper).value

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def report(self) -> tuple[tuple[str, ...], Array, Array]:
        names, found, base = super().report
        found[0] /= self.half
        return names, found, base


@dataclass(frozen=True)
class Bins(Column):
    """A number as ``count`` equal bins between public bounds: any shape can be fitted."""

    lower: float
    upper: float
    count: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        asked, count = Mean(self.column, self.lower, self.upper), self.count
        if not 2 <= as_annotated("count", "int", count) <= 256:
            raise ValueError(f"count must be from 2 to 256 bins, got {count}")
        _set(self, column=asked.column, lower=asked.lower, upper=asked.upper, count=int(count))

    @property
    def reference(self) -> int:  # type: ignore[override]
        """The bin in the middle."""
        return self.count // 2

    @property
    def edges(self) -> Array:
        """The ends of the bins."""
        return np.linspace(self.lower, self.upper, self.count + 1)

    @property
    def part(self) -> Part:
        return Histogram(self.column, tuple(self.edges.tolist())).parts[0]

    @property
    def labels(self) -> tuple[str, ...]:
        labels = Histogram(self.column, tuple(self.edges.tolist())).labels[:-1]
        return tuple(f"{self.column}: {label}" for label in labels)


@dataclass(frozen=True)
class Category(Column):
    """One of a few words, which are public. The first is what the others are compared with.

    Words beyond ``levels`` count as missing. With ``missing`` these are a level of their own.
    """

    levels: Sequence[Any]
    reference: ClassVar[int | None] = 0

    def __post_init__(self) -> None:
        asked = Proportions(self.column, self.levels)  # type: ignore[arg-type]
        _set(self, column=asked.column, levels=asked.categories)
        if len(asked.categories) < 2:
            raise ValueError(f"levels of {self.column!r} must be two or more words")

    @property
    def part(self) -> Part:
        return Proportions(self.column, tuple(self.levels)).parts[0]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.column}: {level}" for level in self.levels)


@dataclass(frozen=True)
class Features(Column):
    """Rows of ``size`` numbers that a public map, such as a frozen network, has computed.

    A row is meant to have a length of at most 1; longer ones are scaled down to it.
    """

    size: int

    def __post_init__(self) -> None:
        if not 1 <= as_annotated("size", "int", self.size) <= _MOST_FEATURES:
            raise ValueError(f"size must be from 1 to {_MOST_FEATURES} features, got {self.size}")
        _set(self, column=str(self.column), size=int(self.size))

    @property
    def part(self) -> Part:
        raise NotImplementedError  # features are no part of a row of statistics

    @property
    def keys(self) -> tuple[Key, ...]:
        return ((self.column, "rows"),)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.column}[{index}]" for index in range(self.size))

    def fill(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        given = values[self.keys[0]]
        if isinstance(given, list):
            given = np.array([_read_row(one, self.size) for one in given]).reshape(-1, self.size)
        found: Array = given
        if found.shape[1] != self.size and len(found):
            raise DataError(
                f"column {self.column!r} must have {self.size} features a record, got "
                f"{found.shape[1]}: compute them with the model's own map",
                code="column",
            )
        found = found.reshape(-1, self.size)
        is_missing: Any = ~(np.abs(found) <= _LARGEST_FEATURE).all(axis=1)
        found = np.where(is_missing[:, None], 0.0, found)
        return found / np.maximum(np.sqrt(squares(found)), 1.0)[:, None], is_missing


def _read_row(row: Any, size: int) -> Array:
    """One record's features; NaN if they do not fit, which changes no other record."""
    with suppress(Exception):
        found = np.asarray(row, dtype=np.float64).reshape(-1)
        if len(found) == size:
            return found
    return np.full(size, np.nan)


KINDS: dict[str, type[Column]] = {
    one.__name__.lower(): one for one in (Number, Category, Bins, Features)
}


def _set(column: Column, /, **values: Any) -> None:
    missing = as_annotated("missing", "bool", column.missing)
    for name, value in {**values, "missing": missing}.items():
        object.__setattr__(column, name, value)


def column_from(given: Mapping[str, Any]) -> Column:
    """The column that ``describe`` has described."""
    return KINDS[given["kind"]](**{name: one for name, one in given.items() if name != "kind"})


def describe(column: Column) -> dict[str, Any]:
    """The kind of a column and its fields, as JSON holds them."""
    return {"kind": type(column).__name__.lower(), **asdict(column)}


def parse_column(text: str) -> Column:
    """A column from ``KIND NAME …``, as the command line and files of columns take it.

    >>> parse_column("number age 18 100"), parse_column("category sex F M missing=true").missing
    (Number(column='age', missing=False, lower=18.0, upper=100.0), True)
    >>> parse_column("bins 'body mass' 15 45 count=8").count
    8
    """
    try:
        kind, name, *words = shlex.split(text)
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        given: dict[str, Any] = {"count": int(named.pop("count"))} if "count" in named else {}
        given["missing"] = {"true": True, "false": False}[named.pop("missing", "false")]
        if named or kind not in ("number", "category", "bins"):
            raise KeyError
        return KINDS[kind](name, *([plain] if kind == "category" else map(float, plain)), **given)
    except (KeyError, TypeError, ValueError) as error:
        reason = f": {error}" if type(error) is ValueError else ""
        raise ValueError(
            f"column {text!r} must be 'number NAME LOWER UPPER', 'category NAME LEVEL LEVEL …' or "
            f"'bins NAME LOWER UPPER count=16', with missing=true where values may miss{reason}"
        ) from None


def read_table(table: Any, keys: Sequence[Key], tell: Tell | None = None) -> dict[Key, Any]:
    """The values of these columns. A text is the path of a CSV file."""
    if isinstance(table, str | Path):
        table = read_csv(table, {name for name, kind in keys if kind == "numbers"}, tell=tell)
    check_columns(table, [name for name, _ in keys])
    count = count_rows(table)
    found: dict[Key, Any] = {}
    for name, kind in keys:
        if kind != "rows":
            found[name, kind] = read_column(table, name, kind, tell=tell)  # type: ignore[arg-type]
            continue
        try:
            found[name, kind] = np.asarray(table[name], dtype=np.float64).reshape(count, -1)
        except (OverflowError, TypeError, ValueError) as error:
            odd = DataError(
                f"column {name!r} must be an array of numbers, one row a record", code="column"
            )
            if tell is None:
                raise odd from error
            tell(odd)
            found[name, kind] = list(table[name])  # ``Features`` reads them one by one
    return found


@dataclass(frozen=True)
class Design:
    """The rows of a model: a constant, then every column's entries.

    A plain design divides rows by B; its coefficients are those of the textbook. Others scale
    every row to length 1, which has the least noise.
    """

    columns: tuple[Column, ...]
    is_plain: bool

    def __post_init__(self) -> None:
        if not self.columns or not all(isinstance(one, Column) for one in self.columns):
            raise ValueError("columns must be at least one object such as Number('age', 0, 120)")
        names = [one.column for one in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"columns must have different names, got {', '.join(names)}")
        if len(self.names) > _MOST_FEATURES + 1:
            raise ValueError(
                f"columns have {len(self.names) - 1} entries, and at most {_MOST_FEATURES} are "
                "fitted: take fewer columns, levels or bins"
            )
        if self.has_features and (len(names) > 1 or self.is_plain):
            raise ValueError(
                "columns: Features must be the only column, with goal='prediction': compute the "
                "other columns into the features"
            )

    @property
    def has_features(self) -> bool:
        """Whether rows are features."""
        return any(isinstance(one, Features) for one in self.columns)

    @cached_property
    def places(self) -> tuple[tuple[Column, slice], ...]:
        """The columns, and where their entries are."""
        found, first = [], 1
        for one in self.columns:
            last = first + len(one.report[0])
            found.append((one, slice(first, last)))
            first = last
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients; there are as many as entries of a row."""
        each = (one.report[0] for one in self.columns)
        return (CONSTANT_NAME, *(name for names in each for name in names))

    @cached_property
    def report(self) -> Array:
        """(names, entries): coefficients of weights, in the columns' units."""
        found = np.eye(len(self.names))
        for one, place in self.places:
            _, found[place, place], found[0, place] = one.report
        return found * self._factors / self.length

    @cached_property
    def _factors(self) -> Array:
        """The factors of entries: for prediction levels are as long as most numbers."""
        found = np.ones(len(self.names))
        for one, place in self.places:
            if isinstance(one, Category) and not self.is_plain:
                found[place] = _LEVEL
        return found

    @property
    def keys(self) -> tuple[Key, ...]:
        """The columns of a table that are read, and how."""
        return tuple(key for one in self.columns for key in one.keys)

    @property
    def length(self) -> float:
        """B: what the rows of a plain design are divided by."""
        return math.sqrt(1.0 + len(self.columns)) if self.is_plain else 1.0

    @property
    def constant(self) -> float:
        """The first entry of every row of a plain design, or of features."""
        return CONSTANT / LENGTH if self.has_features else 1.0 / self.length

    def rows(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        """One row a record, of length at most 1, and whose record can be used."""
        count = len(values[self.keys[0]])
        rows, is_good = np.empty((count, len(self.names))), np.ones(count, dtype=bool)
        rows[:, 0] = CONSTANT if self.has_features else 1.0
        for one, place in self.places:
            rows[:, place], is_missing = one.fill(values)
            is_good &= one.missing | ~is_missing
        rows *= self._factors
        if self.has_features:
            rows /= LENGTH
        else:
            rows /= self.length if self.is_plain else np.sqrt(squares(rows))[:, None]
        return rows, is_good
