"""Noise, then dithered quantization: what the separate and the joint design share."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from jopeq.noise import Law
from jopeq.privacy.of_noise import shortest_vector
from jopeq.schemes.quantized import QuantizedScheme
from jopeq.schemes.targets import Target


@dataclass(frozen=True, kw_only=True)
class PrivateQuantizedScheme(QuantizedScheme):
    """Parameters of the noise: ε, for the t law ν and s², for the Gaussian δ (see ``Target``)."""

    epsilon: float
    nu: float | None = None
    squared_scale: float | None = None
    paper_sensitivity: bool = False
    delta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = self.noise  # checks its parameters
        if noise is not None:
            self._check_step(noise)

    def _check_step(self, noise: Law) -> None:
        """Refuse cells so fine that floating-point draws would show through them.

        On Z a cell must hold 2²⁷ of the 2⁵¹ draws of an octave; elsewhere, where a pair of entries
        shares a radius √E, the cell about 0 must hold 2²² of them. And the ball must not be wider
        than 2⁴⁹ cells, so that no noisy value is ever refused as too far: that would tell of it.
        """
        bits = 24 if self.dimension == 1 else 14
        shortest, step = shortest_vector(self._cells), self._cells.step
        least = max(math.ldexp(math.sqrt(noise.variance), -bits), 2.0**-48) * step / shortest
        if step < least:
            remedy = "raise step" if self.step is not None else "lower rate or raise gamma"
            raise ValueError(
                f"step must be at least {least:.3g} (2⁻{bits} of the noise, 2⁻⁴⁸ of the ball), or "
                f"rounding errors would show; got {step:.3g}: {remedy}"
            )

    @property
    @abstractmethod
    def _law_name(self) -> str:
        """Which family the target is of."""

    @cached_property
    def _target(self) -> Target:
        return Target(
            self._law_name,
            self.epsilon,
            self.dimension,
            self.nu,
            self.squared_scale,
            self.paper_sensitivity,
            self.delta,
        )

    @property
    def _nominal(self) -> float | None:
        return self.epsilon

    @property
    def _delta(self) -> float:
        return self._target.failure

    def _default_gamma(self, rate: float) -> float | None:
        return self._target.gamma(rate)
