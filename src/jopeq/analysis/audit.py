"""``jopeq.audit``: the ε that a scheme promises, its exact ε, and the ε that an attack shows."""

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
    """Four values of ε for one sample: requested, proven, exact, and shown by an attack."""

    exact: ExactEpsilon | None

    @property
    def epsilon(self) -> float:
        """The exact ε against the server if it was computed, else the proven bound."""
        return self.proven if self.exact is None else self.exact.server

    @property
    def is_consistent(self) -> bool:
        """True if attack ≤ exact ε ≤ proven ε, with the attack's certain bound."""
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
    """Audit a sample or report of ``scheme`` against the server, or sums against their observers.

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
    """One sentence on the reason for a sample's ε against the server."""
    if isinstance(scheme, Sphere) or scheme.codec.channel is not None:
        return (
            "The chance of every message is a ratio of integers that differs by at most e^ε "
            "between inputs, so the requested ε holds."
        )
    noise, target = scheme.codec.noise, cast(Any, getattr(scheme, "target", None))
    if target is None and scheme.is_private:
        return "The scheme's own class claims this ε; an attack looks for contradictions."
    if target is None:
        return "No noise is added: the server knows the dither, which hides nothing."
    if noise is None:
        return (
            "The dither alone has the target's variance, so no noise is added. The server can "
            "recreate the dither and rule out inputs with certainty."
        )
    own, wanted = math.sqrt(noise.variance), math.sqrt(target.noise.variance)
    if own == wanted:
        return (
            f"Noise of standard deviation {own:.3g} is added first, so everything after it is "
            "post-processing of an ε-private value."
        )
    return (
        f"Dither and noise together have the target's standard deviation {wanted:.3g}, but the "
        f"decoded value reveals the dither. Only noise of standard deviation {own:.3g} hides the "
        "sample, and its thinner tails tell the two ends of the ball apart."
    )
