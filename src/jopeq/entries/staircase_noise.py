"""The arithmetic of ``staircase``: noise on the quantized point, on the line and on lattices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.recipe import MAX_LETTERS, CellStairs, Recipe, Stairs
from jopeq.lattice.codebook import LatticeCodebook, unit_dither
from jopeq.lattice.lattices import Lattice
from jopeq.lattice.moves import Move, moves
from jopeq.noise import RadialExponential
from jopeq.noise.discrete import DiscreteLaplace
from jopeq.noise.on_lattice import LatticeExponential
from jopeq.privacy.calibration import (
    SAMPLER_END,
    TOO_NARROW,
    CellBounds,
    rounding_excess,
    with_excess,
)
from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Array

Integers = NDArray[np.int64]

_HALF_STEP = 2.0**-17  # the dither stays this far from ±½
_DITHERS = 64
_TEST_KEY = b"jopeq: staircase on a lattice..."
_SAMPLES = 1 << 13
ALLOWANCE = 1e-9  # the noise is drawn in floating point, with relative errors below 10⁻¹² each
_ESCAPE = 2.0**-70  # what ``SAMPLER_END`` allows
_TIE = 2.0**-20


@dataclass(frozen=True)
class StaircaseLine:
    """Staircase noise on the integers: the arithmetic of the scalar ``staircase`` scheme.

    m = ``moves`` steps lie across [−1, 1]; ``letters`` outputs, or None for no limit.
    """

    assumptions: ClassVar[tuple[str, ...]] = ()  # the probabilities are integers

    epsilon: float
    moves: int
    letters: int | None = None

    @cached_property
    def noise(self) -> DiscreteLaplace:
        """The law of k."""
        return DiscreteLaplace(self.epsilon, self.moves)

    def check(self) -> None:
        """Raise unless ε, moves and letters go together."""
        self.noise  # noqa: B018 (checks the size of its table)

    @property
    def step(self) -> float:
        """Δ = 2/m."""
        return 2.0 / self.moves

    @property
    def centre(self) -> float:
        """c: ½ rounds to the nearest integer; N/2 puts the middle of N letters at 0."""
        return 0.5 if self.letters is None else 0.5 * self.letters

    @cached_property
    def window(self) -> tuple[int, int, int, int]:
        """The lowest and highest u, and the outputs to clamp to.

        Outputs keep less than T (the noise's outermost value) away from every u, as the law of the
        noise demands, and within the letters.
        """
        reach = 0.5 * self.moves + 0.5 - _HALF_STEP
        lowest = math.floor(self.centre - reach)
        highest = math.floor(self.centre + reach)
        first, last = highest - self.noise.reach, lowest + self.noise.reach
        if self.letters is not None:
            first, last = max(first, 0), min(last, self.letters - 1)
        return lowest, highest, first, last

    @property
    def proven_epsilon(self) -> float:
        """ε of the integer probabilities."""
        return self.noise.exact_epsilon

    @cached_property
    def is_exact(self) -> bool:
        """Whether some output is far enough out to attain ε (to one part in 10⁹)."""
        lowest, highest, first, last = self.window
        if not (first <= lowest and last >= highest):
            return False
        attained = self.noise.epsilon_up_to(last - lowest - self.moves)
        return math.isclose(attained, self.proven_epsilon, rel_tol=1e-9)

    @cached_property
    def recipe(self) -> Recipe | None:
        """What fused kernels need."""
        if self.letters is None or self.letters > MAX_LETTERS:
            return None
        ends, noise = self.window[2:], self.noise
        place = self.moves, self.centre
        return Recipe(Stairs(*place, noise.thresholds, noise.reach, *ends, self.letters))

    def encode(
        self, samples: Array, words: NDArray[np.uint16], private: PrivateStream, start: int
    ) -> tuple[Integers, int]:
        """Outputs for samples in [−1, 1], and how many the letters cut."""
        noise = self.noise.sample(private.words64(lane=0, start=start, count=len(samples)))
        moved = self.levels_of(samples[:, 0], unit_dither(words[:, 0])) + noise
        _, _, first, last = self.window
        outputs = np.clip(moved, first, last)
        cut = int(np.count_nonzero(outputs != moved)) if self.letters is not None else 0
        return (outputs if self.letters is not None else outputs[:, None]), cut

    def decode(self, letters: Integers, words: NDArray[np.uint16]) -> Array:
        """Δ(o − c′ − d), c′ the place of 0."""
        outputs = letters.reshape(-1).astype(np.float64)
        return (self.step * (outputs - (self.centre - 0.5) - unit_dither(words[:, 0])))[:, None]

    def levels_of(self, x: Array, dither: Array) -> Integers:
        """The quantized place of each x, before the noise."""
        return np.floor(x * (0.5 * self.moves) + (dither + self.centre)).astype(np.int64)

    def distortion(self, x: float) -> float:
        """Mean squared error at x: Δ²/12 + 2Δ²r/(1−r)² without letters, whatever x.

        With letters exact over the noise, 64 midpoints over the dither.
        """
        if self.letters is None:
            return self.step**2 * (1 / 12 + self.noise.variance)
        chances, errors = self._errors(x)
        return float((chances * errors * errors).sum(axis=1).mean())

    @property
    def centre_distortion(self) -> float:
        """Mean squared error at x = 0."""
        return self.distortion(0.0)

    def gaussian_distortion(self, sigma: float, nodes: int = 41) -> float:
        """Mean squared error over N(0, σ²) clipped to [−1, 1]."""
        places, weights = gaussian_nodes(sigma, nodes)
        return float(weights @ [self.distortion(x) for x in places])

    def log_channel(self, dither: float, inputs: Array) -> Array:
        """log P(output | x) for the inputs x (rows)."""
        _, _, first, last = self.window
        rows, reach = np.zeros((len(inputs), last - first + 1)), self.noise.reach
        levels = self.levels_of(inputs, np.full(len(inputs), dither))
        for row, level in zip(rows, levels, strict=True):
            outputs = np.clip(level + np.arange(-reach, reach + 1), first, last) - first
            np.add.at(row, outputs, self.noise.chances)
        with np.errstate(divide="ignore"):
            return np.log(rows)

    def bias(self, x: float) -> float:
        """Mean error at x: clamping pulls the outer inputs in."""
        chances, errors = self._errors(x)
        return float((chances * errors).sum(axis=1).mean())

    def _errors(self, x: float) -> tuple[Array, Array]:
        dither = (np.arange(_DITHERS) + 0.5) / _DITHERS - 0.5
        cells = self.levels_of(np.full(_DITHERS, x), dither)
        lowest, highest, first, last = self.window
        # noise from these on carries every cell to the same end: tables are long, letters few
        reach, every = self.noise.reach, self.noise.chances
        least, most = max(-reach, first - highest), min(reach, last - lowest)
        chances = every[reach + least : reach + most + 1].copy()
        chances[0] += every[: reach + least].sum()
        chances[-1] += every[reach + most + 1 :].sum()
        outputs = np.clip(cells[:, None] + np.arange(least, most + 1), first, last)
        decoded = self.step * (outputs - (self.centre - 0.5) - dither[:, None])
        return chances[None, :], decoded - x


def gaussian_nodes(sigma: float, count: int = 41) -> tuple[Array, Array]:
    """Points and weights that stand for N(0, σ²) clipped to [−1, 1]."""
    from scipy.special import ndtr

    edges = np.linspace(-1.0, 1.0, count)
    cumulative = ndtr(edges / sigma)
    weights = np.concatenate(([cumulative[0]], np.diff(cumulative), [1.0 - cumulative[-1]]))
    nodes = np.concatenate(([-1.0], 0.5 * (edges[1:] + edges[:-1]), [1.0]))
    return nodes, weights


@dataclass(frozen=True)
class StaircaseLattice:
    """Exponential noise on a lattice: the arithmetic of ``staircase`` on A2, D4 and E8.

    The ``moves``-th useful magnification of a lattice; ``letters`` outputs, or None for no limit.
    """

    is_exact: ClassVar[bool] = False

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
            self.codebook  # noqa: B018 (checks the letters)

    @property
    def noise(self) -> LatticeExponential:
        """The law of k, on the lattice of magnification 1."""
        reach = self._move.reach
        return LatticeExponential(self.name, self.epsilon * (1.0 - ALLOWANCE) / reach, reach)

    @cached_property
    def cells(self) -> Lattice:
        """The lattice at its magnification."""
        return Lattice(self.name, step=self._move.step)

    @property
    def dimension(self) -> int:
        return self.cells.dimension

    @cached_property
    def codebook(self) -> LatticeCodebook:
        if self.letters is None:
            raise ValueError("entropy-coded outputs have no codebook")
        return LatticeCodebook(self.cells, self.letters)

    @property
    def _shift(self) -> Array:
        return np.zeros(self.dimension) if self.letters is None else self.codebook.shift

    @property
    def proven_epsilon(self) -> float:
        """ε of the law, with the allowance for its arithmetic; inf where draws end early."""
        if self.assumptions == (TOO_NARROW,):
            return math.inf
        if self.noise.listed is not None:
            return self.epsilon
        proposed, cells = RadialExponential(self.noise.decay, self.dimension), Lattice(self.name)
        return with_excess(self.epsilon, rounding_excess(proposed, CellBounds.of(cells)))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Where the sampler's range ends."""
        return (SAMPLER_END,) if self.noise.escape < _ESCAPE else (TOO_NARROW,)

    @cached_property
    def recipe(self) -> Recipe | None:
        """What fused kernels need."""
        if self.letters is None or self.letters > MAX_LETTERS:
            return None
        return Recipe(CellStairs(self.codebook, self.noise, _TIE))

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
        indices, overloaded = self.codebook.quantize(points)
        return indices, int(overloaded.sum())

    def decode(self, letters: Integers, words: NDArray[np.uint16]) -> Array:
        """o − d."""
        book = self.cells if self.letters is None else self.codebook
        return book.points(letters) - self.cells.dither(words)

    @cached_property
    def centre_distortion(self) -> float:
        """Mean squared error per entry at x = 0: exact without letters, else over fixed draws."""
        if self.letters is None:
            return self.cells.second_moment + self.cells.step**2 * self.noise.variance
        return self.simulated_distortion(0.0, 16 * _SAMPLES)

    def simulated_distortion(self, sigma: float, samples: int = _SAMPLES) -> float:
        """The same for Gaussian samples of standard deviation σ an entry, clipped."""
        stream, size = PrivateStream.reproducible(_TEST_KEY), self.dimension
        inputs = sigma * portable.normal(stream, 0, samples * size).reshape(samples, size)
        inputs /= np.maximum(1.0, np.sqrt(np.square(inputs).sum(axis=1)))[:, None]
        shared = SharedStream(_TEST_KEY)
        words = shared.words16(lane=0, start=0, count=samples * size).reshape(samples, size)
        private = PrivateStream.reproducible(_TEST_KEY[::-1])
        letters, _ = self.encode(inputs, words, private, 0)
        return float(np.square(self.decode(letters, words) - inputs).mean())
