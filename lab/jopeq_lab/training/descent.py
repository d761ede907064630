"""The server's optimizer if everybody sends gradients at the same weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Gradient descent with Nesterov's momentum, and the mean of the last weights.

    asked   w + μv                          where people compute their gradients
    step    v ← μv − η_t·g,  w ← w + v      η_t = lr·(1 − decay·t/rounds), t from 0; where it
            falls as a cosine, lr·½(1 + cos(πt/rounds))
    result  the mean of w over the last ``average``·rounds, at least over the last one
    """

    rounds: int
    lr: float
    momentum: float = 0.0
    decay: float = 0.0
    is_cosine: bool = False
    average: float = 0.0


class Server:
    """The weights during training; the fields of ``STATE`` are the whole state."""

    STATE = ("weights", "velocity", "total", "count")

    def __init__(
        self,
        rule: Descent,
        weights: torch.Tensor,
        velocity: torch.Tensor | None = None,
        total: torch.Tensor | None = None,
        count: int = 0,
    ) -> None:
        self.rule = rule
        self.weights = weights.double()
        self.velocity = torch.zeros_like(self.weights) if velocity is None else velocity
        self.total = torch.zeros_like(self.weights) if total is None else total
        self.count = count

    @property
    def state(self) -> dict[str, torch.Tensor | int]:
        return {name: getattr(self, name) for name in self.STATE}

    @property
    def asked(self) -> torch.Tensor:
        """The weights at which people compute their gradients."""
        return (self.weights + self.rule.momentum * self.velocity).float()

    @property
    def result(self) -> torch.Tensor:
        """The weights to use."""
        return (self.total / self.count if self.count else self.weights).float()

    def step(self, number: int, gradient: torch.Tensor) -> None:
        """Round ``number``, from 0."""
        rule = self.rule
        part = number / rule.rounds
        fall = 0.5 - 0.5 * math.cos(math.pi * part) if rule.is_cosine else rule.decay * part
        rate = rule.lr * (1.0 - fall)
        self.velocity = rule.momentum * self.velocity - rate * gradient
        self.weights = self.weights + self.velocity
        last = max(1, round(rule.average * rule.rounds))
        if number >= rule.rounds - last:
            self.total = self.total + self.weights
            self.count += 1
