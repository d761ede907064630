"""Gaussian noise: δ of an ε, ε of a δ, and the σ for both, exact and to the private side."""

from __future__ import annotations

import math
import sys

from jopeq.privacy.checks import check_delta, check_number, private_side

_MILLS = math.sqrt(0.5)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) of Gaussian noise, μ = distance/σ.

    Balle and Wang 2018, Theorem 8; exact, and rounded up. n such mechanisms have μ√n.

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    check_number("mu", mu)
    check_number("epsilon", epsilon)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return _gaussian_delta(epsilon / mu - 0.5 * mu, mu)


def _gaussian_delta(x: float, mu: float) -> float:
    """Φ(−x) − φ(x)·M(x+μ), M the Mills ratio: no large exponents, and ε itself never appears."""
    from scipy import special

    if x > 38.0:
        return sys.float_info.min  # an upper bound: Φ(−38) < 10⁻³¹⁵
    density = 0.5 * math.exp(-0.5 * x * x)
    second = density * float(special.erfcx((x + mu) * _MILLS))
    first = density * float(special.erfcx(x * _MILLS)) if x > 0.0 else float(special.ndtr(-x))
    return min(1.0, max(first - second + 1e-15 * first, sys.float_info.min))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ δ of Gaussian noise, μ = distance/σ; inf at δ = 0.

    >>> round(gaussian_epsilon(1.0, 1e-5), 6)
    4.377178
    """
    from scipy import optimize

    check_number("mu", mu)
    check_delta(delta)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu) or delta <= sys.float_info.min:
        return math.inf
    low, high = -0.5 * mu, math.sqrt(-2.0 * math.log(delta))  # Φ(−x) ≤ e^{−x²/2}
    if _gaussian_delta(low, mu) <= delta:
        return 0.0
    x = optimize.brentq(
        lambda at: math.log(_gaussian_delta(at, mu) / delta), low, high, xtol=1e-14, rtol=1e-14
    )
    epsilon = max(0.0, mu * (x + 0.5 * mu))
    return private_side(epsilon, math.inf, lambda at: gaussian_delta(mu, at) <= delta)


def gaussian_sigma(epsilon: float, delta: float, distance: float) -> float:
    """The smallest σ of Gaussian noise that is (ε, δ)-DP for inputs at most ``distance`` apart.

    Analytic calibration (Balle and Wang 2018); the classical √(2 ln(1.25/δ))·distance/ε is larger,
    and holds for ε ≤ 1 alone.

    >>> round(gaussian_sigma(1.0, 1e-5, 1.0), 4)
    3.7306
    """
    from scipy import optimize

    check_number("epsilon", epsilon)
    check_delta(delta)
    if math.isinf(epsilon) or delta <= sys.float_info.min:
        raise ValueError(
            f"Gaussian noise needs a finite epsilon and a delta above 0, got {epsilon} and "
            f"{delta}: for delta=0 use Laplace noise"
        )
    if not (math.isfinite(distance) and distance > 0.0):
        raise ValueError(f"distance must be a positive number, got {distance}")

    def excess(log_mu: float) -> float:
        return math.log(gaussian_delta(math.exp(log_mu), epsilon) / delta)

    low = high = 0.0
    while excess(low) > 0.0:
        low -= 1.0
    while excess(high) <= 0.0:
        high += 1.0
    mu = math.exp(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14))
    return private_side(
        distance / mu, math.inf, lambda at: gaussian_delta(distance / at, epsilon) <= delta
    )
