"""Gaussian noise, entry by entry."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.noise.law import DIAMETER, as_rows, check_dimension, check_positive, largest_eigenvalue
from jopeq.random import samplers
from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian:
    """Independent normal entries of standard deviation σ. No pure ε protects any shift."""

    sigma: float
    dimension: int = 1

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_dimension(self.dimension)

    @property
    def covariance(self) -> Array:
        return self.variance * np.eye(self.dimension)

    @property
    def variance(self) -> float:
        """Per entry."""
        return self.sigma**2

    @property
    def reach(self) -> float:
        """The sampler ends beyond 10 σ."""
        return 10.0 * self.sigma

    @property
    def covers_ball(self) -> bool:
        """Whether the sampler reaches across the ball."""
        return self.reach >= DIAMETER

    @property
    def escape(self) -> float:
        """How likely, at most, one input makes what another input's draws cannot reach.

        Two normals share a radius that ends beyond 10 σ: the larger leaves the other less room. A
        single one is cut before its end (``add_noise``).
        """
        if self.dimension == 1:
            return 0.0
        room = max(0.0, self.reach - DIAMETER) / self.sigma
        pairs = (self.dimension + 1) // 2
        return min(1.0, pairs * math.exp(-0.5 * room * room))

    @property
    def lost(self) -> float:
        """Nothing that ``escape`` does not count."""
        return 0.0

    @property
    def steep_within(self) -> float:
        return self.reach

    def epsilon(self, distance: float = DIAMETER) -> float:
        return math.inf if distance > 0 else 0.0

    def density(self, x: ArrayLike) -> Array:
        squares = (as_rows(x, self.dimension) ** 2).sum(axis=1)
        norm = (2.0 * math.pi * self.variance) ** (self.dimension / 2.0)
        return np.asarray(np.exp(-squares / (2.0 * self.variance)) / norm)

    def distribution(self, x: ArrayLike) -> Array:
        """Cumulative distribution of one entry."""
        from scipy import special

        return np.asarray(special.ndtr(np.asarray(x, dtype=np.float64) / self.sigma))

    def characteristic(self, t: ArrayLike) -> Array:
        squares = (as_rows(t, self.dimension) ** 2).sum(axis=1)
        return np.asarray(np.exp(-0.5 * self.variance * squares))

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        size = self.dimension
        draws = samplers.normal(stream, start * size, count * size)
        return self.sigma * draws.reshape(count, size)

    def recipe(self) -> None:
        return None

    def matched(self, dither_covariance: Array) -> Gaussian | None:
        """The normal law that has this variance when a dither is added; None if there is none."""
        variance = self.variance - largest_eigenvalue(dither_covariance)
        return replace(self, sigma=math.sqrt(variance)) if variance > 0 else None
