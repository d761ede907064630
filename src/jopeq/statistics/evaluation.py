"""AUC, calibration and error rates of scores, from one private sum.

A record with score p and outcome y is divided between the two nodes of a grid next to p, which
leaves every linear function of p unchanged. ``running_code`` then codes the nodes: y of the record
among the positive ones, 1 − y among the negative ones. A row has norm 1 at most. Every figure is a
smooth function of the totals x, with slopes g. Its variance is Σx·g² from sampling plus s²‖gP‖²
from the noise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from jopeq.checks import set_fields
from jopeq.privacy.guarantee import digits_up
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.columns import check_words
from jopeq.statistics.parts import Array, running_code
from jopeq.statistics.pictures import COLORS, plain, stack_panels
from jopeq.statistics.questions import Interval, Z
from jopeq.statistics.tables import word_of
from jopeq.sums.clipped_total import Integers
from jopeq.sums.record_sum import RecordSum

_NODES, _REACH, _GAP = 64, 5.0, 1e-4  # of the grid, in logits: the gap is about the threshold
_FEWEST, _CLEAR = 20.0, 5.0  # records, and standard errors of their number
_SHOWN = 10  # points of a calibration curve
_AXES = {"roc": ("1 − specificity", "sensitivity"), "calibration": ("score", "outcomes")}

_Figures = dict[str, Interval]
_Curves = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The sum over every record's score, which is public and equal on both ends.

    Parameters
    ----------
    kind : {"outcomes", "classes", "score"}
        "outcomes": the score is the predicted chance of a 0/1 outcome. "classes": it is the chance
        of the likeliest class, and the outcome says if that class is right. "score": any number
        from 0 to 1 that rates a record's prediction, without an outcome.
    threshold : float
        Score from which on the outcome is predicted, from 0.01 to 0.99.
    levels : sequence of str
        Groups to report separately, such as devices or sexes.
    """

    kind: Literal["outcomes", "classes", "score"] = "outcomes"
    threshold: float = 0.5
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("outcomes", "classes", "score"):
            raise ValueError(f"kind must be 'outcomes', 'classes' or 'score', got {self.kind!r}")
        threshold = as_annotated("threshold", "float", self.threshold)
        if not 0.01 <= threshold <= 0.99:
            raise ValueError(f"threshold must be a score from 0.01 to 0.99, got {threshold}")
        levels = check_words("levels", self.levels) if len(self.levels) else ()
        set_fields(self, threshold=threshold, levels=levels)

    @cached_property
    def nodes(self) -> Array:
        """The scores of the grid; two of them are just below and above the threshold."""
        middle = math.log(self.threshold / (1.0 - self.threshold))
        below = round(_NODES * (middle + _REACH) / (2.0 * _REACH))
        sides = ((-_REACH, middle - _GAP, below), (middle + _GAP, _REACH, _NODES - below))
        logits = np.concatenate([np.linspace(*side) for side in sides])
        nodes: Array = 1.0 / (1.0 + np.exp(-logits))
        nodes[0], nodes[-1] = 0.0, 1.0
        return nodes

    @property
    def spec(self) -> str:
        """All terms as JSON, which both ends compare."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def figures(self) -> tuple[str, ...]:
        calibration = ("accuracy", "Brier score", "calibration slope", "calibration intercept")
        more = ("AUC", "sensitivity", "specificity") if self.kind == "outcomes" else ()
        return ("score",) if self.kind == "score" else (*calibration, *more)

    @property
    def dimension(self) -> int:
        return max(len(self.levels), 1) * len(self._codes[0])

    @cached_property
    def _codes(self) -> tuple[Array, Array]:
        """(codes of a group's nodes, of norm 1 at most; the matrix that decodes them)."""
        code, inverse = running_code(_NODES)
        norm = np.linalg.norm(code[:, 0])
        coded, decode = code.T / norm, inverse * norm
        if self.kind == "score":
            return coded, decode
        nothing = np.zeros_like(coded)
        return (
            np.block([[coded, nothing], [nothing, coded[::-1, ::-1]]]),
            np.block([[decode, nothing], [nothing, decode[::-1, ::-1]]]),
        )

    @cached_property
    def _coarser(self) -> Array:
        """Every other node divided between its neighbours, for Richardson's extrapolation.

        A grid's error grows with the square of its step, so a third of the change by this coarser
        grid corrects the error of the fine one.
        """
        found, inner = np.eye(_NODES), np.arange(1, _NODES - 1, 2)
        part = (self.nodes[inner] - self.nodes[inner - 1]) / (
            self.nodes[inner + 1] - self.nodes[inner - 1]
        )
        found[inner, inner], found[inner, inner - 1], found[inner, inner + 1] = 0, 1 - part, part
        return found

    def places(self, by: Any) -> Integers:
        """The number of each record's level; −1 for other words, 0 if there are no levels."""
        if not self.levels:
            return np.zeros(len(by), dtype=np.int64)
        places = {level: place for place, level in enumerate(self.levels)}
        return np.array([places.get(word_of(one) or "", -1) for one in by], dtype=np.int64)

    def rows(self, scores: Any, outcomes: Any, places: Any = None) -> Array:
        """One row per record, of norm at most 1. Private.

        ``scores`` must be float64, because a batch moves the last digits of smaller floats.
        ``outcomes`` are from 0 to 1, and 1 for the kind "score"; ``places`` come from ``places``.
        A record with other values counts as zeros.
        """
        p, y = np.asarray(scores), np.asarray(outcomes, dtype=np.float64)
        if p.ndim != 1 or p.dtype != np.float64:
            raise ValueError(
                f"scores must be one float64 number per record, got {p.dtype} of shape {p.shape}: "
                "compute them in double precision"
            )
        groups = np.zeros(len(p), dtype=np.int64) if places is None else np.asarray(places)
        if not len(p) == len(y) == len(groups) or (places is None and self.levels):
            raise ValueError(
                f"outcomes, and places if there are levels, must be one for each of {len(p)} scores"
            )
        good = np.flatnonzero((p >= 0.0) & (p <= 1.0) & (y >= 0.0) & (y <= 1.0) & (groups >= 0))
        p, y, code = p[good], y[good, None], self._codes[0]
        node = np.clip(np.searchsorted(self.nodes, p, side="right") - 1, 0, _NODES - 2)
        part = ((p - self.nodes[node]) / (self.nodes[node + 1] - self.nodes[node]))[:, None]
        sides = code.reshape(-1, _NODES, len(code))  # of positive and negative records, or of all
        both = [(1.0 - part) * side[node] + part * side[node + 1] for side in sides]
        rows = np.zeros((len(groups), max(len(self.levels), 1), len(code)))
        weighted = (one * weight for one, weight in zip(both, (y, 1.0 - y), strict=False))
        rows[good, groups[good]] = sum(weighted)
        return rows.reshape(len(groups), self.dimension)

    def read(self, mean: Any, scheme: RecordSum, clients: int | None = None) -> Evaluation:
        """The evaluation of all records and of each group, from a mean that ``scheme`` decoded."""
        plan, batch = scheme.plan(self.dimension, clients), scheme.expected_batch
        error = batch * math.sqrt(plan.error / self.dimension)
        totals = batch * np.asarray(mean, dtype=np.float64).reshape(-1, len(self._codes[0]))
        spent: Any = {"epsilon": plan.epsilon, "delta": scheme.delta}
        each = zip(self.levels, totals, strict=False)
        return Evaluation(
            *self._evaluate(totals.sum(axis=0), error * math.sqrt(len(totals))),
            {level: Evaluation(*self._evaluate(one, error), **spent) for level, one in each},
            **spent,
        )

    def _evaluate(self, coded: Array, error: float) -> tuple[Interval, _Figures, _Curves]:
        counts = _Counts(self._codes[1] @ coded, error * self._codes[1])
        found: _Figures = {}
        curves: _Curves = {}
        everybody, nodes = np.ones(len(coded)), self.nodes
        there, spread = float(counts.x.sum()), Z * float(np.linalg.norm(counts.noise.sum(axis=0)))
        records = Interval(there, there - spread, there + spread)  # of the noise alone
        if not counts.is_clear(everybody):
            return records, found, curves
        if self.kind == "score":
            return records, {"score": counts.ratio(nodes, everybody)}, curves
        ones, pair = np.repeat((1.0, 0.0), _NODES), np.tile(nodes, 2)
        others, above = 1.0 - ones, (pair > self.threshold).astype(float)
        right = ones if self.kind == "classes" else ones * above + others * (1.0 - above)
        found["accuracy"] = counts.ratio(right, everybody)
        squares = ((ones - pair) ** 2).reshape(2, -1).T
        squares += (squares - self._coarser @ squares) / 3.0
        found["Brier score"] = counts.ratio(squares.T.ravel(), everybody)
        if counts.is_clear(ones) and counts.is_clear(others):
            if self.kind == "outcomes":
                found["AUC"] = counts.auc(self._coarser)
                found["sensitivity"] = counts.ratio(ones * above, ones)
                found["specificity"] = counts.ratio(others * (1.0 - above), others)
                curves["roc"] = counts.roc()
            found |= counts.slope(np.clip(nodes, nodes[1], nodes[-2]))
        curves["calibration"] = counts.calibration(nodes)
        return records, found, curves


class _Counts(NamedTuple):
    """Noisy counts at each node, positive ones first; ``noise`` is a root of their covariance."""

    x: Array
    noise: Array

    def is_clear(self, weights: Array) -> bool:
        """Check that this weighted count is clearly more than noise."""
        error = float(np.linalg.norm(weights @ self.noise))
        return float(weights @ self.x) > max(_FEWEST, _CLEAR * error)

    def tell(self, value: float, slopes: Array, most: float = 1.0, more: float = 0.0) -> Interval:
        """The interval of a figure with these slopes, within 0 and ``most``."""
        sampling = max(float(slopes**2 @ self.x), 0.0)
        error = Z * math.sqrt(sampling + more + float(((slopes @ self.noise) ** 2).sum()))
        return Interval(*(min(max(value + side, 0.0), most) for side in (0.0, -error, error)))

    def ratio(self, part: Array, whole: Array) -> Interval:
        """The fraction of ``whole`` that is ``part``, both given as weights of records."""
        total = float(whole @ self.x)
        value = float(part @ self.x) / total
        return self.tell(value, (part - value * whole) / total)

    def auc(self, coarser: Array) -> Interval:
        """The chance that a positive record has the higher score; ties count half."""
        ones, others = self.x.reshape(2, -1)
        size = len(ones)
        order = np.tril(np.ones((size, size))) - np.eye(size) / 2.0
        order += (order - coarser @ order @ coarser.T) / 3.0
        below, above = order @ others / others.sum(), ones @ order / ones.sum()
        value = float(ones @ below / ones.sum())
        slopes = np.concatenate(((below - value) / ones.sum(), (above - value) / others.sum()))
        # the product of both sides' noise, of second order
        both = self.noise[:size, :size].T @ (order - value) @ self.noise[size:, size:]
        both /= ones.sum() * others.sum()
        return self.tell(value, slopes, more=float((both**2).sum()))

    def roc(self) -> Array:
        """(false positive rates, true positive rates), from (0, 0) to (1, 1)."""
        found = np.cumsum(self.x.reshape(2, -1)[::-1, ::-1], axis=1)
        found = np.maximum.accumulate(np.clip(found / found[:, -1:], 0.0, 1.0), axis=1)
        return np.hstack((np.zeros((2, 1)), found))

    def slope(self, nodes: Array) -> dict[str, Interval]:
        """Slope and intercept of outcomes regressed on the scores' logits; ideally 1 and 0."""
        ones, others = self.x.reshape(2, -1)
        terms = np.stack((np.log(nodes / (1.0 - nodes)), np.ones(len(nodes))))
        found = np.array((1.0, 0.0))
        for _ in range(30):
            chance = 1.0 / (1.0 + np.exp(-np.clip(found @ terms, -30.0, 30.0)))
            curvature = (terms * (chance * (1.0 - chance) * (ones + others))) @ terms.T
            if not np.linalg.eigvalsh(curvature)[0] > 1.0:
                return {}
            step = np.linalg.solve(curvature, terms @ (ones - chance * (ones + others)))
            found = found + step / max(1.0, float(np.linalg.norm(step)))
        if float(np.linalg.norm(step)) > 1e-6:
            return {}
        slopes = np.linalg.solve(curvature, np.hstack((terms * (1.0 - chance), -terms * chance)))
        sampling = np.maximum(slopes**2 @ self.x, 0.0)
        errors = Z * np.sqrt(sampling + ((slopes @ self.noise) ** 2).sum(axis=1))
        names = ("calibration slope", "calibration intercept")
        return {
            name: Interval(value, value - error, value + error)
            for name, value, error in zip(names, found.tolist(), errors.tolist(), strict=True)
        }

    def calibration(self, nodes: Array) -> Array:
        """(mean score, outcome, its lower and upper bound) in ten groups of similar size."""
        everybody = np.maximum(self.x.reshape(2, -1).sum(axis=0), 0.0)
        rank = (np.cumsum(everybody) - everybody / 2.0) / everybody.sum()
        groups, points = np.minimum((rank * _SHOWN).astype(int), _SHOWN - 1), []
        for group in range(_SHOWN):
            here = (groups == group).astype(float)
            whole, part = np.tile(here, 2), np.append(here, 0.0 * here)
            if self.is_clear(whole):
                score = self.ratio(np.tile(nodes, 2) * whole, whole).value
                points.append((score, *self.ratio(part, whole)))
        return np.array(points, dtype=np.float64).reshape(-1, 4).T


@dataclass(frozen=True)
class Evaluation:
    """The quality of scores, with 95% intervals for sampling and noise together.

    With enough records ``figures`` holds "accuracy", "Brier score", "AUC", "sensitivity",
    "specificity", "calibration slope", "calibration intercept", or "score"; ``curves`` has "roc"
    (false and true positive rates) and "calibration" (mean scores, outcomes, lower and upper
    bounds). ``groups`` has an evaluation for each level. All together cost every record
    ``epsilon`` at ``delta``.
    """

    records: Interval
    figures: Mapping[str, Interval]
    curves: Mapping[str, Array]
    groups: Mapping[str, Evaluation] = field(default_factory=dict)
    _: KW_ONLY
    epsilon: float
    delta: float

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    def __str__(self) -> str:
        lines = [f"{'':14} {'figure':22} {'value':>8} {'95% interval':>18}"]
        for level, one in {"all": self, **self.groups}.items():
            for name, found in {"records": one.records, **one.figures}.items():
                places = ",.0f" if name == "records" else ".3f"
                value, low, high = (format(number, places) for number in found)
                lines.append(f"{level:14.14} {name:22} {value:>8} {low:>8} to {high}")
                level = ""
            if not one.figures:
                lines.append(f"{'':14} too few records")
        spent = f"ε = {digits_up(self.epsilon)} at δ = {self.delta:g} per record."
        return "\n".join([*lines, spent])

    def plot(self) -> Any:
        """A Matplotlib figure of the ROC and calibration curves, by group if there are groups."""
        if not self.curves:
            raise ValueError("there is no curve to plot: too few records, or no outcomes")
        figure, panels = stack_panels([4.2] * len(self.curves), width=4.6)
        for name, panel in zip(self.curves, panels, strict=True):
            panel.plot((0, 1), (0, 1), color="#98a2b3", lw=1, ls=":")
            drawn = self.groups or {"all": self}
            for color, (level, one) in zip(COLORS, drawn.items(), strict=False):
                if name not in one.curves:
                    continue
                x, y, *limits = one.curves[name]
                if limits:
                    panel.vlines(x, *limits, color=color, lw=1)
                    panel.plot(x, y, "o-", ms=4, color=color, label=level)
                else:
                    auc = one.figures["AUC"]
                    told = f"{level}: AUC {auc.value:.3f} ({auc.lower:.3f} to {auc.upper:.3f})"
                    panel.plot(x, y, color=color, label=told)
            x_name, y_name = _AXES[name]
            panel.set(xlabel=x_name, ylabel=y_name, xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
            panel.legend(frameon=False, loc="lower right", fontsize="small")
        return figure
