"""The ε that Flower's ``LocalDpMod`` really has.

It clips the update to norm C and adds Gaussian noise of σ = sensitivity·√(2 ln(1.25/δ))/ε to every
entry. ``sensitivity`` is a free parameter, but the update's sensitivity is not: two clipped updates
are up to 2C apart, and one is up to C from no update at all. Noise for a smaller number has another
ε; the formula holds for ε ≤ 1 alone; and rounds are not added up.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from jopeq.checks import check_count, check_delta, check_positive


@dataclass(frozen=True, kw_only=True)
class LocalDp:
    """The mod's settings; ε of a client against the server, in ``rounds`` rounds, at the same δ.

    >>> shipped = LocalDp(clip=1.0, sensitivity=1e-4, epsilon=10.0, delta=1e-5)
    >>> f"{shipped.absent:.1e}", f"{shipped.replaced:.1e}"
    ('2.1e+08', '8.5e+08')
    """

    clip: float
    sensitivity: float
    epsilon: float
    delta: float
    rounds: int = 1

    def __post_init__(self) -> None:
        for name in ("clip", "sensitivity", "epsilon"):
            check_positive(name, getattr(self, name))
        check_delta(self.delta)
        if self.delta == 0.0:
            raise ValueError("delta must be above 0: Gaussian noise has no pure ε")
        check_count("rounds", self.rounds, 1)

    @property
    def sigma(self) -> float:
        """σ that the mod adds to every entry."""
        return self.sensitivity * self._factor / self.epsilon

    @property
    def replaced(self) -> float:
        """Exact ε: one update compared with any other."""
        return self._epsilon(2.0 * self.clip)

    @property
    def absent(self) -> float:
        """Exact ε: one update compared with none, a weaker promise."""
        return self._epsilon(self.clip)

    @property
    def needed(self) -> float:
        """The ``sensitivity`` with which the mod has the ε asked for, in all rounds together."""
        from dp_accounting import get_sigma_gaussian

        distance = 2.0 * self.clip * math.sqrt(self.rounds)
        sigma = distance * float(get_sigma_gaussian(self.epsilon, self.delta))
        return sigma * self.epsilon / self._factor

    def as_dict(self) -> dict[str, Any]:
        """Settings and findings, under the names that their JSON has."""
        found = ("sigma", "replaced", "absent", "needed")
        return {**asdict(self), **{name: getattr(self, name) for name in found}}

    @property
    def _factor(self) -> float:
        return math.sqrt(2.0 * math.log(1.25 / self.delta))

    def _epsilon(self, distance: float) -> float:
        """n Gaussian mechanisms are one whose distance is √n times as long."""
        from dp_accounting import get_epsilon_gaussian

        return float(
            get_epsilon_gaussian(self.sigma / (distance * math.sqrt(self.rounds)), self.delta)
        )
