"""Dithered quantization of samples, with or without noise before it.

    encode  q = Q(x + n + d)        decode  q − d

x is the scaled sample, n the noise (private), d the dither (shared). Schemes differ in the law of n
alone; ``dq`` also keeps the dither when decoding.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.codebook import (
    Codebook,
    LatticeCodebook,
    codebook,
    letters_for_rate,
    step_for_support,
    step_for_unit_ball,
)
from jopeq.coders import Coder, IntegerCoder, LetterCoder
from jopeq.errors import UpdateError
from jopeq.kernels.recipe import MAX_LETTERS, Cells, Line, Recipe
from jopeq.lattice import Lattice
from jopeq.noise import Laplace, Law, add_noise
from jopeq.packing import Packing
from jopeq.privacy.guarantee import Guarantee
from jopeq.privacy.of_noise import Cells as NoiseCells
from jopeq.privacy.of_noise import guarantee_of_noise
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols
from jopeq.schemes.measure import codebook_distortion, measured_bits
from jopeq.schemes.unit_ball import into_unit_ball, scaling_assumptions

Array = NDArray[np.float64]

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
