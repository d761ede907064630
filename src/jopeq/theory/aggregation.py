"""The error of the averaged model (Theorem III.4).

With the norm scale 1/ζ = 3‖h‖/√M, samples inside the ball and no overload, each client's decoded
update is off by noise of E‖·‖² = 9σ²‖h‖², independent of the others'; σ² is the variance of the
mechanism on one sample. Hence the error of w̃ is exactly 9σ²·Σα²‖h‖², and since h is a sum of τ
gradients with E‖∇‖² ≤ ξ², at most 9τσ²·(Ση²)·Σα²ξ².
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def aggregation_error(
    weights: ArrayLike, norms: ArrayLike, variance: float, spread: float = 3.0
) -> float:
    """E‖w̃ − w‖² = spread²·σ²·Σα²‖h‖² without clipping and overload.

    >>> aggregation_error([0.5, 0.5], [1.0, 1.0], variance=0.5)
    2.25
    """
    scaled = np.multiply(np.asarray(weights, dtype=np.float64), norms)
    return float(spread**2 * variance * np.square(scaled).sum())


def aggregation_bound(
    weights: ArrayLike, gradient_bounds: ArrayLike, variance: float, step_sizes: ArrayLike
) -> float:
    """9τσ²·(Σ η²)·Σ α²ξ² (eq. 18), ``gradient_bounds`` being ξ² and τ the number of step sizes.

    >>> aggregation_bound([1.0], [4.0], variance=0.5, step_sizes=[0.5, 0.5])
    18.0
    """
    steps = np.asarray(step_sizes, dtype=np.float64)
    shares = np.square(np.asarray(weights, dtype=np.float64))
    total = float(shares @ np.asarray(gradient_bounds, dtype=np.float64))
    return float(9.0 * steps.size * variance * np.square(steps).sum() * total)
