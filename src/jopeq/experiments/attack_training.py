"""The LeNet of the attacks, trained on CIFAR-10 and kept after every epoch.

The paper trains "through 30 epochs" and says no more; this is its setting for federated training,
with one client: SGD, learning rate 0.1, momentum 0.5, batches of 16, all 50,000 images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from jopeq.attacks.npz import read_npz, write_npz
from jopeq.errors import DataError
from jopeq.federated.data import Dataset
from jopeq.federated.evaluation import evaluate
from jopeq.federated.models import build
from jopeq.federated.seeding import generator
from jopeq.federated.vector import ModelVector

EPOCHS = 30
LEARNING_RATE, MOMENTUM, BATCH = 0.1, 0.5, 16
MODEL, SHAPE, CLASSES = "lenet", (3, 32, 32), 10
SEED = 0


@dataclass(frozen=True, eq=False)
class Stages:
    """The parameters (epochs + 1, d) from the first weights on, and the test accuracies."""

    parameters: NDArray[np.float32]
    accuracies: NDArray[np.float64]

    @property
    def epochs(self) -> int:
        return len(self.parameters) - 1


def train_stages(
    dataset: Dataset,
    path: Path,
    *,
    epochs: int = EPOCHS,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int, float], None] | None = None,
) -> Stages:
    """Train, saving after every epoch; epochs that ``path`` holds already are not trained again."""
    model = build(MODEL, dataset.input_shape, dataset.classes, SEED)
    layout = ModelVector(model)
    if path.exists():
        stages = read_stages(path)
    else:
        first = layout.read(model).numpy()[None]
        stages = Stages(first, np.array([_accuracy(model.to(device), dataset)]))
        _save(stages, path)
    if stages.parameters.shape[1] != layout.size:
        raise DataError(
            f"{path} holds another model, of {stages.parameters.shape[1]} parameters where {MODEL} "
            f"has {layout.size}: delete it to train again"
        )
    inputs, labels = dataset.train_inputs.to(device), dataset.train_labels.to(device)
    while stages.epochs < epochs:
        number = stages.epochs + 1
        layout.write(model.to("cpu"), torch.from_numpy(stages.parameters[-1]))
        model.to(device)
        # momentum starts anew with the epoch, so that a resumed run is the same run
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        order = torch.randperm(len(labels), generator=generator(SEED, "attack batches", number))
        for batch in torch.split(order.to(device), BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs[batch]), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        accuracy = _accuracy(model, dataset)
        stages = Stages(
            np.concatenate((stages.parameters, layout.read(model).numpy()[None])),
            np.append(stages.accuracies, accuracy),
        )
        if not np.isfinite(stages.parameters[-1]).all():
            raise RuntimeError(f"training diverged in epoch {number}")
        _save(stages, path)
        if progress is not None:
            progress(number, epochs, accuracy)
    return Stages(stages.parameters[: epochs + 1], stages.accuracies[: epochs + 1])


def read_stages(path: Path) -> Stages:
    """What ``train_stages`` saved."""
    return Stages(*read_npz(path, "parameters", "accuracies"))


def _save(stages: Stages, path: Path) -> None:
    write_npz(path, parameters=stages.parameters, accuracies=stages.accuracies)


def _accuracy(model: torch.nn.Module, dataset: Dataset) -> float:
    device = next(model.parameters()).device
    found = evaluate(model, dataset.test_inputs.to(device), dataset.test_labels.to(device))
    return 0.0 if found is None else found.accuracy
