"""Hospitals with many records each: training with ε for a record, a patient.

    hospitals  each holds a part of the training samples, equal or not, with all labels or few
    a round    each hospital draws a fresh sample, clips the gradients of its records, adds them up
               exactly and makes a share (``jopeq.RecordSum``); shares are added mod 2^bits and
               decoded to the mean gradient
    server     a step of momentum SGD, whose rate falls as a cosine (``descent``)
    result     the last weights

Masks cancel in the sum, so the shares are added without them here. ε in the record is of one
patient in all rounds; where nothing but the last weights is shown, it is an upper bound.

>>> import jopeq
>>> from jopeq_lab.training.simulation import HospitalsConfig, train
>>> scheme = jopeq.RecordSum(
...     epsilon=4.0, clip=1.0, records=1442, sampling=1.0, rounds=3, clients=5, threshold=3
... )
>>> result = train(HospitalsConfig(scheme=scheme, data="digits", features="pixels"))
>>> len(result.history), result.epsilon <= 4.0, result.facts["bits"] <= 12
(3, True, True)
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.streams import SEED_BYTES, PrivateStream
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_accounting import least_multiplier
from jopeq.sums.record_plan import RecordPlan
from jopeq.torch.clipped_sum import clipped_sum
from jopeq_lab.training import data, features, models
from jopeq_lab.training.config import HospitalsConfig
from jopeq_lab.training.descent import Server
from jopeq_lab.training.federation import Samples, Step, check_finite
from jopeq_lab.training.metrics import RoundMetrics
from jopeq_lab.training.partition import partition
from jopeq_lab.training.seeding import Indices, permutation

Array = NDArray[np.float64]

_TRUSTED = {
    "central": ("model", "one trusted server sees all records and adds the noise, as floats"),
    "local": ("server", "each hospital adds all its noise itself, as floats"),
    "alone": ("model", "one hospital trains on its own records and adds the noise, as floats"),
}


class Hospitals:
    """The hospitals, and the server between them."""

    selects_best = False

    def __init__(
        self, config: HospitalsConfig, dataset: data.Dataset, model: nn.Module | None = None
    ) -> None:
        self._config, scheme = config, config.sums
        if config.test is not None:
            dataset = dataset.split_anew(config.test, config.seed)
        split = data.split_validation(dataset, config.validation, config.seed)
        inputs, labels, *held = split
        given = permutation(len(labels), config.seed, "records")[: scheme.records]
        inputs, self._labels = inputs[given], labels[given].to(config.device)
        self._inputs = self._seen(inputs)
        self.validation: Samples = (self._seen(held[0]), held[1].to(config.device))
        self.test: Samples = (
            self._seen(dataset.test_inputs),
            dataset.test_labels.to(config.device),
        )
        how = config.partition, config.alpha, config.seed
        self.parts = partition(self._labels.cpu().numpy(), scheme.clients, *how)
        largest, most = max(map(len, self.parts)), scheme.most_records or scheme.records
        if largest > most:
            raise ValueError(
                f"most_records is {most}, and one hospital holds {largest} records: raise it"
            )
        # public bounds: sizes are not, so they are rounded up
        self._caps = [min(most, _round_up(len(part))) for part in self.parts]
        if model is None:
            channels, height, width = self._inputs.shape[1:]
            shape, has_bias = (channels, height, width), config.features is None
            model = models.build_from_zero(
                config.model, shape, dataset.classes, config.seed, has_bias=has_bias
            )
        self.model = model.to(config.device).eval()  # no layer may mix records or draw at random
        self.layout = models.ModelVector(self.model)
        self._server = Server(config.descent, self.layout.read(self.model))
        self.rounds = range(1, config.rounds + 1)
        self.plan = scheme.plan(self.layout.size) if config.baseline is None else None
        self.guarantee = self._find_guarantee()

    def _seen(self, inputs: torch.Tensor) -> torch.Tensor:
        """Samples as the model takes them."""
        inputs, kind = inputs.to(self._config.device), self._config.features
        if self._config.standardized and len(inputs):
            deviation, mean = torch.std_mean(inputs, dim=(1, 2, 3), keepdim=True)
            inputs = (inputs - mean) / deviation.clamp_min(1e-6)
        if kind is None:
            return inputs
        return features.finished(features.features(inputs, kind))[:, None, None]

    def _find_guarantee(self) -> Guarantee:
        """The guarantee of a record, for all rounds."""
        scheme, baseline = self._config.sums, self._config.baseline
        if self.plan is not None:
            return replace(scheme.guarantee, epsilon=self.plan.epsilon)
        if baseline == "none":
            return Guarantee(epsilon=math.inf, unit="record", adversary="model")
        adversary, said = _TRUSTED[str(baseline)]
        return replace(scheme.guarantee, adversary=adversary, assumptions=(said,))

    def step(self, number: int, vector: torch.Tensor, history: Sequence[RoundMetrics]) -> Step:
        """One private mean of gradients, and a step along it."""
        config, size = self._config, self.layout.size
        started = time.perf_counter()
        self.layout.write(self.model, self._server.asked)
        self._training = 0.0
        mean = self._baseline_mean() if self.plan is None else self._summed_mean(self.plan)
        server = copy.copy(self._server)
        server.step(number - 1, torch.from_numpy(mean))
        check_finite(server.weights, number, config.server_lr)
        self._server = server
        floats = 0 if config.baseline == "alone" else 32 * size
        bits = floats if self.plan is None else self.plan.payload_bits
        return Step(
            server.result,
            {
                "participants": 1 if config.baseline == "alone" else len(self.parts),
                "bytes_per_client": float(-(-bits // 8)),
                "bits_per_parameter": bits / size,
                "clip": config.sums.clip,
                "epsilon_client": self.guarantee.epsilon,
                "nominal_client": self.guarantee.nominal,
                "delta": self.guarantee.delta,
                "training_seconds": self._training,
                "coding_seconds": time.perf_counter() - started - self._training,
            },
        )

    def _summed_mean(self, plan: RecordPlan) -> Array:
        """The mean from real shares: sampled, clipped, added, rounded, summed mod 2^bits."""
        scheme, seed = self._config.sums, os.urandom(SEED_BYTES)
        total = np.zeros(plan.dimension, dtype=np.int64)
        for part, cap in zip(self.parts, self._caps, strict=True):
            drawn = self._total(part[scheme.sample(len(part), cap)], scheme.capacity(cap))
            total += scheme.encode(drawn, seed=seed)
        total &= (1 << plan.bits) - 1
        return scheme.decode(total, seed=seed, dimension=plan.dimension, clients=len(self.parts))

    def _baseline_mean(self) -> Array:
        """The mean of the same clipped rows, with a baseline's noise in floats."""
        scheme, baseline = self._config.sums, self._config.baseline
        parts, batch = self.parts, scheme.expected_batch
        if baseline == "alone":
            parts, batch = parts[:1], scheme.sampling * len(parts[0])
        drawn = np.concatenate([part[scheme.sample(len(part))] for part in parts])
        values = self._total(drawn).to_numpy()
        if baseline != "none":
            given = (
                scheme.epsilon,
                scheme.delta,
                scheme.sampling,
                scheme.rounds,
                scheme.hospitals_per_person,
            )
            times = math.sqrt(len(parts)) if baseline == "local" else 1.0
            noise = portable.normal(PrivateStream(), 0, len(values))
            values += times * least_multiplier(*given) * scheme.clip * noise
        return np.asarray(values / batch)

    def _total(self, records: Indices, padded: int | None = None) -> ClippedTotal:
        """The total of the records' clipped gradients."""
        started = time.perf_counter()
        chosen = torch.from_numpy(records).to(self._labels.device)
        total = clipped_sum(
            self.model,
            functional.cross_entropy,
            self._inputs[chosen],
            self._labels[chosen],
            self._config.sums.clip,
            padded=padded,
        )
        self._training += time.perf_counter() - started
        return total

    def view(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    def state(self) -> dict[str, Any]:
        return {**self._server.state}

    def restore(self, state: dict[str, Any], history: Sequence[RoundMetrics]) -> None:
        self._server = Server(self._config.descent, **{name: state[name] for name in Server.STATE})

    def summary(self) -> dict[str, Any]:
        guarantee, plan = self.guarantee, self.plan
        told = () if plan is None else ("bits", "noise_multiplier", "price", "error")
        return {
            "hospitals": len(self.parts),
            "records": [len(part) for part in self.parts],
            **{name: getattr(plan, name) for name in told},
            "epsilon": guarantee.epsilon if math.isfinite(guarantee.epsilon) else None,
            "delta": guarantee.delta,
            "guarantee": str(guarantee),
        }


def _round_up(count: int) -> int:
    """Round up to two binary digits: at most a half more."""
    unit = 1 << max(0, count.bit_length() - 2)
    return -(-count // unit) * unit
