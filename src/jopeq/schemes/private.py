"""Noise, then dithered quantization: what the separate and the joint design share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

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
        self.noise  # noqa: B018 (checks its parameters)

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
