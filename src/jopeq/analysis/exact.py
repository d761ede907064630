"""P(symbol | x, dither) of scalar schemes, and the exact ε it gives.

The channel is evaluated in log space on a grid of inputs that holds both ends of [−1, 1], for a
grid of dithers that holds both extremes and is refined around the worst of them; the supremum is
the ε of one sample:

    server    knows the dither: max over dithers, symbols and pairs of inputs
    decoded   sees the decoded value. A subtracted dither can be read off it (the decoded values of
              different dithers never coincide), so this is the server's ε again; a dither that
              stays in (``dq``) or a private one (``mvu``) cannot, and is averaged over
    network   sees the symbol but not the dither (keyed payloads): the average over dithers, by
              the midpoint rule, good to four digits
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.noise import Gaussian, Laplace, Law, MultivariateT, RadialExponential
from jopeq.schemes.additive import AdditiveScheme
from jopeq.schemes.base import Scheme
from jopeq.schemes.channelled import MinimumVarianceUnbiased, Response
from jopeq.schemes.none import NoScheme
from jopeq.schemes.quantized import QuantizedScheme
from jopeq.schemes.staircase import Staircase, StaircaseLine

Array = NDArray[np.float64]

INPUTS = np.linspace(-1.0, 1.0, 33)
_DITHERS = (np.arange(-128, 128) + 0.5) / 256.0  # in units of the step
_EDGE = 0.5 - 2.0**-17  # the outermost dither of 16 bits
_MAX_LETTERS = 4096


@dataclass(frozen=True)
class ExactEpsilon:
    """The ε of one sample against each adversary."""

    server: float
    decoded: float
    network: float


def exact_epsilon(scheme: Scheme) -> ExactEpsilon | None:
    """The exact ε of a scalar scheme; None on lattices of more dimensions and for whole updates."""
    if scheme.dimension != 1:
        return None
    if isinstance(scheme, AdditiveScheme | NoScheme):
        epsilon = scheme.guarantee.epsilon
        return ExactEpsilon(epsilon, epsilon, epsilon)  # what is sent is all there is to see
    if isinstance(scheme, MinimumVarianceUnbiased):
        with np.errstate(divide="ignore"):  # inputs on the grid have the extreme rows
            server = log_ratio(np.log(scheme._channel.probabilities))
        return ExactEpsilon(server, server, server)
    if not isinstance(scheme, QuantizedScheme | Staircase | Response):
        return None
    dithers = np.concatenate(([-_EDGE], _DITHERS, [_EDGE]))
    delta = scheme.guarantee.delta
    worst, where, average = 0.0, 0, np.array(-np.inf)
    for index, dither in enumerate(dithers):
        channel = log_channel(scheme, float(dither))
        found = _epsilon(channel, delta, worst)
        worst, where = (found, index) if found > worst else (worst, where)
        if abs(dither) < _EDGE:  # the midpoint rule
            average = np.logaddexp(average, channel - math.log(len(dithers) - 2))
    worst = max(worst, _between(scheme, dithers[max(where - 1, 0) : where + 2], delta))
    network = _epsilon(average, delta)
    is_subtracted = not isinstance(scheme, QuantizedScheme) or scheme.is_subtractive
    return ExactEpsilon(worst, worst if is_subtracted else network, network)


def _between(scheme: Scheme, dithers: Array, delta: float) -> float:
    """The largest ε of the dithers around the worst of the grid."""
    from scipy import optimize

    if scheme.guarantee.epsilon == math.inf:
        return 0.0
    found = optimize.minimize_scalar(
        lambda dither: -_epsilon(log_channel(scheme, float(dither)), delta),
        bounds=(dithers[0], dithers[-1]),
        method="bounded",
        options={"xatol": 2.0**-20},
    )
    return float(-found.fun)


def _epsilon(channel: Array, delta: float, known: float = 0.0) -> float:
    """The smallest ε of the channel at δ, over pairs of inputs; ``known`` if it is below that."""
    if delta == 0.0:
        return max(known, log_ratio(channel))
    from scipy import optimize

    chances = np.exp(channel)
    chances = chances[:, chances.max(axis=0) > 1e-12 * delta]  # the rest is nothing beside δ

    def excess(epsilon: float) -> float:
        factor = math.exp(epsilon)
        gaps = [np.maximum(chances - factor * row, 0.0).sum(axis=1).max() for row in chances]
        return float(max(gaps)) - delta

    if excess(known) <= 0:
        return known
    if excess(60.0) > 0:
        return math.inf
    return float(optimize.brentq(excess, known, 60.0, xtol=1e-9))


def log_ratio(channel: Array) -> float:
    """max over columns and pairs of rows of log P(y|x) − log P(y|x′)."""
    high, low = channel.max(axis=0), channel.min(axis=0)
    possible = np.isfinite(high)
    if np.isneginf(low[possible]).any():
        return math.inf
    return float((high[possible] - low[possible]).max(initial=0.0))


def log_channel(scheme: Scheme, dither: float, inputs: Array = INPUTS) -> Array:
    """log P(symbol | x) for the inputs x (rows), given the dither in units of the step."""
    if isinstance(scheme, Response | MinimumVarianceUnbiased):
        return _log_levels(scheme, dither, inputs)
    if isinstance(scheme, Staircase) and isinstance(scheme._core, StaircaseLine):
        return _log_staircase(scheme._core, dither, inputs)
    if isinstance(scheme, QuantizedScheme):
        return _log_cells(scheme, dither, inputs)
    raise ValueError(f"no exact channel for {scheme.spec}")


def _log_levels(scheme: Response | MinimumVarianceUnbiased, dither: float, inputs: Array) -> Array:
    channel = scheme._channel
    place = inputs * (0.5 * (channel.levels - 1))
    with np.errstate(divide="ignore"):
        if isinstance(scheme, Response):
            levels = np.floor(place + (dither + 0.5 * channel.levels)).astype(int)
            return np.asarray(np.log(channel.probabilities[levels]))
        place = place + 0.5 * (channel.levels - 1)
        low = np.minimum(np.floor(place).astype(int), channel.levels - 2)
        up = (place - low)[:, None]
        rows = channel.probabilities
        return np.asarray(np.log((1 - up) * rows[low] + up * rows[low + 1]))


def _log_staircase(core: StaircaseLine, dither: float, inputs: Array) -> Array:
    cells = core._cells(inputs, np.full(len(inputs), dither))
    _, _, first, last = core._window
    reach = core.noise.reach
    rows = np.zeros((len(inputs), last - first + 1))
    for row, cell in zip(rows, cells, strict=True):
        outputs = np.clip(cell + np.arange(-reach, reach + 1), first, last) - first
        np.add.at(row, outputs, core.noise.chances)
    with np.errstate(divide="ignore"):
        return np.log(rows)


def _log_cells(scheme: QuantizedScheme, dither: float, inputs: Array) -> Array:
    """Edges of the cells, seen from x + dither, through the law of the noise.

    More than 4096 cells are taken together, neighbour by neighbour. None is left out: at δ > 0 the
    sum over all of them counts, and at δ = 0 those beyond the ball attain the ε of a Laplace law.
    """
    step = scheme._cells.step
    if scheme.coding == "fixed":
        letters = scheme._codebook.letters
        kept = np.arange(1, letters)
        if letters > _MAX_LETTERS:
            kept = np.unique(np.linspace(1, letters - 1, _MAX_LETTERS).astype(np.int64))
        edges = (kept - 0.5 * letters) * step
        low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
    else:
        cells = math.ceil((2.0 + 60.0 * _deviation(scheme.noise)) / step) + 2
        together = -(-2 * cells // _MAX_LETTERS)
        reach = -(-cells // together)
        low = (np.arange(-reach, reach + 1) * together - 0.5) * step
        high = low + together * step
    centre = (inputs + dither * step)[:, None]
    if scheme.noise is None:
        with np.errstate(divide="ignore"):
            return np.log(((centre >= low) & (centre < high)).astype(np.float64))
    return log_interval(scheme.noise, low - centre, high - centre)


def _deviation(law: Law | None) -> float:
    return 0.0 if law is None else math.sqrt(law.variance)


def log_interval(law: Law, low: Array, high: Array) -> Array:
    """log P(low ≤ n < high) in one dimension, accurate far into the tails."""
    # by symmetry every interval can be looked at from the left tail
    flip = high > -low
    left, right = np.where(flip, -high, low), np.where(flip, -low, high)
    upper, lower = _log_left_tail(law, right), _log_left_tail(law, left)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(np.isneginf(lower), -np.inf, lower - upper)
        return np.asarray(upper + np.log1p(-np.exp(gap)))


def _log_left_tail(law: Law, x: Array) -> Array:
    """log P(n < x)."""
    from scipy import special

    with np.errstate(divide="ignore", over="ignore"):
        if isinstance(law, Laplace | RadialExponential):
            scale = law.scale if isinstance(law, Laplace) else 1.0 / law.decay
            z = x / scale
            outer = np.minimum(z, 0.0) - math.log(2.0)
            return np.where(z < 0, outer, np.log1p(-0.5 * np.exp(-np.maximum(z, 0.0))))
        if isinstance(law, Gaussian):
            return np.asarray(special.log_ndtr(x / law.sigma))
        if isinstance(law, MultivariateT):
            return np.log(law.distribution(x))
    raise ValueError(f"no distribution function for {law}")
