"""Theorem III.5 measured: F(w_t) − F* of local SGD, with real payloads and without.

All seeds and clients take their steps together; every update of every client is encoded and
decoded on its own. AS2 (bounded gradients) and AS4 (strong convexity) cannot both hold on all of
R^m, so ξ_k² is the largest mean squared gradient over all models that were visited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.experiments.theory_problems import NAMES, SPLITS, Problem, build
from jopeq.experiments.theory_setting import Effort, noise, seed
from jopeq.experiments.theory_slope import slope
from jopeq.schemes.base import Scheme
from jopeq.schemes.jopeq import JoPEQ
from jopeq.theory.convergence import FORMS, ConvergenceBound

Array = NDArray[np.float64]

EPSILON, RATE, TAU = 4.0, 2.0, 5
CLIPPED = "jopeq, public clip"
_POINTS = 40  # of a curve, evenly in log t
TAIL = 0.2  # the slope is fitted to t + φ in its last part: from this share of the end on
_RECURSION_STEPS = 20_000
SHRUNK = 1e-5  # what the loss is multiplied with to show that the printed constant is too small


@dataclass(frozen=True, eq=False)
class Descent:
    """F(w_t) − F* of every seed at some t, and the largest E_i‖∇F_k^i‖² of each client."""

    times: NDArray[np.int64]
    losses: Array  # seeds × times
    gradient_bounds: Array


def convergence_part(effort: Effort) -> dict[str, Any]:
    """All problems with and without JoPEQ, one with a public clip, and one from the optimum."""
    private = JoPEQ(epsilon=EPSILON, rate=RATE)
    rows = []
    for name in NAMES:
        for split in SPLITS:
            problem = build(name, split)
            coders: dict[str, Scheme | None] = {"none": None, "jopeq": private}
            if split == "iid":
                clip = _first_scale(problem)
                coders[CLIPPED] = JoPEQ(epsilon=EPSILON, rate=RATE, clip=clip)
            for label, coder in coders.items():
                where = {"problem": name, "split": split, "scheme": label}
                # a public clip is there to be seen diverging, which it does at once
                rounds = effort.rounds // 4 if label == CLIPPED else effort.rounds
                rows.append({**where, **_row(problem, coder, rounds, effort.seeds, None)})
    small = build("linear", "heterogeneous", SHRUNK)
    at_optimum = _row(small, private, effort.rounds, effort.seeds, small.optimum)
    return {
        "epsilon": EPSILON,
        "rate": RATE,
        "tau": TAU,
        "clients": small.clients,
        "seeds": effort.seeds,
        "rows": rows,
        "from_optimum": {"factor": SHRUNK, **at_optimum},
        "recursion": recursion_check(),
    }


def train(problem: Problem, coder: Scheme | None, rounds: int, seeds: int, start: Array) -> Descent:
    """Local SGD with the step sizes of the theorem; without ``coder`` updates go as they are."""
    schedule = _bound(problem, np.ones(problem.clients), 0.0, start)
    rng = np.random.default_rng(len(problem.inputs) + problem.parameters)
    kept = set(np.unique(np.geomspace(1, rounds, _POINTS).astype(int)).tolist())
    model = np.tile(start, (seeds, 1))
    best = problem.loss(problem.optimum)
    largest = np.zeros(problem.clients)
    times: list[int] = []
    losses: list[list[float]] = []
    for turn in range(rounds):
        local = np.repeat(model[:, None], problem.clients, axis=1)
        for step in range(TAU):
            found = problem.squared_gradients(local)
            largest = np.maximum(largest, found.max(axis=0))
            chosen = rng.integers(problem.inputs.shape[1], size=local.shape[:2])
            eta = float(schedule.step_size(turn * TAU + step))
            local -= eta * problem.gradient(local, chosen)
        updates = local - model[:, None]
        if coder is not None:
            updates = _sent(coder, updates, turn)
        model = model + updates.mean(axis=1)
        if turn + 1 in kept:
            times.append((turn + 1) * TAU)
            losses.append([problem.loss(w) - best for w in model])
    return Descent(np.array(times), np.array(losses).T, largest)


def _sent(coder: Scheme, updates: Array, turn: int) -> Array:
    decoded = np.empty_like(updates)
    for run, clients in enumerate(updates):
        for client, update in enumerate(clients):
            place = (coder.spec, turn, run, client)
            decoded[run, client] = coder.decode(
                coder.encode(update, seed=seed(*place), noise=noise(*place))
            )
    return decoded


def _bound(
    problem: Problem, gradient_bounds: Array, variance: float, start: Array
) -> ConvergenceBound:
    convexity, smoothness = problem.curvatures
    return ConvergenceBound(
        tau=TAU,
        convexity=convexity,
        smoothness=smoothness,
        gap=problem.gap,
        variance=variance,
        weights=(1.0 / problem.clients,) * problem.clients,
        gradient_bounds=tuple(gradient_bounds.tolist()),
        start=float(np.square(start - problem.optimum).sum()),
    )


def _row(
    problem: Problem, coder: Scheme | None, rounds: int, seeds: int, start: Array | None
) -> dict[str, Any]:
    begin = np.zeros(problem.parameters) if start is None else start
    run = train(problem, coder, rounds, seeds, begin)
    variance = coder._target.noise.variance if isinstance(coder, JoPEQ) else 0.0
    bound = _bound(problem, run.gradient_bounds, variance, begin)
    mean = run.losses.mean(axis=0)
    late = run.times + bound.phi >= TAIL * (run.times[-1] + bound.phi)
    shifted = (run.times[late] + bound.phi).tolist()
    return {
        "convexity": bound.convexity,
        "smoothness": bound.smoothness,
        "gap": bound.gap,
        "phi": bound.phi,
        "b": bound.b,
        "distance": bound.start,
        "start": problem.loss(begin) - problem.loss(problem.optimum),
        "parameters": problem.parameters,
        "times": run.times.tolist(),
        "losses": mean.tolist(),
        "lowest": run.losses.min(axis=0).tolist(),
        "highest": run.losses.max(axis=0).tolist(),
        "slope": slope(shifted, mean[late].tolist()),
        "slopes": [slope(shifted, one[late].tolist()) for one in run.losses],
        **{form: bound.at(run.times, form).tolist() for form in FORMS},
    }


def _first_scale(problem: Problem) -> float:
    """A clip that the first updates just fill: the paper's scale of the longest of them."""
    schedule = _bound(problem, np.ones(problem.clients), 0.0, np.zeros(problem.parameters))
    gradients = problem.squared_gradients(np.zeros((problem.clients, problem.parameters)))
    longest = TAU * float(schedule.step_size(0)) * float(np.sqrt(gradients.max()))
    return float(np.float32(3.0 * longest / np.sqrt(problem.parameters)))


def recursion_check() -> list[dict[str, Any]]:
    """Largest (t + φ)·δ_t of the proof's own recursion, over the λ that is meant to bound it."""
    rows = []
    for tau in (1, 2, 5, 20):
        bound = ConvergenceBound(
            tau=tau,
            convexity=0.5,
            smoothness=0.5,
            gap=0.0,
            variance=0.0,
            weights=(1.0,),
            gradient_bounds=(100.0,),
            start=0.0,
        )
        reached = max(bound.recursion(_RECURSION_STEPS))
        ratios = {form: reached / bound.constant(form) for form in FORMS}
        rows.append({"tau": tau, "convexity": bound.convexity, "steps": _RECURSION_STEPS, **ratios})
    return rows
