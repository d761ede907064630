"""A scheme as kernels need it: numbers and tables, without the scheme object.

    entries → (entry − mean)·inverse → into the unit ball → + noise → one of the steps → bytes

A scheme that fits this line offers a recipe. The plain path codes the others (entropy coding,
whole updates). All kernels must equal the plain path byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice.codebook import LatticeCodebook
from jopeq.noise.law import NoiseRecipe

Layers = tuple[tuple[int, int, int], ...]  # (first, last, place of its signs) of turned blocks

MAX_LETTERS = 1 << 16
MAX_SIZE = 64  # entries of a sample without a lattice


@dataclass(frozen=True)
class Line:
    """index = clip(⌊(x + d·step)/step + N/2⌋), point (index − (N−1)/2)·step."""

    step: float
    letters: int
    is_subtractive: bool = True


@dataclass(frozen=True, eq=False)
class Cells:
    """The same on A2, D4 or E8: the letters are the listed points of a codebook."""

    codebook: LatticeCodebook
    is_subtractive: bool = True

    @property
    def letters(self) -> int:
        return self.codebook.letters


@dataclass(frozen=True, eq=False)
class Chances:
    """j = ⌊x·(K−1)/2 + (d + K/2)⌋, then randomized response: a 32-bit word draws from row j.

    Threshold l is that of the first row in rows up to l, and that of the last row in the others.
    """

    thresholds: NDArray[np.uint64]  # K × (K−1): the letter is the number of those ≤ the word
    values: NDArray[np.float64]  # K
    spacing: float

    @property
    def levels(self) -> int:
        return len(self.thresholds)

    @property
    def letters(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Grid:
    """round((x on the grid + noise)/grid) as a 32-bit word, for samples of ``size`` entries."""

    grid: float
    size: int


@dataclass(frozen=True, eq=False)
class Recipe:
    """How samples become letters (or words) and back."""

    step: Line | Cells | Chances | Grid
    noise: NoiseRecipe | None = None
    is_clipped: bool = True

    @property
    def dimension(self) -> int:
        """Entries of a sample."""
        if isinstance(self.step, Grid):
            return self.step.size
        if isinstance(self.step, Cells):
            return self.step.codebook.lattice.dimension
        return 1

    @property
    def lattice(self) -> str:
        """Which dither is drawn: "Z" wherever samples are single entries."""
        if isinstance(self.step, Cells):
            return self.step.codebook.lattice.name
        return "Z"
