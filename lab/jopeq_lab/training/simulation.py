"""The one training loop: a federation in one process, round by round, and whole runs.

>>> from jopeq_lab.training.simulation import TrainConfig, train
>>> config = TrainConfig(data="digits", clients=4, rounds=2, local_steps=5, lr=0.5)
>>> result = train(config)
>>> len(result.history), result.history[0].bits_per_parameter > 32
(2, True)
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jopeq.versions import versions
from jopeq_lab.training import data
from jopeq_lab.training.clients import Clients
from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, RunConfig, TrainConfig
from jopeq_lab.training.federation import DivergedError, Federation, Samples
from jopeq_lab.training.hospitals import Hospitals
from jopeq_lab.training.metrics import Evaluation, RoundMetrics, evaluate
from jopeq_lab.training.people import People
from jopeq_lab.training.record import (
    CHECKPOINT,
    FILES,
    Checkpoint,
    CheckpointError,
    Recorder,
)

__all__ = ["HospitalsConfig", "PeopleConfig", "Result", "Simulation", "TrainConfig", "train"]

Progress = Callable[[RoundMetrics, "Simulation"], None]


def make_federation(
    config: RunConfig, dataset: data.Dataset, model: nn.Module | None = None
) -> Federation:
    """The federation that a configuration describes."""
    if isinstance(config, TrainConfig):
        return Clients(config, dataset, model)
    if isinstance(config, PeopleConfig):
        return People(config, dataset, model)
    if isinstance(config, HospitalsConfig):
        return Hospitals(config, dataset, model)
    raise ValueError(f"config must be of clients, people or hospitals, got {config!r}")


class Simulation:
    """A federation, its model and the rounds so far.

    ``dataset`` and ``model`` replace those that the configuration names.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        dataset: data.Dataset | None = None,
        model: nn.Module | None = None,
    ) -> None:
        self.config = config
        dataset = data.load(config.data, config.data_dir) if dataset is None else dataset
        self.federation = make_federation(config, dataset, model)
        self.vector = self.federation.layout.read(self.federation.model)
        self.history: list[RoundMetrics] = []
        self.best_round, self.best_vector = 0, self.vector.clone()

    @property
    def dimension(self) -> int:
        """Entries of an update."""
        return self.federation.layout.size

    @property
    def is_done(self) -> bool:
        return len(self.history) == len(self.federation.rounds)

    def step(self) -> RoundMetrics:
        """The next round; raises ``DivergedError`` and then changes nothing."""
        with _torch_set_up(self.config):
            number = self.federation.rounds[len(self.history)]
            done = self.federation.step(number, self.vector, self.history)
            started = time.perf_counter()
            found = self.evaluate(done.vector, self.federation.validation)
            seconds = time.perf_counter() - started
        metrics = RoundMetrics(
            round=number,
            validation_loss=None if found is None else found.loss,
            validation_accuracy=None if found is None else found.accuracy,
            evaluation_seconds=seconds,
            **done.measures,
        )
        best = max((m.validation_accuracy or 0.0 for m in self.history), default=-1.0)
        is_better = found is None or found.accuracy > best
        self.vector = done.vector
        self.history.append(metrics)
        if is_better or not self.federation.selects_best:
            self.best_round, self.best_vector = number, done.vector.clone()
        return metrics

    def evaluate(self, vector: torch.Tensor, samples: Samples) -> Evaluation | None:
        """The model of ``vector`` on some samples; None without samples."""
        model, (inputs, labels) = self.federation.model, samples
        if not len(labels):
            return None
        self.federation.layout.write(model, vector)
        return evaluate(model, self.federation.view(inputs), labels)

    def checkpoint(self) -> Checkpoint:
        """The state from which ``restore`` continues."""
        return Checkpoint(
            config=self.config.as_dict(),
            vector=self.vector,
            best_vector=self.best_vector,
            best_round=self.best_round,
            history=[metrics.as_dict() for metrics in self.history],
            state=self.federation.state(),
        )

    def restore(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint of the same run."""
        saved.check(self.config.as_dict(), self.config.MAY_CHANGE)
        if saved.vector.shape != self.vector.shape:
            raise CheckpointError(
                f"the checkpoint is of a model of {len(saved.vector)} entries, "
                f"this one has {len(self.vector)}"
            )
        history = [RoundMetrics.from_dict(values) for values in saved.history]
        self.federation.restore(saved.state, history)
        self.vector, self.best_vector = saved.vector, saved.best_vector
        self.best_round, self.history = saved.best_round, history


@contextmanager
def _torch_set_up(config: RunConfig) -> Iterator[None]:
    """Set PyTorch's threads and tensor cores within the context, and restore them afterwards."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        if config.tf32:
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        if config.threads is not None:
            torch.set_num_threads(threads)
        if config.tf32:
            torch.set_float32_matmul_precision(precision)


@dataclass(frozen=True, eq=False)
class Result:
    """A run that has ended or diverged."""

    config: RunConfig
    history: tuple[RoundMetrics, ...]
    best_round: int  # the one whose model is the result; 0: none
    test: Evaluation | None  # of the best round
    final_test: Evaluation | None  # of the last round
    model: nn.Module  # after the last round
    best_model: nn.Module
    dimension: int
    facts: dict[str, Any]  # what the federation tells
    diverged: str | None = None

    @classmethod
    def of(cls, simulation: Simulation, diverged: str | None = None) -> Result:
        """The current result of a simulation."""
        federation = simulation.federation

        def finish(vector: torch.Tensor) -> tuple[Evaluation | None, nn.Module]:
            found = simulation.evaluate(vector, federation.test)
            federation.layout.write(federation.model, vector)
            return found, copy.deepcopy(federation.model).cpu()

        test, best_model = finish(simulation.best_vector)
        final_test, model = finish(simulation.vector)
        return cls(
            simulation.config,
            tuple(simulation.history),
            simulation.best_round,
            test,
            final_test,
            model,
            best_model,
            simulation.dimension,
            federation.summary(),
            diverged,
        )

    @property
    def test_accuracy(self) -> float | None:
        """Test accuracy of the best round: of clients by validation, as in the authors' code."""
        return None if self.test is None else self.test.accuracy

    @property
    def epsilon(self) -> float:
        """Proven ε of the client that sent most, for everything it sent; inf: no guarantee."""
        return self.history[-1].epsilon_client if self.history else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The configuration, the end of the run and its last round, as JSON holds them."""
        last = self.history[-1].as_dict() if self.history else None
        return {"config": self.config.as_dict(), **self.summary, "last_round": last}

    @property
    def summary(self) -> dict[str, Any]:
        """The end of the run as JSON holds it."""
        loss = math.inf if self.test is None else self.test.loss
        history = self.history
        return {
            "rounds": len(history),
            "best_round": self.best_round,
            "test_accuracy": self.test_accuracy,
            "test_loss": loss if math.isfinite(loss) else None,
            **({} if self.test is None or self.test.auc is None else {"test_auc": self.test.auc}),
            "final_test_accuracy": None if self.final_test is None else self.final_test.accuracy,
            "dimension": self.dimension,
            "reports": sum(m.participants for m in history),
            "refused": sum(m.refused or 0 for m in history),
            "bytes_sent": round(sum(m.bytes_per_client * m.participants for m in history)),
            "training_seconds": sum(m.training_seconds for m in history),
            "coding_seconds": sum(m.coding_seconds for m in history),
            "evaluation_seconds": sum(m.evaluation_seconds for m in history),
            **self.facts,
            "diverged": self.diverged,
        }


def train(
    config: RunConfig,
    *,
    dataset: data.Dataset | None = None,
    model: nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run all rounds; ``record`` lists the files written to ``out``.

    ``resume`` continues from the last checkpoint in ``out``, or starts where there is none. Rounds
    recorded after the checkpoint run again: on the same machine with the same number of threads
    their results are equal bit for bit, except for private noise, which never repeats, and for
    gradients of hospitals' records, which sit in random slots and round in other ways.
    A run that diverges ends early: ``result.diverged`` says why, and earlier rounds are kept.
    ``progress`` is called after every round, before the round's checkpoint is written.
    """
    check_out(out, resume=resume)
    folder = None if out is None else Path(out)
    recorder = None if folder is None else Recorder(folder)
    simulation = Simulation(config, dataset=dataset, model=model)
    if folder is not None and resume and (folder / CHECKPOINT).exists():
        saved = Checkpoint.load(folder / CHECKPOINT)
        try:
            simulation.restore(saved)
        except CheckpointError as error:
            raise CheckpointError(f"{folder / CHECKPOINT}: {error}") from error
    if recorder is not None:
        followed = {"dimension": simulation.dimension, **simulation.federation.summary()}
        made_with = {**versions("numpy", "scipy"), "torch": torch.__version__}
        recorder.start({**config.as_dict(), **followed, **made_with}, simulation.history)
    diverged = None
    with nullcontext() if recorder is None else closing(recorder):
        while not simulation.is_done:
            try:
                metrics = simulation.step()
            except DivergedError as error:
                diverged = str(error)
                break
            if recorder is not None:
                recorder.add(metrics)
            if progress is not None:
                progress(metrics, simulation)  # before the checkpoint: a resumed run repeats it
            if recorder is not None and metrics.round % config.checkpoint_every == 0:
                simulation.checkpoint().save(recorder.folder / CHECKPOINT)
        result = Result.of(simulation, diverged)
        if recorder is not None:
            simulation.checkpoint().save(recorder.folder / CHECKPOINT)
            recorder.finish(result.history, result.summary)
        return result


def check_out(out: str | Path | None, *, resume: bool) -> None:
    """Raise ValueError unless ``train`` may write there: a run is resumed, never overwritten."""
    if out is None and resume:
        raise ValueError("resume needs out, the folder of the run")
    if out is not None and not resume:
        found = [name for name in FILES if (Path(out) / name).exists()]
        if found:
            raise ValueError(
                f"out={str(out)!r} already holds a run or other files ({', '.join(found)}): resume "
                "it or choose another folder"
            )
