"""The guarantee of adding noise to samples in the unit ball, and of what follows from the sum."""

from __future__ import annotations

import math
from dataclasses import replace

from jopeq.noise import DIAMETER, Gaussian, Law, RadialExponential
from jopeq.privacy.gaussian import gaussian_epsilon
from jopeq.privacy.guarantee import Guarantee

_SHARE = 1e-3  # of δ, that the end of the Gaussian sampler may take
SAMPLER_END = "up to the end of the noise sampler's range, met with probability below 2⁻⁷⁰"


def guarantee_of_noise(
    law: Law | None,
    *,
    nominal: float | None,
    delta: float,
    is_exact: bool,
    sample_size: int,
    assumptions: tuple[str, ...],
) -> Guarantee:
    """ε of the law for the diameter of the ball; (ε, δ) and μ for Gaussian noise; inf for none."""
    no_privacy = Guarantee(epsilon=math.inf, nominal=nominal, sample_size=sample_size)
    if law is None:
        reason = () if nominal is None else ("no noise is added",)
        return replace(no_privacy, assumptions=reason)
    if not law.covers_ball or (isinstance(law, Gaussian) and law.escape > _SHARE * delta):
        reason = ("the noise is too narrow for its sampler to reach across the ball",)
        return replace(no_privacy, assumptions=reason)
    if isinstance(law, RadialExponential) and law.dimension > 1:
        # the radius is a sum of exponentials, which end at 2⁻⁷⁶; entries are cut one by one
        assumptions = (*assumptions, SAMPLER_END)
    mu = DIAMETER / law.sigma if isinstance(law, Gaussian) else None
    return Guarantee(
        epsilon=law.epsilon() if mu is None else gaussian_epsilon(mu, delta),
        nominal=nominal,
        delta=0.0 if mu is None else delta,
        is_exact=is_exact,
        sample_size=sample_size,
        assumptions=assumptions,
        gaussian_mu=mu,
    )
