"""No compression and no privacy: float32 as it is, the yardstick for everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array, Codec, Letters
from jopeq.wire.coders import Coder, WordCoder


@dataclass(frozen=True, kw_only=True)
class Uncompressed(Scheme):
    """No compression and no privacy: float32 as it is (the paper's "FL").

    Nothing is scaled, so every parameter must keep its default.

    >>> scheme = Uncompressed()
    >>> scheme.decode(scheme.encode(np.float32([1.5, -2.0]))).tolist()
    [1.5, -2.0]
    """

    name: ClassVar[str] = "none"
    is_private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if given:
            raise ValueError(
                f"scheme 'none' sends the update as it is and takes no parameters: drop "
                f"{', '.join(given)}"
            )

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=math.inf)

    @property
    def distortion(self) -> float:
        return 0.0

    @property
    def bits_per_entry(self) -> float:
        return 32.0

    codec = cached_property(lambda self: UncompressedCodec(self))


class UncompressedCodec(Codec[Uncompressed]):
    """An entry is a letter."""

    has_dither: ClassVar[bool] = False
    is_scaled: ClassVar[bool] = False
    is_bounded = False

    @cached_property
    def coder(self) -> Coder:
        return WordCoder(self.dimension, "<f4")

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        return Letters(samples)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return letters.astype(np.float64)
