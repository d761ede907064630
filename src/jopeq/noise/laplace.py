"""Laplace noise, entry by entry."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.noise.law import (
    DIAMETER,
    NoiseRecipe,
    as_rows,
    check_dimension,
    check_positive,
    cut_of,
    largest_eigenvalue,
)
from jopeq.random import samplers
from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Laplace:
    """Independent Laplace entries of scale b: density (2b)⁻ᴸ e^{−‖x‖₁/b} (paper, eq. 9).

    Two points at Euclidean distance D are at most √L·D apart in ℓ1, so ε = √L·D/b.

    >>> Laplace(scale=0.5).epsilon(), Laplace(scale=0.5).variance
    (4.0, 0.5)
    """

    scale: float
    dimension: int = 1

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_dimension(self.dimension)

    @property
    def covariance(self) -> Array:
        return self.variance * np.eye(self.dimension)

    @property
    def variance(self) -> float:
        """Per entry."""
        return 2.0 * self.scale**2

    @property
    def reach(self) -> float:
        """Noisy values are cut at 48 scales (``add_noise``), draws end at ``MAX_EXPONENTIAL``."""
        return 48.0 * self.scale

    @property
    def covers_ball(self) -> bool:
        """Whether the sampler reaches from any input to every output of any other: ε ≤ 48."""
        return self.reach >= DIAMETER

    @property
    def lost(self) -> float:
        """Nothing: each entry is cut inside the reach of its draws."""
        return 0.0

    @property
    def steep_within(self) -> float:
        return self.reach

    def epsilon(self, distance: float = DIAMETER) -> float:
        return math.sqrt(self.dimension) * distance / self.scale

    def density(self, x: ArrayLike) -> Array:
        norm = np.abs(as_rows(x, self.dimension)).sum(axis=1)
        return np.asarray(np.exp(-norm / self.scale) / (2.0 * self.scale) ** self.dimension)

    def distribution(self, x: ArrayLike) -> Array:
        """Cumulative distribution of one entry."""
        z = np.asarray(x, dtype=np.float64) / self.scale
        return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0)), 1 - 0.5 * np.exp(-np.maximum(z, 0)))

    def characteristic(self, t: ArrayLike) -> Array:
        rows = as_rows(t, self.dimension)
        return np.asarray(np.prod(1.0 / (1.0 + (self.scale * rows) ** 2), axis=1))

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        size = self.dimension
        draws = samplers.laplace(stream, start * size, count * size)
        return self.scale * draws.reshape(count, size)

    def recipe(self) -> NoiseRecipe:
        return NoiseRecipe("laplace", self.scale, cut_of(self))

    def matched(self, dither_covariance: Array) -> Laplace | None:
        """The Laplace law that has this variance when a dither is added; None if there is none.

        A dither whose covariance is not a multiple of the identity is matched at its largest
        variance in any direction, so that the noise is never too small by its own account.
        """
        variance = self.variance - largest_eigenvalue(dither_covariance)
        return replace(self, scale=math.sqrt(variance / 2.0)) if variance > 0 else None
