"""The law of noise plus dither on A2, and how far it is from the multivariate t (Theorem III.1).

The density of n + u at x is P(n ∈ x − P0)/|P0|, a probability of a hexagon under a t law centred
at the origin, and this is a sum of one-dimensional integrals, one an edge: in polar coordinates

    P(n ∈ polygon) = Σ over edges of ±(1/2π)·∫ G(r(θ)) dθ
    G(r) = P(‖n‖ ≤ r) = 1 − (1 + r²/νs²)^{−ν/2}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice import Lattice
from jopeq.noise import MultivariateT
from jopeq.schemes.jopeq import JoPEQ

Array = NDArray[np.float64]

_RINGS, _ANGLES, _NODES = 600, 8, 48


@dataclass(frozen=True)
class PlaneDistance:
    """Distance of the total error from its target, and how far the total mass is from 1.

    ``kolmogorov`` is that of the norm ‖n + u‖; the law of the target's is known exactly.
    ``defect`` is |∫f − 1| of the computed density: what the quadrature misses.
    """

    kolmogorov: float
    total_variation: float
    defect: float


def hexagon(step: float) -> Array:
    """The corners of the Voronoi cell of A2 with shortest vector ``step``, anticlockwise."""
    angles = math.pi / 6 + math.pi / 3 * np.arange(6)
    return step / math.sqrt(3) * np.stack((np.cos(angles), np.sin(angles)), axis=1)


def radial_distribution(law: MultivariateT, r: Array) -> Array:
    """P(‖n‖ ≤ r) of an isotropic t law in the plane."""
    return np.asarray(-np.expm1(-0.5 * law.nu * np.log1p(r * r / (law.nu * squared_scale(law)))))


def radius_at(law: MultivariateT, chance: Array) -> Array:
    """The r with P(‖n‖ ≤ r) = chance."""
    growth = np.expm1(-2.0 / law.nu * np.log1p(-chance))
    return np.asarray(np.sqrt(law.nu * squared_scale(law) * growth))


def squared_scale(law: MultivariateT) -> float:
    """s² of Σ = s²·I in the plane."""
    if law.dimension != 2 or not isinstance(law.squared_scale, (int, float)):
        raise ValueError(f"an isotropic t law in the plane is needed, got {law}")
    return float(law.squared_scale)


def dithered_density(noise: MultivariateT | None, step: float, points: Array) -> Array:
    """The density of n + u at each row of ``points``, u uniform on the cell of A2."""
    corners = hexagon(step)
    volume = Lattice("A2", step=step).cell_volume
    chance = np.zeros(len(points))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    is_inside = np.ones(len(points), dtype=bool)
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along = (end - start) / np.linalg.norm(end - start)
        first, last = (start - points) @ along, (end - points) @ along
        offset = start - points
        height = offset[:, 0] * along[1] - offset[:, 1] * along[0]  # signed distance to the edge
        is_inside &= height >= 0
        if noise is None:
            continue
        near = np.maximum(np.abs(height), 1e-300)
        low, high = np.arctan2(first, near), np.arctan2(last, near)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        angle = middle[:, None] + half[:, None] * nodes
        # cos of an angle that rounds to π/2 is 6e-17, and the edge that far away covers everything
        edge = near[:, None] / np.maximum(np.cos(angle), 1e-17)
        swept = half * (radial_distribution(noise, edge) @ weights)
        chance += np.sign(height) * swept / (2.0 * math.pi)
    return (is_inside.astype(np.float64) if noise is None else chance) / volume


def plane_distance(scheme: JoPEQ, rings: int = _RINGS) -> PlaneDistance:
    """How far the total error of JoPEQ on A2 is from its t target, overload aside.

    Integrals are taken over q = P(‖target‖ ≤ r), where the target's mass is uniform, by the
    midpoint rule, and over the sector of 30° that the symmetries of the cell repeat twelve times.
    """
    target, noise = scheme._target.noise, scheme.noise
    if scheme.lattice.name != "A2" or not isinstance(target, MultivariateT):
        raise ValueError(f"plane_distance needs a t target on A2, got {scheme.spec}")
    matched = noise if isinstance(noise, MultivariateT) else None
    nodes, weights = np.polynomial.legendre.leggauss(_ANGLES)
    angles = math.pi / 12 * (nodes + 1.0)
    chances = (np.arange(rings) + 0.5) / rings
    radii = radius_at(target, chances)
    points = radii[:, None, None] * np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    flat = points.reshape(-1, 2)
    ratio = dithered_density(matched, scheme._cells.step, flat) / target.density(flat)
    ratio = ratio.reshape(rings, _ANGLES)
    variation = 0.5 * float((np.abs(ratio - 1.0) @ weights).mean()) / 2.0
    mass = (ratio @ weights) / 2.0
    ahead = np.cumsum(mass) / rings - np.arange(1, rings + 1) / rings
    return PlaneDistance(float(np.abs(ahead).max()), variation, abs(float(mass.mean()) - 1.0))
