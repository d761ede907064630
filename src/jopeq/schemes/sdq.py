"""Dithered quantization alone: compression without privacy (paper, Definitions II.3 and II.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jopeq.noise import Law
from jopeq.schemes.quantized import QuantizedScheme


@dataclass(frozen=True, kw_only=True)
class SubtractiveDither(QuantizedScheme):
    """The paper's "FL+SDQ": decoded Q(x + d) − d. Its error is uniform on the cell, Thm II.5.

    >>> SubtractiveDither(rate=2.0).distortion == (2 / 3) ** 2 / 12
    True
    """

    name: ClassVar[str] = "sdq"
    is_private: ClassVar[bool] = False

    @property
    def noise(self) -> Law | None:
        return None

    def _default_gamma(self, rate: float) -> float | None:
        return None


@dataclass(frozen=True, kw_only=True)
class NonSubtractiveDither(SubtractiveDither):
    """Decoded Q(x + d), dither and all. The error depends on x, on average twice that of sdq."""

    name: ClassVar[str] = "dq"
    is_subtractive: ClassVar[bool] = False
