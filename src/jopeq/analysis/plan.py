"""Every scheme side by side for one job: bits, error, bias and ε, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jopeq.analysis.learning import Verdict, judge, mean_error
from jopeq.entries.spread import best_spread
from jopeq.errors import DesignError
from jopeq.privacy.accounting import check_count
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.rational import MAX_EPSILON
from jopeq.random.streams import PrivateStream
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import LEAST_EPSILON, MOST_EPSILON, Sphere
from jopeq.sums.secure_sum import SecureSum
from jopeq.sums.sum_law import MAX_HONEST

_TEST_KEY = b"jopeq: planning with fixed draws"
_GOOD_ERROR = 0.1  # of the update's energy: a mean that points where the true one does


@dataclass(frozen=True)
class PlanRow:
    """One scheme for one job. Errors are in scaled units or normalised; ε against the server."""

    scheme: Scheme
    bits_per_entry: float
    payload_bytes: int
    distortion: float
    bias: float  # at the edge of the ball, where clamping pulls most
    spread: float | None  # the best one for that many clients
    error: float  # normalised, of the mean of all clients, at the best spread; biases included
    nominal: float | None
    per_sample: float
    per_update: float
    per_client: float
    delta: float

    def as_dict(self) -> dict[str, Any]:
        """The row under the names that its JSON has."""
        return {
            "scheme": self.scheme.spec,
            "name": self.scheme.name,
            "entries_per_sample": self.scheme.dimension,
            "bits_per_entry": self.bits_per_entry,
            "payload_bytes": self.payload_bytes,
            "distortion": self.distortion,
            "bias_at_edge": self.bias,
            "best_spread": self.spread,
            "normalised_error": self.error,
            "epsilon_nominal": self.nominal,
            "epsilon_per_sample": self.per_sample,
            "epsilon_per_update": self.per_update,
            "epsilon_per_client": self.per_client,
            "delta": self.delta,
        }


def plan_schemes(epsilon: float, rate: float) -> Iterator[Scheme]:
    """Every scheme that these two numbers make."""
    yield scheme("none")
    yield scheme("sdq", rate=rate)
    yield scheme("laplace", epsilon=epsilon)
    yield scheme("t", epsilon=epsilon)
    yield scheme("dq", rate=rate)
    yield scheme("laplace+sdq", epsilon=epsilon, rate=rate)
    yield scheme("jopeq", epsilon=epsilon, rate=rate)
    for name in ("t+sdq", "jopeq"):
        yield from _if_possible(name, epsilon=epsilon, rate=rate, lattice="A2")
    yield from _if_possible("mvu", epsilon=epsilon, rate=rate)
    yield scheme("response", epsilon=epsilon, rate=rate)


def _if_possible(name: str, **parameters: Any) -> Iterator[Scheme]:
    """The scheme, unless these parameters do not make one (too many letters, half a bit…)."""
    try:
        built = scheme(name, **parameters)
        _ = built.guarantee  # a channel is solved when it is first asked for
    except (ValueError, DesignError):
        return
    yield built


def plan(
    epsilon: float,
    rate: float,
    *,
    dimension: int,
    rounds: int = 1,
    clients: int = 10,
    delta: float = 1e-5,
) -> list[PlanRow]:
    """The table for an update of ``dimension`` entries sent ``rounds`` times by each client.

    >>> rows = plan(4.0, 2.0, dimension=7850, rounds=95)
    >>> best = min((row for row in rows if row.per_sample <= 4.0), key=lambda row: row.error)
    >>> best.scheme.name
    'response'
    """
    for name, value in (("dimension", dimension), ("rounds", rounds), ("clients", clients)):
        check_count(name, value, 1)
    schemes = plan_schemes(epsilon, rate)
    return [plan_row(each, dimension, rounds, clients, delta) for each in schemes]


def plan_row(
    planned: Scheme, dimension: int, rounds: int, clients: int = 10, delta: float = 1e-5
) -> PlanRow:
    """One row of the table."""
    guarantee = planned.guarantee
    client = guarantee.for_client(dimension, rounds, delta=delta)
    update = guarantee if guarantee.unit == "update" else guarantee.for_update(dimension)
    stream = PrivateStream.reproducible(_TEST_KEY)
    spread = best_spread(planned, clients) if planned.codec.is_bounded else None
    return PlanRow(
        scheme=planned,
        bits_per_entry=planned.bits_per_entry,
        payload_bytes=len(planned.encode(portable.normal(stream, 0, dimension))),
        distortion=planned.distortion,
        bias=planned.bias(),
        spread=spread,
        error=mean_error(planned, dimension, clients)[0],
        nominal=guarantee.nominal,
        per_sample=guarantee.epsilon,
        per_update=update.epsilon,
        per_client=client.epsilon,
        delta=client.delta,
    )


@dataclass(frozen=True)
class PeopleRow:
    """One way to protect a person's whole update; ε of all the person's rounds together."""

    scheme: Scheme | SecureSum
    trusts: str
    bits: float  # that a client sends a round
    error: float  # E‖mean − true mean‖²/C², when every update is as long as the clip C
    people: int  # whose updates must be averaged for an error of a tenth
    guarantee: Guarantee
    verdict: Verdict  # on all rounds together

    def as_dict(self) -> dict[str, Any]:
        """The row under the names that its JSON has."""
        return {
            "scheme": self.scheme.spec,
            "name": self.scheme.name,
            "trusts": self.trusts,
            "bits_per_client_and_round": self.bits,
            "normalised_error": self.error,
            "people_for_an_error_of_a_tenth": self.people,
            "verdict": self.verdict.code,
            "epsilon_per_person": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "adversary": self.guarantee.adversary,
        }


def plan_people(
    epsilon: float,
    *,
    dimension: int,
    rounds: int = 1,
    clients: int = 1000,
    delta: float = 1e-5,
    colluding: int = 1,
) -> list[PeopleRow]:
    """Schemes with an ε for the person who takes part in ``rounds`` rounds of ``clients`` each.

    ``colluding`` participants of a sum may help the server.

    >>> for row in plan_people(8.0, dimension=7850, clients=1000):
    ...     print(row.scheme.name, row.trusts, row.people > 1000)
    sphere nobody True
    sum only the sum False
    """
    check_epsilon(epsilon)
    for name, count in (("dimension", dimension), ("rounds", rounds), ("clients", clients)):
        check_count(name, count, 1)
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be from 0 to below 1, got {delta!r}")
    rows: list[PeopleRow] = []
    if LEAST_EPSILON <= epsilon / rounds <= MOST_EPSILON:
        local = Sphere(epsilon=epsilon / rounds, clip=1.0, max_entries=max(dimension, 1 << 22))
        one, bits = local.expected_error(dimension), local.bits_for(dimension)
        needed, verdict = math.ceil(one / _GOOD_ERROR), judge(one / clients, rounds)
        person = local.guarantee.for_client(dimension, rounds)
        rows.append(PeopleRow(local, "nobody", bits, one / clients, needed, person, verdict))
    if epsilon > MAX_EPSILON or delta == 0.0 or not 3 <= clients <= MAX_HONEST:
        return rows  # a sum of Gaussian noise needs a δ, and others to hide among
    summed = SecureSum(
        epsilon=epsilon,
        colluding=colluding,
        delta=delta,
        clip=1.0,
        clients=clients,
        threshold=max(3, math.ceil(0.9 * clients)),  # a tenth of the clients may drop out
        participations=rounds,
    )
    with suppress(ValueError):  # no number of bits holds such a sum
        error, bits = summed.expected_error(dimension), summed.bits_for(dimension)
        needed = math.ceil(clients * math.sqrt(error / _GOOD_ERROR))  # it falls as 1/K²
        found = summed.guarantee, judge(error, rounds)
        rows.append(PeopleRow(summed, "only the sum", bits, error, needed, *found))
    return rows
