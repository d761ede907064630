"""The ℓ2 mechanism: noise of density ∝ e^{−a‖x‖}, protecting by Euclidean distance alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq import portable, samplers
from jopeq.noise.laplace import Laplace
from jopeq.noise.law import (
    DIAMETER,
    RARE,
    as_rows,
    check_dimension,
    check_positive,
    largest_eigenvalue,
    largest_pair,
)
from jopeq.randomness import PrivateStream
from jopeq.samplers import FAR_EXPONENTIAL

Array = NDArray[np.float64]

_LARGEST_DECAY = 1e150  # its square must be a float
_NEAR = 48.0
_RADIUS_LANE = 1 << 20  # beyond the lanes that normal directions and gamma attempts use


@dataclass(frozen=True)
class RadialExponential:
    """Density a^L Γ(L/2) / (2 π^{L/2} Γ(L)) · e^{−a‖x‖} on R^L: Laplace when L = 1.

    The log-density is a-Lipschitz, so a shift by D costs exactly ε = a·D, in every direction.
    The radius is Gamma(L) with scale 1/a, the direction uniform.

    >>> law = RadialExponential(decay=2.0, dimension=2)
    >>> law.epsilon(), law.variance
    (4.0, 0.75)
    """

    decay: float
    dimension: int

    def __post_init__(self) -> None:
        check_positive("decay", self.decay)
        if self.decay > _LARGEST_DECAY:
            raise ValueError(
                f"decay must be at most {_LARGEST_DECAY:g}, got {self.decay}: lower epsilon"
            )
        check_dimension(self.dimension)

    @property
    def covariance(self) -> Array:
        return self.variance * np.eye(self.dimension)

    @property
    def variance(self) -> float:
        """Per entry: E r²/L = (L+1)/a²."""
        return (self.dimension + 1) / self.decay**2

    @property
    def reach(self) -> float:
        """Noisy values are cut at 48/a, which draws of one entry reach, or 12 deviations."""
        return max(_NEAR, 12.0 * math.sqrt(self.dimension + 1)) / self.decay

    @property
    def covers_ball(self) -> bool:
        """Whether the sampler reaches across the ball: ε ≤ 48."""
        return _NEAR / self.decay >= DIAMETER

    @property
    def lost(self) -> float:
        """A radius r loses what has an exponential beyond its end: the share L(1 − end/r)^{L−1}.

        A direction loses what has a normal beyond its end, likeliest where a pair holds most.
        """
        if self.dimension == 1:
            return 0.0
        from scipy import special

        size, move = self.dimension, self.epsilon()
        longest = float(special.gammainccinv(size, RARE)) + move
        radius = size * max(0.0, 1.0 - FAR_EXPONENTIAL / longest) ** (size - 1)
        share = largest_pair(size, float(special.gammaincinv(size, RARE)), move)
        direction = float(special.gammaincc((size + 1) / 2, FAR_EXPONENTIAL / share))
        return min(1.0, RARE + radius + direction)

    @property
    def steep_within(self) -> float:
        return self.reach

    def epsilon(self, distance: float = DIAMETER) -> float:
        return self.decay * distance

    def density(self, x: ArrayLike) -> Array:
        radius = np.sqrt(np.square(as_rows(x, self.dimension)).sum(axis=1))
        half = self.dimension / 2
        log_norm = (
            self.dimension * math.log(self.decay)
            + math.lgamma(half)
            - math.log(2)
            - half * math.log(math.pi)
            - math.lgamma(self.dimension)
        )
        return np.asarray(np.exp(log_norm - self.decay * radius))

    def distribution(self, x: ArrayLike) -> Array:
        """Cumulative distribution in one dimension, where the law is Laplace."""
        return Laplace(1.0 / self.decay).distribution(x)

    def characteristic(self, t: ArrayLike) -> Array:
        """(1 + ‖t‖²/a²)^{−(L+1)/2}."""
        squares = np.square(as_rows(t, self.dimension)).sum(axis=1)
        return np.asarray((1.0 + squares / self.decay**2) ** (-(self.dimension + 1) / 2))

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        """A normal direction times a sum of L exponentials."""
        size = self.dimension
        if size == 1:
            return samplers.laplace(stream, start, count)[:, None] / self.decay
        normals = samplers.normal(stream, start * size, count * size).reshape(count, size)
        steps = samplers.far_exponential(stream, start * size, count * size, lane=_RADIUS_LANE)
        radius = steps.reshape(count, size).sum(axis=1) / self.decay
        lengths = np.sqrt(portable.squares(normals))
        return np.asarray(normals * (radius / lengths)[:, None])

    def recipe(self) -> None:
        return None

    def matched(self, dither_covariance: Array) -> RadialExponential | None:
        """The law of this family that has this variance when a dither is added, if there is one."""
        variance = self.variance - largest_eigenvalue(dither_covariance)
        if variance <= 0:
            return None
        return replace(self, decay=math.sqrt((self.dimension + 1) / variance))
