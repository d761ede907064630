"""Every scheme side by side for one job: bits, error, bias and ε, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from jopeq.analysis.learning import CLEAR, Verdict, judge, judge_records, mean_error
from jopeq.checks import check_count
from jopeq.entries.spread import best_spread
from jopeq.errors import DesignError
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.rational import MAX_EPSILON
from jopeq.random.streams import PrivateStream
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import LEAST_EPSILON, MOST_EPSILON, Sphere
from jopeq.sums.client_sum import ClientSum
from jopeq.sums.record_plan import RecordPlan
from jopeq.sums.record_proposal import ROUNDS
from jopeq.sums.record_sum import RecordSum
from jopeq.sums.sum_law import MAX_HONEST

_TEST_KEY = b"jopeq: planning with fixed draws"
_SLACK = 1.02  # the price of a plan changes a little with the records
_GOOD_ERROR = 0.1  # of the update's energy: a mean that points where the true one does


@dataclass(frozen=True)
class PlanRow:
    """One scheme for one job. Errors are in scaled units or normalised; ε against the server."""

    unit: ClassVar[str] = "sample"

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
    *,
    dimension: int,
    records: int | None = None,
    clients: int | None = None,
    rounds: int | None = None,
    delta: float = 1e-5,
    rate: float | None = None,
    colluding: int = 1,
) -> list[Row]:
    """The table for updates of ``dimension`` entries, before anything is trained.

    With ``records`` ε is a patient's: one row for each number of rounds to choose from (or for
    ``rounds``), with ``clients`` hospitals, by default 10. Else ε is a client's, over ``rounds``
    rounds (1) of ``clients`` clients (1,000): one row for each answer to "whom do you trust?".
    A ``rate`` adds every per-entry scheme of so many bits, where ε is of one entry. ``colluding``
    participants of a sum may help the server. ``row.unit`` tells the rows apart.

    >>> for row in plan(8.0, dimension=7850, clients=1000):
    ...     print(row.scheme.name, row.trusts, row.people > 1000)
    sphere nobody True
    clients only the sum False
    >>> (row,) = plan(1.0, dimension=5210, records=4000, rounds=30)
    >>> row.scheme.sampling, row.verdict.code
    (0.14, 'loses some')
    >>> rows = plan(4.0, dimension=7850, rounds=95, rate=2.0)
    >>> held = [row for row in rows if row.unit == "sample" and row.per_sample <= 4.0]
    >>> min(held, key=lambda row: row.error).scheme.name
    'response'
    """
    if records is not None:
        if rate is not None:
            raise ValueError("rate belongs to per-entry schemes and records to sums: give one")
        found = RecordSum.propose(
            epsilon=epsilon, delta=delta, records=records, clients=clients or 10,
            dimension=dimension, colluding=colluding,
            rounds=ROUNDS if rounds is None else (rounds,),
        )  # fmt: skip
        return [RecordRow(scheme, plan) for scheme, plan in found.options]
    job = {
        "dimension": dimension,
        "rounds": 1 if rounds is None else rounds,
        "clients": 1000 if clients is None else clients,
    }
    for name, value in job.items():
        check_count(name, value, 1)
    rows: list[Row] = [*_plan_clients(epsilon, **job, delta=delta, colluding=colluding)]
    if rate is not None:
        rows += [plan_row(each, **job, delta=delta) for each in plan_schemes(epsilon, rate)]
    return rows


def plan_row(
    planned: Scheme, *, dimension: int, rounds: int, clients: int, delta: float
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
class RecordRow:
    """A number of rounds for an ε of a patient, a good sampling for it, and what they give."""

    unit: ClassVar[str] = "record"

    scheme: RecordSum
    plan: RecordPlan

    @property
    def verdict(self) -> Verdict:
        """By the rule of ``analysis.learning``."""
        return judge_records(self.plan, self.scheme.rounds)

    @property
    def records_enough(self) -> int:
        """Records with which the same rounds and sampling lose next to nothing, in two digits."""
        needed = _SLACK * self.scheme.records * math.sqrt(self.verdict.averaged / CLEAR)
        unit = int(10 ** max(0, len(str(int(needed))) - 2))
        enough = math.ceil(needed / unit) * unit
        return min(enough, self.scheme.records) if self.verdict.code == "learns" else enough

    def as_dict(self) -> dict[str, Any]:
        """The row under the names that its JSON has."""
        plan, scheme = self.plan, self.scheme
        return {
            "scheme": scheme.spec,
            "rounds": scheme.rounds,
            "sampling": scheme.sampling,
            "noise_multiplier": plan.noise_multiplier,
            "bits": plan.bits,
            "payload_bytes": -(-plan.payload_bits // 8),
            "error": plan.error,
            "error_beside_central": plan.error / plan.central_error,
            "epsilon_per_record": plan.epsilon,
            "delta": plan.delta,
            "verdict": self.verdict.code,
            "records_enough": self.records_enough,
        }


@dataclass(frozen=True)
class PeopleRow:
    """One way to protect a client's whole update; ε of all the client's rounds together."""

    unit: ClassVar[str] = "client"

    scheme: Sphere | ClientSum
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


Row = PlanRow | PeopleRow | RecordRow


def _plan_clients(
    epsilon: float, *, dimension: int, rounds: int, clients: int, delta: float, colluding: int
) -> Iterator[PeopleRow]:
    """Schemes with an ε for the client who takes part in ``rounds`` rounds of ``clients`` each."""
    check_epsilon(epsilon)
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be from 0 to below 1, got {delta!r}")
    if LEAST_EPSILON <= epsilon / rounds <= MOST_EPSILON:
        local = Sphere(epsilon=epsilon / rounds, clip=1.0, max_entries=max(dimension, 1 << 22))
        one, bits = local.expected_error(dimension), local.bits_for(dimension)
        needed, verdict = math.ceil(one / _GOOD_ERROR), judge(one / clients, rounds)
        person = local.guarantee.for_client(dimension, rounds)
        yield PeopleRow(local, "nobody", bits, one / clients, needed, person, verdict)
    if epsilon > MAX_EPSILON or delta == 0.0 or not 3 <= clients <= MAX_HONEST:
        return  # a sum of Gaussian noise needs a δ, and others to hide among
    summed = ClientSum(
        epsilon=epsilon,
        colluding=colluding,
        delta=delta,
        clip=1.0,
        clients=clients,
        threshold=max(3, math.ceil(0.9 * clients)),  # a tenth of the clients may drop out
        rounds=rounds,
    )
    with suppress(ValueError):  # such a sum has no plan
        error, bits = summed.expected_error(dimension), summed.plan(dimension).payload_bits
        needed = math.ceil(clients * math.sqrt(error / _GOOD_ERROR))  # it falls as 1/K²
        found = summed.guarantee, judge(error, rounds)
        yield PeopleRow(summed, "only the sum", bits, error, needed, *found)
