"""Lattices given by a generator matrix: reduction, enumeration, nearest point, Voronoi cell.

The cell is bounded by its *relevant* vectors, those v for which ±v alone are the shortest of v + 2Λ
(Voronoi 1908): at most 2^L − 1 pairs, which a sphere decoder finds (Fincke and Pohst 1985). Points
x of the cell have |x·v| ≤ |v|²/2 for all of them. Any other x becomes shorter when a multiple of v
is taken off, which ends at the nearest point (Sommer, Feder and Shalvi 2009).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_POINTS = 1 << 22  # that any list may have on its way
MAX_DIMENSION = 8
_MOST_SKEWED = 1e12  # condition number, beyond which rounding makes columns dependent
_TIE = 1e-13  # relative difference of squared lengths that are taken as equal
_SLACK = 0.5 + 2.0**-47  # beyond this share of v a point is outside its cell
_BLOCK = 1 << 21  # products that are held at a time
_MOST_VERTICES, _DRAWS = 5, 1 << 16  # from six dimensions on, a cell has thousands of vertices


@dataclass(frozen=True, eq=False)
class Reduced:
    """A basis (rows) that is short and nearly orthogonal, and the cell of its lattice."""

    basis: Array

    @classmethod
    def of(cls, generator: Array) -> Reduced:
        """Reduce the columns of ``generator``, in the plane as Lagrange and Gauss do.

        The shortest vectors come first; each is made as short as the ones before it can make it.
        """
        rows = [column.copy() for column in generator.T]
        if not np.linalg.cond(generator) < _MOST_SKEWED:
            raise ValueError(f"generator must have independent columns, got {generator.tolist()}")
        place = 0
        while place < len(rows):
            rows[: place + 1] = sorted(rows[: place + 1], key=lambda row: _dot(row, row))
            shorter = _nearest_plane(rows[place], rows[:place])
            # when b1·b2 = ±|b1|²/2, rounding could otherwise add and subtract b1 for ever
            if _dot(shorter, shorter) < _dot(rows[place], rows[place]):
                rows[place], place = shorter, 0
            else:
                place += 1
        for index in range(1, len(rows)):
            if _dot(rows[0], rows[index]) < 0:
                rows[index] = -rows[index]
        return cls(np.stack(rows))

    @cached_property
    def relevant(self) -> Integers:
        """Coordinates of one relevant vector of every pair."""
        found = []
        _, *cosets = itertools.product((0.0, 0.5), repeat=len(self.basis))
        for shift in map(np.array, cosets):
            radius = float(np.linalg.norm(shift @ self.basis))
            points = points_within(self.basis, shift, radius) + shift
            lengths = np.square(points @ self.basis).sum(axis=1)
            shortest = points[lengths <= lengths.min() * (1.0 + _TIE)]
            if len(shortest) == 2:
                found.append(2.0 * shortest[0])
        return np.rint(found).astype(np.int64)

    @cached_property
    def shortest(self) -> float:
        """Length of the shortest lattice vector but 0, which is always relevant."""
        return float(np.linalg.norm(self.relevant @ self.basis, axis=1).min())

    @cached_property
    def _shares(self) -> Array:
        """Column v: the factors that turn the coordinates of x into x·v/|v|²."""
        vectors = self.relevant @ self.basis
        return np.asarray(self.basis @ vectors.T / np.square(vectors).sum(axis=1))

    def nearest(self, coordinates: Array) -> Array:
        """Coordinates of the nearest lattice point of each column of coordinates."""
        corner = np.floor(coordinates.T + 0.5)
        rest = coordinates.T - corner
        rows = max(1, _BLOCK // len(self.relevant))
        for first in range(0, len(rest), rows):
            self._slice(rest[first : first + rows], corner[first : first + rows])
        return corner.T

    def _slice(self, rest: Array, corner: Array) -> None:
        """Move ``rest`` into the cell, and ``corner`` with it; both in place."""
        active = np.arange(len(rest))
        while active.size:
            x = rest[active]
            shares = products(x, self._shares)
            which = np.argmax(np.abs(shares), axis=1)
            share = shares[np.arange(len(x)), which]
            is_outside = np.abs(share) > _SLACK
            active, which, share = active[is_outside], which[is_outside], share[is_outside]
            moves = np.rint(share)[:, None] * self.relevant[which]
            rest[active] -= moves
            corner[active] += moves

    # The cell

    @cached_property
    def vertices(self) -> Array:
        """The corners of the cell."""
        from scipy.spatial import HalfspaceIntersection

        vectors = self.relevant @ self.basis / self.shortest
        both = np.concatenate((vectors, -vectors))
        halfspaces = np.column_stack((both, -0.5 * np.square(both).sum(axis=1)))
        found = HalfspaceIntersection(halfspaces, np.zeros(len(self.basis)))
        return np.asarray(found.intersections * self.shortest)

    @cached_property
    def covering_radius(self) -> float:
        """Largest distance from the lattice; beyond five dimensions, Babai's bound on it."""
        if len(self.basis) <= _MOST_VERTICES:
            return float(np.linalg.norm(self.vertices, axis=1).max())
        return float(0.5 * np.linalg.norm(np.linalg.qr(self.basis.T)[1].diagonal()))

    @cached_property
    def covariance(self) -> Array:
        """Second moments of a uniform point of the cell, simplex by simplex.

        Beyond five dimensions the mean over 65,536 points of a Kronecker sequence: three digits.
        """
        size = len(self.basis)
        if size > _MOST_VERTICES:
            step = 0.5 ** (np.arange(1, size + 1) / (size + 1.0))
            points = np.arange(0.5, _DRAWS)[:, None] * step % 1.0
            cell = (points - self.nearest(points.T).T) @ self.basis
            return np.asarray(cell.T @ cell / _DRAWS)
        from scipy.spatial import ConvexHull

        corners = self.vertices[ConvexHull(self.vertices / self.shortest).simplices]
        volumes = np.abs(np.linalg.det(corners / self.shortest))
        sums = corners.sum(axis=1)
        moments = np.einsum("sij,sik->sjk", corners, corners) + np.einsum("sj,sk->sjk", sums, sums)
        total = np.einsum("s,sjk->jk", volumes / volumes.sum(), moments)
        return np.asarray(total / ((size + 1) * (size + 2)))


def products(rows: Array, matrix: Array) -> Array:
    """rows @ matrix, product by product: equal on all machines, while BLAS may fuse roundings."""
    total = rows[..., :1] * matrix[0]
    for index in range(1, len(matrix)):
        total = total + rows[..., index : index + 1] * matrix[index]
    return np.asarray(total)


def _dot(u: Array, v: Array) -> float:
    return float(products(u, v[:, None])[0])


def _nearest_plane(row: Array, earlier: list[Array]) -> Array:
    """``row`` less the point of the earlier rows' lattice that Babai's rounding finds."""
    turned: list[Array] = []  # orthogonalized
    for vector in earlier:
        rest = vector.copy()
        for other in turned:
            rest = rest - _dot(rest, other) / _dot(other, other) * other
        turned.append(rest)
    for vector, other in zip(reversed(earlier), reversed(turned), strict=True):
        row = row - math.floor(_dot(row, other) / _dot(other, other) + 0.5) * vector
    return row


def points_within(basis: Array, shift: Array, radius: float) -> Integers:
    """Integer coordinates l with |(l + shift)·basis| ≤ radius, counted before they are listed."""
    # basis.T = Q·R, so |basis.T @ c|² = |R @ c|²: fix coordinates from the last to the first
    triangle = np.linalg.qr(basis.T)[1]
    size = len(basis)
    limit = radius * radius * (1 + 1e-9)
    partial = np.zeros((1, size))
    energy = np.zeros(1)
    for k in reversed(range(size)):
        slope = triangle[k, k]
        rest = partial[:, k + 1 :] @ triangle[k, k + 1 :]
        span = np.sqrt(np.maximum(limit - energy, 0.0))
        ends = np.stack(((-span - rest) / slope, (span - rest) / slope))
        low = np.ceil(ends.min(axis=0) - shift[k] - 1e-9).astype(np.int64)
        high = np.floor(ends.max(axis=0) - shift[k] + 1e-9).astype(np.int64)
        counts = np.maximum(high - low + 1, 0)
        if counts.sum(dtype=np.float64) > MAX_POINTS:
            raise ValueError(
                f"the lattice has more than {MAX_POINTS} points to list within {radius:g}: "
                "lower rate, or make the cells rounder"
            )
        owner = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        partial = partial[owner]
        partial[:, k] = low[owner] + within + shift[k]
        energy = energy[owner] + (slope * partial[:, k] + rest[owner]) ** 2
    return np.rint(partial - shift).astype(np.int64)
