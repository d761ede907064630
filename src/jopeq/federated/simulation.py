"""Federated averaging with real payloads: w ← w + η_s · Σ α_k h̃_k.

>>> from jopeq.federated.simulation import TrainConfig, train
>>> config = TrainConfig(data="digits", clients=4, rounds=2, local_steps=5, lr=0.5)
>>> result = train(config)
>>> len(result.history), result.history[0].bits_per_parameter > 32
(2, True)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from jopeq.federated import data, models
from jopeq.federated.batches import participants
from jopeq.federated.checkpoint import Checkpoint
from jopeq.federated.config import TrainConfig
from jopeq.federated.evaluation import Evaluation, evaluate
from jopeq.federated.local import LocalTrainer
from jopeq.federated.metrics import RoundMetrics, Spent, decibels, mean, signal_to_noise
from jopeq.federated.partition import partition, weights
from jopeq.federated.record import CHECKPOINT, ROUNDS, Recorder
from jopeq.federated.transport import Delivery, Transport
from jopeq.schemes import Scheme

__all__ = ["Result", "Simulation", "TrainConfig", "train"]

Progress = Callable[[RoundMetrics, "Simulation"], None]


class DivergedError(ArithmeticError):
    """A loss, an update or the model is no longer finite."""


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


class Simulation:
    """A server and its clients, round by round.

    Without ``dataset`` and ``model`` they are those the configuration names.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        dataset: data.Dataset | None = None,
        model: nn.Module | None = None,
    ) -> None:
        self.config = config
        dataset = data.load(config.data, config.data_dir) if dataset is None else dataset
        inputs, labels, *held_out = data.split_validation(dataset, config.validation, config.seed)
        self._parts = partition(
            labels.numpy(),
            config.clients,
            config.partition,
            config.alpha,
            config.shards_per_client,
            config.seed,
        )
        self._weights = weights(self._parts)
        if model is None:
            model = models.build(config.model, dataset.input_shape, dataset.classes, config.seed)
        self.trainer = LocalTrainer(
            model,
            inputs,
            labels,
            steps=config.local_steps,
            batch_size=config.batch_size,
            momentum=config.momentum,
            client_chunk=config.client_chunk,
            compile=config.compile,
            planned_steps=config.rounds * config.local_steps,
            device=config.device,
        )
        device = self.trainer.device
        self._validation = [part.to(device) for part in held_out]
        self._test = [part.to(device) for part in (dataset.test_inputs, dataset.test_labels)]
        self._model = self.trainer.copy_model()
        self._transport = Transport(self.trainer.layout, config.seed, config.noise_key)
        self.vector = self.trainer.layout.read(self._model)
        self.clip = config.initial_clip if config.is_adaptive else None
        self.history: list[RoundMetrics] = []
        self.best_round, self.best_vector = 0, self.vector.clone()
        self._updates_sent = np.zeros(config.clients, dtype=np.int64)

    @property
    def dimension(self) -> int:
        """Entries of an update."""
        return self.trainer.layout.size

    @property
    def scheme(self) -> Scheme:
        """The scheme of the coming round."""
        coder = self.config.coder
        return coder if self.clip is None else replace(coder, clip=self.clip)

    # A round

    def step(self) -> RoundMetrics:
        """Train, send, average, evaluate; raises ``DivergedError`` and then changes nothing."""
        number = len(self.history)
        config, scheme = self.config, self.scheme
        chosen = participants(config.clients, config.participation, config.seed, number)
        accuracies = [m.validation_accuracy or 0.0 for m in self.history]
        rates = config.learning_rates.rates(number, accuracies, config.local_steps)
        share = self._weights[chosen] / self._weights[chosen].sum()

        started = time.perf_counter()
        average = np.zeros(self.dimension)
        losses: list[float] = []
        deliveries, ratios, bits = [], [], []
        coding = 0.0
        for client, update, loss in self._trained(chosen, rates, number):
            began = time.perf_counter()
            delivery = self._transport.send(scheme, update, number, client)
            deliveries.append(replace(delivery, decoded=np.empty(0, np.float32)))
            ratios.append(signal_to_noise(update, delivery.decoded))
            average += share[len(losses)] * delivery.decoded.astype(np.float64)
            losses.append(loss)
            if self.clip is not None:
                rule, length = config.adaptive_clip, scheme.dimension
                vote = self._transport.clip_bit(rule, update, self.clip, length, number, client)
                bits.append(vote)
            coding += time.perf_counter() - began
        training = time.perf_counter() - started - coding

        vector = (self.vector.double() + config.server_lr * torch.from_numpy(average)).float()
        if not bool(torch.isfinite(vector).all()):
            raise DivergedError(f"the model is not finite after round {number + 1}")
        started = time.perf_counter()
        validation = self._evaluate(vector, *self._validation)
        evaluation = time.perf_counter() - started

        self._updates_sent[chosen] += 1
        metrics = RoundMetrics(
            round=number + 1,
            participants=len(chosen),
            learning_rate=rates[0],
            train_loss=float(np.dot(share, losses)),
            validation_loss=None if validation is None else validation.loss,
            validation_accuracy=None if validation is None else validation.accuracy,
            snr=mean(ratios),
            snr_db=decibels(mean(ratios)),
            clip=scheme.clip,
            training_seconds=training,
            evaluation_seconds=evaluation,
            **self._sizes(deliveries),
            **self._spent(scheme),
        )
        self._accept(metrics, vector)
        if self.clip is not None:
            self.clip = config.adaptive_clip.updated(self.clip, bits)
        return metrics

    def _trained(
        self, chosen: list[int], rates: list[float], number: int
    ) -> Iterator[tuple[int, NDArray[np.float32], float]]:
        trained = self.trainer.train(
            self.vector,
            self._parts,
            chosen,
            learning_rates=rates,
            seed=self.config.seed,
            round_number=number,
        )
        for some in trained:
            for client, update, loss in zip(some.clients, some.updates, some.losses, strict=True):
                if not (math.isfinite(loss) and np.isfinite(update).all()):
                    raise DivergedError(
                        f"training diverged in round {number + 1}: client {client} has loss "
                        f"{loss:g} and an update that is not finite; lower lr "
                        f"({self.config.lr:g}) or server_lr ({self.config.server_lr:g})"
                    )
                yield client, update, float(loss)

    def _sizes(self, deliveries: list[Delivery]) -> dict[str, Any]:
        counted = [delivery.statistics for delivery in deliveries]
        payload = mean([each.payload_bytes for each in counted])
        samples = sum(each.samples for each in counted)
        return {
            "bytes_per_client": payload,
            "bits_per_parameter": 8.0 * payload / self.dimension,
            "overload_rate": sum(each.overloaded for each in counted) / samples,
            "clipped_rate": sum(each.clipped for each in counted) / samples,
            "coding_seconds": math.fsum(delivery.seconds for delivery in deliveries),
        }

    def _spent(self, scheme: Scheme) -> dict[str, Any]:
        extra = self.config.adaptive_clip.guarantee if self.config.is_adaptive else None
        rounds = int(self._updates_sent.max())
        return Spent.of(scheme.guarantee, self.dimension, rounds, extra).as_fields()

    def _accept(self, metrics: RoundMetrics, vector: torch.Tensor) -> None:
        self.vector = vector
        best = self.history[self.best_round - 1].validation_accuracy if self.best_round else None
        self.history.append(metrics)
        now = metrics.validation_accuracy
        if now is None or best is None or now > best:
            self.best_round, self.best_vector = metrics.round, vector.clone()

    def _evaluate(
        self, vector: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
    ) -> Evaluation | None:
        self.trainer.layout.write(self._model, vector)
        return evaluate(self._model, inputs, labels)

    # Between rounds

    def checkpoint(self) -> Checkpoint:
        """All that is needed to go on from here."""
        return Checkpoint(
            self.config.as_dict(),
            self.vector,
            self.best_vector,
            self.best_round,
            self.clip,
            [metrics.as_dict() for metrics in self.history],
        )

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint of the same run."""
        saved.check(self.config.as_dict())
        if saved.vector.shape != self.vector.shape:
            raise ValueError(
                f"the checkpoint is of a model of {len(saved.vector)} entries, "
                f"this one has {len(self.vector)}"
            )
        self.vector, self.best_vector = saved.vector, saved.best_vector
        self.best_round, self.clip = saved.best_round, saved.clip
        self.history = [RoundMetrics.from_dict(values) for values in saved.history]
        self._updates_sent[:] = 0
        config = self.config
        for number in range(len(self.history)):
            chosen = participants(config.clients, config.participation, config.seed, number)
            self._updates_sent[chosen] += 1

    def result(self, diverged: str | None = None) -> Result:
        """Test accuracy of the best validation round, and everything else."""
        final, best = (self.trainer.copy_model() for _ in range(2))
        self.trainer.layout.write(final, self.vector)
        self.trainer.layout.write(best, self.best_vector)
        return Result(
            self.config,
            tuple(self.history),
            self.best_round,
            evaluate(best, *self._test),
            evaluate(final, *self._test),
            final.cpu(),
            best.cpu(),
            self.dimension,
            self.trainer.kind,
            diverged,
        )


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
    number of threads, private noise aside (see ``TrainConfig.noise_key``). Divergence ends the run: ``result.diverged`` says why,
    and what was reached before is kept. ``progress`` is called after every round.
    """
    if out is None and (resume or tensorboard):
        raise ValueError("resume and tensorboard need out, the folder of the run")
    folder = None if out is None else Path(out)
    if folder is not None and not resume and (folder / ROUNDS).exists():
        raise ValueError(
            f"out={str(folder)!r} already holds a run: resume it or choose another folder"
        )
    recorder = None if folder is None else Recorder(folder, tensorboard=tensorboard)
    simulation = Simulation(config, dataset=dataset, model=model)
    if folder is not None and resume and (folder / CHECKPOINT).exists():
        simulation.restore(Checkpoint.load(folder / CHECKPOINT))
    if recorder is not None:
        recorder.start(
            {**config.as_dict(), "dimension": simulation.dimension, "way": simulation.trainer.kind},
            simulation.history,
        )
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
                is_last = metrics.round == config.rounds
                if is_last or metrics.round % config.checkpoint_every == 0:
                    simulation.checkpoint().save(recorder.folder / CHECKPOINT)
            if progress is not None:
                progress(metrics, simulation)
        result = simulation.result(diverged)
        if recorder is not None:
            if diverged is not None:
                simulation.checkpoint().save(recorder.folder / CHECKPOINT)
            recorder.finish(result.history, result.summary())
        return result
    finally:
        if recorder is not None:
            recorder.close()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
