"""The messages of one round's people, and the mean that the server takes from them.

| mechanism | what a person sends | whom a person trusts |
|---|---|---|
| ``Reports`` | a report of ``sphere``: a few bytes | nobody |
| ``Shares`` | the integers of ``clients`` | that nobody sees more than their sum |
| ``Payloads`` | the payload of any other scheme | nobody, for what ε per entry is worth |
| ``Central`` | the update in floats | the server, which clips and adds the noise |

Masks cancel in the sum, so the shares are added without them here.
"""

from __future__ import annotations

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from dp_accounting import get_sigma_gaussian
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.streams import SEED_BYTES, PrivateStream
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import ClientSum

Rows = torch.Tensor  # updates, a person a row
People = NDArray[np.int64]  # their numbers
Mean = NDArray[np.float64]


class Cohort(Protocol):
    """A round in progress."""

    @property
    def sent(self) -> int:
        """Bytes so far."""

    @property
    def refused(self) -> int:
        """Updates that the server did not count."""

    def add(self, updates: Rows, people: People) -> None:
        """Some people send their updates."""

    def mean(self) -> Mean:
        """The mean update, when all have sent."""


class Mechanism(Protocol):
    """Make a mean of a round's people; say what that promises each of them."""

    @property
    def spec(self) -> str:
        """All parameters, as text."""

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        """Begin a round of ``people``, each of whom takes part in a number of rounds in all."""

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        """The guarantee of a person, for all rounds."""

    def clipped_to(self, clip: float) -> Mechanism:
        """The mechanism for updates clipped to a different length."""


@dataclass(frozen=True)
class _OfScheme:
    scheme: Any

    @property
    def spec(self) -> str:
        return str(self.scheme.spec)

    def clipped_to(self, clip: float) -> Any:
        return replace(self, scheme=replace(self.scheme, clip=clip))


class Reports(_OfScheme):
    """``sphere``: ε for each whole update, against the server."""

    scheme: Sphere

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        return _ReportCohort(self.scheme, dimension)

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        return self.scheme.guarantee_for(dimension).for_client(dimension, participations)


class _ReportCohort:
    def __init__(self, scheme: Sphere, dimension: int) -> None:
        self._round = scheme.round(dimension=dimension, seed=os.urandom(SEED_BYTES))
        self._total = self._round.aggregator()
        self.sent = 0

    @property
    def refused(self) -> int:
        return self._total.refused.total()

    def add(self, updates: Rows, people: People) -> None:
        reports = self._round.reports(updates.cpu().numpy(), clients=people)
        self.sent += sum(map(len, reports))
        self._total.add_many(reports, clients=people.tolist())

    def mean(self) -> Mean:
        return self._total.mean()


class Shares(_OfScheme):
    """``clients``: (ε, δ) for a person in all rounds, against anybody who sees only sums.

    A round has its own number of clients; the scheme's threshold and colluding clients are taken
    in proportion.
    """

    scheme: ClientSum

    def sized(self, people: int, participations: int) -> ClientSum:
        """The scheme for a round with this number of people."""
        part = people / self.scheme.clients
        return replace(
            self.scheme,
            clients=people,
            threshold=math.ceil(part * self.scheme.threshold),
            colluding=math.ceil(part * self.scheme.colluding),
            rounds=participations,
        )

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        return _ShareCohort(self.sized(people, participations), dimension)

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        return self.sized(people, participations).guarantee


class _ShareCohort:
    def __init__(self, scheme: ClientSum, dimension: int) -> None:
        self._scheme, self._dimension = scheme, dimension
        self._plan = scheme.plan(dimension)
        self._seed = os.urandom(SEED_BYTES)
        self._total = np.zeros(dimension, dtype=np.int64)
        self._count = self.sent = self.refused = 0

    def add(self, updates: Rows, people: People) -> None:
        encode = partial(self._scheme.encode, seed=self._seed)
        rows = updates.cpu().numpy()  # a GPU takes longer to be asked than for so few entries
        with ThreadPoolExecutor(kernels.threads()) as pool:
            for share in pool.map(encode, rows):
                self._total += share
        self._total &= (1 << self._plan.bits) - 1  # a secure sum is one mod 2^bits
        self._count += len(updates)
        self.sent += len(updates) * -(-self._plan.payload_bits // 8)

    def mean(self) -> Mean:
        mean = self._scheme.decode(
            self._total, seed=self._seed, dimension=self._dimension, clients=self._count
        )
        return mean.astype(np.float64)


class Payloads(_OfScheme):
    """Any scheme whose payloads decode one by one; ``none`` among them."""

    scheme: Scheme

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        return _PayloadCohort(self.scheme, dimension)

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        return self.scheme.guarantee.for_client(dimension, participations)

    def clipped_to(self, clip: float) -> Any:
        return super().clipped_to(clip) if self.scheme.clip is not None else self


class _PayloadCohort:
    def __init__(self, scheme: Scheme, dimension: int) -> None:
        self._scheme, self._total = scheme, np.zeros(dimension)
        self._count = self.sent = self.refused = 0

    def add(self, updates: Rows, people: People) -> None:
        payloads = [self._scheme.encode(update) for update in updates.cpu().numpy()]
        self.sent += sum(map(len, payloads))
        for payload in payloads:
            self._total += self._scheme.decode(payload)
        self._count += len(payloads)

    def mean(self) -> Mean:
        return self._total / self._count


@dataclass(frozen=True, kw_only=True)
class Central:
    """The baseline: a trusted server clips updates and adds Gaussian noise to their mean.

    (ε, δ) holds for a person over all rounds; neighbours differ by one update against none.

    >>> round(Central(epsilon=4.0, delta=1e-5, clip=1.0).deviation(100, participations=1), 5)
    0.01081
    """

    epsilon: float
    clip: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0.0):
            raise ValueError(f"clip must be a positive number, got {self.clip!r}")
        self.deviation(1, 1)  # refuses an epsilon or a delta that cannot be

    def deviation(self, people: int, participations: int) -> float:
        """σ of the noise of each entry of the mean."""
        distance = math.sqrt(participations) * self.clip
        return distance * float(get_sigma_gaussian(self.epsilon, self.delta)) / people

    @property
    def spec(self) -> str:
        return json.dumps(["central", asdict(self)])

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        return CentralCohort(dimension, self.clip, self.deviation(people, participations))

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        return Guarantee(
            epsilon=self.epsilon,
            nominal=self.epsilon,
            delta=self.delta,
            unit="client",
            adversary="model",
            assumptions=("a trusted server adds the noise, in floating point",),
        )

    def clipped_to(self, clip: float) -> Mechanism:
        return replace(self, clip=clip)


class CentralCohort:
    """Updates clipped to a length and added up in floats; noise of a deviation on their mean."""

    def __init__(self, dimension: int, clip: float, deviation: float) -> None:
        self._total = torch.zeros(dimension, dtype=torch.float64)
        self._clip, self._deviation = clip, deviation
        self._count = self.sent = self.refused = 0

    def add(self, updates: Rows, people: People) -> None:
        norms = torch.linalg.vector_norm(updates, dim=1)
        scale = (self._clip / norms.clamp_min(1e-30)).clamp_max(1.0)
        self._total += (scale @ updates).cpu().double()
        self._count += len(updates)
        self.sent += 4 * updates.numel()

    def mean(self) -> Mean:
        noise = portable.normal(PrivateStream(), 0, len(self._total))
        return self._total.numpy() / self._count + self._deviation * noise


def mechanism(scheme: Any) -> Mechanism:
    """The mechanism of a scheme; a mechanism is its own."""
    if isinstance(scheme, Sphere):
        return Reports(scheme)
    if isinstance(scheme, ClientSum):
        return Shares(scheme)
    if isinstance(scheme, Scheme):
        return Payloads(scheme)
    if all(hasattr(scheme, name) for name in ("cohort", "guarantee", "clipped_to", "spec")):
        made: Mechanism = scheme
        return made
    raise ValueError(f"scheme must be a scheme or a mechanism of cohorts, got {scheme!r}")
