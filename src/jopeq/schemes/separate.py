"""Privacy first, compression after, each for itself: the paper's baselines FL+Lap+SDQ, FL+t+SDQ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jopeq.noise import Law
from jopeq.schemes.private import PrivateQuantizedScheme


@dataclass(frozen=True, kw_only=True)
class SeparateScheme(PrivateQuantizedScheme):
    """Noise of the target itself, then SDQ. Its ε holds against the server by post-processing."""

    @property
    def _law_name(self) -> str:
        return self.name.removesuffix("+sdq")

    @property
    def noise(self) -> Law:
        return self._target.noise


@dataclass(frozen=True, kw_only=True)
class LaplaceThenDither(SeparateScheme):
    """Laplace noise, then SDQ.

    >>> LaplaceThenDither(epsilon=4.0, rate=2.0).guarantee.epsilon
    4.0
    """

    name: ClassVar[str] = "laplace+sdq"


@dataclass(frozen=True, kw_only=True)
class StudentThenDither(SeparateScheme):
    """Multivariate t noise, then SDQ (on any lattice; the paper takes A2)."""

    name: ClassVar[str] = "t+sdq"


@dataclass(frozen=True, kw_only=True)
class RadialThenDither(SeparateScheme):
    """ℓ2 noise, density ∝ e^{−ε‖x‖/2}, then SDQ."""

    name: ClassVar[str] = "l2+sdq"


@dataclass(frozen=True, kw_only=True)
class GaussianThenDither(SeparateScheme):
    """Gaussian noise of (ε, δ), then SDQ."""

    name: ClassVar[str] = "gaussian+sdq"
