"""PrivUnitG, the best known mechanism for one update per person: the baseline of ``sphere``.

Of all unbiased ε-LDP reports on a vector of the unit ball, PrivUnit has the least error (Bhowmick
et al. 2018; Asi, Feldman and Talwar 2022). PrivUnitG replaces the sphere by normal draws: it has
the same error up to O(1/√d), and a closed form. It sends d floating-point numbers.

    V = σ·g,   g ~ N(0, I_d) given that t = ⟨g, x⟩ ≥ γ with probability p, and t < γ otherwise

With Q(γ) = P(t ≥ γ), φ the normal density and a = e^ε − 1, p = Q·e^ε/(1 + Q·a) spends all of ε, and
E t = φ·a/(1 + Q·a) is largest where φ(γ)·a = γ·(1 + Q(γ)·a). There E t = γ, so that σ = 1/γ makes V
unbiased, and

    E‖V − x‖² = σ²·(d − 1 + E t²) − 1 .
"""

from __future__ import annotations

import math
import operator


def best_known_error(dimension: int, epsilon: float) -> float:
    """E‖x̂ − x‖² of PrivUnitG at ‖x‖ = 1: what one client's report must cost, at ε for all of it.

    The mean over K clients has 1/K of it. ``Sphere.expected_error`` is in the same unit.

    >>> round(best_known_error(1000, 8.0), 2)
    132.91
    """
    dimension = operator.index(dimension)
    if dimension < 1:
        raise ValueError(f"dimension must be at least 1, got {dimension}")
    if not 0.0 < epsilon <= 700.0:
        raise ValueError(f"epsilon must be above 0 and at most 700, got {epsilon!r}")
    gamma = threshold(epsilon)
    density, above = _density(gamma), _above(gamma)
    excess = math.expm1(epsilon)
    inside = above * (1.0 + excess) / (1.0 + above * excess)  # p
    # E[t² | t ≥ γ] = 1 + γφ/Q, E[t² | t < γ] = 1 − γφ/(1 − Q)
    square = 1.0 + gamma * density * (inside / above - (1.0 - inside) / (1.0 - above))
    return (dimension - 1.0 + square) / gamma**2 - 1.0


def threshold(epsilon: float) -> float:
    """γ, by bisection: φ(γ)·a falls in γ, and γ·(1 + Q(γ)·a) does not meet it twice."""
    excess = math.expm1(epsilon)
    low, high = 0.0, 40.0
    while (middle := 0.5 * (low + high)) not in (low, high):
        if _density(middle) * excess > middle * (1.0 + _above(middle) * excess):
            low = middle
        else:
            high = middle
    return low


def _density(z: float) -> float:
    return math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _above(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2.0))
