"""``response``: dither, quantize to K levels, then a private channel. Fixed rate, least error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.channel import MAX_LETTERS, Channel
from jopeq.channel_response import best_response, randomized_response
from jopeq.codebook import letters_for_rate
from jopeq.kernels.recipe import Chances, Recipe
from jopeq.lattice import unit_dither
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes.base import Symbols
from jopeq.schemes.channelled import ChannelScheme
from jopeq.schemes.unit_ball import into_unit_ball

Array = NDArray[np.float64]

CHANNELS = ("best", "randomized", "optimal")


@dataclass(frozen=True, kw_only=True)
class Response(ChannelScheme):
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

    channel: str = "best"
    levels: int | None = None

    def _check_channel(self) -> None:
        letters = min(letters_for_rate(self.rate, 1), MAX_LETTERS)
        if self.channel not in CHANNELS:
            raise ValueError(f"channel must be one of {', '.join(CHANNELS)}, got {self.channel!r}")
        if self.levels is None:
            return
        if self.channel == "optimal":
            raise ValueError("levels belongs to channel='randomized'")
        if not 2 <= self.levels <= letters:
            raise ValueError(
                f"levels must be 2…{letters} at rate {self.rate}, got {self.levels}: "
                "raise rate or lower levels"
            )

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

    @cached_property
    def _recipe(self) -> Recipe:
        channel = self._channel
        values = np.array(channel.values)
        return Recipe(Chances(channel.thresholds, values, channel.spacing))

    def _unit_dither(self, first: int, count: int, shared: SharedStream) -> Array:
        return unit_dither(shared.words16(lane=0, start=first, count=count))

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
