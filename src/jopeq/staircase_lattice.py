"""Exponential noise on a lattice: the arithmetic of the ``staircase`` scheme on A2, D4 and E8.

    λ = Q(x + d),  o = λ + k,  P(k) ∝ e^{−ε‖k‖/D},  decoded o − d

D is the largest distance λ can move while x stays in the unit ball (see ``moves``), so that by the
triangle inequality no probability changes by more than e^ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jopeq.codebook import LatticeCodebook
from jopeq.coders import Coder, IntegerCoder, LetterCoder
from jopeq.kernels.recipe import MAX_LETTERS, CellStairs, Recipe
from jopeq.lattice import Lattice
from jopeq.lattice_noise import LatticeExponential
from jopeq.moves import Move, moves
from jopeq.noise import RadialExponential
from jopeq.privacy.of_noise import SAMPLER_END, TOO_NARROW, Cells, rounding_excess, with_excess
from jopeq.randomness import PrivateStream, SharedStream

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_TEST_KEY = b"jopeq: staircase on a lattice..."
_SAMPLES = 1 << 13
_ALLOWANCE = 1e-9  # the noise is drawn in floating point, with relative errors below 10⁻¹² each
_ESCAPE = 2.0**-70  # what ``SAMPLER_END`` allows
_TIE = 2.0**-20


@dataclass(frozen=True)
class StaircaseLattice:
    """The ``moves``-th useful magnification of a lattice; ``letters`` outputs or None."""

    epsilon: float
    name: str
    moves: int
    letters: int | None = None

    @property
    def _move(self) -> Move:
        table = moves(self.name)
        if not 1 <= self.moves <= len(table):
            raise ValueError(f"moves must be 1…{len(table)} on {self.name}, got {self.moves}")
        return table[self.moves - 1]

    def check(self) -> None:
        """Raise unless ε, moves and letters go together."""
        if not self.noise.is_drawable:
            raise ValueError(
                f"epsilon={self.epsilon} leaves too little noise to draw on {self.name} with "
                f"moves={self.moves}: lower epsilon, or raise moves (or rate, which allows more)"
            )
        if self.letters is not None:
            self._codebook  # noqa: B018 (checks the letters)

    @property
    def noise(self) -> LatticeExponential:
        """The law of k, on the lattice of magnification 1."""
        reach = self._move.reach
        return LatticeExponential(self.name, self.epsilon * (1.0 - _ALLOWANCE) / reach, reach)

    @cached_property
    def cells(self) -> Lattice:
        """The lattice at its magnification."""
        return Lattice(self.name, step=self._move.step)

    @property
    def dimension(self) -> int:
        return self.cells.dimension

    @property
    def coder(self) -> Coder:
        return IntegerCoder(self.dimension) if self.letters is None else LetterCoder(self.letters)

    @cached_property
    def _codebook(self) -> LatticeCodebook:
        if self.letters is None:
            raise ValueError("entropy-coded outputs have no codebook")
        return LatticeCodebook(self.cells, self.letters)

    @property
    def _shift(self) -> Array:
        return np.zeros(self.dimension) if self.letters is None else self._codebook.shift

    @property
    def proven_epsilon(self) -> float:
        """ε of the law, with the allowance for its arithmetic; inf where draws end early."""
        if not self._is_covered:
            return math.inf
        if self.noise.listed is not None:
            return self.epsilon
        proposed = RadialExponential(self.noise.decay, self.dimension)
        return with_excess(self.epsilon, rounding_excess(proposed, Cells.of(Lattice(self.name))))

    @property
    def _is_covered(self) -> bool:
        return self.noise.escape < _ESCAPE

    @property
    def is_exact(self) -> bool:
        return False

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The sampler's end."""
        return (SAMPLER_END,) if self._is_covered else (TOO_NARROW,)

    @cached_property
    def recipe(self) -> Recipe | None:
        """What fused kernels need."""
        if self.letters is None or self.letters > MAX_LETTERS:
            return None
        return Recipe(CellStairs(self._codebook, self.noise, _TIE))

    def encode(
        self, samples: Array, words: NDArray[np.uint16], private: PrivateStream, start: int
    ) -> tuple[Integers, int]:
        """Outputs for samples in the unit ball, and how many the codebook cut."""
        dither = self.cells.dither(words)
        shift = self._shift
        nearest = self.cells.nearest(samples + dither - self.cells.points(shift))
        outputs = nearest + self.noise.sample(private, start, len(samples))
        if self.letters is None:
            return outputs, 0
        # lattice points beyond the codebook often lie as far from several letters: the dither,
        # which is symmetric and public, breaks such ties without bias
        points = self.cells.points(outputs + shift) + _TIE * dither
        indices, overloaded = self._codebook.quantize(points)
        return indices, int(overloaded.sum())

    def decode(self, symbols: Integers, words: NDArray[np.uint16]) -> Array:
        """o − d."""
        if self.letters is None:
            points = self.cells.points(symbols)
        else:
            points = self._codebook.points(symbols)
        return points - self.cells.dither(words)

    @cached_property
    def centre_distortion(self) -> float:
        """Mean squared error per entry at x = 0: exact without letters, else over fixed draws."""
        if self.letters is None:
            return self.cells.second_moment + self.cells.step**2 * self.noise.variance
        return self.simulated_distortion(0.0, 16 * _SAMPLES)

    def simulated_distortion(self, sigma: float, samples: int = _SAMPLES) -> float:
        """The same for Gaussian samples of standard deviation σ an entry, over fixed draws."""
        from jopeq import samplers

        stream = PrivateStream.reproducible(_TEST_KEY)
        size = self.dimension
        normals = samplers.normal(stream, 0, samples * size).reshape(samples, size)
        inputs = normals * sigma
        inputs /= np.maximum(1.0, np.sqrt(np.square(inputs).sum(axis=1)))[:, None]
        shared = SharedStream(_TEST_KEY)
        words = shared.words16(lane=0, start=0, count=samples * size).reshape(samples, size)
        private = PrivateStream.reproducible(_TEST_KEY[::-1])
        symbols, _ = self.encode(inputs, words, private, 0)
        return float(np.square(self.decode(symbols, words) - inputs).mean())
