"""Laplace and normal noise, entry by entry, and the radial ℓ2 mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.noise.law import (
    DIAMETER,
    RARE,
    Law,
    NoiseRecipe,
    as_rows,
    check_dimension,
    check_positive,
    cut_of,
    largest_eigenvalue,
    largest_pair,
)
from jopeq.random import portable, samplers
from jopeq.random.samplers import FAR_EXPONENTIAL
from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]

_LARGEST_DECAY = 1e150  # its square must be a float
_NEAR = 48.0  # of the law's scale: draws of one entry reach it
_RADIUS_LANE = 1 << 20  # beyond the lanes that normal directions and gamma attempts use


@dataclass(frozen=True)
class Laplace(Law):
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
    def variance(self) -> float:
        return 2.0 * self.scale**2

    @property
    def reach(self) -> float:
        """48 scales; draws end at ``MAX_EXPONENTIAL``, so ε up to 48 reaches across the ball."""
        return 48.0 * self.scale

    def epsilon(self, distance: float = DIAMETER) -> float:
        return math.sqrt(self.dimension) * distance / self.scale

    def density(self, x: ArrayLike) -> Array:
        norm = np.abs(as_rows(x, self.dimension)).sum(axis=1)
        return np.asarray(np.exp(-norm / self.scale) / (2.0 * self.scale) ** self.dimension)

    def distribution(self, x: ArrayLike) -> Array:
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
        variance = self.variance - largest_eigenvalue(dither_covariance)
        return replace(self, scale=math.sqrt(variance / 2.0)) if variance > 0 else None


@dataclass(frozen=True)
class Gaussian(Law):
    """Independent normal entries of standard deviation σ. No pure ε protects any shift."""

    sigma: float
    dimension: int = 1

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_dimension(self.dimension)

    @property
    def variance(self) -> float:
        return self.sigma**2

    @property
    def reach(self) -> float:
        """The sampler ends beyond 10 σ."""
        return 10.0 * self.sigma

    @property
    def escape(self) -> float:
        """How likely, at most, one input makes what another input's draws cannot reach.

        Two normals share a radius that ends beyond 19 σ: the larger leaves the other less room. A
        single one is cut before its end (``add_noise``).
        """
        if self.dimension == 1:
            return 0.0
        room = max(0.0, math.sqrt(2.0 * FAR_EXPONENTIAL) - DIAMETER / self.sigma)
        pairs = (self.dimension + 1) // 2
        return min(1.0, pairs * math.exp(-0.5 * room * room))

    def epsilon(self, distance: float = DIAMETER) -> float:
        return math.inf if distance > 0 else 0.0

    def density(self, x: ArrayLike) -> Array:
        squares = (as_rows(x, self.dimension) ** 2).sum(axis=1)
        norm = (2.0 * math.pi * self.variance) ** (self.dimension / 2.0)
        return np.asarray(np.exp(-squares / (2.0 * self.variance)) / norm)

    def distribution(self, x: ArrayLike) -> Array:
        from scipy import special

        return np.asarray(special.ndtr(np.asarray(x, dtype=np.float64) / self.sigma))

    def characteristic(self, t: ArrayLike) -> Array:
        squares = (as_rows(t, self.dimension) ** 2).sum(axis=1)
        return np.asarray(np.exp(-0.5 * self.variance * squares))

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        size = self.dimension
        draws = samplers.normal(stream, start * size, count * size)
        return self.sigma * draws.reshape(count, size)

    def matched(self, dither_covariance: Array) -> Gaussian | None:
        variance = self.variance - largest_eigenvalue(dither_covariance)
        return replace(self, sigma=math.sqrt(variance)) if variance > 0 else None


@dataclass(frozen=True)
class RadialExponential(Law):
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
    def variance(self) -> float:
        """Per entry: E r²/L = (L+1)/a²."""
        return (self.dimension + 1) / self.decay**2

    @property
    def reach(self) -> float:
        """48/a, which draws of one entry reach, or 12 deviations of an entry."""
        return max(_NEAR, 12.0 * math.sqrt(self.dimension + 1)) / self.decay

    @property
    def covers_ball(self) -> bool:
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

    def matched(self, dither_covariance: Array) -> RadialExponential | None:
        variance = self.variance - largest_eigenvalue(dither_covariance)
        if variance <= 0:
            return None
        return replace(self, decay=math.sqrt((self.dimension + 1) / variance))
