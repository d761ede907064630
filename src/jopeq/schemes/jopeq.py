"""JoPEQ: noise matched to the dither, so that both together have the target's covariance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from jopeq.noise import Law
from jopeq.schemes.private import PrivateQuantizedScheme


@dataclass(frozen=True, kw_only=True)
class JoPEQ(PrivateQuantizedScheme):
    """The paper's scheme: q = Q(ζh + n + d), decoded ζ⁻¹(q − d) (Algorithm 1).

    The target is Laplace on Z and multivariate t on other lattices unless ``law`` says otherwise
    ("laplace", "t", "l2" or "gaussian").
    The noise of (14) and (15) does not exist (its characteristic function would have poles on the
    dual lattice), so n is of the target's family with the target's covariance minus the dither's;
    where that is not positive (Theorem III.3's regime) nothing is added.

    The server knows d, so that n alone hides the sample: ``guarantee.epsilon`` is the ε of n,
    ``guarantee.nominal`` the ε of the target.

    >>> JoPEQ(epsilon=4.0, rate=1.0).guarantee.nominal
    4.0
    >>> round(JoPEQ(epsilon=4.0, rate=1.0).guarantee.epsilon, 2)
    10.12
    """

    name: ClassVar[str] = "jopeq"

    law: str | None = None

    @property
    def _law_name(self) -> str:
        if self.law is not None:
            return self.law
        return "laplace" if self.dimension == 1 else "t"

    @cached_property
    def noise(self) -> Law | None:
        return self._target.noise.matched(self._cells.covariance)
