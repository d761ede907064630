"""Noise that looks alike in every direction: the ℓ2 mechanism and Gaussian noise.

The paper names both as future work. Both are drawn from normal vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jopeq.noise.law import DIAMETER, RARE, Array, ScaledLaw, as_rows
from jopeq.random import portable
from jopeq.random.portable import FAR_EXPONENTIAL, FAR_WORDS
from jopeq.random.streams import PrivateStream

_LENGTH_LANE, _NODES = 1, 64


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
        """Longer draws would add more than P(longer)/2⁻⁷² to 2⁻⁷² of all draws at most (Markov)."""
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
        """Without a δ."""
        return math.inf if distance > 0 else 0.0

    @property
    def slope(self) -> float:
        """It grows with the distance, up to where noisy values are cut."""
        return (self.reach + DIAMETER) / self.scale**2

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
