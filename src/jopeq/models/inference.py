"""Textbook models with intervals: Newton's method on noisy sums, and least squares from one sum.

``Newton`` takes eight equal sums. A record's row carries its gradient and its Hessian,
(x·(μ − y)/C, (a/C)·μ'·x xᵀ packed), with a so small that the Hessian does not raise the largest
norm. The first sum gives a start and the next two a damped step each. Later sums are averaged, and
the estimate is their mean iterate minus a Newton step. Nothing is clipped, so nothing is biased.
The noise s of M averaged sums adds to the sampling variance:

    Var = H⁻¹ + (s²/M)·H⁻¹[(1 + ‖v‖²/2a²)·I + v vᵀ/2a²]H⁻¹,  v = H⁻¹g

A coefficient is hidden if directions that the noise drowns contribute to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jopeq.models import totals
from jopeq.models.design import Design
from jopeq.models.method import Estimate, Records, State, invert
from jopeq.models.totals import Array, Integers
from jopeq.random.portable import exp

MESSAGES = 8
BURNED = 3  # sums before averaging begins
FLOOR = 0.7  # of the edge: eigenvalues are at least this
_LONGEST_STEP, _LONGEST = 2.0, 8.0  # in units of B
_CLEAR = 5.0  # standard errors of the count of events
FEW, OPEN = "too few events for the noise", "lost in noise: rare, constant or collinear"


def sigmoid(logit: Array) -> Array:
    """1/(1 + e^{−z}), the same bits on every machine."""
    found: Array = 1.0 / (1.0 + exp(np.clip(-logit, -30.0, 30.0)))
    return found


@dataclass(frozen=True)
class Binomial:
    """y is 0 or 1 and μ = 1/(1 + e^{−z}), so a row's square is at most u²(1 + a²(1 − u)²).

    Here u = |μ − y|. The bound is at most 1 where a² ≤ ((1 + √5)/2)⁵ = 11.09.
    """

    scale: ClassVar[float] = 1.0  # C
    balance: ClassVar[float] = 3.33  # a
    null: ClassVar[tuple[float, float]] = (0.5, 0.25)  # μ and μ' at z = 0

    def row(self, logit: Array, targets: Array) -> tuple[Array, Array]:
        """((μ − y)/C from −1 to 1, a·μ'/C from 0 to 1) for every record."""
        mean = sigmoid(logit)
        return mean - targets[:, 0], self.balance * (mean * (1.0 - mean))

    def start(self, mean: float, error: float) -> tuple[float, float, float]:
        """(a mean that is safe to start from, its z, its μ')."""
        least = min(max(0.005, 2.0 * error), 0.5)
        mean = min(max(mean, least), 1.0 - least)
        return mean, math.log(mean / (1.0 - mean)), mean * (1.0 - mean)

    def events(self, mean: float) -> float:
        """The rarer outcome's share."""
        return min(mean, 1.0 - mean)


@dataclass(frozen=True)
class Counts:
    """y is from 0 to Y and μ = t·eᶻ up to Y/√2, where t is the exposure; a = 1 and C = Y."""

    scale: float
    balance: ClassVar[float] = 1.0
    null: ClassVar[tuple[float, float]] = (1.0, 1.0)

    def row(self, logit: Array, targets: Array) -> tuple[Array, Array]:
        mean = targets[:, 1] * exp(np.clip(logit, -30.0, 30.0))
        mean = np.minimum(mean, self.scale / math.sqrt(2.0))
        return (mean - targets[:, 0]) / self.scale, mean / self.scale

    def start(self, mean: float, error: float) -> tuple[float, float, float]:
        mean = min(max(mean, 2.0 * error, 1e-3), self.scale / math.sqrt(2.0))
        return mean, math.log(mean), mean

    def events(self, mean: float) -> float:
        return mean


class Newton:
    """Maximum likelihood from sums that carry gradient and Hessian."""

    def __init__(self, design: Design, family: Binomial | Counts, messages: int | None) -> None:
        self.size, self.length, self.report = len(design.names), design.length, design.report
        self.family, self.messages = family, messages or MESSAGES
        self.first: Array = np.zeros(self.size)  # weights of the first sum

    def dimension(self, step: int) -> int:
        return self.size + totals.packed_size(self.size)

    def shapes(self, step: int) -> dict[str, tuple[int, ...]]:
        return {"weights": (self.size,)} if step else {}

    def total(self, records: Records, step: int, sent: Mapping[str, Array]) -> Integers:
        """Σ (x·(μ − y)/C, (a/C)·μ'·x xᵀ) of a hospital."""
        weights, size = sent["weights"] if step else self.first, self.size
        slopes, curves = (np.zeros((size, width), dtype=np.int64) for width in (1, size))
        for piece in records.pieces():
            rows = totals.row_integers(piece.rows)
            logit = totals.logits(rows, weights[:, None])[:, 0]
            errors, parts = self.family.row(logit, piece.targets)
            whole = totals.error_integers(errors[:, None])
            rows, roots = totals.weigh(rows, whole, parts)
            slopes += totals.products(rows, whole)
            curves += totals.products(roots, roots)
        return np.concatenate((slopes[:, 0], totals.pack(curves)))

    def advance(self, state: State, total: Array, noise: float, *, is_same: bool) -> State:
        scale, kept = self.family.scale, dict(state.kept)
        gradient, hessian = self.unpack(total)
        new = {
            "gradient": scale * gradient,
            "hessian": scale / self.family.balance * hessian,
            "weights": state.sent.get("weights", self.first),
            "count": np.ones(()),
        }
        if state.step > BURNED and is_same:  # a new cohort is averaged anew
            new = {name: one + kept[name] for name, one in new.items()}
        kept.update(new, noise=np.array(noise * scale))
        mean, _, move, _ = self.solve(kept)
        if state.step == 0:
            weights = self.start(kept)
        elif state.step < BURNED:
            weights = mean - move * min(1.0, _LONGEST_STEP * self.length / _norm(move))
        else:
            weights = mean - move
        weights *= min(1.0, _LONGEST * self.length / _norm(weights))
        return State(state.step + 1, {"weights": weights}, kept)

    def unpack(self, total: Array) -> tuple[Array, Array]:
        """Gradient and Hessian, in the units of rows."""
        gradient = totals.unpack_products(total[: self.size], self.size)[:, 0]
        return gradient, totals.unpack(total[self.size :], self.size)

    def solve(self, kept: Mapping[str, Array]) -> tuple[Array, Array, Array, Array]:
        """(mean iterate, H⁻¹, H⁻¹g, hidden coefficients) of the averaged sums."""
        count = float(kept["count"])
        spectral = float(kept["noise"]) / self.family.balance * math.sqrt(2.0 * self.size)
        edge = spectral / math.sqrt(count)  # the norm of the Hessian's noise
        inverse, is_open = invert(kept["hessian"] / count, FLOOR * edge, edge, self.report)
        return kept["weights"] / count, inverse, inverse @ (kept["gradient"] / count), is_open

    def start(self, kept: dict[str, Array]) -> Array:
        """Fisher's discriminant from the sum at weights of 0, moved to the noisy mean."""
        (null, slope), noise = self.family.null, float(kept["noise"])
        _, _, move, _ = self.solve(kept)
        count = max(float(kept["hessian"][0, 0]) * self.length**2 / slope, 1.0)
        mean = null - float(kept["gradient"][0]) * self.length / count
        safe, logit, curve = self.family.start(mean, noise * self.length / count)
        constant = self.length * np.eye(1, self.size)[0]
        kept["records"], kept["clear"] = np.array(count), np.array(_CLEAR * noise * self.length)
        kept["events"] = np.array(self.family.events(mean) * count)
        start: Array = logit * constant - (slope * move + (safe - null) * constant) / curve
        return start

    def estimate(self, state: State) -> Estimate:
        kept, double = state.kept, 2.0 * self.family.balance**2
        _, inverse, move, is_open = self.solve(kept)
        spread = (1.0 + move @ move / double) * np.eye(self.size) + np.outer(move, move) / double
        spread *= float(kept["noise"]) ** 2 / float(kept["count"])
        figures = {name: float(kept[name]) for name in ("records", "events")}
        is_few = figures["events"] < float(kept["clear"])
        return Estimate(
            weights=state.sent["weights"][:, None],
            centre=np.zeros(0),
            covariance=inverse + inverse @ spread @ inverse,
            hidden=tuple(FEW if is_few else OPEN if one else "" for one in is_open),
            figures=figures,
        )


def _norm(vector: Array) -> float:
    return max(float(np.linalg.norm(vector)), 1e-300)


class LeastSquares:
    """Linear regression from one sum of u uᵀ, u = (x, y/B)·B/√(B² + 1), y from −1 to 1.

    With θ = (−β, 1), Var = σ²·M⁻¹ + M⁻¹[(s²/2)(‖θ‖²I + θθᵀ)]M⁻¹, where M is the block of x. In
    its own units y ranges over ±``half``.
    """

    messages = 1

    def __init__(self, design: Design, half: float, *, is_told: bool) -> None:
        self.size, self.length, self.report = len(design.names), design.length, design.report
        self.half, self.is_told = half, is_told
        self._shrink = self.length / math.sqrt(self.length**2 + 1.0)
        self._constant = design.constant * self._shrink

    def dimension(self, step: int) -> int:
        return totals.packed_size(self.size + 1)

    def shapes(self, step: int) -> dict[str, tuple[int, ...]]:
        return {}

    def total(self, records: Records, step: int, sent: Mapping[str, Array]) -> Integers:
        """Σ u uᵀ of a hospital."""
        total = np.zeros((self.size + 1, self.size + 1), dtype=np.int64)
        for piece in records.pieces():
            both = np.c_[piece.rows, piece.targets[:, 0] / self.length]
            rows = totals.row_integers(both * self._shrink)
            total += totals.products(rows, rows)
        return totals.pack(total)

    def advance(self, state: State, total: Array, noise: float, *, is_same: bool) -> State:
        kept = {"moments": totals.unpack(total, self.size + 1), "noise": np.array(noise)}
        kept["records"] = np.maximum(kept["moments"][0, 0] / self._constant**2, 1.0)
        return State(1, {}, kept)

    def estimate(self, state: State) -> Estimate:
        moments = state.kept["moments"]
        noise, count = float(state.kept["noise"]), float(state.kept["records"])
        inside, eye = moments[:-1, :-1], np.eye(self.size)
        edge = noise * math.sqrt(2.0 * self.size)
        inverse, is_open = invert(inside, FLOOR * edge, edge, self.report)
        found = inverse @ moments[:-1, -1]
        theta = np.append(-found, 1.0)
        square = float(theta @ theta)
        left = max(float(theta @ moments @ theta), 2.0 * noise * square)
        spread = noise**2 / 2.0 * (square * eye + np.outer(found, found))
        covariance = (left / count * inverse + inverse @ spread @ inverse) * self.length**2
        around = float(moments[-1, -1]) - float(moments[0, -1]) ** 2 / (count * self._constant**2)
        return Estimate(
            weights=found[:, None] * self.length,
            centre=np.zeros(0),
            covariance=covariance if self.is_told else None,
            hidden=tuple(OPEN if one and self.is_told else "" for one in is_open),
            figures={
                "records": count,
                "R²": min(max(1.0 - left / max(around, left), 0.0), 1.0),
                "± of R²": noise * square / max(around, left),
                "residual variance": left / count * (self.half * self.length / self._shrink) ** 2,
            },
        )
