"""Columns of a table as numbers, words or rows, with missing values marked.

A table is a NumPy structured array, a mapping from names to columns, a frame of pandas or polars,
or the path of a CSV file. Errors name columns and never a value or a row.
"""

from __future__ import annotations

import csv
import math
import numbers
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError

Values = NDArray[Any]
Key = tuple[str, str]
"""A column's name, and how it is read: as "numbers", "words" or "rows"."""
Tell = Callable[[DataError], object]
"""Receives an error that nobody else may see."""
_BOOLEANS = {"true": True, "false": False}
_NUMBER = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?\s*")
_MISSING_WORDS = ("", "na", "n/a", "nan", "none", "null")


def report(tell: Tell | None, text: str, code: str, cause: Exception | None = None) -> None:
    """Hand a ``DataError`` to ``tell``, or raise it."""
    error = DataError(text, code=code)
    if tell is None:
        raise error from cause
    tell(error)


def read_csv(
    path: str | Path, numeric: Collection[str] = (), *, tell: Tell | None = None
) -> dict[str, Any]:
    """Read a file with a line of names: words, and the columns in ``numeric`` as numbers.

    Every line is read alone, so a stray quote cannot swallow the next patients. A line that does
    not fit is an error; with ``tell`` it is left out. A numeric column with a value that is no
    number stays words, which ``read_column`` reports.
    """
    errors = "strict" if tell is None else "replace"
    try:
        with Path(path).open(newline="", encoding="utf-8-sig", errors=errors) as file:
            head, *lines = [_split(line) for line in file if line.strip("\r\n")]
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be read: {reason}", code="table") from error
    except ValueError as error:
        raise DataError(f"{path} has no line of column names: {error}", code="table") from error
    names = [name.strip() for name in head]
    if len(set(names)) < len(names):
        raise DataError(f"{path}: column names must differ", code="table")
    fitting = [line for line in lines if len(line) == len(names)]
    if len(fitting) < len(lines):
        report(tell, f"{path}: every line must have one value per column name", "table")
    columns = zip(*fitting, strict=True) if fitting else [()] * len(names)
    return {
        name: _parse(values, name in numeric) for name, values in zip(names, columns, strict=True)
    }


def open_table(table: Any, keys: Sequence[Key], tell: Tell | None = None) -> Any:
    """Read a CSV file if ``table`` is a path; refuse a table that lacks one of these columns."""
    if isinstance(table, str | Path):
        table = read_csv(table, {name for name, kind in keys if kind == "numbers"}, tell=tell)
    if isinstance(table, Mapping):
        names: Any = table
    else:
        names = getattr(getattr(table, "dtype", None), "names", None)
        if names is None and not isinstance(table, np.ndarray):
            names = getattr(table, "columns", None)
    if names is None:
        raise DataError(
            "a table must be a structured array, a dict of columns, a frame or the path of a CSV "
            f"file, got {type(table).__name__}",
            code="table",
        )
    known = [str(name) for name in names]
    for name, _ in keys:
        if name not in known:
            raise DataError(
                f"column {name!r} is not in the table, which has {', '.join(known) or 'none'}",
                code="column",
            )
    return table


def read_table(
    table: Any, keys: Sequence[Key], tell: Tell | None = None
) -> tuple[int, dict[Key, Any]]:
    """(number of records, the values of these columns). Private."""
    table = open_table(table, keys, tell)
    counts = (
        {len(_plain(column)) for column in table.values()}
        if isinstance(table, Mapping)
        else {len(table)}
    )
    if len(counts) != 1:
        raise DataError("all columns of a table must have the same length", code="table")
    (count,) = counts
    found: dict[Key, Any] = {}
    for name, kind in keys:
        if kind != "rows":
            found[name, kind] = read_column(table, name, kind, tell=tell)
            continue
        try:
            rows = np.asarray(table[name], dtype=np.float64)
            found[name, kind] = rows.reshape(count, math.prod(rows.shape[1:]))
        except (OverflowError, TypeError, ValueError) as error:
            report(
                tell, f"column {name!r} must have one row of numbers per record", "column", error
            )
            found[name, kind] = list(table[name])  # ``Features`` reads them one by one
    return count, found


def read_column(table: Any, name: str, kind: str, *, tell: Tell | None = None) -> Values:
    """Read a column as float64 with NaN for missing values, or as words with None for them.

    Text among numbers is an error. With ``tell`` it counts as missing, except for digits and
    Booleans: some libraries turn a whole column into text because of one value.
    """
    found = _plain(table[name])
    if found.ndim != 1:
        raise DataError(f"column {name!r} must have one value per record", code="table")
    if kind == "words":
        return np.array([word_of(value) for value in found.tolist()], dtype=object)
    if found.dtype.kind in "biuf":
        return found.astype(np.float64)
    values = [math.nan if _is_missing(value) else value for value in found.tolist()]
    if found.dtype.kind != "O" or not all(isinstance(one, numbers.Real) for one in values):
        report(
            tell,
            f"column {name!r} has values that are not numbers: clean it, or ask for proportions",
            code="text",
        )
    return np.array([_as_float(value) for value in values], dtype=np.float64)


def word_of(value: Any) -> str | None:
    """Turn a category into text, whole numbers without a point; None if missing or empty.

    Text that is a number or a Boolean counts as one: a library that reads a file may turn a whole
    column into text because of one value, and that must not change the other records.

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
        with suppress(ValueError):  # more digits than Python reads
            value = float(value) if "." in value else int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return str(value) or None
    except Exception:  # Python writes out no integer of more than 4300 digits
        return None


def _plain(column: Any) -> Values:
    if hasattr(column, "to_numpy"):
        column = column.to_numpy()
    if isinstance(column, np.ma.MaskedArray):
        held: Values = column.data.astype(object)
        held[np.ma.getmaskarray(column)] = None
        return held
    if isinstance(column, np.ndarray):
        return column
    values = list(column)
    found = np.empty(len(values), dtype=object)
    found[:] = values  # each unchanged: NumPy would turn numbers next to text into text
    return found


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas
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
    """Split one line into its values; an unreadable line has none."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _parse(texts: Iterable[str], is_numeric: bool) -> Any:
    words = [None if one.strip().lower() in _MISSING_WORDS else one.strip() for one in texts]
    if is_numeric:
        with suppress(ValueError):
            found = ("nan" if one is None else _BOOLEANS.get(one.lower(), one) for one in words)
            return np.array([float(one) for one in found])
    return words
