"""Theorem III.4 measured: the error of an average of K decoded updates, for K up to 1,000.

Each client takes τ steps of SGD on its own logistic regression from the same model. Without a
regulariser a sample's gradient is at most as long as the sample, so that assumption AS2 holds for
every model with ξ² the clients' mean of ‖x‖²: nothing in the bound is estimated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.entries.quantized import JoPEQ
from jopeq.random.streams import SharedStream
from jopeq.sums.shares import rotate, rotate_back
from paper.theorems.setting import Effort, noise, seed, slope, without_overload

Array = NDArray[np.float64]

EPSILON = 4.0
PARAMETERS, SAMPLES, TAU, STEP_SIZE = 200, 20, 5, 0.1
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FEATURES = ("even", "peaked")  # all features of one size, or the j-th of size 1/j
POWERS = (0.25, 0.5, 0.75)  # c: only ⌈K^c⌉ clients count, with α = 1/⌈K^c⌉ each
WEIGHTS = ("equal", "zipf", *(f"c = {c:g}" for c in POWERS))  # α = 1/K, or α_k ∝ 1/k
FREE, FIXED, ROTATED = "jopeq, no overload", "jopeq, R = 1", "jopeq, R = 1, rotated"
SHOWN = FREE, FIXED, ROTATED  # in the figure
CUBIC = ((-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0))  # body-centred
LATTICES: tuple[Any, ...] = (("A2", "A2", "t"), ("BCC", CUBIC, "l2"), ("D4", "D4", "t"))


def aggregation_part(effort: Effort) -> dict[str, Any]:
    """Measured error, exact error without clipping, and bound, for every K."""
    schemes = {
        FREE: without_overload(JoPEQ(epsilon=EPSILON, rate=1.0)),
        FIXED: JoPEQ(epsilon=EPSILON, rate=1.0),
        ROTATED: JoPEQ(epsilon=EPSILON, rate=1.0),
    }
    given = {"epsilon": EPSILON, "rate": 1.0}
    others = {
        f"jopeq, {law} on {name}": without_overload(JoPEQ(**given, law=law, lattice=lattice))
        for name, lattice, law in LATTICES
    }
    rows = []
    for features in FEATURES:
        updates, bounds = _local_updates(features, effort.clients)
        for label, coder in {**schemes, **(others if features == "even" else {})}.items():
            is_rotated = label == ROTATED
            errors, clipped = _decoded_errors(coder, updates, effort.trials, is_rotated)
            for weights in WEIGHTS if label == FREE else WEIGHTS[:2]:
                row = {"features": features, "scheme": label, "weights": weights}
                curve = _curve(coder, updates, bounds, errors, weights)
                rows.append({**row, "clipped": clipped, **curve})
    sizes = {"trials": effort.trials, "clients": effort.clients}
    return {"epsilon": EPSILON, "parameters": PARAMETERS, "tau": TAU, **sizes, "rows": rows}


def _local_updates(features: str, clients: int) -> tuple[Array, Array]:
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


def _decoded_errors(
    coder: JoPEQ, updates: Array, trials: int, is_rotated: bool
) -> tuple[Array, float]:
    """Decoded minus sent (trials × clients × parameters), and the share of clipped samples.

    A rotation, which both ends know, spreads every update over all entries before it is coded.
    """
    errors = np.empty((trials, *updates.shape))
    clipped = samples = 0
    for trial in range(trials):
        for client, update in enumerate(updates):
            place = (coder.spec, is_rotated, trial, client)
            streams = {"seed": seed(*place), "noise": noise(*place)}
            sent = rotate(update, 1.0, SharedStream(streams["seed"])) if is_rotated else update
            payload, counted = coder.encode(sent, **streams, counts=True)
            error = coder.decode(payload) - sent
            if is_rotated:
                rotate_back(error, SharedStream(streams["seed"]))
            errors[trial, client] = error
            clipped += counted.clipped
            samples += counted.samples
    return errors, clipped / samples


def _curve(coder: JoPEQ, updates: Array, bounds: Array, errors: Array, kind: str) -> dict[str, Any]:
    """Do all K at once: split the clients into as many disjoint groups of K as possible."""
    variance = coder.target.noise.variance * coder.dimension  # of one sample
    norms = np.linalg.norm(updates, axis=1)
    points = []
    for count in (count for count in COUNTS if count <= len(updates)):
        groups = len(updates) // count
        used = groups * count
        weights = _weights(kind, count)
        split = errors[:, :used].reshape(len(errors), groups, count, -1)
        found = np.square(np.einsum("tgkm,k->tgm", split, weights)).sum(axis=2)
        squares = np.square(np.tile(weights, groups)) * 9.0 * variance / groups
        exact = float(squares @ np.square(norms[:used]))  # 9σ²·Σα²‖h‖², spread 3
        bound = float(squares @ bounds[:used]) * TAU**2 * STEP_SIZE**2  # eq. 18: 9τσ²·Ση²·Σα²ξ²
        deviation = float(found.std() / np.sqrt(found.size))
        points.append((count, float(found.mean()), deviation, exact, bound))
    names = ("counts", "measured", "error", "exact", "bound")
    curve = dict(zip(names, map(list, zip(*points, strict=True)), strict=True))
    return {**curve, "slope": slope(curve["counts"], curve["measured"])}


def _weights(kind: str, count: int) -> Array:
    weights = np.ones(count) if kind == "equal" else 1.0 / np.arange(1, count + 1)
    if kind.startswith("c = "):
        weights = (np.arange(count) < count ** float(kind[4:])).astype(np.float64)
    return np.asarray(weights / weights.sum())
