"""Questions from text: as the command line takes them, and as ``Survey.spec`` has them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

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
    check_bounds,
)
from jopeq.statistics.survival import Category, Survival

KINDS: dict[str, type[Question]] = {
    kind.word: kind
    for kind in (
        Count,
        Mean,
        Variance,
        Histogram,
        Quantiles,
        Proportions,
        Correlation,
        Survival,
    )
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
    "survival": "'TIME: survival EVENT LOWER UPPER bins=12 by=COLUMN:LEVEL,LEVEL' (or all edges)",
}
_NAMED = {"histogram": ("bins",), "quartiles": ("bins",), "quantiles": ("bins", "at")}
_NAMED["survival"] = ("bins", "by")


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


def _edges(words: list[str], named: dict[str, str]) -> tuple[float, ...]:
    if "bins" not in named:
        return tuple(_numbers(words))
    lower, upper = check_bounds("edges", *_two(words))
    bins = int(min(max(_numbers([named["bins"]])[0], 0.0), MOST_BINS))
    return tuple(np.linspace(lower, upper, bins + 1).tolist())


def _parse_histogram(column: str, words: list[str], named: dict[str, str]) -> Question:
    return Histogram(column, _edges(words, named), **_importance(named))


def _parse_survival(column: str, words: list[str], named: dict[str, str]) -> Question:
    name, colon, levels = named.get("by", "").partition(":")
    by = Category(name, tuple(levels.split(","))) if name or colon else None
    return Survival(column, words[0], _edges(words[1:], named), by=by, **_importance(named))


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
    "survival": _parse_survival,
}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
