"""The laws of private noise on R^L, and how their draws are added to samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.checks import check_count, check_positive
from jopeq.random import portable
from jopeq.random.portable import FAR_EXPONENTIAL, FAR_WORDS, MAX_EXPONENTIAL
from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]

DIAMETER = 2.0  # two points of the unit ball are at most this far apart
_LENGTH_LANE, _NODES = 1, 64
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
        """Variance per entry, averaged."""

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
        """Draws ``start``… of the stream, one per row."""

    @abstractmethod
    def match(self, dither_covariance: Array) -> Law | None:
        """The law of this family that with a dither has this law's variance at most, or None."""

    def recipe(self) -> NoiseRecipe | None:
        """How kernels draw this noise; None if only the plain path can."""
        return None

    # Where the sampler ends: it draws from finitely many bits

    @property
    @abstractmethod
    def reach(self) -> float:
        """Bound within the end of every draw; ``add_noise`` cuts noisy entries at ``reach − 1``."""

    @cached_property
    def cut(self) -> float:
        """Where ``add_noise`` cuts; inf if the law is too narrow for it."""
        limit = self.reach - 1.0
        return limit if limit >= 1.0 else math.inf

    @property
    def covers_ball(self) -> bool:
        """True if the sampler reaches from any input to every output of any other."""
        return self.reach >= DIAMETER

    @property
    def lost(self) -> float:
        """Bound on the share of density that the sampler's ends take, except in 2⁻⁷⁰ of draws."""
        return 0.0

    @property
    def steep_within(self) -> float:
        """The distance beyond which noise has min(ε/2, 1) of its ε to spare."""
        return self.reach

    @property
    def slope(self) -> float:
        """The steepest slope of the log-density."""
        near = 1e-9 * math.sqrt(self.variance)
        return self.epsilon(near) / near


def into_unit_ball(samples: Array) -> tuple[Array, int]:
    """Move samples radially into the unit ball; also returns how many were moved."""
    if samples.shape[1] == 1:
        clipped = np.clip(samples, -1.0, 1.0)
        return clipped, int(np.count_nonzero(clipped != samples))
    norms = portable.squares(samples)
    np.sqrt(norms, out=norms)
    outside = norms > 1.0
    # one part in 10¹² short, so that rounding cannot leave the ball
    factors = np.where(outside, (1.0 - 1e-12) / np.where(outside, norms, 1.0), 1.0)
    inside = np.empty_like(samples)
    np.multiply(samples.T, factors, out=inside.T)  # long loops along the samples
    return inside, int(np.count_nonzero(outside))


def add_noise(law: Law, x: Array, stream: PrivateStream, start: int) -> Array:
    """x + noise for samples in the unit ball, cut to ``reach − 1`` in every entry.

    A sampler with finitely many bits has an end: without the cut, one input could reach outputs
    near it that another cannot. The cut is post-processing, so it costs no privacy. Noise too
    narrow for it (``covers_ball``; ε > 48 for Laplace) is not cut and promises nothing.
    """
    noisy = law.sample(stream, start, len(x))
    np.add(noisy.T, x.T, out=noisy.T)  # long loops along the samples
    return np.clip(noisy, -law.cut, law.cut, out=noisy)


@dataclass(frozen=True)
class ScaledLaw(Law):
    """``scale`` times a standard draw, whose entries have the variance ``power``."""

    scale: float
    dimension: int = 1

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_count("dimension", self.dimension, 1)

    @property
    @abstractmethod
    def power(self) -> float: ...

    @property
    def variance(self) -> float:
        return self.power * self.scale**2

    def match(self, dither_covariance: Array) -> Self | None:
        variance = self.variance - float(np.linalg.eigvalsh(dither_covariance)[-1])
        return replace(self, scale=math.sqrt(variance / self.power)) if variance > 0 else None


@dataclass(frozen=True)
class Laplace(ScaledLaw):
    """Independent Laplace entries of scale b: density (2b)⁻ᴸ e^{−‖x‖₁/b} (paper, eq. 9).

    Two points at Euclidean distance D are at most √L·D apart in ℓ1, so ε = √L·D/b.

    >>> Laplace(scale=0.5).epsilon(), Laplace(scale=0.5).variance
    (4.0, 0.5)
    """

    @property
    def power(self) -> float:
        return 2.0

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
        draws *= self.scale
        return draws.reshape(count, size)

    def recipe(self) -> NoiseRecipe:
        return NoiseRecipe("laplace", self.scale, self.cut)


def largest_pair(dimension: int, shortest: float, move: float) -> float:
    """Bound the share of the squared length that two entries of a spherical draw hold.

    It is Beta(1, L/2 − 1); draws are at least ``shortest`` long and moved by at most ``move``. The
    bound fails with probability below 2⁻⁷².
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


@dataclass(frozen=True)
class MultivariateT(Law):
    """Multivariate t: density ∝ (1 + xᵀΣ⁻¹x/ν)^{−(ν+L)/2}, Σ = s²·I or a full matrix.

    ε of a shift by D (paper, eq. 11, with the exponent (ν+L)/2 that its density gives):
    e^ε = [(1 + c²/ν)/(1 + (c−Δ)²/ν)]^{(ν+L)/2}, Δ = D/s, c = (Δ + √(Δ²+4ν))/2.

    >>> round(MultivariateT(nu=6, squared_scale=1.131, dimension=2).epsilon(), 2)
    3.0
    """

    nu: float
    squared_scale: float | tuple[tuple[float, ...], ...]
    dimension: int

    def __post_init__(self) -> None:
        check_count("dimension", self.dimension, 1)
        if not (math.isfinite(self.nu) and self.nu > 2):
            raise ValueError(f"nu must be above 2 (finite variance), got {self.nu}")
        if isinstance(self.squared_scale, (int, float)):
            check_positive("squared_scale", self.squared_scale)
            return
        matrix = np.asarray(self.squared_scale, dtype=np.float64)
        shape = (self.dimension, self.dimension)
        if matrix.shape != shape or not np.allclose(matrix, matrix.T):
            raise ValueError(f"squared_scale must be a number or a symmetric {shape} matrix")
        if not np.linalg.eigvalsh(matrix)[0] > 0:
            raise ValueError("squared_scale must be positive definite")
        object.__setattr__(self, "squared_scale", tuple(map(tuple, matrix.tolist())))

    @cached_property
    def scale_matrix(self) -> Array:
        """Σ."""
        if isinstance(self.squared_scale, (int, float)):
            return self.squared_scale * np.eye(self.dimension)
        return np.array(self.squared_scale)

    @property
    def covariance(self) -> Array:
        return np.asarray(self.scale_matrix * self.nu / (self.nu - 2.0))

    @property
    def variance(self) -> float:
        return float(self._scales.mean()) * self.nu / (self.nu - 2.0)

    @cached_property
    def _scales(self) -> Array:
        """The eigenvalues of Σ, ascending; one stands for all when Σ = s²·I."""
        if isinstance(self.squared_scale, (int, float)):
            return np.array([self.squared_scale], dtype=np.float64)
        return np.asarray(np.linalg.eigvalsh(self.scale_matrix))

    @property
    def reach(self) -> float:
        """Heavy tails have no natural end: they are cut where P(|entry| > reach) < 2⁻⁴⁰.

        Thin ones (ν in the tens and above) are cut before the sampler's own end.
        """
        largest = math.sqrt(float(self._scales[-1]))
        wanted = largest * math.sqrt(self.nu) * math.exp2(40.0 / self.nu)
        return max(DIAMETER, min(wanted, self._end))

    @cached_property
    def _end(self) -> float:
        """How far the sampler can carry all entries of a draw at once, whatever their signs.

        Draws of probability 2⁻⁶⁰ are within the reach of χ², normals and exponentials; the last
        octave of an exponential, which is lumped together, does not count.
        """
        largest = MAX_EXPONENTIAL - math.log(2.0)
        if self.dimension <= 2:  # radius over √L, see ``_planar``
            end = math.sqrt(self.nu * math.expm1(2.0 * largest / self.nu) / self.dimension)
        else:  # two normals share a radius of √(2E)
            from scipy import special

            least = 2.0 * float(special.gammaincinv(0.5 * self.nu, 2.0**-60))
            end = math.sqrt(largest * self.nu / least)
        return math.sqrt(float(self._scales[0])) * end

    @property
    def covers_ball(self) -> bool:
        return self._end >= DIAMETER

    @property
    def lost(self) -> float:
        """Above two dimensions numerator and denominator of the draw are both truncated.

        Given the noise, with T = xᵀΣ⁻¹x/ν, ½χ²(1 + T) is Gamma((ν + L)/2), and a pair of normals
        that holds the share v of the squared length has v·T·½χ².
        """
        if self.dimension <= 2:
            return 0.0
        from scipy import special

        half, size = 0.5 * self.nu, 0.5 * self.dimension
        move = DIAMETER / math.sqrt(self.nu * float(self._scales[0]))
        near, far = (
            float(special.betaincinv(*shape, RARE)) for shape in ((size, half), (half, size))
        )
        share = largest_pair(self.dimension, math.sqrt(near / (1.0 - near)), move)
        squared = (math.sqrt((1.0 - far) / far) + move) ** 2
        above = special.gammaincc(half + size, FAR_EXPONENTIAL / share * (1.0 + 1.0 / squared))
        below = special.gammainc(half + size, portable.least_gamma(half) * (1.0 + squared))
        return min(1.0, RARE + float(above + below))

    @property
    def steep_within(self) -> float:
        # beyond r = 4√ν·s a shift tells (ν + L)·ln(1 + Δ/r) at most, which is less than ε
        return min(self.reach, 4.0 * math.sqrt(self.nu * float(self._scales[-1])) + DIAMETER)

    def epsilon(self, distance: float = DIAMETER) -> float:
        smallest = float(self._scales[0])
        return t_epsilon(distance / math.sqrt(smallest), self.nu, self.dimension)

    def density(self, x: ArrayLike) -> Array:
        from scipy import stats

        law = stats.multivariate_t(shape=self.scale_matrix, df=self.nu)
        return np.atleast_1d(law.pdf(as_rows(x, self.dimension)))

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        draw = self._planar if self.dimension <= 2 else self._spatial
        directions, radius = draw(stream, start, count)
        if isinstance(self.squared_scale, (int, float)):
            radius *= math.sqrt(self.squared_scale)
            return np.multiply(directions.T, radius, out=directions.T).T
        # row by row, since a matrix product may round a row by the rows around it
        root = np.linalg.cholesky(self.scale_matrix)
        mixed = (directions[:, None, :] * root).sum(axis=2)
        return np.asarray(mixed * radius[:, None])

    def _planar(self, stream: PrivateStream, start: int, count: int) -> tuple[Array, Array]:
        """In the plane P(R² > νz) = (1 + z)^{−ν/2}, so that R = √(ν·expm1(2E/ν)), E exponential.

        One coordinate of a point of the plane has the law on the line.
        """
        words = stream.words64(lane=0, start=2 * start, count=2 * count)
        draws = portable.exponential_of(words[0::2], stream, 0, 2 * start, 2)
        draws *= 2.0 / self.nu
        radius = portable.expm1(draws)
        radius *= self.nu
        circle = np.stack(portable.circle(words[1::2])[: self.dimension])
        return circle.T, np.sqrt(radius, out=radius)

    def _spatial(self, stream: PrivateStream, start: int, count: int) -> tuple[Array, Array]:
        """A normal vector over √(χ²/ν)."""
        size = self.dimension
        normals = portable.normal(stream, start * size, count * size).reshape(count, size)
        chi_square = 2.0 * portable.gamma(0.5 * self.nu, stream, start, count)
        return normals, np.sqrt(self.nu / chi_square)

    def distribution(self, x: ArrayLike) -> Array:
        from scipy import special

        z = np.asarray(x, dtype=np.float64) / math.sqrt(float(self.scale_matrix[0, 0]))
        return np.asarray(special.stdtr(self.nu, z))

    def recipe(self) -> NoiseRecipe | None:
        if self.dimension > 2 or not isinstance(self.squared_scale, (int, float)):
            return None
        return NoiseRecipe("t", math.sqrt(self.squared_scale), self.cut, self.nu)

    def match(self, dither_covariance: Array) -> MultivariateT | None:
        rest = (self.covariance - dither_covariance) * (self.nu - 2.0) / self.nu
        if not np.linalg.eigvalsh(rest)[0] > 0:
            return None
        if np.allclose(rest, rest[0, 0] * np.eye(self.dimension), atol=1e-12 * rest[0, 0], rtol=0):
            return replace(self, squared_scale=float(rest[0, 0]))
        return replace(self, squared_scale=tuple(map(tuple, rest.tolist())))


def t_epsilon(shift: float, nu: float, dimension: int) -> float:
    """ε of the t mechanism for a shift of Δ scale units: the largest log-ratio of its density.

    c(c−Δ) = ν turns the ratio at c into c²/ν, so ε = (ν+L)·ln(c/√ν) = (ν+L)·arsinh(Δ/2√ν): the
    same number without the difference of two logarithms.
    """
    return (nu + dimension) * math.asinh(0.5 * shift / math.sqrt(nu))


@dataclass(frozen=True)
class EuclideanLaplace(ScaledLaw):
    """Density ∝ e^{−‖x‖₂/b}: a uniform direction, and a length b·Gamma(L) (the ℓ2 mechanism).

    A shift by D changes ‖x‖₂ by at most D, so ε = D/b, and points on a line attain it. On one entry
    use ``Laplace``, which is the same law.

    >>> EuclideanLaplace(scale=0.5, dimension=2).epsilon()
    4.0
    >>> EuclideanLaplace(scale=0.5, dimension=2).variance
    0.75
    """

    @property
    def power(self) -> float:
        return self.dimension + 1.0

    def epsilon(self, distance: float = DIAMETER) -> float:
        return distance / self.scale

    @property
    def reach(self) -> float:
        """Entries up to here, all at once, are within the length that draws can have."""
        return FAR_EXPONENTIAL * self.scale / math.sqrt(self.dimension)

    @property
    def lost(self) -> float:
        """By Markov, longer draws add more than P(longer)/2⁻⁷² to at most 2⁻⁷² of all draws."""
        from scipy import special

        return max(RARE, float(special.gammaincc(self.dimension, FAR_EXPONENTIAL)) / RARE)

    def density(self, x: ArrayLike) -> Array:
        size = self.dimension
        surface = 2.0 * math.pi ** (size / 2) / math.gamma(size / 2)
        mass = surface * math.gamma(size) * self.scale**size
        return np.asarray(np.exp(-np.linalg.norm(as_rows(x, size), axis=1) / self.scale) / mass)

    def distribution(self, x: ArrayLike) -> Array:
        """An entry is the length times a cosine of density ∝ (1 − u²)^{(L−3)/2}."""
        from scipy import special

        z = np.asarray(x, dtype=np.float64) / self.scale
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        angle = 0.25 * math.pi * (nodes + 1.0)
        weights = weights * np.sin(angle) ** (self.dimension - 2)
        lengths = np.abs(z)[..., None] / np.cos(angle)
        within = special.gammainc(self.dimension, lengths) @ weights / weights.sum()
        return np.asarray(0.5 + 0.5 * np.sign(z) * within)

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        size = self.dimension
        normals = portable.normal(stream, start * size, count * size).reshape(count, size)
        norms = np.sqrt(portable.squares(normals))
        words = {"lane": _LENGTH_LANE, "extra_words": FAR_WORDS}
        draws = portable.exponential(stream, start * size, count * size, **words)
        length = np.zeros(count)
        for column in draws.reshape(count, size).T:  # from left to right, as ``squares``
            length += column
        return normals * (self.scale * length / norms)[:, None]


@dataclass(frozen=True)
class Gaussian(ScaledLaw):
    """Independent normal entries of variance σ². No ε holds without a δ.

    >>> Gaussian(scale=0.5, dimension=2).epsilon(), Gaussian(scale=0.5).variance
    (inf, 0.25)
    """

    @property
    def power(self) -> float:
        return 1.0

    def epsilon(self, distance: float = DIAMETER) -> float:
        return math.inf if distance > 0 else 0.0

    @property
    def slope(self) -> float:
        return (self.reach + DIAMETER) / self.scale**2  # at the cut: it grows with the distance

    @property
    def reach(self) -> float:
        """Where half a square radius is 64: beyond lie fewer than e⁻⁶⁴ of the draws."""
        return math.sqrt(128.0) * self.scale

    def density(self, x: ArrayLike) -> Array:
        squares = np.square(as_rows(x, self.dimension) / self.scale).sum(axis=1)
        mass = (math.sqrt(2.0 * math.pi) * self.scale) ** self.dimension
        return np.asarray(np.exp(-0.5 * squares) / mass)

    def distribution(self, x: ArrayLike) -> Array:
        from scipy import special

        return np.asarray(special.ndtr(np.asarray(x, dtype=np.float64) / self.scale))

    def sample(self, stream: PrivateStream, start: int, count: int) -> Array:
        size = self.dimension
        return self.scale * portable.normal(stream, start * size, count * size).reshape(count, size)
