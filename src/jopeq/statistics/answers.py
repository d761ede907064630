"""Answers with standard errors: a table to read, pictures, and features standardised by them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jopeq.privacy.guarantee import Guarantee, digits_up
from jopeq.statistics.parts import Array
from jopeq.statistics.pictures import stack_panels
from jopeq.statistics.questions import Answer, Mean
from jopeq.statistics.tables import check_columns, read_column

_WIDTHS = (16, 18, 18)  # of column, question and label: with two numbers, 80 columns
_HIDDEN = "too few records"


class Scales(NamedTuple):
    """Means and standard deviations of columns, and the bounds that values are clipped to."""

    columns: tuple[str, ...]
    means: Array
    deviations: Array
    lower: Array
    upper: Array


class Answers(Mapping[str, Mapping[str, Answer]]):
    """The answers of a survey: column → question → ``Answer``; ``"*"`` has the count of records.

    ``epsilon`` is what all answers together have spent of every record, at ``guarantee.delta``.
    """

    def __init__(
        self,
        found: Mapping[str, Mapping[str, Answer]],
        *,
        minimum: float,
        epsilon: float,
        guarantee: Guarantee,
    ) -> None:
        self._found = {column: dict(answers) for column, answers in found.items()}
        self.minimum, self.epsilon, self.guarantee = minimum, epsilon, guarantee

    def __getitem__(self, column: str) -> Mapping[str, Answer]:
        return self._found[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"Answers({', '.join(self)}; epsilon={digits_up(self.epsilon)})"

    def as_dict(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Column → question → value and error, as JSON can hold them."""
        return {
            column: {name: answer.as_dict() for name, answer in answers.items()}
            for column, answers in self.items()
        }

    def __str__(self) -> str:
        head = ("column", "question", "", "value", "± error")
        lines = [_line(*head)]
        for column, answers in self.items():
            for name, answer in answers.items():
                for number, (label, value, error) in enumerate(
                    answer.lines or [("", math.nan, 0.0)]
                ):
                    told = (column, name) if not number else ("", "")
                    column = ""
                    if not label and len(name) > _WIDTHS[1]:  # such as a correlation's
                        start, _, label = name.rpartition(" ")
                        told = (told[0], start)
                    shown = _digits(value, error) if answer.lines else (_HIDDEN, "")
                    lines.append(_line(*told, label, *shown))
        spent = f"ε = {digits_up(self.epsilon)} at δ = {self.guarantee.delta:g}"
        lines += [
            f"{spent} of every record, for all answers together.",
            "± is one standard error of the noise. Values beyond bounds count as the bound.",
        ]
        if any(
            not label and abs(value) <= error
            for answers in self.values()
            for answer in answers.values()
            for label, value, error in answer.lines
        ):
            lines += [
                "Noise hides an answer that is smaller than its ±: ask fewer questions, or use",
                "more records or a larger epsilon.",
            ]
        lines += [
            f"\n{text}" for found in self.values() for one in found.values() if (text := one.told)
        ]
        return "\n".join(lines)

    def plot(self) -> Any:
        """A Matplotlib figure of all histograms, with two standard errors, and survival curves.

        ``figure.savefig(path)`` writes it; a notebook shows it.
        """
        found = (answer for answers in self.values() for answer in answers.values())
        drawn = [answer for answer in found if answer.question.height and answer.lines]
        if not drawn:
            raise ValueError("there is nothing to plot: ask for a Histogram or Survival")
        figure, panels = stack_panels([answer.question.height for answer in drawn])
        for answer, panel in zip(drawn, panels, strict=True):
            answer.question.draw(answer, panel)
        return figure

    # Standardising

    def scales(self, columns: Sequence[str] | None = None) -> Scales:
        """Means and deviations of these columns, by default of all that have both answers."""
        asked = {"mean", "variance"}
        chosen = [name for name in self if asked <= set(self[name])] if columns is None else columns
        if not chosen:
            raise ValueError("columns: none has a Mean and a Variance: ask for both")
        found = [self._scale(name) for name in chosen]
        return Scales(tuple(chosen), *(np.array(numbers) for numbers in zip(*found, strict=True)))

    def _scale(self, column: str) -> tuple[float, float, float, float]:
        answers = self.get(column, {})
        mean, variance = answers.get("mean"), answers.get("variance")
        asked = None if mean is None else mean.question
        if not (isinstance(asked, Mean) and mean and mean.lines and variance and variance.lines):
            raise ValueError(
                f"columns: {column!r} has no answers to Mean and Variance: ask for both, with more "
                "records or a larger epsilon where they were too few"
            )
        ((_, middle, _),), ((_, square, error),) = mean.lines, variance.lines
        # a variance below its own error says no more than that it is small
        return middle, math.sqrt(max(square, error)), asked.lower, asked.upper

    def standardise(self, rows: Any, columns: Sequence[str] | None = None) -> Array:
        """(value − mean)/deviation of these columns, (records, columns); 0 where one is missing.

        ``rows`` is a table, or an array (records, columns) whose columns are in that order. Values
        are clipped to the bounds first. Each row of the result depends on its own record and on the
        answers alone, so that training may start from it.
        """
        scales = self.scales(columns)
        if isinstance(rows, np.ndarray) and rows.dtype.names is None:
            found = np.array(rows, dtype=np.float64)
            if found.ndim != 2 or found.shape[1] != len(scales.columns):
                raise ValueError(
                    f"rows must have the {len(scales.columns)} columns {', '.join(scales.columns)}"
                    f", got shape {found.shape}"
                )
        else:
            check_columns(rows, scales.columns)
            read = [read_column(rows, name, "numbers") for name in scales.columns]
            found = np.stack(read, axis=1)
        clipped = np.clip(found, scales.lower, scales.upper)
        return np.nan_to_num((clipped - scales.means) / scales.deviations)


# Printing


def _line(column: str, question: str, label: str, value: str, error: str) -> str:
    words = (
        _cut(word, width) for word, width in zip((column, question, label), _WIDTHS, strict=True)
    )
    return f"{' '.join(words)} {value:>15} {error:>8}".rstrip()


def _cut(word: str, width: int) -> str:
    return f"{word:{width}}" if len(word) <= width else f"{word[: width - 1]}…"


def _digits(value: float, error: float) -> tuple[str, str]:
    """Both numbers, to two digits of the error.

    >>> _digits(4012.3456, 16.2), _digits(0.512345, 0.00412)
    (('4,012', '16'), ('0.5123', '0.0041'))
    """
    if error <= 0.0 or not 1e-6 <= error < 1e6:
        return f"{value:.5g}", f"{error:.2g}"
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{places}f}", f"{error:,.{places}f}"
