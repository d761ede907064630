"""``response``: dither, quantize to K levels, then a private channel. Fixed rate, least error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.channel import MAX_LETTERS, Channel, best_response, randomized_response
from jopeq.codebook import letters_for_rate
from jopeq.coders import Coder, LetterCoder
from jopeq.packing import Packing
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols
from jopeq.schemes.quantized import into_unit_ball, scaling_assumptions

Array = NDArray[np.float64]

CHANNELS = ("best", "randomized", "optimal")


@dataclass(frozen=True, kw_only=True)
class Response(Scheme):
    """Unbiased for every x in [−1, 1], exactly ε-LDP per entry against the server, ≤ R bits.

    j = ⌊(x + d)/Δ + K/2⌋ never overloads, since Δ = 2/(K−1); letter l is drawn from row j of a
    channel with integer probabilities; decoded v_l − d. ``channel`` is "randomized" (K-ary
    randomized response with the best K, or with ``levels`` of them), "optimal" (the linear
    programme's channel) or "best" (the optimal one where it gains more than 2%).

    >>> scheme = Response(epsilon=4.0, rate=2.0)
    >>> round(scheme.distortion, 3), scheme.guarantee.epsilon <= 4.0, scheme.bits_per_entry
    (0.09, True, 2.0)
    """

    name: ClassVar[str] = "response"

    epsilon: float
    rate: float
    channel: str = "best"
    levels: int | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        letters = letters_for_rate(self.rate, 1)
        if self.channel not in CHANNELS:
            raise ValueError(f"channel must be one of {', '.join(CHANNELS)}, got {self.channel!r}")
        if self.levels is not None:
            if self.channel == "optimal":
                raise ValueError("levels belongs to channel='randomized'")
            if not (isinstance(self.levels, int) and 2 <= self.levels <= letters):
                raise ValueError(
                    f"levels must be 2…{letters} at rate {self.rate}, got {self.levels!r}: "
                    "raise rate or lower levels"
                )
        # Both ends must hold the same channel, so the scheme's name carries its fingerprint.
        found = self._channel.fingerprint.hex()
        if self.fingerprint is not None and self.fingerprint != found:
            raise ValueError(
                f"the channel for epsilon={self.epsilon}, rate={self.rate} is {found} here, not "
                f"{self.fingerprint}: use the same jopeq version on both ends, or "
                "channel='randomized', which never differs"
            )
        object.__setattr__(self, "fingerprint", found)

    @cached_property
    def _channel(self) -> Channel:
        from jopeq.channel_design import best_channel, optimal_channel

        letters = min(letters_for_rate(self.rate, 1), MAX_LETTERS)
        if self.levels is not None:
            return randomized_response(self.epsilon, self.levels)
        if self.channel == "randomized":
            return best_response(self.epsilon, letters)
        if self.channel == "optimal":
            return optimal_channel(self.epsilon, letters)
        return best_channel(self.epsilon, letters)

    @property
    def guarantee(self) -> Guarantee:
        """See docs/guarantees.md, "response"."""
        return Guarantee(
            epsilon=self._channel.epsilon,
            nominal=self.epsilon,
            is_exact=True,
            assumptions=scaling_assumptions(self),
        )

    @property
    def distortion(self) -> float:
        return self._channel.distortion(0.0)

    def distortion_for(self, sigma: float) -> float:
        return self._channel.gaussian_distortion(sigma)

    @property
    def bits_per_entry(self) -> float:
        return Packing(self._channel.letters).bits_per_letter

    @property
    def _coder(self) -> Coder:
        return LetterCoder(self._channel.letters)

    def _unit_dither(self, first: int, count: int, shared: SharedStream) -> Array:
        """The dither in units of Δ: an odd multiple of 2⁻¹⁷ inside (−½, ½)."""
        words = shared.words16(lane=0, start=first, count=count)
        return (words.view(np.int16).astype(np.float64) + 0.5) * 2.0**-16

    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols:
        inside, clipped = into_unit_ball(samples)
        levels = self._channel.levels
        dither = self._unit_dither(first, len(samples), shared)
        # exact at x = ±1, monotone between: j is 0…K−1 whatever the dither
        j = np.floor(inside[:, 0] * (0.5 * (levels - 1)) + (dither + 0.5 * levels))
        words = private.words32(lane=0, start=first, count=len(samples))
        return Symbols(self._channel.sample(j.astype(np.int64), words), clipped)

    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array:
        values = np.array(self._channel.values)[symbols]
        dither = self._unit_dither(first, len(symbols), shared)
        return np.asarray(values - self._channel.spacing * dither)[:, None]
