"""K-ary randomized response.

>>> channel = randomized_response(4.0, 4)
>>> channel.levels, channel.letters, channel.epsilon <= 4.0
(4, 4, True)
>>> print(f"{channel.distortion(0.0):.3f}")
0.090
"""

from __future__ import annotations

import math
import operator
from functools import lru_cache

from jopeq.channel.channel import MAX_LETTERS, TOTAL, Channel, level_positions, level_weights
from jopeq.random.rational import MAX_EPSILON, exp_floor


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` as a float, or raise ``ValueError`` unless it is positive and finite."""
    epsilon = float(epsilon)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(
            f"epsilon must be positive and finite, got {epsilon}: choose one in about 0.1 to 10"
        )
    return epsilon


def check_letters(name: str, letters: int) -> int:
    """Return ``letters`` as an int, or raise ``ValueError`` below two."""
    letters = operator.index(letters)
    if letters < 2:
        raise ValueError(f"{name} must be at least 2, got {letters}: spend at least 1 bit an entry")
    return letters


@lru_cache(maxsize=256)
def randomized_response(epsilon: float, letters: int) -> Channel:
    """K-ary randomized response on K = ``letters`` levels.

    P(j|j) = e^ε/(e^ε+K−1), every other letter 1/(e^ε+K−1), decoder a·v_l. In integers, rounded
    to the private side: other = ⌈2³²/(e^ε+K−1)⌉, keep = 2³² − (K−1)·other, a = 2³²/(keep−other),
    so that keep/other ≤ e^ε exactly and the decoder is unbiased up to the rounding of floats.

    >>> print(f"{randomized_response(4.0, 5).distortion(0.0):.3f}")
    0.072
    """
    epsilon, letters = check_epsilon(epsilon), check_letters("letters", letters)
    if letters > MAX_LETTERS:
        raise ValueError(f"letters must be at most {MAX_LETTERS}, got {letters}: use best_response")
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
    """The randomized response of at most ``max_letters`` letters with the smallest error.

    The error is averaged over entries N(0, 1/9) clipped to [−1, 1]. No more than 256 letters are
    tried.

    >>> best_response(4.0, 8).letters, best_response(4.0, 4).letters
    (5, 4)
    """
    epsilon, max_letters = check_epsilon(epsilon), check_letters("max_letters", max_letters)

    def error(letters: int) -> float:
        ratio = math.exp(min(epsilon, MAX_EPSILON))
        spread = letters * (letters + 1) / (3 * (letters - 1))  # Σ v_j²
        gain = (ratio + letters - 1) / (ratio - 1)
        square = float(level_weights(letters) @ level_positions(letters) ** 2)
        channel = gain * (spread / (ratio - 1) + square) - square
        return channel + 1 / (3 * (letters - 1) ** 2)

    return randomized_response(epsilon, min(range(2, min(max_letters, MAX_LETTERS) + 1), key=error))
