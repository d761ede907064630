"""``jopeq.audit``: what a scheme promises, what it delivers exactly, what an attack shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast, overload

from jopeq.analysis.empirical import Findings, empirical_epsilon, report_epsilon
from jopeq.analysis.exact import ExactEpsilon, exact_epsilon
from jopeq.analysis.record_audit import RecordAudit, audit_records
from jopeq.random.streams import PrivateStream
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.client_sum import ClientSum
from jopeq.sums.record_sum import RecordSum


@dataclass(frozen=True)
class Audit(Findings):
    """ε of one sample, four ways: asked for, proven, exact, and shown by an attack."""

    exact: ExactEpsilon | None

    @property
    def epsilon(self) -> float:
        """The exact ε against the server where it was computed, else the proven bound."""
        return self.proven if self.exact is None else self.exact.server

    @property
    def is_consistent(self) -> bool:
        """Whether attack ≤ exact ε ≤ proven ε; the attack counts as far as it is certain."""
        allowed = self.proven * (1 + 1e-6)
        return math.isinf(allowed) or self.empirical.certain <= self.epsilon <= allowed


@overload
def audit(
    scheme: Scheme | Sphere,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> Audit: ...


@overload
def audit(
    scheme: RecordSum | ClientSum, *, draws: int = 200_000, confidence: float = 0.95
) -> RecordAudit: ...


def audit(
    scheme: Scheme | Sphere | RecordSum | ClientSum,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> Audit | RecordAudit:
    """Audit a sample or a report of ``scheme`` against the server, sums against who sees them.

    >>> from jopeq import audit, scheme
    >>> report = audit(scheme("jopeq", epsilon=4.0, rate=1.0), draws=20_000)
    >>> report.nominal, round(report.exact.server, 2), report.is_consistent
    (4.0, 10.12, True)
    """
    if isinstance(scheme, RecordSum | ClientSum):
        return audit_records(scheme, draws=draws, confidence=confidence)
    effort: dict[str, Any] = {"draws": draws, "confidence": confidence, "noise": noise}
    return Audit(
        scheme=scheme,
        proven=scheme.guarantee.epsilon,
        empirical=(
            report_epsilon(scheme, **effort)
            if isinstance(scheme, Sphere)
            else empirical_epsilon(scheme, **effort)
        ),
        explanation=_explain(scheme),
        exact=exact_epsilon(scheme),
    )


def _explain(scheme: Scheme | Sphere) -> str:
    """One sentence on why one sample has its ε against the server."""
    if isinstance(scheme, Sphere) or scheme.codec.channel is not None:
        return (
            "The chance of everything that can be sent is a ratio of integers, which changes by at "
            "most e^ε between inputs, so what was asked for is what holds."
        )
    noise, target = scheme.codec.noise, cast(Any, getattr(scheme, "target", None))
    if target is None and scheme.is_private:
        return "ε is what the scheme's own class claims; an attack looks for what contradicts it."
    if target is None:
        return "No noise is added: the server knows the dither, which hides nothing."
    if noise is None:
        return (
            "The dither alone already has the variance of the target, so no noise is added, and "
            "the server, who can recreate the dither, can rule out inputs with certainty."
        )
    own, wanted = math.sqrt(noise.variance), math.sqrt(target.noise.variance)
    if own == wanted:
        return (
            f"Noise of standard deviation {own:.3g} is added before anything else, so all that "
            "follows is post-processing of an ε-private value."
        )
    return (
        f"Dither and noise together have the target's standard deviation {wanted:.3g}, but the "
        f"decoded value gives the dither away, so only noise of standard deviation {own:.3g} "
        "hides the sample, and its thinner tails tell the two ends of the ball apart."
    )
