"""A public clip that follows a quantile of the clients' updates, at one private bit a round.

Andrew, Thakkar, McMahan and Ramaswamy 2021, "Differentially private learning with adaptive
clipping", with local randomized response in place of noise added by a trusted server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from jopeq.privacy.accounting import check_count
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.rational import log_ceiling
from jopeq.random.streams import PrivateStream, private_stream
from jopeq.wire.entries import Entries, Limits

_WORDS = 1 << 32
_LANE = 0x434C4950  # "CLIP": no scheme draws noise there
_LARGEST_STEP = math.log(2.0)
_CLIP_RANGE = (1e-30, 1e30)


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """Clients say whether their spread is within the clip; the server moves the clip.

        bit    1 if spread·‖h‖/√M ≤ clip, else 0, flipped with probability T/2³²
        clip ← clip · exp(−learning_rate · (b̄ − quantile))

    M = ⌈d/L⌉ is the number of samples, so that at ``quantile=0.5`` the clip settles where half the
    clients would have scaled by less. T = ⌈2³²/(1+e^ε)⌉ is rounded to the private side, and b̄ is
    the mean of the bits with the flips taken out. One step at most doubles or halves the clip.

    The bit is ε-private against the server, who sees the bit. Charge it beside the update, before
    the bit is drawn (``Guarantee.together_with``, ``Ledger.charge``).

    >>> adaptive = AdaptiveClip(epsilon=1.0)
    >>> print(adaptive.guarantee)
    ε = 1 per update against the server, who knows payload, dither, scale and scheme.
    >>> bits = [adaptive.bit(np.full(100, 0.01), clip=0.1) for _ in range(50)]
    >>> adaptive.updated(0.1, bits) < 0.11
    True
    """

    epsilon: float = 1.0
    quantile: float = 0.5
    learning_rate: float = 0.2
    spread: float = 3.0

    def __post_init__(self) -> None:
        for name in ("epsilon", "learning_rate", "spread"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0.0 < float(value) < math.inf):
                raise ValueError(f"{name} must be a positive finite number, got {value!r}")
        if not (isinstance(self.quantile, Real) and 0.0 < float(self.quantile) < 1.0):
            raise ValueError(f"quantile must lie between 0 and 1, got {self.quantile!r}")
        if 2 * self.threshold >= _WORDS:
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small for 32 random bits, the bit would be a "
                "fair coin: raise it above 1e-9, or keep the clip fixed"
            )

    @cached_property
    def threshold(self) -> int:
        """T: of 2³² words, how many flip the bit. The smallest with ln((2³²−T)/T) ≤ ε."""
        small = math.exp(-self.epsilon)
        threshold = max(1, math.floor(_WORDS * small / (1.0 + small)))
        while threshold < _WORDS // 2 and _epsilon_of(threshold) > self.epsilon:
            threshold += 1
        return threshold

    @property
    def guarantee(self) -> Guarantee:
        """ε of the one bit that a client sends per update; both inputs attain it."""
        return Guarantee(
            epsilon=_epsilon_of(self.threshold), nominal=self.epsilon, unit="update", is_exact=True
        )

    def bit(
        self, update: Any, clip: float, dimension: int = 1, noise: PrivateStream | None = None
    ) -> int:
        """The client's side. ``update`` is an array, or a mapping of them; ``dimension`` is L.

        No float is refused, since the server would see the refusal: NaN counts as 0, infinity and
        entries beyond float32 count as the largest float32, which exceeds every clip.
        ``noise`` fixes the flip: for tests only, since a repeated flip is not private.
        """
        check_clip(clip)
        check_count("dimension", dimension, 1)
        is_state = isinstance(update, Mapping)
        entries = Entries.of_state(update) if is_state else Entries.of_update(update)
        # An app may have called np.seterr(all="raise"): an error would tell about the update.
        with np.errstate(all="ignore"):
            entries.screen(Limits())
            is_within = self._is_within(entries, clip, dimension)
        word = int(private_stream(noise).words32(lane=_LANE, start=0, count=1)[0])
        return int(is_within) ^ int(word < self.threshold)

    def _is_within(self, entries: Entries, clip: float, dimension: int) -> bool:
        samples = -(-entries.count // dimension)
        if samples == 0:
            return True
        energy = math.fsum(
            float(np.square(chunk).sum())
            for tensor in range(len(entries.tensors))
            for chunk in entries.chunks(tensor)
        )
        return self.spread * math.sqrt(energy / samples) <= clip

    def updated(self, clip: float, bits: Iterable[int]) -> float:
        """The server's side: the clip of the next round. Without any bits it stays.

        b̄ = (mean − f)/(1 − 2f) with f = T/2³² has the mean of the true bits. By chance b̄ may leave
        [0, 1]; cutting it there would shift the quantile.
        """
        check_clip(clip)
        votes = list(bits)
        for vote in votes:
            if vote not in (0, 1):
                raise ValueError(f"bits must be 0 or 1, got {vote!r}: drop garbled bits")
        if not votes:
            return clip
        flip = self.threshold / _WORDS
        mean = (sum(map(int, votes)) / len(votes) - flip) / (1.0 - 2.0 * flip)
        step = -self.learning_rate * (mean - self.quantile)
        moved = clip * math.exp(min(max(step, -_LARGEST_STEP), _LARGEST_STEP))
        return min(max(moved, _CLIP_RANGE[0]), _CLIP_RANGE[1])


def _epsilon_of(threshold: int) -> float:
    return log_ceiling(Fraction(_WORDS - threshold, threshold))


def check_clip(clip: float) -> None:
    """Raise ``ValueError`` unless an adaptive clip may take this value."""
    if not _CLIP_RANGE[0] <= clip <= _CLIP_RANGE[1]:
        low, high = _CLIP_RANGE
        raise ValueError(f"clip must be a number from {low:g} to {high:g}, got {clip!r}")
