"""Theorem III.4 measured: the error of an average of K decoded updates, for K up to 1,000.

Each client takes τ steps of SGD on its own logistic regression from the same model. Without a
regulariser a sample's gradient is at most as long as the sample, so that assumption AS2 holds for
every model with ξ² the clients' mean of ‖x‖²: nothing in the bound is estimated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.experiments.theory_setting import Effort, noise, seed
from jopeq.experiments.theory_slope import slope
from jopeq.schemes.base import Scheme
from jopeq.schemes.jopeq import JoPEQ
from jopeq.theory.aggregation import aggregation_bound, aggregation_error

Array = NDArray[np.float64]

EPSILON = 4.0
PARAMETERS, SAMPLES, TAU, STEP_SIZE = 200, 20, 5, 0.1
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FEATURES = ("even", "peaked")  # all features of one size, or the j-th of size 1/j
WEIGHTS = ("equal", "zipf")  # α = 1/K, or α_k ∝ 1/k


def aggregation_part(effort: Effort) -> dict[str, Any]:
    """Error, exact value without clipping, and bound, for every K."""
    schemes = {
        "jopeq, no overload": JoPEQ(epsilon=EPSILON, rate=1.0, coding="entropy"),
        "jopeq, R = 1": JoPEQ(epsilon=EPSILON, rate=1.0),
        "jopeq, R = 1, rotated": JoPEQ(epsilon=EPSILON, rate=1.0, rotate=True),
    }
    rows = []
    for features in FEATURES:
        updates, bounds = local_updates(features, effort.clients)
        for label, coder in schemes.items():
            errors, clipped = decoded_errors(coder, updates, effort.trials)
            for weights in WEIGHTS:
                row = {"features": features, "scheme": label, "weights": weights}
                curve = _curve(coder, updates, bounds, errors, weights)
                rows.append({**row, "clipped": clipped, **curve})
    return {
        "epsilon": EPSILON,
        "parameters": PARAMETERS,
        "tau": TAU,
        "trials": effort.trials,
        "clients": effort.clients,
        "rows": rows,
    }


def local_updates(features: str, clients: int) -> tuple[Array, Array]:
    """The update of every client after τ steps, and its ξ²."""
    rng = np.random.default_rng(list(features.encode()))
    sizes = np.ones(PARAMETERS) if features == "even" else 1.0 / np.arange(1, PARAMETERS + 1)
    sizes /= np.linalg.norm(sizes)
    teacher = rng.normal(size=PARAMETERS) * (1.0 if features == "even" else np.sqrt(PARAMETERS))
    inputs = rng.normal(size=(clients, SAMPLES, PARAMETERS)) * sizes
    scores = inputs @ teacher + rng.logistic(size=(clients, SAMPLES))
    labels = (scores > 0).astype(np.float64)
    model = np.zeros((clients, PARAMETERS))
    for _ in range(TAU):
        chosen = rng.integers(SAMPLES, size=clients)
        x, y = inputs[np.arange(clients), chosen], labels[np.arange(clients), chosen]
        chances = 1.0 / (1.0 + np.exp(-(x * model).sum(axis=1)))
        model -= STEP_SIZE * (chances - y)[:, None] * x
    return model, np.square(inputs).sum(axis=2).mean(axis=1)


def decoded_errors(coder: Scheme, updates: Array, trials: int) -> tuple[Array, float]:
    """Decoded minus sent (trials × clients × parameters), and the share of clipped samples."""
    errors = np.empty((trials, *updates.shape))
    clipped = samples = 0
    for trial in range(trials):
        for client, update in enumerate(updates):
            place = (coder.spec, trial, client)
            payload, counted = coder.encode(
                update, seed=seed(*place), noise=noise(*place), statistics=True
            )
            errors[trial, client] = coder.decode(payload) - update
            clipped += counted.clipped
            samples += counted.samples
    return errors, clipped / samples


def _curve(coder: JoPEQ, updates: Array, bounds: Array, errors: Array, kind: str) -> dict[str, Any]:
    """All K at once: the clients are cut into as many disjoint groups of K as there are."""
    variance = coder._target.noise.variance  # of one sample, which is one entry
    norms = np.linalg.norm(updates, axis=1)
    curve: dict[str, list[float]] = {"counts": [], "measured": [], "error": [], "exact": []}
    curve["bound"] = []
    for count in COUNTS:
        groups = len(updates) // count
        if groups == 0:
            break
        weights = np.ones(count) if kind == "equal" else 1.0 / np.arange(1, count + 1)
        weights /= weights.sum()
        used = groups * count
        split = errors[:, :used].reshape(len(errors), groups, count, -1)
        found = np.square(np.einsum("tgkm,k->tgm", split, weights)).sum(axis=2)
        repeated = np.tile(weights, groups)
        exact = aggregation_error(repeated, norms[:used], variance) / groups
        steps = np.full(TAU, STEP_SIZE)
        bound = aggregation_bound(repeated, bounds[:used], variance, steps) / groups
        curve["counts"].append(count)
        curve["measured"].append(float(found.mean()))
        curve["error"].append(float(found.std() / np.sqrt(found.size)))
        curve["exact"].append(exact)
        curve["bound"].append(bound)
    return {**curve, "slope": slope(curve["counts"], curve["measured"])}
