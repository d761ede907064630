"""The spread: how wide the scale of an update is. The paper takes 3; the best depends on K clients.

A wide scale makes the noise larger in the update's own units; a narrow one clips more entries. The
mean over K clients reduces the noise, but neither the bias of clipping nor that of a codebook that
clamps. For Gaussian entries the error of the mean of K decoded copies, over the energy of the
update, is

    E‖mean − h‖²/E‖h‖² = (bias² + variance/K) / σ²,   σ = 1/(spread·√L) in scaled units.

Both biases point inwards, so they add up before they are squared.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from jopeq.checks import check_count
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array

_RANGE = (0.3, 12.0)
_EDGES = np.linspace(0.0, 1.0, 33)  # of norms that are looked at together


def beyond_ball(sigma: float, dimension: int, power: int) -> float:
    """E(‖x‖ − 1)₊^power for Gaussian x with σ an entry: squared and over L, the error of clipping.

    >>> round(beyond_ball(1 / 3, 1, power=2), 7)
    4.52e-05
    """
    from scipy import integrate, special

    half = 0.5 * dimension
    last = sigma * math.sqrt(2.0 * special.gammainccinv(half, 1e-18))
    if last <= 1.0:
        return 0.0
    front = math.log(2.0) * (1.0 - half) - math.lgamma(half)

    def term(r: float) -> float:  # with the density of ‖x‖, a chi law of scale σ
        x = r / sigma
        return (r - 1.0) ** power * math.exp(front + (dimension - 1) * math.log(x) - 0.5 * x * x)

    value, _ = integrate.quad(term, 1.0, last, limit=200)
    return float(value) / sigma


def normalised_error(scheme: Scheme, spread: float, clients: float = 1) -> float:
    """Error of the mean of ``clients`` decoded copies of a Gaussian update, over its energy."""
    from scipy import special

    size = scheme.dimension
    sigma = 1.0 / (spread * math.sqrt(size))
    bias, variance = beyond_ball(sigma, size, 2) / size, 0.0
    curve = _curve(scheme)
    if curve is None:
        variance = scheme.codec.distortion_for(sigma)
    else:
        means, energies = curve
        below = special.gammainc(0.5 * size, 0.5 * np.square(_EDGES / sigma))
        weights = np.append(np.diff(below), 1.0 - below[-1])
        bias += float(weights @ np.square(means)) / size
        bias -= 2.0 * float(means[-1]) * beyond_ball(sigma, size, 1) / size
        variance = float(weights @ (energies - np.square(means) / size))
    return (bias + variance / clients) / sigma**2


@lru_cache(maxsize=256)
def _curve(scheme: Scheme) -> tuple[Array, Array] | None:
    """``Codec.errors_at`` between the edges, and at the edge of the ball."""
    return scheme.codec.errors_at(np.append(0.5 * (_EDGES[1:] + _EDGES[:-1]), 1.0))


def best_spread(scheme: Scheme, clients: int) -> float:
    """The spread of least ``normalised_error`` for the mean of ``clients`` updates.

    >>> from jopeq import scheme
    >>> round(best_spread(scheme("response", epsilon=4.0, rate=2.0), clients=10), 1)
    2.0
    """
    from scipy import optimize

    check_count("clients", clients, 1)
    if not scheme.codec.is_bounded:
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
