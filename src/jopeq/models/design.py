"""The rows of a model, made of columns between public bounds and levels.

A column's entries have norm at most 1, so a row with the constant 1 is never longer than
B = √(1 + columns). Every row is a function of its own record and of public values. A record that
lacks a value becomes a row of zeros, unless the column was said to have missing values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jopeq.random.portable import squares
from jopeq.statistics.columns import MOST_FEATURES, Bools, Category, Column, Features
from jopeq.statistics.parts import Array
from jopeq.statistics.tables import Key

CONSTANT = 0.3  # before rows of features are scaled to length 1; the constant's weight is the bias
LENGTH = math.hypot(1.0, CONSTANT)  # rows of features are divided by it
_LEVEL = 0.5  # length of a level for prediction, where a number is within −1 and 1
_CONSTANT_NAME = "(constant)"


@dataclass(frozen=True)
class Design:
    """The map from records to rows: a constant, then every column's entries.

    A plain design divides rows by B; its coefficients are the textbook's. Others scale every row to
    length 1, which has the least noise.
    """

    columns: tuple[Column, ...]
    is_plain: bool

    def __post_init__(self) -> None:
        if not self.columns or not all(isinstance(one, Column) for one in self.columns):
            raise ValueError("columns must be at least one object such as Number('age', 0, 120)")
        names = [one.column for one in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"columns must have different names, got {', '.join(names)}")
        for one in self.columns:
            if isinstance(one, Category) and len(one.levels) < 2:
                raise ValueError(f"levels of {one.column!r} must be two or more words")
        if len(self.names) > MOST_FEATURES + 1:
            raise ValueError(
                f"columns have {len(self.names) - 1} entries, but at most {MOST_FEATURES} can be "
                "fitted: use fewer columns, levels or bins"
            )
        if self.has_features and (len(names) > 1 or self.is_plain):
            raise ValueError(
                "columns: Features must be the only column, with goal='prediction': include the "
                "other columns in the features"
            )

    @property
    def has_features(self) -> bool:
        return any(isinstance(one, Features) for one in self.columns)

    @cached_property
    def places(self) -> tuple[tuple[Column, slice], ...]:
        """The columns, and the places of their entries."""
        found, first = [], 1
        for one in self.columns:
            last = first + len(one.report[0])
            found.append((one, slice(first, last)))
            first = last
        return tuple(found)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients, one for each entry of a row."""
        return (_CONSTANT_NAME, *(name for one in self.columns for name in one.report[0]))

    @cached_property
    def report(self) -> Array:
        """Coefficients per weight in the columns' units, (names, entries)."""
        found = np.eye(len(self.names))
        for one, place in self.places:
            _, found[place, place], found[0, place] = one.report
        return found * self._factors / self.length

    @cached_property
    def _factors(self) -> Array:
        """The factors of entries; for prediction, levels are as long as most numbers."""
        found = np.ones(len(self.names))
        for one, place in self.places:
            if isinstance(one, Category) and not self.is_plain:
                found[place] = _LEVEL
        return found

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key for one in self.columns for key in one.keys)

    @property
    def length(self) -> float:
        """The divisor of a plain design's rows, B."""
        return math.sqrt(1.0 + len(self.columns)) if self.is_plain else 1.0

    @property
    def constant(self) -> float:
        """The first entry of every row of a plain design, or of features."""
        return CONSTANT / LENGTH if self.has_features else 1.0 / self.length

    def rows(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        """(one row per record, of length at most 1; which records can be used)."""
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
