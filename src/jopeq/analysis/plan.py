"""Every scheme side by side for one job: bits, error, bias and ε, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.analysis.exact import INPUTS, log_channel
from jopeq.channel.channel import MAX_LETTERS
from jopeq.channel.response import best_response
from jopeq.errors import DesignError
from jopeq.lattice.codebook import letters_for_rate
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import samplers
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes import Scheme, scheme
from jopeq.schemes.channelled import Response
from jopeq.schemes.quantized import QuantizedScheme
from jopeq.schemes.spread import best_spread, normalised_error
from jopeq.schemes.staircase import Staircase, StaircaseLine

Array = NDArray[np.float64]

_DRAWS = 1 << 16
_TEST_KEY = b"jopeq: planning with fixed draws"
_UNBIASED = 1e-6


@dataclass(frozen=True)
class PlanRow:
    """One scheme for one job. Errors are in scaled units or normalised; ε against the server."""

    scheme: Scheme
    bits_per_entry: float
    payload_bytes: int
    distortion: float
    bias: float  # at the edge of the ball, where clamping pulls most
    spread: float | None  # the best one for that many clients
    error: float  # normalised, of the mean of all clients, at the best spread
    nominal: float | None
    per_sample: float
    per_update: float
    per_client: float
    delta: float
    gaussian_distortion: float | None = None  # of ``response``: its mean over Gaussian entries
    lower_bound: float | None = None  # of that, for any channel
    gain: float | None = None  # over the best randomized response


def plan_schemes(epsilon: float, rate: float) -> Iterator[Scheme]:
    """Every scheme that these two numbers make."""
    yield scheme("none")
    yield scheme("sdq", rate=rate)
    yield scheme("laplace", epsilon=epsilon)
    yield scheme("t", epsilon=epsilon)
    yield scheme("l2", epsilon=epsilon)
    yield scheme("gaussian", epsilon=epsilon)
    yield scheme("dq", rate=rate)
    yield scheme("laplace+sdq", epsilon=epsilon, rate=rate)
    yield scheme("jopeq", epsilon=epsilon, rate=rate)
    for law in ("t", "l2", "gaussian"):
        yield from _if_possible(f"{law}+sdq", epsilon=epsilon, rate=rate, lattice="A2")
        yield from _if_possible("jopeq", epsilon=epsilon, rate=rate, lattice="A2", law=law)
    yield from _if_possible("mvu", epsilon=epsilon, rate=rate)
    yield scheme("staircase", epsilon=epsilon, rate=rate)
    yield from _if_possible("staircase", epsilon=epsilon, rate=rate, coding="entropy")
    yield from _if_possible("staircase", epsilon=epsilon, rate=rate, lattice="A2")
    yield scheme("response", epsilon=epsilon, rate=rate)


def _if_possible(name: str, **parameters: Any) -> Iterator[Scheme]:
    """The scheme, unless these parameters do not make one (too many letters, half a bit…)."""
    try:
        built = scheme(name, **parameters)
        _ = built.guarantee  # a channel is solved when it is first asked for
    except (ValueError, DesignError):
        return
    yield built


def plan(
    epsilon: float,
    rate: float,
    *,
    dimension: int,
    rounds: int = 1,
    clients: int = 10,
    delta: float = 1e-5,
) -> list[PlanRow]:
    """The table for an update of ``dimension`` entries sent ``rounds`` times by each client.

    >>> rows = plan(4.0, 2.0, dimension=7850, rounds=95)
    >>> best = min((row for row in rows if row.per_sample <= 4.0), key=lambda row: row.error)
    >>> best.scheme.name
    'response'
    """
    for name, value in (("dimension", dimension), ("rounds", rounds), ("clients", clients)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    schemes = plan_schemes(epsilon, rate)
    return [plan_row(each, dimension, rounds, clients, delta) for each in schemes]


def plan_row(
    planned: Scheme, dimension: int, rounds: int, clients: int = 10, delta: float = 1e-5
) -> PlanRow:
    """One row of the table."""
    guarantee = planned.guarantee
    client = guarantee.for_client(dimension, rounds, delta=delta)
    spread = best_spread(planned, clients) if planned.is_bounded else None
    if spread is not None:
        error = normalised_error(planned, spread, clients)
    else:
        sigma = 1.0 / (planned.spread * math.sqrt(planned.dimension))
        error = planned.distortion / clients / sigma**2
    return PlanRow(
        scheme=planned,
        bits_per_entry=planned.bits_per_entry,
        payload_bytes=len(planned.encode(_gaussian_update(dimension))),
        distortion=planned.distortion,
        bias=edge_bias(planned),
        spread=spread,
        error=error,
        nominal=guarantee.nominal,
        per_sample=guarantee.epsilon,
        per_update=_per_update(guarantee, dimension, delta),
        per_client=client.epsilon,
        delta=client.delta,
        **_against_bound(planned),
    )


def _per_update(guarantee: Guarantee, dimension: int, delta: float) -> float:
    """ε of one update: added up, but for Gaussian noise, which has a δ anyway."""
    if guarantee.unit == "update":
        return guarantee.epsilon
    return guarantee.for_update(dimension, delta if guarantee.delta else 0.0).epsilon


def _against_bound(planned: Scheme) -> dict[str, float]:
    """How ``response`` stands between the best randomized response and the lower bound."""
    from jopeq.channel.design import MAX_DESIGNED_EPSILON, MIN_DESIGNED_EPSILON, lower_bound

    if not isinstance(planned, Response):
        return {}
    ours = planned._channel.gaussian_distortion()
    letters = min(letters_for_rate(planned.rate, 1), MAX_LETTERS)
    simple = best_response(planned.epsilon, letters, sigma=1 / 3).gaussian_distortion()
    figures = {"gaussian_distortion": ours, "gain": max(0.0, 1.0 - ours / simple)}
    if MIN_DESIGNED_EPSILON <= planned.epsilon <= MAX_DESIGNED_EPSILON:
        figures["lower_bound"] = lower_bound(planned.epsilon)
    return figures


def _gaussian_update(dimension: int) -> Array:
    return samplers.normal(PrivateStream.reproducible(_TEST_KEY), 0, dimension)


def edge_bias(planned: Scheme) -> float:
    """E[decoded] − x at the edge of the ball, outwards: exact on Z, over fixed draws elsewhere."""
    if isinstance(planned, Response):
        return _rounded(planned._channel.bias)
    if isinstance(planned, Staircase) and isinstance(planned._core, StaircaseLine):
        return _rounded(planned._core.bias(1.0))
    if isinstance(planned, Staircase) and planned.coding == "fixed":
        return _simulated_bias(planned)
    if isinstance(planned, QuantizedScheme) and planned.coding == "fixed":
        if planned.dimension == 1 and planned._codebook.letters <= 4096:
            return _rounded(_scalar_bias(planned))
        return _simulated_bias(planned)
    return 0.0


def _rounded(value: float) -> float:
    return 0.0 if abs(value) < _UNBIASED else value


def _scalar_bias(planned: QuantizedScheme) -> float:
    step = planned._cells.step
    points = planned._codebook.points(np.arange(planned._codebook.letters))[:, 0]
    total = 0.0
    dithers = (np.arange(256) + 0.5) / 256 - 0.5
    for dither in dithers:
        chances = np.exp(log_channel(planned, float(dither))[-1])  # the row of x = 1
        total += float(chances @ points) - dither * step * planned.is_subtractive
    return total / len(dithers) - float(INPUTS[-1])


def _simulated_bias(planned: Scheme) -> float:
    edge = np.zeros((_DRAWS, planned.dimension))
    edge[:, 0] = 1.0
    shared, private = SharedStream(_TEST_KEY), PrivateStream.reproducible(_TEST_KEY)
    symbols = planned._to_symbols(edge, 0, shared, private).values
    errors = planned._to_samples(symbols, 0, shared)[:, 0] - 1.0
    bias, uncertainty = float(errors.mean()), float(errors.std()) / math.sqrt(_DRAWS)
    return bias if abs(bias) > 4.0 * uncertainty else 0.0  # what the draws cannot tell from 0 is 0
