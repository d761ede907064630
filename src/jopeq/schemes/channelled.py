"""What ``response`` and ``mvu`` share: a private channel between quantizer and wire."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from jopeq.channel import Channel
from jopeq.coders import Coder, LetterCoder
from jopeq.packing import Packing
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.schemes.base import Scheme
from jopeq.schemes.unit_ball import scaling_assumptions


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
