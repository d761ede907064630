"""Which part of the error's variance is left for the private noise (Theorem III.3).

Noise and dither together have the variance 8/ε² of the Laplace law of ε; the dither's part is
Δ²/12 with Δ = 2γ/2^R. So the noise has the share 1 − (γε/2^R)²/24, and none is left where

    √24 ≤ γε/2^R.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

BOUNDARY = math.sqrt(24.0)


def coarseness(epsilon: ArrayLike, letters: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    """γε/2^R, with 2^R letters."""
    top = np.multiply(np.asarray(gamma, dtype=np.float64), epsilon)
    return np.asarray(top / np.asarray(letters, dtype=np.float64))


def noise_share(epsilon: ArrayLike, letters: ArrayLike, gamma: ArrayLike) -> NDArray[np.float64]:
    """The noise's share of the total variance, 0 inside the region of Theorem III.3.

    >>> float(noise_share(4.0, 2, 2.25).round(4))
    0.1562
    """
    return np.maximum(0.0, 1.0 - (coarseness(epsilon, letters, gamma) / BOUNDARY) ** 2)
