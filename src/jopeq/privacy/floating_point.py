"""The low-order-bits attack on floating-point Laplace noise (Mironov 2012), and why it fails here.

A textbook sampler adds b·ln(u), u one of 2⁵³ multiples of 2⁻⁵³, to x in floating point. Most
floating-point numbers near x are then not the image of any u, and which ones are depends on x: an
observer who knows the sampler finds, for many outputs, that only one of two inputs can have made
them. Scheme ``laplace`` sends an integer multiple of a coarse grid instead, after rounding x to
that grid: every output is possible from every input, with the right probability.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jopeq.randomness import PrivateStream
from jopeq.schemes.additive import LaplaceScheme

Array = NDArray[np.float64]


def textbook_laplace(x: float, scale: float, words: NDArray[np.uint64]) -> Array:
    """x ± b·ln(u) as most libraries compute it. For the attack only: this leaks."""
    units = ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    signs = np.where(words & np.uint64(1), 1.0, -1.0)
    return x + signs * (scale * np.log(units))


def is_reachable(outputs: Array, x: float, scale: float) -> NDArray[np.bool_]:
    """Whether the textbook sampler can have made each output from x."""
    guess = np.rint(np.exp(-np.abs(outputs - x) / scale) * 2.0**53)
    found = np.zeros(len(outputs), dtype=bool)
    for offset in range(-8, 9):
        candidate = np.clip(guess + offset, 1.0, 2.0**53) * 2.0**-53
        noise = scale * np.log(candidate)
        found |= (x + noise == outputs) | (x - noise == outputs)
    return found


def textbook_leak(
    epsilon: float, *, x: float = 0.3, other: float = -0.3, draws: int = 10_000
) -> float:
    """The share of textbook outputs for ``x`` that ``other`` cannot have made: ε = ∞ for each.

    >>> textbook_leak(4.0, draws=1000) > 0.2
    True
    """
    words = PrivateStream().words64(lane=0, start=0, count=draws)
    scale = 2.0 / epsilon
    outputs = textbook_laplace(x, scale, words)
    return float(1.0 - is_reachable(outputs, other, scale).mean())


def grid_leak(epsilon: float, *, x: float = 0.3, other: float = -0.3, draws: int = 10_000) -> float:
    """The same for scheme ``laplace``: outputs of ``x`` that ``other`` gives probability 0.

    An output is an integer multiple of the grid; from ``other`` it takes noise of at most the
    sampler's reach, and every multiple within reach has probability.

    >>> grid_leak(4.0, draws=1000)
    0.0
    """
    scheme = LaplaceScheme(epsilon=epsilon, clip=1.0)
    outputs = scheme.decode(scheme.encode(np.full(draws, x))).astype(np.float64)
    distance = np.abs(outputs - np.rint(other / scheme.grid) * scheme.grid)
    return float((distance > scheme.noise.reach).mean())
