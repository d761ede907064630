"""Many questions as one private sum, and its answers: a table, pictures, standardised features.

A record's row consists of parts q, of norm at most r_q, multiplied by

    w_q² = C²·(√λ_q / r_q) / Σ_p √λ_p·r_p

which minimises Σλ_q/w_q² under Σw_q²r_q² ≤ C². No row is longer than C = 1, so none is scaled down
and nothing is biased. λ_q is the importance of the questions that read the part, times the part's
effect on an answer's variance.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from jopeq.checks import set_fields
from jopeq.errors import TooFewClientsError
from jopeq.ledger import Ledger
from jopeq.privacy.guarantee import Guarantee, digits_up
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.parts import Array, Everyone, Part
from jopeq.statistics.questions import Answer, Count, Mean, Question, Total, plot_answers
from jopeq.statistics.tables import Key, Tell, open_table, read_table, report
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sum import RecordSum

_CHUNK, _ENTRIES = 4096, 1 << 22  # the most records, and entries of their rows, at a time
_FEWEST, _CLEAR = 20.0, 5.0  # records, and standard errors of their count
_WIDTHS = (16, 18, 18)  # of column, question and label: with two numbers, 80 columns


@dataclass(frozen=True)
class Survey:
    """Questions about the records of several hospitals, answered together for one (ε, δ).

    ``total`` and ``answers`` are pure functions. Between them lies ``sum``, a ``RecordSum`` of one
    round in which every record takes part. ``ask`` does everything in one process.

    >>> from jopeq.statistics import Mean, Proportions
    >>> survey = Survey(
    ...     [Mean("age", 0, 120), Proportions("sex", ("F", "M"))],
    ...     epsilon=1.0, clients=3, threshold=3,
    ... )
    >>> answers = survey.ask([{"age": np.linspace(20, 90, 400), "sex": ["F", "M"] * 200}] * 3)
    >>> answer = answers["age"]["mean"]
    >>> bool(abs(answer.value - 55) < 6 * answer.error), answers.epsilon <= 1.0
    (True, True)

    Parameters
    ----------
    questions : sequence of Question
        The count is always asked too.
    epsilon, delta : float
        Privacy of one record, for all questions together.
    clients, threshold, colluding, hospitals_per_person : int
        As for ``jopeq.RecordSum``.
    records : int, default 1,000,000
        Public bound on all records together. A larger one costs bits, but no noise.
    minimum : float, optional
        Answers are withheld if the noisy count, of all records or of those with the values, is
        smaller. By default 20 or five standard errors of the count, whichever is larger.
    complete : bool, default False
        It is public that no value is missing, which spares the answers the noise of counting them;
        one that is missing all the same counts as the middle of its bounds.
    rounds : int, default 1
        Most shares of a hospital, one per attempt at the sum. ε covers all of them.
    """

    questions: tuple[Question, ...]
    _: KW_ONLY
    epsilon: float
    delta: float = 1e-5
    clients: int
    threshold: int
    colluding: int = 1
    hospitals_per_person: int = 1
    records: int = 1_000_000
    minimum: float | None = None
    complete: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        asked = tuple(self.questions)
        if not asked or not all(isinstance(one, Question) for one in asked):
            raise ValueError("questions must be at least one object such as Mean('age', 0, 120)")
        times = Counter((one.column, one.name) for one in asked)
        if max(times.values()) > 1:
            column, name = min(key for key, count in times.items() if count > 1)
            raise ValueError(f"questions ask twice for the {name} of {column!r}: ask once")
        least = as_annotated("minimum", "float | None", self.minimum)
        if least is not None and not 0.0 <= least < math.inf:
            raise ValueError(f"minimum must be a number of records, got {least}")
        complete = as_annotated("complete", "bool", self.complete)
        rounds = as_annotated("rounds", "int", self.rounds)
        set_fields(self, questions=asked, minimum=least, complete=complete, rounds=rounds)
        _ = self.sum  # refuses impossible terms

    # The row of a record

    @cached_property
    def weights(self) -> dict[Part, float]:
        """The factor w of every part, in the order of the row."""
        importance: dict[Part, float] = {Everyone(): 0.0}
        for question in self.questions:
            share = question.divides if question.parts else 1.0
            importance[Everyone()] += share * question.importance
            for part in question.parts:
                importance[part] = importance.get(part, 0.0) + question.importance
        importance = {part: one * part.effect for part, one in importance.items()}
        shared = math.fsum(math.sqrt(one) * part.norm for part, one in importance.items())
        return {
            part: math.sqrt(math.sqrt(one) / part.norm / shared) for part, one in importance.items()
        }

    @cached_property
    def dimension(self) -> int:
        return sum(part.size for part in self.weights)

    @property
    def asked(self) -> tuple[Key, ...]:
        return tuple(dict.fromkeys(key for part in self.weights for key in part.columns))

    def rows(self, table: Any) -> Array:
        """One row per record, of norm at most 1: (records, dimension). Private."""
        chunks = [np.zeros((0, self.dimension)), *self._chunks(table)]
        return np.concatenate(chunks)

    def _chunks(self, table: Any, tell: Tell | None = None) -> Iterator[Array]:
        count, columns = read_table(table, self.asked, tell)
        size = max(1, min(_CHUNK, _ENTRIES // self.dimension))
        for first in range(0, count, size):
            some = slice(first, min(first + size, count))
            rows = np.zeros((some.stop - first, self.dimension))
            here = {key: column[some] for key, column in columns.items()}
            for part, place, factors in self._places():
                part.fill(rows[:, place], here)
                rows[:, place] *= factors
            yield rows

    def _places(self) -> Iterator[tuple[Part, slice, Array]]:
        first = 0
        for part, weight in self.weights.items():
            yield part, slice(first, first + part.size), weight * part.factors
            first += part.size

    # The sum

    @cached_property
    def sum(self) -> RecordSum:
        """The private sum of the rows, which are computed one by one, so none moves another."""
        same = ("epsilon", "delta", "records", "rounds", "clients", "threshold", "colluding")
        terms = {name: getattr(self, name) for name in (*same, "hospitals_per_person")}
        return RecordSum(clip=1.0, sampling=1.0, batch_dependence=0.0, **terms)

    @cached_property
    def spec(self) -> str:
        """All terms as JSON, for ``from_spec``."""
        terms = {field.name: getattr(self, field.name) for field in fields(self)}
        terms["questions"] = [[one.word, asdict(one)] for one in self.questions]
        return json.dumps(terms, separators=(",", ":"))

    @cached_property
    def name(self) -> str:
        """The survey's name in ledgers, different for different terms."""
        return f"statistics {hashlib.sha256(self.spec.encode()).hexdigest()[:16]}"

    @classmethod
    def from_spec(cls, spec: str) -> Survey:
        """The survey of another end's ``spec``, or ``ValueError``."""
        try:
            terms = json.loads(spec)
            asked = tuple(Question.kinds[word](**given) for word, given in terms.pop("questions"))
            return cls(asked, **terms)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"spec does not describe a survey: {error}") from error

    def total(self, table: Any, *, tell: Tell | None = None) -> ClippedTotal:
        """The exact total of the rows. Private.

        Values that do not fit raise errors. If others than the table's owners would see an error,
        ``tell`` receives it: text among numbers counts as missing, and only a missing column stops.
        """
        total = ClippedTotal(self.dimension, self.sum.clip)
        for rows in self._chunks(table, tell):
            total.add(rows)
        if total.rows > self.records:
            few = f"records={self.records} is fewer than this table has: give a larger public bound"
            report(tell, few, code="records")
        return total

    # Answers

    def answers(self, decoded: Any, *, clients: int | None = None) -> Answers:
        """The answers from the mean that ``sum.decode`` gave for ``clients`` hospitals."""
        plan = self.sum.plan(self.dimension, clients)
        mean = np.asarray(decoded, dtype=np.float64)
        if mean.shape != (self.dimension,):
            raise ValueError(f"decoded must have shape ({self.dimension},), got {mean.shape}")
        error = self.records * math.sqrt(plan.error / self.dimension)  # of each entry of the total
        totals = {
            part: Total(mean[place] * self.records / factors, error / factors)
            for part, place, factors in self._places()
        }
        for part, total in totals.items():
            if self.complete and part.counts_missing:
                total.values[-1] = total.errors[-1] = 0.0
        count, spread = (float(values[0]) for values in totals[Everyone()])
        minimum = max(_FEWEST, _CLEAR * spread) if self.minimum is None else self.minimum
        found: dict[str, dict[str, Answer]] = {}
        always = () if any(not question.parts for question in self.questions) else (Count(),)
        for question in (*always, *self.questions):
            is_said = min(count, question.present(totals)) >= minimum
            answer = question.answer(totals, is_said)
            found.setdefault(question.column, {})[question.name] = answer
        return Answers(found, minimum=minimum, epsilon=plan.epsilon, guarantee=self.sum.guarantee)

    def ask(self, tables: Sequence[Any], *, ledgers: Sequence[Ledger] | None = None) -> Answers:
        """Ask these hospitals in this process, through real shares.

        A table is a dict of columns, a structured array, a frame of pandas or polars, or the path
        of a CSV file; ``ledgers`` has one for each. If one table is refused, nothing is summed.
        """
        if len(tables) < self.threshold:
            told = f"threshold={self.threshold} hospitals must be in the sum, got {len(tables)}"
            raise TooFewClientsError(told)
        if ledgers is not None and len(ledgers) != len(tables):
            raise ValueError(f"ledgers must be one for each of {len(tables)} tables")
        opened = [open_table(table, self.asked) for table in tables]
        self.sum.plan(self.dimension, len(tables))  # refuse before anything is charged
        for ledger in ledgers or ():
            ledger.charge(self.sum, self.dimension, run=self.name)
        mean = self.sum.pool([self.total(table) for table in opened])
        return self.answers(mean, clients=len(tables))


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
