"""Other mechanisms that give a whole update an ε against the server, written from the papers.

Every peer has a closed form of E‖x̂ − x‖² at ‖x‖ = 1, the bits of a report, and ``report``, which
draws x̂ of one client. Privacy is what the papers prove; randomness is NumPy's: this is a yardstick,
not for use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.wire.rotation import hadamard
from privunit import best_known_error, threshold

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PrivUnitG:
    """Asi, Feldman, Talwar 2022: a normal vector that leans towards x, σ·g."""

    name = "PrivUnitG"
    server = "d additions"
    epsilon: float

    def error(self, dimension: int) -> float:
        return best_known_error(dimension, self.epsilon)

    def bits(self, dimension: int) -> int:
        return 32 * dimension

    def report(self, x: Array, rng: np.random.Generator) -> Array:
        gamma = threshold(self.epsilon)
        above = 0.5 * math.erfc(gamma / math.sqrt(2.0))
        ratio = math.exp(self.epsilon)
        is_above = rng.random() < above * ratio / (1.0 + above * (ratio - 1.0))
        along = rng.normal()
        while (along >= gamma) != is_above:
            along = rng.normal() if not is_above else _tail(gamma, rng)
        noise = rng.normal(size=len(x))
        return (noise + (along - noise @ x) * x) / gamma


def _tail(gamma: float, rng: np.random.Generator) -> float:
    """A candidate for t given t ≥ γ: exact after rejection (Marsaglia), −1 where rejected."""
    candidate = math.sqrt(gamma * gamma - 2.0 * math.log(1.0 - rng.random()))
    return candidate if rng.random() * candidate < gamma else -1.0


@dataclass(frozen=True)
class ProjUnit:
    """Asi, Feldman, Nelson, Nguyen, Talwar 2023 (fast): PrivUnitG of k rotated entries.

    The projection is divided by its length, as published: x̂ is slightly too short.
    """

    epsilon: float
    kept: int = 64
    server = "one Hadamard transform"

    @property
    def name(self) -> str:
        return f"FastProjUnit, k = {self.kept}"

    def error(self, dimension: int) -> float:
        return dimension / self.kept * (best_known_error(self.kept, self.epsilon) + 1.0) - 1.0

    def bits(self, dimension: int) -> int:
        return 32 * self.kept

    def report(self, x: Array, rng: np.random.Generator) -> Array:
        size = 1 << (len(x) - 1).bit_length()
        signs = rng.choice([-1.0, 1.0], size)
        turned = np.zeros(size)
        turned[: len(x)] = x
        places = rng.choice(size, self.kept, replace=False)
        some = hadamard(signs * turned)[places]
        drawn = PrivUnitG(self.epsilon).report(some / np.linalg.norm(some), rng)
        back = np.zeros(size)
        back[places] = math.sqrt(size / self.kept) * drawn
        return (signs * hadamard(back))[: len(x)]


@dataclass(frozen=True)
class SQKR:
    """Chen, Kairouz, Özgür 2020: Kashin's representation, k of its signs, one randomized response.

    a = Σ over the frame with |a_i| ≤ K/√n; E‖x̂‖² = d·K²G²/k + (k − 1)/k, and G undoes the response.
    """

    name = "SQKR"
    server = "k additions"
    epsilon: float
    _eta = 0.4  # of Kashin's algorithm: what one turn may leave, and
    _delta = 0.8  # how much of the energy a level may have

    @property
    def level(self) -> float:
        """K."""
        return 1.0 / ((1.0 - self._eta) * math.sqrt(self._delta))

    def _undo(self, kept: int) -> float:
        return (math.exp(self.epsilon) + 2.0**kept - 1.0) / math.expm1(self.epsilon)

    def _error(self, dimension: int, kept: int) -> float:
        return dimension * (self.level * self._undo(kept)) ** 2 / kept + (kept - 1) / kept - 1.0

    def bits(self, dimension: int) -> int:
        return min(range(1, 64), key=lambda kept: self._error(dimension, kept))

    def error(self, dimension: int) -> float:
        return self._error(dimension, self.bits(dimension))

    def report(self, x: Array, rng: np.random.Generator) -> Array:
        size, kept = 2 << (len(x) - 1).bit_length(), self.bits(len(x))
        signs = rng.choice([-1.0, 1.0], size)

        def up(values: Array) -> Array:
            padded = np.zeros(size)
            padded[: len(values)] = values
            return hadamard(signs * padded)

        def down(values: Array) -> Array:
            return (signs * hadamard(values))[: len(x)]

        rest, found, most = x, np.zeros(size), self._eta / math.sqrt(self._delta * size)
        for _ in range(int(math.log(size))):
            cut = np.clip(up(rest), -most, most)
            rest, found, most = rest - down(cut), found + cut, most * self._eta
        found += up(rest)
        bound = self.level / math.sqrt(size)
        places = rng.integers(0, size, kept)
        chance = 0.5 * (1.0 + np.clip(found[places] / bound, -1.0, 1.0))
        bits = np.where(rng.random(kept) < chance, bound, -bound)
        if rng.random() >= 1.0 / self._undo(kept):
            bits = rng.choice([-bound, bound], kept)
        spread = np.zeros(size)
        np.add.at(spread, places, bits * (size / kept * self._undo(kept)))
        return down(spread)


def peers(epsilon: float) -> list[Any]:
    return [PrivUnitG(epsilon), ProjUnit(epsilon, 64), ProjUnit(epsilon, 512), SQKR(epsilon)]
