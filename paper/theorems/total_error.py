"""Theorems III.1 and III.2 computed: how far the total error is from the law it was made for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.entries.quantized import JoPEQ
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Law, MultivariateT
from jopeq.schemes.base import Scheme
from paper.theorems.bounds import (
    overload_chance,
    plane_distance,
    radial_distribution,
    scalar_distance,
    total_error,
)
from paper.theorems.setting import Effort, noise, seed, without_overload

Array = NDArray[np.float64]

EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
PLANE_RATES = (1.0, 1.5, 2.0, 3.0, 4.0)
CHECKED = ((2.0, 2.0), (4.0, 1.0), (4.0, 3.0))  # ε and R that are sent as well
SHOWN = (4.0, (1.0, 3.0))  # ε and rates whose densities are drawn


def total_error_part(effort: Effort) -> dict[str, Any]:
    """Distances over ε and R on Z and on A2."""
    return {
        "samples": effort.samples,
        "line": [_line(epsilon, rate) for epsilon in EPSILONS for rate in RATES],
        "plane": [_plane(epsilon, rate) for epsilon in EPSILONS for rate in PLANE_RATES],
        "checked": [
            _checked(epsilon, rate, lattice, effort.samples)
            for lattice in ("Z", "A2")
            for epsilon, rate in CHECKED
        ],
        "densities": _densities(),
    }


def _line(epsilon: float, rate: float) -> dict[str, Any]:
    coder = JoPEQ(epsilon=epsilon, rate=rate)
    overload = {"overload_centre": overload_chance(coder, 0.0)}
    overload["overload_edge"] = overload_chance(coder, 1.0)
    return _distances(coder, scalar_distance(coder), overload)


def _plane(epsilon: float, rate: float) -> dict[str, Any]:
    coder = JoPEQ(epsilon=epsilon, rate=rate, lattice=Lattice("A2"))
    found = plane_distance(coder)
    return _distances(coder, found, {"defect": found.defect})


def _distances(coder: JoPEQ, found: Any, others: dict[str, float]) -> dict[str, Any]:
    where = {"epsilon": coder.epsilon, "rate": coder.rate}
    apart = {"kolmogorov": found.kolmogorov, "total_variation": found.total_variation}
    return {**where, **apart, **others, "has_noise": coder.noise is not None}


def _sent_errors(coder: Scheme, samples: int) -> Array:
    """Decoded minus sent, for inputs all over the unit ball; needs clip=1 and no overload."""
    rng = np.random.default_rng(list(coder.spec.encode()))
    normals = rng.normal(size=(samples, coder.dimension))
    radii = 0.999 * rng.uniform(size=(samples, 1)) ** (1 / coder.dimension)
    points = (radii * normals / np.linalg.norm(normals, axis=1, keepdims=True)).astype(np.float32)
    streams = {"seed": seed(coder.spec), "noise": noise(coder.spec)}
    payload, counted = coder.encode(points.ravel(), **streams, counts=True)
    if counted.overloaded:
        raise RuntimeError(f"{counted.overloaded} samples were overloaded: take more letters")
    return np.asarray(coder.decode(payload).reshape(points.shape).astype(np.float64) - points)


def _checked(epsilon: float, rate: float, lattice: str, samples: int) -> dict[str, Any]:
    where = {"epsilon": epsilon, "rate": rate}
    coder = without_overload(JoPEQ(**where, lattice=Lattice(lattice), clip=1.0))
    computed = (_line if lattice == "Z" else _plane)(**where)["kolmogorov"]
    measured = _kolmogorov(_place(coder.target.noise, _sent_errors(coder, samples)))
    return {"lattice": lattice, **where, "computed": computed, "measured": measured}


def _place(target: Law, errors: Array) -> Array:
    """Ranks of the errors in the target's law: uniform on (0, 1) if they follow that law."""
    if isinstance(target, MultivariateT):
        return radial_distribution(target, np.linalg.norm(errors, axis=1))
    return target.distribution(errors[:, 0])


def _kolmogorov(places: Array) -> float:
    ordered = np.sort(places)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))


def _densities() -> dict[str, Any]:
    epsilon, rates = SHOWN
    x = np.linspace(-2.0, 2.0, 161)
    curves = {"Laplace": JoPEQ(epsilon=epsilon, rate=1.0).target.noise.density(x)}
    for rate in rates:
        coder = JoPEQ(epsilon=epsilon, rate=rate)
        curves[f"jopeq, R = {rate:g}"] = total_error(coder).density(x)
    shown = {label: [round(float(v), 5) for v in values] for label, values in curves.items()}
    return {"epsilon": epsilon, "x": [round(float(v), 4) for v in x], "curves": shown}


def resolution(samples: int) -> float:
    """Largest error of a measured Kolmogorov distance (probability 10⁻⁷)."""
    return math.sqrt(math.log(2e7) / (2.0 * samples))
