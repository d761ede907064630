"""Running cells of attacks, many at once, with their results written as they come."""

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

from jopeq.attacks.attack import AttackConfig, Reconstructions, attack
from jopeq.attacks.gradients import GradientMap
from jopeq.attacks.metrics import scores
from jopeq.attacks.npz import read_npz, write_npz
from jopeq.attacks.observation import Observation, observe, true_gradients
from jopeq.experiments.attack_cells import ONE_DESCENT, PICTURES, Cell, fig6_cells
from jopeq.experiments.attack_training import CLASSES, MODEL, SHAPE, Stages
from jopeq.federated.models import build
from jopeq.federated.runs import add_record, read_records
from jopeq.versions import versions

ORIGINALS = "original"  # the name under which the images themselves are kept
_MOST_AT_ONCE = 2800  # images of one batch on a GPU, which more would not use better
_IMAGE_BYTES = 8 << 20  # of its memory for an image: a hundred pairs of history, patches
Progress = Callable[[int, int, str], None]  # cells done, cells in all, what is going on


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
        return self.spec, self.method, self.epoch, self.variant

    def is_final(self, iterations: int) -> bool:
        """Whether so many iterations would have changed nothing."""
        is_improving = self.method not in ONE_DESCENT or "spent" in self.status
        return self.iterations >= iterations or not is_improving


class AttackRunner:
    """Attacks cells on the first images of a data set, and adds what is found to ``path``.

    Parameters
    ----------
    images, labels
        The victims.
    stages
        The model at every epoch.
    path
        JSON Lines, one cell each; cells it holds for as many images and the same weights are not
        attacked again, unless more iterations are wanted now and could have changed something.
    pictures
        An .npz that keeps the first reconstructions of the cells that Figure 6 shows; those whose
        pictures it lacks are attacked again.
    most_at_once
        Images of one batch, and at least a cell. None: a cell on a CPU, which gains nothing from
        more and would write nothing for hours; what fits on a GPU.
    deadline
        On ``time.monotonic``'s clock: a batch not finished then is dropped.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        stages: Stages,
        path: Path,
        *,
        pictures: Path | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        convolutions: str = "auto",
        iterations: int | None = None,
        most_at_once: int | None = None,
        deadline: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._images, self._labels, self._path = images, labels, path
        self._pictures, self._iterations = pictures, iterations
        self._most = _most_at_once(device) if most_at_once is None else most_at_once
        self._deadline, self._progress = deadline, progress
        model = build(MODEL, SHAPE, CLASSES, seed=0)
        self._map = GradientMap(
            model,
            SHAPE,
            parameters=torch.from_numpy(stages.parameters),
            dtype=dtype,
            device=device,
            convolutions=convolutions,
        )
        self._stages, self._epochs = stages, stages.epochs
        grey = scores(torch.full_like(images, 0.5), images)
        self._settings = {
            "device": torch.cuda.get_device_name() if device != "cpu" else "cpu",
            "dtype": str(dtype).removeprefix("torch."),
            "convolutions": convolutions,
            **versions("numpy", "scipy"),
            "torch": torch.__version__,
            "grey_ssim": round(float(grey.ssim.mean()), 4),  # of whoever saw nothing
            "grey_mse": round(float(grey.mse.mean()), 4),
        }

    def run(self, cells: Iterable[Cell]) -> list[Attacked]:
        """Attack what is missing; the results of all cells that are there at the end, in order."""
        wanted = list({cell.key: cell for cell in cells}.values())
        count = len(self._images)
        held = [found for found in read(self._path) if found.images == count]
        beyond = [cell for cell in wanted if cell.epoch > self._epochs]
        if beyond:
            raise ValueError(
                f"epoch {beyond[0].epoch} was not trained: there are {self._epochs} epochs"
            )
        done = {found.key: found for found in held if self._is_of_this_model(found)}
        unseen = self._missing_pictures()
        missing = [
            cell
            for cell in wanted
            if picture_name(cell) in unseen or not self._is_done(cell, done.get(cell.key))
        ]
        finished = len(wanted) - len(missing)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for batch in self._batches(missing):
            try:
                found = self._attacked(batch, finished, len(wanted))
            except TimeoutError:
                break
            for one in found:
                done[one.key] = one
            finished += len(found)
            if self._progress is not None:
                self._progress(finished, len(wanted), summary(found))
        return [done[cell.key] for cell in wanted if cell.key in done]

    def _is_done(self, cell: Cell, found: Attacked | None) -> bool:
        """Whether more iterations would change nothing, or no more are wanted."""
        return found is not None and found.is_final(cell.config(self._iterations).iterations)

    def _is_of_this_model(self, found: Attacked) -> bool:
        """Whether the weights are those of now; those that were not recorded, or are not needed."""
        if found.epoch > self._epochs or "weights" not in found.settings:
            return True
        return bool(found.settings["weights"] == self._weights(found.epoch)["weights"])

    def _missing_pictures(self) -> set[str]:
        """Of the cells that Figure 6 shows."""
        if self._pictures is None:
            return set()
        return {picture_name(cell) for cell in fig6_cells()} - read_pictures(self._pictures).keys()

    def _batches(self, cells: Sequence[Cell]) -> Iterator[list[Cell]]:
        """Neighbouring cells that can be attacked together: alike in method and likelihood."""
        waiting = list(cells)
        most = max(1, self._most // len(self._images))
        while waiting:
            kind = _kind(waiting[0])
            batch = [cell for cell in waiting if _kind(cell) == kind][:most]
            chosen = {cell.key for cell in batch}
            waiting = [cell for cell in waiting if cell.key not in chosen]
            yield batch

    def _attacked(self, cells: list[Cell], finished: int, total: int) -> list[Attacked]:
        start, count = time.monotonic(), len(self._images)
        truths, observed, which = [], [], []
        for cell in cells:
            stage = torch.full((count,), cell.epoch)
            truth = true_gradients(self._map, self._images, self._labels, stage).double().cpu()
            truths.append(truth)
            which.append(stage)
            observed.append(observe(cell.scheme, truth, self._map.layout))
            self._check_time()
        observation = Observation.joined(observed)
        words = f"{cells[0].method} on {len(cells)} × {count} images"

        def show(attempt: int, evaluations: int, images: int) -> None:
            self._check_time()
            if self._progress is not None:
                text = f"{words}: {evaluations} evaluations, {images} images done"
                self._progress(finished, total, text)

        config = cells[0].config(self._iterations)
        result = attack(
            self._map,
            observation,
            config,
            labels=self._labels.repeat(len(cells)),
            which=torch.cat(which),
            names=list(range(count)) * len(cells),
            progress=show,
        )
        seconds = (time.monotonic() - start) / len(cells)
        found = []
        with self._path.open("a", encoding="utf-8") as file:
            for index, cell in enumerate(cells):
                rows = slice(index * count, (index + 1) * count)
                snr = _snr(truths[index], observed[index].gradients)
                one = self._record(cell, config, result, rows, snr, seconds)
                found.append(one)
                add_record(file, one)
        if self._pictures is not None:
            _add_pictures(self._pictures, cells, result, self._images)
        return found

    def _record(
        self,
        cell: Cell,
        config: AttackConfig,
        result: Reconstructions,
        rows: slice,
        snr: float | None,
        seconds: float,
    ) -> Attacked:
        quality = scores(result.images[rows], self._images)
        status = result.status[rows]
        return Attacked(
            label=cell.label,
            spec=cell.spec,
            method=cell.method,
            epoch=cell.epoch,
            variant=cell.variant,
            images=len(self._images),
            iterations=config.iterations,
            ssim=[round(value, 4) for value in quality.ssim.tolist()],
            mse=[float(f"{value:.4g}") for value in quality.mse.tolist()],
            loss=[_number(value) for value in result.losses[rows].tolist()],
            status={name: status.count(name) for name in sorted(set(status))},
            labels_right=int((result.labels[rows] == self._labels).sum()),
            evaluations=round(float(result.evaluations[rows].double().mean()), 1),
            snr=snr,
            seconds=round(seconds, 2),
            settings={**_attack_settings(config), **self._weights(cell.epoch), **self._settings},
        )

    def _weights(self, epoch: int) -> dict[str, str]:
        """Which model was attacked: a later training may be another one."""
        weights = self._stages.parameters[epoch]
        return {"model": MODEL, "weights": f"SHA-256 {_fingerprint(weights)}"}

    def _check_time(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError("the time given is up")


def _most_at_once(device: str) -> int:
    if device == "cpu":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return min(_MOST_AT_ONCE, free // _IMAGE_BYTES)


def summary(found: Sequence[Attacked]) -> str:
    """The mean SSIM of some cells, in a line."""
    return "; ".join(
        f"{one.label} {one.method} epoch {one.epoch}: SSIM {sum(one.ssim) / len(one.ssim):.3f}"
        for one in found
    )


def read(path: Path) -> list[Attacked]:
    """The cells in a file, as they were attacked last; none if there is no file."""
    return list({(one.key, one.images): one for one in read_records(path, Attacked)}.values())


def picture_name(cell: Cell) -> str:
    """Under which a cell's reconstructions are kept."""
    return f"{cell.spec} {cell.method} {cell.variant}".strip()


def read_pictures(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Reconstructions (PICTURES, C, H, W) by ``picture_name``; none if there is no file."""
    if not path.exists():
        return {}
    names, pictures = read_npz(path, "names", "pictures")
    return dict(zip(map(str, names), pictures, strict=True))


def _add_pictures(
    path: Path, cells: list[Cell], result: Reconstructions, originals: torch.Tensor
) -> None:
    held = read_pictures(path)
    count, pictures = len(originals), min(PICTURES, len(originals))
    shown = {cell.key for cell in fig6_cells()}
    for index, cell in enumerate(cells):
        if cell.key in shown:
            some = result.images[index * count : index * count + pictures]
            held[picture_name(cell)] = _pixels(some)
    if not held:
        return
    held[ORIGINALS] = _pixels(originals[:pictures])
    write_npz(path, names=np.array(list(held)), pictures=np.stack(list(held.values())))


def _pixels(images: torch.Tensor) -> NDArray[np.uint8]:
    levels = (images.nan_to_num(0.0).clamp(0.0, 1.0) * 255.0).round()
    return np.asarray(levels.to(torch.uint8).numpy())


def _kind(cell: Cell) -> tuple[str, ...]:
    """Cells of one kind can be one batch."""
    if cell.method != "adaptive":
        return cell.method, cell.variant
    coder = cell.scheme
    noise = getattr(coder, "noise", None)
    likelihood = cell.spec if coder.name == "response" else f"{coder.name} {noise is None}"
    return cell.method, cell.variant, likelihood


def _attack_settings(config: AttackConfig) -> dict[str, Any]:
    """What else determines the attack, beside the fields of its record."""
    told = ("method", "iterations")
    return {name: value for name, value in vars(config).items() if name not in told}


def _fingerprint(values: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f4").tobytes()).hexdigest()[:16]


def _snr(truths: torch.Tensor, decoded: torch.Tensor) -> float | None:
    energies, errors = truths.square().sum(1), (decoded - truths).square().sum(1)
    if not bool((errors > 1e-9 * energies).all()):
        return None
    return round(float((energies / errors).mean()), 6)


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None
