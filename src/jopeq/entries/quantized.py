"""Dithered quantization of samples, with or without noise before it.

    encode  q = Q(x + n + d)        decode  q − d

x is the scaled sample, n the noise (private), d the dither (shared). Schemes differ in the law of
n; ``dq`` also keeps the dither when decoding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jopeq.entries.additive import NoiseTarget, SquaredScale
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
from jopeq.noise import Laplace, Law, add_noise, into_unit_ball
from jopeq.privacy.calibration import CellBounds, guarantee_of_noise
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array, Codec, Letters
from jopeq.schemes.parameters import LATTICE, LatticeParameter, as_array
from jopeq.wire.coders import Packing

Levels = Literal["all", "odd"]
Vector = tuple[float, ...]

_DITHERS = ((np.arange(256) + 0.5) / 256) - 0.5  # midpoints, in units of the step
_MOST_LISTED = 1 << 12  # letters that are looked at one by one
_SAMPLES, _TEST_SEED = 1 << 17, b"jopeq: a reproducible test stream"[:32]  # for distortion
_DRAWS, _FEW, _TEST_KEY = 1 << 16, 1 << 13, b"jopeq: planning with fixed draws"  # for biases
_UNBIASED = 1e-6


@dataclass(frozen=True, kw_only=True)
class QuantizedScheme(Scheme):
    """Dithered quantization of samples on a lattice.

    Parameters
    ----------
    rate : float
        R, bits per entry: 2 to the power R·L letters, rounded down.
    lattice : Lattice, str or generator matrix, default "Z"
        "Z", "A2", "D4", "E8", or the rows of a generator matrix whose columns are basis vectors.
        L is its dimension, at most 8.
    gamma : float, optional
        Radius of the ball that the cells of all letters fill. The default depends on the scheme.
    levels : {"all", "odd"}, default "all"
        "all" uses all letters; an even number of them lies around the origin (mid-rise). "odd"
        uses one less if their number is even, so that the origin is a codeword (mid-tread, as in
        Definition II.2, which has one letter more than R bits can name).
    """

    is_subtractive: ClassVar[bool] = True  # whether the decoder subtracts the dither
    has_kernels: ClassVar[bool] = False  # whether compiled kernels know the scheme, on Z and A2

    rate: float
    lattice: LatticeParameter = LATTICE
    gamma: float | None = None
    levels: Levels = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.spec  # noqa: B018 (so that the first update does not wait for it)

    codec = cached_property(lambda self: DitherCodec(self))

    @property
    def noise(self) -> Law | None:
        """The law of n; None adds nothing."""
        return None

    @property
    def _default_gamma(self) -> float | None:
        """None covers the unit ball exactly."""
        return None

    @property
    def shift(self) -> Array:
        """A public vector that is added to every sample."""
        mean = getattr(self, "mean", None)
        return np.zeros(self.dimension) if mean is None else np.array(mean)

    @cached_property
    def dimension(self) -> int:
        return self.lattice.dimension

    @cached_property
    def cells(self) -> Lattice:
        """The lattice at its final magnification."""
        gamma = self._default_gamma if self.gamma is None else self.gamma
        if gamma is None:
            return self.lattice.scale(step_for_unit_ball(self.lattice, self._letters))
        return self.lattice.scale(step_for_support(self.lattice, self._letters, gamma))

    @cached_property
    def codebook(self) -> Codebook:
        """The lattice points that a letter can name."""
        return codebook(self.cells, self._letters)

    @property
    def _letters(self) -> int:
        if self.levels not in get_args(Levels):
            raise ValueError(f"levels must be 'all' or 'odd', got {self.levels!r}")
        letters = letters_for_rate(self.rate, self.dimension)
        if self.levels == "all" or letters % 2:
            return letters
        if letters < 4:
            least = math.log2(3.0) / self.dimension
            raise ValueError(
                f"levels='odd' needs three letters, rate of at least {least:.4g} bits per entry, "
                f"got {self.rate}: raise rate, or drop levels"
            )
        return letters - 1

    @cached_property
    def distortion(self) -> float:
        """Mean squared error per entry of noise and quantization, overload included."""
        return self.codec.measure_distortion()

    @property
    def guarantee(self) -> Guarantee:
        """ε of the noise: by post-processing, as the server sees functions of x + n and dither."""
        # Laplace noise on Z attains it if the tail letter lies beyond [−1, 1] for some dither
        beyond = 1.0 + float(np.abs(self.shift).max())
        has_tail = 0.5 * self.cells.step * (self.codebook.letters - 1) >= beyond
        return guarantee_of_noise(
            self.noise,
            nominal=getattr(self, "epsilon", None),
            is_exact=isinstance(self.noise, Laplace) and self.dimension == 1 and has_tail,
            sample_size=self.dimension,
            assumptions=self.scaling.assumptions,
            cells=CellBounds.of(self.cells),
            delta=getattr(self, "delta", None) or 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class SubtractiveDither(QuantizedScheme):
    """The paper's "FL+SDQ": decoded Q(x + d) − d, compression without privacy.

    The error is uniform on the cell (Theorem II.5).

    >>> SubtractiveDither(rate=2.0).distortion == (2 / 3) ** 2 / 12
    True
    """

    name: ClassVar[str] = "sdq"
    is_private: ClassVar[bool] = False
    has_kernels: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class NonSubtractiveDither(SubtractiveDither):
    """Decoded Q(x + d) with its dither: the error depends on x, on average twice that of sdq."""

    name: ClassVar[str] = "dq"
    is_subtractive: ClassVar[bool] = False
    has_kernels: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class PrivateQuantizedScheme(QuantizedScheme):
    """Noise, then dithered quantization.

    Parameters
    ----------
    epsilon : float
        Privacy asked for, per sample.
    nu : float, optional
        Degrees of freedom ν > 2 of a t law. The default minimises the variance.
    squared_scale : float or matrix, optional
        s² of a t law, or its L × L matrix Σ, together with ``nu``. The default is the smallest s²
        that is ε-private.
    """

    epsilon: float
    nu: float | None = None
    squared_scale: SquaredScale | None = None

    def __post_init__(self) -> None:
        if self.squared_scale is not None:
            given = as_array("squared_scale", self.squared_scale)
            if given.ndim not in (0, 2):
                raise ValueError(f"squared_scale must be a number or a matrix, got {given!r}")
            scale = tuple(map(tuple, given.tolist())) if given.ndim == 2 else float(given)
            object.__setattr__(self, "squared_scale", scale)
        super().__post_init__()
        noise = self.noise  # checks its parameters
        if noise is None:
            return
        # Finer cells would let floating-point draws show through. On Z a cell must hold 2²⁷ of the
        # 2⁵¹ draws of an octave; elsewhere, where a pair of entries shares a radius √E, the cell
        # about 0 must hold 2²² of them. The ball must not be wider than 2⁴⁹ cells: otherwise noisy
        # values could be refused as too far, which would reveal them.
        bits = 24 if self.dimension == 1 else 14
        shortest, step = self.cells.shortest, self.cells.step
        least = max(math.ldexp(math.sqrt(noise.variance), -bits), 2.0**-48) * step / shortest
        if step < least:
            raise ValueError(
                f"cells must be at least {least:.3g} wide (2⁻{bits} of the noise, 2⁻⁴⁸ of the "
                f"ball), or rounding errors would show; got {step:.3g}: lower rate or raise gamma"
            )

    @cached_property
    def target(self) -> NoiseTarget:
        """The noise law asked for: by default Laplace on Z and t on other lattices."""
        law = getattr(self, "law", None)
        if law is None:
            law = "laplace" if self.dimension == 1 else "t"
        given = self.nu, self.squared_scale, getattr(self, "delta", None)
        return NoiseTarget(law, self.epsilon, self.dimension, *given)

    @property
    def noise(self) -> Law | None:
        return self.target.noise

    @property
    def _default_gamma(self) -> float | None:
        """The paper's support radius."""
        return self.target.gamma(self.rate)


@dataclass(frozen=True, kw_only=True)
class LaplaceThenDither(PrivateQuantizedScheme):
    """Laplace noise, then SDQ: the paper's baseline FL+Lap+SDQ.

    >>> LaplaceThenDither(epsilon=4.0, rate=2.0).guarantee.epsilon
    4.0
    """

    name: ClassVar[str] = "laplace+sdq"
    law: ClassVar[str] = "laplace"


@dataclass(frozen=True, kw_only=True)
class StudentThenDither(PrivateQuantizedScheme):
    """Multivariate t noise, then SDQ: FL+t+SDQ (on any lattice; the paper takes A2)."""

    name: ClassVar[str] = "t+sdq"
    law: ClassVar[str] = "t"


@dataclass(frozen=True, kw_only=True)
class JoPEQ(PrivateQuantizedScheme):
    """The paper's scheme: q = Q(ζh + n + d), decoded ζ⁻¹(q − d) (Algorithm 1).

    Noise n and dither d together have the covariance of a target law. The noise of (14) and (15)
    does not exist (its characteristic function would have poles on the dual lattice), so n is of
    the target's family with the target's covariance minus the dither's. Nothing is added if that
    is not positive (the regime of Theorem III.3).

    The server knows d, so only n hides the sample: ``guarantee.epsilon`` is the ε of n,
    ``guarantee.nominal`` that of the target.

    >>> JoPEQ(epsilon=4.0, rate=1.0).guarantee.nominal
    4.0
    >>> round(JoPEQ(epsilon=4.0, rate=1.0).guarantee.epsilon, 2)
    10.12

    Parameters
    ----------
    law : {"laplace", "t", "l2", "gaussian"}, optional
        Family of the target: by default "laplace" on Z and "t" on other lattices. "l2" has the
        density ∝ e^{−‖x‖₂/b}; "gaussian" has an ε with a δ.
    delta : float, optional
        δ of one sample, for law="gaussian".
    mean : sequence of L numbers, optional
        μ of the target law (Theorem III.1): a public shift of the noise, in scaled units. It stays
        in the decoded value and does not change ε.
    """

    name: ClassVar[str] = "jopeq"
    has_kernels: ClassVar[bool] = True

    law: str | None = None
    delta: float | None = None
    mean: Vector | None = None

    def __post_init__(self) -> None:
        if self.mean is not None:
            mean, size = as_array("mean", self.mean), self.dimension
            if mean.shape != (size,) or not np.linalg.norm(mean) <= 1.0:
                point = f"a point of the unit ball with {size} entries, as a sample has"
                raise ValueError(f"mean must be {point}, got {self.mean!r}")
            object.__setattr__(self, "mean", tuple(mean.tolist()))
        super().__post_init__()

    @cached_property
    def noise(self) -> Law | None:
        return self.target.noise.match(self.cells.covariance)


class DitherCodec(Codec[QuantizedScheme]):
    """A letter is the codeword nearest to x + n + d."""

    cells: Lattice
    codebook: Codebook

    def __init__(self, scheme: QuantizedScheme) -> None:
        super().__init__(scheme)
        self.cells, self.codebook = scheme.cells, scheme.codebook
        self.is_subtractive, self.noise = scheme.is_subtractive, scheme.noise
        self.shift, self.is_shifted = scheme.shift, bool(scheme.shift.any())
        self.recipe = self._make_recipe()

    @cached_property
    def coder(self) -> Packing:
        return Packing(self.codebook.letters)

    def measure_distortion(self) -> float:
        factor = 1.0 if self.is_subtractive else 2.0  # an unsubtracted dither adds its own power
        is_line = isinstance(self.codebook, ScalarCodebook)
        never_overloads = is_line and self.noise is None and self.is_subtractive
        is_rare = is_line and self.codebook.letters > _MOST_LISTED  # overload, with so many letters
        if never_overloads or is_rare:
            variance = 0.0 if self.noise is None else self.noise.variance
            shift = float(np.square(self.shift).mean())
            return variance + shift + factor * self.cells.second_moment
        if is_line:
            return float(self._scalar_errors(np.zeros(1))[1][0])
        # 131,072 fixed draws: the standard error is about half a percent
        zeros = np.zeros((_SAMPLES, self.dimension))
        shared = SharedStream(_TEST_SEED)
        letters = self.to_letters(zeros, 0, shared, PrivateStream.reproducible(_TEST_SEED))
        if self.noise is None and self.is_subtractive and not letters.overloaded:
            return self.cells.second_moment  # the error is uniform on the cell
        return float(np.square(self.to_samples(letters.values, 0, shared)).mean())

    def bias(self) -> float:
        if self.dimension > 1 or self.codebook.letters > _MOST_LISTED:
            edge = np.eye(1, self.dimension).repeat(_DRAWS, axis=0)
            return _visible_mean(self._draw_errors(edge, 0)[:, 0])
        bias = float(self._scalar_errors(np.ones(1))[0][0])
        return 0.0 if abs(bias) < _UNBIASED else bias

    def errors_at(self, norms: Array) -> tuple[Array, Array] | None:
        if self.dimension == 1 and self.codebook.letters <= _MOST_LISTED:
            return self._scalar_errors(norms)
        if not self.bias():
            return None
        key = PrivateStream.reproducible(_TEST_KEY[::-1])  # for directions
        ways = portable.normal(key, 0, _FEW * self.dimension).reshape(_FEW, self.dimension)
        ways /= np.sqrt(portable.squares(ways))[:, None]
        means, energies = np.empty((2, len(norms)))
        for place, norm in enumerate(norms.tolist()):
            errors = self._draw_errors(norm * ways, place * _FEW)  # fresh draws for each norm
            means[place] = _visible_mean((errors * ways).sum(axis=1))
            energies[place] = np.square(errors).mean()
        return means, energies

    def _draw_errors(self, samples: Array, first: int) -> Array:
        """Decoded − x of these samples, for fixed draws from place ``first`` on."""
        shared, private = SharedStream(_TEST_KEY), PrivateStream.reproducible(_TEST_KEY)
        letters = self.to_letters(samples, first, shared, private).values
        return self.to_samples(letters, first, shared) - samples

    def _scalar_errors(self, inputs: Array) -> tuple[Array, Array]:
        """Exact in the noise, by the midpoint rule in the dither."""
        means, energies = np.zeros((2, len(inputs)))
        values = self.codebook.points(np.arange(self.codebook.letters))[:, 0]
        for dither in _DITHERS:
            chances = np.exp(self.log_channel(float(dither), inputs))
            decoded = values - dither * self.cells.step * self.is_subtractive
            errors = decoded - inputs[:, None]
            means += (chances * errors).sum(axis=1)
            energies += (chances * errors * errors).sum(axis=1)
        return means / len(_DITHERS), energies / len(_DITHERS)

    def log_channel(self, dither: float, inputs: Array) -> Array:
        """Integrate the law of the noise over each cell, seen from x + dither."""
        # beyond 4096 cells neighbours are merged; those beyond the ball attain a Laplace law's ε
        step, letters = self.cells.step, self.codebook.letters
        kept = np.arange(1, letters)
        if letters > _MOST_LISTED:
            kept = np.unique(np.linspace(1, letters - 1, _MOST_LISTED).astype(np.int64))
        edges = (kept - 0.5 * letters) * step
        low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
        centre = (inputs + self.shift + dither * step)[:, None]
        if self.noise is None:
            with np.errstate(divide="ignore"):
                return np.log(((centre >= low) & (centre < high)).astype(np.float64))
        return log_interval(self.noise, low - centre, high - centre)

    def _make_recipe(self) -> Recipe | None:
        noise = None if self.noise is None else self.noise.recipe()
        has_kernels = self.scheme.has_kernels and not self.is_shifted
        if not has_kernels or (self.noise is not None and noise is None):
            return None
        is_clipped, codes = self.scheme.is_private, self.codebook
        name, law = self.cells.name, None if noise is None else noise.law
        if name == "Z" and codes.letters <= MAX_LETTERS and law in (None, "laplace"):
            return Recipe(Line(self.cells.step, codes.letters), noise, is_clipped)
        if name == "A2" and isinstance(codes, LatticeCodebook) and law in (None, "t"):
            return Recipe(Cells(codes), noise, is_clipped) if codes.is_searched else None
        return None

    def dither(self, first: int, count: int, shared: SharedStream) -> Array:
        """The dither (count, L) of samples ``first``…"""
        size = self.dimension
        words = shared.words16(lane=0, start=first * size, count=count * size)
        return self.codebook.dither(words.reshape(count, size))

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        clipped = 0
        if self.scheme.is_private:
            samples, clipped = into_unit_ball(samples)
        if self.noise is not None:
            samples = add_noise(self.noise, samples, private, first)
        if self.is_shifted:
            samples = samples + self.shift
        dithered = self.dither(first, len(samples), shared)
        np.add(dithered.T, samples.T, out=dithered.T)  # long loops along the samples
        try:
            indices, overloaded = self.codebook.quantize(dithered)
            return Letters(indices, clipped, int(np.count_nonzero(overloaded)))
        except ValueError as error:  # never where an ε is named: its scheme rules it out
            raise UpdateError(f"{error}: raise clip or spread") from error

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        points = self.codebook.points(letters)
        if not self.is_subtractive:
            return points
        np.subtract(points.T, self.dither(first, len(letters), shared).T, out=points.T)
        return points


def _visible_mean(errors: Array) -> float:
    """The mean, or 0 if so many draws cannot tell it from 0."""
    mean, uncertainty = float(errors.mean()), float(errors.std()) / math.sqrt(len(errors))
    return mean if abs(mean) > 4.0 * uncertainty else 0.0


def log_interval(law: Law, low: Array, high: Array) -> Array:
    """log P(low ≤ n < high) in one dimension, accurate far into the tails."""
    # by symmetry every interval can be looked at from the left tail
    flip = high > -low
    left, right = np.where(flip, -high, low), np.where(flip, -low, high)
    upper, lower = _log_left_tail(law, right), _log_left_tail(law, left)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(np.isneginf(lower), -np.inf, lower - upper)
        return np.asarray(upper + np.log1p(-np.exp(gap)))


def _log_left_tail(law: Law, x: Array) -> Array:
    with np.errstate(divide="ignore", over="ignore"):
        if not isinstance(law, Laplace):
            return np.log(law.distribution(x))
        z = x / law.scale
        outer = np.minimum(z, 0.0) - math.log(2.0)
        return np.where(z < 0, outer, np.log1p(-0.5 * np.exp(-np.maximum(z, 0.0))))
