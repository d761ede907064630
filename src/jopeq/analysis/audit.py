"""``jopeq.audit``: what a scheme promises, what it delivers exactly, what an attack shows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, overload

from jopeq.analysis.empirical import EmpiricalEpsilon, empirical_epsilon
from jopeq.analysis.exact import ExactEpsilon, exact_epsilon
from jopeq.analysis.record_audit import RecordAudit, audit_records
from jopeq.analysis.sum_audit import SumAudit, audit_sum
from jopeq.random.streams import PrivateStream
from jopeq.schemes.base import Scheme
from jopeq.sums.record_sum import RecordSum
from jopeq.sums.secure_sum import SecureSum


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
        """Whether attack ≤ exact ε ≤ proven ε; the attack counts as far as it is certain."""
        allowed = self.proven * (1 + 1e-6)
        return math.isinf(allowed) or self.empirical.certain <= self.epsilon <= allowed

    @property
    def explanation(self) -> str:
        """One sentence on why the exact ε is what it is."""
        return self.scheme.codec.explain(self.epsilon)

    def as_dict(self) -> dict[str, Any]:
        """The audit under the names that its JSON has."""
        guarantee, shown = self.scheme.guarantee, asdict(self.empirical)
        del shown["certain"]
        return {
            "scheme": self.scheme.spec,
            "unit": guarantee.unit,
            "nominal": self.nominal,
            "proven": self.proven,
            "exact": None if self.exact is None else asdict(self.exact),
            "empirical": shown,
            "delta": guarantee.delta,
            "consistent": self.is_consistent,
            "explanation": self.explanation,
            "assumptions": list(guarantee.assumptions),
        }


@overload
def audit(
    scheme: Scheme,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> Audit: ...


@overload
def audit(
    scheme: SecureSum,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> SumAudit: ...


@overload
def audit(scheme: RecordSum, *, draws: int = 200_000, confidence: float = 0.95) -> RecordAudit: ...


def audit(
    scheme: Scheme | SecureSum | RecordSum,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> Audit | SumAudit | RecordAudit:
    """Audit one sample of ``scheme`` against the server, or sums against who sees them alone.

    >>> from jopeq import audit, scheme
    >>> report = audit(scheme("jopeq", epsilon=4.0, rate=1.0), draws=20_000)
    >>> report.nominal, round(report.exact.server, 2), report.is_consistent
    (4.0, 10.12, True)
    """
    if isinstance(scheme, SecureSum):
        return audit_sum(scheme, draws=draws, confidence=confidence, noise=noise)
    if isinstance(scheme, RecordSum):
        return audit_records(scheme, draws=draws, confidence=confidence)
    return Audit(
        scheme=scheme,
        nominal=scheme.guarantee.nominal,
        proven=scheme.guarantee.epsilon,
        exact=exact_epsilon(scheme),
        empirical=empirical_epsilon(scheme, draws=draws, confidence=confidence, noise=noise),
    )
