"""Questions from text, as on the command line, and from the fields in ``Survey.spec``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jopeq.statistics.columns import Category, check_bounds
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
    word, *words = shlex.split(rest if colon else text) or [""]
    column = column.strip() if colon else ""
    if word not in _FORMS or not (column or word == "count"):
        raise ValueError(
            f"ask must be 'COLUMN: QUESTION …' with a question of {', '.join(_FORMS)}, got "
            f"{text!r}: such as 'age: mean 0 120'"
        )
    form, make = _FORMS[word]
    plain = [one for one in words if "=" not in one]
    try:
        named = [one.split("=", 1) for one in words if "=" in one]
        return make(column or EVERYBODY, *plain, **{name: _READ[name](one) for name, one in named})
    except (KeyError, TypeError):  # an unknown option, or too few or too many words
        raise ValueError(f"ask {text!r} must read {form}") from None


# Parsing


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"ask takes numbers here, got {word!r}") from None


def _numbers(*words: str) -> tuple[float, ...]:
    return tuple(map(_number, words))


def _category(text: str) -> Category:
    name, _, levels = text.partition(":")
    return Category(name, levels.split(","))


_READ: dict[str, Callable[[str], Any]] = {
    "importance": _number,
    "bins": lambda text: int(_number(text)),
    "at": lambda text: _numbers(*text.split(",")),
    "by": _category,
}


def _edges(words: tuple[str, ...], bins: int | None) -> tuple[float, ...]:
    if bins is None:
        return _numbers(*words)
    lower, upper = check_bounds("edges", *_numbers(*words))
    return tuple(np.linspace(lower, upper, min(max(bins, 0), MOST_BINS) + 1).tolist())


def _bounded(kind: Any) -> Callable[..., Question]:
    def make(column: str, lower: str, upper: str, **more: Any) -> Question:
        found: Question = kind(column, _number(lower), _number(upper), **more)
        return found

    return make


def _histogram(column: str, *words: str, bins: int | None = None, **more: Any) -> Question:
    return Histogram(column, _edges(words, bins), **more)


def _proportions(column: str, *words: str, **more: Any) -> Question:
    return Proportions(column, words, **more)


def _correlation(
    column: str, low: str, high: str, other: str, low2: str, high2: str, **more: Any
) -> Question:
    bounds, other_bounds = (_number(low), _number(high)), (_number(low2), _number(high2))
    return Correlation(column, other, bounds, other_bounds, **more)


def _survival(
    column: str, event: str, *words: str, bins: int | None = None, **more: Any
) -> Question:
    return Survival(column, event, _edges(words, bins), **more)


_FORMS: dict[str, tuple[str, Callable[..., Question]]] = {
    "count": ("'count' or 'COLUMN: count'", lambda column, **more: Count(column, **more)),
    "mean": ("'COLUMN: mean LOWER UPPER'", _bounded(Mean)),
    "variance": ("'COLUMN: variance LOWER UPPER'", _bounded(Variance)),
    "histogram": (
        "'COLUMN: histogram EDGE EDGE …' or 'COLUMN: histogram LOWER UPPER bins=20'", _histogram,
    ),
    "quartiles": ("'COLUMN: quartiles LOWER UPPER'", _bounded(Quantiles)),
    "quantiles": ("'COLUMN: quantiles LOWER UPPER at=0.1,0.9'", _bounded(Quantiles)),
    "proportions": ("'COLUMN: proportions CATEGORY …'", _proportions),
    "correlation": ("'COLUMN: correlation LOWER UPPER OTHER LOWER UPPER'", _correlation),
    "survival": (
        "'TIME: survival EVENT LOWER UPPER bins=12 by=COLUMN:LEVEL,LEVEL' (or all edges)",
        _survival,
    ),
}  # fmt: skip
