"""The spread: how wide the scale of an update is. The paper takes 3; the best depends on K clients.

The noise is fixed in scaled units. A wide scale makes it larger in the update's own units; a narrow
scale clips more entries. The mean over K clients reduces the noise, not the bias of clipping. For
Gaussian entries the error of the mean of K decoded copies, over the energy of the update, is

    E‖mean − h‖²/E‖h‖² = (clipping bias² + variance/K) / σ²,   σ = 1/(spread·√L) in scaled units.
"""

from __future__ import annotations

import math

from jopeq.privacy.accounting import check_count
from jopeq.schemes.base import Scheme

_RANGE = (0.3, 12.0)


def clipping_error(sigma: float, dimension: int) -> float:
    """The mean squared error of clipping, E(‖x‖ − 1)₊²/L, for Gaussian x with σ an entry.

    >>> round(clipping_error(1 / 3, 1), 7)
    4.52e-05
    """
    from scipy import integrate, special

    half = 0.5 * dimension
    last = sigma * math.sqrt(2.0 * special.gammainccinv(half, 1e-18))
    if last <= 1.0:
        return 0.0
    front = math.log(2.0) * (1.0 - half) - math.lgamma(half)

    def term(r: float) -> float:
        """(‖x‖ − 1)² times the density of ‖x‖, a chi law of scale σ."""
        x = r / sigma
        return (r - 1.0) ** 2 * math.exp(front + (dimension - 1) * math.log(x) - 0.5 * x * x)

    value, _ = integrate.quad(term, 1.0, last, limit=200)
    return float(value) / (sigma * dimension)


def normalised_error(scheme: Scheme, spread: float, clients: int = 1) -> float:
    """Error of the mean of ``clients`` decoded copies of a Gaussian update, over its energy."""
    sigma = 1.0 / (spread * math.sqrt(scheme.dimension))
    bias = clipping_error(sigma, scheme.dimension)
    return (bias + scheme.distortion_for(sigma) / clients) / sigma**2


def best_spread(scheme: Scheme, clients: int) -> float:
    """The spread of least ``normalised_error`` for the mean of ``clients`` updates.

    >>> from jopeq import scheme
    >>> round(best_spread(scheme("response", epsilon=4.0, rate=2.0), clients=10), 1)
    2.0
    """
    from scipy import optimize

    check_count("clients", clients, 1)
    if not scheme.is_bounded:
        raise ValueError(
            f"spread='auto' weighs clipping against noise, and {scheme.spec} does not clip: "
            "give spread as a number"
        )
    found = optimize.minimize_scalar(
        lambda log_spread: math.log(normalised_error(scheme, math.exp(log_spread), clients)),
        bounds=tuple(map(math.log, _RANGE)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return round(math.exp(float(found.x)), 4)
