"""A federation in one process: a server and its clients, round by round, and whole runs.

w ← w + η_s · Σ α_k h̃_k, every h̃_k decoded from a real payload.

>>> from jopeq.lab.training.simulation import TrainConfig, train
>>> config = TrainConfig(data="digits", clients=4, rounds=2, local_steps=5, lr=0.5)
>>> result = train(config)
>>> len(result.history), result.history[0].bits_per_parameter > 32
(2, True)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from jopeq import kernels
from jopeq.lab.training import data, models
from jopeq.lab.training.config import TrainConfig
from jopeq.lab.training.local import LocalTrainer, LocalUpdates, participants
from jopeq.lab.training.metrics import (
    Evaluation,
    RoundMetrics,
    decibels,
    evaluate,
    mean,
    signal_to_noise,
    spent,
)
from jopeq.lab.training.partition import partition, weights
from jopeq.lab.training.record import CHECKPOINT, FILES, Checkpoint, CheckpointError, Recorder
from jopeq.random.streams import SEED_BYTES, PrivateStream, derive
from jopeq.schemes.aggregate import add_share
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Counts
from jopeq.versions import versions

__all__ = ["Result", "Simulation", "TrainConfig", "train"]

Progress = Callable[[RoundMetrics, "Simulation"], None]
Vector = NDArray[np.float32]


class DivergedError(ArithmeticError):
    """A loss, an update or the model is no longer finite."""


class Simulation:
    """A server and its clients, round by round.

    ``dataset`` and ``model`` replace those that the configuration names.
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
            total_steps=config.rounds * config.local_steps,
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
        self._losses: list[list[float]] = [[] for _ in range(config.clients)]  # of each's rounds
        keeps = config.keep_momentum
        self._momenta = self.trainer.zero_momenta(config.clients) if keeps else None

    @property
    def dimension(self) -> int:
        """Entries of an update."""
        return self.trainer.layout.size

    @property
    def scheme(self) -> Scheme:
        """The scheme of the coming round."""
        built = self.config.built_scheme
        return built if self.clip is None else replace(built, clip=self.clip)

    # A round

    def step(self) -> RoundMetrics:
        """Train, send, average, evaluate; raises ``DivergedError`` and then changes nothing."""
        with _torch_set_up(self.config):
            return self._step()

    def _step(self) -> RoundMetrics:
        number = len(self.history)
        config, scheme = self.config, self.scheme
        chosen = self._chosen(number)
        accuracies = [m.validation_accuracy or 0.0 for m in self.history]
        rates = config.learning_rates(number, accuracies)
        share = self._weights[chosen] / self._weights[chosen].sum()
        momenta = None if self._momenta is None else self._momenta.clone()

        started = time.perf_counter()
        average = np.zeros(self.dimension)
        losses: list[float] = []
        counted: list[Counts] = []
        ratios, bits = [], []
        coding = afterwards = 0.0
        for some in self._trained(chosen, rates, number, momenta):
            began = time.perf_counter()
            sent = self._transport.send(scheme, list(some.updates), number, some.clients)
            coding += sent.seconds
            counted += sent.counts
            for client, update, decoded, loss in zip(
                some.clients, some.updates, sent.decoded, some.losses, strict=True
            ):
                ratios.append(signal_to_noise(update, decoded))
                add_share(average, decoded, share[len(losses)])
                losses.append(float(loss))
                if self.clip is not None:
                    noise = self._transport.clip_noise(number, client)
                    rule, size = config.adaptive_clip, scheme.dimension
                    bits.append(rule.bit(update, self.clip, size, noise))
            afterwards += time.perf_counter() - began
        training = time.perf_counter() - started - afterwards

        vector = (self.vector.double() + config.server_lr * torch.from_numpy(average)).float()
        if not bool(torch.isfinite(vector).all()):
            raise DivergedError(f"the model is not finite after round {number + 1}")
        started = time.perf_counter()
        self.trainer.layout.write(self._model, vector)
        validation = evaluate(self._model, *self._validation)
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
        self._momenta = momenta
        for client, loss in zip(chosen, losses, strict=True):
            self._losses[client].append(loss)
        if self.clip is not None:
            self.clip = config.adaptive_clip.updated(self.clip, bits)
        return metrics

    def _trained(
        self, chosen: list[int], rates: list[float], number: int, momenta: torch.Tensor | None
    ) -> Iterator[LocalUpdates]:
        """The clients' updates, a chunk at a time; raises where one is not finite."""
        trained = self.trainer.train(
            self.vector,
            self._parts,
            chosen,
            learning_rates=rates,
            seed=self.config.seed,
            round_number=number,
            rate_factors=self.config.rate_factors([self._losses[client] for client in chosen]),
            momenta=momenta,
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

    def _sizes(self, counted: list[Counts]) -> dict[str, Any]:
        payload = mean([each.payload_bytes for each in counted])
        samples = sum(each.samples for each in counted)
        return {
            "bytes_per_client": payload,
            "bits_per_parameter": 8.0 * payload / self.dimension,
            "overload_rate": sum(each.overloaded for each in counted) / samples,
            "clipped_rate": sum(each.clipped for each in counted) / samples,
        }

    def _spent(self, scheme: Scheme) -> dict[str, Any]:
        vote = self.config.adaptive_clip.guarantee if self.config.is_adaptive else None
        return spent(scheme.guarantee, self.dimension, int(self._updates_sent.max()), vote)

    def _accept(self, metrics: RoundMetrics, vector: torch.Tensor) -> None:
        self.vector = vector
        best = self.history[self.best_round - 1].validation_accuracy if self.best_round else None
        self.history.append(metrics)
        now = metrics.validation_accuracy
        if now is None or best is None or now > best:
            self.best_round, self.best_vector = metrics.round, vector.clone()

    # Between rounds

    def models(self) -> tuple[nn.Module, nn.Module]:
        """Copies of the model after the last round, and after the best one."""
        pair = self.trainer.copy_model(), self.trainer.copy_model()
        for model, vector in zip(pair, (self.vector, self.best_vector), strict=True):
            self.trainer.layout.write(model, vector)
        return pair

    def checkpoint(self) -> Checkpoint:
        """The state from which ``restore`` continues."""
        return Checkpoint(
            self.config.as_dict(),
            self.vector,
            self.best_vector,
            self.best_round,
            self.clip,
            [metrics.as_dict() for metrics in self.history],
            [list(losses) for losses in self._losses],
            self._momenta,
        )

    def restore(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint of the same run."""
        saved.check(self.config.as_dict())
        if saved.vector.shape != self.vector.shape:
            raise ValueError(
                f"the checkpoint is of a model of {len(saved.vector)} entries, "
                f"this one has {len(self.vector)}"
            )
        self.vector, self.best_vector = saved.vector, saved.best_vector
        self.best_round, self.clip = saved.best_round, saved.clip
        self.history = [RoundMetrics.from_dict(values) for values in saved.history]
        self._losses = [list(losses) for losses in saved.losses]
        if self._momenta is not None and saved.momenta is not None:
            self._momenta = saved.momenta.to(self._momenta)
        self._updates_sent[:] = 0
        for number in range(len(self.history)):
            self._updates_sent[self._chosen(number)] += 1

    def _chosen(self, number: int) -> list[int]:
        """The clients of round ``number``."""
        config = self.config
        return participants(config.clients, config.participation, config.seed, number)


@contextmanager
def _torch_set_up(config: TrainConfig) -> Iterator[None]:
    """PyTorch with the configuration's threads and tensor cores within, as it was afterwards."""
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
class Deliveries:
    """Updates as the server decoded them, and what coding cost."""

    decoded: list[Vector]
    counts: list[Counts]
    seconds: float


class Transport:
    """Sends updates as real payloads, one for each client and round.

    Noise and dither come from the operating system's entropy. The dither of schemes that promise
    no privacy follows the run's seed, so these runs repeat. Only with a ``noise_key``, for tests,
    are noise and dither derived from the key by HMAC, separately for each (seed, round, client).
    """

    def __init__(
        self, layout: models.ModelVector, seed: int, noise_key: bytes | None = None
    ) -> None:
        self._layout, self._seed, self._noise_key = layout, seed, noise_key

    def send(
        self, scheme: Scheme, updates: Sequence[Vector], round_number: int, clients: Sequence[int]
    ) -> Deliveries:
        """Encode all updates first, then decode all: alternating evicts the caches.

        All clients are in this process, so an update that diverged raises ``UpdateError``.
        """
        secrets = [self._secrets(scheme, round_number, client) for client in clients]
        start = time.perf_counter()
        by_tensor = scheme.per == "tensor"  # the scheme then measures one scale for each tensor
        forms = [self._named(update) if by_tensor else update for update in updates]
        sent = [
            scheme.encode(form, seed=seed, noise=noise, on_invalid="raise", counts=True)
            for form, (seed, noise) in zip(forms, secrets, strict=True)
        ]
        if by_tensor:
            states = zip(forms, sent, strict=True)
            found = (scheme.decode(payload, like=form) for form, (payload, _) in states)
            decoded = [np.concatenate([*map(np.ravel, state.values())]) for state in found]
        else:
            decoded = [scheme.decode(payload) for payload, _ in sent]
        seconds = time.perf_counter() - start
        return Deliveries(decoded, [statistics for _, statistics in sent], seconds)

    def clip_noise(self, round_number: int, client: int) -> PrivateStream | None:
        """The noise of the client's vote on the clip; None where the vote takes fresh noise."""
        return self._stream(b"clip", round_number, client)

    def _secrets(
        self, scheme: Scheme, round_number: int, client: int
    ) -> tuple[bytes | None, PrivateStream | None]:
        """Seed of the dither, and noise; None where the scheme takes fresh ones."""
        seed = None
        if scheme.codec.is_seeded and (self._noise_key is not None or not scheme.is_private):
            key = bytes(SEED_BYTES) if self._noise_key is None else self._noise_key
            seed = self._derived(key, b"dither", round_number, client)
        return seed, self._stream(b"noise", round_number, client)

    def _stream(self, purpose: bytes, round_number: int, client: int) -> PrivateStream | None:
        if self._noise_key is None:
            return None
        key = self._derived(self._noise_key, purpose, round_number, client)
        return PrivateStream.reproducible(key)

    def _derived(self, key: bytes, purpose: bytes, round_number: int, client: int) -> bytes:
        context = repr((self._seed, round_number, client)).encode()
        return derive(key, b"jopeq simulation " + purpose, context)

    def _named(self, update: Vector) -> dict[str, Vector]:
        layout = self._layout
        pieces = map(np.reshape, np.split(update, np.cumsum(layout.sizes)[:-1]), layout.shapes)
        return dict(zip(layout.names, pieces, strict=True))


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
        """The result of a simulation as it stands."""
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
        """Test accuracy of the best validation round, as in the authors' code."""
        return None if self.test is None else self.test.accuracy

    def as_dict(self) -> dict[str, Any]:
        """The configuration, the end of the run and its last round, as JSON holds them."""
        last = self.history[-1].as_dict() if self.history else None
        return {"config": self.config.as_dict(), **self.summary(), "last_round": last}

    def summary(self) -> dict[str, Any]:
        """The end of the run as JSON holds it."""
        loss = math.inf if self.test is None else self.test.loss
        return {
            "rounds": len(self.history),
            "best_round": self.best_round,
            "test_accuracy": self.test_accuracy,
            "test_loss": loss if math.isfinite(loss) else None,
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
    """Run all rounds; ``record`` lists the files written to ``out``.

    ``resume`` continues from the last checkpoint in ``out``, or starts where there is none. Rounds
    recorded after the checkpoint run again: on the same machine with the same number of threads
    their results are equal bit for bit, except for private noise (see ``TrainConfig.noise_key``).
    A run that diverges ends early: ``result.diverged`` says why, and earlier rounds are kept.
    ``progress`` is called after every round, before the round's checkpoint is written.
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
    with nullcontext() if recorder is None else closing(recorder):
        while len(simulation.history) < config.rounds:
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
            recorder.finish(result.history, result.summary())
        return result


def check_out(out: str | Path | None, *, resume: bool, tensorboard: bool) -> None:
    """Raise ValueError unless ``train`` may write there: a run is resumed, never overwritten."""
    if out is None and (resume or tensorboard):
        raise ValueError("resume and tensorboard need out, the folder of the run")
    if out is not None and not resume:
        found = [name for name in FILES if (Path(out) / name).exists()]
        if found:
            raise ValueError(
                f"out={str(out)!r} already holds a run or other files ({', '.join(found)}): resume "
                "it or choose another folder"
            )
