"""``clip="layers"``: a public clip for every tensor, which follows the tensor's own updates.

The server sees decoded updates, which are private already, and knows the variance that the scheme
adds to them. What is left is the size of the clients' entries, so moving the clips costs no ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from jopeq.checks import check_positive
from jopeq.errors import StateMismatchError
from jopeq.schemes.base import Scheme
from jopeq.schemes.model import wide
from jopeq.wire.entries import is_left_out

START = 0.05
"""The clip of all tensors before the first round, but for running statistics, which start at 1."""

_RANGE = (1e-30, 1e30)


@dataclass(frozen=True, kw_only=True)
class LayerClips:
    """The server's rule. Clients take the clips of each round from the server.

        e_k = mean of h̃²/c² over the tensor's entries − distortion      of client k
        c ← c·√ratio,  ratio = spread·√(median of e_k), from ¼ to 4

    h̃ is decoded, c the tensor's clip. A clip settles where it is ``spread`` times the entries' root
    mean square. One round at most doubles or halves it, and no single client can move it far.

    Parameters
    ----------
    spread : float, default 2.5
        What a clip is, in units of the entries' root mean square.
    """

    spread: float = 2.5

    def __post_init__(self) -> None:
        check_positive("spread", self.spread)

    def update(self, scheme: Scheme, updates: Iterable[Mapping[str, Any]]) -> Scheme:
        """The scheme of the next round, from decoded updates of all clients or some, or of none."""
        energies: dict[str, list[float]] = {}
        for update in updates:
            for name, values in update.items():
                if is_left_out(values):
                    continue
                entries = wide(values)
                if entries.size:
                    energies.setdefault(name, []).append(float(np.square(entries).mean()))
        if not energies:
            return scheme
        counts = {len(found) for found in energies.values()}
        if len(counts) > 1:
            raise StateMismatchError("updates must hold the same tensors: decode them alike")
        clips = dict(scheme.clips)
        for (name, found), scale in zip(
            energies.items(), scheme.codec.scaling.public(tuple(energies)), strict=True
        ):
            rest = median(found) / scale.unit**2 - scheme.distortion
            ratio = min(max(self.spread * math.sqrt(max(rest, 0.0)), 0.25), 4.0)
            clips[name] = min(max(scale.unit * math.sqrt(ratio), _RANGE[0]), _RANGE[1])
        return scheme.with_clips(clips)


def check_clip(clip: float) -> None:
    """Raise ``ValueError`` unless a clip that the server sends may take this value."""
    low, high = _RANGE
    if not low <= clip <= high:
        raise ValueError(f"clip must be a number from {low:g} to {high:g}, got {clip!r}")
