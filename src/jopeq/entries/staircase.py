"""``staircase``: additive noise on the quantized point itself, with a proof against the server."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.entries.ball import (
    into_unit_ball,
    or_zero,
    scaling_assumptions,
    simulated_bias,
    simulated_errors,
)
from jopeq.entries.quantized import CODINGS, Coding, measured_bits
from jopeq.entries.staircase_noise import StaircaseLattice, StaircaseLine
from jopeq.kernels.recipe import Recipe
from jopeq.lattice.codebook import MAX_SCALAR_LETTERS, letters_for_rate, step_for_unit_ball
from jopeq.lattice.lattices import Lattice
from jopeq.lattice.moves import moves
from jopeq.noise.discrete import most_moves
from jopeq.privacy.accounting import check_count
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Array, Letters, Scheme
from jopeq.schemes.parameters import LATTICE, LatticeParameter
from jopeq.wire.coders import Coder, IntegerCoder, Packing

MAX_MOVES = 64
_SIGMA = 1 / 3  # of the Gaussian entries that the choice of m is made for


@dataclass(frozen=True, kw_only=True)
class Staircase(Scheme):
    """ε-LDP per sample against the server, with an error that does not depend on the input.

    Noise on the lattice is added to the quantized point itself.

    >>> scheme = Staircase(epsilon=4.0)
    >>> scheme.moves, round(scheme.distortion, 3), scheme.guarantee.epsilon <= 4.0
    (2, 0.445, True)

    Parameters
    ----------
    epsilon : float
        Privacy asked for, per sample.
    rate : float, optional
        R, bits per entry. Required with ``coding="fixed"``.
    lattice : Lattice or str, default "Z"
        "Z", "A2", "D4" or "E8". L is its dimension.
    moves : int, optional
        m, the number of quantization steps across the ball; on lattices the m-th of the useful
        magnifications. By default the m of least error.
    coding : {"fixed", "entropy"}, optional
        "fixed", the default with ``rate``, clamps the outputs to ⌊2^{RL}⌋ letters: this biases the
        outer inputs, but ε stays. "entropy", the default without ``rate``, sends any output and
        keeps m small enough for R bits.
    """

    name: ClassVar[str] = "staircase"

    epsilon: float
    rate: float | None = None
    lattice: LatticeParameter = LATTICE
    moves: int | None = None
    coding: Coding | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
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
        else:
            check_count("moves", self.moves, 1)
        self.core.check()

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
    def core(self) -> StaircaseLine | StaircaseLattice:
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
            epsilon=self.core.proven_epsilon,
            nominal=self.epsilon,
            is_exact=self.core.is_exact,
            sample_size=self.dimension,
            assumptions=(*scaling_assumptions(self), *self.core.assumptions),
        )

    @cached_property
    def distortion(self) -> float:
        return self.core.centre_distortion

    @cached_property
    def bits_per_entry(self) -> float:
        """At a fixed rate exact; entropy-coded, measured on a Gaussian update."""
        if self._letters is None:
            return measured_bits(self)
        return Packing(self._letters).bits_per_letter / self.dimension

    @cached_property
    def coder(self) -> Coder:
        letters = self._letters
        return IntegerCoder(self.dimension) if letters is None else Packing(letters)

    @property
    def recipe(self) -> Recipe | None:
        return self.core.recipe

    def bias(self) -> float:
        if isinstance(self.core, StaircaseLine):
            return or_zero(self.core.bias(1.0))
        return simulated_bias(self) if self.coding == "fixed" else 0.0

    def errors_at(self, norms: Array) -> tuple[Array, Array] | None:
        if self.coding != "fixed":
            return None
        if not isinstance(self.core, StaircaseLine):
            return simulated_errors(self, norms) if self.bias() else None
        means, energies = map(np.vectorize, (self.core.bias, self.core.distortion))
        return means(norms), energies(norms)

    def log_channel(self, dither: float, inputs: Array) -> Array | None:
        core = self.core
        return core.log_channel(dither, inputs) if isinstance(core, StaircaseLine) else None

    def explanation(self, epsilon: float) -> str:
        if self.dimension == 1 or math.isinf(epsilon):
            return super().explanation(epsilon)
        return (
            "The quantized point moves by at most D when the input moves inside the ball, and "
            "the lattice noise on it changes by at most e^ε over that distance."
        )

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        inside, clipped = into_unit_ball(samples)
        words = self.dither_words(first, len(samples), shared)
        letters, cut = self.core.encode(inside, words, private, first)
        return Letters(letters, clipped, cut)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return self.core.decode(letters, self.dither_words(first, len(letters), shared))


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
    for chosen in _drawable(epsilon, "Z"):
        if letters is not None and chosen >= letters:
            break
        core = StaircaseLine(epsilon, chosen, letters)
        error = core.centre_distortion if letters is None else core.gaussian_distortion(_SIGMA, 17)
        if error < least:
            best, least = chosen, error
        elif chosen > 2 * best + 4:
            break
    return best


@lru_cache(maxsize=64)
def _best_lattice(epsilon: float, name: str, letters: int | None) -> int:
    """The magnification of least error; letters must cover the ball, as on the line."""
    lattice = Lattice(name)
    cores = [StaircaseLattice(epsilon, name, m, letters) for m in _drawable(epsilon, name)]
    if len(cores) == 1:
        return cores[0].moves  # if its noise cannot be drawn either, ``check`` says so
    if letters is None:
        return min(cores, key=lambda core: core.centre_distortion).moves
    finest = step_for_unit_ball(lattice, letters)
    covering = [core for core in cores if core.cells.step >= finest] or cores[:1]
    sigma = _SIGMA / lattice.dimension**0.5
    return min(covering, key=lambda core: core.simulated_distortion(sigma)).moves
