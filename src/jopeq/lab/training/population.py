"""Many people, few examples each, few reports in a lifetime: training with ε for a person.

    people     each has ``examples`` of the training samples and takes part in ``participations``
               rounds at most; N·m beyond the training set gives out its samples again
    center     if asked for, the first people report their features instead of a gradient; all
               others subtract the private mean of them
    a round    its people compute gradients at the same weights; a mechanism (``cohorts``) makes
               their private mean of real bytes; the server takes one step
    result     the mean of the last weights

ε in the record is of a person, over all that she ever sends.

>>> from jopeq.lab.training.population import PeopleConfig, train_people
>>> config = PeopleConfig(data="digits", people=1000, rounds=4, features="pixels", server_lr=8.0)
>>> result = train_people(config)
>>> len(result.history), result.history[0].people, result.epsilon
(4, 250, inf)
"""

from __future__ import annotations

import json
import math
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from jopeq import kernels
from jopeq.files import atomic
from jopeq.lab.training import data, features, models
from jopeq.lab.training.cohorts import Cohort
from jopeq.lab.training.config import PeopleConfig
from jopeq.lab.training.metrics import Evaluation, evaluate
from jopeq.lab.training.partition import cohorts, owned
from jopeq.lab.training.record import CHECKPOINT, CONFIG, ROUNDS, SUMMARY, CheckpointError
from jopeq.lab.training.server import Server
from jopeq.privacy.guarantee import Guarantee
from jopeq.versions import versions

__all__ = ["PeopleConfig", "PeopleResult", "PeopleRound", "Population", "train_people"]

Indices = NDArray[np.int64]
_CHUNK_ENTRIES = {"cpu": 1 << 23, "cuda": 1 << 27}  # of gradients that are held at once
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class PeopleRound:
    """One round; round 0 is that of the center."""

    round: int
    people: int
    bytes_per_person: float
    refused: int
    validation_accuracy: float | None
    validation_loss: float | None
    seconds: float


Progress = Callable[[PeopleRound], None]


class Population:
    """The people, the server between them, and the rounds so far."""

    def __init__(self, config: PeopleConfig, *, dataset: data.Dataset | None = None) -> None:
        self.config = config
        dataset = data.load(config.data, config.data_dir) if dataset is None else dataset
        split = data.split_validation(dataset, config.validation, config.seed)
        inputs, self._labels, held, held_labels = (part.to(config.device) for part in split)
        test = (dataset.test_inputs.to(config.device), dataset.test_labels.to(config.device))
        if config.features is not None:
            inputs, held, test_inputs = (
                features.features(part, config.features) for part in (inputs, held, test[0])
            )
            test = (test_inputs, test[1])
        self._inputs, self._validation, self._test = inputs, (held, held_labels), test
        self._owned = owned(config.people, config.examples, len(self._labels), config.seed)
        self.is_resampled = config.people * config.examples > len(self._labels)
        self.model = self._new_model(dataset).to(config.device)
        self._layout = models.ModelVector(self.model)
        self.server = Server(config.descent, self._layout.read(self.model))
        self.center: torch.Tensor | None = None
        self.history: list[PeopleRound] = []
        sizes = (config.people_in_center, *(config.people_a_round for _ in range(config.rounds)))
        self._cohorts = list(cohorts(config.people, sizes, config.seed))
        kernels.expect(config.people * config.participations << 16)

    def _new_model(self, dataset: data.Dataset) -> nn.Module:
        config, shape = self.config, dataset.input_shape
        if config.features is not None:
            shape = (1, 1, self._inputs.shape[1] + 1)
        if config.model != "linear":
            return models.build(config.model, shape, dataset.classes, config.seed)
        # the constant entry of features is the bias
        made = nn.Linear(math.prod(shape), dataset.classes, bias=config.features is None)
        for parameter in made.parameters():
            nn.init.zeros_(parameter)
        return nn.Sequential(nn.Flatten(), made)

    @property
    def dimension(self) -> int:
        """Entries of an update."""
        return self._layout.size

    @property
    def guarantee(self) -> Guarantee:
        """Of a person, for all rounds, center included."""
        config = self.config
        count = config.participations
        own = config.mechanism.guarantee(self.dimension, config.people_a_round, count)
        if not config.people_in_center:
            return own
        center = config.mechanism.clipped_to(1.0).guarantee(
            self._inputs.shape[1], config.people_in_center, count
        )
        return max(own, center, key=lambda one: one.epsilon)

    # Rounds

    @property
    def is_done(self) -> bool:
        return len(self.history) == len(self._cohorts)

    def step(self) -> PeopleRound | None:
        """The next round; None for a center of nobody."""
        started, number = time.perf_counter(), len(self.history)
        people, config = self._cohorts[number], self.config
        cohort: Cohort | None = None
        if number == 0 and len(people):
            size = self._inputs.shape[1]
            makes = config.mechanism.clipped_to(1.0)
            cohort = makes.cohort(size, len(people), config.participations)
            mean = self._sent(cohort, people, size, lambda samples: self._inputs[samples].mean(1))
            self.center = mean.float().to(config.device)
        elif number:
            cohort = config.mechanism.cohort(self.dimension, len(people), config.participations)
            self.server.step(number - 1, self._sent(cohort, people, self.dimension, self._gradient))
            if not bool(torch.isfinite(self.server.weights).all()):
                raise ArithmeticError(
                    f"the model is not finite after round {number}: lower server_lr "
                    f"({config.server_lr:g})"
                )
        found = self.evaluate(*self._validation) if number else None
        done = PeopleRound(
            round=number,
            people=len(people),
            bytes_per_person=0.0 if cohort is None else cohort.sent / len(people),
            refused=0 if cohort is None else cohort.refused,
            validation_accuracy=None if found is None else found.accuracy,
            validation_loss=None if found is None else found.loss,
            seconds=time.perf_counter() - started,
        )
        self.history.append(done)
        return done if len(people) else None

    def _sent(
        self,
        cohort: Cohort,
        people: Indices,
        size: int,
        updates: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        chunk = max(1, _CHUNK_ENTRIES[self._labels.device.type] // size)
        for first in range(0, len(people), chunk):
            some = people[first : first + chunk]
            theirs = torch.from_numpy(self._owned[some]).to(self._labels.device)
            cohort.add(updates(theirs), some)
        return torch.from_numpy(cohort.mean())

    def _gradient(self, samples: torch.Tensor) -> torch.Tensor:
        """The sum of the gradients of each person's steps: a row each."""
        config, model = self.config, self.model
        start = self._layout.stacked(self.server.asked.to(config.device), 1)
        weights = {name: value[0] for name, value in start.items()}

        def loss(held: dict[str, Any], inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(functional_call(model, held, (inputs,)), labels)

        def trained(inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            held, total = weights, {name: torch.zeros_like(v) for name, v in weights.items()}
            for _ in range(config.local_steps):
                slope = grad(loss)(held, inputs, labels)
                held = {name: value - config.lr * slope[name] for name, value in held.items()}
                total = {name: value + slope[name] for name, value in total.items()}
            return total

        rows = self._seen(self._inputs[samples.flatten()])
        inputs = rows.view(*samples.shape, *rows.shape[1:])
        found = vmap(trained, randomness="different")(inputs, self._labels[samples])
        return self._layout.joined(found, len(samples))

    def _seen(self, inputs: torch.Tensor) -> torch.Tensor:
        """Samples as the model takes them."""
        if self.config.features is None:
            return inputs
        return features.finished(inputs, self.center)[:, None, None]

    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> Evaluation | None:
        """The server's result on some samples."""
        self._layout.write(self.model, self.server.result.to(self.config.device))
        return evaluate(self.model, self._seen(inputs), labels) if len(labels) else None

    def summary(self) -> dict[str, Any]:
        """Accuracy, costs and ε of a person, as JSON holds them."""
        test, guarantee = self.evaluate(*self._test), self.guarantee
        rounds = [done for done in self.history if done.people]
        return {
            "test_accuracy": None if test is None else test.accuracy,
            "validation_accuracy": rounds[-1].validation_accuracy,
            "people": self.config.people,
            "people_a_round": self.config.people_a_round,
            "is_resampled": self.is_resampled,
            "dimension": self.dimension,
            "reports": sum(done.people for done in rounds),
            "refused": sum(done.refused for done in rounds),
            "bytes_sent": round(sum(done.people * done.bytes_per_person for done in rounds)),
            "epsilon": guarantee.epsilon if math.isfinite(guarantee.epsilon) else None,
            "delta": guarantee.delta,
            "guarantee": str(guarantee),
            "seconds": sum(done.seconds for done in rounds),
        }

    # Checkpoints

    def save(self, path: Path) -> None:
        """All that ``restore`` needs, at once: a reader sees the old file or the new one."""
        server = self.server
        with atomic(path) as file:
            torch.save(
                {
                    "version": _VERSION,
                    "config": json.dumps(self.config.as_dict()),
                    "server": (server.weights, server.velocity, server.total, server.count),
                    "center": self.center,
                    "history": json.dumps([asdict(done) for done in self.history]),
                },
                file,
            )

    def restore(self, path: Path) -> None:
        """Go on from a file of the same run; nothing in the file can run."""
        try:
            kept = torch.load(path, map_location="cpu", weights_only=True)
            is_same = kept["version"] == _VERSION
            was = json.loads(kept["config"])
            history = [PeopleRound(**values) for values in json.loads(kept["history"])]
            weights, velocity, total, count = kept["server"]
            center = kept["center"]
        except (
            *(OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError),
            pickle.UnpicklingError,
        ) as error:
            raise CheckpointError(f"{path} is no checkpoint of people ({error})") from error
        now = json.loads(json.dumps(self.config.as_dict()))
        different = [name for name in now if name != "data_dir" and was.get(name) != now[name]]
        if different or not is_same or weights.shape != self.server.weights.shape:
            raise CheckpointError(
                f"{path} is of another run ({', '.join(different) or 'version or model'} differ): "
                "resume with the same options, or start in another folder"
            )
        server = self.server
        server.weights, server.velocity, server.total, server.count = (
            weights,
            velocity,
            total,
            count,
        )
        self.center = None if center is None else center.to(self.config.device)
        self.history = history


@dataclass(frozen=True, eq=False)
class PeopleResult:
    """A finished run."""

    config: PeopleConfig
    history: tuple[PeopleRound, ...]  # of rounds in which somebody took part
    summary: dict[str, Any]
    model: nn.Module

    @property
    def test_accuracy(self) -> float | None:
        value: float | None = self.summary["test_accuracy"]
        return value

    @property
    def epsilon(self) -> float:
        """Of a person, for everything she sent; inf without a guarantee."""
        value = self.summary["epsilon"]
        return math.inf if value is None else float(value)


def train_people(
    config: PeopleConfig,
    *,
    dataset: data.Dataset | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> PeopleResult:
    """All rounds. ``out`` gets config.json, rounds.jsonl, summary.json and a checkpoint a round.

    ``resume`` goes on after the last finished round in ``out``; a round that was interrupted starts
    anew.
    """
    with _torch_threads(config.threads):
        return _train(config, dataset, out, resume, progress)


def _train(
    config: PeopleConfig,
    dataset: data.Dataset | None,
    out: str | Path | None,
    resume: bool,
    progress: Progress | None,
) -> PeopleResult:
    population = Population(config, dataset=dataset)
    folder = None if out is None else Path(out)
    if folder is not None:
        if (folder / CHECKPOINT).exists():
            if not resume:
                raise ValueError(f"out={str(out)!r} already holds a run: resume it or take another")
            population.restore(folder / CHECKPOINT)
        folder.mkdir(parents=True, exist_ok=True)
        made_with = {**versions("numpy", "scipy"), "torch": torch.__version__}
        _write(folder / CONFIG, json.dumps({**config.as_dict(), **made_with}, indent=2))
    while not population.is_done:
        done = population.step()
        if folder is not None:
            lines = [json.dumps(asdict(one)) for one in population.history if one.people]
            _write(folder / ROUNDS, "\n".join(lines))
            population.save(folder / CHECKPOINT)
        if done is not None and progress is not None:
            progress(done)
    summary = population.summary()
    if folder is not None:
        _write(folder / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False))
    rounds = tuple(done for done in population.history if done.people)
    return PeopleResult(config, rounds, summary, population.model.cpu())


@contextmanager
def _torch_threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before if count is None else count)
        yield
    finally:
        torch.set_num_threads(before)


def _write(path: Path, text: str) -> None:
    with atomic(path) as file:
        file.write((text + "\n").encode())
