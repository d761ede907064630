"""Columns of a table as numbers or words, with missing values marked.

A table is a NumPy structured array, a mapping from names to columns, or a frame of pandas or
polars. Errors name columns and never a value or a row.
"""

from __future__ import annotations

import csv
import math
import numbers
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError

Column = NDArray[Any]
Kind = Literal["numbers", "words"]
Tell = Callable[[DataError], object]
"""Gets an error that nobody else may see."""
_BOOLEANS = {"true": True, "false": False}
_NUMBER = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?\s*")
_MISSING_WORDS = ("", "na", "n/a", "nan", "none", "null")


def read_csv(
    path: str | Path, numeric: Collection[str] = (), *, tell: Tell | None = None
) -> dict[str, Any]:
    """The columns of a file with a line of names: words, and those in ``numeric`` as numbers.

    Every line is read alone, so that a stray quote cannot swallow the next patients. With ``tell``
    a line that does not fit is left out; without it that is an error. A numeric column with a value
    that is no number stays words: whoever reads it reports that.
    """
    errors = "strict" if tell is None else "replace"
    try:
        with Path(path).open(newline="", encoding="utf-8-sig", errors=errors) as file:
            head, *lines = [_split(line) for line in file if line.strip("\r\n")]
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be read: {reason}", code="table") from error
    except ValueError as error:
        raise DataError(
            f"{path} is not a table with a line of names: {error}", code="table"
        ) from error
    fitting = [line for line in lines if len(line) == len(head)]
    if len(fitting) < len(lines) or len(set(head)) != len(head):
        reason = f"{path}: all lines must have as many values as names"
        odd = DataError(reason, code="table")
        if tell is None or len(set(head)) != len(head):
            raise odd
        tell(odd)
    lines = fitting
    names = [name.strip() for name in head]
    columns = dict(zip(names, zip(*lines, strict=True) if lines else [()] * len(head), strict=True))
    return {
        name: _numbers_of(values) if name in numeric else _words_of(values)
        for name, values in columns.items()
    }


def names_of(table: Any) -> list[str]:
    """The names of the table's columns."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = getattr(getattr(table, "dtype", None), "names", None)
    if names is None and not isinstance(table, np.ndarray):
        names = getattr(table, "columns", None)
    if names is None:
        raise DataError(
            f"a table must be a structured array, a dict of columns or a frame, got "
            f"{type(table).__name__}: name the columns",
            code="table",
        )
    return [str(name) for name in names]


def check_columns(table: Any, wanted: Any) -> None:
    """Refuse a table that lacks one of the columns; looks at no value."""
    names = names_of(table)
    for name in wanted:
        if name not in names:
            raise DataError(
                f"column {name!r} is not in the table, which has {', '.join(names) or 'none'}",
                code="column",
            )


def count_rows(table: Any) -> int:
    """How many records the table has. Private."""
    if not isinstance(table, Mapping):
        return len(table)
    counts = {len(_plain(column)) for column in table.values()}
    if len(counts) != 1:
        raise DataError(
            "the columns of a table must have one length: give one value a record", code="table"
        )
    return counts.pop()


def read_column(table: Any, name: str, kind: Kind, *, tell: Tell | None = None) -> Column:
    """A column as float64, NaN where a value is missing; or as words, None where one is missing.

    Text among numbers is an error. With ``tell`` it is told and counts as missing, but for digits
    and Booleans: libraries that read files make a whole column text where one value is.
    """
    found = _plain(table[name])
    if found.ndim != 1:
        raise DataError(f"column {name!r} must have one value a record", code="table")
    if kind == "words":
        words: Column = np.empty(len(found), dtype=object)
        words[:] = [word_of(value) for value in found.tolist()]
        return words
    if found.dtype.kind in "biuf":
        return found.astype(np.float64)
    values = [math.nan if _is_missing(value) else value for value in found.tolist()]
    if found.dtype.kind != "O" or not all(isinstance(one, numbers.Real) for one in values):
        error = DataError(
            f"column {name!r} has values that are no numbers, where a number is asked for: clean "
            "the column, or ask for proportions",
            code="text",
        )
        if tell is None:
            raise error
        tell(error)
    return np.array([_as_float(value) for value in values], dtype=np.float64)


def word_of(value: Any) -> str | None:
    """A category as text: whole numbers without a point; None where it is missing or empty.

    Text that is a number or a Boolean counts as one: a library that reads a file makes all values
    of a column text where one is, and that must not change what the others say.

    >>> [word_of(value) for value in ("F", 1, 1.0, 0.5, b"M", "", None, math.nan)]
    ['F', '1', '1', '0.5', 'M', None, None, None]
    >>> [word_of(value) for value in ("1.0", "01", "0.50", "TRUE", True, "1E50")]
    ['1', '1', '0.5', 'True', 'True', '1E50']
    """
    if _is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        value = _BOOLEANS.get(value.lower(), value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        with suppress(ValueError):  # of more digits than Python reads
            value = float(value) if "." in value else int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return str(value) or None
    except Exception:  # Python writes out no integer of more than 4300 digits
        return None


def _plain(column: Any) -> Column:
    """An array. Lists keep each value as it is: NumPy would turn numbers beside text into text."""
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    if isinstance(column, np.ma.MaskedArray):
        held: Column = column.data.astype(object)
        held[np.ma.getmaskarray(column)] = None
        return held
    if isinstance(column, np.ndarray):
        return column
    values = list(column)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return True
    return isinstance(value, numbers.Real) and value != value


def _as_float(value: Any) -> float:
    try:
        return float(_BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # one value must not empty a hospital's share
        return math.nan


def _split(line: str) -> list[str]:
    """The values of one line; none if it cannot be read."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _words_of(values: tuple[str, ...]) -> list[str | None]:
    return [None if one.strip().lower() in _MISSING_WORDS else one.strip() for one in values]


def _numbers_of(values: tuple[str, ...]) -> Any:
    try:
        return np.array([np.nan if one is None else float(one) for one in _words_of(values)])
    except ValueError:
        return _words_of(values)
