"""Theorem III.5 measured: F(w_t) − F* of local SGD, with real payloads and without.

    linear     F_k(w) = mean of ½(x·w − y)² + λ/2·‖w‖²            diabetes data, 442 people
    logistic   F_k(w) = mean of log(1 + e^{−y·x·w}) + λ/2·‖w‖²    digits, even or odd, 1,797 images

Both data sets come with scikit-learn. "iid" deals the samples out at random; "heterogeneous" sorts
them by target or digit first, so that each client sees one tenth of the range, or nearly one digit.
"unequal" is "heterogeneous" with weights α_k ∝ 1/k; elsewhere α_k = 1/K.

AS2 (bounded gradients) and AS4 (strong convexity) cannot both hold on all of
R^m, so ξ_k² is the largest mean squared gradient over all models that were visited.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.entries.quantized import JoPEQ
from jopeq.lattice.lattices import Lattice
from jopeq.schemes.base import Scheme
from paper.theorems.bounds import FORMS, ConvergenceBound
from paper.theorems.setting import Effort, noise, seed, slope

Array = NDArray[np.float64]

NAMES = ("linear", "logistic")
SPLITS = ("iid", "heterogeneous", "unequal")
CLIENTS = 10
EPSILON, RATE, TAU = 4.0, 2.0, 5
CLIPPED = "jopeq, public clip"
STRICTER = (1.0, 2.0)  # ε of the linear problem besides, to see what privacy costs
PLANE = "jopeq, t on A2"
TAIL = 0.2  # slopes are fitted from this share of the last t + φ on
SHRUNK = 1e-5  # the factor of the loss at which the printed constant is too small
_RIDGE = {"linear": 0.5, "logistic": 0.1}


@dataclass(frozen=True, eq=False)
class Problem:
    """Samples of all clients, equally many each, and the loss F = Σ α_k·F_k on them.

    ``inputs`` is clients × samples × parameters; ``factor`` multiplies the loss.
    """

    name: str
    inputs: Array
    targets: Array
    weights: Array
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
        """Gradients, one sample per client: models … × clients × parameters, chosen … × clients."""
        places = np.arange(self.clients)
        x, y = self.inputs[places, chosen], self.targets[places, chosen]
        slopes = self.slopes(np.einsum("...m,...m->...", x, models), y)
        return np.asarray(self.factor * (slopes[..., None] * x + self.ridge * models))

    def gradients(self, models: Array) -> Array:
        """∇F_k of every client, each at its own model."""
        scores = np.einsum("knm,...km->...kn", self.inputs, models)
        slopes = self.slopes(scores, self.targets)
        whole = np.einsum("knm,...kn->...km", self.inputs, slopes) / self.inputs.shape[1]
        return np.asarray(self.factor * (whole + self.ridge * models))

    def squared_gradients(self, models: Array) -> Array:
        """E_i‖∇F_k^i‖² at each model: assumption AS2 bounds it by ξ_k²."""
        scores = np.einsum("knm,...km->...kn", self.inputs, models)
        slopes = self.slopes(scores, self.targets)
        own = slopes**2 * self._lengths + 2.0 * self.ridge * slopes * scores
        norms = np.square(models).sum(axis=-1)
        return np.asarray(self.factor**2 * (own.mean(axis=-1) + self.ridge**2 * norms))

    @cached_property
    def _lengths(self) -> Array:
        return np.asarray(np.square(self.inputs).sum(axis=2))

    def losses(self, model: Array) -> Array:
        """F_k of every client at one model."""
        scores, y = self.inputs @ model, self.targets
        is_linear = self.name == "linear"
        each = 0.5 * np.square(scores - y) if is_linear else np.logaddexp(0.0, -y * scores)
        return np.asarray(self.factor * (each.mean(axis=1) + 0.5 * self.ridge * model @ model))

    def loss(self, model: Array) -> float:
        """F, the weighted mean over clients."""
        return float(self.weights @ self.losses(model))

    @cached_property
    def optimum(self) -> Array:
        """w*, the minimum of F."""
        return self._minimum(slice(None))

    @cached_property
    def gap(self) -> float:
        """ψ = F(w*) − Σ α_k·min F_k."""
        least = [self.losses(self._minimum(slice(k, k + 1)))[k] for k in range(self.clients)]
        return self.loss(self.optimum) - float(self.weights @ np.array(least))

    @cached_property
    def curvatures(self) -> tuple[float, float]:
        """ρ_c and ρ_s: the least and the largest curvature of any F_k."""
        spectra = np.array([np.linalg.eigvalsh(x.T @ x / len(x))[[0, -1]] for x in self.inputs])
        low, high = float(spectra[:, 0].min()), float(spectra[:, 1].max())
        if self.name == "logistic":  # its second derivative lies between 0 and ¼
            low, high = 0.0, 0.25 * high
        return self.factor * (max(low, 0.0) + self.ridge), self.factor * (high + self.ridge)

    def _minimum(self, which: slice) -> Array:
        """Newton's method on the clients of a slice: exact after one step for least squares."""
        x = self.inputs[which].reshape(-1, self.parameters)
        y = self.targets[which].reshape(-1)
        shares = np.repeat(self.weights[which] / self.weights[which].sum(), len(self.inputs[0]))
        shares = shares / len(self.inputs[0])
        model = np.zeros(self.parameters)
        for _ in range(50):
            scores = x @ model
            gradient = x.T @ (shares * self.slopes(scores, y)) + self.ridge * model
            bend = shares
            if self.name == "logistic":
                chance = 1.0 / (1.0 + np.exp(-scores))
                bend = shares * chance * (1.0 - chance)
            hessian = (x.T * bend) @ x + self.ridge * np.eye(self.parameters)
            step = np.linalg.solve(hessian, gradient)
            model = model - step
            if np.linalg.norm(step) <= 1e-14 * (1.0 + np.linalg.norm(model)):
                break
        return model

    def bound(self, gradient_bounds: Array, variance: float, start: Array) -> ConvergenceBound:
        """The theorem for this problem, begun at ``start``."""
        convexity, smoothness = self.curvatures
        return ConvergenceBound(
            tau=TAU,
            convexity=convexity,
            smoothness=smoothness,
            gap=self.gap,
            variance=variance,
            weights=tuple(self.weights.tolist()),
            gradient_bounds=tuple(gradient_bounds.tolist()),
            start=float(np.square(start - self.optimum).sum()),
        )


def build(name: str, split: str, factor: float = 1.0) -> Problem:
    """One of ``NAMES``, split in one of ``SPLITS``."""
    from sklearn import datasets

    if name == "linear":  # ten measurements; the target is the progress of the disease
        found = datasets.load_diabetes()
        inputs = found.data / found.data.std(axis=0)
        order = targets = (found.target - found.target.mean()) / found.target.std()
    else:  # 64 centred pixels; +1 for even digits and −1 for odd ones
        found = datasets.load_digits()
        inputs = found.data / 16.0
        inputs = inputs - inputs.mean(axis=0)
        order, targets = found.target, np.where(found.target % 2 == 0, 1.0, -1.0)
    inputs = np.concatenate((inputs, np.ones((len(inputs), 1))), axis=1)
    mixed = np.random.default_rng(0).permutation(len(order))
    if split != "iid":
        mixed = mixed[np.argsort(order[mixed], kind="stable")]
    each = len(order) // CLIENTS
    kept = mixed[: each * CLIENTS].reshape(CLIENTS, each)
    return Problem(name, inputs[kept], targets[kept], weights(split), _RIDGE[name], factor)


def weights(split: str) -> Array:
    """α_k of every client."""
    sizes = 1.0 / np.arange(1, CLIENTS + 1) if split == "unequal" else np.ones(CLIENTS)
    return np.asarray(sizes / sizes.sum())


def convergence_part(effort: Effort) -> dict[str, Any]:
    """All problems with and without JoPEQ, some with a public clip, and one from the optimum."""
    private = JoPEQ(epsilon=EPSILON, rate=RATE)
    rows = []
    for name in NAMES:
        for split in SPLITS:
            problem = build(name, split)
            coders: dict[str, JoPEQ | None] = {"none": None, "jopeq": private}
            if split == "iid":
                coders[CLIPPED] = JoPEQ(epsilon=EPSILON, rate=RATE, clip=_first_scale(problem))
                coders[PLANE] = JoPEQ(epsilon=EPSILON, rate=RATE, lattice=Lattice("A2"))
            if split == "iid" and name == "linear":
                for epsilon in STRICTER:
                    coders[f"jopeq, ε = {epsilon:g}"] = JoPEQ(epsilon=epsilon, rate=RATE)
            for label, coder in coders.items():
                where = {"problem": name, "split": split, "scheme": label}
                # with a public clip the curve grows from the start: fewer rounds show it
                rounds = effort.rounds // 4 if label == CLIPPED else effort.rounds
                zeros = np.zeros(problem.parameters)
                rows.append({**where, **_row(problem, coder, rounds, effort.seeds, zeros)})
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
        "recursion": _recursion(),
    }


def _row(
    problem: Problem, coder: JoPEQ | None, rounds: int, seeds: int, start: Array
) -> dict[str, Any]:
    times, losses, gradient_bounds, lemmas = _train(problem, coder, rounds, seeds, start)
    variance = 0.0 if coder is None else coder.target.noise.variance * coder.dimension
    bound = problem.bound(gradient_bounds, variance, start)
    mean = losses.mean(axis=0)
    late = times + bound.phi >= TAIL * (times[-1] + bound.phi)
    shifted = (times[late] + bound.phi).tolist()
    return {
        **{name: getattr(bound, name) for name in ("convexity", "smoothness", "gap", "phi", "b")},
        "distance": bound.start,
        "start": problem.loss(start) - problem.loss(problem.optimum),
        "parameters": problem.parameters,
        "times": times.tolist(),
        "losses": mean.tolist(),
        "lowest": losses.min(axis=0).tolist(),
        "highest": losses.max(axis=0).tolist(),
        "lemmas": (lemmas / bound.lemmas).tolist(),  # measured over allowed, C.1 and C.2
        "slope": slope(shifted, mean[late].tolist()),
        "slopes": [slope(shifted, one[late].tolist()) for one in losses],
        **{form: bound.at(times, form).tolist() for form in FORMS},
    }


def _train(
    problem: Problem, coder: Scheme | None, rounds: int, seeds: int, start: Array
) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Some t, F(w_t) − F* of every seed there, and the largest E_i‖∇F_k^i‖² of each client.

    Last what Lemmas C.1 and C.2 bound, over η_t²: ‖g̃ − g‖² at the step that transmits and the
    largest Σα‖v − w_k‖² of a step, both as means over rounds and seeds.

    Step sizes are the theorem's; without ``coder`` updates are averaged as they are.
    """
    schedule = problem.bound(np.ones(problem.clients), 0.0, start)
    rng = np.random.default_rng(len(problem.inputs) + problem.parameters)
    kept = set(np.unique(np.geomspace(1, rounds, 40).astype(int)).tolist())
    model = np.tile(start, (seeds, 1))
    best = problem.loss(problem.optimum)
    largest = np.zeros(problem.clients)
    times: list[int] = []
    losses: list[list[float]] = []
    noisy, apart = np.zeros(rounds), np.zeros((rounds, TAU))
    for turn in range(rounds):
        local = np.repeat(model[:, None], problem.clients, axis=1)
        for step in range(TAU):
            largest = np.maximum(largest, problem.squared_gradients(local).max(axis=0))
            chosen = rng.integers(problem.inputs.shape[1], size=local.shape[:2])
            eta = float(schedule.step_size(turn * TAU + step))
            mean = np.einsum("k,skm->sm", problem.weights, local)
            squares = np.square(local - mean[:, None]).sum(axis=2) @ problem.weights
            apart[turn, step] = squares.mean() / eta**2
            drawn = problem.gradient(local, chosen)
            excess = drawn - problem.gradients(local)
            local -= eta * drawn
        updates = local - model[:, None]
        sent = updates.copy()
        if coder is not None:
            for place in np.ndindex(updates.shape[:2]):
                label = (coder.spec, turn, *place)
                payload = coder.encode(updates[place], seed=seed(*label), noise=noise(*label))
                updates[place] = coder.decode(payload)
        model = model + np.einsum("k,skm->sm", problem.weights, updates)
        off = np.einsum("k,skm->sm", problem.weights, excess - (updates - sent) / eta)
        noisy[turn] = np.square(off).sum(axis=1).mean()
        if turn + 1 in kept:
            times.append((turn + 1) * TAU)
            losses.append([problem.loss(w) - best for w in model])
    lemmas = np.array([noisy.mean(), apart.mean(axis=0).max()])
    return np.array(times), np.array(losses).T, largest, lemmas


def _first_scale(problem: Problem) -> float:
    """A clip that the first updates just fill: the paper's scale of the longest of them."""
    zeros = np.zeros((problem.clients, problem.parameters))
    schedule = problem.bound(np.ones(problem.clients), 0.0, zeros[0])
    gradients = problem.squared_gradients(zeros)
    longest = TAU * float(schedule.step_size(0)) * float(np.sqrt(gradients.max()))
    return float(np.float32(3.0 * longest / np.sqrt(problem.parameters)))


def _recursion(steps: int = 20_000) -> list[dict[str, Any]]:
    """Largest (t + φ)·δ_t of the proof's own recursion, over the λ that is meant to bound it."""
    rows = []
    for tau in (1, 2, 5, 20):
        bound = ConvergenceBound(
            tau=tau, convexity=0.5, smoothness=0.5, gap=0.0, variance=0.0,
            weights=(1.0,), gradient_bounds=(100.0,), start=0.0,
        )  # fmt: skip
        reached = max(bound.recursion(steps))
        ratios = {form: reached / bound.constant(form) for form in FORMS}
        rows.append({"tau": tau, "convexity": bound.convexity, "steps": steps, **ratios})
    return rows
