"""``mvu``: the minimum variance unbiased mechanism, the paper's discrete baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.channel import Channel
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes.base import Symbols
from jopeq.schemes.channelled import ChannelScheme
from jopeq.schemes.unit_ball import into_unit_ball

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
        from jopeq.channel_design import mvu_channel

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
