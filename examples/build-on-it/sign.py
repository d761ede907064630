"""Signs with randomized response: one bit per entry, ε per entry."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import jopeq
from jopeq.schemes import Codec, Letters, Packing, Scheme


@jopeq.register
@dataclass(frozen=True, kw_only=True)
class Sign(Scheme):
    """Each sign has ``least`` chances of 2³²; x divides the rest."""

    name = "sign"
    epsilon: float
    bits_per_entry = 1.0
    codec = cached_property(lambda self: SignCodec(self))
    distortion = property(lambda self: self.codec.size**2)

    @property
    def guarantee(self):
        proven = math.log(2**32 / self.codec.least - 1.0)
        told = {"assumptions": self.scaling.assumptions}
        return jopeq.Guarantee(epsilon=proven, nominal=self.epsilon, **told)


class SignCodec(Codec[Sign]):
    has_dither = False  # nothing random is shared with the server
    coder = Packing(2)

    def __init__(self, scheme):
        super().__init__(scheme)
        if not 1e-6 <= scheme.epsilon <= 20.0:
            raise ValueError(f"epsilon must be 1e-6…20, got {scheme.epsilon}")
        self.least = math.ceil(2**32 / (1.0 + math.exp(scheme.epsilon)))
        self.size = 2**32 / (2**32 - 2 * self.least)  # decoded: unbiased

    def to_letters(self, samples, first, shared, private):
        x = np.clip(samples[:, 0], -1.0, 1.0)
        words = private.words32(lane=0, start=first, count=len(x))
        chances = np.rint((2**31 - self.least) * x + 2**31)
        return Letters(words < chances, np.count_nonzero(x != samples[:, 0]))

    def to_samples(self, letters, first, shared):
        return ((2.0 * letters - 1.0) * self.size)[:, None]
