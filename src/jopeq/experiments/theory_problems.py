"""Strongly convex problems with known optimum and constants, split over clients (Theorem III.5).

    linear     F_k(w) = mean of ½(x·w − y)² + λ/2·‖w‖²            diabetes data, 442 people
    logistic   F_k(w) = mean of log(1 + e^{−y·x·w}) + λ/2·‖w‖²    digits, even or odd, 1,797 images

Both data sets come with scikit-learn.

"iid" deals the samples out at random; "heterogeneous" sorts them by target or digit first, so that
each client sees one tenth of the range, or nearly one digit. Minima are found to rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError

Array = NDArray[np.float64]

NAMES = ("linear", "logistic")
SPLITS = ("iid", "heterogeneous")
CLIENTS = 10
_RIDGE = {"linear": 0.5, "logistic": 0.1}


@dataclass(frozen=True, eq=False)
class Problem:
    """Samples of all clients, equally many each (so that α = 1/K), and the loss on them.

    ``inputs`` is clients × samples × parameters; ``factor`` multiplies the loss.
    """

    name: str
    inputs: Array
    targets: Array
    ridge: float
    factor: float = 1.0

    @property
    def clients(self) -> int:
        return len(self.inputs)

    @property
    def parameters(self) -> int:
        return int(self.inputs.shape[2])

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Derivative of a sample's loss by its score x·w."""
        if self.name == "linear":
            return np.asarray(scores - targets)
        return np.asarray(-targets / (1.0 + np.exp(np.clip(targets * scores, -500.0, 500.0))))

    def gradient(self, models: Array, chosen: NDArray[np.int64]) -> Array:
        """Of one sample of each client: models is … × clients × parameters, chosen … × clients."""
        places = np.arange(self.clients)
        x, y = self.inputs[places, chosen], self.targets[places, chosen]
        slope = self.slopes(np.einsum("...m,...m->...", x, models), y)
        return np.asarray(self.factor * (slope[..., None] * x + self.ridge * models))

    def squared_gradients(self, models: Array) -> Array:
        """E_i‖∇F_k^i‖² at each model: what assumption AS2 bounds by ξ_k²."""
        scores = np.einsum("knm,...km->...kn", self.inputs, models)
        slope = self.slopes(scores, self.targets)
        own = slope**2 * self._lengths + 2.0 * self.ridge * slope * scores
        norms = np.square(models).sum(axis=-1)
        return np.asarray(self.factor**2 * (own.mean(axis=-1) + self.ridge**2 * norms))

    @cached_property
    def _lengths(self) -> Array:
        return np.asarray(np.square(self.inputs).sum(axis=2))

    def losses(self, model: Array) -> Array:
        """F_k of every client at one model."""
        scores = self.inputs @ model
        if self.name == "linear":
            each = 0.5 * np.square(scores - self.targets)
        else:
            each = np.logaddexp(0.0, -self.targets * scores)
        return np.asarray(self.factor * (each.mean(axis=1) + 0.5 * self.ridge * model @ model))

    def loss(self, model: Array) -> float:
        """F, the mean over clients."""
        return float(self.losses(model).mean())

    @cached_property
    def optimum(self) -> Array:
        """w*, the minimum of F."""
        return self._minimum(slice(None))

    @cached_property
    def gap(self) -> float:
        """ψ = F(w*) − Σ α_k·min F_k."""
        least = [self.losses(self._minimum(slice(k, k + 1)))[k] for k in range(self.clients)]
        return self.loss(self.optimum) - float(np.mean(least))

    @cached_property
    def curvatures(self) -> tuple[float, float]:
        """ρ_c and ρ_s: the least and the largest curvature of any F_k."""
        spectra = np.array([np.linalg.eigvalsh(x.T @ x / len(x))[[0, -1]] for x in self.inputs])
        if self.name == "linear":
            low, high = float(spectra[:, 0].min()), float(spectra[:, 1].max())
        else:  # the second derivative of the logistic loss lies between 0 and ¼
            low, high = 0.0, 0.25 * float(spectra[:, 1].max())
        return self.factor * (max(low, 0.0) + self.ridge), self.factor * (high + self.ridge)

    def _minimum(self, which: slice) -> Array:
        """Newton's method on the clients of a slice: exact after one step for least squares."""
        x = self.inputs[which].reshape(-1, self.parameters)
        y = self.targets[which].reshape(-1)
        model = np.zeros(self.parameters)
        for _ in range(50):
            scores = x @ model
            gradient = x.T @ self.slopes(scores, y) / len(x) + self.ridge * model
            bend = np.ones(len(x))
            if self.name == "logistic":
                chance = 1.0 / (1.0 + np.exp(-scores))
                bend = chance * (1.0 - chance)
            hessian = (x.T * bend) @ x / len(x) + self.ridge * np.eye(self.parameters)
            step = np.linalg.solve(hessian, gradient)
            model = model - step
            if np.linalg.norm(step) <= 1e-14 * (1.0 + np.linalg.norm(model)):
                break
        return model


def build(name: str, split: str, factor: float = 1.0) -> Problem:
    """One of ``NAMES``, split in one of ``SPLITS``."""
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    inputs, targets, order = _diabetes() if name == "linear" else _digits()
    mixed = np.random.default_rng(0).permutation(len(order))
    if split == "heterogeneous":
        mixed = mixed[np.argsort(order[mixed], kind="stable")]
    each = len(order) // CLIENTS
    kept = mixed[: each * CLIENTS].reshape(CLIENTS, each)
    return Problem(name, inputs[kept], targets[kept], _RIDGE[name], factor)


def _diabetes() -> tuple[Array, Array, Array]:
    """Ten measurements and a constant; the target is the progress of the disease, standardised."""
    found = _datasets().load_diabetes()
    inputs = found.data / found.data.std(axis=0)
    targets = (found.target - found.target.mean()) / found.target.std()
    return _with_constant(inputs), targets, targets


def _digits() -> tuple[Array, Array, Array]:
    """64 centred pixels and a constant; the label is +1 for even digits and −1 for odd ones."""
    found = _datasets().load_digits()
    inputs = found.data / 16.0
    labels = np.where(found.target % 2 == 0, 1.0, -1.0)
    return _with_constant(inputs - inputs.mean(axis=0)), labels, found.target.astype(np.float64)


def _with_constant(inputs: Array) -> Array:
    return np.concatenate((inputs, np.ones((len(inputs), 1))), axis=1)


def _datasets() -> Any:
    from importlib import import_module

    try:
        return import_module("sklearn.datasets")
    except ImportError as error:
        raise DataError(
            f"these data come with scikit-learn, which cannot be imported ({error}): "
            "pip install 'jopeq[experiments]'"
        ) from error
