"""Staircase noise on the integers: the arithmetic of the scalar ``staircase`` scheme.

    u = ⌊x·m/2 + d + c⌋,  o = clamp(u + k),  P(k) ∝ e^{−ε|k|/m},  decoded Δ(o − c′) − Δd,  Δ = 2/m

Inputs in [−1, 1] move u by at most m, whatever the dither d: x·m/2 is exact at both ends, d is an
odd multiple of 2⁻¹⁷, and rounding is monotone. So every o has, from any two inputs, probabilities
within the factor e^ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jopeq.coders import Coder, IntegerCoder, LetterCoder
from jopeq.integer_noise import DiscreteLaplace
from jopeq.kernels.recipe import MAX_LETTERS, Recipe, Stairs
from jopeq.lattice import unit_dither
from jopeq.randomness import PrivateStream

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_HALF_STEP = 2.0**-17  # the dither stays this far from ±½
_DITHERS = 64
MAX_MOVES = 64


@dataclass(frozen=True)
class StaircaseLine:
    """m = ``moves`` steps across [−1, 1]; ``letters`` outputs, or None for no limit."""

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
    def dimension(self) -> int:
        return 1

    @property
    def coder(self) -> Coder:
        return IntegerCoder(1) if self.letters is None else LetterCoder(self.letters)

    @property
    def _centre(self) -> float:
        """c: ½ rounds to the nearest integer; N/2 puts the middle of N letters at 0."""
        return 0.5 if self.letters is None else 0.5 * self.letters

    @cached_property
    def _window(self) -> tuple[int, int, int, int]:
        """The lowest and highest u, and the outputs to clamp to.

        Outputs keep less than T (the noise's outermost value) away from every u, as the law of the
        noise demands, and within the letters.
        """
        reach = 0.5 * self.moves + 0.5 - _HALF_STEP
        lowest = math.floor(self._centre - reach)
        highest = math.floor(self._centre + reach)
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
        lowest, highest, first, last = self._window
        if not (first <= lowest and last >= highest):
            return False
        attained = self.noise.epsilon_up_to(last - lowest - self.moves)
        return math.isclose(attained, self.proven_epsilon, rel_tol=1e-9)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """None: the probabilities are integers."""
        return ()

    @cached_property
    def recipe(self) -> Recipe | None:
        """What fused kernels need."""
        if self.letters is None or self.letters > MAX_LETTERS:
            return None
        _, _, first, last = self._window
        noise = self.noise
        return Recipe(
            Stairs(
                self.moves, self._centre, noise.thresholds, noise.reach, first, last, self.letters
            )
        )

    def encode(
        self, samples: Array, words: NDArray[np.uint16], private: PrivateStream, start: int
    ) -> tuple[Integers, int]:
        """Outputs for samples in [−1, 1], and how many the letters cut."""
        noise = self.noise.sample(private.words64(lane=0, start=start, count=len(samples)))
        moved = self._cells(samples[:, 0], unit_dither(words[:, 0])) + noise
        _, _, first, last = self._window
        outputs = np.clip(moved, first, last)
        cut = int(np.count_nonzero(outputs != moved)) if self.letters is not None else 0
        return (outputs if self.letters is not None else outputs[:, None]), cut

    def decode(self, symbols: Integers, words: NDArray[np.uint16]) -> Array:
        """Δ(o − c′ − d), c′ the place of 0."""
        outputs = symbols.reshape(-1).astype(np.float64)
        return (self.step * (outputs - (self._centre - 0.5) - unit_dither(words[:, 0])))[:, None]

    def _cells(self, x: Array, dither: Array) -> Integers:
        return np.floor(x * (0.5 * self.moves) + (dither + self._centre)).astype(np.int64)

    def distortion(self, x: float) -> float:
        """Mean squared error at x: Δ²/12 + 2Δ²r/(1−r)² without letters, whatever x.

        With letters exact over the noise, 64 midpoints over the dither.
        """
        if self.letters is None:
            return self.step**2 * (1 / 12 + self.noise.variance)
        chances, errors = self._errors(x)
        return float((chances * errors * errors).sum(axis=1).mean())

    def bias(self, x: float) -> float:
        """Mean error at x: clamping pulls the outer inputs in."""
        chances, errors = self._errors(x)
        return float((chances * errors).sum(axis=1).mean())

    def _errors(self, x: float) -> tuple[Array, Array]:
        dither = (np.arange(_DITHERS) + 0.5) / _DITHERS - 0.5
        cells = self._cells(np.full(_DITHERS, x), dither)
        lowest, highest, first, last = self._window
        # noise from these on carries every cell to the same end: tables are long, letters few
        reach, every = self.noise.reach, self.noise.chances
        least, most = max(-reach, first - highest), min(reach, last - lowest)
        chances = every[reach + least : reach + most + 1].copy()
        chances[0] += every[: reach + least].sum()
        chances[-1] += every[reach + most + 1 :].sum()
        outputs = np.clip(cells[:, None] + np.arange(least, most + 1), first, last)
        decoded = self.step * (outputs - (self._centre - 0.5) - dither[:, None])
        return chances[None, :], decoded - x


def gaussian_nodes(sigma: float, count: int = 41) -> tuple[Array, Array]:
    """Points and weights that stand for N(0, σ²) clipped to [−1, 1]."""
    from scipy.special import ndtr

    edges = np.linspace(-1.0, 1.0, count)
    cumulative = ndtr(edges / sigma)
    weights = np.concatenate(([cumulative[0]], np.diff(cumulative), [1.0 - cumulative[-1]]))
    nodes = np.concatenate(([-1.0], 0.5 * (edges[1:] + edges[:-1]), [1.0]))
    return nodes, weights
