"""Composition by Rényi divergences: for mixtures, and where the optimal sum is too long."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np


def renyi_epsilon(pure: Counter[float], delta: float, *, mu: float = 0.0) -> float:
    """ε at δ of ε-DP mechanisms (how many of each) and of a μ-Gaussian one, by Rényi divergences.

    Of order α, randomized response has (α−1)⁻¹ ln(cosh((α−½)ε)/cosh(ε/2)) and a Gaussian αμ²/2;
    they add up to ρ(α), and ε = ρ + ln(1 − 1/α) − ln(αδ)/(α−1) holds at δ for every α > 1 (Mironov
    2017; Canonne, Kamath, Steinke 2020, Proposition 12). The best α is searched for.

    >>> round(renyi_epsilon(Counter({0.1: 100}), 1e-5), 3)
    4.615
    """
    from scipy import optimize

    def at(log_order: float) -> float:
        more = math.exp(log_order)  # α − 1
        order = 1.0 + more
        divergence = math.fsum(n * _response_divergence(e, more) for e, n in pure.items())
        divergence += 0.5 * order * mu**2
        bound = divergence + math.log(more / order) - math.log(order * delta) / more
        return max(0.0, bound * (1.0 + 1e-13) + 1e-15)

    grid = np.linspace(math.log(1e-9), math.log(1e7), 300)
    values = [at(point) for point in grid.tolist()]
    best = int(np.argmin(values))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(at, bounds=bounds, method="bounded")
    return min(values[best], at(float(found.x)))


def _response_divergence(epsilon: float, more: float) -> float:
    """Rényi divergence of order 1 + more between the two laws of binary randomized response."""
    if (1.0 + more) * epsilon < 300.0:
        product = math.sinh((1.0 + more) * epsilon / 2.0) * math.sinh(more * epsilon / 2.0)
        return math.log1p(2.0 * product / math.cosh(epsilon / 2.0)) / more
    small = math.log1p(math.exp(-(1.0 + 2.0 * more) * epsilon)) - math.log1p(math.exp(-epsilon))
    return epsilon + small / more
