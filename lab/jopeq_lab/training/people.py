"""Many people, few samples each, few reports in a lifetime: training with ε for a person.

    people     each has ``examples`` of the training samples and takes part in ``participations``
               rounds at most; N·m beyond the training set gives out its samples again
    round 0    with a ``center``, its people report their features instead of a gradient; all
               others subtract the private mean of them
    a round    its people compute gradients at the same weights; a mechanism (``cohorts``) makes
               their private mean of real bytes; the server takes one step (``descent``)
    result     the mean of the last weights

ε in the record is of a person, over all that the person ever sends.

>>> from jopeq_lab.training.simulation import PeopleConfig, train
>>> config = PeopleConfig(data="digits", people=1000, rounds=4, features="pixels", server_lr=8.0)
>>> result = train(config)
>>> len(result.history), result.history[0].participants, result.epsilon
(4, 250, inf)
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from jopeq import kernels
from jopeq.privacy.guarantee import Guarantee
from jopeq_lab.training import data, features, models
from jopeq_lab.training.cohorts import Cohort
from jopeq_lab.training.config import PeopleConfig
from jopeq_lab.training.descent import Server
from jopeq_lab.training.federation import Samples, Step, check_finite
from jopeq_lab.training.metrics import RoundMetrics
from jopeq_lab.training.partition import cohorts, give_out

_CHUNK_ENTRIES = {"cpu": 1 << 23, "cuda": 1 << 27}  # of gradients that are held at once


class People:
    """The people, and the server between them."""

    selects_best = False

    def __init__(
        self, config: PeopleConfig, dataset: data.Dataset, model: nn.Module | None = None
    ) -> None:
        self._config = config
        split = data.split_validation(dataset, config.validation, config.seed)
        inputs, self._labels, *held = (part.to(config.device) for part in split)
        test = (dataset.test_inputs.to(config.device), dataset.test_labels.to(config.device))
        self._inputs = self._features(inputs)
        self.validation: Samples = (self._features(held[0]), held[1])
        self.test: Samples = (self._features(test[0]), test[1])
        self._owned = give_out(config.people, config.examples, len(self._labels), config.seed)
        if model is None:
            is_raw = config.features is None
            shape = dataset.input_shape if is_raw else (1, 1, self._inputs.shape[1] + 1)
            model = models.build_from_zero(
                config.model, shape, dataset.classes, config.seed, has_bias=is_raw
            )
        self.model = model.to(config.device)
        self.layout = models.ModelVector(self.model)
        self._server = Server(config.descent, self.layout.read(self.model))
        self._center: torch.Tensor | None = None
        first = 1 if config.people_in_center == 0 else 0
        self.rounds = range(first, config.rounds + 1)
        sizes = [
            config.people_a_round if number else config.people_in_center
            for number in range(config.rounds + 1)
        ]
        self._cohorts = list(cohorts(config.people, sizes, config.seed))
        kernels.prepare(config.people * config.participations << 16)

    def _features(self, inputs: torch.Tensor) -> torch.Tensor:
        kind = self._config.features
        return inputs if kind is None else features.features(inputs, kind)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of a person, for all rounds, center included."""
        config = self._config
        count = config.participations
        own = config.mechanism.guarantee(self.layout.size, config.people_a_round, count)
        if not config.people_in_center:
            return own
        center = config.mechanism.clipped_to(1.0).guarantee(
            self._inputs.shape[1], config.people_in_center, count
        )
        return max(own, center, key=lambda one: one.epsilon)

    def step(self, number: int, vector: torch.Tensor, history: Sequence[RoundMetrics]) -> Step:
        """One private mean, of gradients or of the center's features, and what follows from it."""
        config, count = self._config, len(self._cohorts[number])
        started = time.perf_counter()
        if number:
            size = self.layout.size
            cohort = config.mechanism.cohort(size, count, config.participations)
            mean, coding = self._send(cohort, number, size, self._gradient)
            server = copy.copy(self._server)
            server.step(number - 1, mean)
            check_finite(server.weights, number, config.server_lr)
            self._server = server
        else:
            size = self._inputs.shape[1]
            makes = config.mechanism.clipped_to(1.0)
            cohort = makes.cohort(size, count, config.participations)
            mean, coding = self._send(cohort, number, size, lambda some: self._inputs[some].mean(1))
            self._center = mean.float().to(config.device)
        guarantee = self.guarantee
        return Step(
            self._server.result,
            {
                "participants": count,
                "bytes_per_client": cohort.sent / count,
                "bits_per_parameter": 8.0 * cohort.sent / count / size,
                "refused": cohort.refused,
                "epsilon_client": guarantee.epsilon,
                "nominal_client": guarantee.nominal,
                "delta": guarantee.delta,
                "training_seconds": time.perf_counter() - started - coding,
                "coding_seconds": coding,
            },
        )

    def _send(
        self,
        cohort: Cohort,
        number: int,
        size: int,
        updates: Callable[[torch.Tensor], torch.Tensor],
    ) -> tuple[torch.Tensor, float]:
        """The mean of the round's updates, and the seconds that coding took."""
        people, device, coding = self._cohorts[number], self._labels.device, 0.0
        chunk = max(1, _CHUNK_ENTRIES[device.type] // size)
        for first in range(0, len(people), chunk):
            some = people[first : first + chunk]
            found = updates(torch.from_numpy(self._owned[some]).to(device))
            began = time.perf_counter()
            cohort.add(found, some)
            coding += time.perf_counter() - began
        return torch.from_numpy(cohort.mean()), coding

    def _gradient(self, samples: torch.Tensor) -> torch.Tensor:
        """The sum of the gradients of each person's steps, one row per person."""
        config, model = self._config, self.model
        start = self.layout.stacked(self._server.asked.to(config.device), 1)
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

        rows = self.view(self._inputs[samples.flatten()])
        inputs = rows.view(*samples.shape, *rows.shape[1:])
        found = vmap(trained, randomness="different")(inputs, self._labels[samples])
        return self.layout.joined(found, len(samples))

    def view(self, inputs: torch.Tensor) -> torch.Tensor:
        if self._config.features is None:
            return inputs
        return features.finished(inputs, self._center)[:, None, None]

    def state(self) -> dict[str, Any]:
        return {**self._server.state, "center": self._center}

    def restore(self, state: dict[str, Any], history: Sequence[RoundMetrics]) -> None:
        self._server = Server(self._config.descent, **{name: state[name] for name in Server.STATE})
        center = state["center"]
        self._center = None if center is None else center.to(self._config.device)

    def summary(self) -> dict[str, Any]:
        config, guarantee = self._config, self.guarantee
        return {
            "people": config.people,
            "people_a_round": config.people_a_round,
            "is_resampled": config.people * config.examples > len(self._labels),
            "epsilon": guarantee.epsilon if math.isfinite(guarantee.epsilon) else None,
            "delta": guarantee.delta,
            "guarantee": str(guarantee),
        }
