"""``records`` and ``clients``: (ε, δ) against whoever sees only sums over hospitals or clients.

    sample  draw each record with chance q, by private words
    total   clip each record's row to C and add up, in integers (``jopeq.sums.clipped_total``)
    encode  rotate the total; place it on a grid of 1/4096 of a step with private bytes; draw q from
            the discrete Gaussian about each place; mod 2^b
    (sum)   somebody else adds the shares of the hospitals, mod 2^b, under masks
    decode  centre the sum; multiply by the step; rotate back; divide by the expected batch

The result is as accurate as if one trusted server had pooled the data and added the noise once.
Nothing is scaled, left out or moved after the total: a record could move such steps by more than
its clip. Proof: docs/guarantees.md, section "records"; ``jopeq.sums.record_plan`` has the plan of
a dimension.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.checks import check_count, check_recovery
from jopeq.errors import PayloadError, TooFewClientsError, UpdateError
from jopeq.noise.gaussian_rounding import ROUND_LANE
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee, count_of
from jopeq.random.rational import MAX_EPSILON
from jopeq.random.streams import PrivateStream, SharedStream, fresh_seed, private_stream
from jopeq.schemes.parameters import spec_of, take_annotated
from jopeq.sums.clipped_total import MOST_ROWS, UNITS, ClippedTotal, check_clip
from jopeq.sums.record_accounting import LEAST_DELTA, RecordRounds
from jopeq.sums.record_plan import (
    FINE,
    MAX_RECORD_BITS,
    ROUNDS,
    Proposal,
    RecordPlan,
    capacity_of,
    fit_rounds,
    plan_records,
    rounds_of,
    tables_of,
    tau_of,
)
from jopeq.sums.record_sample import draw_sample
from jopeq.sums.shares import (
    centre,
    check_clients,
    check_dimension,
    draw_share,
    is_uniform,
    rotate,
    rotate_back,
)
from jopeq.sums.sum_law import MAX_HONEST
from jopeq.wire.entries import LARGEST, Entries, Limits

Array = NDArray[np.float64]

_LOG = logging.getLogger("jopeq")

_LARGEST_PLACE = 2.0**48
_MOST_SUMS, _MOST_HOSPITALS = 100_000, 64  # a server that asks for more keeps planners busy


@dataclass(frozen=True, kw_only=True)
class RecordSum:
    """(ε, δ) for a record against whoever sees only sums of the hospitals' shares.

    A record is one row of one hospital: a patient. The hospital itself is trusted with it; the
    server and the other hospitals are not. A single share has almost no privacy.

    >>> s = RecordSum(
    ...     epsilon=1.0, clip=1.0, records=4000, sampling=1.0, rounds=30, clients=10, threshold=5
    ... )
    >>> rows = np.zeros((400, 50))  # of one hospital
    >>> rows[:, 3] = 0.5
    >>> seed = bytes(32)  # of the round, known to all
    >>> shares = [s.encode(rows, seed=seed) for _ in range(10)]
    >>> total = sum(share.astype(int) for share in shares)  # in secret
    >>> mean = s.decode(total, seed=seed, dimension=50, clients=10)
    >>> bool(abs(mean[3] - 0.5) < 0.03), s.plan(50).bits, s.plan(50).price < 1.06
    (True, 12, True)

    Parameters
    ----------
    epsilon, delta : float
        Privacy asked for, of one record in all rounds.
    clip : float
        Public bound C on the Euclidean norm of a record's row. Longer rows are scaled down.
    records : int
        Public estimate of all hospitals' records together. Totals are divided by ``sampling`` times
        this number.
    sampling : float
        Chance of each record to be in a round's sample, above 0 and at most 1.
    rounds : int
        The most shares that a hospital makes. Every attempt at a round is one.
    clients, threshold : int
        The most and the fewest hospitals in a sum.
    colluding : int, default 1
        Hospitals that may tell the server their shares, or be curious themselves: each knows its
        own noise.
    bits : int, optional
        Bits of an entry of a share, up to 32. By default the fewest at which the error is within 5%
        of the central Gaussian's.
    largest_mean : float, default 1.0
        Bound on the length of the mean row, in units of C. A smaller one needs fewer bits. Where
        the mean is longer, entries wrap around: the mean is then wrong, (ε, δ) holds all the same.
    hospitals_per_person : int, default 1
        Hospitals in which one person may have a record. With ``sampling=1.0``: the most records of
        one person, in one hospital or several.
    most_records : int, optional
        Public bound on the records of one hospital, by default ``records``. Every round is padded
        to the largest sample, which a smaller bound makes smaller.
    batch_dependence : float, default 2⁻²⁰
        How far a record may move each other record's clipped row, in units of C, by changing how it
        is rounded. 0 where rows are computed one by one.
    evaluations : int, default 0
        Sums besides the rounds, whose scheme is ``evaluation``. One ε covers both, and each costs
        as much as a round.
    dropouts : {"repeat", "recover"}
        What happens if a hospital is missing. "repeat": a sum opens only if its whole named cohort
        answered, all of whose noise counts; else a smaller cohort is asked anew. "recover": sums of
        ``threshold`` hospitals open, so that many must carry the noise.
    """

    name: ClassVar[str] = "records"

    epsilon: float
    delta: float = 1e-5
    clip: float
    records: int
    sampling: float
    rounds: int
    clients: int
    threshold: int
    colluding: int = 1
    bits: int | None = None
    largest_mean: float = 1.0
    hospitals_per_person: int = 1
    most_records: int | None = None
    batch_dependence: float = 2.0**-20
    dropouts: Literal["repeat", "recover"] = "repeat"
    evaluations: int = 0

    def __post_init__(self) -> None:
        take_annotated(self)
        check_epsilon(self.epsilon)
        if self.epsilon > MAX_EPSILON:
            told = f"epsilon must be at most {MAX_EPSILON:g}, got {self.epsilon}"
            raise ValueError(f"{told}: above 20 it protects nobody; scheme 'none' says so")
        if not LEAST_DELTA <= self.delta < 1.0:
            told = f"delta must be from {LEAST_DELTA:g} to below 1, got {self.delta}"
            raise ValueError(f"{told}: Gaussian noise needs one, such as 1e-5")
        check_clip(self.clip)
        for name in ("sampling", "largest_mean"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be above 0 and at most 1, got {getattr(self, name)}")
        if not 0.0 <= self.batch_dependence <= 1.0:
            raise ValueError(
                f"batch_dependence is in units of clip, from 0 to 1, got {self.batch_dependence}"
            )
        least = max(0, self.colluding) + 2  # two honest shares carry the noise
        of_person = _MOST_HOSPITALS if self.sampling == 1.0 else min(self.clients, _MOST_HOSPITALS)
        bounds = {
            "colluding": (0, MAX_HONEST),
            "clients": (least, MAX_HONEST),
            f"threshold (with colluding={self.colluding})": (least, self.clients),
            "bits": (1, MAX_RECORD_BITS),
            "records": (1, MOST_ROWS),
            "most_records": (1, MOST_ROWS),
            "rounds": (1, _MOST_SUMS),
            "evaluations": (0, _MOST_SUMS),
            "hospitals_per_person": (1, of_person),
        }
        for name, (lowest, highest) in bounds.items():
            given = getattr(self, name.partition(" ")[0])
            if given is not None:
                check_count(name, given, lowest, highest)
        if self.expected_batch < 1.0:
            told = f"sampling={self.sampling:g} of records={self.records} draws less than one"
            raise ValueError(f"{told} record per round: raise sampling")
        if self.dropouts not in ("repeat", "recover"):
            raise ValueError(f"dropouts must be 'repeat' or 'recover', got {self.dropouts!r}")
        if self.dropouts == "recover":
            check_recovery(self.clients, self.threshold, self.colluding)

    @classmethod
    def propose(
        cls,
        *,
        epsilon: float,
        records: int,
        clients: int,
        dimension: int,
        delta: float = 1e-5,
        clip: float = 1.0,
        colluding: int = 1,
        rounds: Iterable[int] = ROUNDS,
    ) -> Proposal:
        """A scheme for a job: rounds, sampling, bits and threshold are chosen, and it says why.

        Of the ``rounds`` to choose from, at least 30 are taken, and the most at which a usual mean
        gradient stands out of a round's noise. Half of the hospitals are the threshold.

        >>> found = RecordSum.propose(epsilon=1.0, records=4000, clients=10, dimension=5210)
        >>> found.scheme.rounds, found.scheme.sampling, found.scheme.threshold, found.plan.bits
        (30, 0.14, 5, 8)
        """
        full = cls(
            epsilon=epsilon, delta=delta, clip=clip, records=records, sampling=1.0, rounds=1,
            clients=clients, threshold=max(colluding + 2, -(-clients // 2)), colluding=colluding,
        )  # fmt: skip
        return Proposal(fit_rounds(full, dimension, rounds))

    # Figures

    @property
    def expected_batch(self) -> float:
        """q·N: what totals are divided by."""
        return self.sampling * self.records

    @cached_property
    def sums(self) -> int:
        """Rounds and evaluations: all that ε covers."""
        return self.rounds + self.evaluations

    @cached_property
    def evaluation(self) -> RecordSum:
        """The scheme of the evaluations, whose rounds they are: rows of norm 1, as much noise."""
        if not self.evaluations:
            raise ValueError("evaluations must be at least 1 to evaluate, got 0: plan for some")
        rounds, evaluations = self.evaluations, self.rounds
        return replace(
            self, rounds=rounds, evaluations=evaluations, clip=1.0, largest_mean=1.0, bits=None
        )

    def honest(self, clients: int | None = None) -> int:
        """h: shares in a sum of so many clients whose noise the server surely does not know."""
        count = check_clients(self, clients)
        return (self.threshold if self.dropouts == "recover" else count) - self.colluding

    def capacity(self, most_records: int | None = None) -> int:
        """The most records in a sample of a hospital that has at most ``most_records``.

        A larger sample is cut at random. The chance of that is put by in δ.
        """
        return _capacity(self, most_records)

    def _most(self, most_records: int | None) -> int:
        most = self.most_records or self.records
        return most if most_records is None else check_count("most_records", most_records, 1, most)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee for rows of any dimension; ``plan`` has the exact ε of each."""
        count, is_whole = self.hospitals_per_person, self.sampling == 1.0
        sampled = f"each record drawn secretly with probability {self.sampling:g} per round"
        if is_whole:
            sampled = "every record in every round"
        answered = "" if self.dropouts == "recover" else " that all answered"
        evaluations = f" and {count_of(self.evaluations, 'evaluation')}" * bool(self.evaluations)
        spent = f"at most {count_of(self.rounds, 'round')}{evaluations}, failed attempts included"
        held = "one record in one hospital"
        if count > 1:
            held = f"one record in each of at most {count} hospitals"
            if is_whole:
                held = f"at most {count} records, in one hospital or several"
        return Guarantee(
            epsilon=self.epsilon,
            nominal=self.epsilon,
            delta=self.delta,
            unit="record",
            adversary="sum",
            covers=("whether the record is in the data at all", spent, sampled),
            assumptions=(
                f"each person has {held}",
                f"no hospital has more than {self.most_records or self.records:,} records",
                f"only sums of at least {self.threshold} named hospitals{answered} are opened",
                f"a cohort has at most {count_of(self.colluding, 'colluding hospital')}",
                f"no record moves another's row by more than {self.batch_dependence:.2g} of clip",
            ),
        )

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON."""
        return spec_of(self)

    def plan(self, dimension: int, clients: int | None = None) -> RecordPlan:
        """The plan of both ends for rows of this dimension and a cohort of so many hospitals."""
        return plan_records(self, dimension, clients)

    def spend(self, dimension: int, rounds: int) -> RecordRounds:
        """The loss of this many rounds, as ``jopeq.sums.record_accounting`` composes them."""
        plan = self.plan(dimension)
        return rounds_of(self, plan.noise_multiplier, tables_of(self, dimension), rounds)

    # Sampling

    def sample(
        self, count: int, most_records: int | None = None, *, noise: PrivateStream | None = None
    ) -> NDArray[np.int64]:
        """Indices of the records (or patients) out of ``count`` that are in this round's sample.

        Use a sample once: a second share of the same sample costs more than two rounds. One of
        more than ``capacity(most_records)`` is cut at random.
        """
        most = self._most(most_records)
        found = check_count("count", count, 0, most)
        return draw_sample(found, self.sampling, self.capacity(most), private_stream(noise))

    # Coding

    def encode(
        self,
        rows: Any,
        *,
        seed: bytes,
        clients: int | None = None,
        noise: PrivateStream | None = None,
    ) -> NDArray[Any]:
        """The share of the rows of one fresh sample: d integers below 2^bits.

        ``rows`` are an array or tensor (m, d), or a ``ClippedTotal`` of more than fit into one.
        ``seed`` (32 bytes) is the round's, public and the same for all hospitals. ``clients`` is
        the size of the named cohort. ``noise`` is for tests. Send the share only under a mask.
        """
        shared, private = SharedStream(seed), private_stream(noise)
        total = rows
        if not isinstance(rows, ClippedTotal):
            if len(shape := np.shape(rows)) != 2:
                raise UpdateError(f"rows must have shape (m, d), got {shape}")
            total = ClippedTotal(int(shape[1]), self.clip).add(rows)
        elif rows.clip != self.clip:
            raise ValueError(
                f"rows were clipped to {rows.clip:g}, the scheme has clip={self.clip:g}"
            )
        plan = self.plan(total.dimension, clients)
        values = rotate(total.values, plan.bound / UNITS, shared)
        if kernels.are_loaded():
            return kernels.cpu.draw_share(values, plan.law, plan.bits, private)
        return draw_share(plan, place(values, private), private)

    def decode(self, total: Any, *, seed: bytes, dimension: int, clients: int) -> Array:
        """The mean row: the sum of all sampled rows, clipped, over the expected batch.

        ``total`` is the sum of the shares of ``clients`` hospitals, mod 2^bits. ``PayloadError``
        (code ``total``) for one that is uniform, as it is where a mask or a share is missing; of
        up to 108 entries that cannot be told.
        """
        shared, plan = SharedStream(seed), self.plan(dimension, clients)
        values = centre(total, plan.bits, plan.dimension)
        if is_uniform(values, plan.bits):
            raise PayloadError(
                f"total is uniform mod 2^{plan.bits}, no sum of {clients} shares: add up each "
                "share of the cohort once, or raise largest_mean",
                code="total",
            )
        values *= plan.step / self.expected_batch
        rotate_back(values, shared)
        return values

    def pool(self, totals: Sequence[ClippedTotal]) -> Array:
        """The mean row of hospitals that are all in this process, through a share of each."""
        count = len(totals)
        if count < self.threshold:
            raise TooFewClientsError(
                f"threshold={self.threshold} hospitals must be in a sum, got {count}"
            )
        dimension, seed = totals[0].dimension, fresh_seed()
        shared = np.zeros(dimension, dtype=np.int64)
        for total in totals:
            shared += self.encode(total, seed=seed, clients=count)
        return self.decode(shared, seed=seed, dimension=dimension, clients=count)


@dataclass(frozen=True, kw_only=True)
class ClientSum:
    """(ε, δ) for a client against whoever sees only sums of at least ``threshold`` clients.

    A single share has almost no privacy and decodes to nothing: everything rests on the secure sum,
    which ``jopeq.circle`` provides. The proof is in docs/guarantees.md, section "records".

    >>> s = ClientSum(epsilon=4.0, clip=1.0, clients=10, threshold=8)
    >>> updates = [np.full(1000, 0.01 * i) for i in range(10)]
    >>> seed = bytes(32)  # of the round, known to all
    >>> shares = [s.encode(update, seed=seed) for update in updates]
    >>> total = sum(share.astype(int) for share in shares)  # in secret
    >>> s.decode(total, seed=seed, dimension=1000, clients=10).shape
    (1000,)
    >>> round(s.expected_error(1000) / s.plan(1000).central_error, 2)  # 10/(8 − 1), and 4%
    1.48

    Parameters
    ----------
    epsilon, delta : float
        Privacy asked for, of all that one client sends in ``rounds`` rounds.
    clip : float
        Public bound C on the update's Euclidean norm. Longer updates are scaled down.
    clients, threshold, rounds, colluding, bits : int
        As for ``RecordSum``, with one round by default.
    largest_mean : float, default 1.0
        Bound on the length of the mean update, in units of C. Updates of clients point in different
        directions, so their mean is shorter. Beyond it entries wrap around: the mean is then wrong,
        and (ε, δ) still holds.
    dropouts : {"recover", "repeat"}
        What happens if a client is missing. "recover": sums of ``threshold`` clients open, which
        must carry all the noise. "repeat": a smaller cohort is asked again, for a new share.
    """

    name: ClassVar[str] = "clients"

    epsilon: float
    delta: float = 1e-5
    clip: float
    clients: int
    threshold: int
    rounds: int = 1
    colluding: int = 1
    bits: int | None = None
    largest_mean: float = 1.0
    dropouts: Literal["recover", "repeat"] = "recover"

    def __post_init__(self) -> None:
        take_annotated(self)
        _ = self.sum  # which checks them

    @cached_property
    def sum(self) -> RecordSum:
        """The mechanism: a ``RecordSum`` of one record per client."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return RecordSum(
            **own, records=self.clients, sampling=1.0, most_records=1, batch_dependence=0.0
        )

    # Figures

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee for updates of any dimension; ``plan`` has the exact ε of each."""
        spent = f"at most {count_of(self.rounds, 'round')}"
        if self.dropouts == "repeat":
            spent += ", failed attempts included"
        return Guarantee(
            epsilon=self.epsilon,
            nominal=self.epsilon,
            delta=self.delta,
            unit="client",
            adversary="sum",
            covers=("whether the client contributes at all", spent),
            assumptions=(
                f"only sums of at least {self.threshold} clients are opened",
                f"a cohort has at most {count_of(self.colluding, 'colluding client')}",
            ),
        )

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON."""
        return spec_of(self)

    def plan(self, dimension: int, clients: int | None = None) -> RecordPlan:
        """The plan of both ends for updates of this dimension and a cohort of so many clients."""
        return plan_records(self.sum, dimension, clients, "records")

    def spend(self, dimension: int, rounds: int) -> RecordRounds:
        """The loss of this many rounds, as for ``RecordSum``."""
        return self.sum.spend(dimension, rounds)

    def expected_error(self, dimension: int, *, clients: int | None = None) -> float:
        """E‖decoded − mean‖²/C² where so many clients answered, by default all."""
        count = check_clients(self, clients)
        plan = self.plan(dimension, count)
        return plan.error * self.clients**2 / (plan.clients * count)

    # Coding

    def encode(
        self,
        update: Any,
        *,
        seed: bytes,
        clients: int | None = None,
        noise: PrivateStream | None = None,
    ) -> NDArray[Any]:
        """The share of an update or a state, as ``RecordSum.encode`` makes it of rows.

        Whatever the floats are, a share comes: NaN counts as 0, ±inf and what float32 cannot hold
        as ±C. Send it only under a mask.
        """
        return self.sum.encode(self.total(update), seed=seed, clients=clients, noise=noise)

    def total(self, update: Any) -> ClippedTotal:
        """The clipped update as the total of one record. Private, like the update."""
        entries = Entries.of(update)
        dimension = check_dimension(entries.count)
        with np.errstate(all="ignore"):  # an error would tell about the entries
            kernels.measure(entries, None, 1, Limits(LARGEST, self.clip))  # replaces invalid ones
            if entries.invalid:
                _LOG.warning("%d entries were NaN or too large, and were replaced", entries.invalid)
            found = entries.row(0, dimension)  # where they lie in one
            pieces = [piece for _, piece in entries.read(0, dimension)] if found is None else []
            row = np.concatenate(pieces) if found is None else found[1]
            return ClippedTotal(dimension, self.clip).add(row[None])

    def decode(
        self, total: Any, *, seed: bytes, dimension: int, clients: int
    ) -> NDArray[np.float32]:
        """The mean update of the ``clients`` that answered, of the sum of their shares.

        It refuses totals as ``RecordSum.decode`` does.
        """
        count = check_clients(self, clients)
        mean = self.sum.decode(total, seed=seed, dimension=dimension, clients=count)
        mean *= self.clients / count
        return mean.astype(np.float32)


# The steps


@lru_cache(maxsize=64)
def _capacity(scheme: RecordSum, most_records: int | None) -> int:
    return capacity_of(scheme._most(most_records), scheme.sampling, tau_of(scheme))


def place(values: Array, private: PrivateStream) -> NDArray[np.int64]:
    """Places on the grid: to 1/256 of a place, then up or down by a private byte; within ±2⁴⁸."""
    bytes_ = private.read(lane=ROUND_LANE, start=0, count=len(values))
    most = FINE * _LARGEST_PLACE
    fine = np.rint(np.clip(values * float(FINE), -most, most)).astype(np.int64)
    return (fine + bytes_) >> (FINE.bit_length() - 1)
