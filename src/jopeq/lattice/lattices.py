"""Lattices: nearest point, Voronoi cell, moments, and a dither uniform on the cell.

Four are built in, each with the exact nearest-point rule of Conway and Sloane (1982); any generator
matrix of 2 to 8 dimensions makes another (``reduced``).

    Z   the integers                                 L = 1
    A2  the hexagonal lattice, shortest vector 1     L = 2
    D4  integer vectors with an even sum             L = 4
    E8  D8 and D8 + (½,…,½)                          L = 8

Work happens in the *frame*: coordinates in which lattice points are rational. Those of the built-in
lattices are orthogonal (for A2 the second axis is measured in units of √3), those of a generator
belong to its reduced basis. Dither words are 16-bit integers, so their reduction to the cell is
exact there. Arrays in the frame have a row for each coordinate, so that loops are long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.lattice.reduced import MAX_DIMENSION, Reduced, products
from jopeq.random.portable import squares

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_MAX_COORDINATE = 2.0**50
MAX_ASPECT = 1000.0  # a codebook around the origin lists about as many points more
_EXTENTS = (1e-38, 1e38)  # whose eighth powers, volumes of cells of E8, are floats


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
    return np.where(squares((x - first).T) <= squares((x - second).T), first, second)


def _nearest_hexagonal(x: Array) -> Array:
    """A2 = (Z × √3Z) ∪ (Z × √3Z + (½, √3/2)), in the frame (x, y/√3).

    The nearest point of the first, (x₁, y₁), is the nearer one if |x − x₁| + 3|y − y₁| ≤ 1; that of
    the second lies half a step from it on either axis, on the side of x and y.
    """
    first = x + 0.5
    np.floor(first, out=first)
    error = x - first
    across, up = np.abs(error)
    up *= 3.0
    up += across
    half = np.floor(error, out=error)  # −1 or 0: in place and without branches, like all of this
    half += 0.5
    half *= (up > 1.0).astype(x.dtype)
    first += half
    return first


def check_extent(name: str, value: float) -> None:
    """Raise unless a length is positive and its powers stay within floating-point range."""
    low, high = _EXTENTS
    if not low <= value <= high:
        raise ValueError(f"{name} must be a positive number, from {low:g} to {high:g}, got {value}")


@dataclass(frozen=True)
class Geometry:
    """A lattice at step 1, in the frame; basis vectors are the rows."""

    basis: Array
    axes: Array  # length of each axis of the frame; for a generator, rows: the axes in space
    nearest: Callable[[Array], Array]
    covering_radius: float
    shortest: float  # length of the shortest vector
    covariance: Array  # of a uniform point of the cell
    halves: tuple[tuple[float, ...], ...]  # half lattice vectors, to centre codebooks of even size
    dither_type: type[np.floating[Any]] = np.float64  # in which dither words are reduced exactly

    @cached_property
    def inverse(self) -> Array:
        return np.asarray(np.rint(2.0 * np.linalg.inv(self.basis)) / 2.0)  # exact: halves

    @cached_property
    def condition(self) -> float:
        """By how much a change of coordinates magnifies rounding errors; 0 where none is made."""
        norm = np.linalg.norm
        if self.axes.ndim == 1:
            return 0.0
        return float(len(self.axes) * norm(self.axes) * norm(np.linalg.inv(self.axes)))


def _isotropic(
    basis: ArrayLike,
    nearest: Callable[[Array], Array],
    covering_radius: float,
    normalised_moment: float,
    axes: ArrayLike | None = None,
    dither_type: type[np.floating[Any]] = np.float64,
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
    shortest = math.sqrt(np.square(rows * lengths).sum(axis=1).min())
    covariance = moment * np.eye(size)
    sizes = covering_radius, shortest, covariance
    return Geometry(rows, lengths, nearest, *sizes, halves, dither_type)


@lru_cache(maxsize=64)
def _reduced_geometry(generator: tuple[tuple[float, ...], ...]) -> Geometry:
    """The geometry of a generator; codebooks are centred halfway to a basis vector or a sum."""
    cell, unit = Reduced.of(np.array(generator)), np.eye(len(generator))
    pairs = itertools.combinations_with_replacement(range(len(unit)), 2)
    halves = tuple(tuple((0.5 * np.maximum(unit[i], unit[j])).tolist()) for i, j in pairs)
    sizes = cell.covering_radius, cell.shortest, cell.covariance
    return Geometry(unit, cell.basis, cell.nearest, *sizes, halves)


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
        [[1.0, 0.0], [0.5, 0.5]],
        _nearest_hexagonal,
        1 / _ROOT3,
        _A2_MOMENT,
        axes=[1.0, _ROOT3],
        dither_type=np.float32,  # multiples of 2⁻¹⁸ below 2: half the memory to pass through
    ),
    "D4": _isotropic(_D4_BASIS, _nearest_checkerboard, 1.0, 13 / (120 * math.sqrt(2))),
    "E8": _isotropic(_E8_BASIS, _nearest_gosset, 1.0, 929 / 12960),
}
NAMES = tuple(_BUILT_IN)
_KNOWN = dict(_BUILT_IN)  # and what ``name_lattice`` adds


@dataclass(frozen=True)
class Lattice:
    """A built-in lattice by name, or any by generator, magnified ``step`` times.

    ``generator`` has the basis vectors as columns, as the paper's G.

    >>> hexagonal = Lattice("A2", step=2.0)
    >>> hexagonal.nearest([[1.9, 0.1]]).tolist()          # integers l with point G·l
    [[1, 0]]
    >>> round(Lattice("E8").normalised_second_moment, 6)
    0.071682

    The body-centred cubic lattice, the best quantizer in three dimensions:

    >>> cubic = Lattice(generator=((-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0)))
    >>> cubic.dimension, round(cubic.normalised_second_moment, 6)
    (3, 0.078543)
    """

    name: str = "custom"
    step: float = 1.0
    generator: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        check_extent("step", self.step)
        if self.generator is None:
            if self.name not in _KNOWN:
                known = ", ".join(_KNOWN)
                raise ValueError(
                    f"lattice must be {known} or a generator matrix, got {self.name!r}"
                )
            return
        matrix = np.asarray(self.generator, dtype=np.float64)
        size, largest = len(matrix), np.abs(matrix).max(initial=0.0)
        is_square = matrix.shape == (size, size) and 2 <= size <= MAX_DIMENSION
        if not (is_square and 1e-30 <= largest <= 1e30):
            raise ValueError(
                f"generator must be a square matrix of 2 to {MAX_DIMENSION} rows with its largest "
                f"entry in 1e-30…1e30, got {matrix.tolist()}: for one dimension use 'Z'"
            )
        if self.name != "custom":
            raise ValueError(f"give either a name or a generator, got both ({self.name!r})")
        object.__setattr__(self, "generator", tuple(map(tuple, matrix.tolist())))
        lengths = np.linalg.norm(Reduced.of(matrix).basis, axis=1)
        aspect = lengths.max() / lengths.min()
        if aspect > MAX_ASPECT:
            raise ValueError(
                f"generator must span a lattice whose short basis vectors differ at most "
                f"{MAX_ASPECT:g} times in length, got {matrix.tolist()} ({aspect:.3g} times)"
            )

    @cached_property
    def geometry(self) -> Geometry:
        """The lattice at step 1."""
        if self.generator is None:
            return _KNOWN[self.name]
        return _reduced_geometry(self.generator)

    @cached_property
    def _to_space(self) -> Array:
        """Rows: the frame's axes in space, before magnification."""
        axes = self.geometry.axes
        return np.diag(axes) if axes.ndim == 1 else axes

    @cached_property
    def _from_space(self) -> Array:
        return np.asarray(np.linalg.inv(self._to_space * self.step))

    @property
    def dimension(self) -> int:
        """L: entries of a sample."""
        return len(self.geometry.basis)

    @cached_property
    def cell_volume(self) -> float:
        """|P0|, the volume of a Voronoi cell."""
        unit = abs(np.linalg.det(self.geometry.basis @ self._to_space))
        return float(unit * self.step**self.dimension)

    @property
    def covering_radius(self) -> float:
        """The largest distance of any point from the lattice."""
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
        """Rows: basis vectors in space (the transpose of the paper's G, which is reduced)."""
        return np.asarray(self.geometry.basis @ self._to_space * self.step)

    @property
    def shortest(self) -> float:
        """The distance of two neighbouring lattice points."""
        return self.geometry.shortest * self.step

    def scale(self, step: float) -> Lattice:
        """The lattice magnified ``step`` times instead."""
        return replace(self, step=step)

    def points(self, coordinates: ArrayLike) -> Array:
        """The points with these basis coordinates (integers, or halves for a shifted lattice)."""
        return self._space((np.asarray(coordinates, dtype=np.float64) @ self.geometry.basis).T).T

    def nearest(self, x: ArrayLike) -> Integers:
        """Basis coordinates of the lattice point nearest to each row of ``x``."""
        return self.coordinates(np.asarray(x, dtype=np.float64).T).T.astype(np.int64)

    def coordinates(self, x: Array) -> Array:
        """``nearest`` as whole floats; points are columns."""
        frame = self._frame(x)
        if frame.size and not max(frame.max(), -frame.min()) < _MAX_COORDINATE:
            raise ValueError("x is too far from the origin to be quantized exactly")
        return np.asarray(self.geometry.inverse.T @ self.geometry.nearest(frame))

    def dither(self, words: NDArray[np.uint16]) -> Array:
        """Uniform points of the Voronoi cell from rows of L 16-bit words.

        G·u, u = (w + ½)/65536, minus its nearest lattice point: exact until the last product.
        """
        unit = words.T.astype(self.geometry.dither_type, order="C")
        unit += 0.5
        unit *= 2.0**-16
        frame = self.geometry.basis.T.astype(unit.dtype) @ unit
        frame -= self.geometry.nearest(frame)
        return self._space(frame.astype(np.float64)).T

    def _frame(self, x: Array) -> Array:
        """From space to the frame; points are columns, as in ``_space``."""
        if self.geometry.axes.ndim == 1:
            return x * (1.0 / (self.geometry.axes * self.step))[:, None]
        return products(x.T, self._from_space).T

    def _space(self, frame: Array) -> Array:
        """From the frame to space."""
        if self.geometry.axes.ndim == 1:
            for axis, length in enumerate(self.geometry.axes.tolist()):
                if length != 1.0:
                    frame[axis] *= length
            frame *= self.step
            return frame
        return (products(frame.T, self._to_space) * self.step).T


def name_lattice(name: str, lattice: Lattice) -> None:
    """Make ``Lattice(name)`` known; ``jopeq.register`` calls it."""
    if name in (*_KNOWN, "custom"):
        raise ValueError(f"lattice {name!r} is known already: choose another name")
    _KNOWN[name] = lattice.geometry
