"""Dithered quantization of samples, with or without noise before it.

    encode  q = Q(x + n + d)        decode  q − d

x is the scaled sample, n the noise (private), d the dither (shared). Schemes differ in the law of n
alone; ``dq`` also keeps the dither when decoding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import UpdateError
from jopeq.kernels.recipe import MAX_LETTERS, Cells, Line, Recipe
from jopeq.lattice.codebook import (
    Codebook,
    LatticeCodebook,
    ScalarCodebook,
    codebook,
    letters_for_rate,
    step_for_support,
    step_for_unit_ball,
)
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Laplace, Law, add_noise
from jopeq.privacy.calibration import Cells as NoiseCells
from jopeq.privacy.calibration import guarantee_of_noise, shortest_vector
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import samplers
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.additive import Target
from jopeq.schemes.base import Scheme, Symbols, into_unit_ball, scaling_assumptions
from jopeq.wire.coders import Coder, IntegerCoder, LetterCoder
from jopeq.wire.packing import Packing

if TYPE_CHECKING:
    from jopeq.schemes.base import Scheme


# Figures of a quantized scheme that have no closed form, computed once per scheme


Array = NDArray[np.float64]

_DITHERS = 256
_SAMPLES = 1 << 17
_MAX_LETTERS = 1 << 12  # above, overload is too rare to matter on Z
_TEST_KEY = b"jopeq: a reproducible test stream"[:32]


def codebook_distortion(scheme: QuantizedScheme) -> float:
    """E‖decoded − 0‖²/L at x = 0, overload included.

    On Z exact in the noise and by the midpoint rule in the dither; on other lattices the mean over
    131,072 fixed draws (standard error about half a percent).
    """
    codes = scheme._codebook
    if isinstance(codes, ScalarCodebook):
        if codes.letters > _MAX_LETTERS:
            variance = 0.0 if scheme.noise is None else scheme.noise.variance
            factor = 1.0 if scheme.is_subtractive else 2.0
            return variance + factor * codes.lattice.second_moment
        return _scalar_distortion(scheme, codes)
    zeros = np.zeros((_SAMPLES, scheme.dimension))
    shared = SharedStream(_TEST_KEY)
    private = PrivateStream.reproducible(_TEST_KEY)
    symbols = scheme._to_symbols(zeros, 0, shared, private)
    if scheme.noise is None and scheme.is_subtractive and not symbols.overloaded:
        return codes.lattice.second_moment  # the error is uniform on the cell
    return float(np.square(scheme._to_samples(symbols.values, 0, shared)).mean())


def _scalar_distortion(scheme: QuantizedScheme, codes: ScalarCodebook) -> float:
    step = codes.lattice.step
    points = codes.points(np.arange(codes.letters))[:, 0]
    edges = points[:-1] + 0.5 * step
    total = 0.0
    for dither in ((np.arange(_DITHERS) + 0.5) / _DITHERS - 0.5) * step:
        below = edges - dither
        if scheme.noise is None:
            distribution = (below > 0.0).astype(np.float64)
        else:
            distribution = scheme.noise.distribution(below)
        chances = np.diff(distribution, prepend=0.0, append=1.0)
        decoded = points - dither if scheme.is_subtractive else points
        total += float(chances @ (decoded * decoded))
    return total / _DITHERS


def measured_bits(scheme: Scheme) -> float:
    """Bits per entry of the entropy-coded body of a Gaussian update of 131,072 entries."""
    update = samplers.normal(PrivateStream.reproducible(_TEST_KEY), 0, _SAMPLES)
    if scheme.clip is not None:
        update *= scheme.clip / scheme.spread
    _, counted = scheme.encode(
        update,
        seed=_TEST_KEY,
        noise=PrivateStream.reproducible(_TEST_KEY[::-1]),
        statistics=True,
    )
    return counted.bits_per_entry


# Dithered quantization of samples, with or without noise before it


CODINGS = ("fixed", "entropy")
INTEGERS = Lattice("Z")


def to_lattice(value: Any) -> Lattice:
    """A lattice from a name, a 2 × 2 generator or a Lattice; its magnification is the scheme's."""
    if isinstance(value, Lattice):
        return value.scaled(1.0)
    if isinstance(value, str):
        return Lattice(value)
    try:
        generator = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        generator = np.empty(0)
    if generator.ndim != 2:
        raise ValueError(f"lattice must be a name or a 2×2 generator, got {value!r}")
    return Lattice(generator=tuple(map(tuple, generator.tolist())))


@dataclass(frozen=True, kw_only=True)
class QuantizedScheme(Scheme):
    """Parameters of the quantizer.

    ``rate`` R bits per entry make ⌊2^{RL}⌋ letters on ``lattice`` (a name or a 2 × 2 generator),
    whose cells fill the ball of radius ``gamma``. ``coding="entropy"`` sends the lattice point
    itself, however far, at the rate its entropy needs; ``step`` may then set the magnification of
    the lattice directly in place of ``rate``.
    """

    is_subtractive: ClassVar[bool] = True

    rate: float | None = None
    lattice: Lattice = INTEGERS
    gamma: float | None = None
    coding: str = "fixed"
    step: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lattice", to_lattice(self.lattice))
        if self.coding not in CODINGS:
            raise ValueError(f"coding must be 'fixed' or 'entropy', got {self.coding!r}")
        if self.step is not None:
            if self.coding == "fixed":
                raise ValueError("step needs coding='entropy': at a fixed rate gamma sets the step")
            if self.rate is not None or self.gamma is not None:
                raise ValueError("give either step, or rate and gamma: both set the cell size")
        elif self.rate is None:
            remedy = "" if self.coding == "fixed" else ", or step, for the size of the cells"
            raise ValueError(f"scheme {self.name!r} needs rate (bits per entry){remedy}")
        self._cells  # noqa: B018 (checks rate, gamma and step together)
        if self.coding == "fixed":
            self._codebook  # noqa: B018

    # What the schemes of this family define

    @property
    @abstractmethod
    def noise(self) -> Law | None:
        """The law of n; None when nothing is added."""

    @abstractmethod
    def _default_gamma(self, rate: float) -> float | None:
        """The paper's support radius; None covers the unit ball exactly."""

    @property
    def _nominal(self) -> float | None:
        return None

    # What they share

    @property
    def is_bounded(self) -> bool:
        return self._nominal is not None or self.coding == "fixed"

    @property
    def _delta(self) -> float:
        return 0.0

    @property
    def dimension(self) -> int:
        return self.lattice.dimension

    @cached_property
    def _cells(self) -> Lattice:
        """The lattice at its final magnification."""
        if self.rate is None:
            return self.lattice.scaled(1.0 if self.step is None else self.step)
        letters = letters_for_rate(self.rate, self.dimension)
        gamma = self._default_gamma(self.rate) if self.gamma is None else self.gamma
        if gamma is None:
            return self.lattice.scaled(step_for_unit_ball(self.lattice, letters))
        return self.lattice.scaled(step_for_support(self.lattice, letters, gamma))

    @cached_property
    def _codebook(self) -> Codebook:
        if self.rate is None:
            raise ValueError("a codebook needs rate")
        return codebook(self._cells, letters_for_rate(self.rate, self.dimension))

    @property
    def _coder(self) -> Coder:
        if self.coding == "entropy":
            return IntegerCoder(self.dimension)
        return LetterCoder(self._codebook.letters)

    @cached_property
    def bits_per_entry(self) -> float:
        """At a fixed rate exact; entropy-coded, measured on a Gaussian update."""
        if self.coding == "entropy":
            return measured_bits(self)
        return Packing(self._codebook.letters).bits_per_letter / self.dimension

    @cached_property
    def distortion(self) -> float:
        """Noise plus quantization; at a fixed rate overload is counted in.

        Entropy-coded ``dq`` is given as its mean over all x: at the centre it makes no error.
        """
        factor = 1.0 if self.is_subtractive else 2.0  # an unsubtracted dither adds its own power
        never_overloads = self.dimension == 1 and self.noise is None and self.is_subtractive
        if self.coding == "entropy" or never_overloads:
            variance = 0.0 if self.noise is None else self.noise.variance
            return variance + factor * self._cells.second_moment
        return codebook_distortion(self)

    @property
    def guarantee(self) -> Guarantee:
        """By post-processing: all the server sees is computed from x + n and the dither."""
        return guarantee_of_noise(
            self.noise,
            nominal=self._nominal,
            delta=self._delta,
            is_exact=self.noise is not None and self._attains_bound(self.noise),
            sample_size=self.dimension,
            assumptions=scaling_assumptions(self),
            cells=NoiseCells.of(self._cells),
        )

    def _attains_bound(self, noise: Law) -> bool:
        """Laplace on Z: whether the tail letter lies beyond [−1, 1] for some dither."""
        if not isinstance(noise, Laplace) or self.dimension != 1:
            return False
        return self.coding == "entropy" or (
            0.5 * self._cells.step * (self._codebook.letters - 1) >= 1.0
        )

    @cached_property
    def _recipe(self) -> Recipe | None:
        noise = None if self.noise is None else self.noise.recipe()
        is_plain = self.coding != "fixed" or self.lattice.generator is not None
        if is_plain or self._codebook.letters > MAX_LETTERS or (self.noise and not noise):
            return None
        step: Line | Cells
        if isinstance(self._codebook, LatticeCodebook):
            step = Cells(self._codebook, self.is_subtractive)
        else:
            step = Line(self._cells.step, self._codebook.letters, self.is_subtractive)
        return Recipe(step, noise, is_clipped=self._nominal is not None)

    def _dither(self, first: int, count: int, shared: SharedStream) -> Array:
        size = self.dimension
        words = shared.words16(lane=0, start=first * size, count=count * size)
        return self._cells.dither(words.reshape(count, size))

    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols:
        clipped = 0
        if self._nominal is not None:
            samples, clipped = into_unit_ball(samples)
        if self.noise is not None:
            samples = add_noise(self.noise, samples, private, first)
        dithered = samples + self._dither(first, len(samples), shared)
        try:
            if self.coding == "entropy":
                return Symbols(self._cells.nearest(dithered), clipped)
            indices, overloaded = self._codebook.quantize(dithered)
            return Symbols(indices, clipped, int(overloaded.sum()))
        except ValueError as error:  # not where an ε is named: see ``PrivateQuantizedScheme``
            raise UpdateError(f"{error}: raise clip, spread or step") from error

    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array:
        if self.coding == "fixed":
            points = self._codebook.points(symbols)
        else:
            points = self._cells.points(symbols)
        if not self.is_subtractive:
            return points
        return points - self._dither(first, len(symbols), shared)


# Dithered quantization alone: compression without privacy (paper, Definitions II.3 and II.4)


@dataclass(frozen=True, kw_only=True)
class SubtractiveDither(QuantizedScheme):
    """The paper's "FL+SDQ": decoded Q(x + d) − d. Its error is uniform on the cell, Thm II.5.

    >>> SubtractiveDither(rate=2.0).distortion == (2 / 3) ** 2 / 12
    True
    """

    name: ClassVar[str] = "sdq"
    is_private: ClassVar[bool] = False

    @property
    def noise(self) -> Law | None:
        return None

    def _default_gamma(self, rate: float) -> float | None:
        return None


@dataclass(frozen=True, kw_only=True)
class NonSubtractiveDither(SubtractiveDither):
    """Decoded Q(x + d), dither and all. The error depends on x, on average twice that of sdq."""

    name: ClassVar[str] = "dq"
    is_subtractive: ClassVar[bool] = False


# Noise, then dithered quantization: what the separate and the joint design share


@dataclass(frozen=True, kw_only=True)
class PrivateQuantizedScheme(QuantizedScheme):
    """Parameters of the noise: ε, for the t law ν and s², for the Gaussian δ (see ``Target``)."""

    epsilon: float
    nu: float | None = None
    squared_scale: float | None = None
    paper_sensitivity: bool = False
    delta: float | None = None

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
        shortest, step = shortest_vector(self._cells), self._cells.step
        least = max(math.ldexp(math.sqrt(noise.variance), -bits), 2.0**-48) * step / shortest
        if step < least:
            remedy = "raise step" if self.step is not None else "lower rate or raise gamma"
            raise ValueError(
                f"step must be at least {least:.3g} (2⁻{bits} of the noise, 2⁻⁴⁸ of the ball), or "
                f"rounding errors would show; got {step:.3g}: {remedy}"
            )

    @property
    @abstractmethod
    def _law_name(self) -> str:
        """Which family the target is of."""

    @cached_property
    def _target(self) -> Target:
        return Target(
            self._law_name,
            self.epsilon,
            self.dimension,
            self.nu,
            self.squared_scale,
            self.paper_sensitivity,
            self.delta,
        )

    @property
    def _nominal(self) -> float | None:
        return self.epsilon

    @property
    def _delta(self) -> float:
        return self._target.failure

    def _default_gamma(self, rate: float) -> float | None:
        return self._target.gamma(rate)


# Privacy first, compression after, each for itself: the paper's baselines FL+Lap+SDQ, FL+t+SDQ


@dataclass(frozen=True, kw_only=True)
class SeparateScheme(PrivateQuantizedScheme):
    """Noise of the target itself, then SDQ. Its ε holds against the server by post-processing."""

    @property
    def _law_name(self) -> str:
        return self.name.removesuffix("+sdq")

    @property
    def noise(self) -> Law:
        return self._target.noise


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
class RadialThenDither(SeparateScheme):
    """ℓ2 noise, density ∝ e^{−ε‖x‖/2}, then SDQ."""

    name: ClassVar[str] = "l2+sdq"


@dataclass(frozen=True, kw_only=True)
class GaussianThenDither(SeparateScheme):
    """Gaussian noise of (ε, δ), then SDQ."""

    name: ClassVar[str] = "gaussian+sdq"


# JoPEQ: noise matched to the dither, so that both together have the target's covariance


@dataclass(frozen=True, kw_only=True)
class JoPEQ(PrivateQuantizedScheme):
    """The paper's scheme: q = Q(ζh + n + d), decoded ζ⁻¹(q − d) (Algorithm 1).

    The target is Laplace on Z and multivariate t on other lattices unless ``law`` says otherwise
    ("laplace", "t", "l2" or "gaussian").
    The noise of (14) and (15) does not exist (its characteristic function would have poles on the
    dual lattice), so n is of the target's family with the target's covariance minus the dither's;
    where that is not positive (Theorem III.3's regime) nothing is added.

    The server knows d, so that n alone hides the sample: ``guarantee.epsilon`` is the ε of n,
    ``guarantee.nominal`` the ε of the target.

    >>> JoPEQ(epsilon=4.0, rate=1.0).guarantee.nominal
    4.0
    >>> round(JoPEQ(epsilon=4.0, rate=1.0).guarantee.epsilon, 2)
    10.12
    """

    name: ClassVar[str] = "jopeq"

    law: str | None = None

    @property
    def _law_name(self) -> str:
        if self.law is not None:
            return self.law
        return "laplace" if self.dimension == 1 else "t"

    @cached_property
    def noise(self) -> Law | None:
        return self._target.noise.matched(self._cells.covariance)
