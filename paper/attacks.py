"""Figures 4 to 6 from scratch: train the LeNet, attack what is missing, keep what is found.

The paper trains "through 30 epochs". So do we, as in federated training with one client: SGD with
momentum, all 50,000 images. The repository of its attacks trains with Adam.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from jopeq.errors import DataError
from jopeq.files import atomic
from jopeq.versions import versions
from jopeq_lab.attacks.attack import attack
from jopeq_lab.attacks.gradients import GradientMap
from jopeq_lab.attacks.observation import observe, true_gradients
from jopeq_lab.attacks.similarity import scores
from jopeq_lab.training.data import Dataset
from jopeq_lab.training.metrics import evaluate
from jopeq_lab.training.models import ModelVector, build
from jopeq_lab.training.seeding import generator
from paper.cells import (
    EPOCHS,
    FEW,
    IMAGES,
    REPOSITORY_EPOCHS,
    Cell,
    fig6_cells,
    figure_cells,
)
from paper.runs import add_record, origin, read_records

ATTACKS_FILE, PICTURES_FILE = "attacks.jsonl", "attack_pictures.npz"
STAGES_FILE, REPOSITORY_FILE = "lenet_stages.npz", "lenet_repository.npz"
ORIGINALS = "original"  # the name under which the images themselves are kept
PICTURES = 6  # images whose reconstructions are kept
LEARNING_RATE, MOMENTUM, BATCH = 0.1, 0.5, 16
ADAM_RATE, ADAM_BATCH = 1e-3, 64
MODEL, SHAPE, CLASSES, SEED = "lenet", (3, 32, 32), 10, 0
# One descent ends the same however much more it is given; other methods share out their budget
_ONE_DESCENT = ("label", "dlg", "idlg")
_IN_RECORD = ("method", "iterations")  # fields of a configuration that a record has already
Progress = Callable[[int, int, str], None]  # cells done, cells in all, what is going on


def write_npz(path: Path, **arrays: Any) -> None:
    """Replace the file at once: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        np.savez_compressed(file, **arrays)


def read_npz(path: Path, *names: str) -> list[NDArray[Any]]:
    """The arrays of these names; nothing in the file can run."""
    with np.load(path, allow_pickle=False) as held:
        return [held[name] for name in names]


def attack_figure(
    name: str,
    dataset: Dataset,
    results: Path,
    *,
    device: str = "cpu",
    images: int = IMAGES,
    progress: Progress = lambda *news: None,
) -> None:
    """Attack what ``results`` lacks of a figure; Figure 4 also trains the LeNet for 30 epochs."""
    cells = figure_cells(name)
    images = FEW if name == "fine" else images
    if len(dataset.train_labels) < images:
        raise DataError(
            f"the figures attack {images} images, the data set has only "
            f"{len(dataset.train_labels)} to train on: give the whole of CIFAR-10"
        )

    def trained(epoch: int, accuracy: float) -> None:
        progress(0, len(cells), f"training, epoch {epoch}: {accuracy:.1%}")

    if name == "repository":
        stages = train_stages(
            dataset, results / REPOSITORY_FILE, REPOSITORY_EPOCHS, device, trained, adam=True
        )
    else:
        epochs = range(EPOCHS + 1 if name == "fig4" else 1)
        stages = train_stages(dataset, results / STAGES_FILE, epochs, device, trained)
    victims = dataset.train_inputs[:images], dataset.train_labels[:images]
    attack_cells(cells, *victims, stages, results, device=device, progress=progress)


# The model under attack


def train_stages(
    dataset: Dataset,
    path: Path,
    epochs: Sequence[int],
    device: str = "cpu",
    progress: Callable[[int, float], None] = lambda *news: None,
    *,
    adam: bool = False,
) -> NDArray[np.float32]:
    """The parameters (epoch, d) after these epochs, kept in ``path``; NaN in between.

    ``adam`` trains as the repository of the paper's attacks does. Momentum restarts every epoch.
    """
    model = build(MODEL, dataset.input_shape, dataset.classes, SEED)
    layout = ModelVector(model)
    stages = np.full((epochs[-1] + 1, layout.size), np.nan, dtype=np.float32)
    if path.exists():
        (found,) = read_npz(path, "parameters")
        if found.shape[1] != layout.size:
            raise DataError(
                f"{path} holds another model, of {found.shape[1]} parameters where {MODEL} "
                f"has {layout.size}: delete it to train again"
            )
        if len(found) >= len(epochs):
            stages[list(epochs)] = found[: len(epochs)]
            return stages
    inputs, labels = dataset.train_inputs.to(device), dataset.train_labels.to(device)
    test = dataset.test_inputs.to(device), dataset.test_labels.to(device)
    kept = torch.optim.Adam(model.to(device).parameters(), lr=ADAM_RATE)
    accuracies = []
    for epoch in range(epochs[-1] + 1):
        if epoch:
            fresh = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
            optimizer, size = (kept, ADAM_BATCH) if adam else (fresh, BATCH)
            order = torch.randperm(len(labels), generator=generator(SEED, "attack batches", epoch))
            for batch in torch.split(order.to(device), size):
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimizer.step()
        result = evaluate(model, *test)
        accuracy = 0.0 if result is None else result.accuracy
        if epoch in epochs:
            stages[epoch] = layout.read(model).numpy()
            accuracies.append(accuracy)
            if not np.isfinite(stages[epoch]).all():
                raise RuntimeError(f"training diverged in epoch {epoch}")
        progress(epoch, accuracy)
    write_npz(path, parameters=stages[list(epochs)], accuracies=np.array(accuracies))
    return stages


# The attacks


@dataclass(frozen=True, kw_only=True)
class Attacked(Cell):
    """The kept part of a cell: small enough to commit, enough to redraw everything."""

    images: int
    iterations: int
    ssim: list[float]
    mse: list[float]
    loss: list[float | None]
    status: dict[str, int]
    labels_right: int
    evaluations: float  # mean over images
    settings: dict[str, Any]
    mse_of_bytes: list[float] | None = None  # as the repository of the paper's attacks; newer ones
    snr: float | None = None  # of earlier records, as is the next
    seconds: float | None = None

    def is_final(self, iterations: int) -> bool:
        """Tell if this number of iterations would have changed nothing."""
        is_improving = self.method not in _ONE_DESCENT or "spent" in self.status
        return self.iterations >= iterations or not is_improving


def read_attacks(path: Path) -> list[Attacked]:
    """The cells in a file, each as last attacked; none if there is no file."""
    return list({(one.key, one.images): one for one in read_records(path, Attacked)}.values())


def read_pictures(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Reconstructions (PICTURES, C, H, W) by ``Cell.picture``; none if there is no file."""
    if not path.exists():
        return {}
    names, pictures = read_npz(path, "names", "pictures")
    return {str(name): picture for name, picture in zip(names, pictures, strict=True)}


def attack_cells(
    cells: Iterable[Cell],
    images: torch.Tensor,
    labels: torch.Tensor,
    stages: NDArray[np.float32],
    results: Path,
    *,
    device: str = "cpu",
    progress: Progress = lambda *news: None,
) -> list[Attacked]:
    """Attack the cells that ``results`` lacks, keep what is found, and give all of them."""
    path, wanted = results / ATTACKS_FILE, list({cell.key: cell for cell in cells}.values())
    model = build(MODEL, SHAPE, CLASSES, seed=0)
    seen = GradientMap(model, SHAPE, parameters=torch.from_numpy(stages), device=device)
    shown = {cell.key: cell.picture for cell in fig6_cells()}
    done = {one.key: one for one in read_attacks(path) if one.images == len(images)}
    missing = [cell for cell in wanted if cell.key not in done]
    results.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(missing, start=len(wanted) - len(missing)):
        progress(number, len(wanted), f"{cell.label} by {cell.method}")
        one, found = _attack(cell, seen, images, labels)
        about = {"weights": _weights(stages[cell.epoch]), "commit": origin(device)["commit"]}
        about["device"] = "cpu" if device == "cpu" else origin(device)["machine"]
        done[cell.key] = replace(one, settings={**one.settings, **about})
        with path.open("a", encoding="utf-8") as file:
            add_record(file, done[cell.key])
        if cell.key in shown:
            held = read_pictures(results / PICTURES_FILE)
            held[cell.picture] = _pixels(found[:PICTURES])
            held[ORIGINALS] = _pixels(images[:PICTURES])
            names, pictures = np.array(list(held)), np.stack(list(held.values()))
            write_npz(results / PICTURES_FILE, names=names, pictures=pictures)
    return [done[cell.key] for cell in wanted]


def _weights(stage: NDArray[np.float32]) -> str:
    """Fingerprint the attacked weights."""
    weights = np.ascontiguousarray(stage, dtype="<f4").tobytes()
    return f"SHA-256 {hashlib.sha256(weights).hexdigest()[:16]}"


def _attack(
    cell: Cell, seen: GradientMap, images: torch.Tensor, labels: torch.Tensor
) -> tuple[Attacked, torch.Tensor]:
    """The kept part of one cell, and all reconstructions."""
    config, count = cell.config(), len(images)
    stage = torch.full((count,), cell.epoch)
    truth = true_gradients(seen, images, labels, stage).double().cpu()
    observed = observe(cell.scheme, truth, seen.layout)
    given = {"labels": labels, "which": stage, "names": list(range(count))}
    result = attack(seen, observed, config, **given)
    quality, grey = scores(result.images, images), scores(torch.full_like(images, 0.5), images)
    peak = truth.abs().amax(1) / truth.square().mean(1).sqrt()
    one = Attacked(
        **vars(cell),
        images=count,
        iterations=config.iterations,
        ssim=[round(value, 4) for value in quality.ssim.tolist()],
        mse=[float(f"{value:.4g}") for value in quality.mse.tolist()],
        mse_of_bytes=[float(f"{value:.4g}") for value in _mse_of_bytes(result.images, images)],
        loss=[float(f"{v:.4g}") if np.isfinite(v) else None for v in result.losses.tolist()],
        status=dict(sorted(Counter(result.status).items())),
        labels_right=int((result.labels == labels).sum()),
        evaluations=round(float(result.evaluations.double().mean()), 1),
        settings={
            **{name: value for name, value in vars(config).items() if name not in _IN_RECORD},
            "peak": round(float(peak.max()), 2),  # the largest entry over the root mean square
            "model": MODEL,
            "dtype": str(seen.dtype).removeprefix("torch."),
            **versions("numpy", "scipy"),
            "torch": torch.__version__,
            "grey_ssim": round(float(grey.ssim.mean()), 4),  # of an attacker who saw nothing
            "grey_mse": round(float(grey.mse.mean()), 4),
        },
    )
    return one, result.images


def _pixels(images: torch.Tensor) -> NDArray[np.uint8]:
    levels = (images.nan_to_num(0.0).clamp(0.0, 1.0) * 255.0).round()
    return np.asarray(levels.to(torch.uint8).numpy())


def _mse_of_bytes(found: torch.Tensor, images: torch.Tensor) -> list[float]:
    """MSE of pixels turned into bytes without clamping: those beyond 0 to 1 wrap around."""
    one, two = ((each.cpu() * 255.0).long() % 256 / 255.0 for each in (found, images))
    return (one - two).square().flatten(1).mean(1).tolist()
