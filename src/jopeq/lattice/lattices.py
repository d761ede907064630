"""Lattices: nearest point, Voronoi cell, moments, and a dither uniform on the cell.

A lattice is the set {G·l : l integer}. Four are built in, each with the exact nearest-point rule of
Conway and Sloane (1982); any 2 × 2 generator matrix makes another.

    Z   the integers                                 L = 1
    A2  the hexagonal lattice, shortest vector 1     L = 2
    D4  integer vectors with an even sum             L = 4
    E8  D8 and D8 + (½,…,½)                          L = 8

Work happens in the *frame*: orthogonal coordinates with rational lattice points (for A2 the second
axis is measured in units of √3), in arrays with a row for each coordinate: loops along samples are
long. Dither words are 16-bit integers, so their reduction to the cell
is exact arithmetic there, and every decoder finds the same dither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_MAX_COORDINATE = 2.0**50
MAX_ASPECT = 1000.0  # a codebook around the origin lists about as many points more
_EXTENTS = (1e-38, 1e38)  # whose eighth powers, volumes of cells of E8, are floats


@dataclass(frozen=True)
class Planar:
    """A reduced basis (rows b1, b2) with |b1| ≤ |b2| and 0 ≤ b1·b2 ≤ |b1|²/2.

    The triangle (0, b1, b2) then has no obtuse angle, so the nearest lattice point of any point is
    a vertex of the parallelogram around it.
    """

    basis: Array

    @classmethod
    def reduce(cls, generator: Array) -> Planar:
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
        best_distance = np.full(corner.shape[1], np.inf)
        for offset in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            candidate = corner + np.array(offset)[:, None]
            a, b = coordinates - candidate
            distance = g11 * a * a + 2.0 * g12 * a * b + g22 * b * b
            is_better = distance < best_distance
            best = np.where(is_better, candidate, best)
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


# Nearest points of the built-in lattices, in the frame


def _nearest_integers(x: Array) -> Array:
    return np.floor(x + 0.5)


def _nearest_checkerboard(x: Array) -> Array:
    """D_n: round; if the sum is odd, move the worst-rounded coordinate the other way."""
    rounded = np.floor(x + 0.5)
    error = x - rounded
    columns = np.flatnonzero(np.mod(rounded.sum(axis=0), 2.0))
    worst = np.argmax(np.abs(error[:, columns]), axis=0)
    rounded[worst, columns] += np.where(error[worst, columns] >= 0.0, 1.0, -1.0)
    return rounded


def _nearest_gosset(x: Array) -> Array:
    """E8 = D8 ∪ (D8 + ½)."""
    first, second = _nearest_checkerboard(x), _nearest_checkerboard(x - 0.5) + 0.5
    return np.where(_squares(x - first) <= _squares(x - second), first, second)


def _squares(x: Array) -> Array:
    """The squared length of each column, added from first to last."""
    total = x[0] * x[0]
    for row in x[1:]:
        total += row * row
    return np.asarray(total)


def _nearest_hexagonal(x: Array) -> Array:
    """A2 = (Z × √3Z) ∪ (Z × √3Z + (½, √3/2)), in the frame (x, y/√3).

    The grid point of the first is the nearer one where |x − x₁| + 3|y − y₁| ≤ 1, both distances
    being in the frame; the nearest of the second lies half a step away, on the side of the point.
    """
    first = np.floor(x + 0.5)
    error = x - first
    across, up = np.abs(error)
    up *= 3.0
    up += across
    half = np.subtract(0.5, error < 0.0, out=error)
    half *= up > 1.0
    first += half
    return first


def check_extent(name: str, value: float) -> None:
    """Raise unless a length is positive, and neither so small nor so large that powers of it fail.

    >>> check_extent("gamma", 1e200)
    Traceback (most recent call last):
    ...
    ValueError: gamma must be a positive number, from 1e-38 to 1e+38, got 1e+200
    """
    low, high = _EXTENTS
    if not low <= value <= high:
        raise ValueError(f"{name} must be a positive number, from {low:g} to {high:g}, got {value}")


@dataclass(frozen=True)
class Geometry:
    """A lattice at step 1, in the frame; basis vectors are the rows."""

    basis: Array
    axes: Array  # length of each frame axis
    nearest: Callable[[Array], Array]
    covering_radius: float
    covariance: Array  # of a uniform point of the cell
    halves: tuple[tuple[float, ...], ...]  # half lattice vectors, to centre codebooks of even size

    @cached_property
    def inverse(self) -> Array:
        return np.asarray(np.linalg.inv(self.basis))


def _isotropic(
    basis: ArrayLike,
    nearest: Callable[[Array], Array],
    covering_radius: float,
    normalised_moment: float,
    axes: ArrayLike | None = None,
) -> Geometry:
    rows = np.array(basis, dtype=np.float64)
    size = len(rows)
    lengths = np.ones(size) if axes is None else np.array(axes, dtype=np.float64)
    volume = abs(np.linalg.det(rows)) * np.prod(lengths)
    moment = normalised_moment * volume ** (2.0 / size)
    inverse = np.linalg.inv(rows)
    vectors = [rows[0] / 2.0]
    if size >= 4:  # (1, 0, …, 0), half of (2, 0, …, 0): a deep hole
        vectors.append(np.eye(size)[0])
    halves = tuple(tuple((v @ inverse).tolist()) for v in vectors)
    return Geometry(rows, lengths, nearest, covering_radius, moment * np.eye(size), halves)


_D4_BASIS = [[1, 1, 0, 0], [1, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]]
_E8_BASIS: list[list[float]] = [
    [1, 1, 0, 0, 0, 0, 0, 0],
    *([0.0] * i + [1.0, -1.0] + [0.0] * (6 - i) for i in range(6)),
    [0.5] * 8,
]
_ROOT3 = math.sqrt(3)
_A2_MOMENT = 5 / (36 * _ROOT3)
_BUILT_IN = {
    "Z": _isotropic([[1.0]], _nearest_integers, 0.5, 1 / 12),
    "A2": _isotropic(
        [[1.0, 0.0], [0.5, 0.5]], _nearest_hexagonal, 1 / _ROOT3, _A2_MOMENT, axes=[1.0, _ROOT3]
    ),
    "D4": _isotropic(_D4_BASIS, _nearest_checkerboard, 1.0, 13 / (120 * math.sqrt(2))),
    "E8": _isotropic(_E8_BASIS, _nearest_gosset, 1.0, 929 / 12960),
}
NAMES = tuple(_BUILT_IN)


@dataclass(frozen=True)
class Lattice:
    """A built-in lattice by name, or a planar one by generator, magnified ``step`` times.

    ``generator`` has the basis vectors as columns, as the paper's G.

    >>> hexagonal = Lattice("A2", step=2.0)
    >>> hexagonal.nearest([[1.9, 0.1]]).tolist()          # integers l with point G·l
    [[1, 0]]
    >>> round(Lattice("E8").normalised_second_moment, 6)
    0.071682
    >>> Lattice(generator=((1.0, 0.2), (0.0, 1.1))).dimension
    2
    """

    name: str = "custom"
    step: float = 1.0
    generator: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        check_extent("step", self.step)
        if self.generator is not None:
            matrix = np.asarray(self.generator, dtype=np.float64)
            if matrix.shape != (2, 2) or not np.isfinite(matrix).all():
                raise ValueError(
                    f"generator must be a finite 2×2 matrix, got shape {matrix.shape}: "
                    f"for other dimensions use one of {', '.join(NAMES)}"
                )
            if not 1e-30 <= np.abs(matrix).max() <= 1e30:
                raise ValueError(
                    f"generator must have its largest entry in 1e-30…1e30, got {matrix.tolist()}: "
                    "magnify it"
                )
            if self.name != "custom":
                raise ValueError(f"give either a name or a generator, got both ({self.name!r})")
            object.__setattr__(self, "generator", tuple(map(tuple, matrix.tolist())))
            aspect = Planar.reduce(matrix).aspect  # raises when the columns are dependent
            if aspect > MAX_ASPECT:
                raise ValueError(
                    f"generator must span a lattice whose shortest basis vectors differ at most "
                    f"{MAX_ASPECT:g} times in length, got {matrix.tolist()} ({aspect:.3g} times): "
                    "make the cells rounder"
                )
        elif self.name not in _BUILT_IN:
            raise ValueError(
                f"lattice must be one of {', '.join(NAMES)} or a 2×2 generator, got {self.name!r}"
            )

    @cached_property
    def geometry(self) -> Geometry:
        """The lattice at step 1."""
        if self.generator is None:
            return _BUILT_IN[self.name]
        planar = Planar.reduce(np.array(self.generator))
        # The frame of a planar lattice is its reduced basis; its axes are not orthogonal.
        return Geometry(
            basis=np.eye(2),
            axes=np.ones(2),
            nearest=planar.nearest,
            covering_radius=planar.covering_radius,
            covariance=planar.covariance,
            halves=((0.5, 0.0), (0.0, 0.5), (0.5, 0.5)),
        )

    @cached_property
    def _to_space(self) -> Array:
        """Rows: the frame's axes in space, before magnification."""
        if self.generator is None:
            return np.diag(self.geometry.axes)
        return Planar.reduce(np.array(self.generator)).basis

    @cached_property
    def _from_space(self) -> Array:
        return np.asarray(np.linalg.inv(self._to_space * self.step))

    @property
    def dimension(self) -> int:
        """L, the number of entries quantized together."""
        return len(self.geometry.basis)

    @cached_property
    def cell_volume(self) -> float:
        """|P0|, the volume of a Voronoi cell."""
        unit = abs(np.linalg.det(self.geometry.basis @ self._to_space))
        return float(unit * self.step**self.dimension)

    @property
    def covering_radius(self) -> float:
        """The farthest a point of space can be from the lattice."""
        return self.geometry.covering_radius * self.step

    @cached_property
    def covariance(self) -> Array:
        """Covariance matrix of the dither (uniform on the Voronoi cell)."""
        return self.geometry.covariance * self.step**2

    @property
    def second_moment(self) -> float:
        """Mean squared error of the quantizer per entry: tr(covariance)/L."""
        return float(np.trace(self.covariance)) / self.dimension

    @property
    def normalised_second_moment(self) -> float:
        """The scale-free G(Λ) = second moment / |P0|^(2/L)."""
        return self.second_moment / float(self.cell_volume ** (2.0 / self.dimension))

    @cached_property
    def basis(self) -> Array:
        """Rows: basis vectors in space (the transpose of the paper's G, reduced when planar)."""
        return np.asarray(self.geometry.basis @ self._to_space * self.step)

    def scale(self, step: float) -> Lattice:
        """The same lattice magnified ``step`` times instead."""
        return replace(self, step=step)

    def points(self, coordinates: ArrayLike) -> Array:
        """The points with these basis coordinates (integers, or halves for a shifted lattice)."""
        return self._space((np.asarray(coordinates, dtype=np.float64) @ self.geometry.basis).T).T

    def nearest(self, x: ArrayLike) -> Integers:
        """Basis coordinates of the lattice point nearest to each row of ``x``."""
        return self.coordinates(np.asarray(x, dtype=np.float64).T).T.astype(np.int64)

    def coordinates(self, x: Array) -> Array:
        """The same as whole floats; points are columns."""
        frame = self._frame(x)
        if frame.size and not max(frame.max(), -frame.min()) < _MAX_COORDINATE:
            raise ValueError("x is too far from the origin to be quantized exactly")
        return np.rint(self.geometry.inverse.T @ self.geometry.nearest(frame))

    def dither(self, words: NDArray[np.uint16]) -> Array:
        """Uniform points of the Voronoi cell from rows of L 16-bit words.

        The words name a point G·u of the parallelepiped, u = (w + ½)/65536, which is then reduced
        by its nearest lattice point. All of it is exact until the last multiplication.
        """
        unit = words.T.astype(np.float64, order="C")
        unit += 0.5
        unit *= 2.0**-16
        frame = self.geometry.basis.T @ unit
        frame -= self.geometry.nearest(frame)
        return self._space(frame).T

    def _frame(self, x: Array) -> Array:
        """From space to the frame, product by product as ``_space``."""
        if self.generator is None:
            factors = 1.0 / (self.geometry.axes * self.step)
            return np.stack([row * factor for row, factor in zip(x, factors, strict=True)])
        row1, row2 = self._from_space
        return np.stack([x[0] * row1[i] + x[1] * row2[i] for i in range(2)])

    def _space(self, frame: Array) -> Array:
        """From the frame to space, product by product: a matrix product may fuse its roundings."""
        if self.generator is None:
            for axis, length in enumerate(self.geometry.axes.tolist()):
                if length != 1.0:
                    frame[axis] *= length
            frame *= self.step
            return frame
        b1, b2 = self._to_space
        return np.stack([(frame[0] * b1[i] + frame[1] * b2[i]) * self.step for i in range(2)])
