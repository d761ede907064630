"""From ε to a noise law and back to a guarantee, for samples in the unit ball of L dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jopeq.lattice.lattices import Lattice
from jopeq.noise import DIAMETER, Gaussian, Laplace, Law, MultivariateT
from jopeq.privacy.guarantee import Guarantee

SMALLEST_EPSILON = 1e-9
_NU_RANGE = (2.05, 400.0)
_MAX_EXPONENT = 300.0  # beyond it the noise is smaller than any float tells apart


# the rest of δ covers the draws beyond the sampler's end, and rounding errors of the calibration
KEPT_DELTA = 1.0 - 1e-6
SAMPLER_END = "the noise stays within its sampler's range (probability of leaving it: below 2⁻⁷⁰)"
TOO_NARROW = "the noise is too narrow for its sampler to reach across the ball"
_STATED = 1e-5  # of ε, which is stated to five digits: smaller excesses are left out
# relative rounding of noisy values: noise 2⁻⁵¹, its sums with x and dither, their scaling to cells
_ROUNDED = 2.0**-50


def calibrate_laplace(epsilon: float, dimension: int = 1) -> Laplace:
    """The Laplace law of ε: b = 2√L/ε, since the unit ball's ℓ1 diameter is 2√L.

    Theorem III.2 prints b = 2/ε whatever L is; for L > 1 the ε that holds is then √L times that.

    >>> calibrate_laplace(4.0).scale
    0.5
    """
    check_epsilon(epsilon)
    return Laplace(DIAMETER * math.sqrt(dimension) / epsilon, dimension)


def calibrate_t(epsilon: float, dimension: int, *, nu: float | None = None) -> MultivariateT:
    """The multivariate t law of ε; ν is chosen for the smallest variance when it is not given.

    The diameter of the unit ball is 2, so the shift is Δ = 2/s. The published pairs of ν and s²
    correspond to Δ = 1/s.

    >>> law = calibrate_t(3.0, 2, nu=6)
    >>> round(law.squared_scale, 3), round(law.variance, 3)
    (1.131, 1.697)
    >>> calibrate_t(3.0, 2).variance < law.variance
    True
    """
    from scipy import optimize

    check_epsilon(epsilon)

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
        return (DIAMETER / shift) ** 2

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
    """Raise unless ε is finite, and not so small that its noise has no floating-point variance."""
    is_number = isinstance(epsilon, (int, float)) and math.isfinite(epsilon)
    if not (is_number and epsilon >= SMALLEST_EPSILON):
        raise ValueError(
            f"epsilon must be a positive finite number of at least {SMALLEST_EPSILON:g}, got "
            f"{epsilon!r}: use 1 (strong) to 8 (weak)"
        )


def guarantee_of_noise(
    law: Law | None,
    *,
    nominal: float | None,
    is_exact: bool,
    sample_size: int,
    assumptions: tuple[str, ...],
    cells: CellBounds | None = None,
    delta: float = 0.0,
) -> Guarantee:
    """The guarantee of a law for the diameter of the ball; ε = inf without a law.

    ε includes the cost of the sampler's ends and, for noisy values rounded to ``cells``, of
    floating-point numbers, if five digits show them. Gaussian noise has its ε at ``delta``.
    """
    no_privacy = Guarantee(epsilon=math.inf, nominal=nominal, sample_size=sample_size)
    if law is None:
        reason = () if nominal is None else ("no noise is added",)
        return replace(no_privacy, assumptions=reason)
    if not law.covers_ball:
        return replace(no_privacy, assumptions=(TOO_NARROW,))
    excess = math.inf if law.lost >= 1.0 else -math.log1p(-law.lost)
    if law.lost > 0.0:
        assumptions = (*assumptions, SAMPLER_END)
    if cells is not None:
        excess += rounding_excess(law, cells)
    ideal = law.epsilon()
    if isinstance(law, Gaussian):
        from dp_accounting import get_epsilon_gaussian

        ideal = get_epsilon_gaussian(law.scale / DIAMETER, delta * KEPT_DELTA)
    epsilon = ideal if excess <= _STATED * ideal else ideal + excess
    return Guarantee(
        epsilon=epsilon,
        nominal=nominal,
        delta=delta,
        is_exact=is_exact and epsilon == ideal,
        sample_size=sample_size,
        assumptions=assumptions,
    )


@dataclass(frozen=True)
class CellBounds:
    """Cells that noisy values are rounded to, which hold a cube and lie in a ball about its centre.

    ``inner`` is half the cube's side, ``outer`` the ball's radius.
    """

    inner: float
    outer: float

    @classmethod
    def of(cls, lattice: Lattice) -> CellBounds:
        """Voronoi cells, as much smaller as a change of coordinates magnifies rounding errors."""
        inner = 0.5 * lattice.shortest / lattice.dimension**0.5
        return cls(inner / (1.0 + lattice.geometry.condition), lattice.covering_radius)

    @classmethod
    def grid(cls, side: float, dimension: int) -> CellBounds:
        """Cubes."""
        return cls(0.5 * side, 0.5 * side * dimension**0.5)


def rounding_excess(law: Law, cells: CellBounds) -> float:
    """Bound how much floating-point numbers raise the log-ratio of two cells' probabilities.

    The draws can be paired with the law's own so that no entry of a noisy value is off by more
    than e. Let V be a cell about 0 and t = e/inner: whatever ends in V lies within (1 + t)V, and
    whatever lies within (1 − t)V ends in V. (1 ± t)V is as likely as V up to the factor
    (1 ± t)^L·e^{±t·outer·s}, s the steepest slope of the log-density. The upper bound is taken for
    one input, the lower for the other.
    """

    def excess(farthest: float) -> float:
        t = _ROUNDED * (farthest + DIAMETER) / cells.inner
        if t >= 1.0:
            return math.inf
        return 2.0 * (law.dimension * math.atanh(t) + t * law.slope * cells.outer)

    everywhere = excess(law.reach)
    # farther out the law tells less than ε, which leaves room for larger errors
    return excess(law.steep_within) if everywhere <= min(1.0, 0.5 * law.epsilon()) else everywhere
