"""Learning rates: constant, reduced on a plateau, or the 1/t of Theorem III.5.

A schedule is a pure function of what has happened so far, so a resumed run needs no state of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("constant", "plateau", "theorem")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of every local step.

    - ``constant``: ``lr``.
    - ``plateau``: ``lr`` times ``factor`` for every time that the validation accuracy did not
      improve by more than ``threshold`` (relative) in over ``patience`` rounds; the law and the
      defaults of PyTorch's ``ReduceLROnPlateau``, applied once a round.
    - ``theorem``: η_t = τ/(ρ_c(t + φ)) with φ = τ·max(1, 4ρ_s/ρ_c) (Theorem III.5), t counting
      all local steps since the first round, ρ_c = ``convexity`` and ρ_s = ``smoothness``. The
      defaults start at 0.1.

    >>> Schedule(kind="theorem").rates(0, [], steps=2)[0]
    0.1
    """

    kind: str = "constant"
    lr: float = 0.1
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    convexity: float = 1.0
    smoothness: float = 2.5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"schedule must be one of {', '.join(KINDS)}, got {self.kind!r}")
        for name in ("lr", "convexity", "smoothness"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if not 0.0 < self.factor < 1.0:
            raise ValueError(f"plateau_factor must lie between 0 and 1, got {self.factor!r}")
        if self.patience < 0:
            raise ValueError(f"plateau_patience must not be negative, got {self.patience!r}")

    def rates(self, round_number: int, accuracies: Sequence[float], steps: int) -> list[float]:
        """η of each of the ``steps`` of a round; ``accuracies`` are of the rounds before it."""
        if self.kind == "constant":
            return [self.lr] * steps
        if self.kind == "plateau":
            return [self.lr * self.factor ** self._reductions(accuracies)] * steps
        first = round_number * steps
        shift = steps * max(1.0, 4.0 * self.smoothness / self.convexity)
        return [steps / (self.convexity * (first + t + shift)) for t in range(steps)]

    def _reductions(self, accuracies: Sequence[float]) -> int:
        best, bad, reductions = -math.inf, 0, 0
        for accuracy in accuracies:
            if accuracy > best * (1.0 + self.threshold):
                best, bad = accuracy, 0
            else:
                bad += 1
            if bad > self.patience:
                reductions, bad = reductions + 1, 0
        return reductions
