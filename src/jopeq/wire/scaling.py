"""Scales map an update into the unit ball: by its own norm (the paper's ζ), or a public clip.

A scale, ζ⁻¹, is the length of one scaled unit in the update's units. It travels in the payload as a
float32. With norm scaling it tells the server the norm of the update; a public clip tells nothing.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import UpdateError
from jopeq.wire.entries import LARGEST, PLAIN_SUMS, Entries, Limits, Sums

Array = NDArray[np.float64]

PER = ("update", "tensor")
LARGEST_SCALE = 1e34  # leaves room for noise in the decoded float32
_FLOAT32 = struct.Struct("<f")


class Scale(NamedTuple):
    """scaled = (entry − mean) / unit. A unit of 0 (an all-zero update) scales everything to 0."""

    unit: float
    mean: float = 0.0

    @property
    def inverse(self) -> float:
        """ζ: one product an entry is cheaper than one division, on every backend."""
        return 1.0 / self.unit if self.unit else 0.0

    def apply(self, entries: Array) -> Array:
        return (entries - self.mean) * self.inverse

    def undo(self, scaled: Array) -> Array:
        return scaled * self.unit + self.mean


@dataclass(frozen=True)
class Scaling:
    """How scales are found. ``clip`` fixes the unit; otherwise unit = spread·‖h‖/√M (paper, III-A).

    M = ⌈d/L⌉ is the number of samples. ``per`` is "update" (one scale) or "tensor" (one each);
    ``center`` removes the mean first and sends it beside the scale.
    """

    clip: float | None = None
    spread: float = 3.0
    per: str = "update"
    center: bool = False

    def __post_init__(self) -> None:
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise ValueError(
                f"clip must be a positive number, got {self.clip}: "
                "leave it out to scale by the update's norm"
            )
        if self.clip is not None and not 1e-37 < self.clip <= LARGEST_SCALE:
            raise ValueError(f"clip must be between 1e-37 and {LARGEST_SCALE:g}, got {self.clip}")
        if not (math.isfinite(self.spread) and self.spread > 0):
            raise ValueError(f"spread must be a positive number, got {self.spread}")
        if self.per not in PER:
            raise ValueError(f"per must be 'update' or 'tensor', got {self.per!r}")
        if self.clip is not None and self.center:
            raise ValueError(
                "center=True sends the update's mean in the clear, which a public clip is meant "
                "to avoid: drop center or clip"
            )

    def is_sent(self) -> bool:
        """Whether the payload carries scales: a public clip is part of the scheme."""
        return self.clip is None

    def groups(self, tensors: int) -> list[list[int]]:
        """Which tensors share a scale."""
        return [[i] for i in range(tensors)] if self.per == "tensor" else [list(range(tensors))]

    def limits(self, dimension: int) -> Limits:
        """What replaces invalid entries, known without the update, so that no scale is too large.

        With a clip it is the clip. Else no entry may exceed B = 10³⁴/(4·max(1, spread)·√L): then
        |mean| ≤ B, |entry − mean| ≤ 2B, and the unit spread·√(Σ (entry − mean)²/M) is at most
        2·spread·√L·B, half of ``LARGEST_SCALE``.
        """
        if self.clip is not None:
            return Limits(LARGEST, self.public(1)[0].unit)
        bound = LARGEST_SCALE / (4.0 * max(1.0, self.spread) * math.sqrt(dimension))
        bound = float(np.float32(bound))
        return Limits(bound, bound)

    def measure(self, entries: Entries, dimension: int, sums: Sums = PLAIN_SUMS) -> list[Scale]:
        """One scale per group of tensors."""
        if self.clip is not None:
            return self.public(len(entries.tensors))
        groups = self.groups(len(entries.tensors))
        return [self._measure_group(entries, group, dimension, sums) for group in groups]

    def public(self, tensors: int) -> list[Scale]:
        """The scales of a fixed clip, known without the update."""
        if self.clip is None:
            raise ValueError("the scale of norm scaling is known only from the update")
        return [Scale(float(np.float32(self.clip)))] * len(self.groups(tensors))

    def _measure_group(
        self, entries: Entries, group: list[int], dimension: int, sums: Sums
    ) -> Scale:
        count = sum([entries.sizes[i] for i in group])
        if count == 0:
            return Scale(0.0)

        mean = 0.0
        if self.center:
            total = math.fsum(value for i in group for value in sums.chunk_sums(entries, i))
            mean = float(np.float32(total / count))
        energy = math.fsum([value for i in group for value in sums.chunk_sums(entries, i, mean)])
        return self.scale(energy, mean, count, dimension)

    def scale(self, energy: float, mean: float, count: int, dimension: int) -> Scale:
        """The scale of ``count`` entries with this Σ (entry − mean)²."""
        samples = -(-count // dimension)
        unit = self.spread * math.sqrt(energy / samples)
        if unit <= LARGEST_SCALE:
            unit = _float32_up(unit)
        if not max(unit, abs(mean)) <= LARGEST_SCALE:
            raise UpdateError(
                f"the update is too large to be scaled (unit {unit:.3g}, at most "
                f"{LARGEST_SCALE:g}): divide it by a constant before encoding"
            )
        return Scale(unit, mean)


def _float32_up(value: float) -> float:
    """The smallest float32 not below ``value``, so that rounding never enlarges a scaled entry."""
    packed = _FLOAT32.pack(value)
    (nearest,) = _FLOAT32.unpack(packed)
    if nearest >= value:
        return float(nearest)
    following = int.from_bytes(packed, "little") + 1  # the next float32 has the next bits
    return float(_FLOAT32.unpack(following.to_bytes(4, "little"))[0])
