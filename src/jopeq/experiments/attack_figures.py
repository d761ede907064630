"""Figures 4 to 6 from scratch: train where it is needed, attack, keep."""

from __future__ import annotations

import time
from pathlib import Path

from jopeq.errors import DataError
from jopeq.experiments.attack_cells import IMAGES, figure_cells
from jopeq.experiments.attack_runs import Attacked, AttackRunner, Progress
from jopeq.experiments.attack_training import EPOCHS, train_stages
from jopeq.federated.data import Dataset

ATTACKS_FILE, PICTURES_FILE = "attacks.jsonl", "attack_pictures.npz"
STAGES_FILE = "lenet_stages.npz"


def attack_figure(
    name: str,
    dataset: Dataset,
    results: Path,
    *,
    device: str = "cpu",
    images: int = IMAGES,
    iterations: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[list[Attacked], int]:
    """Attack what ``results`` lacks of a figure; what there is now, and how many cells it has.

    Figure 4 also trains the LeNet for 30 epochs; what was trained and attacked is never done again.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    cells = figure_cells(name)
    if len(dataset.train_labels) < images:
        raise DataError(
            f"the figures attack {images} images, the data set has only "
            f"{len(dataset.train_labels)} to train on: give the whole of CIFAR-10"
        )

    def trained(epoch: int, epochs: int, accuracy: float) -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError
        if progress is not None:
            progress(0, len(cells), f"training, epoch {epoch} of {epochs}: {accuracy:.1%}")

    epochs = EPOCHS if name == "fig4" else 0
    try:
        stages = train_stages(
            dataset, results / STAGES_FILE, epochs=epochs, device=device, progress=trained
        )
    except TimeoutError:
        return [], len(cells)
    runner = AttackRunner(
        dataset.train_inputs[:images],
        dataset.train_labels[:images],
        stages,
        results / ATTACKS_FILE,
        pictures=results / PICTURES_FILE,
        device=device,
        iterations=iterations,
        deadline=deadline,
        progress=progress,
    )
    return runner.run(cells), len(cells)
