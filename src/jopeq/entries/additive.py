"""Nothing is quantized: noise alone, Laplace or t (the paper's FL+Lap and FL+t), or none (FL).

The noisy value is sent as an integer multiple of a fine grid g. x is rounded to the grid before the
noise is added, the sum afterwards, so that nothing sent reveals how floating-point numbers near x
lie (Mironov 2012). The proof covers both roundings.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_count
from jopeq.noise import (
    DIAMETER,
    EuclideanLaplace,
    Gaussian,
    Laplace,
    Law,
    MultivariateT,
    add_noise,
    into_unit_ball,
)
from jopeq.privacy.calibration import (
    KEPT_DELTA,
    CellBounds,
    calibrate_laplace,
    calibrate_t,
    check_epsilon,
    guarantee_of_noise,
)
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.portable import squares
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array, Codec, Letters
from jopeq.wire.coders import Coder, WordCoder

LAWS = ("laplace", "t", "l2", "gaussian")
MakeLaw = Callable[[float, int], Law]
"""Makes the law for an ε and a number of entries per sample."""
SquaredScale = float | tuple[tuple[float, ...], ...]
"""s², or a matrix Σ."""

_NAMED: dict[str, MakeLaw] = {}

_GRID_BITS = 16  # the grid is this much finer than the noise, or than the unit ball
_WORD_LIMIT = 2**31 - 1
_MAX_SIZE = 1 << 16


def name_law(name: str, make: MakeLaw) -> None:
    """Make ``law=name`` known; ``jopeq.register`` calls it."""
    if name in (*LAWS, *_NAMED):
        raise ValueError(f"law {name!r} is known already: choose another name")
    _NAMED[name] = make


@dataclass(frozen=True)
class NoiseTarget:
    """The noise law that a private scheme aims at.

    ``nu`` and ``squared_scale`` (the paper's ν and s² or Σ) fix a t law by hand. The ε that holds
    is then the law's, whatever ``epsilon`` says.
    """

    law: str
    epsilon: float
    dimension: int
    nu: float | None = None
    squared_scale: SquaredScale | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.law not in (*LAWS, *_NAMED):
            known = ", ".join((*LAWS, *_NAMED))
            raise ValueError(f"law must be one of {known}, got {self.law!r}")
        if self.law != "t" and (self.nu is not None or self.squared_scale is not None):
            raise ValueError(f"nu and squared_scale belong to law='t', this is law={self.law!r}")
        is_fine = self.delta is None or 1e-12 <= self.delta < 0.5
        if (self.delta is not None) != (self.law == "gaussian") or not is_fine:
            raise ValueError(f"law='gaussian' alone has delta, from 1e-12 to 0.5, got {self.delta}")
        if self.squared_scale is not None and self.nu is None:
            raise ValueError("squared_scale needs nu: give both, or neither to have them chosen")

    @cached_property
    def noise(self) -> Law:
        """The calibrated law."""
        if self.law in _NAMED:
            return _NAMED[self.law](self.epsilon, self.dimension)
        if self.law == "laplace" or (self.law == "l2" and self.dimension == 1):  # the same law
            return calibrate_laplace(self.epsilon, self.dimension)
        if self.law == "l2":
            return EuclideanLaplace(DIAMETER / self.epsilon, self.dimension)
        if self.delta is not None:
            from dp_accounting import get_sigma_gaussian  # analytic (Balle and Wang 2018)

            sigma = DIAMETER * get_sigma_gaussian(self.epsilon, self.delta * KEPT_DELTA)
            return Gaussian(sigma, self.dimension)
        if self.nu is not None and self.squared_scale is not None:
            return MultivariateT(self.nu, self.squared_scale, self.dimension)
        return calibrate_t(self.epsilon, self.dimension, nu=self.nu)

    def gamma(self, rate: float) -> float:
        """The paper's support: 2R + 1/ε for Laplace on Z, 1.5(1 + variance) for t on A2."""
        if self.dimension == 1 and self.law == "laplace":
            return 2.0 * rate + 1.0 / self.epsilon
        longer = math.sqrt(max(1.0, self.dimension / 2))  # than on A2, as the noise is
        return 1.5 * (1.0 + self.noise.variance) * longer


@dataclass(frozen=True, kw_only=True)
class AdditiveNoise(Scheme):
    """Noise n on samples x of L entries: x + n, 32 bits per entry.

    Parameters
    ----------
    epsilon : float
        Privacy asked for, per sample.
    """

    epsilon: float

    @property
    @abstractmethod
    def target(self) -> NoiseTarget:
        """The noise law asked for."""

    @property
    def noise(self) -> Law:
        """The law of n."""
        return self.target.noise

    @cached_property
    def grid(self) -> float:
        """g, a power of two: 2⁻¹⁶ of the noise or the ball, and such that 32 bits suffice."""
        fine = math.frexp(min(math.sqrt(self.noise.variance), 1.0))[1] - _GRID_BITS
        wide = math.frexp((self.noise.reach + 1.0) / _WORD_LIMIT)[1]
        return math.ldexp(1.0, max(fine, wide))

    @property
    def guarantee(self) -> Guarantee:
        return guarantee_of_noise(
            self.noise,
            nominal=self.epsilon,
            is_exact=isinstance(self.noise, Laplace) and self.dimension == 1,
            sample_size=self.dimension,
            assumptions=self.scaling.assumptions,
            cells=CellBounds.grid(self.grid, self.dimension),
        )

    @property
    def distortion(self) -> float:
        return self.noise.variance

    codec = cached_property(lambda self: AdditiveCodec(self))


class AdditiveCodec(Codec[AdditiveNoise]):
    """A letter is a multiple of the grid."""

    has_dither: ClassVar[bool] = False
    noise: Law

    def __init__(self, scheme: AdditiveNoise) -> None:
        super().__init__(scheme)
        check_count("size", scheme.dimension, 1, _MAX_SIZE)
        self.noise, self.grid = scheme.noise, scheme.grid

    @cached_property
    def coder(self) -> Coder:
        return WordCoder(self.dimension, "<i4")

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        samples, clipped = into_unit_ball(samples)
        noisy = add_noise(self.noise, self._on_grid(samples), private, first)
        return Letters(np.clip(np.rint(noisy / self.grid), -_WORD_LIMIT, _WORD_LIMIT), clipped)

    def _on_grid(self, samples: Array) -> Array:
        """Round samples to the grid, towards 0 where the nearest multiple leaves the ball."""
        rounded = np.rint(samples / self.grid) * self.grid
        outside = squares(rounded) > 1.0
        rounded[outside] = np.trunc(samples[outside] / self.grid) * self.grid
        return np.asarray(rounded)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return letters * self.grid


@dataclass(frozen=True, kw_only=True)
class LaplaceNoise(AdditiveNoise):
    """Independent Laplace noise of scale 2/ε on every entry (paper, Theorem II.7).

    >>> LaplaceNoise(epsilon=4.0).distortion
    0.5
    """

    name: ClassVar[str] = "laplace"

    @cached_property
    def target(self) -> NoiseTarget:
        return NoiseTarget("laplace", self.epsilon, 1)


@dataclass(frozen=True, kw_only=True)
class StudentNoise(AdditiveNoise):
    """Multivariate t noise on samples of ``size`` entries (paper, Theorem II.8).

    Parameters
    ----------
    size : int, default 2
        L: entries of one sample.
    nu : float, optional
        Degrees of freedom ν > 2. The default minimises the variance.
    squared_scale : float, optional
        s², together with ``nu``. The default is the smallest s² that is ε-private.
    """

    name: ClassVar[str] = "t"

    size: int = 2
    nu: float | None = None
    squared_scale: float | None = None

    @property
    def dimension(self) -> int:
        return self.size

    @cached_property
    def target(self) -> NoiseTarget:
        return NoiseTarget("t", self.epsilon, self.size, self.nu, self.squared_scale)


@dataclass(frozen=True, kw_only=True)
class Uncompressed(Scheme):
    """No compression and no privacy: float32 as it is, the yardstick (the paper's "FL").

    Nothing is scaled, so every parameter must keep its default.

    >>> scheme = Uncompressed()
    >>> scheme.decode(scheme.encode(np.float32([1.5, -2.0]))).tolist()
    [1.5, -2.0]
    """

    name: ClassVar[str] = "none"
    is_private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            raise ValueError(
                f"scheme 'none' sends the update as it is and takes no parameters: drop "
                f"{', '.join(given)}"
            )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=math.inf)

    @property
    def distortion(self) -> float:
        return 0.0

    codec = cached_property(lambda self: UncompressedCodec(self))


class UncompressedCodec(Codec[Uncompressed]):
    """An entry is a letter."""

    has_dither: ClassVar[bool] = False
    is_scaled: ClassVar[bool] = False
    is_bounded = False

    @cached_property
    def coder(self) -> Coder:
        return WordCoder(self.dimension, "<f4")

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        return Letters(samples)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return letters.astype(np.float64)
