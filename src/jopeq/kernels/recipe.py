"""A scheme as kernels need it: numbers and tables, without the scheme object.

    entries → (entry − mean)·inverse → into the unit ball → + noise → one of the steps → bytes

``JoPEQ``, ``Response`` and ``SubtractiveDither`` on Z and A2 offer a recipe. The plain path codes
all others. All kernels must equal the plain path byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice.codebook import LatticeCodebook
from jopeq.noise.law import NoiseRecipe

Layers = tuple[tuple[int, int, int], ...]  # (first, last, place of its signs) of turned blocks

MAX_LETTERS = 1 << 16


@dataclass(frozen=True)
class Line:
    """index = clip(⌊(x + d·step)/step + N/2⌋), point (index − (N−1)/2)·step."""

    step: float
    letters: int


@dataclass(frozen=True, eq=False)
class Cells:
    """Letters on A2: the listed points of a codebook that is searched."""

    codebook: LatticeCodebook

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


@dataclass(frozen=True, eq=False)
class Recipe:
    """How samples become letters and back."""

    step: Line | Cells | Chances
    noise: NoiseRecipe | None = None
    is_clipped: bool = True

    @property
    def dimension(self) -> int:
        """Entries of a sample."""
        return 2 if isinstance(self.step, Cells) else 1
