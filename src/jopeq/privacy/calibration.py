"""From ε to a noise law, for samples in the unit ball of L dimensions."""

from __future__ import annotations

import math

from jopeq.noise import DIAMETER, Laplace, MultivariateT, t_epsilon

_NU_RANGE = (2.05, 400.0)


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
        """Smallest s² whose ε is at most the one asked for."""
        low, high = 0.0, 1.0
        while t_epsilon(high, at, dimension) < epsilon:
            high *= 2.0
            if high > 1e12:
                return math.nan
        root = optimize.brentq(
            lambda z: t_epsilon(z, at, dimension) - epsilon, low, high, xtol=1e-15, rtol=1e-14
        )
        shift = float(root) * (1.0 - 1e-13)  # to the private side of the solver's tolerance
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
    """Raise unless 0 < ε < ∞."""
    if not (isinstance(epsilon, (int, float)) and math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(
            f"epsilon must be a positive finite number, got {epsilon!r}: "
            "for no privacy use scheme='sdq' or scheme='none'"
        )
