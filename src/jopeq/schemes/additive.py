"""Noise without quantization: Laplace and t (the paper's FL+Lap and FL+t), ℓ2 and Gaussian.

The noisy value is sent as an integer multiple of a fine grid g: x is rounded to the grid first, the
sum afterwards, so that what is sent carries no trace of how floating-point numbers near x lie
(Mironov 2012). Both roundings are functions of quantities the proof already covers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.recipe import MAX_SIZE, Grid, Recipe
from jopeq.noise import Laplace, Law, MultivariateT, add_noise
from jopeq.privacy.calibration import (
    Cells,
    calibrate_gaussian,
    calibrate_l2,
    calibrate_laplace,
    calibrate_t,
    check_epsilon,
    guarantee_of_noise,
)
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.portable import squares
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols, into_unit_ball, scaling_assumptions
from jopeq.wire.coders import Coder, WordCoder

# The noise law a private scheme aims at, from its parameters


LAWS = ("laplace", "t", "l2", "gaussian")
DELTA = 1e-5  # of Gaussian noise, when none is given


@dataclass(frozen=True)
class Target:
    """ε, the family and its free parameters, for samples of ``dimension`` entries.

    ``nu`` and ``squared_scale`` (the paper's ν and s²) fix a t law by hand; then its ε is whatever
    the law gives, and the ε asked for is only a name for it.
    """

    law: str
    epsilon: float
    dimension: int
    nu: float | None = None
    squared_scale: float | None = None
    paper_sensitivity: bool = False
    delta: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.law not in LAWS:
            raise ValueError(f"law must be one of {', '.join(LAWS)}, got {self.law!r}")
        if self.law != "t" and (self.nu is not None or self.squared_scale is not None):
            raise ValueError(f"nu and squared_scale belong to law='t', this is law={self.law!r}")
        if self.law not in ("t", "laplace") and self.paper_sensitivity:
            raise ValueError("paper_sensitivity belongs to the paper's laws, 'laplace' and 't'")
        if self.delta is not None and self.law != "gaussian":
            raise ValueError(f"delta belongs to law='gaussian', law={self.law!r} needs none")
        if self.delta is not None and not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be above 0 and below 1, got {self.delta}")
        if self.squared_scale is not None and self.nu is None:
            raise ValueError("squared_scale needs nu: give both, or neither to have them chosen")
        if self.squared_scale is not None and self.paper_sensitivity:
            raise ValueError("squared_scale is given, so paper_sensitivity has nothing to choose")

    @cached_property
    def noise(self) -> Law:
        """The calibrated law."""
        if self.law == "l2":
            return calibrate_l2(self.epsilon, self.dimension)
        if self.law == "gaussian":
            return calibrate_gaussian(self.epsilon, self.dimension, self.failure)
        if self.law == "laplace":
            return calibrate_laplace(
                self.epsilon, self.dimension, paper_sensitivity=self.paper_sensitivity
            )
        if self.nu is not None and self.squared_scale is not None:
            return MultivariateT(self.nu, self.squared_scale, self.dimension)
        return calibrate_t(
            self.epsilon, self.dimension, nu=self.nu, paper_sensitivity=self.paper_sensitivity
        )

    @property
    def failure(self) -> float:
        """δ, which only Gaussian noise uses."""
        return DELTA if self.delta is None else self.delta

    def gamma(self, rate: float) -> float:
        """The paper's support: 2R + 1/ε for Laplace on Z, 1.5(1 + variance) for t on A2.

        Elsewhere the noise is √(L/2) times as long as on A2, and so is the support.
        """
        if self.dimension == 1 and self.law in ("laplace", "l2"):
            return 2.0 * rate + 1.0 / self.epsilon
        return 1.5 * (1.0 + self.noise.variance) * math.sqrt(max(1.0, self.dimension / 2))


# Noise without quantization: Laplace and t (the paper's FL+Lap and FL+t), ℓ2 and Gaussian


Array = NDArray[np.float64]

_GRID_BITS = 16  # the grid is this much finer than the noise, or than the unit ball
_WORD_LIMIT = 2**31 - 1
_MAX_SIZE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class AdditiveScheme(Scheme):
    """y = x + n on samples of L entries, 32 bits each."""

    has_dither: ClassVar[bool] = False

    epsilon: float

    @property
    @abstractmethod
    def _target(self) -> Target: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.dimension <= _MAX_SIZE:
            raise ValueError(
                f"size must be a whole number from 1 to {_MAX_SIZE}, got {self.dimension}"
            )
        self.noise  # noqa: B018 (checks its parameters)

    @property
    def noise(self) -> Law:
        """The law of n."""
        return self._target.noise

    @cached_property
    def grid(self) -> float:
        """g, a power of two: 2⁻¹⁶ of the noise or of the ball, and such that 32 bits suffice."""
        fine = math.frexp(min(math.sqrt(self.noise.variance), 1.0))[1] - _GRID_BITS
        wide = math.frexp((self.noise.reach + 1.0) / _WORD_LIMIT)[1]
        return math.ldexp(1.0, max(fine, wide))

    @property
    def guarantee(self) -> Guarantee:
        return guarantee_of_noise(
            self.noise,
            nominal=self.epsilon,
            delta=self._target.failure,
            is_exact=isinstance(self.noise, Laplace) and self.dimension == 1,
            sample_size=self.dimension,
            assumptions=scaling_assumptions(self),
            cells=Cells.grid(self.grid, self.dimension),
        )

    @property
    def distortion(self) -> float:
        return self.noise.variance

    @property
    def bits_per_entry(self) -> float:
        return 32.0

    @property
    def _coder(self) -> Coder:
        return WordCoder(self.dimension, "<i4")

    @cached_property
    def _recipe(self) -> Recipe | None:
        noise = self.noise.recipe()
        return (
            None
            if noise is None or self.dimension > MAX_SIZE
            else Recipe(Grid(self.grid, self.dimension), noise)
        )

    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols:
        samples, clipped = into_unit_ball(samples)
        noisy = add_noise(self.noise, self._on_grid(samples), private, first)
        return Symbols(np.clip(np.rint(noisy / self.grid), -_WORD_LIMIT, _WORD_LIMIT), clipped)

    def _on_grid(self, samples: Array) -> Array:
        """Samples of the ball on the grid: to the nearest, towards 0 where that leaves the ball."""
        rounded = np.rint(samples / self.grid) * self.grid
        outside = squares(rounded) > 1.0
        rounded[outside] = np.trunc(samples[outside] / self.grid) * self.grid
        return np.asarray(rounded)

    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return symbols * self.grid


@dataclass(frozen=True, kw_only=True)
class LaplaceScheme(AdditiveScheme):
    """Independent Laplace noise of scale 2/ε on every entry (paper, Theorem II.7).

    >>> LaplaceScheme(epsilon=4.0).distortion
    0.5
    """

    name: ClassVar[str] = "laplace"

    @cached_property
    def _target(self) -> Target:
        return Target("laplace", self.epsilon, 1)


@dataclass(frozen=True, kw_only=True)
class VectorScheme(AdditiveScheme):
    """Noise drawn for ``size`` entries together."""

    size: int = 2

    @property
    def dimension(self) -> int:
        return self.size


@dataclass(frozen=True, kw_only=True)
class StudentScheme(VectorScheme):
    """Multivariate t noise (paper, Theorem II.8)."""

    name: ClassVar[str] = "t"

    nu: float | None = None
    squared_scale: float | None = None
    paper_sensitivity: bool = False

    @cached_property
    def _target(self) -> Target:
        return Target(
            "t", self.epsilon, self.size, self.nu, self.squared_scale, self.paper_sensitivity
        )


@dataclass(frozen=True, kw_only=True)
class RadialScheme(VectorScheme):
    """Noise of density ∝ e^{−ε‖x‖/2}: pure ε for the ball's true ℓ2 diameter.

    >>> RadialScheme(epsilon=4.0).distortion
    0.75
    """

    name: ClassVar[str] = "l2"

    @cached_property
    def _target(self) -> Target:
        return Target("l2", self.epsilon, self.size)


@dataclass(frozen=True, kw_only=True)
class GaussianScheme(VectorScheme):
    """Gaussian noise of (ε, δ), analytically calibrated."""

    name: ClassVar[str] = "gaussian"

    delta: float | None = None

    @cached_property
    def _target(self) -> Target:
        return Target("gaussian", self.epsilon, self.size, delta=self.delta)
