"""Prediction in the fewest messages: the covariance once, then preconditioned gradients.

    means      x ⊗ y, y one-hot                 → m, by which later rows are centred, and g at W = 0
    moments    x xᵀ packed                      → G, whose noise has the norm s√(2d)
    gradients  x ⊗ (p(x) − y, clipped to C)/C   → g;  W ← W − η·(G + ρI)⁻¹g

Rows have length 1. ρ = 0.8·s√d, where s is the noise of an entry of G. C and η are fixed numbers,
chosen on held-out training records of several data sets. Only features of several classes begin
with means. With two classes, features are centred by the column of G that belongs to the constant;
rows of tables are not centred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jopeq.models import totals
from jopeq.models.design import CONSTANT, LENGTH, Design
from jopeq.models.inference import sigmoid
from jopeq.models.method import Estimate, Records, State
from jopeq.models.totals import Array, Integers
from jopeq.random.portable import exp, squares
from jopeq.statistics.columns import Bins

TABLE_MESSAGES, FEATURE_MESSAGES = 5, 7
RIDGE, SMOOTHING, START = 0.8, 4.0, 0.8
_OWN = CONSTANT / LENGTH  # the constant's entry of a row of features
_LEAST_LEFT = 0.05  # of the squared length of rows, once they are centred


class Heads:
    """A column of weights for each of ``outputs`` classes, or one column for two classes.

    Shapes of bins are smoothed: ρ includes the squared differences of neighbours.
    """

    def __init__(self, design: Design, outputs: int, messages: int | None) -> None:
        self.size, self.outputs = len(design.names), outputs
        self.is_centred = design.has_features
        self.messages = messages or (FEATURE_MESSAGES if self.is_centred else TABLE_MESSAGES)
        self.moments = int(self.is_centred and outputs > 1)  # the step of x xᵀ: means come before
        self._penalty = np.eye(self.size)
        for one, place in design.places:
            if isinstance(one, Bins):
                steps = np.diff(one.coding, axis=0)
                group = slice(place.start, place.start + steps.shape[1])
                self._penalty[group, group] += SMOOTHING * steps.T @ steps
        self.clip = 0.5 if outputs == 1 else 0.25
        self._first = math.sqrt(1.0 - 1.0 / outputs)  # the length of an error at the start
        self.rate = 4.0 if outputs == 1 else 1.18 * outputs * self._first / self.clip

    def dimension(self, step: int) -> int:
        is_moments = step == self.moments
        return totals.packed_size(self.size) if is_moments else self.size * self.outputs

    def shapes(self, step: int) -> dict[str, tuple[int, ...]]:
        if step == 0:
            return {}
        shapes: dict[str, tuple[int, ...]] = {"centre": (self.size - 1 if self.is_centred else 0,)}
        if step > self.moments:
            shapes["weights"] = (self.size, self.outputs)
        return shapes

    def total(self, records: Records, step: int, sent: Mapping[str, Array]) -> Integers:
        """Σ x xᵀ of a hospital, Σ x ⊗ y, or Σ x ⊗ (p − y)/C."""
        is_moments = step == self.moments
        total = np.zeros((self.size, self.size if is_moments else self.outputs), dtype=np.int64)
        for piece in records.pieces():
            rows = centre_rows(piece.rows, sent["centre"]) if step else piece.rows
            rows = np.where(piece.rows[:, :1] == 0.0, 0.0, rows)  # bad records stay zeros
            rows = totals.row_integers(rows)
            if is_moments:
                total += totals.products(rows, rows)
                continue
            errors = self._outcomes(piece.targets[:, 0])
            if step > self.moments:
                errors = self._errors(totals.logits(rows, sent["weights"]), errors)
            total += totals.products(rows, totals.error_integers(errors))
        return totals.pack(total) if is_moments else total.reshape(-1)

    def _outcomes(self, targets: Array) -> Array:
        """One-hot rows of the classes, or a column of 0 and 1."""
        if self.outputs == 1:
            return targets[:, None]
        found: Array = (targets[:, None] == np.arange(self.outputs)).astype(np.float64)
        return found

    def _errors(self, found: Array, outcomes: Array) -> Array:
        """(p − y)/C, of length at most 1."""
        chances = sigmoid(found) if self.outputs == 1 else softmax(found)
        errors: Array = chances - outcomes
        return errors / np.maximum(np.sqrt(squares(errors)), self.clip)[:, None]

    def advance(self, state: State, total: Array, noise: float, *, is_same: bool) -> State:
        if state.step == self.moments:
            return self._prepare(state, totals.unpack(total, self.size), noise)
        sums = totals.unpack_products(total, self.size)
        if state.step < self.moments:
            count = max(float(sums[0].sum()) / _OWN, noise)
            centre = sums[1:].sum(axis=1) / count
            kept = {"sums": sums, "records": np.array(count)}
            return State(1, {"centre": centre}, kept)
        weights = state.sent["weights"] - self.rate * (state.kept["inverse"] @ (self.clip * sums))
        return State(state.step + 1, {**state.sent, "weights": weights}, state.kept)

    def _prepare(self, state: State, gram: Array, noise: float) -> State:
        """The state after the moments: (G + ρI)⁻¹, the first weights, and the centre of rows."""
        weights, centre = np.zeros((self.size, self.outputs)), state.sent.get("centre", np.zeros(0))
        if self.moments:
            count = float(state.kept["records"])
        elif self.is_centred:
            count = max(float(gram[0, 0]) / _OWN**2, noise)
            centre = gram[0, 1:] / (_OWN * count)
            inner = gram[1:, 1:] - count * np.outer(centre, centre)
            inner *= count / LENGTH**2 / max(float(np.trace(inner)), noise)  # of length 1 again
            gram[1:, 1:] = inner
        else:
            count = max(float(np.trace(gram)), noise)
        if self.is_centred:
            gram[0, 0] = count * _OWN**2
            gram[0, 1:] = gram[1:, 0] = 0.0  # centred rows have no mean
        values, vectors = np.linalg.eigh(gram)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        raised = positive + RIDGE * noise * math.sqrt(self.size) * self._penalty
        inverse: Any = np.linalg.inv(raised)
        if self.moments:
            first = self._first_gradient(state.kept["sums"], centre, count)
            weights -= START * self.rate * self.clip / self._first * (inverse @ first)
        kept = {"inverse": inverse, "records": np.array(count)}
        return State(state.step + 1, {"weights": weights, "centre": centre}, kept)

    def _first_gradient(self, sums: Array, centre: Array, count: float) -> Array:
        """Σ x ⊗ (p − y) of centred rows at weights of 0, as if all were equally much shorter."""
        left = max(1.0 - (LENGTH * float(np.linalg.norm(centre))) ** 2, _LEAST_LEFT)
        constants = _OWN * count / self.outputs - sums[0]
        return np.vstack((constants, (np.outer(centre, sums[0] / _OWN) - sums[1:]) / left**0.5))

    def estimate(self, state: State) -> Estimate:
        return Estimate(
            weights=state.sent["weights"],
            centre=state.sent["centre"],
            covariance=None,
            hidden=("",) * self.size,
            figures={"records": float(state.kept["records"])},
        )


def centre_rows(rows: Array, centre: Array) -> Array:
    """Rows of features minus their public mean, again of length 1, with the same constant."""
    if not len(centre):
        return rows.copy()
    found = np.full_like(rows, CONSTANT / LENGTH)
    found[:, 1:] = rows[:, 1:] - centre
    found[:, 1:] /= np.maximum(np.sqrt(squares(found[:, 1:])) * LENGTH, 1e-9)[:, None]
    return found


def softmax(logits: Array) -> Array:
    """Probabilities, (m, classes), with the same bits on every machine."""
    columns = np.ascontiguousarray(logits.T)
    columns -= columns.max(axis=0)
    columns = exp(np.maximum(columns, -60.0))
    total = np.zeros(columns.shape[1])
    for column in columns:
        total += column
    return np.ascontiguousarray((columns / total).T)
