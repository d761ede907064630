"""The unit ball that privacy is proven for: what its scale tells, and the errors within it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jopeq.random import portable
from jopeq.random.portable import squares
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array, Codec

_DRAWS, _FEW = 1 << 16, 1 << 13
_TEST_KEY = b"jopeq: planning with fixed draws"
_UNBIASED = 1e-6


def scaling_assumptions(scheme: Scheme) -> tuple[str, ...]:
    """What must not be private because the scale of an update gives it away."""
    if scheme.clip is not None:
        return ()
    whose = "every tensor's" if scheme.per == "tensor" else "the update's"
    if scheme.center:
        return (f"{whose} norm and mean may be known: they travel in the clear",)
    return (f"{whose} norm may be known: it travels in the clear",)


def simulate_bias(codec: Codec[Any]) -> float:
    """E[decoded] − x at the edge of the ball over fixed draws; 0 if the draws cannot tell."""
    edge = np.zeros((_DRAWS, codec.dimension))
    edge[:, 0] = 1.0
    shared, private = SharedStream(_TEST_KEY), PrivateStream.reproducible(_TEST_KEY)
    letters = codec.to_letters(edge, 0, shared, private).values
    errors = codec.to_samples(letters, 0, shared)[:, 0] - 1.0
    bias, uncertainty = float(errors.mean()), float(errors.std()) / math.sqrt(_DRAWS)
    return bias if abs(bias) > 4.0 * uncertainty else 0.0


def simulate_errors(codec: Codec[Any], norms: Array) -> tuple[Array, Array]:
    """``Codec.errors_at`` in random directions, over fixed draws.

    A mean error that the draws cannot tell from 0 counts as 0.
    """
    shared, private = SharedStream(_TEST_KEY), PrivateStream.reproducible(_TEST_KEY)
    ways = portable.normal(PrivateStream.reproducible(_TEST_KEY[::-1]), 0, _FEW * codec.dimension)
    ways = ways.reshape(_FEW, codec.dimension)
    ways /= np.sqrt(squares(ways))[:, None]
    means, energies = np.empty((2, len(norms)))
    for place, norm in enumerate(norms.tolist()):
        first = place * _FEW  # fresh draws for each norm: a mean over norms has more of them
        letters = codec.to_letters(norm * ways, first, shared, private).values
        errors = codec.to_samples(letters, first, shared) - norm * ways
        outwards = (errors * ways).sum(axis=1)
        uncertainty = float(outwards.std()) / math.sqrt(_FEW)
        means[place] = outwards.mean() if abs(outwards.mean()) > 4.0 * uncertainty else 0.0
        energies[place] = np.square(errors).mean()
    return means, energies


def or_zero(bias: float) -> float:
    """A computed bias without its rounding errors."""
    return 0.0 if abs(bias) < _UNBIASED else bias
