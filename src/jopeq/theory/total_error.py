"""The law of noise plus dither on Z, and how far it is from the law it stands for (Theorem III.2).

Without overload the decoded error is n + u: n the private noise, u uniform on a cell of width Δ.
Distribution function and density have closed forms for Laplace n; the distance of two symmetric
densities follows exactly from the points where they cross.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.noise import Laplace
from jopeq.schemes.jopeq import JoPEQ

Array = NDArray[np.float64]

_GRID = 4001
_REACH = 60.0  # scales: a Laplace law has e⁻⁶⁰ of its mass beyond


class LineLaw(Protocol):
    """A symmetric law on the line with a density."""

    def density(self, x: ArrayLike) -> Array: ...

    def distribution(self, x: ArrayLike) -> Array: ...


@dataclass(frozen=True)
class Distance:
    """Of two laws: sup|F − G| and ½∫|f − g|."""

    kolmogorov: float
    total_variation: float


@dataclass(frozen=True)
class DitheredLaplace:
    """n + u with n Laplace of scale b (or nothing at all) and u uniform on (−Δ/2, Δ/2).

    >>> law = DitheredLaplace(Laplace(0.5), step=1.0)
    >>> float(law.distribution(0.0)), round(law.variance, 4)
    (0.5, 0.5833)
    """

    noise: Laplace | None
    step: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step) and self.step > 0):
            raise ValueError(f"step must be a positive number, got {self.step}")
        if self.noise is not None and self.noise.dimension != 1:
            raise ValueError(f"noise must be a law on the line, got {self.noise}")

    @property
    def variance(self) -> float:
        own = 0.0 if self.noise is None else self.noise.variance
        return own + self.step**2 / 12.0

    def distribution(self, x: ArrayLike) -> Array:
        """(1/Δ)·∫ F_n over (x − Δ/2, x + Δ/2)."""
        z = np.asarray(x, dtype=np.float64)
        half = 0.5 * self.step
        return (self._integral(z + half) - self._integral(z - half)) / self.step

    def density(self, x: ArrayLike) -> Array:
        """(F_n(x + Δ/2) − F_n(x − Δ/2))/Δ, from the left tail so that nothing cancels."""
        z = -np.abs(np.asarray(x, dtype=np.float64))
        half = 0.5 * self.step
        if self.noise is None:
            return np.where(z >= -half, 1.0 / self.step, 0.0)
        inner = self.noise.distribution(z + half) - self.noise.distribution(z - half)
        return np.asarray(inner / self.step)

    def _integral(self, x: Array) -> Array:
        """∫ F_n up to x: max(x, 0) + (b/2)·e^{−|x|/b}."""
        ramp = np.maximum(x, 0.0)
        if self.noise is None:
            return ramp
        scale = self.noise.scale
        return np.asarray(ramp + 0.5 * scale * np.exp(-np.abs(x) / scale))


@dataclass(frozen=True)
class StaircaseLaw:
    """u + Δk with P(k) ∝ r^{|k|}: what the scalar ``staircase`` scheme adds to every input.

    >>> law = StaircaseLaw(ratio=0.5, step=1.0)
    >>> law.density([0.0, 0.7, 1.6]).round(4).tolist(), float(law.distribution(0.0))
    ([0.3333, 0.1667, 0.0833], 0.5)
    """

    ratio: float
    step: float

    def density(self, x: ArrayLike) -> Array:
        cell = np.floor(np.abs(np.asarray(x, dtype=np.float64)) / self.step + 0.5)
        return np.asarray(self._mode * self.ratio**cell / self.step)

    def distribution(self, x: ArrayLike) -> Array:
        """From the left tail: all cells further out, and the part of its own."""
        z = np.asarray(x, dtype=np.float64) / self.step
        place = np.abs(z) + 0.5
        cell = np.floor(place)
        beyond = self.ratio ** (cell + 1) / (1.0 + self.ratio)
        left = beyond + self._mode * self.ratio**cell * (cell + 1.0 - place)
        return np.where(z < 0, left, 1.0 - left)

    @property
    def _mode(self) -> float:
        return (1.0 - self.ratio) / (1.0 + self.ratio)


def distance(one: LineLaw, two: LineLaw, reach: float, kinks: Sequence[float] = ()) -> Distance:
    """The distance of two symmetric laws with no mass to speak of beyond ``reach``.

    Between crossings the difference of the densities keeps its sign, so that the integral of its
    modulus is a sum of differences of distribution functions, and the largest difference of the
    distribution functions is at a crossing. ``kinks`` are where a density jumps.
    """
    from scipy import optimize

    def gap(x: float) -> float:
        return float(np.subtract(one.density(x), two.density(x)).item())

    # closer together near 0, where densities cross; both sides of every jump
    grid = reach * np.linspace(0.0, 1.0, _GRID) ** 2
    jumps = [float(np.nextafter(kink, side)) for kink in kinks for side in (0.0, math.inf)]
    points = np.unique(np.concatenate((grid, jumps)))
    signs = np.sign(one.density(points) - two.density(points))
    places = np.flatnonzero(signs[1:] * signs[:-1] < 0)
    crossings = [optimize.brentq(gap, points[i], points[i + 1], xtol=1e-14) for i in places]
    edges = np.array([0.0, *crossings, reach])
    ahead = one.distribution(edges) - two.distribution(edges)
    ahead[0], ahead[-1] = 0.0, 0.0  # ½ and 1, whatever rounding makes of them
    return Distance(float(np.abs(ahead).max()), float(np.abs(np.diff(ahead)).sum()))


def scalar_distance(scheme: JoPEQ) -> Distance:
    """How far the total error of a scalar JoPEQ scheme is from its Laplace target, overload aside.

    >>> found = scalar_distance(JoPEQ(epsilon=4.0, rate=1.0))
    >>> round(found.kolmogorov, 3), round(found.total_variation, 3)
    (0.099, 0.237)
    """
    target = scheme._target.noise
    if not isinstance(target, Laplace) or target.dimension != 1:
        raise ValueError(f"scalar_distance needs a Laplace target on Z, got {scheme.spec}")
    total = total_error(scheme)
    reach = _REACH * target.scale + scheme._cells.step
    return distance(total, target, reach, kinks=(0.5 * scheme._cells.step,))


def total_error(scheme: JoPEQ) -> DitheredLaplace:
    """The law of noise plus dither of a scalar scheme with Laplace noise."""
    noise = scheme.noise
    if scheme.dimension != 1 or not (noise is None or isinstance(noise, Laplace)):
        raise ValueError(f"total_error needs Laplace noise on Z, got {scheme.spec}")
    return DitheredLaplace(noise, scheme._cells.step)


def overload_chance(scheme: JoPEQ, x: float) -> float:
    """P(|x + n + d| > γ) of a scalar scheme at a fixed rate: the theorems want it to vanish."""
    law = total_error(scheme)
    gamma = 0.5 * scheme._cells.step * scheme._codebook.letters
    below, above = law.distribution(-gamma - x), law.distribution(-gamma + x)
    return float(below + above)
