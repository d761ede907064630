"""``clients``: a client's (ε, δ) against whoever sees only sums over clients.

The mechanism is that of ``records`` with one record per client, the clipped update: every client is
in every sample, has one row, and no row depends on another client.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.privacy.guarantee import Guarantee, count_of
from jopeq.random.streams import PrivateStream
from jopeq.schemes.parameters import spec_of, take_annotated
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_accounting import RecordRounds
from jopeq.sums.record_plan import RecordPlan, plan_records
from jopeq.sums.record_sum import RecordSum
from jopeq.sums.shares import check_clients, check_dimension
from jopeq.wire.entries import LARGEST, Entries, Limits

_LOG = logging.getLogger("jopeq")


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
    clients, threshold, rounds, colluding, bits
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
