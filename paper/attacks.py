"""Figures 4 to 6 from scratch: train the LeNet, attack what is missing, keep what is found.

The paper trains "through 30 epochs" and says no more; this is its setting for federated training,
with one client: SGD, learning rate 0.1, momentum 0.5, batches of 16, all 50,000 images. The
repository of its attacks trains with Adam, learning rate 0.001, in batches of 64.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from jopeq.errors import DataError
from jopeq.lab.attacks.attack import Reconstructions, attack
from jopeq.lab.attacks.compare import read_npz, write_npz
from jopeq.lab.attacks.gradients import GradientMap
from jopeq.lab.attacks.observation import Observation, observe, true_gradients
from jopeq.lab.attacks.similarity import scores
from jopeq.lab.training.data import Dataset
from jopeq.lab.training.metrics import evaluate
from jopeq.lab.training.models import ModelVector, build
from jopeq.lab.training.seeding import generator
from jopeq.versions import versions
from paper.cells import (
    EPOCHS,
    IMAGES,
    REPOSITORY_EPOCHS,
    Cell,
    fig6_cells,
    figure_cells,
    without_channel,
)
from paper.kept_runs import add_record, read_records
from paper.runs import origin

ATTACKS_FILE, PICTURES_FILE = "attacks.jsonl", "attack_pictures.npz"
STAGES_FILE, REPOSITORY_FILE = "lenet_stages.npz", "lenet_repository.npz"
ORIGINALS = "original"  # the name under which the images themselves are kept
PICTURES = 6  # images whose reconstructions are kept
LEARNING_RATE, MOMENTUM, BATCH = 0.1, 0.5, 16
ADAM_RATE, ADAM_BATCH = 1e-3, 64
MODEL, SHAPE, CLASSES, SEED = "lenet", (3, 32, 32), 10, 0
_MOST_AT_ONCE = 2800  # images of one batch on a GPU, which more would not use better
_IMAGE_BYTES = 8 << 20  # of its memory for an image: a hundred pairs of history, patches
# One descent ends the same however much more it is given; other methods share out their budget
_ONE_DESCENT = ("label", "dlg", "idlg")
_IN_RECORD = ("method", "iterations")  # fields of a configuration that a record has already
Progress = Callable[[int, int, str], None]  # cells done, cells in all, what is going on


def attack_figure(
    name: str,
    dataset: Dataset,
    results: Path,
    *,
    device: str = "cpu",
    images: int = IMAGES,
    iterations: int | None = None,
    seconds: float | None = None,
    progress: Progress = lambda *news: None,
) -> tuple[int, int]:
    """Attack what ``results`` lacks of a figure; how many cells there are now, and how many it has.

    Figure 4 also trains the LeNet for 30 epochs; what was trained and attacked is never done again.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    cells = figure_cells(name)
    if len(dataset.train_labels) < images:
        raise DataError(
            f"the figures attack {images} images, the data set has only "
            f"{len(dataset.train_labels)} to train on: give the whole of CIFAR-10"
        )

    def trained(epoch: int, accuracy: float) -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError
        progress(0, len(cells), f"training, epoch {epoch} of {EPOCHS}: {accuracy:.1%}")

    epochs = EPOCHS if name == "fig4" else 0
    try:
        if name == "repository":
            stages = train_repository(dataset, results / REPOSITORY_FILE, device, trained)
        else:
            stages = train_stages(dataset, results / STAGES_FILE, epochs, device, trained)
    except TimeoutError:
        return 0, len(cells)
    victims = dataset.train_inputs[:images], dataset.train_labels[:images]
    options = {"iterations": iterations, "deadline": deadline, "progress": progress}
    runner = AttackRunner(*victims, stages, results, device=device, **options)
    return len(runner.run(cells)), len(cells)


# The model under attack


def train_stages(
    dataset: Dataset,
    path: Path,
    epochs: int = EPOCHS,
    device: str = "cpu",
    progress: Callable[[int, float], None] = lambda *news: None,
) -> NDArray[np.float32]:
    """The parameters (epochs + 1, d) from the first weights on, kept after every epoch.

    Epochs that ``path`` holds already are not trained again.
    """
    model = build(MODEL, dataset.input_shape, dataset.classes, SEED)
    layout = ModelVector(model)
    test = dataset.test_inputs.to(device), dataset.test_labels.to(device)
    if path.exists():
        stages, accuracies = read_npz(path, "parameters", "accuracies")
    else:
        stages = layout.read(model).numpy()[None]
        accuracies = np.array([_accuracy(model.to(device), *test)])
        write_npz(path, parameters=stages, accuracies=accuracies)
    if stages.shape[1] != layout.size:
        raise DataError(
            f"{path} holds another model, of {stages.shape[1]} parameters where {MODEL} "
            f"has {layout.size}: delete it to train again"
        )
    samples = dataset.train_inputs.to(device), dataset.train_labels.to(device)
    for epoch in range(len(stages), epochs + 1):
        layout.write(model.to("cpu"), torch.from_numpy(stages[-1]))
        model.to(device)
        # momentum starts anew with the epoch, so that a resumed run is the same run
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        _train_epoch(model, optimizer, samples, BATCH, epoch)
        stages = np.concatenate((stages, layout.read(model).numpy()[None]))
        accuracies = np.append(accuracies, _accuracy(model, *test))
        if not np.isfinite(stages[-1]).all():
            raise RuntimeError(f"training diverged in epoch {epoch}")
        write_npz(path, parameters=stages, accuracies=accuracies)
        progress(epoch, float(accuracies[-1]))
    return stages[: epochs + 1]


def train_repository(
    dataset: Dataset,
    path: Path,
    device: str = "cpu",
    progress: Callable[[int, float], None] = lambda *news: None,
) -> NDArray[np.float32]:
    """The parameters (30, d) by epoch, trained as in the repository of the paper's attacks.

    Those that are not attacked are NaN. ``path`` keeps the others; Adam's state is not kept, so
    that a training that was stopped begins anew.
    """
    model = build(MODEL, dataset.input_shape, dataset.classes, SEED)
    layout = ModelVector(model)
    if not path.exists():
        samples = dataset.train_inputs.to(device), dataset.train_labels.to(device)
        test = dataset.test_inputs.to(device), dataset.test_labels.to(device)
        optimizer = torch.optim.Adam(model.to(device).parameters(), lr=ADAM_RATE)
        kept, accuracies = [], []
        for epoch in range(max(REPOSITORY_EPOCHS) + 1):
            if epoch:
                _train_epoch(model, optimizer, samples, ADAM_BATCH, epoch)
            accuracy = _accuracy(model, *test)
            progress(epoch, accuracy)
            if epoch in REPOSITORY_EPOCHS:
                kept.append(layout.read(model).numpy())
                accuracies.append(accuracy)
        write_npz(path, parameters=np.stack(kept), accuracies=np.array(accuracies))
    stages = np.full((max(REPOSITORY_EPOCHS) + 1, layout.size), np.nan, dtype=np.float32)
    stages[list(REPOSITORY_EPOCHS)] = read_npz(path, "parameters")[0]
    return stages


def _train_epoch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: tuple[torch.Tensor, torch.Tensor],
    batch_size: int,
    epoch: int,
) -> None:
    inputs, labels = samples
    order = torch.randperm(len(labels), generator=generator(SEED, "attack batches", epoch))
    for batch in torch.split(order.to(inputs.device), batch_size):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()


def _accuracy(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    found = evaluate(model, inputs, labels)
    return 0.0 if found is None else found.accuracy


# The attacks


@dataclass(frozen=True)
class Attacked:
    """What is kept of a cell: small enough to commit, enough to redraw everything."""

    label: str
    spec: str
    method: str
    epoch: int
    variant: str
    images: int
    iterations: int
    ssim: list[float]
    mse: list[float]
    loss: list[float | None]
    status: dict[str, int]
    labels_right: int
    evaluations: float  # mean over images
    snr: float | None  # ‖g‖²/‖ĝ − g‖², mean over images; None without error
    seconds: float  # of the batch it was in, shared among its cells
    settings: dict[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        return without_channel(self.spec), self.method, self.epoch, self.variant

    def is_final(self, iterations: int) -> bool:
        """Whether so many iterations would have changed nothing."""
        is_improving = self.method not in _ONE_DESCENT or "spent" in self.status
        return self.iterations >= iterations or not is_improving


def read_attacks(path: Path) -> list[Attacked]:
    """The cells in a file, as they were attacked last; none if there is no file."""
    return list({(one.key, one.images): one for one in read_records(path, Attacked)}.values())


def read_pictures(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Reconstructions (PICTURES, C, H, W) by ``Cell.picture``; none if there is no file."""
    if not path.exists():
        return {}
    names, pictures = read_npz(path, "names", "pictures")
    return {without_channel(str(n)): p for n, p in zip(names, pictures, strict=True)}


class AttackRunner:
    """Attacks cells on some images, and adds what is found to the files in ``results``.

    Cells that are kept for as many images and the same weights are not attacked again, unless more
    iterations are wanted now and could change something, or a picture that Figure 6 shows is
    missing. A batch not finished at ``deadline`` (on ``time.monotonic``'s clock) is dropped. A
    batch is one cell on a CPU, which gains nothing from more; on a GPU as many as fit.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        stages: NDArray[np.float32],
        results: Path,
        *,
        device: str = "cpu",
        iterations: int | None = None,
        deadline: float | None = None,
        progress: Progress = lambda *news: None,
    ) -> None:
        self._images, self._labels, self._stages = images, labels, stages
        self._path, self._pictures = results / ATTACKS_FILE, results / PICTURES_FILE
        self._iterations, self._deadline, self._progress = iterations, deadline, progress
        self._most = _most_at_once(device)
        model = build(MODEL, SHAPE, CLASSES, seed=0)
        self._map = GradientMap(model, SHAPE, parameters=torch.from_numpy(stages), device=device)
        grey = scores(torch.full_like(images, 0.5), images)
        self._settings = {
            "model": MODEL,
            "device": torch.cuda.get_device_name() if device != "cpu" else "cpu",
            "commit": origin(device)["commit"],
            "dtype": str(self._map.dtype).removeprefix("torch."),
            **versions("numpy", "scipy"),
            "torch": torch.__version__,
            "grey_ssim": round(float(grey.ssim.mean()), 4),  # of an attacker who saw nothing
            "grey_mse": round(float(grey.mse.mean()), 4),
        }

    def run(self, cells: Iterable[Cell]) -> list[Attacked]:
        """Attack what is missing; the results of all cells that are there at the end, in order."""
        wanted = list({cell.key: cell for cell in cells}.values())
        beyond = [cell.epoch for cell in wanted if cell.epoch >= len(self._stages)]
        if beyond:
            raise ValueError(
                f"epoch {beyond[0]} was not trained: there are {len(self._stages) - 1} epochs"
            )
        done = {one.key: one for one in read_attacks(self._path) if self._is_of_now(one)}
        pictures = read_pictures(self._pictures)
        unseen = {cell.key for cell in fig6_cells() if cell.picture not in pictures}
        missing = [
            cell
            for cell in wanted
            if cell.key in unseen
            or cell.key not in done
            or not done[cell.key].is_final(cell.config(self._iterations).iterations)
        ]
        finished = len(wanted) - len(missing)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for batch in self._batches(missing):
            try:
                found = self._attacked(batch, finished, len(wanted))
            except TimeoutError:
                break
            done |= {one.key: one for one in found}
            finished += len(found)
        return [done[cell.key] for cell in wanted if cell.key in done]

    def _is_of_now(self, one: Attacked) -> bool:
        """Whether images and weights are those of now; weights that were not recorded are."""
        is_known = one.epoch < len(self._stages) and "weights" in one.settings
        is_other = is_known and one.settings["weights"] != self._weights(one.epoch)
        return one.images == len(self._images) and not is_other

    def _weights(self, epoch: int) -> str:
        """Which weights were attacked: another training may give others."""
        weights = np.ascontiguousarray(self._stages[epoch], dtype="<f4").tobytes()
        return f"SHA-256 {hashlib.sha256(weights).hexdigest()[:16]}"

    def _batches(self, cells: Sequence[Cell]) -> Iterator[list[Cell]]:
        """Cells that can be attacked together: alike in method and likelihood."""
        waiting = list(cells)
        most = max(1, self._most // len(self._images))
        while waiting:
            kind = _kind(waiting[0])
            batch = [cell for cell in waiting if _kind(cell) == kind][:most]
            waiting = [cell for cell in waiting if cell not in batch]
            yield batch

    def _attacked(self, cells: list[Cell], finished: int, total: int) -> list[Attacked]:
        start, count = time.monotonic(), len(self._images)
        truths, observed = [], []
        for cell in cells:
            stage = torch.full((count,), cell.epoch)
            truth = true_gradients(self._map, self._images, self._labels, stage).double().cpu()
            truths.append(truth)
            observed.append(observe(cell.scheme, truth, self._map.layout))
            self._check_time()
        words = f"{cells[0].method} on {len(cells)} × {count} images"

        def show(attempt: int, evaluations: int, images: int) -> None:
            self._check_time()
            text = f"{words}: {evaluations} evaluations, {images} images done"
            self._progress(finished, total, text)

        config = cells[0].config(self._iterations)
        result = attack(
            self._map,
            Observation.joined(observed),
            config,
            labels=self._labels.repeat(len(cells)),
            which=torch.tensor([cell.epoch for cell in cells]).repeat_interleave(count),
            names=list(range(count)) * len(cells),
            progress=show,
        )
        seconds = (time.monotonic() - start) / len(cells)
        how = {name: value for name, value in vars(config).items() if name not in _IN_RECORD}
        found = []
        with self._path.open("a", encoding="utf-8") as file:
            for index, cell in enumerate(cells):
                rows = slice(index * count, (index + 1) * count)
                quality, status = scores(result.images[rows], self._images), result.status[rows]
                one = Attacked(
                    **vars(cell),
                    images=count,
                    iterations=config.iterations,
                    ssim=[round(value, 4) for value in quality.ssim.tolist()],
                    mse=[float(f"{value:.4g}") for value in quality.mse.tolist()],
                    loss=[_number(value) for value in result.losses[rows].tolist()],
                    status={name: status.count(name) for name in sorted(set(status))},
                    labels_right=int((result.labels[rows] == self._labels).sum()),
                    evaluations=round(float(result.evaluations[rows].double().mean()), 1),
                    snr=_snr(truths[index], observed[index].gradients),
                    seconds=round(seconds, 2),
                    settings={
                        **how,
                        "weights": self._weights(cell.epoch),
                        "peak": _peak(truths[index]),
                        **self._settings,
                    },
                )
                found.append(one)
                add_record(file, one)
        self._add_pictures(cells, result)
        return found

    def _add_pictures(self, cells: Sequence[Cell], result: Reconstructions) -> None:
        """Keep the first reconstructions of the cells that Figure 6 shows."""
        count, shown = len(self._images), {cell.key for cell in fig6_cells()}
        new = {
            cell.picture: _pixels(result.images[index * count :][: min(PICTURES, count)])
            for index, cell in enumerate(cells)
            if cell.key in shown
        }
        if new:
            held = {**read_pictures(self._pictures), **new}
            held[ORIGINALS] = _pixels(self._images[:PICTURES])
            names = np.array(list(held))
            write_npz(self._pictures, names=names, pictures=np.stack(list(held.values())))

    def _check_time(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError("the time given is up")


def _most_at_once(device: str) -> int:
    if device == "cpu":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return min(_MOST_AT_ONCE, free // _IMAGE_BYTES)


def _pixels(images: torch.Tensor) -> NDArray[np.uint8]:
    levels = (images.nan_to_num(0.0).clamp(0.0, 1.0) * 255.0).round()
    return np.asarray(levels.to(torch.uint8).numpy())


def _kind(cell: Cell) -> tuple[str, ...]:
    """Cells of one kind can be one batch."""
    if cell.method != "adaptive":
        return cell.method, cell.variant
    coder = cell.scheme
    is_quiet = getattr(coder, "noise", None) is None
    likelihood = cell.spec if coder.name == "response" else f"{coder.name} {is_quiet}"
    return cell.method, cell.variant, likelihood


def _snr(truths: torch.Tensor, decoded: torch.Tensor) -> float | None:
    energies, errors = truths.square().sum(1), (decoded - truths).square().sum(1)
    if not bool((errors > 1e-9 * energies).all()):
        return None
    return round(float((energies / errors).mean()), 6)


def _peak(truths: torch.Tensor) -> float:
    """The largest entry of any gradient over its root mean square."""
    sizes = truths.square().mean(1).sqrt()
    return round(float((truths.abs().amax(1) / sizes).max()), 2)


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None
