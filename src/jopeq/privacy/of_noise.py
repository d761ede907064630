"""The guarantee of adding noise to samples in the unit ball, and of what follows from the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jopeq.lattice import Lattice
from jopeq.noise import DIAMETER, Gaussian, Law
from jopeq.privacy.gaussian import gaussian_epsilon
from jopeq.privacy.guarantee import Guarantee

_SHARE = 1e-3  # of δ, that the end of the Gaussian sampler may take
_STATED = 1e-5  # of ε, which is stated to five digits: rounding errors that cost less go untold
_ROUNDED = (
    2.0**-50
)  # of noisy values: noise 2⁻⁵¹, its sums with x and dither, their scaling to cells
SAMPLER_END = "up to the end of the noise sampler's range, met with probability below 2⁻⁷⁰"
TOO_NARROW = "the noise is too narrow for its sampler to reach across the ball"


def guarantee_of_noise(
    law: Law | None,
    *,
    nominal: float | None,
    delta: float,
    is_exact: bool,
    sample_size: int,
    assumptions: tuple[str, ...],
    cells: Cells | None = None,
) -> Guarantee:
    """ε of the law for the diameter of the ball; (ε, δ) and μ for Gaussian noise; inf for none.

    What the sampler's ends and its floating-point numbers may add is added where it matters; the
    latter if the noisy values are rounded to ``cells``.
    """
    no_privacy = Guarantee(epsilon=math.inf, nominal=nominal, sample_size=sample_size)
    if law is None:
        reason = () if nominal is None else ("no noise is added",)
        return replace(no_privacy, assumptions=reason)
    if not law.covers_ball or (isinstance(law, Gaussian) and law.escape > _SHARE * delta):
        return replace(no_privacy, assumptions=(TOO_NARROW,))
    excess = math.inf if law.lost >= 1.0 else -math.log1p(-law.lost)
    if law.lost > 0.0:
        assumptions = (*assumptions, SAMPLER_END)
    if cells is not None:
        excess += rounding_excess(law, cells)
    mu = DIAMETER / law.sigma if isinstance(law, Gaussian) else None
    epsilon = law.epsilon() if mu is None else gaussian_epsilon(mu, delta)
    stated = with_excess(epsilon, excess)
    if stated > epsilon:
        delta, is_exact, mu_of_sums = delta * math.exp(min(excess, 700.0)), False, None
    else:
        mu_of_sums = mu
    return Guarantee(
        epsilon=stated,
        nominal=nominal,
        delta=0.0 if mu is None else min(1.0, delta),
        is_exact=is_exact,
        sample_size=sample_size,
        assumptions=assumptions,
        gaussian_mu=mu_of_sums,
    )


def with_excess(epsilon: float, excess: float) -> float:
    """ε and what it is exceeded by, where five digits of it show that."""
    return epsilon if excess <= _STATED * epsilon else epsilon + excess


@dataclass(frozen=True)
class Cells:
    """What noisy values are rounded to: cells that hold a cube and lie in a ball about its centre.

    ``inner`` is half the cube's side, ``outer`` the ball's radius.
    """

    inner: float
    outer: float

    @classmethod
    def of(cls, lattice: Lattice) -> Cells:
        """Voronoi cells."""
        return cls(0.5 * shortest_vector(lattice) / lattice.dimension**0.5, lattice.covering_radius)

    @classmethod
    def grid(cls, side: float, dimension: int) -> Cells:
        """Cubes."""
        return cls(0.5 * side, 0.5 * side * dimension**0.5)


def shortest_vector(lattice: Lattice) -> float:
    """Of all but 0: every basis here is reduced, and has it."""
    return math.sqrt(float((lattice.basis**2).sum(axis=1).min()))


def rounding_excess(law: Law, cells: Cells) -> float:
    """By how much floating-point numbers can raise the log-ratio of two cells' probabilities.

    The draws can be paired with the law's own so that no entry of a noisy value is off by more
    than e. The values that may end in a cell V about 0 are then within (1 + t)V, t = e/inner, those
    that must within (1 − t)V; and (1 ± t)V is as likely as V up to (1 ± t)^L·e^{±t·outer·s}, s the
    steepest slope of the log-density. One bound holds for the one input, one for the other.
    """
    if isinstance(law, Gaussian):
        slope = law.reach / law.variance
    else:
        near = 1e-9 * math.sqrt(law.variance)
        slope = law.epsilon(near) / near

    def excess(farthest: float) -> float:
        t = _ROUNDED * (farthest + DIAMETER) / cells.inner
        if t >= 1.0:
            return math.inf
        return 2.0 * (law.dimension * math.atanh(t) + t * slope * cells.outer)

    everywhere = excess(law.reach)
    # where outputs leave room below ε, they may well have larger errors
    return excess(law.steep_within) if everywhere <= min(1.0, 0.5 * law.epsilon()) else everywhere
