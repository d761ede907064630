"""``mvu``: the minimum variance unbiased mechanism, the paper's discrete baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.channel import Channel
from jopeq.coders import Coder, LetterCoder
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols
from jopeq.schemes.quantized import into_unit_ball, scaling_assumptions

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MinimumVarianceUnbiased(Scheme):
    """Chaudhuri, Guo and Rabbat (2022): stochastic rounding to 2^b points, then a channel.

    Rounding up or down happens with private bits, so nothing is shared with the server; P and the
    decoder minimise the variance subject to unbiasedness and ε-LDP, solved from the definition.

    >>> scheme = MinimumVarianceUnbiased(epsilon=4.0, rate=1.0)
    >>> round(scheme.distortion, 2), scheme.guarantee.epsilon <= 4.0
    (1.08, True)
    """

    name: ClassVar[str] = "mvu"
    has_dither: ClassVar[bool] = False

    epsilon: float
    rate: float
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        if self.rate not in (1.0, 2.0, 3.0, 4.0, 5.0):
            raise ValueError(f"rate must be 1, 2, 3, 4 or 5 bits for 'mvu', got {self.rate}")
        found = self._channel.fingerprint.hex()
        if self.fingerprint is not None and self.fingerprint != found:
            raise ValueError(
                f"the mvu channel is {found} here, not {self.fingerprint}: use the same jopeq and "
                "SciPy versions on both ends"
            )
        object.__setattr__(self, "fingerprint", found)

    @cached_property
    def _channel(self) -> Channel:
        from jopeq.channel_design import mvu_channel

        return mvu_channel(self.epsilon, int(self.rate))

    @property
    def guarantee(self) -> Guarantee:
        """Rounding uses private bits and comes first: the channel's rows bound all mixtures."""
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
        return self.rate

    @property
    def _coder(self) -> Coder:
        return LetterCoder(self._channel.letters)

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
