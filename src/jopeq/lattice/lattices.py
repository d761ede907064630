"""Lattices: nearest point, Voronoi cell, moments, and a dither uniform on the cell.

A lattice is the set {G·l : l integer}. There are four, each with the exact nearest-point rule of
Conway and Sloane (1982).

    Z   the integers                                 L = 1
    A2  the hexagonal lattice, shortest vector 1     L = 2
    D4  integer vectors with an even sum             L = 4
    E8  D8 and D8 + (½,…,½)                          L = 8

Work happens in the *frame*: orthogonal coordinates with rational lattice points (for A2 the second
axis is measured in units of √3). Dither words are 16-bit integers, so their reduction to the cell
is exact arithmetic there, and every decoder finds the same dither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.random.portable import squares

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_MAX_COORDINATE = 2.0**50
_EXTENTS = (1e-38, 1e38)  # whose eighth powers, volumes of cells of E8, are floats


# Nearest points, in the frame


def _nearest_integers(x: Array) -> Array:
    return np.floor(x + 0.5)


def _nearest_checkerboard(x: Array) -> Array:
    """D_n: round; if the sum is odd, move the worst-rounded coordinate the other way."""
    rounded = np.floor(x + 0.5)
    error = x - rounded
    worst = np.argmax(np.abs(error), axis=1)
    rows = np.flatnonzero(np.mod(rounded.sum(axis=1), 2.0))
    columns = worst[rows]
    rounded[rows, columns] += np.where(error[rows, columns] >= 0.0, 1.0, -1.0)
    return rounded


def _nearer(x: Array, first: Array, second: Array, weights: tuple[float, ...]) -> Array:
    is_first = squares(x - first, weights) <= squares(x - second, weights)
    return np.where(is_first[:, None], first, second)


def _nearest_gosset(x: Array) -> Array:
    """E8 = D8 ∪ (D8 + ½)."""
    shifted = _nearest_checkerboard(x - 0.5) + 0.5
    return _nearer(x, _nearest_checkerboard(x), shifted, (1.0,) * 8)


def _nearest_hexagonal(x: Array) -> Array:
    """A2 = (Z × √3Z) ∪ (Z × √3Z + (½, √3/2)), in the frame (x, y/√3)."""
    return _nearer(x, np.floor(x + 0.5), np.floor(x) + 0.5, (1.0, 3.0))


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
    """A lattice by name, magnified ``step`` times.

    >>> hexagonal = Lattice("A2", step=2.0)
    >>> hexagonal.nearest([[1.9, 0.1]]).tolist()          # integers l with point G·l
    [[1, 0]]
    >>> round(Lattice("E8").normalised_second_moment, 6)
    0.071682
    """

    name: str
    step: float = 1.0

    def __post_init__(self) -> None:
        check_extent("step", self.step)
        if not isinstance(self.name, str) or self.name not in _BUILT_IN:
            raise ValueError(f"lattice must be one of {', '.join(NAMES)}, got {self.name!r}")

    @property
    def geometry(self) -> Geometry:
        """The lattice at step 1."""
        return _BUILT_IN[self.name]

    @property
    def dimension(self) -> int:
        """L, the number of entries quantized together."""
        return len(self.geometry.basis)

    @cached_property
    def cell_volume(self) -> float:
        """|P0|, the volume of a Voronoi cell."""
        return float(
            abs(np.linalg.det(self.geometry.basis * self.geometry.axes)) * self.step**self.dimension
        )

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
        """Rows: basis vectors in space (the transpose of the paper's G)."""
        return np.asarray(self.geometry.basis * self.geometry.axes * self.step)

    def scaled(self, step: float) -> Lattice:
        """The same lattice magnified ``step`` times instead."""
        return replace(self, step=step)

    def points(self, coordinates: ArrayLike) -> Array:
        """The points with these basis coordinates (integers, or halves for a shifted lattice)."""
        return self._space(np.asarray(coordinates, dtype=np.float64) @ self.geometry.basis)

    def nearest(self, x: ArrayLike) -> Integers:
        """Basis coordinates of the lattice point nearest to each row of ``x``."""
        rows = np.asarray(x, dtype=np.float64)
        frame = rows * (1.0 / (self.geometry.axes * self.step))
        if frame.size and not np.abs(frame).max() < _MAX_COORDINATE:
            raise ValueError("x is too far from the origin to be quantized exactly")
        return np.rint(self.geometry.nearest(frame) @ self.geometry.inverse).astype(np.int64)

    def dither(self, words: NDArray[np.uint16]) -> Array:
        """Uniform points of the Voronoi cell from rows of L 16-bit words.

        The words name a point G·u of the parallelepiped, u = (w + ½)/65536, which is then reduced
        by its nearest lattice point. All of it is exact until the last multiplication.
        """
        unit = (words.astype(np.float64) + 0.5) * 2.0**-16
        frame = unit @ self.geometry.basis
        frame -= self.geometry.nearest(frame)
        return self._space(frame)

    def _space(self, frame: Array) -> Array:
        """From the frame to space."""
        return np.asarray(frame * self.geometry.axes * self.step)
