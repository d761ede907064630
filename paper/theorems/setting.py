"""Sizes and random streams of the experiments on the theorems, and the slope of a curve."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from jopeq.entries.quantized import QuantizedScheme
from jopeq.random.streams import PrivateStream, derive

_KEY = b"jopeq: experiments on theorems.."
_LETTERS = 1 << 18
S = TypeVar("S", bound=QuantizedScheme)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The size of each experiment; ``results/theory.json`` keeps it with the numbers."""

    samples: int = 1 << 17  # of each error law
    map_epsilons: int = 46
    map_letters: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)  # fmt: skip  # noqa: E501
    clients: int = 1000  # K of Theorem III.4, at most
    trials: int = 12
    rounds: int = 1200  # of Theorem III.5
    seeds: int = 4


def seed(label: str, *numbers: int) -> bytes:
    """32 bytes from a label and some numbers: an experiment draws the same every time."""
    return derive(_KEY, label.encode(), struct.pack(f"<{len(numbers)}q", *numbers))


def noise(label: str, *numbers: int) -> PrivateStream:
    """A reproducible stream for the noise of an experiment; never the one of its dither."""
    return PrivateStream.reproducible(seed(f"{label}: noise", *numbers))


def without_overload(scheme: S) -> S:
    """A scheme with the same cells and enough letters, one at 0, to overload no sample.

    >>> from jopeq import JoPEQ
    >>> wide = without_overload(JoPEQ(epsilon=4.0, rate=1.0))
    >>> wide.codebook.letters, round(wide.cells.step, 9)
    (262143, 2.25)
    """
    size = scheme.dimension
    gamma = scheme.codebook.gamma * ((_LETTERS - 1) / scheme.codebook.letters) ** (1 / size)
    return replace(scheme, rate=math.log2(_LETTERS) / size, gamma=gamma, levels="odd")


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent of the power law through the points, by least squares in logarithms.

    >>> round(slope([1, 10, 100], [8.0, 0.8, 0.08]), 12)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
