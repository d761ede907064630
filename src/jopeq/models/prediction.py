"""Prediction in the fewest messages: the covariance once, then preconditioned gradients.

    sum 0     x xᵀ packed                      → G, whose noise has the norm s√(2d)
    sums 1…T  x ⊗ (p(x) − y, clipped to C)/C   → g;  W ← W − η·(G + ρI)⁻¹g

Rows have length 1. ρ = 0.8·s√d, where s is the noise of an entry of G. C and η are fixed numbers,
chosen on held-out training records of several data sets. Rows of features are centred from sum 1
on: their private mean is already known, as the column of G that belongs to the constant.
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
RIDGE, SMOOTHING = 0.8, 4.0


class Heads:
    """A column of weights for each of ``outputs`` classes, or one column for two classes.

    Shapes of bins are smoothed: ρ includes the squared differences of neighbours.
    """

    def __init__(self, design: Design, outputs: int, messages: int | None) -> None:
        self.size, self.outputs = len(design.names), outputs
        self.is_centred = design.has_features
        self.messages = messages or (FEATURE_MESSAGES if self.is_centred else TABLE_MESSAGES)
        self._penalty = np.eye(self.size)
        for one, place in design.places:
            if isinstance(one, Bins):
                steps = np.diff(one.coding, axis=0)
                group = slice(place.start, place.start + steps.shape[1])
                self._penalty[group, group] += SMOOTHING * steps.T @ steps
        self.clip = 0.5 if outputs == 1 else 0.25
        first = math.sqrt(1.0 - 1.0 / outputs)  # the length of an error at the start
        self.rate = 4.0 if outputs == 1 else 1.18 * outputs * first / self.clip

    def dimension(self, step: int) -> int:
        return self.size * self.outputs if step else totals.packed_size(self.size)

    def shapes(self, step: int) -> dict[str, tuple[int, ...]]:
        centre = (self.size - 1,) if self.is_centred else (0,)
        return {"weights": (self.size, self.outputs), "centre": centre} if step else {}

    def total(self, records: Records, step: int, sent: Mapping[str, Array]) -> Integers:
        """Σ x xᵀ of a hospital, or Σ x ⊗ (p − y)/C."""
        total = totals.Products(self.size, self.outputs if step else self.size)
        for piece in records.pieces():
            if not step:
                rows = totals.row_integers(piece.rows)
                total.add(rows, rows)
                continue
            rows = centre_rows(piece.rows, sent["centre"])
            rows[piece.rows[:, 0] == 0.0] = 0.0  # bad records stay zeros
            rows = totals.row_integers(rows)
            errors = self._errors(totals.logits(rows, sent["weights"]), piece.targets[:, 0])
            total.add(rows, totals.error_integers(errors))
        return total.values.reshape(-1) if step else totals.pack(total.values)

    def _errors(self, found: Array, targets: Array) -> Array:
        """(p − y)/C, of length at most 1."""
        if self.outputs == 1:
            errors = sigmoid(found) - targets[:, None]
        else:
            errors = softmax(found) - (targets[:, None] == np.arange(self.outputs))
        return errors / np.maximum(np.sqrt(squares(errors)), self.clip)[:, None]

    def advance(self, state: State, total: Array, noise: float, *, is_same: bool) -> State:
        if state.step == 0:
            return self._prepare(totals.unpack(total, self.size), noise)
        gradient = self.clip * totals.unpack_products(total, self.size)
        weights = state.sent["weights"] - self.rate * (state.kept["inverse"] @ gradient)
        return State(state.step + 1, {**state.sent, "weights": weights}, state.kept)

    def _prepare(self, gram: Array, noise: float) -> State:
        """The state after sum 0: (G + ρI)⁻¹, and the mean that rows are centred by."""
        count = max(float(np.trace(gram)), noise)
        centre: Array = np.zeros(0)
        if self.is_centred:
            own = CONSTANT / LENGTH  # the constant's entry
            count = max(float(gram[0, 0]) / own**2, noise)
            centre = gram[0, 1:] / (own * count)
            inner = gram[1:, 1:] - count * np.outer(centre, centre)
            inner *= count / LENGTH**2 / max(float(np.trace(inner)), noise)  # of length 1 again
            gram[0, 1:] = gram[1:, 0] = 0.0  # centred rows have no mean
            gram[1:, 1:] = inner
        values, vectors = np.linalg.eigh(gram)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        raised = positive + RIDGE * noise * math.sqrt(self.size) * self._penalty
        inverse: Any = np.linalg.inv(raised)
        sent = {"weights": np.zeros((self.size, self.outputs)), "centre": centre}
        return State(1, sent, {"inverse": inverse, "records": np.array(count)})

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
