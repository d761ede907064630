"""The exact ε of scalar schemes, from P(letter | x, dither).

The channel is evaluated in log space on a grid of inputs with both ends of [−1, 1], for a grid of
dithers with both extremes, refined around the worst dither. The supremum is the ε of one sample:

    server    knows the dither: max over dithers, letters and pairs of inputs
    decoded   sees the decoded value. It reveals a subtracted dither, as the decoded values of
              different dithers never coincide, so this is the server's ε. A dither that stays in
              (``dq``) or is private (``mvu``) is averaged over
    network   sees the letter but not the dither (keyed payloads): the average over dithers, by
              the midpoint rule, good to four digits
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere

Array = NDArray[np.float64]

INPUTS = np.linspace(-1.0, 1.0, 33)
_DITHERS = (np.arange(-128, 128) + 0.5) / 256.0  # in units of the step
_EDGE = 0.5 - 2.0**-17  # the outermost dither of 16 bits


@dataclass(frozen=True)
class ExactEpsilon:
    """The ε of one sample against each adversary."""

    server: float
    decoded: float
    network: float


def exact_epsilon(scheme: Scheme | Sphere) -> ExactEpsilon | None:
    """The exact ε of a scalar scheme; None for more dimensions, with a δ, or without a channel.

    For a ``Sphere``, the ε of the integers that draw updates of one entry.
    """
    if isinstance(scheme, Sphere):  # a report is all there is to see
        epsilon = scheme.guarantee_for(1).epsilon
        return ExactEpsilon(epsilon, epsilon, epsilon)
    if scheme.dimension != 1 or scheme.guarantee.delta:
        return None
    if not scheme.codec.has_dither:  # the payload is all there is to see
        epsilon = scheme.guarantee.epsilon
        if scheme.codec.channel is not None:
            with np.errstate(divide="ignore"):
                epsilon = log_ratio(np.log(scheme.codec.channel.probabilities))
        elif scheme.codec.noise is None and scheme.is_private:
            return None
        return ExactEpsilon(epsilon, epsilon, epsilon)
    if scheme.codec.log_channel(0.0, INPUTS) is None:
        return None
    dithers = np.concatenate(([-_EDGE], _DITHERS, [_EDGE]))
    worst, where, average = 0.0, 0, np.array(-np.inf)
    for index, dither in enumerate(dithers):
        channel = log_channel(scheme, float(dither))
        found = log_ratio(channel)
        worst, where = (found, index) if found > worst else (worst, where)
        if abs(dither) < _EDGE:  # the midpoint rule
            average = np.logaddexp(average, channel - math.log(len(dithers) - 2))
    worst = max(worst, _between(scheme, dithers[max(where - 1, 0) : where + 2]))
    network = log_ratio(average)
    return ExactEpsilon(worst, worst if scheme.codec.is_subtractive else network, network)


def log_channel(scheme: Scheme, dither: float, inputs: Array = INPUTS) -> Array:
    """``Codec.log_channel``, or ``ValueError`` if the scheme has no exact channel."""
    channel = scheme.codec.log_channel(dither, inputs)
    if channel is None:
        raise ValueError(f"no exact channel for {scheme.spec}")
    return channel


def _between(scheme: Scheme, dithers: Array) -> float:
    """The largest ε for dithers around the worst of the grid."""
    from scipy import optimize

    if scheme.guarantee.epsilon == math.inf:
        return 0.0
    found = optimize.minimize_scalar(
        lambda dither: -log_ratio(log_channel(scheme, float(dither))),
        bounds=(dithers[0], dithers[-1]),
        method="bounded",
        options={"xatol": 2.0**-20},
    )
    return float(-found.fun)


def log_ratio(channel: Array) -> float:
    """max over columns and pairs of rows of log P(y|x) − log P(y|x′)."""
    high, low = channel.max(axis=0), channel.min(axis=0)
    possible = np.isfinite(high)
    if np.isneginf(low[possible]).any():
        return math.inf
    return float((high[possible] - low[possible]).max(initial=0.0))
