"""``staircase``: additive noise on the quantized point itself, with a proof against the server."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.codebook import MAX_SCALAR_LETTERS, letters_for_rate, step_for_unit_ball
from jopeq.coders import Coder
from jopeq.integer_noise import most_moves
from jopeq.kernels.recipe import Recipe
from jopeq.lattice import Lattice
from jopeq.moves import moves
from jopeq.packing import Packing
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols
from jopeq.schemes.measure import measured_bits
from jopeq.schemes.quantized import CODINGS, INTEGERS, to_lattice
from jopeq.schemes.unit_ball import into_unit_ball, scaling_assumptions
from jopeq.staircase_lattice import StaircaseLattice
from jopeq.staircase_line import MAX_MOVES, StaircaseLine, gaussian_nodes

Array = NDArray[np.float64]
Core = StaircaseLine | StaircaseLattice

_SIGMA = 1 / 3  # of the Gaussian entries that the choice of m is made for


@dataclass(frozen=True, kw_only=True)
class Staircase(Scheme):
    """ε-LDP per sample against the server, with an error that does not depend on the input.

    ``moves`` is m, the number of quantization steps across the ball (on lattices: which of the
    useful magnifications); left out, the one with the least error is chosen. With ``rate`` the
    outputs are clamped to ⌊2^{RL}⌋ letters (``coding="fixed"``, the default then) or m is kept to
    what R bits can carry (``coding="entropy"``, the default without rate). Clamping is
    post-processing: it biases, but ε stays.

    >>> scheme = Staircase(epsilon=4.0)
    >>> scheme.moves, round(scheme.distortion, 3), scheme.guarantee.epsilon <= 4.0
    (2, 0.445, True)
    """

    name: ClassVar[str] = "staircase"

    epsilon: float
    rate: float | None = None
    lattice: Lattice = INTEGERS
    moves: int | None = None
    coding: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        object.__setattr__(self, "lattice", to_lattice(self.lattice))
        if self.lattice.generator is not None:
            raise ValueError("staircase needs a built-in lattice: Z, A2, D4 or E8")
        if self.coding is None:
            object.__setattr__(self, "coding", "entropy" if self.rate is None else "fixed")
        if self.coding not in CODINGS:
            raise ValueError(f"coding must be 'fixed' or 'entropy', got {self.coding!r}")
        if self.coding == "fixed" and self.rate is None:
            raise ValueError("coding='fixed' needs rate (bits per entry)")
        if self.moves is None:
            object.__setattr__(self, "moves", self._best_moves())
        elif self.moves < 1:
            raise ValueError(f"moves must be a whole number of at least 1, got {self.moves}")
        self._core.check()

    @property
    def _letters(self) -> int | None:
        if self.coding == "entropy" or self.rate is None:
            return None
        letters = letters_for_rate(self.rate, self.lattice.dimension)
        if self.lattice.name == "Z" and letters > MAX_SCALAR_LETTERS:
            most = math.log2(MAX_SCALAR_LETTERS)
            raise ValueError(f"rate must be at most {most:g} bits on Z, got {self.rate}")
        return letters

    def _best_moves(self) -> int:
        if self._letters is None and self.rate is not None:
            return self._best_affordable(self.rate)
        if self.lattice.name == "Z":
            return _best_line(self.epsilon, self._letters)
        return _best_lattice(self.epsilon, self.lattice.name, self._letters)

    def _best_affordable(self, rate: float) -> int:
        """The m of least error whose measured bits keep to the rate: finer cells cost more."""
        drawable = _drawable(self.epsilon, self.lattice.name)

        def bits(chosen: int) -> float:
            return measured_bits(replace(self, moves=chosen))

        finest, beyond = drawable.start - 1, drawable.stop
        while beyond - finest > 1:
            middle = (finest + beyond) // 2
            finest, beyond = (middle, beyond) if bits(middle) <= rate else (finest, middle)
        candidates = [replace(self, moves=chosen) for chosen in range(drawable.start, finest + 1)]
        for candidate in sorted(candidates, key=lambda scheme: scheme.distortion):
            if candidate.moves is not None and measured_bits(candidate) <= rate:
                return candidate.moves
        raise ValueError(
            f"rate={rate} is too low for entropy-coded staircase outputs, which take "
            f"{bits(drawable.start):.2f} bits per entry at least: raise rate or epsilon"
        )

    @cached_property
    def _core(self) -> Core:
        chosen = 1 if self.moves is None else self.moves
        if self.lattice.name == "Z":
            return StaircaseLine(self.epsilon, chosen, self._letters)
        return StaircaseLattice(self.epsilon, self.lattice.name, chosen, self._letters)

    @property
    def dimension(self) -> int:
        return self.lattice.dimension

    @property
    def guarantee(self) -> Guarantee:
        """See docs/guarantees.md, "staircase"."""
        return Guarantee(
            epsilon=self._core.proven_epsilon,
            nominal=self.epsilon,
            is_exact=self._core.is_exact,
            sample_size=self.dimension,
            assumptions=(*scaling_assumptions(self), *self._core.assumptions),
        )

    @cached_property
    def distortion(self) -> float:
        if isinstance(self._core, StaircaseLine):
            return self._core.distortion(0.0)
        return self._core.centre_distortion

    def distortion_for(self, sigma: float) -> float:
        if isinstance(self._core, StaircaseLine):
            nodes, weights = gaussian_nodes(sigma)
            return float(weights @ [self._core.distortion(x) for x in nodes])
        if self._letters is None:
            return self.distortion
        return self._core.simulated_distortion(sigma)

    @cached_property
    def bits_per_entry(self) -> float:
        """At a fixed rate exact; entropy-coded, measured on a Gaussian update."""
        if self._letters is None:
            return measured_bits(self)
        return Packing(self._letters).bits_per_letter / self.dimension

    @property
    def _coder(self) -> Coder:
        return self._core.coder

    @property
    def _recipe(self) -> Recipe | None:
        return self._core.recipe

    def _words(self, first: int, count: int, shared: SharedStream) -> NDArray[np.uint16]:
        size = self.dimension
        words = shared.words16(lane=0, start=first * size, count=count * size)
        return words.reshape(count, size)

    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols:
        inside, clipped = into_unit_ball(samples)
        words = self._words(first, len(samples), shared)
        symbols, cut = self._core.encode(inside, words, private, first)
        return Symbols(symbols, clipped, cut)

    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return self._core.decode(symbols, self._words(first, len(symbols), shared))


@lru_cache(maxsize=256)
def _drawable(epsilon: float, name: str) -> range:
    """The m whose noise can be drawn; the least unsuited one alone where there is none.

    On Z tables grow with m; on lattices coarse cells leave noise that is too rare to wait for.
    """
    if name == "Z":
        return range(1, most_moves(epsilon, MAX_MOVES) + 1)
    last = len(moves(name))
    for chosen in range(1, last):
        if StaircaseLattice(epsilon, name, chosen).noise.is_drawable:
            return range(chosen, last + 1)
    return range(last, last + 1)


@lru_cache(maxsize=256)
def _best_line(epsilon: float, letters: int | None) -> int:
    """The m of least error: closed form when unbounded, averaged over Gaussian entries else.

    Letters must cover the ball, m ≤ N − 1: a smaller codebook has a smaller squared error, but
    only because it pulls every input towards 0, which no number of clients averages out.
    """
    best, least = 1, float("inf")
    nodes, weights = gaussian_nodes(_SIGMA, 17)
    for chosen in _drawable(epsilon, "Z"):
        if letters is not None and chosen >= letters:
            break
        core = StaircaseLine(epsilon, chosen, letters)
        if letters is None:
            error = core.distortion(0.0)
        else:
            error = float(weights @ [core.distortion(x) for x in nodes])
        if error < least:
            best, least = chosen, error
        elif chosen > 2 * best + 4:
            break
    return best


@lru_cache(maxsize=64)
def _best_lattice(epsilon: float, name: str, letters: int | None) -> int:
    """The magnification of least error; letters must cover the ball, as on the line."""
    lattice = Lattice(name)
    cores = [
        StaircaseLattice(epsilon, name, chosen, letters) for chosen in _drawable(epsilon, name)
    ]
    if len(cores) == 1:
        return cores[0].moves  # if its noise cannot be drawn either, ``check`` says so
    if letters is None:
        return min(cores, key=lambda core: core.centre_distortion).moves
    finest = step_for_unit_ball(lattice, letters)
    covering = [core for core in cores if core.cells.step >= finest] or cores[:1]
    sigma = _SIGMA / lattice.dimension**0.5
    return min(covering, key=lambda core: core.simulated_distortion(sigma)).moves
