"""Many questions as one private sum: rows, weights, shares, answers.

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
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from jopeq.checks import set_fields
from jopeq.errors import TooFewClientsError
from jopeq.ledger import Ledger
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.answers import Answers
from jopeq.statistics.parts import Array, Everyone, Part
from jopeq.statistics.questions import Answer, Count, Question, Total
from jopeq.statistics.tables import Key, Tell, open_table, read_table, report
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sum import RecordSum

_CHUNK, _ENTRIES = 4096, 1 << 22  # the most records, and entries of their rows, at a time
_FEWEST, _CLEAR = 20.0, 5.0  # records, and standard errors of their count


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
