"""Privacy first, compression after, each for itself: the paper's baselines FL+Lap+SDQ, FL+t+SDQ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jopeq.noise import Law
from jopeq.schemes.private import PrivateQuantizedScheme


@dataclass(frozen=True, kw_only=True)
class LaplaceThenDither(PrivateQuantizedScheme):
    """Laplace noise, then SDQ. ε holds against the server by post-processing.

    >>> LaplaceThenDither(epsilon=4.0, rate=2.0).guarantee.epsilon
    4.0
    """

    name: ClassVar[str] = "laplace+sdq"

    @property
    def _law_name(self) -> str:
        return self.name.removesuffix("+sdq")

    @property
    def noise(self) -> Law:
        return self._target.noise


@dataclass(frozen=True, kw_only=True)
class StudentThenDither(LaplaceThenDither):
    """Multivariate t noise, then SDQ (on any lattice; the paper takes A2)."""

    name: ClassVar[str] = "t+sdq"


@dataclass(frozen=True, kw_only=True)
class RadialThenDither(LaplaceThenDither):
    """ℓ2 noise, density ∝ e^{−ε‖x‖/2}, then SDQ."""

    name: ClassVar[str] = "l2+sdq"


@dataclass(frozen=True, kw_only=True)
class GaussianThenDither(LaplaceThenDither):
    """Gaussian noise of (ε, δ), then SDQ."""

    name: ClassVar[str] = "gaussian+sdq"
