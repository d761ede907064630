"""The results of a run as files in its folder.

| file | content |
|---|---|
| ``config.json`` | every parameter, and what followed from them |
| ``rounds.jsonl`` | one JSON object per round, written at once |
| ``summary.json`` | test accuracy of the best validation round, at the end |
| ``curves.png`` | validation accuracy, training loss and SNR over the rounds, at the end, where a \
kind of run measures one of them |
| ``checkpoint.pt`` | what ``resume`` needs |

A measure that a kind of run does not have is absent. JSON has no infinity: ``null`` stands for an
SNR without any error, an ε without any guarantee, and the decibels of an SNR of 0.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

import torch

from jopeq.errors import JoPEQError
from jopeq.files import atomic
from jopeq_lab.pictures.colours import INK
from jopeq_lab.pictures.drawing import dress, new_panels
from jopeq_lab.training.metrics import RoundMetrics

VERSION = 3
CONFIG, ROUNDS, SUMMARY = "config.json", "rounds.jsonl", "summary.json"
CURVES, CHECKPOINT = "curves.png", "checkpoint.pt"
FILES = (CONFIG, ROUNDS, SUMMARY, CURVES, CHECKPOINT)
PANELS = {  # field and title of each panel of ``curves.png``
    "validation_accuracy": "validation accuracy",
    "train_loss": "training loss",
    "snr_db": "SNR (20·log10, dB)",
}


class CheckpointError(JoPEQError):
    """A checkpoint cannot be read, or belongs to another run."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state between two rounds, and all results so far."""

    config: dict[str, Any]
    vector: torch.Tensor
    best_vector: torch.Tensor
    best_round: int
    history: list[dict[str, Any]]
    state: dict[str, Any]  # of the federation

    def save(self, path: Path) -> None:
        """Replace the file at ``path`` at once: a reader sees the old file or the new one."""
        with atomic(path) as file:
            torch.save({"version": VERSION, **vars(self)}, file)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read tensors, numbers and text; nothing in the file can run (``weights_only``)."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            if (version := content["version"]) != VERSION:
                raise CheckpointError(f"{path} has version {version}, this jopeq reads {VERSION}")
            return cls(**{field.name: content[field.name] for field in fields(cls)})
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError) as error:
            raise CheckpointError(f"{path} is no checkpoint ({error}): start anew") from error
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{path} is no checkpoint of jopeq, or not a harmless one: start anew"
            ) from error

    def check(self, wanted: dict[str, Any], may_change: Sequence[str] = ()) -> None:
        """Raise unless this is a checkpoint of a run with the configuration ``wanted``."""
        different = [
            f"{name} was {self.config.get(name)!r}, is {wanted.get(name)!r}"
            for name in sorted({*wanted, *self.config} - {*may_change})
            if self.config.get(name) != wanted.get(name)
        ]
        if different:
            raise CheckpointError(
                f"the checkpoint is of another run ({'; '.join(different)}): resume with the same "
                "options, or start in another folder"
            )
        done = self.history[-1]["round"] if self.history else 0
        if wanted["rounds"] < done:
            raise CheckpointError(
                f"the checkpoint is of round {done}, beyond rounds={wanted['rounds']}"
            )


class Recorder:
    """Writes a run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: IO[str] | None = None

    def start(self, config: dict[str, Any], past: Sequence[RoundMetrics] = ()) -> None:
        """Write the configuration and the ``past`` rounds of a resumed run; drop later rounds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_json(self.folder / CONFIG, config)
        with atomic(self.folder / ROUNDS) as file:
            file.write("".join(_line(metrics) for metrics in past).encode())
        self._lines = (self.folder / ROUNDS).open("a", encoding="utf-8")

    def add(self, metrics: RoundMetrics) -> None:
        """Add a round; it is on disk when this returns."""
        if self._lines is None:
            raise RuntimeError("start() comes first")
        self._lines.write(_line(metrics))
        self._lines.flush()

    def finish(self, history: Sequence[RoundMetrics], summary: dict[str, Any]) -> None:
        """Write summary and figure."""
        _write_json(self.folder / SUMMARY, summary)
        plot(self.folder / CURVES, history)
        self.close()

    def close(self) -> None:
        """Close the open file."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None


def read_rounds(path: Path) -> list[RoundMetrics]:
    """The rounds of a ``rounds.jsonl``; a last line that a kill truncated is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    whole = lines[:-1]  # what follows the last newline was never finished
    return [RoundMetrics.from_dict(json.loads(line)) for line in whole]


def plot(path: Path, history: Sequence[RoundMetrics]) -> None:
    """The curves of ``PANELS`` that were measured, as a PNG; no file where none was."""
    rows = [metrics.as_dict() for metrics in history]
    measured = {name: title for name, title in PANELS.items() if any(name in row for row in rows)}
    if not measured:
        return
    figure, panels = new_panels(len(measured), 2.3)
    for axes, (name, title) in zip(panels, measured.items(), strict=True):
        points = [(row["round"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            marker = "." if len(points) < 30 else ""
            axes.plot(*zip(*points, strict=True), marker=marker, color=INK)
        else:
            axes.text(0.5, 0.5, "no finite value", ha="center", transform=axes.transAxes)
        dress(axes, title)
    figure.supxlabel("round", fontsize=10)
    with atomic(path) as file:
        figure.savefig(file, format="png", dpi=150)


def _line(metrics: RoundMetrics) -> str:
    return json.dumps(metrics.as_dict(), allow_nan=False) + "\n"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic(path) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
