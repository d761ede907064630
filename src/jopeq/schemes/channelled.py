"""What ``response`` and ``mvu`` share: a private channel between quantizer and wire."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.channel.channel import MAX_LETTERS, Channel
from jopeq.channel.response import best_response, randomized_response
from jopeq.kernels.recipe import Chances, Recipe
from jopeq.lattice.codebook import letters_for_rate
from jopeq.lattice.lattices import unit_dither
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols, into_unit_ball, scaling_assumptions
from jopeq.wire.coders import Coder, LetterCoder
from jopeq.wire.packing import Packing

# What ``response`` and ``mvu`` share: a private channel between quantizer and wire


@dataclass(frozen=True, kw_only=True)
class ChannelScheme(Scheme):
    """ε-LDP per entry by a channel with integer probabilities.

    Both ends must hold the same channel, so the scheme's specification carries its fingerprint.
    """

    epsilon: float
    rate: float
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        self._check_channel()
        found = self._channel.fingerprint.hex()
        if self.fingerprint is not None and self.fingerprint != found:
            raise ValueError(
                f"the channel for epsilon={self.epsilon}, rate={self.rate} is {found} here, not "
                f"{self.fingerprint}: use the same jopeq and SciPy versions on both ends, or "
                "scheme='response' with channel='randomized', which never differs"
            )
        object.__setattr__(self, "fingerprint", found)

    @abstractmethod
    def _check_channel(self) -> None:
        """Raise unless the parameters name a channel."""

    @property
    @abstractmethod
    def _channel(self) -> Channel: ...

    @property
    def guarantee(self) -> Guarantee:
        """The ε of the channel's integers; for every dither some pair of inputs attains it."""
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


# ``mvu``: the minimum variance unbiased mechanism, the paper's discrete baseline


Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MinimumVarianceUnbiased(ChannelScheme):
    """Chaudhuri, Guo and Rabbat (2022): stochastic rounding to 2^b points, then a channel.

    Rounding up or down happens with private bits, so nothing is shared with the server, and each
    input's law is a mixture of two rows of the channel, whose ε bounds it. P and the decoder
    minimise the variance subject to unbiasedness and ε-LDP, solved from the definition.

    >>> scheme = MinimumVarianceUnbiased(epsilon=4.0, rate=1.0)
    >>> round(scheme.distortion, 2), scheme.guarantee.epsilon <= 4.0
    (1.08, True)
    """

    name: ClassVar[str] = "mvu"
    has_dither: ClassVar[bool] = False

    def _check_channel(self) -> None:
        if self.rate not in (1.0, 2.0, 3.0, 4.0, 5.0):
            raise ValueError(f"rate must be 1, 2, 3, 4 or 5 bits for 'mvu', got {self.rate}")

    @cached_property
    def _channel(self) -> Channel:
        from jopeq.channel.design import mvu_channel

        return mvu_channel(self.epsilon, int(self.rate))

    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols:
        inside, clipped = into_unit_ball(samples)
        count, levels = len(samples), self._channel.levels
        place = (inside[:, 0] + 1.0) * (0.5 * (levels - 1))
        chance = (private.words32(lane=1, start=first, count=count) + 0.5) * 2.0**-32
        j = np.minimum(np.floor(place + chance), levels - 1).astype(np.int64)
        words = private.words32(lane=0, start=first, count=count)
        return Symbols(self._channel.sample(j, words), clipped)

    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return np.asarray(np.array(self._channel.values)[symbols])[:, None]


# ``response``: dither, quantize to K levels, then a private channel. Fixed rate, least error


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
        from jopeq.channel.design import best_channel, optimal_channel

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
