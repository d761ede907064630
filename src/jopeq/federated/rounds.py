"""A server and its clients, round by round: w ← w + η_s · Σ α_k h̃_k, every h̃_k a real payload."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from jopeq import kernels
from jopeq.federated import data, models
from jopeq.federated.config import TrainConfig
from jopeq.federated.local import LocalTrainer, LocalUpdates, participants
from jopeq.federated.metrics import (
    Evaluation,
    RoundMetrics,
    Spent,
    decibels,
    evaluate,
    mean,
    signal_to_noise,
)
from jopeq.federated.partition import partition, weights
from jopeq.federated.record import Checkpoint
from jopeq.federated.transport import Transport
from jopeq.schemes import Scheme, Statistics


class DivergedError(ArithmeticError):
    """A loss, an update or the model is no longer finite."""


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
        if config.centered:
            dataset = dataset.centered()
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
        self.test_samples = [part.to(device) for part in (dataset.test_inputs, dataset.test_labels)]
        self._model = self.trainer.copy_model()
        kernels.expect(2 * config.rounds * config.clients * self.trainer.layout.size)
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
        with _threads(self.config.threads), _tensor_cores(self.config.tf32):
            return self._step()

    def _step(self) -> RoundMetrics:
        number = len(self.history)
        config, scheme = self.config, self.scheme
        chosen = participants(config.clients, config.participation, config.seed, number)
        accuracies = [m.validation_accuracy or 0.0 for m in self.history]
        rates = config.learning_rates.rates(number, accuracies, config.local_steps)
        share = self._weights[chosen] / self._weights[chosen].sum()

        started = time.perf_counter()
        average = np.zeros(self.dimension)
        losses: list[float] = []
        counted: list[Statistics] = []
        ratios, bits = [], []
        coding = afterwards = 0.0
        for some in self._trained(chosen, rates, number):
            began = time.perf_counter()
            sent = self._transport.send(scheme, list(some.updates), number, some.clients)
            coding += sent.seconds
            counted += sent.statistics
            for client, update, decoded, loss in zip(
                some.clients, some.updates, sent.decoded, some.losses, strict=True
            ):
                ratios.append(signal_to_noise(update, decoded))
                average += share[len(losses)] * decoded.astype(np.float64)
                losses.append(float(loss))
                if self.clip is not None:
                    rule, length = config.adaptive_clip, scheme.dimension
                    vote = self._transport.clip_bit(rule, update, self.clip, length, number, client)
                    bits.append(vote)
            afterwards += time.perf_counter() - began
        training = time.perf_counter() - started - afterwards

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
            coding_seconds=coding,
            evaluation_seconds=evaluation,
            **self._sizes(counted),
            **self._spent(scheme),
        )
        self._accept(metrics, vector)
        if self.clip is not None:
            self.clip = config.adaptive_clip.updated(self.clip, bits)
        return metrics

    def _trained(
        self, chosen: list[int], rates: list[float], number: int
    ) -> Iterator[LocalUpdates]:
        """What the clients want to send, all of it finite."""
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
                        f"training diverged in round {number + 1}: the loss ({loss:g}) or the "
                        f"update of client {client} is not finite; lower lr "
                        f"({self.config.lr:g}) or server_lr ({self.config.server_lr:g})"
                    )
            yield some

    def _sizes(self, counted: list[Statistics]) -> dict[str, Any]:
        payload = mean([each.payload_bytes for each in counted])
        samples = sum(each.samples for each in counted)
        return {
            "bytes_per_client": payload,
            "bits_per_parameter": 8.0 * payload / self.dimension,
            "overload_rate": sum(each.overloaded for each in counted) / samples,
            "clipped_rate": sum(each.clipped for each in counted) / samples,
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

    def models(self) -> tuple[nn.Module, nn.Module]:
        """Copies of the model after the last round, and after the best one."""
        pair = self.trainer.copy_model(), self.trainer.copy_model()
        for model, vector in zip(pair, (self.vector, self.best_vector), strict=True):
            self.trainer.layout.write(model, vector)
        return pair

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


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)


@contextmanager
def _tensor_cores(are_used: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    if are_used:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if are_used:
            torch.set_float32_matmul_precision(before)
