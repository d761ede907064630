"""Clients that train at home and send their updates as payloads; the server averages them.

w ← w + η_s · Σ α_k h̃_k, every h̃_k decoded from a real payload.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from jopeq import kernels
from jopeq.random.streams import SEED_BYTES, derive
from jopeq.schemes.aggregate import add_share
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Counts
from jopeq_lab.training import data, models
from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.federation import DivergedError, Step, check_finite
from jopeq_lab.training.local import LocalTrainer, LocalUpdates, participants
from jopeq_lab.training.metrics import RoundMetrics, decibels, mean, signal_to_noise, spent
from jopeq_lab.training.partition import partition, weights

Vector = NDArray[np.float32]


class Clients:
    """The clients of a run and what they keep from one round to the next."""

    selects_best = True

    def __init__(
        self, config: TrainConfig, dataset: data.Dataset, model: nn.Module | None = None
    ) -> None:
        self._config = config
        if config.centered:
            dataset = dataset.centered()
        inputs, labels, *held_out = data.split_validation(dataset, config.validation, config.seed)
        how = config.partition, config.alpha, config.seed
        self.parts = partition(labels.numpy(), config.clients, *how)
        self._weights = weights(self.parts)
        if model is None:
            model = models.build(config.model, dataset.input_shape, dataset.classes, config.seed)
        self.trainer = LocalTrainer(
            model,
            inputs,
            labels,
            steps=config.local_steps,
            batch_size=config.batch_size,
            momentum=config.momentum,
            compile=config.compile,
            total_steps=config.rounds * config.local_steps,
            device=config.device,
        )
        device = self.trainer.device
        self.validation = held_out[0].to(device), held_out[1].to(device)
        self.test = dataset.test_inputs.to(device), dataset.test_labels.to(device)
        self.model, self.layout = self.trainer.copy_model(), self.trainer.layout
        self.rounds = range(1, config.rounds + 1)
        kernels.prepare(2 * config.rounds * config.clients * self.layout.size)
        self.transport = Transport(self.layout, config.seed)
        self.updates_sent = np.zeros(config.clients, dtype=np.int64)
        self._losses: list[list[float]] = [[] for _ in range(config.clients)]  # of each's rounds
        keeps = config.keep_momentum
        self._momenta = self.trainer.zero_momenta(config.clients) if keeps else None

    @property
    def scheme(self) -> Scheme:
        """The scheme of the coming round."""
        return self._config.built_scheme

    def step(self, number: int, vector: torch.Tensor, history: Sequence[RoundMetrics]) -> Step:
        """Train, send, average."""
        config, scheme = self._config, self.scheme
        chosen = self._choose(number)
        alphas = self._weights[chosen] / self._weights[chosen].sum()
        momenta = None if self._momenta is None else self._momenta.clone()
        started = time.perf_counter()
        trained = self.trainer.train(
            vector,
            self.parts,
            chosen,
            learning_rate=config.lr,
            seed=config.seed,
            round_number=number - 1,
            rate_factors=config.rate_factors([self._losses[client] for client in chosen]),
            momenta=momenta,
        )
        self._check(trained, number)
        training = time.perf_counter() - started
        sent = self.transport.send(scheme, list(trained.updates), number - 1, chosen)
        average = np.zeros(self.layout.size)
        for decoded, alpha in zip(sent.decoded, alphas, strict=True):
            add_share(average, decoded, alpha)
        ratio = mean([*map(signal_to_noise, trained.updates, sent.decoded)])
        moved = (vector.double() + config.server_lr * torch.from_numpy(average)).float()
        check_finite(moved, number, config.server_lr)
        self.updates_sent[chosen] += 1
        self._momenta = momenta
        for client, loss in zip(chosen, trained.losses, strict=True):
            self._losses[client].append(float(loss))
        return Step(
            moved,
            {
                "participants": len(chosen),
                "train_loss": float(np.dot(alphas, trained.losses)),
                "snr": ratio,
                "snr_db": decibels(ratio),
                "clip": scheme.clip,
                "training_seconds": training,
                "coding_seconds": sent.seconds,
                **self._sizes(sent.statistics),
                **spent(scheme.guarantee, self.layout.size, int(self.updates_sent.max())),
            },
        )

    def _check(self, trained: LocalUpdates, number: int) -> None:
        config = self._config
        finite = np.isfinite(trained.losses) & np.isfinite(trained.updates).all(1)
        if not finite.all():
            place = int(np.argmin(finite))
            raise DivergedError(
                f"training diverged in round {number}: the loss ({trained.losses[place]:g}) or the "
                f"update of client {trained.clients[place]} is not finite; lower lr "
                f"({config.lr:g}) or server_lr ({config.server_lr:g})"
            )

    def _sizes(self, counted: list[Counts]) -> dict[str, Any]:
        payload = mean([each.payload_bytes for each in counted])
        samples = sum(each.samples for each in counted)
        return {
            "bytes_per_client": payload,
            "bits_per_parameter": 8.0 * payload / self.layout.size,
            "overload_rate": sum(each.overloaded for each in counted) / samples,
            "clipped_rate": sum(each.clipped for each in counted) / samples,
        }

    def view(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    def state(self) -> dict[str, Any]:
        losses = [list(mine) for mine in self._losses]
        return {"losses": losses, "momenta": self._momenta}

    def restore(self, state: dict[str, Any], history: Sequence[RoundMetrics]) -> None:
        self._losses = [list(losses) for losses in state["losses"]]
        if self._momenta is not None:
            self._momenta = state["momenta"].to(self._momenta)
        self.updates_sent[:] = 0
        for metrics in history:
            self.updates_sent[self._choose(metrics.round)] += 1

    def summary(self) -> dict[str, Any]:
        return {"way": self.trainer.kind}

    def _choose(self, number: int) -> list[int]:
        """The clients of round ``number``."""
        config = self._config
        return participants(config.clients, config.participation, config.seed, number - 1)


@dataclass(frozen=True, eq=False)
class Deliveries:
    """Updates as the server decoded them, and what coding cost."""

    decoded: list[Vector]
    statistics: list[Counts]
    seconds: float


class Transport:
    """Sends updates as real payloads, one for each client and round.

    Noise and dither come from the operating system's entropy and never repeat. Only the dither of
    schemes that promise no privacy follows the run's seed, so that these runs repeat.
    """

    def __init__(self, layout: models.ModelVector, seed: int) -> None:
        self._layout, self._seed = layout, seed

    def send(
        self, scheme: Scheme, updates: Sequence[Vector], round_number: int, clients: Sequence[int]
    ) -> Deliveries:
        """Encode all updates first, then decode all: alternating evicts the caches.

        All clients are in this process, so an update that diverged raises ``UpdateError``.
        """
        seeds = [self.dither_seed(scheme, round_number, client) for client in clients]
        start = time.perf_counter()
        by_tensor = scheme.per == "tensor"  # the scheme then measures one scale for each tensor
        forms = [self._named(update) if by_tensor else update for update in updates]
        sent = [
            scheme.encode(form, seed=seed, on_invalid="raise", counts=True)
            for form, seed in zip(forms, seeds, strict=True)
        ]
        if by_tensor:
            states = zip(forms, sent, strict=True)
            found = (scheme.decode(payload, like=form) for form, (payload, _) in states)
            decoded = [np.concatenate([*map(np.ravel, state.values())]) for state in found]
        else:
            decoded = [scheme.decode(payload) for payload, _ in sent]
        seconds = time.perf_counter() - start
        return Deliveries(decoded, [statistics for _, statistics in sent], seconds)

    def dither_seed(self, scheme: Scheme, round_number: int, client: int) -> bytes | None:
        """The seed of a public dither; None where the scheme draws a fresh one."""
        if scheme.is_private or not scheme.codec.has_dither:
            return None
        context = repr((self._seed, round_number, client)).encode()
        return derive(bytes(SEED_BYTES), b"jopeq simulation dither", context)

    def _named(self, update: Vector) -> dict[str, Vector]:
        layout = self._layout
        pieces = map(np.reshape, np.split(update, np.cumsum(layout.sizes)[:-1]), layout.shapes)
        return dict(zip(layout.names, pieces, strict=True))
