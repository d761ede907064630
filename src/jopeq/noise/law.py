"""The laws of private noise on R^L, and how their draws are added to samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.random import portable
from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]

DIAMETER = 2.0  # two points of the unit ball are at most this far apart
RARE = 2.0**-72  # one of several rare events, which together have less than 2⁻⁷⁰


@dataclass(frozen=True)
class NoiseRecipe:
    """A law as kernels draw from it: ``scale`` times a standard draw, sums cut to ±``limit``."""

    law: str  # "laplace" or "t"
    scale: float
    limit: float  # inf when nothing is cut
    nu: float = 0.0  # of "t"


class Law(ABC):
    """A symmetric law on R^L with a density."""

    dimension: int

    @property
    @abstractmethod
    def variance(self) -> float:
        """Per entry, averaged."""

    @property
    def covariance(self) -> Array:
        return self.variance * np.eye(self.dimension)

    @abstractmethod
    def epsilon(self, distance: float = DIAMETER) -> float:
        """The largest log-ratio of the density between two centres that far apart."""

    @abstractmethod
    def density(self, x: ArrayLike) -> Array: ...

    @abstractmethod
    def distribution(self, x: ArrayLike) -> Array:
        """Cumulative distribution of one entry."""

    @abstractmethod
    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        """Draws ``start``… of the stream, one a row."""

    @abstractmethod
    def matched(self, dither_covariance: Array) -> Law | None:
        """The law of this family that has this variance when a dither is added, if there is one.

        A dither whose covariance is not a multiple of the identity is matched at its largest
        variance in any direction, so that the noise is never too small by its own account.
        """

    def recipe(self) -> NoiseRecipe | None:
        """How kernels draw this noise; None where only the plain path can."""
        return None

    # Where the sampler ends: it draws from finitely many bits

    @property
    @abstractmethod
    def reach(self) -> float:
        """Where noisy entries are cut (``add_noise``), within the end of every draw."""

    @cached_property
    def cut(self) -> float:
        """Where ``add_noise`` cuts: inf when the law is too narrow for it."""
        limit = self.reach - 1.0
        return limit if limit >= 1.0 else math.inf

    @property
    def covers_ball(self) -> bool:
        """Whether the sampler reaches from any input to every output of any other."""
        return self.reach >= DIAMETER

    @property
    def lost(self) -> float:
        """Up to which part of the density the sampler's ends take, but for 2⁻⁷⁰ of all draws."""
        return 0.0

    @property
    def steep_within(self) -> float:
        """How far out noise tells inputs apart: beyond, min(ε/2, 1) of ε is left."""
        return self.reach


def into_unit_ball(samples: Array) -> tuple[Array, int]:
    """Samples moved radially into the unit ball, and how many had to be."""
    if samples.shape[1] == 1:
        clipped = np.clip(samples, -1.0, 1.0)
        return clipped, int(np.count_nonzero(clipped != samples))
    norms = np.sqrt(portable.squares(samples))
    outside = norms > 1.0
    # one part in 10¹² short, so that rounding cannot leave the ball
    factors = np.where(outside, (1.0 - 1e-12) / np.where(outside, norms, 1.0), 1.0)
    return samples * factors[:, None], int(outside.sum())


def add_noise(law: Law, x: Array, stream: PrivateStream, start: int) -> Array:
    """x + noise for samples in the unit ball, cut to ``reach − 1`` in every entry.

    A sampler with finitely many bits has an end. Without the cut, one input could reach an output
    near the end that another input cannot reach. The cut depends on the noisy value alone, so it
    costs no privacy; for Laplace it lies beyond e⁻⁴⁶. Noise too narrow for a cut (``covers_ball``;
    ε > 48 for Laplace) is left alone, and promises nothing.
    """
    noisy = x + law.sample(stream, start, len(x))
    return np.clip(noisy, -law.cut, law.cut)


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

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        size = self.dimension
        draws = portable.laplace(stream, start * size, count * size)
        return self.scale * draws.reshape(count, size)

    def recipe(self) -> NoiseRecipe:
        return NoiseRecipe("laplace", self.scale, self.cut)

    def matched(self, dither_covariance: Array) -> Laplace | None:
        variance = self.variance - _largest_eigenvalue(dither_covariance)
        return replace(self, scale=math.sqrt(variance / 2.0)) if variance > 0 else None


def largest_pair(dimension: int, shortest: float, move: float) -> float:
    """Which share of its squared length two entries of a spherical draw hold, moved or not.

    The share of a pair is Beta(1, L/2 − 1); draws at least so long are moved at most so far. Holds
    but for 2⁻⁷².
    """
    if dimension <= 2 or shortest <= move:
        return 1.0
    pairs = (dimension + 1) // 2
    share = -math.expm1((math.log(RARE) - math.log(pairs)) / (0.5 * dimension - 1.0))
    side = (math.sqrt(share) * shortest + move) / (shortest - move)
    return min(1.0, side * side)


def as_rows(x: ArrayLike, dimension: int) -> Array:
    """Points of R^L, one a row."""
    return np.asarray(x, dtype=np.float64).reshape(-1, dimension)


def _largest_eigenvalue(matrix: Array) -> float:
    """The variance of a covariance's widest direction."""
    return float(np.linalg.eigvalsh(matrix)[-1])


def check_positive(name: str, value: float) -> None:
    """Raise unless 0 < value < ∞."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value}")


def check_dimension(dimension: int) -> None:
    """Raise unless a sample has entries."""
    if dimension < 1:
        raise ValueError(f"dimension must be at least 1, got {dimension}")
