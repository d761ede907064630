"""Answers with standard errors: a table to read, pictures, and features standardised by them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from jopeq.privacy.guarantee import Guarantee, digits_up
from jopeq.statistics.parts import Array
from jopeq.statistics.questions import Answer, Mean, plot_answers
from jopeq.statistics.tables import read_table

_WIDTHS = (16, 18, 18)  # of column, question and label: with two numbers, 80 columns


class Scales(NamedTuple):
    """Means and standard deviations of columns, and the bounds that values are clipped to."""

    columns: tuple[str, ...]
    means: Array
    deviations: Array
    lower: Array
    upper: Array


@dataclass(frozen=True, repr=False)
class Answers(Mapping[str, Mapping[str, Answer]]):
    """The answers of a survey, column → question → ``Answer``; ``"*"`` has the count of records.

    All answers together have spent ``epsilon`` of every record, at ``guarantee.delta``.
    """

    found: Mapping[str, Mapping[str, Answer]]
    _: KW_ONLY
    minimum: float
    epsilon: float
    guarantee: Guarantee

    def __getitem__(self, column: str) -> Mapping[str, Answer]:
        return self.found[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        return f"Answers({', '.join(self)}; epsilon={digits_up(self.epsilon)})"

    def as_dict(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Column → question → value and error, for JSON."""
        return {
            column: {name: answer.as_dict() for name, answer in answers.items()}
            for column, answers in self.items()
        }

    def __str__(self) -> str:
        lines = [_line(("column", "question", ""), "value", "± error")]
        for column, answers in self.items():
            for name, answer in answers.items():
                told = (column, name)
                for label, value, error in answer.lines or [("", 0.0, 0.0)]:
                    if not label and len(name) > _WIDTHS[1]:  # such as a correlation's
                        start, _, label = name.rpartition(" ")
                        told = (column, start)
                    shown = _digits(value, error) if answer.lines else ("too few records", "")
                    lines.append(_line((*told, label), *shown))
                    told = ("", "")
                column = ""
        spent = f"ε = {digits_up(self.epsilon)} at δ = {self.guarantee.delta:g}"
        lines += [
            f"{spent} per record, for all answers together.",
            "± is one standard error of the noise. Values beyond bounds count as the bound.",
        ]
        each = [answer for answers in self.values() for answer in answers.values()]
        numbers = (one for answer in each for one in answer.lines)
        if any(not label and abs(value) <= error for label, value, error in numbers):
            lines += [
                "Noise hides an answer that is smaller than its ±: ask fewer questions, or use",
                "more records or a larger epsilon.",
            ]
        return "\n".join([*lines, *(f"\n{answer.told}" for answer in each if answer.told)])

    def plot(self) -> Any:
        """A Matplotlib figure of histograms, with two standard errors, and of survival curves."""
        return plot_answers(answer for found in self.values() for answer in found.values())

    # Standardising

    def scales(self, columns: Sequence[str] | None = None) -> Scales:
        """Means and deviations of these columns, by default of all that have both answers."""
        asked = [name for name in self if {"mean", "variance"} <= set(self[name])]
        chosen = asked if columns is None else columns
        if not chosen:
            raise ValueError("columns: none has a Mean and a Variance: ask for both")
        found = [self._scale(name) for name in chosen]
        return Scales(tuple(chosen), *map(np.array, zip(*found, strict=True)))

    def _scale(self, column: str) -> tuple[float, float, float, float]:
        answers = self.get(column, {})
        mean, variance = answers.get("mean"), answers.get("variance")
        if mean is None or variance is None or not (mean.lines and variance.lines):
            raise ValueError(
                f"columns: {column!r} has no answers to Mean and Variance: ask for both, or use "
                "more records or a larger epsilon if they were too few"
            )
        asked = cast(Mean, mean.question)
        ((_, middle, _),), ((_, square, error),) = mean.lines, variance.lines
        # a variance below its own error only says that it is small
        return middle, math.sqrt(max(square, error)), asked.lower, asked.upper

    def standardise(self, table: Any, columns: Sequence[str] | None = None) -> Array:
        """(value − mean)/deviation of these columns, (records, columns); 0 where one is missing.

        Values are clipped to the bounds first. Each row depends on its own record and the answers
        alone.
        """
        scales = self.scales(columns)
        _, read = read_table(table, [(name, "numbers") for name in scales.columns])
        clipped = np.clip(np.stack(list(read.values()), axis=1), scales.lower, scales.upper)
        found: Array = np.nan_to_num((clipped - scales.means) / scales.deviations)
        return found


def _line(words: Sequence[str], value: str, error: str) -> str:
    fitted = (
        f"{word:{width}}" if len(word) <= width else f"{word[: width - 1]}…"
        for word, width in zip(words, _WIDTHS, strict=True)
    )
    return f"{' '.join(fitted)} {value:>15} {error:>8}".rstrip()


def _digits(value: float, error: float) -> tuple[str, str]:
    """Both numbers, to two digits of the error.

    >>> _digits(4012.3456, 16.2), _digits(0.512345, 0.00412)
    (('4,012', '16'), ('0.5123', '0.0041'))
    """
    if error <= 0.0 or not 1e-6 <= error < 1e6:
        return f"{value:.5g}", f"{error:.2g}"
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{places}f}", f"{error:,.{places}f}"
