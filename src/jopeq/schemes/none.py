"""No compression and no privacy: float32 as it is, the yardstick for everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme, Symbols
from jopeq.wire.coders import Coder, WordCoder

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class NoScheme(Scheme):
    """The paper's "FL".

    >>> scheme = NoScheme()
    >>> scheme.decode(scheme.encode(np.float32([1.5, -2.0]))).tolist()
    [1.5, -2.0]
    """

    name: ClassVar[str] = "none"
    is_private: ClassVar[bool] = False
    has_dither: ClassVar[bool] = False
    is_scaled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spec != '["none",{}]':
            raise ValueError(f"scheme 'none' sends the update as it is: drop {self.spec[8:-1]}")

    @property
    def is_bounded(self) -> bool:
        return False

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=math.inf)

    @property
    def distortion(self) -> float:
        return 0.0

    @property
    def bits_per_entry(self) -> float:
        return 32.0

    @property
    def _coder(self) -> Coder:
        return WordCoder(self.dimension, "<f4")

    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols:
        return Symbols(samples)

    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return symbols.astype(np.float64)
