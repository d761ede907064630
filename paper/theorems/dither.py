"""Theorem II.5 measured: is the error of subtractive dither uniform, whatever the input?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from jopeq import scheme
from jopeq.lattice.codebook import codebook
from jopeq.lattice.lattices import NAMES, Lattice
from paper.theorems.setting import Effort, noise, seed, without_overload

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

INPUTS = 8  # fixed points; given any one of them, the law of the error must be the same
RATE = 2.0
_BINS = {"Z": 64, "A2": 8, "D4": 3, "E8": 2}  # along each coordinate
_RADII = np.round(np.arange(0.0, 1.3001, 0.05), 2)
_SHRINK = 1.0 - 1e-5  # decoded values are float32: points on the border may land just outside


def dither_part(effort: Effort) -> dict[str, Any]:
    """p-values of every test on every lattice, and where codebooks overload.

    The control is the same test where the theorem does not hold: the dither is not subtracted.
    """
    labels, _, unit = _errors("dq", "A2", effort.samples)
    control = _independence(labels, _boxes("A2", unit)[0])
    return {
        "samples": effort.samples,
        "inputs": INPUTS,
        "lattices": [_lattice(name, effort.samples) for name in NAMES],
        "control": {"scheme": "dq", "lattice": "A2", "p_input": control},
        "rate": RATE,
        "overload": [_overload(name, effort.samples // 16) for name in NAMES],
    }


def _errors(name: str, lattice: str, samples: int) -> tuple[Integers, Array, Array]:
    """Each sample's input number, its error (decoded minus input), and that on the unit cube."""
    cell = Lattice(lattice)
    rng = np.random.default_rng(list(lattice.encode()))
    points = rng.uniform(-0.7, 0.7, (INPUTS, cell.dimension)).astype(np.float32)
    labels = rng.integers(INPUTS, size=samples)
    unit = codebook(cell, 1 << cell.dimension).gamma  # at which the cells are those of step 1
    coder = without_overload(scheme(name, lattice=cell, rate=1.0, gamma=unit, clip=1.0))
    label = f"{name} {lattice}"
    streams = {"seed": seed(label), "noise": noise(label)}
    payload, counted = coder.encode(points[labels].ravel(), **streams, counts=True)
    if counted.overloaded:
        raise RuntimeError(f"{counted.overloaded} samples were overloaded: take more letters")
    errors = coder.decode(payload).astype(np.float64).reshape(points[labels].shape) - points[labels]
    return labels, errors, (errors @ np.linalg.inv(cell.basis)) % 1.0


def _lattice(name: str, samples: int) -> dict[str, Any]:
    cell = Lattice(name)
    labels, errors, unit = _errors("sdq", name, samples)
    bins, count = _boxes(name, unit)
    coarse = bins * 16 // count
    power = np.square(errors).mean(axis=1)
    deviation = float(power.std()) / samples**0.5
    fits = [stats.kstest(column, "uniform") for column in unit.T]
    return {
        "lattice": name,
        "dimension": cell.dimension,
        "outside": int(np.count_nonzero(cell.nearest(errors * _SHRINK).any(axis=1))),
        "kolmogorov": [float(fit.statistic) for fit in fits],
        "p_coordinate": [float(fit.pvalue) for fit in fits],
        "p_joint": float(stats.chisquare(np.bincount(bins, minlength=count)).pvalue),
        "p_input": _independence(labels, bins),
        "p_neighbour": _independence(coarse[::2], coarse[1::2]),
        "second_moment": float(power.mean()),
        "second_moment_expected": cell.second_moment,
        "second_moment_sigmas": (float(power.mean()) - cell.second_moment) / deviation,
        "bridges": [_bridge(column) for column in unit.T],
    }


def _boxes(name: str, unit: Array) -> tuple[Integers, int]:
    """The box of the unit cube that each row lies in, and how many boxes there are."""
    bins = _BINS[name]
    each = np.minimum((unit * bins).astype(np.int64), bins - 1)
    return each @ bins ** np.arange(unit.shape[1]), bins ** unit.shape[1]


def _independence(first: Integers, second: Integers) -> float:
    kept = np.unique(second, return_inverse=True)[1]
    table = np.zeros((int(first.max()) + 1, int(kept.max()) + 1))
    np.add.at(table, (first, kept), 1)
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def _bridge(column: Array) -> list[float]:
    """√n·(F_n − F) on a grid: a Brownian bridge when F is right."""
    grid = np.linspace(0.0, 1.0, 65)
    below = np.searchsorted(np.sort(column), grid) / len(column)
    return [round(float(v), 4) for v in len(column) ** 0.5 * (below - grid)]


def _overload(name: str, samples: int) -> dict[str, Any]:
    """Share of samples beyond a fixed-rate codebook, by their distance from the origin."""
    coder = scheme("sdq", lattice=name, rate=RATE, clip=1.0)
    gamma = coder.codebook.gamma
    rng = np.random.default_rng([1, *name.encode()])
    shares = []
    for index, radius in enumerate(_RADII):
        normals = rng.normal(size=(samples, coder.dimension))
        points = radius * gamma * normals / np.linalg.norm(normals, axis=1, keepdims=True)
        label = f"overload {name}"
        streams = {"seed": seed(label, index), "noise": noise(label)}
        _, counted = coder.encode(points.ravel(), **streams, counts=True)
        shares.append(counted.overloaded / counted.samples)
    return {"lattice": name, "gamma": gamma, "radii": _RADII.tolist(), "overloaded": shares}
