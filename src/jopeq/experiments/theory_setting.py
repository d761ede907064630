"""How much work the experiments on the theorems do, and where their randomness comes from."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from jopeq.randomness import PrivateStream, derive

_KEY = b"jopeq: experiments on theorems.."


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Sizes of the experiments; the names follow docs/theory.md."""

    samples: int  # of each error law
    map_epsilons: int
    map_letters: tuple[int, ...]
    clients: int  # K of Theorem III.4, at most
    trials: int
    rounds: int  # of Theorem III.5
    seeds: int


FULL = Effort(
    samples=1 << 17,
    map_epsilons=46,
    map_letters=(2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64),
    clients=1000,
    trials=12,
    rounds=1200,
    seeds=4,
)


def seed(label: str, *numbers: int) -> bytes:
    """32 bytes that follow from a label and some numbers: the same experiment every time."""
    return derive(_KEY, label.encode(), struct.pack(f"<{len(numbers)}q", *numbers))


def noise(label: str, *numbers: int) -> PrivateStream:
    """A private stream of an experiment, which need not be private."""
    return PrivateStream.reproducible(seed(f"{label}: noise", *numbers))
