"""Any lattice of the plane: Lagrange reduction, exact nearest point, the hexagonal cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Planar:
    """A reduced basis (rows b1, b2) with |b1| ≤ |b2| and 0 ≤ b1·b2 ≤ |b1|²/2.

    The triangle (0, b1, b2) then has no obtuse angle, so the nearest lattice point of any point is
    a vertex of the parallelogram around it.
    """

    basis: Array

    @classmethod
    def reduced(cls, generator: Array) -> Planar:
        """Reduce the columns of ``generator`` (Lagrange–Gauss)."""
        b1, b2 = generator[:, 0].copy(), generator[:, 1].copy()
        scale = np.abs(generator).max()
        if abs(b1[0] * b2[1] - b1[1] * b2[0]) <= 1e-9 * scale * scale:
            raise ValueError(f"generator must have independent columns, got {generator.tolist()}")
        while True:
            if _dot(b1, b1) > _dot(b2, b2):
                b1, b2 = b2, b1
            multiple = np.floor(_dot(b1, b2) / _dot(b1, b1) + 0.5)
            shorter = b2 - multiple * b1
            # when b1·b2 = ±|b1|²/2, rounding could otherwise add and subtract b1 for ever
            if not _dot(shorter, shorter) < _dot(b2, b2):
                break
            b2 = shorter
        if _dot(b1, b2) < 0:
            b2 = -b2
        return cls(np.stack((b1, b2)))

    def nearest(self, coordinates: Array) -> Array:
        """Nearest lattice point, both in coordinates of the reduced basis."""
        b1, b2 = self.basis
        g11, g12, g22 = _dot(b1, b1), _dot(b1, b2), _dot(b2, b2)
        corner = np.floor(coordinates)
        best = corner.copy()
        best_distance = np.full(len(corner), np.inf)
        for offset in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            candidate = corner + np.array(offset)
            a, b = (coordinates - candidate).T
            distance = g11 * a * a + 2.0 * g12 * a * b + g22 * b * b
            is_better = distance < best_distance
            best[is_better] = candidate[is_better]
            best_distance = np.where(is_better, distance, best_distance)
        return best

    @property
    def aspect(self) -> float:
        """|b2|/|b1|: how much longer the cell is than wide."""
        b1, b2 = self.basis
        return float(np.linalg.norm(b2) / np.linalg.norm(b1))

    @property
    def area(self) -> float:
        return float(abs(np.linalg.det(self.basis)))

    @property
    def covering_radius(self) -> float:
        """Circumradius of the triangle (0, b1, b2): abc / (4·area)."""
        b1, b2 = self.basis
        sides = np.linalg.norm(b1) * np.linalg.norm(b2) * np.linalg.norm(b1 - b2)
        return float(sides / (2.0 * self.area))

    @property
    def covariance(self) -> Array:
        """Second moments of a uniform point of the Voronoi hexagon, triangle by triangle."""
        b1, b2 = self.basis
        ring = [b1, b2, b2 - b1, -b1, -b2, b1 - b2]
        corners = [_circumcentre(u, v) for u, v in zip(ring, ring[1:] + ring[:1], strict=True)]
        total = np.zeros((2, 2))
        for p, q in zip(corners, corners[1:] + corners[:1], strict=True):
            area = abs(p[0] * q[1] - p[1] * q[0]) / 2.0
            edges = np.outer(p, p) + np.outer(q, q) + np.outer(p + q, p + q)
            total += area / 12.0 * edges
        return total / self.area


def _dot(u: Array, v: Array) -> float:
    """u·v with every product rounded, alike on all machines; BLAS may fuse the last one."""
    return float(u[0] * v[0] + u[1] * v[1])


def _circumcentre(u: Array, v: Array) -> Array:
    """The point equally far from 0, u and v."""
    centre = np.linalg.solve(np.stack((u, v)), np.array([u @ u, v @ v]) / 2.0)
    return np.asarray(centre, dtype=np.float64)
