"""The part of the one training loop (``simulation``) in which kinds of runs differ.

A federation turns the model into the next one, round by round. ``clients.Clients`` train at home
and send payloads that are averaged; ``people.People`` report once or a few times in a lifetime;
``hospitals.Hospitals`` send shares of sums over their records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from jopeq_lab.training.metrics import RoundMetrics
from jopeq_lab.training.models import ModelVector

Samples = tuple[torch.Tensor, torch.Tensor]  # inputs, labels


class DivergedError(ArithmeticError):
    """A loss, an update or the model is no longer finite."""


@dataclass(frozen=True, eq=False)
class Step:
    """A finished round."""

    vector: torch.Tensor  # the model after it: float32 on the CPU, as ``ModelVector.read`` gives
    measures: dict[str, Any]  # fields of ``RoundMetrics``, without those of the evaluation


class Federation(Protocol):
    """One kind of run: who takes part, what they send, and how the server steps."""

    selects_best: bool  # whether the result is the model of the best validation round, or the last
    rounds: range  # the numbers of the rounds, from 1; from 0 with a round before the first
    model: nn.Module  # as it starts, on the run's device; the loop writes vectors into it
    layout: ModelVector
    validation: Samples
    test: Samples

    def step(self, number: int, vector: torch.Tensor, history: Sequence[RoundMetrics]) -> Step:
        """Round ``number``. Raises ``DivergedError``, and then changes nothing."""

    def view(self, inputs: torch.Tensor) -> torch.Tensor:
        """Samples of ``validation`` and ``test`` as the model takes them."""

    def state(self) -> dict[str, Any]:
        """The state for ``restore``, without model and history: tensors, numbers, texts, lists."""

    def restore(self, state: dict[str, Any], history: Sequence[RoundMetrics]) -> None:
        """Continue after the rounds of ``history``."""

    def summary(self) -> dict[str, Any]:
        """The rest of the run's report, as JSON holds it."""


def check_finite(vector: torch.Tensor, number: int, server_lr: float) -> torch.Tensor:
    """Return ``vector``; raise if it is no longer finite."""
    if not bool(torch.isfinite(vector).all()):
        raise DivergedError(
            f"the model is not finite after round {number}: lower server_lr ({server_lr:g})"
        )
    return vector
