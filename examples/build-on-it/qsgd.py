"""QSGD (Alistarh et al. 2017): rounding that is right on average."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import jopeq
from jopeq.schemes import Codec, Letters, Packing, Scheme


@jopeq.register
@dataclass(frozen=True, kw_only=True)
class QSGD(Scheme):
    """Round an entry to one of its two neighbours among 2·levels + 1 values.

    Chances are such that the mean is right. One scaled unit is the norm of the
    update, as in the paper, where ``spread`` is √d for d entries. The default
    spread of 3 clips the rare entries beyond three standard deviations.
    """

    name = "qsgd"
    is_private = False
    levels: int = 1
    guarantee = jopeq.Guarantee(epsilon=math.inf)
    distortion = 0.0  # at 0, which is a level
    codec = cached_property(lambda self: QSGDCodec(self))

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.levels < 2**15:
            raise ValueError(f"levels must be in 1…32767, got {self.levels}")

    @property
    def bits_per_entry(self):
        return self.codec.coder.bits_per_letter


class QSGDCodec(Codec[QSGD]):
    has_dither = False

    @cached_property
    def coder(self):
        return Packing(2 * self.scheme.levels + 1)

    def to_letters(self, samples, first, shared, private):
        x = np.clip(samples[:, 0], -1.0, 1.0)
        words = private.words32(lane=0, start=first, count=len(x))
        place = self.scheme.levels * (1.0 + x)
        letters = np.floor(place)
        letters += words < 2**32 * (place - letters)
        letters = letters.astype(np.uint16)
        return Letters(letters, np.count_nonzero(x != samples[:, 0]))

    def to_samples(self, letters, first, shared):
        return (letters / self.scheme.levels - 1.0)[:, None]

    def distortion_for(self, sigma):
        """Mean squared error of normal entries, for plans."""
        x = sigma * np.linspace(-6.0, 6.0, 6001)
        weights = np.exp(-0.5 * np.square(x / sigma))
        part = np.mod(self.scheme.levels * np.clip(x, -1.0, 1.0), 1.0)
        error = part * (1.0 - part) / self.scheme.levels**2
        return float(np.average(error, weights=weights))


def row(epsilon, rate):
    """A row of Table I: as many levels as the rate allows, at least three."""
    return QSGD(levels=max(1, int(2.0**rate - 1.0) // 2))
