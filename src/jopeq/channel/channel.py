"""Discrete ε-LDP channels with integer probabilities.

A channel stands between the dithered quantizer and the wire: level ``j`` of ``K`` goes in,
letter ``l`` of ``J`` comes out with probability ``counts[j][l] / 2**32``. Because the
probabilities *are* integers, the ε printed is that of the implementation, not of a formula.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from struct import pack

import numpy as np
from numpy.typing import NDArray

from jopeq.random.rational import MAX_EPSILON, exp_floor, log_ceiling

TOTAL = 1 << 32
"""The sum of every row of counts: the number of 32-bit words."""

MAX_LETTERS = 256
"""Letters fit a byte; K-ary responses with more are never better below ε = 16."""


def level_positions(levels: int) -> NDArray[np.float64]:
    """v_j = −1 + 2j/(K−1), exactly antisymmetric."""
    return np.arange(1 - levels, levels, 2) / (levels - 1)


@lru_cache(maxsize=1024)
def _cell_moments(levels: int, sigma: float) -> NDArray[np.float64]:
    """E[1], E[t], E[t²] on each cell v_j + tΔ, and P(X < −1), for X ~ N(0, σ²): (4, K−1)."""
    edges = level_positions(levels) / sigma
    density = np.exp(-(edges**2) / 2) / math.sqrt(2 * math.pi)
    left, width = edges[:-1], 2 / (levels - 1) / sigma
    below = np.array([math.erfc(-edge / math.sqrt(2)) / 2 for edge in edges])
    mass = np.diff(below)
    first = -np.diff(density)
    second = mass - np.diff(edges * density)
    moments = np.empty((4, levels - 1))
    moments[0] = mass
    moments[1] = (first - left * mass) / width
    moments[2] = (second - 2 * left * first + left**2 * mass) / width**2
    moments[3] = below[0]
    moments.flags.writeable = False
    return moments


def level_weights(levels: int, sigma: float = 1 / 3) -> NDArray[np.float64]:
    """P(level = j) for an input N(0, σ²) clipped to [−1, 1], averaged over the dither.

    >>> level_weights(3).round(3)
    array([0.133, 0.734, 0.133])
    """
    mass, first, _, tail = _cell_moments(levels, sigma)
    weights = np.zeros(levels)
    weights[:-1] += mass - first
    weights[1:] += first
    weights[[0, -1]] += tail[0]
    return weights


@dataclass(frozen=True)
class Channel:
    """A discrete memoryless channel from ``K`` levels to ``J`` letters, and its decoder.

    With levels v_j = −1 + 2j/(K−1), spacing Δ = 2/(K−1), input x in [−1, 1] and a dither d uniform
    on [−Δ/2, Δ/2), the level is j = ⌊(x+d)/Δ + K/2⌋, the letter l is drawn with probability
    counts[j][l]/2³² from a private 32-bit word, and the server decodes ``values[l] − d``, or
    ``values[l]`` where ``is_dither_shared`` is false (stochastic rounding). It is unbiased for
    every x if and only if Σ_l counts[j][l] values[l] = 2³² v_j, as ``distortion`` presumes.

    The adversary is the server, who knows payload, dither and channel: given the dither, the
    letter's probabilities under two inputs are two rows of counts, so ``epsilon``, the log of
    the largest ratio within a column, bounds what any letter tells about x.

    >>> flip = Channel(counts=((3 << 30, 1 << 30), (1 << 30, 3 << 30)), values=(-2.0, 2.0))
    >>> print(f"{flip.epsilon:.6f}", flip.bias)
    1.098612 0.0
    >>> flip.sample(np.array([0, 1]), np.array([0, 2**32 - 1], dtype=np.uint32))
    array([0, 1], dtype=uint8)
    """

    counts: tuple[tuple[int, ...], ...]
    values: tuple[float, ...]
    is_dither_shared: bool = True

    def __post_init__(self) -> None:
        counts, values = tuple(map(tuple, self.counts)), tuple(self.values)
        object.__setattr__(self, "counts", counts)  # tuples: nobody changes what was checked
        object.__setattr__(self, "values", values)
        is_whole = {type(count) for row in counts for count in row} == {int}
        is_whole = is_whole and all(min(row) >= 0 and sum(row) == TOTAL for row in counts)
        if not (2 <= len(values) <= MAX_LETTERS and all(map(math.isfinite, values))):
            raise ValueError(f"values must name 2 to {MAX_LETTERS} finite letters, got {values}")
        if len(counts) < 2 or {*map(len, counts)} != {len(values)} or not is_whole:
            raise ValueError(
                "counts must have two rows or more of whole numbers, one for each letter, not "
                "negative and of sum 2**32"
            )

    @property
    def levels(self) -> int:
        """K, the number of input levels."""
        return len(self.counts)

    @property
    def letters(self) -> int:
        """J, the number of letters."""
        return len(self.values)

    @property
    def spacing(self) -> float:
        """Δ = 2/(K−1), the distance of two levels and the width of the dither."""
        return 2 / (self.levels - 1)

    @cached_property
    def epsilon(self) -> float:
        """The log of the largest ratio of two counts of one letter, rounded up, or inf."""
        worst = Fraction(1)
        for column in zip(*self.counts, strict=True):
            if max(column) > 0 and min(column) == 0:
                return math.inf
            if max(column) > 0:
                worst = max(worst, Fraction(max(column), min(column)))
        return log_ceiling(worst)

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Counts over 2³², K × J, read-only (exact: the counts fit a double)."""
        table = np.array(self.counts, dtype=np.float64) / TOTAL
        table.flags.writeable = False
        return table

    @cached_property
    def thresholds(self) -> NDArray[np.uint64]:
        """Cumulative counts without the last, K × (J−1), read-only; 2**32 itself may occur."""
        table = np.cumsum(np.array(self.counts, dtype=np.uint64), axis=1)[:, :-1]
        table.flags.writeable = False
        return table

    @cached_property
    def fingerprint(self) -> bytes:
        """Eight bytes naming counts, values and dither: both ends must hold the same channel."""
        digest = sha256(b"jopeq channel 1")
        digest.update(pack("<HH?", self.levels, self.letters, self.is_dither_shared))
        digest.update(np.array(self.counts, dtype="<u8").tobytes())
        digest.update(np.array(self.values, dtype="<f8").tobytes())
        return digest.digest()[:8]

    def sample(self, levels: NDArray[np.int64], words: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Draw a letter for each level: the number of thresholds not above its private word."""
        letters = np.zeros(len(words), dtype=np.uint8)
        for column in self.thresholds.T:
            letters += column[levels] <= words
        return letters

    @cached_property
    def bias(self) -> float:
        """max_j |E[values[l] | j] − v_j|, in exact arithmetic over the stored floats."""
        exact, top = [Fraction(value) for value in self.values], self.levels - 1
        means = (sum(map(operator.mul, row, exact)) / TOTAL for row in self.counts)
        return float(max(abs(mean - Fraction(2 * j - top, top)) for j, mean in enumerate(means)))

    @cached_property
    def conditional_variance(self) -> NDArray[np.float64]:
        """E[(values[l] − v_j)² | j] for each level, read-only."""
        errors = np.array(self.values) - level_positions(self.levels)[:, None]
        variance: NDArray[np.float64] = np.sum(self.probabilities * errors**2, axis=1)
        variance.flags.writeable = False
        return variance

    def distortion(self, x: float) -> float:
        """E[(decoded − x)²] over dither and letter, in closed form, for x in [−1, 1].

        A shared dither leaves the uniform error Δ²/12, a private one the variance of rounding.
        """
        cost, place = self.conditional_variance, (x + 1) / self.spacing
        j = min(int(place), self.levels - 2)
        t = place - j
        rounding = 1 / 12 if self.is_dither_shared else t * (1 - t)
        return float((1 - t) * cost[j] + t * cost[j + 1] + self.spacing**2 * rounding)

    def gaussian_distortion(self, sigma: float = 1 / 3) -> float:
        """``distortion`` averaged over x ~ N(0, σ²) clipped to [−1, 1], in closed form."""
        _, first, second, _ = _cell_moments(self.levels, sigma)
        rounding = 1 / 12 if self.is_dither_shared else float((first - second).sum())
        weights = level_weights(self.levels, sigma)
        return float(weights @ self.conditional_variance) + self.spacing**2 * rounding


# K-ary randomized response


@lru_cache(maxsize=256)
def randomized_response(epsilon: float, letters: int) -> Channel:
    """K-ary randomized response on K = ``letters`` levels.

    P(j|j) = e^ε/(e^ε+K−1), every other letter 1/(e^ε+K−1), decoder a·v_l. In integers, rounded
    to the private side: other = ⌈2³²/(e^ε+K−1)⌉, keep = 2³² − (K−1)·other, a = 2³²/(keep−other),
    so that keep/other ≤ e^ε exactly and the decoder is unbiased up to the rounding of floats.

    >>> print(f"{randomized_response(4.0, 5).distortion(0.0):.3f}")
    0.072
    """
    other = math.ceil(TOTAL / (exp_floor(epsilon) + letters - 1))
    keep = TOTAL - (letters - 1) * other
    if keep <= other:
        raise ValueError(
            f"epsilon={epsilon} with {letters} letters leaves no signal in 32-bit counts: "
            "raise epsilon"
        )
    gain = TOTAL / (keep - other)
    counts = tuple(tuple(keep if i == j else other for i in range(letters)) for j in range(letters))
    return Channel(counts=counts, values=tuple((gain * level_positions(letters)).tolist()))


@lru_cache(maxsize=256)
def best_response(epsilon: float, max_letters: int) -> Channel:
    """The response of at most ``max_letters`` letters with least error over entries N(0, 1/9).

    >>> best_response(4.0, 8).letters, best_response(4.0, 4).letters
    (5, 4)
    """

    def error(letters: int) -> float:
        ratio = math.exp(min(epsilon, MAX_EPSILON))
        spread = letters * (letters + 1) / (3 * (letters - 1))  # Σ v_j²
        gain = (ratio + letters - 1) / (ratio - 1)
        square = float(level_weights(letters) @ level_positions(letters) ** 2)
        channel = gain * (spread / (ratio - 1) + square) - square
        return channel + 1 / (3 * (letters - 1) ** 2)

    return randomized_response(epsilon, min(range(2, min(max_letters, MAX_LETTERS) + 1), key=error))
