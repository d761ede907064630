"""F(w_t) − F* of local SGD with JoPEQ (Theorem III.5), as printed and as it can be proven.

The proof bounds δ_t = E‖v_t − w*‖² by the recursion δ_{t+1} ≤ (1 − η_t·ρ_c)·δ_t + η_t²·b with
η_t = τ/(ρ_c(t + φ)), and concludes δ_t ≤ λ/(t + φ) for

    printed    λ = max((ρ_c² + τ²b)/(τρ_c),  φδ_0)      as in (20)
    proof      λ = max((ρ_c² + τ²b)/(τρ_c²), φδ_0)      (1 + β²b)/(βρ_c) with β = τ/ρ_c, as derived
    corrected  λ = max(τ²b/(ρ_c²(τ − 1)),    φδ_0)      what the induction needs

*printed* has lost a factor ρ_c. *proof* is too small by up to τ/(τ − 1): with T = t + φ the step of
the induction is λ(τ − 1 + 1/(T+1)) ≥ τ²b/ρ_c², which *corrected* satisfies for every T, and without
which T·δ_t of the recursion itself exceeds λ. For τ = 1 no λ does: there the recursion gives
δ_t of the order (log t)/t, and a step size larger by any factor above 1 would repair it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FORMS = ("printed", "proof", "corrected")


@dataclass(frozen=True, kw_only=True)
class ConvergenceBound:
    """The constants of Theorem III.5; σ² = 0 is federated averaging without JoPEQ.

    >>> bound = ConvergenceBound(
    ...     tau=5, convexity=0.5, smoothness=5.0, gap=0.0, variance=0.0,
    ...     weights=(0.5, 0.5), gradient_bounds=(1.0, 1.0), start=1.0)
    >>> bound.phi, float(bound.step_size(0)), bound.b
    (200.0, 0.05, 128.5)
    """

    tau: int
    convexity: float  # ρ_c
    smoothness: float  # ρ_s
    gap: float  # ψ, the heterogeneity gap
    variance: float  # σ² of the mechanism on one sample
    weights: tuple[float, ...]  # α_k
    gradient_bounds: tuple[float, ...]  # ξ_k²
    start: float  # ‖w_0 − w*‖²

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise ValueError(f"tau must be at least 1, got {self.tau}")
        if not 0 < self.convexity <= self.smoothness:
            raise ValueError(
                f"0 < convexity <= smoothness is needed, got {self.convexity}, {self.smoothness}"
            )
        if len(self.weights) != len(self.gradient_bounds):
            raise ValueError(
                "weights and gradient_bounds must be as many, one a client, got "
                f"{len(self.weights)} and {len(self.gradient_bounds)}"
            )

    @property
    def phi(self) -> float:
        """φ = τ·max(1, 4ρ_s/ρ_c)."""
        return self.tau * max(1.0, 4.0 * self.smoothness / self.convexity)

    def step_size(self, t: ArrayLike) -> NDArray[np.float64]:
        """η_t = τ/(ρ_c(t + φ))."""
        return np.asarray(self.tau / (self.convexity * (np.asarray(t) + self.phi)))

    @property
    def b(self) -> float:
        """(1 + 36τ²σ²)·Σα²ξ² + 6ρ_sψ + 8(τ−1)²·Σαξ²."""
        alpha, xi = np.array(self.weights), np.array(self.gradient_bounds)
        noise = (1.0 + 36.0 * self.tau**2 * self.variance) * float(alpha**2 @ xi)
        drift = 8.0 * (self.tau - 1) ** 2 * float(alpha @ xi)
        return noise + 6.0 * self.smoothness * self.gap + drift

    def constant(self, form: str = "corrected") -> float:
        """λ, in one of ``FORMS``."""
        tau, rho = self.tau, self.convexity
        if form == "printed":
            noise = (rho**2 + tau**2 * self.b) / (tau * rho)
        elif form == "proof":
            noise = (rho**2 + tau**2 * self.b) / (tau * rho**2)
        elif form == "corrected":
            noise = tau**2 * self.b / (rho**2 * (tau - 1)) if tau > 1 else math.inf
        else:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
        return max(noise, self.phi * self.start)

    def at(self, t: ArrayLike, form: str = "corrected") -> NDArray[np.float64]:
        """The bound on E F(w_t) − F*: ρ_s·λ/(2(t + φ))."""
        return np.asarray(
            0.5 * self.smoothness * self.constant(form) / (np.asarray(t, dtype=float) + self.phi)
        )

    def recursion(self, steps: int) -> Iterator[float]:
        """T·δ_t of the recursion taken with equality, t = 0, 1, …: what λ has to stay above."""
        delta, b = self.start, self.b
        for t in range(steps):
            yield (t + self.phi) * delta
            eta = float(self.step_size(t))
            delta = (1.0 - eta * self.convexity) * delta + eta * eta * b
