"""The noise law a private scheme aims at, from its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from jopeq.noise import Law, MultivariateT
from jopeq.privacy.calibration import (
    calibrate_gaussian,
    calibrate_l2,
    calibrate_laplace,
    calibrate_t,
    check_epsilon,
)

LAWS = ("laplace", "t", "l2", "gaussian")
DELTA = 1e-5  # of Gaussian noise, when none is given


@dataclass(frozen=True)
class Target:
    """ε, the family and its free parameters, for samples of ``dimension`` entries.

    ``nu`` and ``squared_scale`` (the paper's ν and s²) fix a t law by hand; then its ε is whatever
    the law gives, and the ε asked for is only a name for it.
    """

    law: str
    epsilon: float
    dimension: int
    nu: float | None = None
    squared_scale: float | None = None
    paper_sensitivity: bool = False
    delta: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.law not in LAWS:
            raise ValueError(f"law must be one of {', '.join(LAWS)}, got {self.law!r}")
        if self.law != "t" and (self.nu is not None or self.squared_scale is not None):
            raise ValueError(f"nu and squared_scale belong to law='t', this is law={self.law!r}")
        if self.law not in ("t", "laplace") and self.paper_sensitivity:
            raise ValueError("paper_sensitivity belongs to the paper's laws, 'laplace' and 't'")
        if self.delta is not None and self.law != "gaussian":
            raise ValueError(f"delta belongs to law='gaussian', law={self.law!r} needs none")
        if self.delta is not None and not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be above 0 and below 1, got {self.delta}")
        if self.squared_scale is not None and self.nu is None:
            raise ValueError("squared_scale needs nu: give both, or neither to have them chosen")
        if self.squared_scale is not None and self.paper_sensitivity:
            raise ValueError("squared_scale is given, so paper_sensitivity has nothing to choose")

    @cached_property
    def noise(self) -> Law:
        """The calibrated law."""
        if self.law == "l2":
            return calibrate_l2(self.epsilon, self.dimension)
        if self.law == "gaussian":
            return calibrate_gaussian(self.epsilon, self.dimension, self.failure)
        if self.law == "laplace":
            return calibrate_laplace(
                self.epsilon, self.dimension, paper_sensitivity=self.paper_sensitivity
            )
        if self.nu is not None and self.squared_scale is not None:
            return MultivariateT(self.nu, self.squared_scale, self.dimension)
        return calibrate_t(
            self.epsilon, self.dimension, nu=self.nu, paper_sensitivity=self.paper_sensitivity
        )

    @property
    def failure(self) -> float:
        """δ, which only Gaussian noise uses."""
        return DELTA if self.delta is None else self.delta

    def gamma(self, rate: float) -> float:
        """The paper's support: 2R + 1/ε for Laplace on Z, 1.5(1 + variance) for t on A2.

        Elsewhere the noise is √(L/2) times as long as on A2, and so is the support.
        """
        if self.dimension == 1 and self.law in ("laplace", "l2"):
            return 2.0 * rate + 1.0 / self.epsilon
        return 1.5 * (1.0 + self.noise.variance) * math.sqrt(max(1.0, self.dimension / 2))
