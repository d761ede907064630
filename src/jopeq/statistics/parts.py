"""The parts of a record's row, each within a public norm.

A part turns a record into a few entries of norm at most ``norm``, whatever the record says. Where
a value is missing, the last entry is 1 (times ``norm``) and all others are 0: a record is either
there or missing, so counting missing values costs no privacy. Every row is a function of its own
record and of public values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.random.portable import squares
from jopeq.statistics.tables import Key, Values

Array = NDArray[np.float64]
Columns = Mapping[Key, Values]
_LARGEST_FEATURE = 1e100  # squares of larger ones leave float64


class Part(ABC):
    """Entries of a row that one or several questions read."""

    counts_missing = True  # in the last entry

    @property
    def effect(self) -> float:
        """The variance of an answer divided by that of an entry."""
        return 1.0

    @property
    @abstractmethod
    def norm(self) -> float:
        """The largest norm of these entries, r."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of entries."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Key, ...]:
        """The columns that are read, and how."""

    @abstractmethod
    def fill(self, rows: Array, columns: Columns) -> None:
        """Write the entries of every record into ``rows``, (records, size), which are 0."""

    @property
    def factors(self) -> Array:
        """The factors of the entries: ``norm`` for missing values, which stand alone."""
        factors = np.ones(self.size)
        if self.counts_missing:
            factors[-1] = self.norm
        return factors


@dataclass(frozen=True)
class Everyone(Part):
    """1 for every record."""

    counts_missing = False
    norm, size, columns = 1.0, 1, ()

    def fill(self, rows: Array, columns: Columns) -> None:
        rows[:, 0] = 1.0


@dataclass(frozen=True)
class _OfColumn(Part):
    column: str
    kind: ClassVar[str] = "numbers"

    @property
    def columns(self) -> tuple[Key, ...]:
        return ((self.column, self.kind),)


@dataclass(frozen=True)
class _Scaled(_OfColumn):
    """A part of a numeric column, whose values are clipped to public bounds."""

    lower: float
    upper: float

    @property
    def middle(self) -> float:
        return self.lower / 2.0 + self.upper / 2.0

    @property
    def half(self) -> float:
        return self.upper / 2.0 - self.lower / 2.0

    def scale(self, columns: Columns) -> Array:
        """The values from −1 at the lower bound to 1 at the upper; NaN where missing."""
        values = np.clip(columns[self.column, "numbers"], self.lower, self.upper)
        scaled: Array = np.clip((values - self.middle) / self.half, -1.0, 1.0)
        return scaled


@dataclass(frozen=True)
class Value(_Scaled):
    """The scaled value, and 1 if it is missing."""

    norm, size = 1.0, 2

    def fill(self, rows: Array, columns: Columns) -> None:
        values = self.scale(columns)
        rows[:, 0], rows[:, 1] = np.nan_to_num(values), np.isnan(values)


@dataclass(frozen=True)
class Square(_Scaled):
    """The square of the scaled value, less ½; 0 where it is missing."""

    counts_missing = False
    norm, size = 0.5, 1

    def fill(self, rows: Array, columns: Columns) -> None:
        rows[:, 0] = np.nan_to_num(self.scale(columns) ** 2 - 0.5)


@dataclass(frozen=True)
class Pair(Part):
    """Two values, their squares less ½ and their product, for records that have both."""

    one: _Scaled
    two: _Scaled
    norm, size = math.sqrt(3.5), 6

    @property
    def columns(self) -> tuple[Key, ...]:
        return (*self.one.columns, *self.two.columns)

    def fill(self, rows: Array, columns: Columns) -> None:
        one, two = self.one.scale(columns), self.two.scale(columns)
        entries = np.stack((one, two, one**2 - 0.5, two**2 - 0.5, one * two), axis=1)
        is_missing = np.isnan(one * two)
        rows[:, :5], rows[:, 5] = np.where(is_missing[:, None], 0.0, entries), is_missing


@dataclass(frozen=True)
class Cells(_OfColumn):
    """1 in the bin of the value, or in the last entry if it is missing."""

    edges: tuple[float, ...]
    norm = 1.0

    @property
    def size(self) -> int:
        return len(self.edges)

    def fill(self, rows: Array, columns: Columns) -> None:
        values, bins = columns[self.column, "numbers"], len(self.edges) - 1
        cell = np.clip(np.searchsorted(self.edges, values, side="right") - 1, 0, bins - 1)
        rows[np.arange(len(values)), np.where(np.isnan(values), bins, cell)] = 1.0


@dataclass(frozen=True)
class Categories(_OfColumn):
    """1 at the category, at the last entry but one for others, at the last if it is missing."""

    categories: tuple[str, ...]
    kind = "words"
    norm = 1.0

    @property
    def size(self) -> int:
        return len(self.categories) + 2

    def fill(self, rows: Array, columns: Columns) -> None:
        places = {word: place for place, word in enumerate(self.categories)}
        other, words = len(places), columns[self.column, "words"]
        cells = [other + 1 if word is None else places.get(word, other) for word in words]
        rows[np.arange(len(cells)), cells] = 1.0


@dataclass(frozen=True)
class Vector(_OfColumn):
    """A row of ``width`` features, at most of length 1, or 1 in the last entry if it is missing."""

    width: int
    kind = "rows"
    norm = 1.0

    @property
    def size(self) -> int:
        return self.width + 1

    def fill(self, rows: Array, columns: Columns) -> None:
        given: Any = columns[self.column, "rows"]
        if isinstance(given, list):
            given = np.array([self._read(one) for one in given]).reshape(-1, self.width)
        if given.shape[1] != self.width and len(given):
            raise DataError(
                f"column {self.column!r} must have {self.width} features per record, got "
                f"{given.shape[1]}: compute them with the model's own map",
                code="column",
            )
        given = given.reshape(-1, self.width)
        is_missing = ~(np.abs(given) <= _LARGEST_FEATURE).all(axis=1)
        found = np.where(is_missing[:, None], 0.0, given)
        lengths = np.maximum(np.sqrt(squares(found)), 1.0)
        np.divide(found, lengths[:, None], out=rows[:, :-1])
        rows[:, -1] = is_missing

    def _read(self, row: Any) -> Array:
        """One record's features; NaN if they do not fit, which changes no other record."""
        with suppress(Exception):
            found = np.asarray(row, dtype=np.float64).reshape(-1)
            if len(found) == self.width:
                return found
        return np.full(self.width, np.nan)


@dataclass(frozen=True)
class Tree(_Scaled):
    """Haar's transform of a histogram of equal bins: halves, quarters and so on, lower less upper.

    A record has one entry ±1 on each of log2(bins) levels. A rank adds up one node per level, at
    most half of it and 1/12 of its square on average, so its error grows with log2(bins). The error
    of a sum of plain bins grows with √bins.
    """

    bins: int

    @property
    def levels(self) -> int:
        return self.bins.bit_length() - 1

    @property
    def effect(self) -> float:
        return self.levels / 12.0

    @property
    def norm(self) -> float:
        return math.sqrt(self.levels)

    @property
    def size(self) -> int:
        return self.bins

    def fill(self, rows: Array, columns: Columns) -> None:
        values = self.scale(columns)
        bins = np.nan_to_num((values + 1.0) * (self.bins / 2.0)).astype(np.int64)
        is_missing = np.isnan(values)
        rows[:, :-1] = haar(self.bins)[0][np.minimum(bins, self.bins - 1)]
        rows[is_missing, :-1], rows[:, -1] = 0.0, is_missing


@lru_cache(maxsize=8)
def haar(bins: int) -> tuple[Array, Array]:
    """(bins, nodes): 1 in the lower half of a node, −1 in the upper; and each node's bins."""
    nodes, sizes = [], []
    for level in range(bins.bit_length() - 1):
        size = bins >> level
        for first in range(0, bins, size):
            node = np.zeros(bins)
            node[first : first + size // 2], node[first + size // 2 : first + size] = 1.0, -1.0
            nodes.append(node)
            sizes.append(size)
    return np.stack(nodes, axis=1), np.array(sizes, dtype=np.float64)


@lru_cache(maxsize=16)
def running_code(count: int) -> tuple[Array, Array]:
    """(R, R⁻¹): R·R adds up ``count`` cells from the first on; a record in cell b sends R[:, b].

    Running sums of the decoded cells have errors that grow with log(count), where those of plain
    cells grow with √count. A record's norm is that of the first column, √(1.07 + ln(count)/π)
    (Fichtenberger, Henzinger, Upadhyay 2023).

    >>> code, inverse = running_code(3)
    >>> code @ code
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """
    steps = np.arange(1.0, count)
    series = [np.cumprod(np.concatenate(((1.0,), 1.0 - halves / steps))) for halves in (0.5, 1.5)]
    below = np.subtract.outer(np.arange(count), np.arange(count))
    code, inverse = (np.where(below >= 0, one[below], 0.0) for one in series)
    return code, inverse
