"""The mean of a round, for strategies that average: added up without decoding any update whole.

Payloads that name the same arrays in the same order are added up in one pass. Any other layout
costs a pass of its own and no more memory, so that no client can make the server decode all models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
)
from numpy.typing import NDArray

from jopeq.errors import PayloadError
from jopeq.flower.decoding import DecodedArray
from jopeq.flower.payload import Values
from jopeq.schemes.aggregate import weighted_sum
from jopeq.schemes.base import Scheme
from jopeq.schemes.opened import Opened

_MEANS = [kind.aggregate_train for kind in (FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi)]
_TRANSPARENT = (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)


def averages(inner: Any) -> bool:
    """Whether a strategy reads the clients' arrays for their weighted mean alone.

    Only Flower's own code is known to: a strategy that replaces ``aggregate_train`` is not.
    """
    while type(inner) in _TRANSPARENT:
        inner = inner.strategy
    return getattr(inner.aggregate_train, "__func__", None) in _MEANS


class Mean(NamedTuple):
    """Σ share·update of a round, by name. An array that a client does not name did not change."""

    update: dict[str, NDArray[np.float64]]
    norms: list[float]  # of the updates
    shares: list[float]
    failed: dict[int, PayloadError]  # position of each bad payload; it may be in the sum in part

    def norm_to_clip(self, largest: float) -> float | None:
        """The norm of the mean without noise, over the largest that clips let through.

        Σ p‖u‖² − ‖ū‖² = (1 − Σp²)·v estimates the variance v of one update, of which ‖ū‖² holds
        Σp²·v: the rest is the norm of the mean without noise. None for one client: nothing tells
        noise from update.
        """
        concentration = math.fsum(share * share for share in self.shares)
        if concentration > 0.999 or not largest:
            return None
        energy = math.fsum(float(np.vdot(value, value)) for value in self.update.values())
        each = math.fsum(s * n * n for s, n in zip(self.shares, self.norms, strict=True))
        variance = (each - energy) / (1.0 - concentration)
        return math.sqrt(max(0.0, energy - concentration * variance)) / largest


def mean_of(opened: Sequence[Opened], weights: Sequence[float], scheme: Scheme) -> Mean:
    """The weighted mean of payloads that fit one model."""
    whole = math.fsum(weights)
    shares = [weight / whole for weight in weights]
    found = Mean({}, [0.0] * len(opened), shares, {})
    layouts: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(opened):
        layouts.setdefault(one.header.names, []).append(index)
    for names, places in layouts.items():
        first = opened[places[0]]
        parts = [opened[index] for index in places], [shares[index] for index in places]
        flat, norms, failed = weighted_sum(*parts, scheme)
        for index, norm in zip(places, norms, strict=True):
            found.norms[index] = norm
        found.failed.update({places[place]: error for place, error in failed.items()})
        ends = zip(names, first.header.shapes, first.sizes, accumulate(first.sizes), strict=True)
        for name, shape, size, end in ends:
            piece = flat[end - size : end].reshape(shape)
            found.update[name] = found.update[name] + piece if name in found.update else piece
    return found


def mean_array(mean: Values, times: float) -> DecodedArray:
    """An array of the mean model, for a strategy that averages the clients' arrays.

    Its first reading, which is the averaging, gives ``times`` the mean in one client's reply and a
    single 0 in the others': they average to the mean, without a pass over memory for each client.
    """
    mean.flags.writeable = False  # all replies share it
    wide = np.result_type(mean.dtype, np.float32)

    def share() -> Values:
        return np.multiply(mean, times, dtype=wide) if times else np.zeros((), wide)

    readings = iter((share,))
    return DecodedArray(lambda: next(readings, mean.view)(), mean)


def largest_norm(scheme: Scheme, opened: Opened) -> float:
    """The norm of an update all of whose samples lie at their clips."""
    if scheme.is_whole:
        return scheme.clip or 0.0
    sizes = (sum(opened.sizes),) if len(opened.scales) == 1 else opened.sizes
    samples = [-(-size // scheme.dimension) for size in sizes]
    energies = [n * scale.unit**2 for n, scale in zip(samples, opened.scales, strict=True)]
    return math.sqrt(math.fsum(energies))
