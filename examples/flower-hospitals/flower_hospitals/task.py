"""The parts that both ends share: the survey, the scheme of training, the model, the patients."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from flwr.app import Context
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import jopeq
from jopeq.statistics import Answers, Mean, Survey, Variance
from jopeq.torch import Standardise

HOSPITALS, PATIENTS = 10, 40  # in each hospital; the server tests on the other 169
_DATA = load_breast_cancer()
_LINE = r"^(\w[\w ]*\((?:mean|standard error|worst)\)): +([\d.]+) +([\d.]+)$"
BOUNDS = {  # public: the description of the table has published them
    name: (float(low), float(high))
    for name, low, high in re.findall(_LINE, _DATA.DESCR, re.MULTILINE)
}
_ORDER = np.random.default_rng(0).permutation(len(_DATA.target))

survey = Survey(
    [kind(name, *bounds) for name, bounds in BOUNDS.items() for kind in (Mean, Variance)],
    epsilon=0.2,
    delta=1e-4,
    clients=HOSPITALS,
    threshold=8,
    minimum=100,
    complete=True,  # it is public that no value is missing
)
scheme = jopeq.RecordSum(
    epsilon=0.8,
    delta=1e-4,
    clip=1.0,
    records=HOSPITALS * PATIENTS,
    sampling=1.0,
    rounds=34,  # 30, and a few attempts more
    clients=HOSPITALS,
    threshold=8,
    most_records=60,
)


class Net(nn.Module):
    """Features standardised by the survey's answers, brought to length 1; then a linear model.

    The answers are buffers: a hospital's model gets them with the server's.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        super().__init__()
        self.standardise = Standardise(len(BOUNDS) if answers is None else answers)
        self.linear = nn.Linear(len(BOUNDS), 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, values: Tensor) -> Tensor:
        rows = nn.functional.normalize(self.standardise(values), dim=-1)
        return self.linear(rows).squeeze(-1)


def load_table(context: Context) -> dict[str, Any]:
    """The patients of this hospital, one column a measurement, for surveys."""
    return dict(zip(BOUNDS, _DATA.data[_own(context)].T, strict=True))


def load_records(context: Context) -> tuple[Tensor, Tensor]:
    """The patients of this hospital, and whether each tumour is benign, for training."""
    return _tensors(_own(context))


def accuracy(model: nn.Module) -> float:
    """On the patients that no hospital has."""
    inputs, labels = _tensors(_ORDER[HOSPITALS * PATIENTS :])
    with torch.no_grad():
        return float(((model(inputs) > 0) == (labels > 0)).float().mean())


def _own(context: Context) -> Any:
    """Numbers of the patients of this hospital: ``hospital`` of its node's configuration."""
    first = PATIENTS * int(context.node_config["hospital"])
    return _ORDER[first : first + PATIENTS]


def _tensors(patients: Any) -> tuple[Tensor, Tensor]:
    values, labels = _DATA.data[patients], _DATA.target[patients]
    return torch.tensor(values, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)
