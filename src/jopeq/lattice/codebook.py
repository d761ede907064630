"""Finite codebooks: the N lattice points of lowest energy, which letters name.

For even N they are shifted by half a lattice vector to be symmetric about the origin. The *support*
is the ball of radius γ with the volume of the N cells; on Z that is the paper's N·Δ = 2γ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice.lattices import Lattice, check_extent
from jopeq.lattice.reduced import MAX_POINTS, points_within
from jopeq.random.portable import squares

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.integer[Any]]

MAX_SCALAR_LETTERS = 1 << 32
MAX_SEARCHED_LETTERS = 256
MAX_LATTICE_LETTERS = 1 << 20  # the points of a lattice codebook are listed in memory
_SEARCHED = 1 << 16  # distances that are compared at a time


def letters_for_rate(rate: float, dimension: int) -> int:
    """⌊2^(RL)⌋, forgiving the rounding error of rates such as log2(3).

    >>> letters_for_rate(math.log2(3), 1), letters_for_rate(1.0, 2), letters_for_rate(1.5, 1)
    (3, 4, 2)
    """
    if not (isinstance(rate, (int, float)) and math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be a positive number of bits per entry, got {rate!r}")
    if rate * dimension > 64:
        raise ValueError(
            f"rate must be at most {64 / dimension:g} bits per entry, got {rate}: lower rate"
        )
    letters = math.floor(math.exp2(rate * dimension) * (1 + 1e-12))
    if letters < 2:
        raise ValueError(
            f"rate must be at least {1 / dimension:g} bits per entry (two letters) for samples "
            f"of {dimension}, got {rate}: raise rate"
        )
    return letters


def ball_volume(dimension: int, radius: float = 1.0) -> float:
    """Volume of a ball: V₀ = 1, V₁ = 2 and V_L = V_{L−2}·2π/L, which is exact on Z."""
    unit = 2.0 if dimension % 2 else 1.0
    for size in range(2 + dimension % 2, dimension + 1, 2):
        unit *= 2.0 * math.pi / size
    return unit * math.pow(radius, dimension)


def step_for_support(lattice: Lattice, letters: int, gamma: float) -> float:
    """Magnification at which the cells of ``letters`` points fill the ball of radius γ."""
    check_extent("gamma", gamma)
    unit = lattice.scale(1.0)
    fill = ball_volume(lattice.dimension, gamma) / (letters * unit.cell_volume)
    return float(fill ** (1.0 / lattice.dimension))


def step_for_unit_ball(lattice: Lattice, letters: int) -> float:
    """Magnification at which the support reaches just beyond unit ball + cell: γ = 1 + ρ(step).

    On Z this is Δ = 2/(N−1): dithered inputs from [−1, 1] never overload.
    """
    unit = lattice.scale(1.0)
    volume = letters * unit.cell_volume / ball_volume(lattice.dimension)
    reach = math.pow(volume, 1 / lattice.dimension)
    if reach <= unit.covering_radius * 1.05:
        raise ValueError(
            f"{letters} letters are too few to cover the unit ball of lattice {lattice.name!r}: "
            "raise rate or give gamma"
        )
    return 1.0 / (reach - unit.covering_radius)


def codebook(lattice: Lattice, letters: int) -> Codebook:
    """The codebook of ``letters`` points on a lattice that is already magnified."""
    kind = ScalarCodebook if lattice.name == "Z" else LatticeCodebook
    return kind(lattice, letters)


def unit_dither(words: NDArray[np.uint16]) -> Array:
    """The dither of Z in units of its step: an odd multiple of 2⁻¹⁷ inside (−½, ½)."""
    dither = words.view(np.int16).astype(np.float64)
    dither += 0.5
    dither *= 2.0**-16
    return dither


@dataclass(frozen=True)
class Codebook(ABC):
    """Index ↔ point for ``letters`` points of a shifted lattice."""

    lattice: Lattice
    letters: int

    @property
    def gamma(self) -> float:
        """Radius of the ball with the volume of all cells together."""
        volume = self.letters * self.lattice.cell_volume / ball_volume(self.lattice.dimension)
        return float(volume ** (1.0 / self.lattice.dimension))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The narrowest type that holds every index."""
        return np.min_scalar_type(self.letters - 1)

    def dither(self, words: NDArray[np.uint16]) -> Array:
        """Uniform points of the lattice's cell from rows of L 16-bit words."""
        return self.lattice.dither(words)

    @abstractmethod
    def quantize(self, x: Array) -> tuple[Indices, NDArray[np.bool_]]:
        """Index of the nearest codeword of each row, and which rows were overloaded."""

    @abstractmethod
    def points(self, indices: Indices) -> Array:
        """The codewords of these indices."""


@dataclass(frozen=True)
class ScalarCodebook(Codebook):
    """Δ·(i − (N−1)/2), i = 0…N−1: mid-tread for odd N, mid-rise for even N.

    >>> codes = ScalarCodebook(Lattice("Z", step=0.5), letters=4)
    >>> codes.points(np.arange(4)).ravel().tolist(), codes.gamma
    ([-0.75, -0.25, 0.25, 0.75], 1.0)
    >>> codes.quantize(np.array([[-9.0], [0.3]]))
    (array([0, 2], dtype=uint8), array([ True, False]))
    """

    def __post_init__(self) -> None:
        if not 2 <= self.letters <= MAX_SCALAR_LETTERS:
            raise ValueError(f"letters must be 2…{MAX_SCALAR_LETTERS} on Z, got {self.letters}")

    def dither(self, words: NDArray[np.uint16]) -> Array:
        """``unit_dither``, magnified: a power of two makes no rounding error."""
        dither = words.view(np.int16).astype(np.float64)
        dither += 0.5
        dither *= 2.0**-16 * self.lattice.step
        return dither

    def quantize(self, x: Array) -> tuple[Indices, NDArray[np.bool_]]:
        place = x[:, 0] * (1.0 / self.lattice.step)
        place += 0.5 * self.letters
        inside = np.clip(place, 0.0, math.nextafter(self.letters, 0.0))
        return inside.astype(self.dtype), inside != place  # what is positive is cut, not rounded

    def points(self, indices: Indices) -> Array:
        centred = indices.astype(np.float64)
        centred -= 0.5 * (self.letters - 1)
        centred *= self.lattice.step
        return centred[:, None]


@dataclass(frozen=True)
class LatticeCodebook(Codebook):
    """The N points of lowest energy, listed; ties are taken in ± pairs, lexicographically."""

    def __post_init__(self) -> None:
        if not 2 <= self.letters <= MAX_LATTICE_LETTERS:
            bits = math.log2(MAX_LATTICE_LETTERS) / self.lattice.dimension
            raise ValueError(
                f"a fixed-rate codebook on {self.lattice.name!r} has at most "
                f"{MAX_LATTICE_LETTERS} letters (rate {bits:g}), got {self.letters}: "
                "lower rate"
            )
        if self.is_searched:  # so that the first update does not wait for it
            self.table  # noqa: B018

    @property
    def shift(self) -> Array:
        """The shift from the lattice to the codewords, in basis coordinates."""
        return self._chosen[0]

    @property
    def coordinates(self) -> Integers:
        """Integer basis coordinates of each letter, before the shift."""
        return self._chosen[1]

    @cached_property
    def _chosen(self) -> tuple[Array, Integers]:
        is_odd = self.letters % 2
        shifts = ((0.0,) * self.lattice.dimension,) if is_odd else self.lattice.geometry.halves
        candidates = [_lowest_energy(self.lattice, np.array(s), self.letters) for s in shifts]
        best = min(range(len(candidates)), key=lambda i: (round(candidates[i][0], 9), i))
        return np.array(shifts[best]), candidates[best][1]

    @cached_property
    def codewords(self) -> Array:
        """All points, N × L."""
        return self.lattice.points(self.coordinates + self.shift)

    @cached_property
    def box(self) -> tuple[Integers, Integers, Integers]:
        """Low corner, extent and strides of the box around the coordinates."""
        low = self.coordinates.min(axis=0)
        extent = self.coordinates.max(axis=0) - low + 1
        return low, extent, np.concatenate(([1], np.cumprod(extent[:-1])))

    @cached_property
    def table(self) -> Integers | None:
        """The letter at each place of the box, −1 where there is none; None for a large box."""
        low, extent, strides = self.box
        if math.prod(extent.tolist()) > MAX_POINTS:
            return None
        letters = np.full(int(extent.prod()), -1)
        letters[(self.coordinates - low) @ strides] = np.arange(self.letters)
        return letters

    @cached_property
    def _lookup(self) -> tuple[Integers, Integers]:
        """Sorted keys of the coordinates (their place in the box) and the indices they name."""
        low, _, strides = self.box
        keys = (self.coordinates - low) @ strides
        order = np.argsort(keys)
        return keys[order], order

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(self.codewords)

    def quantize(self, x: Array) -> tuple[Indices, NDArray[np.bool_]]:
        low, extent, strides = self.box
        shift = self.lattice.points(self.shift)
        offset = self.lattice.coordinates(np.subtract(x.T, shift[:, None], order="C"))
        offset -= low[:, None]
        place = np.clip(offset, 0.0, (extent - 1.0)[:, None])
        keys = (strides.astype(np.float64) @ place).astype(np.int64)
        if self.table is not None:
            letters = self.table.take(keys)
        else:
            known, order = self._lookup
            found = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            letters = np.where(known[found] == keys, order[found], -1)
        missed = letters < 0
        missed |= (place != offset).any(axis=0)
        if missed.any():
            letters[missed] = self.nearest_letter(x[missed])
        return letters.astype(self.dtype), missed

    @property
    def is_searched(self) -> bool:
        """True if there are few enough letters to try one by one."""
        return self.letters <= MAX_SEARCHED_LETTERS

    def nearest_letter(self, x: Array) -> Integers:
        """Search few letters one by one (the first of equals wins), many by a tree."""
        if not self.is_searched:
            return np.asarray(self._tree.query(x)[1])
        best, together = np.empty(len(x), dtype=np.int64), _SEARCHED // self.letters
        for first in range(0, len(x), together):
            rows = x[first : first + together]
            distances = np.square(rows[:, :1] - self.codewords[:, 0])
            for axis in range(1, x.shape[1]):
                distances += np.square(rows[:, axis, None] - self.codewords[:, axis])
            best[first : first + together] = distances.argmin(axis=1)
        return best

    def points(self, indices: Indices) -> Array:
        return np.take(self.codewords, indices, axis=0)


def _lowest_energy(lattice: Lattice, shift: Array, count: int) -> tuple[float, Integers]:
    """Total energy and coordinates of the ``count`` lowest-energy points of lattice + shift."""
    unit = lattice.scale(1.0)
    shortest = unit.basis[0] @ unit.basis[0]  # 1 or 2 but on generators of any size
    # The ball of that volume holds about ``count`` points. Points just beyond it are listed too,
    # so that all of equal energy are there.
    radius = (count * unit.cell_volume / ball_volume(unit.dimension)) ** (1 / unit.dimension)
    while True:
        inside = points_within(unit.basis, shift, 1.001 * radius)
        energy = squares(unit.points(inside + shift)) / shortest
        if np.count_nonzero(energy <= radius * radius / shortest) >= count:
            break
        radius *= 1.05
    energy = np.round(energy, 9)
    is_low = energy <= np.partition(energy, count - 1)[count - 1]
    inside, energy = inside[is_low], energy[is_low]
    doubled = np.rint(2 * (inside + shift)).astype(np.int64)  # integers, also when shifted
    first = doubled[np.arange(len(doubled)), np.argmax(doubled != 0, axis=1)]
    sign = np.where(first < 0, -1, 1)
    doubled *= sign[:, None]
    order = np.lexsort((sign, *doubled.T[::-1], energy))[:count]
    return float(energy[order].sum()), inside[order]
