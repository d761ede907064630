"""Scales map an update into the unit ball: by its own norm (the paper's ζ), or a public clip.

A scale, ζ⁻¹, is the length of one scaled unit in the update's units; payloads carry it as float32.
Running statistics of normalisation layers, which move far more than weights, have the public scale
1 in the coordinates of ``jopeq.state_update``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_positive
from jopeq.errors import UpdateError
from jopeq.wire.entries import LARGEST, Entries, Limits, overlaps

Array = NDArray[np.float64]

PER = ("update", "tensor", "layers")
MEANS, VARIANCES = ("running_mean", "moving_mean"), ("running_var", "moving_variance")
_STATISTICS = (*MEANS, *VARIANCES)
LARGEST_SCALE = 1e34  # leaves room for noise in the decoded float32
_INFINITE = np.float32(np.inf)


class Scale(NamedTuple):
    """scaled = (entry − mean) / unit. A unit of 0 (an all-zero update) scales everything to 0."""

    unit: float
    mean: float = 0.0

    @property
    def inverse(self) -> float:
        """ζ: a product per entry is cheaper than a division, on every backend."""
        return 1.0 / self.unit if self.unit else 0.0

    def apply(self, entries: Array) -> Array:
        scaled = entries - self.mean
        scaled *= self.inverse
        return scaled

    def undo(self, scaled: Array, out: Array | None = None) -> Array:
        entries = np.multiply(scaled, self.unit, out=out)
        entries += self.mean
        return entries


STATISTIC = Scale(1.0)
"""The scale of running statistics: a standard deviation, or a factor of e in the variance."""


def is_statistic(name: str) -> bool:
    """True if this is the name of a running mean or variance of a normalisation layer."""
    return name.endswith(_STATISTICS)


def group_tensors(names: tuple[str, ...], per: str) -> list[list[int]]:
    """Group the tensors that share a measured or public scale."""
    if per == "layers":
        return [[i] for i in range(len(names))]
    weights = [i for i, name in enumerate(names) if not is_statistic(name)]
    return [[i] for i in weights] if per == "tensor" else [weights]


_group_own_tensors = lru_cache(maxsize=16)(group_tensors)  # the same names every round


@dataclass(frozen=True)
class Scaling:
    """The rule for scales: ``clip`` fixes the unit, otherwise unit = spread·‖h‖/√M (paper, III-A).

    M = ⌈d/L⌉ is the number of samples. ``per="layers"`` takes the public ``clips`` by name, with
    ``clip`` as default; the payload repeats them. ``center`` removes the mean and sends it.
    """

    clip: float | None = None
    spread: float = 3.0
    per: str = "update"
    center: bool = False
    clips: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for clip in (*(() if self.clip is None else (self.clip,)), *self.clips.values()):
            if not 1e-37 < clip <= LARGEST_SCALE:
                raise ValueError(
                    f"clip must be above 1e-37 and at most {LARGEST_SCALE:g}, got {clip}: "
                    "leave it out to scale by the update's norm"
                )
        if self.per == "layers" and self.clip is None:
            raise ValueError("per='layers' needs clip, the public clip that all tensors start from")
        check_positive("spread", self.spread)
        if self.per not in PER:
            raise ValueError(f"per must be one of {', '.join(PER)}, got {self.per!r}")
        if self.clip is not None and self.center:
            raise ValueError(
                "center=True sends the update's mean in the clear, which a public clip is meant "
                "to avoid: drop center or clip"
            )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The parts of an update that a guarantee does not cover: its scale gives them away."""
        if self.clip is not None:
            return ()
        whose = "every tensor's" if self.per == "tensor" else "the update's"
        if self.center:
            return (f"{whose} norm and mean may be known: they travel in the clear",)
        return (f"{whose} norm may be known: it travels in the clear",)

    @cached_property
    def is_sent(self) -> bool:
        """True if the payload carries scales."""
        return self.clip is None or self.per == "layers"

    def count(self, names: tuple[str, ...]) -> int:
        """How many scales these tensors have, running statistics aside."""
        return 1 if self.per == "update" else len(group_tensors(names, self.per))

    def of_tensors(self, names: tuple[str, ...], scales: Sequence[Scale]) -> list[Scale]:
        """One scale per tensor from those of the groups."""
        result = [STATISTIC] * len(names)
        for scale, group in zip(scales, group_tensors(names, self.per), strict=True):
            for i in group:
                result[i] = scale
        return result

    def limits(self, dimension: int) -> Limits:
        """Replacements for invalid entries, independent of the update, that bound its scale.

        With a clip, the clip. Otherwise no entry may exceed B = 10³⁴/(4·max(1, spread)·√L): then
        |mean| ≤ B, |entry − mean| ≤ 2B, and the unit spread·√(Σ (entry − mean)²/M) is at most
        2·spread·√L·B, half of ``LARGEST_SCALE``.
        """
        if self.clip is not None:
            return Limits(LARGEST, float(np.float32(max((self.clip, *self.clips.values())))))
        bound = LARGEST_SCALE / (4.0 * max(1.0, self.spread) * math.sqrt(dimension))
        bound = float(np.float32(bound))
        return Limits(bound, bound)

    def measure(self, entries: Entries, dimension: int, energies: list[list[float]]) -> list[Scale]:
        """Measure one scale per group; ``energies`` are Σ entry² of the chunks of each tensor."""
        if self.clip is not None:
            return self.public(entries.names)
        scales = []
        for group in _group_own_tensors(entries.names, self.per):
            count, mean = sum(map(entries.sizes.__getitem__, group)), 0.0
            parts: Iterable[list[float]] = map(energies.__getitem__, group)
            if self.center and count:
                total = math.fsum(value for i in group for value in entries.add_up(i))
                mean = float(np.float32(total / count))
                parts = [entries.add_up(i, mean) for i in group]
            energy = math.fsum(chain.from_iterable(parts))
            scales.append(self.scale(energy, mean, count, dimension) if count else Scale(0.0))
        return scales

    def public(self, names: tuple[str, ...]) -> list[Scale]:
        """The scales that a clip fixes, whatever the update is."""
        if self.clip is None:
            raise ValueError("the scale of norm scaling is known only from the update")
        if self.per != "layers":
            return [Scale(float(np.float32(self.clip)))] * self.count(names)
        starts = (STATISTIC.unit if is_statistic(name) else self.clip for name in names)
        clips = map(self.clips.get, names, starts)
        return [Scale(float(np.float32(clip))) for clip in clips if clip is not None]

    def scale(self, energy: float, mean: float, count: int, dimension: int) -> Scale:
        """The scale for ``count`` entries with this Σ (entry − mean)²."""
        samples = -(-count // dimension)
        unit = self.spread * math.sqrt(energy / samples)
        if unit <= LARGEST_SCALE:  # rounded up, so that rounding never enlarges a scaled entry
            nearest = np.float32(unit)
            unit = float(nearest if float(nearest) >= unit else np.nextafter(nearest, _INFINITE))
        if not max(unit, abs(mean)) <= LARGEST_SCALE:
            raise UpdateError(
                f"the update is too large to be scaled (unit {unit:.3g}, at most "
                f"{LARGEST_SCALE:g}): divide it by a constant before encoding"
            )
        return Scale(unit, mean)


def read_scaled(entries: Entries, scales: list[Scale], start: int, stop: int) -> Array:
    """Read and scale entries start…stop; callers silence NumPy."""
    pieces = []
    for tensor, piece in entries.read(start, stop):
        pieces.append(piece if len(scales) < 2 else scales[tensor].apply(piece))
    joined = pieces[0] if len(pieces) == 1 else np.concatenate((np.empty(0), *pieces))
    return scales[0].apply(joined) if len(scales) == 1 else joined


def unscale(values: Array, start: int, ends: list[int], scales: list[Scale]) -> None:
    """Convert scaled entries ``start``… to the update's units, in place."""
    if len(scales) == 1:
        scales[0].undo(values, out=values)
    elif scales:
        done = 0
        for tensor, low, high in overlaps(ends, start, start + len(values)):
            piece = slice(done, done + high - low)
            scales[tensor].undo(values[piece], out=values[piece])
            done = piece.stop
