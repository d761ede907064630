"""Theorem II.5 measured: is the error of subtractive dither uniform, whatever the input?

Errors are those of real payloads. Written in basis coordinates and taken modulo 1, a point that is
uniform on the Voronoi cell is uniform on the unit cube, which is what the tests look at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.experiments.theory_setting import Effort, noise, seed
from jopeq.lattice import NAMES, Lattice
from jopeq.schemes import scheme
from jopeq.schemes.quantized import QuantizedScheme

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

INPUTS = 8  # fixed points; the law of the error given any one of them must be the same
RATE = 2.0
_BINS = {"Z": 64, "A2": 8, "D4": 3, "E8": 2}  # along each coordinate
_CURVE = 64
_RADII = np.round(np.arange(0.0, 1.3001, 0.05), 2)
_SHRINK = 1.0 - 1e-5  # decoded values are float32: points on the border may land just outside


def dither_part(effort: Effort) -> dict[str, Any]:
    """p-values of every test on every lattice, and when codebooks overload."""
    return {
        "samples": effort.samples,
        "inputs": INPUTS,
        "lattices": [_lattice(name, effort.samples) for name in NAMES],
        "control": _control(effort.samples),
        "rate": RATE,
        "overload": [_overload(name, effort.samples // 16) for name in NAMES],
    }


def errors_by_input(name: str, lattice: str, samples: int) -> tuple[Integers, Array]:
    """Which input each sample was, and what its payload made of it: decoded minus input."""
    size = Lattice(lattice).dimension
    rng = np.random.default_rng(list(lattice.encode()))
    points = rng.uniform(-3.0, 3.0, (INPUTS, size)).astype(np.float32)
    labels = rng.integers(INPUTS, size=samples)
    coder = scheme(name, lattice=lattice, coding="entropy", step=1.0, clip=1.0)
    label = f"{name} {lattice}"
    payload = coder.encode(points[labels].ravel(), seed=seed(label), noise=noise(label))
    decoded = coder.decode(payload).astype(np.float64).reshape(samples, size)
    return labels, decoded - points[labels]


def folded(lattice: str, errors: Array) -> Array:
    """Basis coordinates modulo 1."""
    return np.asarray((errors @ np.linalg.inv(Lattice(lattice).basis)) % 1.0)


def _lattice(name: str, samples: int) -> dict[str, Any]:
    from scipy import stats

    cells = Lattice(name)
    labels, errors = errors_by_input("sdq", name, samples)
    unit = folded(name, errors)
    bins = _bins(name, unit)
    power = np.square(errors).mean(axis=1)
    deviation = float(power.std()) / samples**0.5
    fits = [stats.kstest(column, "uniform") for column in unit.T]
    return {
        "lattice": name,
        "dimension": cells.dimension,
        "outside": int(np.count_nonzero(cells.nearest(errors * _SHRINK).any(axis=1))),
        "kolmogorov": [float(fit.statistic) for fit in fits],
        "p_coordinate": [float(fit.pvalue) for fit in fits],
        "p_joint": float(stats.chisquare(np.bincount(bins, minlength=_count(name))).pvalue),
        "p_input": _independence(labels, bins),
        "p_neighbour": _independence(_coarse(name, bins[::2]), _coarse(name, bins[1::2])),
        "second_moment": float(power.mean()),
        "second_moment_expected": cells.second_moment,
        "second_moment_sigmas": (float(power.mean()) - cells.second_moment) / deviation,
        "bridges": [_bridge(column) for column in unit.T],
    }


def _control(samples: int) -> dict[str, Any]:
    """The same test where the theorem does not hold: the dither stays in."""
    labels, errors = errors_by_input("dq", "A2", samples)
    bins = _bins("A2", folded("A2", errors))
    return {"scheme": "dq", "lattice": "A2", "p_input": _independence(labels, bins)}


def _count(name: str) -> int:
    return int(_BINS[name] ** Lattice(name).dimension)


def _bins(name: str, unit: Array) -> Integers:
    """One number for the box of the unit cube that each row lies in."""
    each = np.minimum((unit * _BINS[name]).astype(np.int64), _BINS[name] - 1)
    return np.asarray(each @ _BINS[name] ** np.arange(each.shape[1]))


def _coarse(name: str, bins: Integers) -> Integers:
    return bins * 16 // _count(name)


def _independence(first: Integers, second: Integers) -> float:
    from scipy import stats

    kept = np.unique(second, return_inverse=True)[1]
    table = np.zeros((int(first.max()) + 1, int(kept.max()) + 1))
    np.add.at(table, (first, kept), 1)
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def _bridge(column: Array) -> list[float]:
    """√n·(F_n − F) on a grid: a Brownian bridge when F is right."""
    grid = np.linspace(0.0, 1.0, _CURVE + 1)
    below = np.searchsorted(np.sort(column), grid) / len(column)
    return [round(float(v), 4) for v in len(column) ** 0.5 * (below - grid)]


def _overload(name: str, samples: int) -> dict[str, Any]:
    """Share of samples beyond a fixed-rate codebook, by their distance from the origin."""
    coder = scheme("sdq", lattice=name, rate=RATE, clip=1.0)
    if not isinstance(coder, QuantizedScheme):
        raise TypeError(f"sdq should be a quantized scheme, got {coder.spec}")
    gamma = coder._codebook.gamma
    rng = np.random.default_rng([1, *name.encode()])
    shares = []
    for index, radius in enumerate(_RADII):
        normals = rng.normal(size=(samples, coder.dimension))
        points = radius * gamma * normals / np.linalg.norm(normals, axis=1, keepdims=True)
        label = f"overload {name}"
        _, counted = coder.encode(
            points.ravel(), seed=seed(label, index), noise=noise(label), statistics=True
        )
        shares.append(counted.overloaded / counted.samples)
    return {"lattice": name, "gamma": gamma, "radii": _RADII.tolist(), "overloaded": shares}
