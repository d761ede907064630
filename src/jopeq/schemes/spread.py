"""The factor in the scale: the paper's 3 is a choice, and the best one depends on the clients.

A wide scale wastes range on entries that do not occur, so that the channel's noise, which is fixed
in scaled units, grows with it; a narrow one clips. Noise averages out over K clients, the bias of
clipping does not. For Gaussian entries the normalised error of the mean of K decoded copies is

    E‖mean − h‖²/E‖h‖² = (clipping bias² + variance/K) / σ²,   σ = 1/(spread·√L) in scaled units.
"""

from __future__ import annotations

import math

from jopeq.schemes.base import Scheme

_RANGE = (0.3, 12.0)


def clipping_error(sigma: float, dimension: int) -> float:
    """E(‖x‖ − 1)₊²/L for Gaussian x of standard deviation σ an entry: what clipping costs.

    >>> round(clipping_error(1 / 3, 1), 7)
    4.52e-05
    """
    from scipy import integrate, stats

    law = stats.chi(dimension, scale=sigma)
    last = float(law.isf(1e-18))
    if last <= 1.0:
        return 0.0
    value, _ = integrate.quad(lambda r: (r - 1.0) ** 2 * law.pdf(r), 1.0, last, limit=200)
    return float(value) / dimension


def normalised_error(scheme: Scheme, spread: float, clients: int = 1) -> float:
    """Error of the mean of ``clients`` decoded copies of a Gaussian update, over its energy."""
    sigma = 1.0 / (spread * math.sqrt(scheme.dimension))
    bias = clipping_error(sigma, scheme.dimension)
    return (bias + scheme.distortion_for(sigma) / clients) / sigma**2


def best_spread(scheme: Scheme, clients: int) -> float:
    """The spread of least normalised error for that many clients.

    >>> from jopeq import scheme
    >>> round(best_spread(scheme("response", epsilon=4.0, rate=2.0), clients=10), 1)
    2.0
    """
    from scipy import optimize

    if not (isinstance(clients, int) and not isinstance(clients, bool) and clients >= 1):
        raise ValueError(f"clients must be a whole number of at least 1, got {clients!r}")
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
