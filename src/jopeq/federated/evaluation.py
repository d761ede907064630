"""Loss and accuracy of a model on samples it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

_CHUNK = 200  # larger ones leave a CPU's cache
_GPU_CHUNK = 2000


@dataclass(frozen=True)
class Evaluation:
    """Mean cross-entropy and the share of right answers."""

    loss: float
    accuracy: float


def evaluate(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Evaluation | None:
    """The model in evaluation mode, a chunk of samples at a time; None without samples.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> evaluate(model, torch.zeros(0, 1, 2, 2), torch.zeros(0, dtype=torch.int64)) is None
    True
    """
    if not len(labels):
        return None
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), inputs.dtype)
    was_training = model.training
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=inputs.device)
    right = torch.zeros((), dtype=torch.int64, device=inputs.device)
    chunk = _CHUNK if inputs.device.type == "cpu" else _GPU_CHUNK
    try:
        with torch.inference_mode():
            for first in range(0, len(labels), chunk):
                some = slice(first, first + chunk)
                logits = model(inputs[some].to(kind))
                loss += functional.cross_entropy(logits, labels[some], reduction="sum")
                right += (logits.argmax(1) == labels[some]).sum()
    finally:
        model.train(was_training)
    return Evaluation(float(loss) / len(labels), int(right) / len(labels))
