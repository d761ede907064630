"""A privacy statement that says of what, against whom, and on which assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

ADVERSARIES = {
    "server": "the server, who knows payload, dither, scale and scheme",
    "decoded": "an observer of the decoded update alone",
    "network": "an eavesdropper who sees the payload but lacks the key",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """ε (and δ) of one unit against one adversary.

    ``epsilon`` is what is proven, inf when nothing is; ``nominal`` what was asked for (None when
    privacy was not asked for). ``is_exact`` tells whether some pair of inputs really attains ε, or
    whether it is an upper bound.

    >>> g = Guarantee(epsilon=4.0, nominal=4.0, is_exact=True)
    >>> g.for_update(7850).epsilon
    31400.0
    >>> print(g)
    ε = 4 per sample of 1 entry against the server, who knows payload, dither, scale and scheme.
    """

    epsilon: float
    nominal: float | None = None
    delta: float = 0.0
    unit: str = "sample"
    adversary: str = "server"
    is_exact: bool = False
    sample_size: int = 1
    assumptions: tuple[str, ...] = ()

    def for_update(self, dimension: int) -> Guarantee:
        """All ⌈d/L⌉ samples of one update: ε and δ add up."""
        if dimension < 0:
            raise ValueError(f"dimension must not be negative, got {dimension}")
        if self.unit != "sample":
            raise ValueError(f"for_update starts from one sample, this is of one {self.unit}")
        samples = -(-dimension // self.sample_size)
        return self._composed(samples, "update", f"{samples} samples composed")

    def for_client(self, dimension: int, rounds: int) -> Guarantee:
        """All updates a client sends in ``rounds`` rounds."""
        if rounds < 0:
            raise ValueError(f"rounds must not be negative, got {rounds}")
        update = self if self.unit == "update" else self.for_update(dimension)
        return update._composed(rounds, "client", f"{rounds} rounds composed")

    def _composed(self, times: int, unit: str, note: str) -> Guarantee:
        return replace(
            self,
            epsilon=self.epsilon * times if times else 0.0,
            nominal=None if self.nominal is None else self.nominal * times,
            delta=min(1.0, self.delta * times),
            unit=unit,
            assumptions=(*self.assumptions, note),
        )

    def __str__(self) -> str:
        entries = f"{self.sample_size} entr{'y' if self.sample_size == 1 else 'ies'}"
        unit = f"sample of {entries}" if self.unit == "sample" else self.unit
        who = ADVERSARIES[self.adversary]
        if math.isinf(self.epsilon):
            head = f"No privacy per {unit} against {who}"
        else:
            sign = "=" if self.is_exact else "≤"
            delta = f", δ {sign} {self.delta:.3g}" if self.delta else ""
            head = f"ε {sign} {self.epsilon:.4g}{delta} per {unit} against {who}"
        if self.nominal is not None and not math.isclose(self.nominal, self.epsilon, rel_tol=1e-6):
            head += f" (asked for: {self.nominal:.4g})"
        return "; ".join((head, *self.assumptions)) + "."
