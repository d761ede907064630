"""Two-sided geometric noise on the integers, with integer probabilities.

P(k) ∝ r^{|k|}, r = e^{−ε/m}: the discrete Laplace law. Its probabilities are counts of 64-bit
words, built so that neighbouring counts never differ by more than the factor e^{ε/m}; the ε that is
printed is computed from these counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from jopeq.random.rational import exp_floor, log_ceiling

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

TOTAL = 1 << 64
_MAX_REACH = 1 << 17
_TAIL_BITS = 40  # noise beyond probability 2⁻⁴⁰ is lumped into the outermost value


def _reach(epsilon: float, moves: int) -> int:
    return max(2, math.ceil(_TAIL_BITS * math.log(2) * moves / epsilon)) + moves


def most_moves(epsilon: float, limit: int) -> int:
    """The largest m up to ``limit`` whose table of probabilities is short enough, at least 1.

    >>> most_moves(0.001, 64), most_moves(4.0, 64)
    (4, 64)
    """
    return max((m for m in range(1, limit + 1) if _reach(epsilon, m) <= _MAX_REACH), default=1)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Noise k with P(k) ∝ e^{−ε|k|/m}, hiding moves of up to m integers.

    The outermost values ±T stand for everything beyond, so sums with this noise must be clamped to
    a window no output of which lies T or more from any input: then each output has, from every
    input, the probability of the unbounded law, and moves of m steps are ε-indistinguishable.

    >>> noise = DiscreteLaplace(epsilon=4.0, moves=2)
    >>> round(noise.variance, 4), noise.exact_epsilon <= 4.0
    (0.362, True)
    """

    epsilon: float
    moves: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon must be a positive number, got {self.epsilon}")
        if not (isinstance(self.moves, int) and self.moves >= 1):
            raise ValueError(f"moves must be a whole number of at least 1, got {self.moves!r}")
        if self.moves > _MAX_REACH or self.reach > _MAX_REACH:
            raise ValueError(
                f"epsilon={self.epsilon} over {self.moves!r:.20} moves needs a table of more than "
                f"{_MAX_REACH} probabilities: raise epsilon or lower moves"
            )

    @property
    def ratio(self) -> float:
        """r = e^{−ε/m}."""
        return math.exp(-self.epsilon / self.moves)

    @property
    def reach(self) -> int:
        """T: the outermost value."""
        return _reach(self.epsilon, self.moves)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Words of 2⁶⁴ that give k = 0, 1, …, T (and, as many each, −1, …, −T).

        Outwards from 0 each is the smallest integer within the factor e^{ε/m} of the one before;
        T carries the whole tail beyond it, c_T·ρ/(ρ−1) with ρ = e^{ε/m}, and the few words that
        rounding leaves over: a heavier tail is more private.
        """
        # one float lower, since the quotient may have been rounded up
        step = exp_floor(math.nextafter(self.epsilon / self.moves, 0.0))
        zero = int(Fraction((1 - self.ratio) / (1 + self.ratio)) * TOTAL * (1 - Fraction(1, 2**50)))
        counts = [(zero - 8 * self.reach) // 2 * 2]  # even, so that what is left over is too
        for _ in range(self.reach):
            counts.append(-(-counts[-1] * step.denominator // step.numerator))
        counts[-1] = math.ceil(counts[-1] * step / (step - 1))
        rest = TOTAL - counts[0] - 2 * sum(counts[1:])
        if rest < 0 or min(counts) < 1:
            raise ArithmeticError("the counts of the discrete Laplace law do not fit 2⁶⁴ words")
        counts[-1] += rest // 2
        return tuple(counts)

    @cached_property
    def exact_epsilon(self) -> float:
        """ε of the counts: the largest log-ratio over moves of m, for single values and tails."""
        counts, tails, moves = self.counts, self._tails, self.moves
        ratios = [
            Fraction(row[k], row[k + moves])
            for row, end in ((counts, len(counts) - 1), (tails, len(tails)))
            for k in range(end - moves)
        ]
        return log_ceiling(max(ratios))

    def epsilon_up_to(self, distance: int) -> float:
        """ε that outputs attain whose last one, all beyond included, is so far from the last input.

        Below ``exact_epsilon`` where rounding makes ratios further out larger than those met.
        """
        counts, tails, moves = self.counts, self._tails, self.moves
        ratios = [Fraction(counts[k], counts[k + moves]) for k in range(distance)]
        ratios.append(Fraction(tails[distance], tails[distance + moves]))
        return log_ceiling(max(ratios))

    @cached_property
    def _tails(self) -> tuple[int, ...]:
        """Words that give k, k + 1, …, T together."""
        return tuple(accumulate(reversed(self.counts)))[::-1]

    @cached_property
    def thresholds(self) -> NDArray[np.uint64]:
        """Cumulative counts of k = −T, …, T − 1."""
        row = (*reversed(self.counts[1:]), *self.counts)
        return np.array(list(accumulate(row[:-1])), dtype=np.uint64)

    def sample(self, words: NDArray[np.uint64]) -> Integers:
        """The noise of each word: how many thresholds it has reached."""
        return np.searchsorted(self.thresholds, words, side="right") - self.reach

    @property
    def variance(self) -> float:
        """2r/(1−r)²."""
        return 2 * self.ratio / (1 - self.ratio) ** 2

    @cached_property
    def chances(self) -> Array:
        """P(k) for k = −T…T."""
        half = np.array(self.counts, dtype=np.float64) / TOTAL
        return np.concatenate((half[:0:-1], half))
