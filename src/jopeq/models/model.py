"""Models, their terms, and the plan of a fit.

A model is public. ``read`` and ``total`` are a hospital's part; ``advance`` and ``finish`` are the
server's, from ``State()`` on. ``fit`` runs everything in one process, through real shares.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from jopeq.checks import set_fields
from jopeq.errors import DataError, PayloadError
from jopeq.models.design import Design
from jopeq.models.fit import Fit
from jopeq.models.hazard import Hazards
from jopeq.models.inference import BURNED, Binomial, Counts, LeastSquares, Newton, sigmoid
from jopeq.models.method import Records, State
from jopeq.models.prediction import Heads, softmax
from jopeq.models.totals import MOST_RECORDS, Array
from jopeq.privacy.guarantee import digits_up
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.columns import (
    Bins,
    Bools,
    Column,
    Features,
    Number,
    check_edges,
    column_from,
    describe,
)
from jopeq.statistics.tables import Key, Tell, read_table, report, word_of
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_accounting import epsilon_of
from jopeq.sums.record_plan import RecordPlan
from jopeq.sums.record_sum import RecordSum

Method = Newton | LeastSquares | Heads

_MOST_MESSAGES, _MOST_PERIODS = 64, 64
_ABSURD = 4.0  # times the public estimate of records: such a total is no sum of shares
_SPREAD = 0.5  # of a number between bounds −1 and 1: a quarter of the range
_WIDE, _ENOUGH, _SOME = 1.5, 10.0, 3.0


@dataclass(frozen=True)
class ModelPlan:
    """Messages, bytes, bits, noise in records, the standard error to expect, and a verdict.

    Standard errors are of a coefficient times its column's standard deviation, if that is a quarter
    of the column's bounds and the model explains little.
    """

    messages: int
    entries: tuple[int, ...]  # per sum
    bits: tuple[int, ...]  # per entry
    bytes_up: int  # from each hospital, in total
    bytes_down: int  # to each hospital, in total
    noise: float
    epsilon: float
    delta: float
    standard_error: float | None
    without_privacy: float | None
    verdict: str

    def __str__(self) -> str:
        up, down = map(_size, (self.bytes_up, self.bytes_down))
        bits = "–".join(map(str, sorted({min(self.bits), max(self.bits)})))
        spent = f"ε = {digits_up(self.epsilon)} at δ = {self.delta:g} per record"
        lines = [
            f"messages: {self.messages}, {up} from each hospital, {down} to it, {bits}-bit entries",
            f"privacy: {spent}; noise of {self.noise:.3g} records in each entry of a sum",
        ]
        if self.standard_error is not None:
            lines.append(
                f"standard error: about {self.standard_error:.2g} per standard deviation of a "
                f"column ({self.without_privacy:.2g} without privacy)"
            )
        return "\n".join([*lines, f"verdict: {self.verdict}"])


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


@dataclass(frozen=True)
class Model(ABC):
    """A model of ``outcome``, fitted by private sums over several hospitals' records.

    Parameters
    ----------
    outcome : str
        The column to explain.
    columns : sequence of Number, Category and Bins, or one Features
        The columns that explain it. Bounds and levels are public.
    epsilon, delta : float
        Privacy of one record, for the whole fit.
    clients, threshold, colluding, hospitals_per_person, most_records : int
        As for ``jopeq.RecordSum``.
    records : int
        Public estimate of all hospitals' records together.
    goal : {"inference", "prediction"}, optional
        "inference" fits the textbook model with intervals. "prediction" scales every row to length
        1: less noise, no intervals. By default "inference", except for ``Features`` and
        ``Softmax``.
    additive : bool, default False
        Fit a shape for every ``Number`` instead of a slope: it becomes ``Bins``.
    messages : int, optional
        Sums of a fit. With many records, more sums are more accurate.
    repeats : int, default 0
        Spare sums in case hospitals drop out. Each makes all sums noisier.
    """

    outcome: str
    columns: Sequence[Column]
    _: KW_ONLY
    epsilon: float
    delta: float = 1e-5
    clients: int
    threshold: int
    records: int
    goal: str | None = None
    additive: bool = False
    messages: int | None = None
    colluding: int = 1
    hospitals_per_person: int = 1
    most_records: int | None = None
    repeats: int = 0
    word: ClassVar[str]
    goals: ClassVar[tuple[str, ...]] = ("inference", "prediction")

    def __post_init__(self) -> None:
        given = (self.columns,) if isinstance(self.columns, Column) else tuple(self.columns)
        if as_annotated("additive", "bool", self.additive):
            given = tuple(
                Bins(one.column, one.lower, one.upper, missing=one.missing)
                if isinstance(one, Number)
                else one
                for one in given
            )
        usual = self.goals[-1 if any(isinstance(one, Features) for one in given) else 0]
        goal = usual if self.goal is None else self.goal
        if goal not in self.goals:
            raise ValueError(f"goal must be {' or '.join(self.goals)} here, got {goal!r}")
        set_fields(self, outcome=str(self.outcome), columns=given, goal=goal)
        for name, least, most in (
            ("messages", 5 if self.goal == "inference" else 2, _MOST_MESSAGES),
            ("most_records", 1, MOST_RECORDS),
            ("repeats", 0, _MOST_MESSAGES),
        ):
            value = as_annotated(name, "int | None", getattr(self, name))
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} must be from {least} to {most}, got {value}")
        if (self.most_records or self.records) > MOST_RECORDS:
            raise ValueError(
                f"records={self.records}: give most_records of at most {MOST_RECORDS}, as many as "
                "the exact total of one hospital can hold"
            )
        if self.outcome in [name for name, _ in self.design.keys]:
            raise ValueError(f"outcome {self.outcome!r} is among the columns: remove it there")
        _ = self._sum  # refuses impossible terms

    # Differences between models

    @property
    def design(self) -> Design:
        return Design(tuple(self.columns), self.goal == "inference")

    @cached_property
    @abstractmethod
    def method(self) -> Method:
        """The way from sums to coefficients."""

    @property
    @abstractmethod
    def outcome_keys(self) -> tuple[Key, ...]:
        """The columns read for the outcome, and how."""

    @abstractmethod
    def targets(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        """(the outcome of every record, (records, …); which records have one)."""

    @abstractmethod
    def means(self, logits: Array) -> Array:
        """Predictions from logits (records, outputs)."""

    # Terms

    @cached_property
    def spec(self) -> str:
        """All terms as JSON, for ``model_from_spec``."""
        terms = {**asdict(self), "columns": [describe(one) for one in self.columns]}
        return json.dumps({"model": self.word, **terms}, separators=(",", ":"))

    @property
    def name(self) -> str:
        """The fit's name in ledgers, different for different models."""
        return f"{self.word} {hashlib.sha256(self.spec.encode()).hexdigest()[:16]}"

    @property
    def keys(self) -> tuple[Key, ...]:
        return (*self.outcome_keys, *self.design.keys)

    @cached_property
    def _sum(self) -> RecordSum:
        others = sum(map(self.is_other, range(self.method.messages)))
        same = ("epsilon", "delta", "records", "clients", "threshold", "colluding")
        terms = {name: getattr(self, name) for name in (*same, "hospitals_per_person")}
        return RecordSum(
            clip=1.0,
            sampling=1.0,
            rounds=self.repeats + self.method.messages - others,
            evaluations=self.repeats + others if others else 0,
            most_records=self.most_records,
            batch_dependence=0.0,
            **terms,
        )

    def sum_of(self, step: int) -> RecordSum:
        """The private sum of a step, whose rounds are the steps of the same dimension.

        One ε covers all sums of a fit.
        """
        return self._sum.evaluation if self.is_other(step) else self._sum

    def is_other(self, step: int) -> bool:
        """True if the sum of a step differs in dimension from the first; there are two."""
        return self.method.dimension(step) != self.method.dimension(0)

    def plan_of(self, step: int, clients: int | None = None) -> RecordPlan:
        """The plan of a step's sum over so many hospitals."""
        if not 0 <= step < self.method.messages:
            raise ValueError(f"step must be from 0 to {self.method.messages - 1}, got {step}")
        return self.sum_of(step).plan(self.method.dimension(step), clients)

    def noise_of(self, step: int, clients: int | None = None) -> float:
        """The standard error of an entry of the total, in units of a record's longest row."""
        plan = self.plan_of(step, clients)
        return self.records * math.sqrt(plan.error / plan.dimension)

    def epsilon_after(self, shares: Sequence[int]) -> float:
        """The ε of a record after these numbers of shares, one number per step."""
        made = [(step, count) for step, count in enumerate(shares) if count]
        runs = [self.sum_of(step).spend(self.plan_of(step).dimension, n) for step, n in made]
        return epsilon_of(runs, self.delta, self.epsilon)

    def plan(self) -> ModelPlan:
        method, steps = self.method, range(self.method.messages)
        plans = [self.plan_of(step) for step in steps]
        sent = [math.prod(shape) for step in steps for shape in method.shapes(step).values()]
        error, without, verdict = self._expect()
        return ModelPlan(
            messages=len(steps), entries=tuple(plan.dimension for plan in plans),
            bits=tuple(plan.bits for plan in plans), noise=self.noise_of(0),
            bytes_up=sum(-(-plan.payload_bits // 8) for plan in plans), bytes_down=8 * sum(sent),
            epsilon=self.epsilon_after([1] * len(steps)), delta=self.delta,
            standard_error=error, without_privacy=without, verdict=verdict,
        )  # fmt: skip

    def _expect(self) -> tuple[float | None, float | None, str]:
        """(standard error, the same without privacy, verdict)."""
        method, noise, size = self.method, self.noise_of(0), self.method.size
        if isinstance(method, Heads) or self.goal == "prediction":
            strength = self.records / (noise * math.sqrt(size))
            rough = "predictions will be rough" if strength >= _SOME else "noise: add records or ε"
            return None, None, "enough patients" if strength >= _ENOUGH else rough
        residual, scale, slope, balance, averaged = _SPREAD, 1.0, 1.0, 1.0, 1
        if not isinstance(method, LeastSquares):
            family, averaged = method.family, method.messages - BURNED
            scale, slope, balance = family.scale, family.null[1], family.balance
            residual = math.sqrt(slope)
        # of a coefficient, in units of its column's standard deviation: sampling, and noise
        information = self.records * slope * _SPREAD
        without = residual / slope / math.sqrt(self.records)
        spread = noise * scale * self.design.length / math.sqrt(averaged)
        error = math.hypot(without, spread / information)
        edge = spread / balance * math.sqrt(2.0 * size) * self.design.length
        levels = max(len(one.labels) for one in self.columns)  # each has its share of records
        if self.records * slope * min(_SPREAD**2, 1.0 / max(1, levels - 1)) < edge:
            verdict = f"noise: use fewer columns than {size - 1}, more records or a larger epsilon"
        elif error > _WIDE * without:
            verdict = f"intervals will be wide, {error / without:.1f} times those without privacy"
        else:
            verdict = "enough patients"
        return error, without, verdict

    # A hospital's part

    def read(self, table: Any, *, tell: Tell | None = None, pad: bool = False) -> Records:
        """The records of a table as the model takes them. Private.

        A record with a value that does not fit becomes zeros. Errors are raised, unless ``tell``
        receives them: a table that cannot be read then has no records. ``pad`` adds zeros up to
        ``most_records``, so that time does not reveal the number of records.
        """
        most = self.most_records or self.records
        try:
            _, values = read_table(table, self.keys, tell)
            (rows, is_good), (targets, is_known) = self.design.rows(values), self.targets(values)
            is_used = is_good & is_known
            rows[~is_used] = targets[~is_used] = 0.0
            if tell is not None and not is_used.all():
                tell(DataError("records that lack a value are left out", code="missing"))
            if len(rows) > most:
                few = f"most_records={most} is fewer than this table has: raise the bound"
                report(tell, few, code="records")
        except DataError as error:
            if tell is None:
                raise
            tell(error)
            return self.read({name: () for name, _ in self.keys}, tell=tell, pad=pad)
        more = max(0, most - len(rows)) if pad else 0
        kept = (one[:MOST_RECORDS] for one in (rows, targets))  # totals of more could wrap around
        return Records(*(np.pad(one, ((0, more), (0, 0))) for one in kept))

    def total(self, records: Records, step: int, sent: Mapping[str, Array]) -> ClippedTotal:
        """One hospital's exact total for a step, from ``State.sent``. Private.

        Encode it with ``sum_of(step)``. A record's part depends on itself and on ``sent``.
        """
        _ = self.plan_of(step)
        shapes = self.method.shapes(step)
        arrays = {name: np.array(one, dtype=np.float64) for name, one in sent.items()}
        is_finite = all((np.abs(one) <= 1e15).all() for one in arrays.values())
        if {name: one.shape for name, one in arrays.items()} != shapes or not is_finite:
            raise ValueError(f"sent must be finite arrays {shapes} in step {step}")
        return ClippedTotal.restore(self.method.total(records, step, arrays), 1.0)

    # The server's part

    def advance(
        self, state: State, decoded: Any, *, clients: int | None = None, is_same: bool = True
    ) -> State:
        """The state after a sum, from the mean that ``sum_of(state.step).decode`` gave.

        Averages start anew unless the hospitals are the same as in the sum before (``is_same``).
        """
        dimension, noise = self.plan_of(state.step).dimension, self.noise_of(state.step, clients)
        mean = np.array(decoded, dtype=np.float64)
        if mean.shape != (dimension,) or not np.isfinite(mean).all():
            raise ValueError(f"decoded must be {dimension} finite numbers, got {mean.shape}")
        found = self.method.advance(state, mean * self.records, noise, is_same=is_same)
        count = float(found.kept["records"])
        if state.step == 0 and count > _ABSURD * self.records + 100.0 * noise * self.design.length:
            raise PayloadError(
                f"the total counts {count:,.0f} records but records={self.records}: a share or a "
                "mask is missing, or records is far too small",
                code="total",
            )
        return found

    def finish(self, state: State, *, shares: Sequence[int] | None = None) -> Fit:
        """The fit after all sums. ``shares`` says how many were made per step, by default one."""
        messages = self.method.messages
        if state.step != messages:
            raise ValueError(f"state is after {state.step} of {messages} sums: finish all of them")
        made = list(shares or [1] * messages)
        found = self.method.estimate(state)
        return Fit(self, *found, epsilon=self.epsilon_after(made), messages=sum(made))

    def fit(self, tables: Sequence[Any]) -> Fit:
        """Fit to these hospitals' tables in this process, through real shares.

        A table is a dict of columns, a structured array, a frame of pandas or polars, or the path
        of a CSV file. If one is refused, nothing is summed.
        """
        hospitals, state = [self.read(table) for table in tables], State()
        while state.step < self.method.messages:
            totals = [self.total(records, state.step, state.sent) for records in hospitals]
            mean = self.sum_of(state.step).pool(totals)
            state = self.advance(state, mean, clients=len(tables))
        return self.finish(state)


@dataclass(frozen=True)
class Softmax(Model):
    """Softmax regression of an outcome that is one of several ``classes``, for prediction.

    >>> from jopeq.models import Features
    >>> model = Softmax(
    ...     "y", [Features("x", 520)], classes=range(10), epsilon=1.0, clients=10, threshold=6,
    ...     records=60_000,
    ... )
    >>> model.method.messages, model.goal
    (7, 'prediction')
    """

    classes: Sequence[Any] = ()
    word: ClassVar[str] = "softmax"
    goals: ClassVar[tuple[str, ...]] = ("prediction",)
    _most: ClassVar[int] = 1000

    def __post_init__(self) -> None:
        found = [one.item() if isinstance(one, np.generic) else one for one in self.classes]
        words = {word_of(one) for one in found}
        if not 2 <= len(found) <= self._most or None in words or len(words) < len(found):
            most = f"2 to {self._most}" if self._most > 2 else "2"
            raise ValueError(f"classes must be {most} different words, got {found!r:.80}")
        set_fields(self, classes=tuple(found))
        super().__post_init__()

    @cached_property
    def method(self) -> Method:
        return Heads(self.design, len(self.classes), self.messages)

    @property
    def outcome_keys(self) -> tuple[Key, ...]:
        are_numbers = all(isinstance(one, int | float) for one in self.classes)
        return ((self.outcome, "numbers" if are_numbers else "words"),)

    def targets(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        key = self.outcome_keys[0]
        as_key = float if key[1] == "numbers" else word_of
        places = {as_key(one): place for place, one in enumerate(self.classes)}
        found = np.array([places.get(one, -1) for one in values[key]], dtype=np.float64)
        return found[:, None], found >= 0.0

    def means(self, logits: Array) -> Array:
        return softmax(logits)


@dataclass(frozen=True)
class Logistic(Softmax):
    """Logistic regression of an outcome that is one of two ``classes``, 0 and 1 by default.

    >>> model = Logistic(
    ...     "death", [Number("age", 18, 100)], epsilon=1.0, clients=3, threshold=3, records=3000
    ... )
    >>> rng = np.random.default_rng(1)
    >>> age = rng.uniform(18, 100, 3000)
    >>> death = rng.random(3000) < 1 / (1 + np.exp(4 - 0.06 * age))
    >>> fit = model.fit([{"age": age[i::3], "death": death[i::3]} for i in range(3)])
    >>> abs(fit["age"].value - 0.06) < 5 * fit["age"].error, fit.epsilon <= 1.0
    (True, True)
    """

    classes: Sequence[Any] = (0, 1)
    word: ClassVar[str] = "logistic"
    goals: ClassVar[tuple[str, ...]] = Model.goals
    _most: ClassVar[int] = 2

    @cached_property
    def method(self) -> Method:
        is_plain = self.design.is_plain
        return (Newton(self.design, Binomial(), self.messages) if is_plain
                else Heads(self.design, 1, self.messages))  # fmt: skip

    def means(self, logits: Array) -> Array:
        one = sigmoid(logits)
        return np.concatenate((1.0 - one, one), axis=1)


@dataclass(frozen=True)
class Linear(Model):
    """Linear regression of a number, clipped to public ``bounds``, from one sum.

    >>> model = Linear(
    ...     "pressure", [Number("age", 18, 100)], bounds=(80, 220), epsilon=1.0, clients=5,
    ...     threshold=5, records=4000,
    ... )
    >>> model.method.messages
    1
    """

    bounds: Sequence[float] = ()
    word: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        if self.messages not in (None, 1):
            raise ValueError(f"messages of Linear are 1, got {self.messages}")
        set_fields(self, bounds=check_edges("bounds", self.bounds), messages=None)
        super().__post_init__()

    @property
    def scale(self) -> Number:
        return Number(self.outcome, *self.bounds)

    @property
    def design(self) -> Design:
        is_plain = not any(isinstance(one, Features) for one in self.columns)
        return Design(tuple(self.columns), is_plain)

    @cached_property
    def method(self) -> Method:
        half = self.scale.part.half
        return LeastSquares(self.design, half, is_told=self.goal == "inference")

    @property
    def outcome_keys(self) -> tuple[Key, ...]:
        return self.scale.keys

    def targets(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        found, is_missing = self.scale.fill(values)
        return found, ~is_missing

    def means(self, logits: Array) -> Array:
        return self.scale.lower + self.scale.part.half * (1.0 + logits[:, 0])


@dataclass(frozen=True)
class Poisson(Model):
    """Poisson regression of counts up to a public ``most``, with an optional exposure.

    Larger counts count as ``most``, which biases the estimate if there are many. Means are capped
    at ``most``/√2. Intervals assume that the variance equals the mean. ``exposure`` is a column
    such as years under observation, up to ``most_exposure``.
    """

    most: float = 0.0
    exposure: str | None = None
    most_exposure: float = 1.0
    word: ClassVar[str] = "poisson"
    goals: ClassVar[tuple[str, ...]] = ("inference",)

    def __post_init__(self) -> None:
        for name, least in (("most", 2.0), ("most_exposure", 1e-9)):
            value = as_annotated(name, "float", getattr(self, name))
            if not least <= value <= 1e9:
                raise ValueError(f"{name} must be from {least:g} to 1e9, got {value:g}")
        super().__post_init__()

    @cached_property
    def method(self) -> Method:
        return Newton(self.design, Counts(float(self.most)), self.messages)

    @property
    def outcome_keys(self) -> tuple[Key, ...]:
        names = [self.outcome, *([] if self.exposure is None else [self.exposure])]
        return tuple((name, "numbers") for name in names)

    def targets(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        counts, *times = (values[key] for key in self.outcome_keys)
        shares = times[0] / self.most_exposure if times else np.ones(len(counts))
        found = np.c_[np.minimum(counts, self.most), np.minimum(shares, 1.0)]
        return found, (counts >= 0.0) & (shares > 0.0)

    def means(self, logits: Array) -> Array:
        return _rates(logits, self.most_exposure)


@dataclass(frozen=True)
class Hazard(Model):
    """Hazard ratios from a piecewise-exponential model of the time until an event.

    ``outcome`` is the column of times. The column ``event`` has 1 for the event and 0 for a
    censored time; records with other values are left out. The hazard is constant between public
    ``cuts``, which run from the start of observation to the last time that counts.

    >>> model = Hazard(
    ...     "months", [Number("age", 18, 100)], event="death", cuts=(0, 6, 12, 24, 60), epsilon=1.0,
    ...     clients=3, threshold=3, records=6000,
    ... )
    >>> model.plan().verdict
    'enough patients'
    """

    event: str = ""
    cuts: Sequence[float] = ()
    word: ClassVar[str] = "hazard"
    goals: ClassVar[tuple[str, ...]] = ("inference",)

    def __post_init__(self) -> None:
        cuts = check_edges("cuts", self.cuts, _MOST_PERIODS + 1)
        set_fields(self, event=str(self.event), cuts=cuts)
        if self.event in ("", self.outcome):
            raise ValueError(f"event must be a different column from {self.outcome!r}")
        super().__post_init__()

    @cached_property
    def method(self) -> Method:
        return Hazards(self.design, np.array(self.cuts), self.messages)

    @property
    def most_exposure(self) -> float:
        return self.cuts[-1] - self.cuts[0]

    @property
    def outcome_keys(self) -> tuple[Key, ...]:
        return ((self.outcome, "numbers"), (self.event, "numbers"))

    def targets(self, values: Mapping[Key, Any]) -> tuple[Array, Bools]:
        (times, events), cuts = (values[key] for key in self.outcome_keys), np.array(self.cuts)
        watched = np.clip(times[:, None] - cuts[:-1], 0.0, np.diff(cuts)) / self.most_exposure
        period = np.searchsorted(cuts[1:], times, side="left") + 1.0
        found = np.c_[watched, np.where((events == 1.0) & (times <= cuts[-1]), period, 0.0)]
        return found, (times > cuts[0]) & ((events == 0.0) | (events == 1.0))

    def means(self, logits: Array) -> Array:
        """Hazards in one unit of time, averaged over the periods."""
        return _rates(logits, self.most_exposure)


def _rates(logits: Array, most_exposure: float) -> Array:
    found: Array = np.exp(np.clip(logits[:, 0], -30.0, 30.0)) / most_exposure
    return found


MODELS: dict[str, type[Model]] = {
    one.word: one for one in (Logistic, Softmax, Linear, Poisson, Hazard)
}


def model_from_spec(spec: str) -> Model:
    """The model of another end's ``spec``, or ``ValueError``."""
    try:
        terms = json.loads(spec)
        kind, given = MODELS[terms.pop("model")], map(column_from, terms.pop("columns"))
        return kind(terms.pop("outcome"), tuple(given), **terms)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"spec does not describe a model: {error}") from error
