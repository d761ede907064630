"""Compute what Sections II and III say in passing: scale, laws of noise, eavesdroppers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from jopeq.entries.quantized import JoPEQ
from jopeq.noise import DIAMETER
from jopeq.registry import scheme
from paper.theorems.bounds import dithered_density, radius_at
from paper.theorems.setting import Effort, noise, seed

Array = NDArray[np.float64]

EPSILON, RATE, DELTA = 4.0, 2.0, 1e-5
UPDATES = ("normal", "laplace", "worst case")
RADII = (1e-1, 1e-3, 1e-6, 1e-12)
LAWS = ("laplace", "t", "l2", "gaussian")
LAW_EPSILONS, LATTICES = (1.0, 2.0, 4.0, 8.0), ("A2", "D4", "E8")
SEEN = ((2.0, 2.0), (3.0, 1.0), (4.0, 1.0), (4.0, 2.0), (4.0, 3.0))  # ε and R on A2
_ANGLES, _EDGE = 360, 48


def mechanisms_part(effort: Effort) -> dict[str, Any]:
    """Compute all four parts."""
    return {
        "scale": [_inside(kind, effort.samples) for kind in UPDATES],
        "elliptical": [_elliptical(dimension) for dimension in (1, 2, 3, 8)],
        "radii": RADII,
        "epsilon": EPSILON,
        "rate": RATE,
        "laws": [_law(*place) for place in itertools.product(LATTICES, LAW_EPSILONS, LAWS)],
        "network": [_network(*where, rings=effort.samples >> 8) for where in SEEN],
    }


def _inside(kind: str, entries: int) -> dict[str, Any]:
    """Shares of the samples that are not clipped, as payloads of JoPEQ count them.

    The worst case has a ninth of its samples just beyond 3 standard deviations, the others at 0.
    """
    entries -= entries % 18
    rng = np.random.default_rng(list(kind.encode()))
    worst = np.where(np.arange(entries) % 18 < 2, rng.choice([-1.0, 1.0], entries), 0.0)
    update = worst if kind == "worst case" else getattr(rng, kind)(size=entries)
    shares = {}
    for lattice in ("Z", "A2"):
        coder = JoPEQ(epsilon=EPSILON, rate=RATE, lattice=lattice, spread=3.0 * (1.0 - 1e-6))
        _, counted = coder.encode(update, seed=seed(kind), noise=noise(kind), counts=True)
        shares[lattice] = 1.0 - counted.clipped / counted.samples
    return {"update": kind, **shares}


def _elliptical(dimension: int) -> dict[str, Any]:
    """log f(r)/f(r − Δ) next to the centre, Δ = 2: the scale is that of ε = 4 in one dimension.

    The density of √E·N, E exponential and N normal, is ∝ r^{1 − d/2}·K_{d/2 − 1}(r/b).
    """
    scale, order = DIAMETER / EPSILON, 0.5 * dimension - 1.0

    def log_density(r: float) -> float:
        return -order * math.log(r) + math.log(special.kve(order, r / scale)) - r / scale

    ratios = [log_density(radius) - log_density(DIAMETER - radius) for radius in RADII]
    return {"dimension": dimension, "ratios": ratios}


def _law(lattice: str, epsilon: float, law: str) -> dict[str, Any]:
    given = {"epsilon": epsilon, "rate": RATE, "lattice": lattice, "law": law}
    coder = scheme("jopeq", **given, delta=DELTA if law == "gaussian" else None)
    proven = coder.guarantee.epsilon
    return {
        "law": law,
        "lattice": lattice,
        "epsilon": epsilon,
        "variance": coder.target.noise.variance,
        "proven": proven if math.isfinite(proven) else None,
    }


def _network(epsilon: float, rate: float, *, rings: int) -> dict[str, Any]:
    """max over letters and inputs of the ball of log P(letter | x)/P(letter | x′), on A2."""
    coder = JoPEQ(epsilon=epsilon, rate=rate, lattice="A2")
    circle = _circle(2.0 * math.pi * np.arange(_EDGE) / _EDGE)
    chances = letter_chances(coder, np.concatenate((np.zeros((1, 2)), 0.5 * circle, circle)), rings)
    server = coder.guarantee.epsilon
    return {
        "epsilon": epsilon,
        "rate": rate,
        "server": server if math.isfinite(server) else None,
        "network": float(np.ptp(np.log(chances), axis=0).max()),
        "mass": float(chances[0].sum()),
    }


def _circle(angles: Array) -> Array:
    return np.stack((np.cos(angles), np.sin(angles)), axis=1)


def letter_chances(coder: JoPEQ, inputs: Array, rings: int) -> Array:
    """P(letter | x) of each input, dither and noise averaged out.

    It is the mean over ‖target‖ ≤ r, in which the target's mass is uniform, and over directions;
    every point is weighted by the density of noise plus dither over the target's.
    """
    target = coder.target.noise
    radii = radius_at(target, (np.arange(rings) + 0.5) / rings)
    around = 2.0 * math.pi * (np.arange(_ANGLES) + 0.5) / _ANGLES
    points = (radii[:, None, None] * _circle(around)).reshape(-1, 2)
    weights = dithered_density(coder.noise, coder.cells.step, points) / target.density(points)
    named = (coder.codebook.quantize(x + points)[0] for x in inputs)
    letters = coder.codebook.letters
    return np.array([np.bincount(one, weights, letters) for one in named]) / len(points)
