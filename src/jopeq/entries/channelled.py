"""``response`` and ``mvu``: a private channel between quantizer and wire."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.channel.channel import MAX_LETTERS, Channel, best_response, randomized_response
from jopeq.kernels.recipe import Chances, Recipe
from jopeq.lattice.codebook import letters_for_rate, unit_dither
from jopeq.noise import into_unit_ball
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array, Codec, Letters
from jopeq.wire.coders import Packing


@dataclass(frozen=True, kw_only=True)
class ChannelScheme(Scheme):
    """ε-LDP per entry by a channel with integer probabilities.

    Both ends must hold the same channel; ``fingerprint`` names it in the specification.

    Parameters
    ----------
    epsilon : float
        Privacy asked for, per entry.
    rate : float
        R, bits per entry: at most 2 to the power R letters.
    """

    epsilon: float
    rate: float
    fingerprint: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fingerprint", self.finite_channel.fingerprint.hex())

    @property
    @abstractmethod
    def finite_channel(self) -> Channel:
        """The channel that draws each letter."""

    @property
    def guarantee(self) -> Guarantee:
        """The ε of the channel's integers; for every dither some pair of inputs attains it."""
        return Guarantee(
            epsilon=self.finite_channel.epsilon,
            nominal=self.epsilon,
            is_exact=True,
            assumptions=self.scaling.assumptions,
        )

    @property
    def distortion(self) -> float:
        return self.finite_channel.distortion(0.0)


class ChannelCodec(Codec[ChannelScheme]):
    """The channel draws a letter for each level."""

    channel: Channel

    def __init__(self, scheme: ChannelScheme) -> None:
        super().__init__(scheme)
        check_epsilon(scheme.epsilon)
        self.channel = scheme.finite_channel
        self._values: Array = np.array(self.channel.values)

    @cached_property
    def coder(self) -> Packing:
        return Packing(self.channel.letters)

    def distortion_for(self, sigma: float) -> float:
        return self.channel.gaussian_distortion(sigma)


@dataclass(frozen=True, kw_only=True)
class MinimumVarianceUnbiased(ChannelScheme):
    """The paper's discrete baseline: stochastic rounding to 2^b points, then a channel.

    The minimum variance unbiased mechanism of Chaudhuri, Guo and Rabbat (2022). Private bits round
    up or down, so nothing is shared with the server, and the law of each input is a mixture of two
    rows of the channel, whose ε bounds it. ``rate`` must be 1, 2, 3, 4 or 5.

    >>> scheme = MinimumVarianceUnbiased(epsilon=4.0, rate=1.0)
    >>> round(scheme.distortion, 2), scheme.guarantee.epsilon <= 4.0
    (1.08, True)
    """

    name: ClassVar[str] = "mvu"

    @cached_property
    def finite_channel(self) -> Channel:
        from jopeq.channel.mvu import mvu_channel

        if self.rate not in (1.0, 2.0, 3.0, 4.0, 5.0):
            raise ValueError(f"rate must be 1, 2, 3, 4 or 5 bits for 'mvu', got {self.rate}")
        return mvu_channel(self.epsilon, int(self.rate))

    codec = cached_property(lambda self: RoundingCodec(self))


class RoundingCodec(ChannelCodec):
    """Private bits round to a level."""

    has_dither: ClassVar[bool] = False

    def log_channel(self, dither: float, inputs: Array) -> Array:
        rows, top = self.channel.probabilities, self.channel.levels - 1
        place = inputs * (0.5 * top) + 0.5 * top
        low = np.minimum(np.floor(place).astype(int), top - 1)
        up = (place - low)[:, None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log((1 - up) * rows[low] + up * rows[low + 1]))

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        inside, clipped = into_unit_ball(samples)
        count, levels = len(samples), self.channel.levels
        place = (inside[:, 0] + 1.0) * (0.5 * (levels - 1))
        chance = (private.words32(lane=1, start=first, count=count) + 0.5) * 2.0**-32
        j = np.minimum(np.floor(place + chance), levels - 1).astype(np.int64)
        words = private.words32(lane=0, start=first, count=count)
        return Letters(self.channel.sample(j, words), clipped)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return np.take(self._values, letters)[:, None]


@dataclass(frozen=True, kw_only=True)
class Response(ChannelScheme):
    """Unbiased for every x in [−1, 1], exactly ε-LDP per entry against the server, ≤ R bits.

    Dithered quantization to K levels, then K-ary randomized response. The level
    j = ⌊(x + d)/Δ + K/2⌋ never overloads, since Δ = 2/(K−1). Letter l is drawn from row j of a
    channel with integer probabilities and decoded as v_l − d.

    >>> scheme = Response(epsilon=4.0, rate=2.0)
    >>> round(scheme.distortion, 3), scheme.guarantee.epsilon <= 4.0, scheme.bits_per_entry
    (0.09, True, 2.0)

    Parameters
    ----------
    levels : int, optional
        K, from 2 to 2 to the power R. The default minimises the error over Gaussian entries.
    """

    name: ClassVar[str] = "response"

    levels: int | None = None

    @cached_property
    def finite_channel(self) -> Channel:
        letters = min(letters_for_rate(self.rate, 1), MAX_LETTERS)
        if self.levels is None:
            return best_response(self.epsilon, letters)
        if not 2 <= self.levels <= letters:
            raise ValueError(
                f"levels must be 2…{letters} at rate {self.rate}, got {self.levels}: "
                "raise rate or lower levels"
            )
        return randomized_response(self.epsilon, self.levels)

    codec = cached_property(lambda self: DitheredChannelCodec(self))


class DitheredChannelCodec(ChannelCodec):
    """The dither rounds to a level."""

    def __init__(self, scheme: ChannelScheme) -> None:
        super().__init__(scheme)
        channel = self.channel
        self.recipe = Recipe(Chances(channel.thresholds, self._values, channel.spacing))

    def log_channel(self, dither: float, inputs: Array) -> Array:
        channel = self.channel
        place = inputs * (0.5 * (channel.levels - 1))
        levels = np.floor(place + (dither + 0.5 * channel.levels)).astype(int)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(channel.probabilities[levels]))

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        inside, clipped = into_unit_ball(samples)
        levels = self.channel.levels
        # exact at x = ±1, monotone between: j is 0…K−1 whatever the dither
        place = unit_dither(shared.words16(lane=0, start=first, count=len(samples)))
        place += 0.5 * levels
        place += inside[:, 0] * (0.5 * (levels - 1))
        words = private.words32(lane=0, start=first, count=len(samples))
        return Letters(self.channel.sample(place.astype(np.int64), words), clipped)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        dither = unit_dither(shared.words16(lane=0, start=first, count=len(letters)))
        dither *= self.channel.spacing
        return np.subtract(np.take(self._values, letters), dither, out=dither)[:, None]
