"""Every scheme side by side for one job: bits, error, bias and ε, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from jopeq.analysis.learning import CLEAR, Verdict, judge, judge_records, mean_error
from jopeq.checks import check_count, check_delta
from jopeq.entries.spread import best_spread
from jopeq.errors import DesignError
from jopeq.privacy.calibration import check_epsilon
from jopeq.random import portable
from jopeq.random.rational import MAX_EPSILON
from jopeq.random.streams import PrivateStream
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import LEAST_EPSILON, MOST_EPSILON, Sphere
from jopeq.sums.record_plan import ROUNDS, RecordPlan
from jopeq.sums.record_sum import ClientSum, RecordSum
from jopeq.sums.sum_law import MAX_HONEST

_TEST_KEY = b"jopeq: planning with fixed draws"
_SLACK = 1.02  # the price of a plan changes a little with the records
_GOOD_ERROR = 0.1  # of the update's energy: a mean that points where the true one does


@dataclass(frozen=True)
class _Row:
    unit: ClassVar[str]

    scheme: Any

    def as_dict(self) -> dict[str, Any]:
        """All numbers by name, for JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"unit": self.unit, "name": self.scheme.name} | found | {"scheme": self.scheme.spec}


@dataclass(frozen=True)
class PlanRow(_Row):
    """One scheme for one job. Errors are in scaled units or normalised; ε against the server."""

    unit: ClassVar[str] = "sample"

    bits_per_entry: float
    payload_bytes: int
    distortion: float
    bias: float  # at the edge of the ball, where clamping pulls most
    spread: float | None  # the best one for this number of clients
    error: float  # normalised, of the mean of all clients, at the best spread; biases included
    nominal: float | None
    per_sample: float
    per_update: float
    per_client: float
    delta: float


@dataclass(frozen=True)
class RecordRow(_Row):
    """A number of rounds for a patient's ε, with a good sampling, and the result."""

    unit: ClassVar[str] = "record"

    scheme: RecordSum
    plan: RecordPlan

    @property
    def verdict(self) -> Verdict:
        """The verdict by ``analysis.learning``."""
        return judge_records(self.plan, self.scheme.rounds)

    @property
    def records_enough(self) -> int:
        """Records with which this run loses next to nothing, to two digits."""
        needed = _SLACK * self.scheme.records * math.sqrt(self.verdict.averaged / CLEAR)
        unit = int(10 ** max(0, len(str(int(needed))) - 2))
        enough = math.ceil(needed / unit) * unit
        return min(enough, self.scheme.records) if self.verdict.code == "learns" else enough

    def as_dict(self) -> dict[str, Any]:
        """All numbers by name, for JSON."""
        found, names = super().as_dict(), ("noise_multiplier", "bits", "error", "epsilon")
        del found["plan"]
        return {
            **found,
            **{name: getattr(self.scheme, name) for name in ("rounds", "sampling", "delta")},
            **{name: getattr(self.plan, name) for name in names},
            "payload_bytes": -(-self.plan.payload_bits // 8),
            "records_enough": self.records_enough,
            "verdict": self.verdict.code,
        }


@dataclass(frozen=True)
class PeopleRow(_Row):
    """One way to protect a client's whole update; ε covers all rounds of one client."""

    unit: ClassVar[str] = "client"

    trusts: str
    bits: float  # per client and round
    error: float  # E‖mean − true mean‖²/C², if every update is as long as the clip C
    people: int  # clients per round needed for an error of 0.1
    epsilon: float
    delta: float
    verdict: Verdict  # on all rounds together

    def as_dict(self) -> dict[str, Any]:
        """All numbers by name, for JSON."""
        return super().as_dict() | {"verdict": self.verdict.code}


Row = PlanRow | PeopleRow | RecordRow


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

    With ``records``, ε is a patient's: one row per number of rounds to choose from (or for
    ``rounds``), for ``clients`` hospitals, by default 10. Otherwise ε is a client's, over
    ``rounds`` rounds (1) of ``clients`` clients (1,000): one row per answer to "whom do you
    trust?". A ``rate`` adds every per-entry scheme of so many bits, where ε is of one entry.
    ``colluding`` participants of a sum may help the server. ``row.unit`` tells the rows apart.

    >>> for row in plan(8.0, dimension=7850, clients=1000):
    ...     print(row.scheme.name, row.trusts, row.people > 1000)
    sphere nobody True
    clients only the sum False
    >>> (row,) = plan(1.0, dimension=5210, records=4000, rounds=30)
    >>> row.scheme.sampling, row.verdict.code
    (0.14, 'loses some')
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
        rows += [plan_row(each, **job, delta=delta) for each in _plan_schemes(epsilon, rate)]
    return rows


def _plan_schemes(epsilon: float, rate: float) -> Iterator[Scheme]:
    """Every scheme that these two numbers make."""
    both = {"epsilon": epsilon, "rate": rate}
    yield scheme("none")
    yield scheme("sdq", rate=rate)
    yield scheme("laplace", epsilon=epsilon)
    yield scheme("t", epsilon=epsilon)
    yield scheme("dq", rate=rate)
    for name in ("laplace+sdq", "jopeq", "response"):
        yield scheme(name, **both)
    pairs = {"lattice": "A2"}
    for name, more in (("t+sdq", pairs), ("jopeq", pairs), ("mvu", {})):
        with suppress(ValueError, DesignError):  # too many letters, half a bit, …
            built = scheme(name, **both, **more)
            _ = built.guarantee  # solves the channel
            yield built


def plan_row(
    planned: Scheme, *, dimension: int, rounds: int, clients: int, delta: float
) -> PlanRow:
    """One row of the table."""
    guarantee = planned.guarantee
    client = guarantee.for_client(dimension, rounds, delta=delta)
    update = guarantee if guarantee.unit == "update" else guarantee.for_update(dimension)
    stream = PrivateStream.reproducible(_TEST_KEY)
    return PlanRow(
        scheme=planned,
        bits_per_entry=planned.bits_per_entry,
        payload_bytes=len(planned.encode(portable.normal(stream, 0, dimension))),
        distortion=planned.distortion,
        bias=planned.bias(),
        spread=best_spread(planned, clients) if planned.codec.is_bounded else None,
        error=mean_error(planned, dimension, clients)[0],
        nominal=guarantee.nominal, per_sample=guarantee.epsilon, per_update=update.epsilon,
        per_client=client.epsilon, delta=client.delta,
    )  # fmt: skip


def _plan_clients(
    epsilon: float, *, dimension: int, rounds: int, clients: int, delta: float, colluding: int
) -> Iterator[PeopleRow]:
    """Schemes with an ε for the client who takes part in ``rounds`` rounds of ``clients`` each."""
    check_epsilon(epsilon)
    check_delta(delta)
    if LEAST_EPSILON <= epsilon / rounds <= MOST_EPSILON:
        local = Sphere(epsilon=epsilon / rounds, clip=1.0, max_entries=max(dimension, 1 << 22))
        one, bits = local.expected_error(dimension), local.bits_for(dimension)
        needed, verdict = math.ceil(one / _GOOD_ERROR), judge(one / clients, rounds)
        person = local.guarantee.for_client(dimension, rounds)
        spent = person.epsilon, person.delta
        yield PeopleRow(local, "nobody", bits, one / clients, needed, *spent, verdict)
    if epsilon > MAX_EPSILON or delta == 0.0 or not 3 <= clients <= MAX_HONEST:
        return  # a sum of Gaussian noise needs a δ, and others to hide among
    summed = ClientSum(
        epsilon=epsilon, delta=delta, clip=1.0, clients=clients, rounds=rounds, colluding=colluding,
        threshold=max(3, math.ceil(0.9 * clients)),  # a tenth of the clients may drop out
    )  # fmt: skip
    with suppress(ValueError):  # such a sum has no plan
        error, bits = summed.expected_error(dimension), summed.plan(dimension).payload_bits
        needed = math.ceil(clients * math.sqrt(error / _GOOD_ERROR))  # it falls as 1/K²
        spent = summed.guarantee.epsilon, summed.guarantee.delta
        verdict = judge(error, rounds)
        yield PeopleRow(summed, "only the sum", bits, error, needed, *spent, verdict)
