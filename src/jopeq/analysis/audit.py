"""``jopeq.audit``: what a scheme promises, what it delivers exactly, what an attack shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jopeq.analysis.empirical import EmpiricalEpsilon, empirical_epsilon
from jopeq.analysis.exact import ExactEpsilon, exact_epsilon
from jopeq.privacy.guarantee import places_up
from jopeq.random.streams import PrivateStream
from jopeq.schemes.additive import AdditiveScheme
from jopeq.schemes.base import Scheme
from jopeq.schemes.quantized import PrivateQuantizedScheme, QuantizedScheme


@dataclass(frozen=True)
class Audit:
    """ε of one sample, four ways: asked for, proven, exact, and shown by an attack."""

    scheme: Scheme
    nominal: float | None
    proven: float
    exact: ExactEpsilon | None
    empirical: EmpiricalEpsilon

    @property
    def epsilon(self) -> float:
        """The exact ε against the server where it was computed, else the proven bound."""
        return self.proven if self.exact is None else self.exact.server

    @property
    def is_consistent(self) -> bool:
        """Whether no attack surely did better than the exact ε allows, nor that than the proof."""
        return self.empirical.certain <= self.epsilon <= self.proven * (1 + 1e-6) or math.isinf(
            self.proven
        )

    @property
    def explanation(self) -> str:
        """One sentence on why the exact ε is what it is."""
        if isinstance(self.scheme, QuantizedScheme):
            return _explain_noise(self.scheme, self.epsilon)
        if isinstance(self.scheme, AdditiveScheme):
            deviation = math.sqrt(self.scheme.noise.variance)
            return (
                f"Noise of standard deviation {deviation:.3g} is added to a value on a fixed grid "
                "and the sum rounded to the grid, so no output, however fine its digits, tells "
                "more than the noise allows."
            )
        if math.isinf(self.epsilon):
            return "Nothing is added and nothing is randomized: some outputs exclude some inputs."
        if self.scheme.guarantee.unit == "update":
            return (
                "Each kept coordinate goes through a channel with integer probabilities and its "
                "share of ε; the shares add up to the ε of the update."
            )
        if self.scheme.dimension > 1:
            return (
                "The quantized point moves by at most D when the input moves inside the ball, and "
                "the lattice noise on it changes by at most e^ε over that distance."
            )
        return (
            "Each symbol's probability is a ratio of integers that changes by at most e^ε "
            "between inputs, whatever the dither, so what was asked for is what holds."
        )


def _explain_noise(scheme: QuantizedScheme, epsilon: float) -> str:
    noise = scheme.noise
    if noise is None:
        if scheme._nominal is None:
            return "No noise is added: the dither is known to the server and hides nothing."
        return (
            "The dither alone already has the variance of the target, so no noise is added, and "
            "the server, who can recreate the dither, can rule out inputs with certainty."
        )
    deviation = math.sqrt(noise.variance)
    if not isinstance(scheme, PrivateQuantizedScheme) or epsilon <= scheme.epsilon * (1 + 1e-6):
        return (
            f"Noise of standard deviation {deviation:.3g} is added before anything else, so all "
            "that follows is post-processing of an ε-private value."
        )
    target = math.sqrt(scheme._target.noise.variance)
    return (
        f"Dither and noise together have the target's standard deviation {target:.3g}, but the "
        f"decoded value gives the dither away, so only noise of standard deviation "
        f"{deviation:.3g} hides the sample, and the two ends of the ball are told apart by its "
        f"thinner tails up to a factor e^{places_up(epsilon)}."
    )


def audit(
    scheme: Scheme,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> Audit:
    """Audit one sample of ``scheme`` against the server.

    >>> from jopeq import audit, scheme
    >>> report = audit(scheme("jopeq", epsilon=4.0, rate=1.0), draws=20_000)
    >>> report.nominal, round(report.exact.server, 2), report.is_consistent
    (4.0, 10.12, True)
    """
    return Audit(
        scheme=scheme,
        nominal=scheme.guarantee.nominal,
        proven=scheme.guarantee.epsilon,
        exact=exact_epsilon(scheme),
        empirical=empirical_epsilon(scheme, draws=draws, confidence=confidence, noise=noise),
    )
