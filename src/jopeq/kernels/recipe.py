"""A scheme as kernels need it: numbers and tables, without the scheme object.

    entries → (entry − mean)·inverse → into the unit ball → + noise → letters → bytes

``JoPEQ``, ``Response`` and ``SubtractiveDither`` offer a recipe on Z and A2, for up to 256 letters.
The plain path codes all others. All kernels must equal the plain path byte for byte.

A letter decodes to one of ``points`` (of one or two entries, side by side) minus the dither, whose
cell is ``step`` wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice.codebook import LatticeCodebook
from jopeq.noise.law import NoiseRecipe
from jopeq.wire.coders import Packing

Array = NDArray[np.float64]
Layers = tuple[tuple[int, int, int], ...]  # (first, last, place of its signs) of turned blocks

MAX_LETTERS = 256


@dataclass(frozen=True, eq=False)
class Line:
    """index = clip(⌊(x + d·step)/step + N/2⌋), point (index − (N−1)/2)·step."""

    step: float
    letters: int

    @property
    def points(self) -> Array:
        return (np.arange(float(self.letters)) - 0.5 * (self.letters - 1)) * self.step


@dataclass(frozen=True, eq=False)
class Cells:
    """Letters on A2: the listed points of a codebook that is searched."""

    codebook: LatticeCodebook

    @property
    def letters(self) -> int:
        return self.codebook.letters

    @property
    def step(self) -> float:
        return self.codebook.lattice.step

    @property
    def points(self) -> Array:
        return np.ascontiguousarray(self.codebook.codewords).reshape(-1)

    @property
    def box(self) -> tuple[float, ...]:
        """Shift of the codebook, low corner and extent of its box: two numbers each."""
        low, extent, _ = self.codebook.box
        shift = self.codebook.lattice.points(self.codebook.shift)
        return tuple(map(float, (*shift, *low, *extent)))


@dataclass(frozen=True, eq=False)
class Chances:
    """j = ⌊x·(K−1)/2 + (d + K/2)⌋, then randomized response: a 32-bit word draws from row j.

    Threshold l is that of the first row in rows up to l, and that of the last row in the others.
    """

    thresholds: NDArray[np.uint64]  # K × (K−1): the letter is the number of those ≤ the word
    points: Array  # K
    step: float

    @property
    def letters(self) -> int:
        return len(self.points)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How samples become letters and back; ``noise`` is Laplace's on Z, and a t law's on A2."""

    step: Line | Cells | Chances
    noise: NoiseRecipe | None = None
    is_clipped: bool = True

    @property
    def dimension(self) -> int:
        """Entries of a sample."""
        return 2 if isinstance(self.step, Cells) else 1

    @cached_property
    def packing(self) -> Packing:
        return Packing(self.step.letters)
