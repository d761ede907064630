"""A fitted model: coefficients with intervals, predictions, tables, pictures, its evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jopeq.files import atomic
from jopeq.models.design import CONSTANT, LENGTH
from jopeq.models.hazard import concordance
from jopeq.models.prediction import centre_rows
from jopeq.models.totals import Array
from jopeq.privacy.guarantee import Guarantee, count_of, digits_up
from jopeq.statistics.columns import Bins, Category, Number
from jopeq.statistics.evaluation import Evaluation, Scoring
from jopeq.statistics.pictures import BAR, ERROR, plain, stack_panels
from jopeq.statistics.questions import Z
from jopeq.statistics.tables import read_table
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sum import RecordSum

if TYPE_CHECKING:
    from jopeq.models.model import Model

_FORMAT = "jopeq-fit-1"
_JUMP = 1e-6  # probabilities this close make an answer neither right nor wrong
_RATIOS = {"logistic": "odds ratio", "poisson": "rate ratio", "hazard": "hazard ratio"}
_NOTES = (
    "Fitted for prediction, so without intervals.",
    "The constant belongs to the middle of all bounds and the first of all levels.",
)


@dataclass(frozen=True)
class Coefficient:
    """One coefficient, in the units of its column.

    ``error`` is None without intervals. ``value`` is None if noise hides it; ``hidden`` says why.
    """

    name: str
    value: float | None
    error: float | None = None
    hidden: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.value is None or self.error is None:
            return None
        return self.value - Z * self.error, self.value + Z * self.error

    @property
    def p_value(self) -> float | None:
        if self.value is None or self.error is None:
            return None
        return math.erfc(abs(self.value) / self.error / math.sqrt(2.0))


@dataclass(frozen=True)
class Fit(Mapping[str, Coefficient]):
    """A fitted model, name → ``Coefficient``, with the attributes that scikit-learn's users expect.

    The constant belongs to a record in the middle of all bounds, with the first of all levels.
    Everything here is computed from private sums and may be published.
    """

    model: Model
    weights: Array  # (size, outputs), for the design's rows
    centre: Array
    covariance: Array | None
    hidden: tuple[str, ...]
    figures: Mapping[str, float]
    epsilon: float
    messages: int

    # Coefficients

    @cached_property
    def _report(self) -> Array:
        """Coefficients per weight, in the units of columns and outcome."""
        scale = getattr(self.model, "scale", None)
        return self.model.design.report * (scale.part.half if scale else 1.0)

    @cached_property
    def _values(self) -> Array:
        found, scale = self._report @ self.weights, getattr(self.model, "scale", None)
        found[0] += scale.part.middle if scale else 0.0
        found[0] -= math.log(getattr(self.model, "most_exposure", 1.0))
        return found

    @cached_property
    def coefficients(self) -> dict[str, Coefficient]:
        """Every coefficient by name, or by class and name if there are several classes."""
        found, errors = {}, [None] * len(self.weights)
        if self.covariance is not None:
            spread = self._report @ self.covariance @ self._report.T
            errors = np.sqrt(spread.diagonal()).tolist()
        for output, values in enumerate(self._values.T.tolist()):
            label = "" if self.weights.shape[1] == 1 else f"{self.classes_[output]}: "
            names = [label + name for name in self.model.design.names]
            for name, value, error, why in zip(names, values, errors, self.hidden, strict=True):
                found[name] = Coefficient(name, None if why else value, None if why else error, why)
        return found

    def __getitem__(self, name: str) -> Coefficient:
        return self.coefficients[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.coefficients)

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def classes_(self) -> Any:
        """The outcome's classes; None for models of numbers."""
        found = getattr(self.model, "classes", None)
        return None if found is None else np.array(found)

    @property
    def coef_(self) -> Array:
        """(outputs, columns), in the columns' units; NaN where noise hides a coefficient."""
        return np.where(np.array(self.hidden[1:]) != "", np.nan, self._values[1:].T)

    @property
    def guarantee(self) -> Guarantee:
        return self.model.sum_of(0).guarantee

    # Predictions

    def means(self, values: Mapping[tuple[str, str], Any]) -> Array:
        """Predictions from the values of columns; NaN where a record lacks one."""
        rows, is_good = self.model.design.rows(values)
        found = self.model.means(centre_rows(rows, self.centre) @ self.weights)
        found[~is_good] = np.nan
        return found

    def predict_proba(self, table: Any) -> Array:
        """(records, classes); NaN where a record lacks a value."""
        if self.classes_ is None:
            raise ValueError("predict_proba needs a classifier: use predict")
        return self.means(read_table(table, self.model.design.keys)[1])

    def predict(self, table: Any) -> Any:
        """The likeliest class of every record, or its expected outcome per unit of exposure."""
        means = self.means(read_table(table, self.model.design.keys)[1])
        return means if self.classes_ is None else self.classes_[means.argmax(axis=1)]

    def score(self, table: Any) -> float:
        """Accuracy of a classifier, R² for numbers, the C-index for hazards.

        Records that lack a value are left out.
        """
        _, values = read_table(table, self.model.keys)
        (targets, is_known), means = self.model.targets(values), self.means(values)
        is_known &= np.isfinite(means.reshape(len(means), -1)).all(axis=1)
        means, targets = means[is_known], targets[is_known]
        if self.classes_ is not None:
            return float(np.mean(means.argmax(axis=1) == targets[:, 0]))
        if self.model.word == "hazard":
            times, events = (values[key][is_known] for key in self.model.outcome_keys)
            return concordance(times, events, means)
        if self.model.word == "linear":
            actual = self.model.means(targets)
        else:
            actual = targets[:, 0]
            means = means * targets[:, 1] * self.model.most_exposure  # type: ignore[attr-defined]
        return 1.0 - float(np.mean((actual - means) ** 2) / actual.var())

    # Tables and pictures

    def __str__(self) -> str:
        has_intervals = self.covariance is not None
        ratio = _RATIOS.get(self.model.word, "") if has_intervals else ""
        figures = (
            f"{name} {value:,.0f}" if abs(value) >= 1000.0 else f"{name} {value:.3g}"
            for name, value in self.figures.items()
        )
        lines = [f"{type(self.model).__name__} model of {self.model.outcome}: {', '.join(figures)}"]
        if len(self) <= 200:
            width = min(30, max(map(len, self)))
            form = f"{{:{width}.{width}}} {{:>11}} {{:>8}} {{:>17}} {{:>6}} {{:>10}}"
            titles = ("std err", "95% interval", "p") if has_intervals else ("", "", "")
            lines.append(form.format("", "coefficient", *titles, ratio).rstrip())
            lines += [form.format(one.name, *_cells(one, ratio)).rstrip() for one in self.values()]
        spent = f"ε = {digits_up(self.epsilon)} at δ = {self.model.delta:g} per record"
        lines.append(f"{spent}, in {count_of(self.messages, 'message')}.")
        return "\n".join([*lines, _NOTES[has_intervals]])

    def plot(self) -> Any:
        """A Matplotlib figure of coefficients and of the shape of each ``Bins``, with intervals."""
        design, told = self.model.design, list(self.values())
        shapes = [(one, told[place]) for one, place in design.places if isinstance(one, Bins)]
        drawn = {one.name for _, bins in shapes for one in bins}
        rest = [one for one in told[:0:-1] if not one.hidden and one.name not in drawn]
        if design.has_features or self.weights.shape[1] > 1 or not (rest or shapes):
            raise ValueError("plot needs visible coefficients of one outcome: there are none")
        heights = [0.6 + 0.3 * len(rest)] * bool(rest) + [2.4] * len(shapes)
        figure, panels = stack_panels(heights)
        if rest:
            _draw_forest(panels[0], rest, _RATIOS.get(self.model.word, ""))
        for panel, (column, bins) in zip(panels[bool(rest) :], shapes, strict=True):
            _draw_shape(panel, column, bins)
        return figure

    # Export

    def as_dict(self) -> dict[str, Any]:
        kept = {one.name: plain(getattr(self, one.name)) for one in fields(self)[1:]}
        return {**kept, "format": _FORMAT, "model": json.loads(self.model.spec)}

    def save(self, path: str | Path) -> None:
        with atomic(Path(path)) as file:
            file.write(json.dumps(self.as_dict()).encode())

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """The fit that ``save`` wrote, or ``ValueError``."""
        from jopeq.models.model import model_from_spec

        try:
            kept = json.loads(Path(path).read_text())
            if kept.pop("format") != _FORMAT:
                raise KeyError("format")
            kept["model"] = model_from_spec(json.dumps(kept["model"]))
            kept["hidden"] = tuple(kept["hidden"])
            for name in ("weights", "centre", "covariance"):
                if kept[name] is not None:
                    kept[name] = np.array(kept[name], dtype=np.float64)
            return cls(**kept)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no fit that Fit.save wrote: {error}") from error

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn estimator for rows of ``feature_names_in_``.

        Numbers are in their units, within their bounds; levels are 0 or 1. Hidden coefficients keep
        their estimates.
        """
        design, values = self.model.design, self._values[:, 0]
        if not design.is_plain or self.model.word == "poisson":
            raise ValueError("to_sklearn needs Logistic or Linear with goal='inference'")
        from sklearn.linear_model import LinearRegression, LogisticRegression

        middles = np.zeros(len(values))
        for one, place in design.places:
            middles[place.start] = one.part.middle if isinstance(one, Number) else 0.0
        coefficients, constant = values[1:], values[0] - middles @ values
        found: Any = LinearRegression()
        if self.classes_ is not None:
            found, coefficients, constant = LogisticRegression(), values[None, 1:], constant[None]
            found.classes_ = self.classes_
        found.coef_, found.intercept_ = coefficients, constant
        found.n_features_in_ = len(values) - 1
        found.feature_names_in_ = np.array(design.names[1:], dtype=object)
        return found

    def to_torch(self) -> Any:
        """A PyTorch module that gives logits for rows of features."""
        if not self.model.design.has_features:
            raise ValueError("to_torch needs a model of Features")
        import torch

        class Head(torch.nn.Module):
            """A linear layer on rows that are scaled and centred as in training."""

            weights: Any
            centre: Any

            def forward(self, rows: Any) -> Any:
                rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0) / LENGTH
                if len(self.centre):
                    rows = rows - self.centre
                    rows = rows / (LENGTH * rows.norm(dim=1, keepdim=True)).clamp_min(1e-9)
                return CONSTANT / LENGTH * self.weights[0] + rows @ self.weights[1:]

        head = Head()
        for name in ("weights", "centre"):
            head.register_buffer(name, torch.tensor(getattr(self, name), dtype=torch.float32))
        return head


def _cells(one: Coefficient, ratio: str) -> tuple[str, str, str, str, str]:
    if one.value is None:
        return f"not told: {one.hidden}", "", "", "", ""
    if one.error is None or one.interval is None or one.p_value is None:
        return f"{one.value:.4g}", "", "", "", ""
    chance = "<0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}"
    low, high = one.interval
    ratio = f"{_power(one.value):.3g}" if ratio else ""
    return f"{one.value:.4g}", f"{one.error:.2g}", f"{low:.3g} to {high:.3g}", chance, ratio


def _power(value: float) -> float:
    return math.exp(min(value, 700.0))


def _draw_forest(panel: Any, told: list[Coefficient], ratio: str) -> None:
    show = _power if ratio else float
    for place, one in enumerate(told):
        value = one.value or 0.0
        panel.plot([show(end) for end in one.interval or (value,) * 2], [place] * 2, color=ERROR)
        panel.plot(show(value), place, "s", color=BAR)
    panel.axvline(show(0.0), color=ERROR, linewidth=0.5, linestyle=":")
    panel.set(yticks=range(len(told)), yticklabels=[one.name for one in told])
    panel.set(xlabel=ratio or "coefficient", xscale="log" if ratio else "linear")
    panel.tick_params(axis="x", which="minor", labelsize="xx-small")
    panel.set_ylim(-0.6, len(told) - 0.4)
    for write in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        write("{x:.3g}")


def _draw_shape(panel: Any, column: Bins, bins: list[Coefficient]) -> None:
    bins.insert(column.reference, Coefficient("", 0.0, 0.0))
    told = [(math.nan if one.hidden else one.value, one.error or 0.0) for one in bins]
    values, errors = np.array(told[: column.count], dtype=np.float64).T
    low, high = values - Z * errors, values + Z * errors
    panel.stairs(values, column.edges, color=ERROR, baseline=None)
    panel.stairs(high, column.edges, baseline=low, fill=True, color=BAR, alpha=0.4)
    panel.set(xlabel=column.column, ylabel="effect")


# Evaluation


def _score(fit: Fit, table: Any, scoring: Scoring, by: Category | None) -> ClippedTotal:
    """One hospital's exact total. Private. A record that lacks a value counts as zeros."""
    _, values = read_table(table, (*fit.model.keys, *(() if by is None else by.keys)))
    (targets, is_known), chances = fit.model.targets(values), fit.means(values)
    if scoring.kind == "outcomes":
        scores, outcomes = chances[:, 1], targets[:, 0]
    else:
        is_own = targets == np.arange(chances.shape[1])
        own, other = (np.where(mask, chances, 0.0).max(axis=1) for mask in (is_own, ~is_own))
        scores, outcomes = chances.max(axis=1), np.clip((own - other) / _JUMP, -1.0, 1.0) / 2 + 0.5
    outcomes = np.where(is_known, outcomes, np.nan)
    places = None if by is None else scoring.places(values[by.keys[0]])
    return ClippedTotal(scoring.dimension, 1.0).add(scoring.rows(scores, outcomes, places))


def evaluate(
    fit: Fit,
    tables: Sequence[Any],
    *,
    epsilon: float,
    records: int,
    threshold: int,
    delta: float = 1e-5,
    cut: float = 0.5,
    by: Category | None = None,
    colluding: int = 1,
    hospitals_per_person: int = 1,
) -> Evaluation:
    """AUC, calibration and error rates of a classifier on these tables, from one private sum.

    Everything runs in this process, through real shares. Use records that ``fit`` was not fitted
    to: its own flatter it. ``epsilon`` comes on top of the fit's. From the chance ``cut`` on the
    second class is predicted; levels of ``by`` are also evaluated separately. Other parameters are
    as for the models.
    """
    if fit.classes_ is None:
        raise ValueError("evaluate needs a classifier such as Logistic: use fit.score for others")
    scoring = Scoring(
        kind="outcomes" if len(fit.classes_) == 2 else "classes",
        threshold=cut,
        levels=() if by is None else tuple(by.levels),
    )
    count = len(tables)
    scheme = RecordSum(
        epsilon=epsilon, delta=delta, clip=1.0, records=records, sampling=1.0, rounds=1,
        clients=max(count, threshold), threshold=threshold, colluding=colluding,
        hospitals_per_person=hospitals_per_person,
    )  # fmt: skip
    mean = scheme.pool([_score(fit, table, scoring, by) for table in tables])
    return scoring.read(mean, scheme, count)
