"""Questions from text, as on the command line, and from the fields in ``Survey.spec``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jopeq.statistics.columns import Category, check_edges
from jopeq.statistics.questions import (
    EVERYBODY,
    MOST_BINS,
    Correlation,
    Count,
    Histogram,
    Mean,
    Proportions,
    Quantiles,
    Question,
    Variance,
)
from jopeq.statistics.survival import Survival

_KINDS = (Count, Mean, Variance, Histogram, Quantiles, Proportions, Correlation, Survival)
KINDS: dict[str, Callable[..., Question]] = {kind.word: kind for kind in _KINDS}
_FORMS = (
    "'count', 'COLUMN: count', 'COLUMN: mean LOWER UPPER', 'COLUMN: variance LOWER UPPER', "
    "'COLUMN: histogram LOWER UPPER bins=20' (or all edges), 'COLUMN: quartiles LOWER UPPER', "
    "'COLUMN: quantiles LOWER UPPER at=0.1,0.9', 'COLUMN: proportions CATEGORY …', "
    "'COLUMN: correlation LOWER UPPER OTHER LOWER UPPER', "
    "'TIME: survival EVENT LOWER UPPER bins=12 by=COLUMN:LEVEL,LEVEL' (or all edges)"
)


def question_from(word: str, given: Mapping[str, Any]) -> Question:
    """A question from its word and fields."""
    fields = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
    return KINDS[word](**fields)


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
        word, *words = shlex.split(rest if colon else text)
        plain = [one for one in words if "=" not in one]
        named = [one.split("=", 1) for one in words if "=" in one]
        read = {name: _READ[name](one) for name, one in named}
        return _make(column.strip() if colon else "", word, plain, read)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"ask {text!r} has an error ({error}); the forms are {_FORMS}") from None


def _make(column: str, word: str, words: Sequence[str], named: dict[str, Any]) -> Question:
    match word, words:
        case "count", []:
            return Count(column or EVERYBODY, **named)
        case _ if not column:
            raise ValueError("no column")
        case "mean" | "variance" | "quantiles" | "quartiles", [lower, upper]:
            return KINDS.get(word, Quantiles)(column, float(lower), float(upper), **named)
        case "histogram", edges:
            return Histogram(column, _edges(edges, named.pop("bins", 0)), **named)
        case "proportions", categories:
            return Proportions(column, tuple(categories), **named)
        case "correlation", [lower, upper, other, low, high]:
            bounds = (float(lower), float(upper)), (float(low), float(high))
            return Correlation(column, other, *bounds, **named)
        case "survival", [event, *edges]:
            return Survival(column, event, _edges(edges, named.pop("bins", 0)), **named)
    raise ValueError("no such question, or too few or too many words")


def _edges(words: Sequence[str], bins: int) -> tuple[float, ...]:
    if not bins:
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
