"""A fitted model: coefficients with intervals, predictions, a table to read, and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jopeq.files import atomic
from jopeq.models.columns import CONSTANT, LENGTH, Bins, Number, read_table
from jopeq.models.prediction import centre_rows
from jopeq.models.totals import Array
from jopeq.privacy.guarantee import Guarantee, digits_up

if TYPE_CHECKING:
    from jopeq.models.model import Model

_Z95 = 1.959964  # of the normal distribution
_FORMAT = "jopeq-fit-1"
_RATIOS = {"logistic": "odds ratio", "poisson": "rate ratio"}
_BAND, _LINE, _WIDTHS = "#00bc66", "#000000", (11, 8, 17, 6, 10)


@dataclass(frozen=True)
class Coefficient:
    """One coefficient, in the units of its column.

    ``error`` is None where there are no intervals, and ``value`` where ``hidden`` says why.
    """

    name: str
    value: float | None
    error: float | None = None
    hidden: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of 95%."""
        if self.value is None or self.error is None:
            return None
        return self.value - _Z95 * self.error, self.value + _Z95 * self.error

    @property
    def p_value(self) -> float | None:
        """Of the hypothesis that it is 0, two-sided."""
        if self.value is None or self.error is None:
            return None
        return math.erfc(abs(self.value) / self.error / math.sqrt(2.0))


@dataclass(frozen=True)
class Fit(Mapping[str, Coefficient]):
    """A model and its coefficients: name → ``Coefficient``, and what scikit-learn calls them.

    The constant belongs to a record in the middle of all bounds, with the first of all levels.
    Everything here is computed from private sums and may be published.
    """

    model: Model
    weights: Array  # (size, outputs), of the design's rows
    centre: Array
    covariance: Array | None
    hidden: tuple[str, ...]
    figures: Mapping[str, float]
    epsilon: float
    messages: int

    # Coefficients

    @cached_property
    def _scale(self) -> Array:
        """A coefficient over its weight: columns and the outcome in their units."""
        scale = getattr(self.model, "scale", None)
        found = np.full(len(self.weights), scale.half if scale else 1.0) / self.model.design.length
        for one, place in self.model.design.places:
            found[place.start] /= one.half if type(one) is Number else 1.0
        return found

    @cached_property
    def _values(self) -> Array:
        found = self.weights * self._scale[:, None]
        scale = getattr(self.model, "scale", None)
        if scale:
            found[0] += scale.lower + scale.half
        return found - np.eye(len(found), 1) * math.log(getattr(self.model, "most_exposure", 1.0))

    @cached_property
    def coefficients(self) -> dict[str, Coefficient]:
        """Every coefficient by name; of several classes, by class and name."""
        found, variances = {}, None if self.covariance is None else np.diag(self.covariance)
        for output, values in enumerate(self._values.T.tolist()):
            label = "" if self.weights.shape[1] == 1 else f"{self.classes_[output]}: "
            for place, name in enumerate(self.model.design.names):
                error = (
                    None
                    if variances is None
                    else float(variances[place]) ** 0.5 * float(self._scale[place])
                )
                why, name = self.hidden[place], label + name
                value, error = (None, None) if why else (values[place], error)
                found[name] = Coefficient(name, value, error, why)
        return found

    def __getitem__(self, name: str) -> Coefficient:
        return self.coefficients[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.coefficients)

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def classes_(self) -> Any:
        """The outcome's classes; None of models of numbers."""
        return None if self.model.classes_ is None else np.array(self.model.classes_)

    @property
    def coef_(self) -> Array:
        """(outputs, columns), in the columns' units; NaN where a coefficient is not told."""
        return np.where(np.array(self.hidden[1:]) != "", np.nan, self._values[1:].T)

    @property
    def guarantee(self) -> Guarantee:
        """Privacy of a record, and what it rests on."""
        return self.model.sum_of(0).guarantee

    # Predictions

    def _logits(self, values: Mapping[tuple[str, str], Any]) -> Array:
        rows, is_good = self.model.design.rows(values)
        rows = centre_rows(rows, self.centre)
        rows[~is_good] = np.nan
        found: Array = rows @ self.weights
        return found

    def predict_proba(self, table: Any) -> Array:
        """(records, classes); NaN where a record lacks a value."""
        if self.classes_ is None:
            raise ValueError("predict_proba is of classifiers: take predict")
        return self.model.means(self._logits(read_table(table, self.model.design.keys)))

    def predict(self, table: Any) -> Any:
        """The likeliest class of every record, or its expected outcome in a unit of exposure."""
        means = self.model.means(self._logits(read_table(table, self.model.design.keys)))
        return means if self.classes_ is None else self.classes_[means.argmax(axis=1)]

    def score(self, table: Any) -> float:
        """Accuracy of a classifier, R² for numbers; of the records that have all values."""
        values = read_table(table, self.model.keys)
        targets, is_known = self.model.targets(values)
        means = self.model.means(self._logits(values))
        is_known &= np.isfinite(means.reshape(len(means), -1)).all(axis=1)
        means, targets = means[is_known], targets[is_known]
        if self.classes_ is not None:
            return float(np.mean(means.argmax(axis=1) == targets[:, 0]))
        if targets.shape[1] == 2:
            actual = targets[:, 0]
            means = means * targets[:, 1] * self.model.most_exposure  # type: ignore[attr-defined]
        else:
            actual = self.model.means(targets)
        return 1.0 - float(np.mean((actual - means) ** 2) / actual.var())

    # On paper

    def __str__(self) -> str:
        ratio = _RATIOS.get(self.model.word, "") if self.covariance is not None else ""
        figures = (f"{name} {_digits(value)}" for name, value in self.figures.items())
        lines = [f"{type(self.model).__name__} model of {self.model.outcome}: {', '.join(figures)}"]
        if len(self) <= 200:
            width = min(30, max(map(len, self)))
            titles = ("coefficient", "std err", "95% interval", "p", *([ratio] if ratio else []))
            shown = titles if self.covariance is not None else titles[:1]
            lines += [
                _line("", width, *shown),
                *(_tell(one, width, ratio) for one in self.values()),
            ]
        lines.append(
            f"ε = {digits_up(self.epsilon)} at δ = {self.model.delta:g} of every record, in "
            f"{self.messages} message{'s' if self.messages > 1 else ''}."
        )
        constant = "The constant is of the middle of all bounds and the first of all levels."
        simple = "Fitted for prediction: there are no intervals."
        return "\n".join([*lines, simple if self.covariance is None else constant])

    def plot(self) -> Any:
        """A Matplotlib figure: a forest plot of coefficients, and the shapes of all bins.

        Bars and bands are intervals of 95%.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("plot needs Matplotlib: pip install 'jopeq[experiments]'") from error
        design, told = self.model.design, list(self.values())
        shapes = [(one, told[place]) for one, place in design.places if isinstance(one, Bins)]
        drawn = {one.name for _, bins in shapes for one in bins}
        rest = [one for one in told[1:] if one.value is not None and one.name not in drawn]
        if design.has_features or self.weights.shape[1] > 1 or not (rest or shapes):
            raise ValueError("plot needs told coefficients of one outcome: there are none")
        heights = ([0.6 + 0.3 * len(rest)] if rest else []) + [2.4] * len(shapes)
        figure = Figure(figsize=(5.4, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
        for panel in panels:
            panel.spines[["top", "right"]].set_visible(False)
        if rest:
            _draw_forest(panels.pop(0), rest[::-1], _RATIOS.get(self.model.word, ""))
        for panel, (column, bins) in zip(panels, shapes, strict=True):
            _draw_shape(panel, column, bins, column.reference(is_plain=design.is_plain))
        return figure

    # Elsewhere

    def to_json(self) -> str:
        """The model's terms, the weights and all that ``from_json`` needs."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: one.tolist() for name, one in kept.items() if isinstance(one, np.ndarray)}
        return json.dumps(
            {"format": _FORMAT, **kept, **arrays, "model": json.loads(self.model.spec)}
        )

    @classmethod
    def from_json(cls, text: str) -> Fit:
        """The fit of ``to_json``; ``ValueError`` if it is none."""
        from jopeq.models.model import model_from_spec

        try:
            kept = json.loads(text)
            if kept.pop("format") != _FORMAT:
                raise KeyError("format")
            kept["model"], kept["hidden"] = (
                model_from_spec(json.dumps(kept["model"])),
                tuple(kept["hidden"]),
            )
            for name in {"weights", "centre", "covariance"} - {n for n in kept if kept[n] is None}:
                kept[name] = np.array(kept[name], dtype=np.float64)
            return cls(**kept)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no fit that was saved here: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the fit as JSON."""
        with atomic(Path(path)) as file:
            file.write(self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """The fit that ``save`` wrote."""
        return cls.from_json(Path(path).read_text())

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn, for rows of ``feature_names_in_``.

        Numbers are in their units, within their bounds; levels are 0 or 1. Coefficients that are
        not told count as they were estimated.
        """
        design = self.model.design
        if not design.is_plain or self.model.word == "poisson":
            raise ValueError("to_sklearn is of Logistic and Linear with goal='inference'")
        from sklearn.linear_model import LinearRegression, LogisticRegression

        values = self._values[:, 0]
        middles = {place.start: one for one, place in design.places if type(one) is Number}
        constant = values[0] - sum(
            values[place] * (one.lower + one.half) for place, one in middles.items()
        )
        found: Any = LinearRegression() if self.classes_ is None else LogisticRegression()
        found.coef_, found.intercept_ = values[1:], constant
        if self.classes_ is not None:
            found.classes_ = self.classes_
            found.coef_, found.intercept_ = values[None, 1:], np.array([constant])
        found.n_features_in_ = len(values) - 1
        found.feature_names_in_ = np.array(design.names[1:], dtype=object)
        return found

    def to_torch(self) -> Any:
        """A PyTorch module that gives logits for rows of features."""
        if not self.model.design.has_features:
            raise ValueError("to_torch is of models of Features")
        import torch

        class Head(torch.nn.Module):
            """Rows are scaled and centred as in training, then multiplied by the weights."""

            weights: Any
            centre: Any

            def __init__(self, weights: Any, centre: Any) -> None:
                super().__init__()
                self.register_buffer("weights", weights)
                self.register_buffer("centre", centre)

            def forward(self, rows: Any) -> Any:
                norm, (weights, centre) = torch.linalg.vector_norm, (self.weights, self.centre)
                rows = rows / norm(rows, dim=1, keepdim=True).clamp_min(1.0) / LENGTH
                if len(centre):
                    rows = rows - centre
                    rows = rows / (LENGTH * norm(rows, dim=1, keepdim=True)).clamp_min(1e-9)
                return CONSTANT / LENGTH * weights[0] + rows @ weights[1:]

        return Head(
            *(torch.tensor(one, dtype=torch.float32) for one in (self.weights, self.centre))
        )


def _tell(one: Coefficient, width: int, ratio: str) -> str:
    if one.value is None:
        return f"{_cut(one.name, width)} not told: {one.hidden}"
    cells = [f"{one.value:.4g}"]
    if one.error is not None and one.interval is not None and one.p_value is not None:
        low, high = one.interval
        chance = "<0.001" if one.p_value < 0.001 else f"{one.p_value:.3f}"
        cells += [f"{one.error:.2g}", f"{low:.3g} to {high:.3g}", chance]
    return _line(one.name, width, *cells, *([f"{_power(one.value):.3g}"] if ratio else []))


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def _power(value: float) -> float:
    return math.exp(min(value, 700.0))


def _cut(name: str, width: int) -> str:
    return f"{name:{width}}" if len(name) <= width else f"{name[: width - 1]}…"


def _line(name: str, width: int, *cells: str) -> str:
    sized = (f"{one:>{size}}" for one, size in zip(cells, _WIDTHS, strict=False))
    return " ".join((_cut(name, width), *sized)).rstrip()


def _draw_forest(panel: Any, told: list[Coefficient], ratio: str) -> None:
    show = _power if ratio else float
    for place, one in enumerate(told):
        value = one.value or 0.0
        panel.plot([show(end) for end in one.interval or (value,) * 2], [place] * 2, color=_LINE)
        panel.plot(show(value), place, "s", color=_BAND)
    panel.axvline(show(0.0), color=_LINE, linewidth=0.5, linestyle=":")
    panel.set(yticks=range(len(told)), yticklabels=[one.name for one in told])
    panel.set(xlabel=ratio or "coefficient", xscale="log" if ratio else "linear")


def _draw_shape(panel: Any, column: Bins, bins: list[Coefficient], reference: int | None) -> None:
    if reference is not None:
        bins.insert(reference, Coefficient("", 0.0, 0.0))
    values = np.array(
        [math.nan if one.value is None else one.value for one in bins[: column.count]]
    )
    errors = _Z95 * np.array([one.error or 0.0 for one in bins[: column.count]])
    edges = np.linspace(column.lower, column.upper, column.count + 1)
    panel.stairs(values, edges, color=_LINE, baseline=None)
    panel.stairs(
        values + errors, edges, baseline=values - errors, fill=True, color=_BAND, alpha=0.4
    )
    panel.set(xlabel=column.column, ylabel="effect")
