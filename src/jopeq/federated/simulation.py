"""A whole run: all rounds, recorded, checkpointed and resumed.

>>> from jopeq.federated.simulation import TrainConfig, train
>>> config = TrainConfig(data="digits", clients=4, rounds=2, local_steps=5, lr=0.5)
>>> result = train(config)
>>> len(result.history), result.history[0].bits_per_parameter > 32
(2, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jopeq.federated import data
from jopeq.federated.config import TrainConfig
from jopeq.federated.metrics import Evaluation, RoundMetrics, evaluate
from jopeq.federated.record import CHECKPOINT, ROUNDS, Checkpoint, CheckpointError, Recorder
from jopeq.federated.rounds import DivergedError, Simulation
from jopeq.versions import versions

__all__ = ["Result", "Simulation", "TrainConfig", "train"]

Progress = Callable[[RoundMetrics, Simulation], None]


@dataclass(frozen=True, eq=False)
class Result:
    """A run that came to its end, or diverged on the way."""

    config: TrainConfig
    history: tuple[RoundMetrics, ...]
    best_round: int  # of the highest validation accuracy; the last one without validation; 0: none
    test: Evaluation | None  # of the best round
    final_test: Evaluation | None  # of the last round
    model: nn.Module  # after the last round
    best_model: nn.Module
    dimension: int
    kind: str  # how clients were trained: stacked, vmap or loop
    diverged: str | None = None

    @classmethod
    def of(cls, simulation: Simulation, diverged: str | None = None) -> Result:
        """Test accuracy of the best validation round, and everything else."""
        final, best = simulation.models()
        return cls(
            simulation.config,
            tuple(simulation.history),
            simulation.best_round,
            evaluate(best, *simulation.test_samples),
            evaluate(final, *simulation.test_samples),
            final.cpu(),
            best.cpu(),
            simulation.dimension,
            simulation.trainer.kind,
            diverged,
        )

    @property
    def test_accuracy(self) -> float | None:
        """Of the best validation round, as in the paper."""
        return None if self.test is None else self.test.accuracy

    def summary(self) -> dict[str, Any]:
        """What JSON can hold of the end of the run."""
        return {
            "rounds": len(self.history),
            "best_round": self.best_round,
            "test_accuracy": self.test_accuracy,
            "test_loss": None if self.test is None else _finite(self.test.loss),
            "final_test_accuracy": None if self.final_test is None else self.final_test.accuracy,
            "bytes_sent": sum(m.bytes_per_client * m.participants for m in self.history),
            "training_seconds": sum(m.training_seconds for m in self.history),
            "coding_seconds": sum(m.coding_seconds for m in self.history),
            "evaluation_seconds": sum(m.evaluation_seconds for m in self.history),
            "way": self.kind,
            "diverged": self.diverged,
        }


def train(
    config: TrainConfig,
    *,
    dataset: data.Dataset | None = None,
    model: nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run all rounds; see ``record`` for what ``out`` gets.

    ``resume`` goes on from the last checkpoint in ``out`` (from the start, if there is none yet);
    rounds recorded after it are run again, bit for bit as without the stop on the same machine and
    number of threads, private noise aside (see ``TrainConfig.noise_key``). Divergence ends the run:
    ``result.diverged`` says why, and what was reached before is kept. ``progress`` is called after
    every round, and its checkpoint written after that.
    """
    check_out(out, resume=resume, tensorboard=tensorboard)
    folder = None if out is None else Path(out)
    recorder = None if folder is None else Recorder(folder, tensorboard=tensorboard)
    simulation = Simulation(config, dataset=dataset, model=model)
    if folder is not None and resume and (folder / CHECKPOINT).exists():
        saved = Checkpoint.load(folder / CHECKPOINT)
        try:
            simulation.restore(saved)
        except CheckpointError as error:
            raise CheckpointError(f"{folder / CHECKPOINT}: {error}") from error
    if recorder is not None:
        followed = {"dimension": simulation.dimension, "way": simulation.trainer.kind}
        made_with = {**versions("numpy", "scipy"), "torch": torch.__version__}
        recorder.start({**config.as_dict(), **followed, **made_with}, simulation.history)
    diverged = None
    try:
        while len(simulation.history) < config.rounds:
            try:
                metrics = simulation.step()
            except DivergedError as error:
                diverged = str(error)
                break
            if recorder is not None:
                recorder.add(metrics)
            if progress is not None:
                progress(metrics, simulation)  # before the checkpoint: it is never left out
            if recorder is not None:
                is_last = metrics.round == config.rounds
                if is_last or metrics.round % config.checkpoint_every == 0:
                    simulation.checkpoint().save(recorder.folder / CHECKPOINT)
        result = Result.of(simulation, diverged)
        if recorder is not None:
            if diverged is not None:
                simulation.checkpoint().save(recorder.folder / CHECKPOINT)
            recorder.finish(result.history, result.summary())
        return result
    finally:
        if recorder is not None:
            recorder.close()


def check_out(out: str | Path | None, *, resume: bool, tensorboard: bool) -> None:
    """Raise ValueError unless ``train`` may write there: a run is resumed, never overwritten."""
    if out is None and (resume or tensorboard):
        raise ValueError("resume and tensorboard need out, the folder of the run")
    if out is not None and not resume and (Path(out) / ROUNDS).exists():
        raise ValueError(
            f"out={str(out)!r} already holds a run: resume it or choose another folder"
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
