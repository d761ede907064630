"""Dithered quantization of samples, with or without noise before it.

    encode  q = Q(x + n + d)        decode  q − d

x is the scaled sample, n the noise (private), d the dither (shared). Schemes differ in the law of n
alone; ``dq`` also keeps the dither when decoding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, cast, get_args

from jopeq.entries.additive import LawName, NoiseTarget
from jopeq.entries.ball import scaling_assumptions
from jopeq.entries.dithering import DitherCodec
from jopeq.lattice.codebook import (
    Codebook,
    codebook,
    letters_for_rate,
    step_for_support,
    step_for_unit_ball,
)
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Laplace, Law
from jopeq.privacy.calibration import CellBounds, guarantee_of_noise, shortest_vector
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.streams import PrivateStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array
from jopeq.schemes.parameters import LATTICE, LatticeParameter
from jopeq.wire.coders import Packing

Coding = Literal["fixed", "entropy"]
CODINGS = get_args(Coding)
Levels = Literal["all", "odd"]

_SAMPLES = 1 << 17
_TEST_SEED = b"jopeq: a reproducible test stream"[:32]


@lru_cache(maxsize=1)
def _test_update() -> Array:
    return portable.normal(PrivateStream.reproducible(_TEST_SEED), 0, _SAMPLES)


def measure_bits(scheme: Scheme) -> float:
    """Bits per entry of the entropy-coded body of a Gaussian update of 131,072 entries."""
    update = _test_update()
    if scheme.clip is not None:
        update = update * (scheme.clip / scheme.spread)
    _, counted = scheme.encode(
        update,
        seed=_TEST_SEED,
        noise=PrivateStream.reproducible(_TEST_SEED[::-1]),
        counts=True,
    )
    return counted.bits_per_entry


@dataclass(frozen=True, kw_only=True)
class QuantizedScheme(Scheme):
    """Dithered quantization of samples on a lattice.

    Parameters
    ----------
    rate : float, optional
        R, bits per entry: ⌊2^{RL}⌋ letters. Required unless ``step`` is given.
    lattice : Lattice, str or 2 × 2 generator, default "Z"
        "Z", "A2", "D4", "E8", or the rows of a generator matrix. L is its dimension.
    gamma : float, optional
        Radius of the ball that the cells of all letters fill. The default depends on the scheme.
    coding : {"fixed", "entropy"}, default "fixed"
        "fixed" spends R bits on every entry. "entropy" sends the lattice point itself, however far
        away, at the rate that its entropy needs.
    step : float, optional
        Magnification of the lattice, in place of ``rate``. Needs ``coding="entropy"``.
    levels : {"all", "odd"}, default "all"
        "all" has all ⌊2^{RL}⌋ letters. An even number of them lies around the origin (mid-rise).
        "odd" has one letter fewer where their number is even, so that the origin is a codeword
        (mid-tread, as in Definition II.2, which has one letter more than R bits can name). Fixed
        coding only: entropy coding always has the origin.
    """

    is_subtractive: ClassVar[bool] = True  # whether the decoder subtracts the dither

    rate: float | None = None
    lattice: LatticeParameter = LATTICE
    gamma: float | None = None
    coding: Coding = "fixed"
    step: float | None = None
    levels: Levels = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coding not in CODINGS:
            raise ValueError(f"coding must be 'fixed' or 'entropy', got {self.coding!r}")
        if self.levels not in get_args(Levels):
            raise ValueError(f"levels must be 'all' or 'odd', got {self.levels!r}")
        if self.levels == "odd" and self.coding == "entropy":
            raise ValueError("levels='odd' needs coding='fixed': entropy coding has the origin")
        if self.step is not None:
            if self.coding == "fixed":
                raise ValueError("step needs coding='entropy': at a fixed rate gamma sets the step")
            if self.rate is not None or self.gamma is not None:
                raise ValueError("give either step, or rate and gamma: both set the cell size")
        elif self.rate is None:
            remedy = "" if self.coding == "fixed" else ", or step, for the size of the cells"
            raise ValueError(f"scheme {self.name!r} needs rate (bits per entry){remedy}")
        self.cells  # noqa: B018 (checks rate, gamma and step together)
        if self.coding == "fixed":
            self.codebook  # noqa: B018

    @cached_property
    def codec(self) -> DitherCodec:
        return DitherCodec(self)

    # What the schemes of this family define

    @abstractmethod
    def _default_gamma(self, rate: float) -> float | None:
        """The paper's support radius; None covers the unit ball exactly."""

    @property
    def _nominal(self) -> float | None:
        """The ε asked for; None in a scheme without privacy."""
        return None

    @property
    def noise(self) -> Law | None:
        """The law of n; None where nothing is added."""
        return None

    # What they share

    @cached_property
    def dimension(self) -> int:
        return self.lattice.dimension

    @cached_property
    def cells(self) -> Lattice:
        """The lattice at its final magnification."""
        if self.rate is None:
            return self.lattice.scaled(1.0 if self.step is None else self.step)
        letters = self._letters(self.rate)
        gamma = self._default_gamma(self.rate) if self.gamma is None else self.gamma
        if gamma is None:
            return self.lattice.scaled(step_for_unit_ball(self.lattice, letters))
        return self.lattice.scaled(step_for_support(self.lattice, letters, gamma))

    @cached_property
    def codebook(self) -> Codebook:
        """The lattice points that a letter can name."""
        if self.rate is None:
            raise ValueError("a codebook needs rate")
        return codebook(self.cells, self._letters(self.rate))

    def _letters(self, rate: float) -> int:
        letters = letters_for_rate(rate, self.dimension)
        if self.levels == "all" or letters % 2:
            return letters
        if letters < 4:
            least = math.log2(3.0) / self.dimension
            raise ValueError(
                f"levels='odd' needs three letters, rate of at least {least:.4g} bits per entry, "
                f"got {rate}: raise rate, or drop levels"
            )
        return letters - 1

    @cached_property
    def bits_per_entry(self) -> float:
        """At a fixed rate exact; entropy-coded, measured on a Gaussian update."""
        if self.coding == "entropy":
            return measure_bits(self)
        return Packing(self.codebook.letters).bits_per_letter / self.dimension

    @cached_property
    def distortion(self) -> float:
        """Noise plus quantization; at a fixed rate overload is counted in.

        Entropy-coded ``dq`` is given as its mean over all x: at the centre it makes no error.
        """
        return self.codec.measure_distortion()

    @property
    def guarantee(self) -> Guarantee:
        """By post-processing: all the server sees is computed from x + n and the dither."""
        return guarantee_of_noise(
            self.noise,
            nominal=self._nominal,
            is_exact=self.noise is not None and self._attains_bound(self.noise),
            sample_size=self.dimension,
            assumptions=scaling_assumptions(self),
            cells=CellBounds.of(self.cells),
        )

    def _attains_bound(self, noise: Law) -> bool:
        """Laplace on Z: whether the tail letter lies beyond [−1, 1] for some dither."""
        if not isinstance(noise, Laplace) or self.dimension != 1:
            return False
        if self.coding == "entropy":
            return True
        return 0.5 * self.cells.step * (self.codebook.letters - 1) >= 1.0


@dataclass(frozen=True, kw_only=True)
class SubtractiveDither(QuantizedScheme):
    """The paper's "FL+SDQ": decoded Q(x + d) − d, compression without privacy.

    The error is uniform on the cell (Theorem II.5).

    >>> SubtractiveDither(rate=2.0).distortion == (2 / 3) ** 2 / 12
    True
    """

    name: ClassVar[str] = "sdq"
    is_private: ClassVar[bool] = False

    def _default_gamma(self, rate: float) -> float | None:
        return None


@dataclass(frozen=True, kw_only=True)
class NonSubtractiveDither(SubtractiveDither):
    """Decoded Q(x + d), dither and all. The error depends on x, on average twice that of sdq."""

    name: ClassVar[str] = "dq"
    is_subtractive: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class PrivateQuantizedScheme(QuantizedScheme):
    """Noise, then dithered quantization.

    Parameters
    ----------
    epsilon : float
        Privacy asked for, per sample.
    nu : float, optional
        Degrees of freedom ν > 2 of a t law. By default ν makes the variance smallest.
    squared_scale : float, optional
        s² of a t law, together with ``nu``. By default the smallest s² that is ε-private.
    paper_sensitivity : bool, default False
        Calibrate a Laplace or t law as the paper prints it. Where the printed distance is too
        small, the ε that holds is larger than ``epsilon``; ``guarantee`` states it.
    """

    epsilon: float
    nu: float | None = None
    squared_scale: float | None = None
    paper_sensitivity: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = self.noise  # checks its parameters
        if noise is not None:
            self._check_step(noise)

    def _check_step(self, noise: Law) -> None:
        """Refuse cells so fine that floating-point draws would show through them.

        On Z a cell must hold 2²⁷ of the 2⁵¹ draws of an octave; elsewhere, where a pair of entries
        shares a radius √E, the cell about 0 must hold 2²² of them. And the ball must not be wider
        than 2⁴⁹ cells, so that no noisy value is ever refused as too far: that would tell of it.
        """
        bits = 24 if self.dimension == 1 else 14
        shortest, step = shortest_vector(self.cells), self.cells.step
        least = max(math.ldexp(math.sqrt(noise.variance), -bits), 2.0**-48) * step / shortest
        if step < least:
            remedy = "raise step" if self.step is not None else "lower rate or raise gamma"
            raise ValueError(
                f"step must be at least {least:.3g} (2⁻{bits} of the noise, 2⁻⁴⁸ of the ball), or "
                f"rounding errors would show; got {step:.3g}: {remedy}"
            )

    @property
    @abstractmethod
    def _law_name(self) -> LawName:
        """The family of the target."""

    @cached_property
    def target(self) -> NoiseTarget:
        """The noise law asked for."""
        return NoiseTarget(
            self._law_name,
            self.epsilon,
            self.dimension,
            self.nu,
            self.squared_scale,
            self.paper_sensitivity,
        )

    @property
    def _nominal(self) -> float | None:
        return self.epsilon

    def _default_gamma(self, rate: float) -> float | None:
        return self.target.gamma(rate)


@dataclass(frozen=True, kw_only=True)
class SeparateScheme(PrivateQuantizedScheme):
    """Noise of the target itself, then SDQ: the paper's baselines FL+Lap+SDQ and FL+t+SDQ.

    ε holds against the server by post-processing.
    """

    @property
    def _law_name(self) -> LawName:
        return cast(LawName, self.name.removesuffix("+sdq"))

    @property
    def noise(self) -> Law:
        return self.target.noise


@dataclass(frozen=True, kw_only=True)
class LaplaceThenDither(SeparateScheme):
    """Laplace noise, then SDQ.

    >>> LaplaceThenDither(epsilon=4.0, rate=2.0).guarantee.epsilon
    4.0
    """

    name: ClassVar[str] = "laplace+sdq"


@dataclass(frozen=True, kw_only=True)
class StudentThenDither(SeparateScheme):
    """Multivariate t noise, then SDQ (on any lattice; the paper takes A2)."""

    name: ClassVar[str] = "t+sdq"


@dataclass(frozen=True, kw_only=True)
class JoPEQ(PrivateQuantizedScheme):
    """The paper's scheme: q = Q(ζh + n + d), decoded ζ⁻¹(q − d) (Algorithm 1).

    Noise n and dither d together have the covariance of a target law. The noise of (14) and (15)
    does not exist (its characteristic function would have poles on the dual lattice), so n is of
    the target's family with the target's covariance minus the dither's. Where that covariance is
    not positive (the regime of Theorem III.3) nothing is added.

    The server knows d, so n alone hides the sample: ``guarantee.epsilon`` is the ε of n,
    ``guarantee.nominal`` the ε of the target.

    >>> JoPEQ(epsilon=4.0, rate=1.0).guarantee.nominal
    4.0
    >>> round(JoPEQ(epsilon=4.0, rate=1.0).guarantee.epsilon, 2)
    10.12

    Parameters
    ----------
    law : {"laplace", "t"}, optional
        Family of the target. By default "laplace" on Z and "t" on other lattices.
    """

    name: ClassVar[str] = "jopeq"

    law: LawName | None = None

    @property
    def _law_name(self) -> LawName:
        if self.law is not None:
            return self.law
        return "laplace" if self.dimension == 1 else "t"

    @cached_property
    def noise(self) -> Law | None:
        return self.target.noise.matched(self.cells.covariance)
