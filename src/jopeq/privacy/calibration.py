"""From ε to a noise law, for samples in the unit ball of L dimensions."""

from __future__ import annotations

import math

from jopeq.noise import DIAMETER, Gaussian, Laplace, MultivariateT, RadialExponential
from jopeq.privacy.gaussian import gaussian_sigma

SMALLEST_EPSILON = 1e-9
_NU_RANGE = (2.05, 400.0)
_MAX_EXPONENT = 300.0  # beyond it the noise is smaller than any float tells apart


def calibrate_laplace(
    epsilon: float, dimension: int = 1, *, paper_sensitivity: bool = False
) -> Laplace:
    """The Laplace law of ε: b = 2√L/ε, since the unit ball's ℓ1 diameter is 2√L.

    ``paper_sensitivity`` takes b = 2/ε whatever L is, as Theorem III.2 prints it; for L > 1 the ε
    that holds is then √L times the one asked for.

    >>> calibrate_laplace(4.0).scale
    0.5
    """
    check_epsilon(epsilon)
    factor = 1.0 if paper_sensitivity else math.sqrt(dimension)
    return Laplace(DIAMETER * factor / epsilon, dimension)


def calibrate_l2(epsilon: float, dimension: int) -> RadialExponential:
    """The ℓ2 law of ε: density ∝ e^{−ε‖x‖/2}, for the true diameter 2 of the ball.

    >>> calibrate_l2(4.0, 2).variance
    0.75
    """
    check_epsilon(epsilon)
    return RadialExponential(epsilon / DIAMETER, dimension)


def calibrate_gaussian(epsilon: float, dimension: int, delta: float) -> Gaussian:
    """Gaussian noise of (ε, δ), by the analytic calibration of Balle and Wang (2018).

    >>> round(calibrate_gaussian(4.0, 1, 1e-5).sigma, 3)
    2.162
    """
    check_epsilon(epsilon)
    return Gaussian(gaussian_sigma(epsilon, delta, DIAMETER), dimension)


def calibrate_t(
    epsilon: float,
    dimension: int,
    *,
    nu: float | None = None,
    paper_sensitivity: bool = False,
) -> MultivariateT:
    """The multivariate t law of ε; ν is chosen for the smallest variance when it is not given.

    ``paper_sensitivity`` measures the shift as Δ = 1/s, which is what the published pairs
    correspond to; the true diameter of the unit ball is 2, so Δ = 2/s is the default.

    >>> law = calibrate_t(3.0, 2, nu=6)
    >>> round(law.squared_scale, 3), round(law.variance, 3)
    (1.131, 1.697)
    >>> calibrate_t(3.0, 2).variance < law.variance
    True
    >>> round(calibrate_t(2.0, 2, nu=12, paper_sensitivity=True).squared_scale, 2)
    1.01
    """
    from scipy import optimize

    check_epsilon(epsilon)
    distance = 1.0 if paper_sensitivity else DIAMETER

    def squared_scale(at: float) -> float:
        """Smallest s² whose ε is at most the one asked for: ``t_epsilon`` solved for Δ."""
        exponent = epsilon / (at + dimension)
        if exponent > _MAX_EXPONENT:
            raise ValueError(
                f"epsilon must be at most {_MAX_EXPONENT * (at + dimension):g} for a t law with "
                f"nu={at:g}, got {epsilon}: for no privacy use scheme='sdq' or scheme='none'"
            )
        shift = 2.0 * math.sqrt(at) * math.sinh(exponent)
        shift *= 1.0 - 1e-13  # to the private side of rounding
        return (distance / shift) ** 2

    if nu is None:
        best = optimize.minimize_scalar(
            lambda v: math.log(squared_scale(math.exp(v)) / (1.0 - 2.0 / math.exp(v))),
            bounds=tuple(map(math.log, _NU_RANGE)),
            method="bounded",
            options={"xatol": 1e-10},
        )
        nu = math.exp(float(best.x))
    elif not (math.isfinite(nu) and nu > 2):
        raise ValueError(f"nu must be above 2 (finite variance), got {nu}")
    return MultivariateT(nu, squared_scale(nu), dimension)


def check_epsilon(epsilon: float) -> None:
    """Raise unless 0 < ε < ∞, and not so small that its noise has no floating-point variance."""
    if not (isinstance(epsilon, (int, float)) and math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(
            f"epsilon must be a positive finite number, got {epsilon!r}: "
            "for no privacy use scheme='sdq' or scheme='none'"
        )
    if epsilon < SMALLEST_EPSILON:
        least = f"{SMALLEST_EPSILON:g}"
        raise ValueError(f"epsilon must be at least {least}, got {epsilon!r}: raise epsilon")
