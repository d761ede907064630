"""What both ends share: the scheme, the model, and the digits that stand for patients."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Context
from sklearn.datasets import load_digits
from torch import Tensor, nn

import jopeq

HOSPITALS, PATIENTS = 10, 140  # in each hospital; the other digits are the server's test data

scheme = jopeq.RecordSum(
    epsilon=1.0,
    delta=1e-5,
    clip=0.3,
    records=HOSPITALS * PATIENTS,
    sampling=1.0,
    rounds=34,  # 30, and a few attempts more
    clients=HOSPITALS,
    threshold=8,
    cap=200,
)


def Net() -> nn.Module:  # noqa: N802
    """A linear model that starts at 0."""
    model = nn.Linear(65, 10, bias=False)
    nn.init.zeros_(model.weight)
    return model


def load_records(context: Context) -> tuple[Tensor, Tensor]:
    """The patients of this hospital: ``hospital`` of its node's configuration."""
    first = PATIENTS * int(context.node_config["hospital"])
    inputs, labels = _digits()
    return inputs[first : first + PATIENTS], labels[first : first + PATIENTS]


def accuracy(model: nn.Module) -> float:
    """On the digits that no hospital has."""
    inputs, labels = (part[HOSPITALS * PATIENTS :] for part in _digits())
    with torch.no_grad():
        return float((model(inputs).argmax(1) == labels).float().mean())


def _digits() -> tuple[Tensor, Tensor]:
    """Rows of length 1 and a constant; nothing is computed from other rows."""
    images, labels = load_digits(return_X_y=True)
    shuffled = np.argsort(np.arange(len(labels)) * 7919 % len(labels))
    rows = images[shuffled] / 16.0 - 0.3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.hstack([rows, np.full((len(rows), 1), 0.3)])
    return torch.tensor(rows, dtype=torch.float32), torch.tensor(labels[shuffled])
