"""The likelihood of a payload, given a gradient: the objective of an adaptive attacker.

The server knows the scheme, the seed and the scale, hence for every entry the interval of values
(or the column of the channel) that the received letter stands for. −log P(letter | gradient),
summed over entries, is all that a payload says about the gradient: no attack can match more.

| scheme | −log P of an entry x (scaled, clipped as the client clips it) |
|---|---|
| none | squared distance to what was received |
| sdq, jopeq without noise | 0 inside the letter's cell, rising quadratically outside |
| jopeq, laplace+sdq (scalar, fixed rate) | of the cell, under the Laplace law around x |
| laplace | of the Laplace density, rounded at its tip so that it can be differentiated |
| response | of the channel's row, linear between the levels so that it can be differentiated |
| others (lattices, other laws, …) | squared distance over the error's variance |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.errors import PayloadError
from jopeq.lattice.codebook import unit_dither
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Laplace
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Opened
from jopeq.sphere import Round
from jopeq.wire.coders import Packing

Array = NDArray[np.float64]

_TIP = 0.05  # of the Laplace scale: where its density is rounded
_EXACT = 1e-3  # of the entries' size: how exactly a gradient sent as it is need be matched
_NOTHING = "an all-zero gradient tells nothing: there is nothing to attack"


@dataclass(frozen=True, eq=False)
class Likelihood:
    """−log P of some payloads of one scheme, one row each, differentiable in the gradients.

    ``low`` and ``high`` are the ends of each entry's interval in scaled units (both the received
    value where there is none), ``unit`` what one scaled unit is worth.
    """

    kind: str
    is_clipped: bool
    width: torch.Tensor  # (N, 1): deviation of the error, or the scale of the Laplace law
    unit: torch.Tensor  # (N, d) or (N, 1)
    low: torch.Tensor
    high: torch.Tensor
    places: torch.Tensor | None = None  # response: dither in units of the step
    letters: torch.Tensor | None = None
    channel: torch.Tensor | None = None  # response: P(letter | level), (levels, letters)

    def __call__(self, gradients: torch.Tensor) -> torch.Tensor:
        """(N,): nats per entry, up to a constant."""
        scaled = gradients / self.unit
        if self.is_clipped:
            scaled = scaled.clamp(-1.0, 1.0)
        if self.kind == "channel":
            return self._by_channel(scaled).mean(1)
        if self.kind == "laplace-cells":
            return -_log_laplace_between(
                (self.low - scaled) / self.width, (self.high - scaled) / self.width
            ).mean(1)
        if self.kind == "laplace":
            off = (scaled - self.low) / self.width
            return (torch.sqrt(off.square() + _TIP**2) - _TIP).mean(1)
        below, above = (self.low - scaled).clamp(min=0), (scaled - self.high).clamp(min=0)
        return 0.5 * ((below + above) / self.width).square().mean(1)

    def _by_channel(self, scaled: torch.Tensor) -> torch.Tensor:
        if self.places is None or self.letters is None or self.channel is None:
            raise TypeError("a channel has places, letters and probabilities")
        levels = len(self.channel)
        place = scaled * (0.5 * (levels - 1)) + self.places + 0.5 * (levels - 1)
        place = place.clamp(0.0, levels - 1.0)
        left = place.detach().floor().clamp(max=levels - 2).long()
        weight = place - left
        at_left = self.channel[left, self.letters]
        at_right = self.channel[left + 1, self.letters]
        return -torch.log((1.0 - weight) * at_left + weight * at_right)

    def as_if_gaussian(self) -> Likelihood | None:
        """The likelihood with Gaussian noise of equal variance, where that is another law.

        Far from the truth its slope still points there, while that of a channel is flat.
        """
        if self.kind == "channel":
            return replace(self, kind="squares")
        if self.kind.startswith("laplace"):
            kind = "squares" if self.kind == "laplace" else "cells"
            return replace(self, kind=kind, width=math.sqrt(2.0) * self.width)
        return None

    def select(self, rows: torch.Tensor) -> Likelihood:
        """The likelihood of these rows alone."""
        changes: dict[str, Any] = {name: one[rows] for name, one in self._tensors()}
        return replace(self, **{**changes, "channel": self.channel})

    def to(self, device: torch.device, dtype: torch.dtype) -> Likelihood:
        """Move to a device, floats in this precision."""
        changes: dict[str, Any] = {
            name: one.to(device, dtype if one.is_floating_point() else one.dtype)
            for name, one in self._tensors()
        }
        return replace(self, **changes)

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, one) for name, one in vars(self).items() if isinstance(one, torch.Tensor)]


def likelihood(schemes: Sequence[Scheme | Round], payloads: Sequence[bytes]) -> Likelihood:
    """The likelihood of payloads, one scheme for each; of reports, the round of each.

    Schemes of one kind can be joined, such as ``jopeq`` at several ε.
    """
    pairs = zip(schemes, payloads, strict=True)
    parts = [_of_payload(scheme, payload) for scheme, payload in pairs]
    first, alike = parts[0], set()
    for part in parts:
        channel = None if part.channel is None else part.channel.numpy().tobytes()
        alike.add((part.kind, part.is_clipped, channel))
    if len(alike) > 1:
        raise ValueError("these schemes are of different kinds: attack them one after another")
    stacked: dict[str, Any] = {
        name: torch.stack([getattr(part, name) for part in parts])
        for name, _ in first._tensors()
        if name != "channel"
    }
    return replace(first, **stacked)


def decode_report(terms: Round, report: bytes) -> Array:
    """The server's view of client 0 alone: the mean of a round with one report."""
    total = terms.aggregator()
    if not total.add(report, client=0):
        raise PayloadError("this is no report of the round")
    return total.mean()


def _of_payload(scheme: Scheme | Round, payload: bytes) -> Likelihood:
    if isinstance(scheme, Round):
        row = torch.from_numpy(decode_report(scheme, payload) / scheme.scale.unit)
        deviation = math.sqrt(scheme.plan.error(0.0) / scheme.dimension)
        clip = torch.tensor([scheme.scale.unit], dtype=torch.float64)
        return _row("squares", deviation, low=row, high=row, is_clipped=False, unit=clip)
    opened, codec = scheme.open(payload), scheme.codec
    header, scales = opened.header, opened.scales
    if any(scale.mean for scale in scales):
        raise ValueError("the adaptive attack does not know center=True: drop center")
    flat = opened.decode()
    units = np.ones(len(header.sizes))
    if scales:  # one for each tensor, or one for all
        units[:] = [scale.unit for scale in scales]
    unit = np.repeat(units, header.sizes) if len(set(units)) > 1 else units[:1]
    if not np.all(unit > 0):
        raise PayloadError(_NOTHING)
    received = flat.astype(np.float64) / unit
    common: dict[str, Any] = {
        "is_clipped": scheme.guarantee.nominal is not None and scheme.guarantee.unit == "sample",
        "unit": torch.from_numpy(unit),
    }
    ends = {"low": torch.from_numpy(received), "high": torch.from_numpy(received)}
    if not codec.is_scaled:
        deviation = _EXACT * float(np.sqrt(np.square(received).mean()))
        if deviation == 0.0:
            raise PayloadError(_NOTHING)
        return _row("squares", deviation, **ends, **common)
    is_plain = scheme.dimension == 1
    if is_plain and not codec.has_dither and isinstance(codec.noise, Laplace):
        return _row("laplace", codec.noise.scale, **ends, **common)
    if is_plain and codec.has_dither and codec.channel is not None:
        channel = codec.channel
        dither = unit_dither(opened.shared.words16(lane=0, start=0, count=sum(header.sizes)))
        return _row(
            "channel",
            math.sqrt(scheme.distortion),
            places=torch.from_numpy(dither),
            letters=torch.from_numpy(_letters(scheme, opened).astype(np.int64)),
            channel=torch.from_numpy(np.array(channel.probabilities, dtype=np.float64)),
            **ends,
            **common,
        )
    is_laplace = isinstance(codec.noise, Laplace)
    if is_plain and codec.is_subtractive and codec.cells and (is_laplace or not codec.noise):
        low, high = _ends(scheme, codec.cells, opened, received)
        ends = {"low": torch.from_numpy(low), "high": torch.from_numpy(high)}
        if isinstance(codec.noise, Laplace):
            return _row("laplace-cells", codec.noise.scale, **ends, **common)
        return _row("cells", math.sqrt(codec.cells.second_moment), **ends, **common)
    deviation = math.sqrt(max(scheme.distortion, 1e-12))
    return _row("squares", deviation, **ends, **common)


def _row(kind: str, width: float, **others: Any) -> Likelihood:
    return Likelihood(kind, width=torch.tensor([width], dtype=torch.float64), **others)


def _letters(scheme: Scheme, opened: Opened) -> NDArray[Any]:
    """The letters of a scalar scheme, one per entry."""
    count, coder = sum(opened.sizes), scheme.codec.coder
    letters = []
    for first in range(0, count, coder.chunk):
        some = min(coder.chunk, count - first)
        values = coder.decode(opened.body, first, some)
        letters.append(np.asarray(values).reshape(some, -1)[:, 0])
    return np.concatenate(letters)


def _ends(scheme: Scheme, cells: Lattice, opened: Opened, received: Array) -> tuple[Array, Array]:
    """The values of x + n that give each letter; the outermost letters take all beyond them."""
    half = 0.5 * cells.step
    low, high = received - half, received + half
    codebook = scheme.codec.codebook
    if isinstance(scheme.codec.coder, Packing) and codebook is not None:
        points = codebook.points(np.arange(codebook.letters))[:, 0]
        letters = _letters(scheme, opened)
        low[points[letters] == points.min()] = -np.inf
        high[points[letters] == points.max()] = np.inf
    return low, high


def _log_laplace_between(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """log P(low < n < high) of the Laplace law of scale 1, precise and smooth in the tails."""
    flips = low + high > 0  # mirrored, so that the nearer end is ``high`` < 0 in the tail
    near = torch.where(flips, -low, high)
    far = torch.where(flips, -high, low)
    width = (near - far).clamp(max=60.0)  # what is further away has no weight; keeps inf out
    in_tail = near <= 0
    tail = near.clamp(max=0.0) - math.log(2.0) + torch.log1p(-torch.exp(-width))
    inside_near, inside_far = near.clamp(min=0.0, max=60.0), far.clamp(min=-60.0, max=0.0)
    mass = -0.5 * (torch.expm1(-inside_near) + torch.expm1(inside_far))
    middle = torch.log(torch.where(in_tail, torch.ones_like(mass), mass))
    return torch.where(in_tail, tail, middle)
