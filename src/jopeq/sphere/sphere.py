"""``sphere``: ε for a whole update, against the server, in about ten bits per client.

    terms   scheme, dimension, people, a seed of 32 bytes: public, sent to every client once
    report  clip to ‖h‖ ≤ C; rotate; score every vector of the client's codebook against its block;
            draw a codeword: members by the counts of ``weights``, all others equally likely.
            Its index takes ⌈bits/8⌉ bytes, and 4 more if clients sign it
    sum     put the codewords' draws on their blocks, integers, O(k) per report; ``mean`` rotates
            them back once and multiplies by the plan's scale

Rotation and codebook come from the round's public seed; the server knows both. A sum takes memory
for the dimension and one bit per person.

Privacy rests only on ``SpherePlan.allow`` and one private word; docs/guarantees.md has the proofs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from hmac import compare_digest
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.checks import check_count
from jopeq.errors import PayloadError, UpdateError
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import (
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    derive,
    describe_secret,
    openssl,
    private_stream,
)
from jopeq.schemes.parameters import spec_of, take_annotated
from jopeq.sphere import sphere_codebook as codebook
from jopeq.sphere.sphere_codebook import MOST_CLIENTS
from jopeq.sphere.sphere_plan import MOST_BITS, SpherePlan, plan_for
from jopeq.wire.entries import Entries
from jopeq.wire.scaling import Scale, Scaling

Secrets = Callable[[int], "bytes | None"]

MOST_PEOPLE = 1 << 24  # of a round by default: 2 MiB of bits
TAG_BYTES = 4
_ENTRIES = 1 << 21  # rotated entries of clients that are coded at once
LEAST_EPSILON, MOST_EPSILON = 1.0 / 64.0, 24.0


@dataclass(frozen=True, kw_only=True)
class Sphere:
    """ε-LDP for the update as a whole, against the server, in at most 22 bits; unbiased.

    The error is within 7% of the best mechanism known (PrivUnitG) up to ε = 8, and within 17% at
    ε = 16. Divide ``expected_error`` by the number of clients to get the error of the mean. A
    report alone decodes to nothing: ``round`` makes the terms of a round, whose sum has the mean.
    It is unbiased if no update is longer than ``clip``.

    >>> scheme = Sphere(epsilon=8.0, clip=1.0)
    >>> scheme.bits_for(7850), round(scheme.expected_error(7850) / 10_000, 3)
    (11, 0.111)
    >>> print(scheme.guarantee)
    Protects  one update: ε ≤ 8
    Against   the server, who knows payload, dither, scale and scheme

    Parameters
    ----------
    epsilon : float
        Privacy asked for, of the whole update: from 1/64 to 24.
    clip : float
        Public bound on the update's Euclidean norm. Longer updates are scaled down.
    bits : int, optional
        Most bits per client, up to 24: by default 11, or 22 above ε = 10. The plan may take fewer
        (``bits_for``).
    draws : int, optional
        Normal draws for a client's codebook: more draws, less error. By default 2¹⁹, or 2²⁰ above
        ε = 10. Must be equal on both ends.
    max_entries : int, default 2²²
        Largest update: a client codes no more, whatever the terms of a round say.
    """

    name: ClassVar[str] = "sphere"
    is_private: ClassVar[bool] = True

    epsilon: float
    clip: float
    bits: int | None = None
    draws: int | None = None
    max_entries: int = 1 << 22

    def __post_init__(self) -> None:
        take_annotated(self)
        self.scaling  # noqa: B018 (validates the clip)
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ValueError(
                f"epsilon must be from 1/64 to {MOST_EPSILON:g} for scheme 'sphere', got "
                f"{self.epsilon}: 1 is strong and 8 is weak; for more, send several reports"
            )
        limits = {"bits": MOST_BITS, "draws": 1 << 26, "max_entries": 1 << 28}
        for name, most in limits.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1, most)
        self.plan_for(1)  # refuses draws that are too few
        openssl()  # loaded here, so that the first report does not wait for it

    @cached_property
    def scaling(self) -> Scaling:
        """The scale to vectors of length 1 at most."""
        return Scaling(self.clip)

    @cached_property
    def spec(self) -> str:
        """Name and non-default parameters as JSON, as terms name the scheme."""
        return spec_of(self)

    # Figures

    def plan_for(self, dimension: int) -> SpherePlan:
        """Codebook and integers for updates of this dimension."""
        dimension = check_count("dimension", dimension, 1)
        if dimension > self.max_entries:
            raise UpdateError(
                f"the update has {dimension} entries, more than max_entries={self.max_entries}: "
                "raise max_entries on both ends"
            )
        is_large = self.epsilon > 10.0
        bits = self.bits or (22 if is_large else 11)
        draws = self.draws or (1 << 20 if is_large else 1 << 19)
        return plan_for(self.epsilon, dimension, bits, draws)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for any dimension; ``guarantee_for`` has the exact ratio."""
        return Guarantee(epsilon=self.epsilon, nominal=self.epsilon, unit="update")

    def guarantee_for(self, dimension: int) -> Guarantee:
        """The exact ε of updates of this dimension."""
        return replace(self.guarantee, epsilon=self.plan_for(dimension).epsilon)

    def cost(self, sizes: Mapping[str, int]) -> Guarantee:
        """The cost of one report: ε covers the whole update."""
        return self.guarantee

    def expected_error(self, dimension: int, norm: float = 1.0) -> float:
        """E‖h̃ − h‖²/C² for an update of this dimension and of length ``norm``·C.

        The mean over K clients has 1/K of it.

        >>> round(Sphere(epsilon=4.0, clip=1.0).expected_error(1000), 1)
        436.8
        """
        if not (math.isfinite(norm) and 0.0 <= norm <= 1.0):
            raise ValueError(f"norm is in units of clip, from 0 to 1, got {norm!r}")
        return self.plan_for(dimension).error(norm)

    def bits_for(self, dimension: int) -> int:
        """Bits per client and round."""
        return self.plan_for(dimension).bits

    def round(self, *, dimension: int, seed: bytes, people: int = MOST_PEOPLE) -> Round:
        """Make the terms of a round for updates of this dimension.

        The seed is public: take fresh random bytes for every round, ``os.urandom(32)``. ``people``
        bounds the clients' numbers, and so the server's memory: one bit each.
        """
        return Round(self, dimension, seed, people)


@dataclass(frozen=True)
class Round:
    """The terms of one round, equal on both ends; ``Sphere.round`` makes them.

    The seed is public, and privacy does not rest on it. It must be fresh for every round, and the
    server must not choose it after seeing updates. Clients are numbered 0 to ``people`` − 1.

    >>> import jopeq
    >>> terms = jopeq.Sphere(epsilon=8.0, clip=1.0).round(dimension=1000, seed=bytes(32))
    >>> report = terms.report(np.full(1000, 0.03), client=7)
    >>> len(report)
    2
    >>> total = terms.aggregator()
    >>> total.add(report, client=7), total.add(report, client=7), total.refused
    (True, False, Counter({'duplicate': 1}))
    >>> total.mean().shape
    (1000,)
    """

    scheme: Sphere
    dimension: int
    seed: bytes
    people: int = MOST_PEOPLE

    def __post_init__(self) -> None:
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_BYTES:
            raise ValueError(f"seed must be {SEED_BYTES} bytes, got {describe_secret(self.seed)}")
        check_count("people", self.people, 1, MOST_CLIENTS)  # more people need several rounds
        self.plan  # noqa: B018 (refuses a dimension that the scheme cannot code)

    @cached_property
    def plan(self) -> SpherePlan:
        """Codebook and integers of the round."""
        return self.scheme.plan_for(self.dimension)

    @cached_property
    def digest(self) -> bytes:
        """The round's name: a hash of the terms and of everything derived from them."""
        derived = f"{self.scheme.spec}|{self.plan!r}|{self.people}".encode()
        return sha256(self.seed + derived).digest()

    @property
    def terms(self) -> bytes:
        """The round as the server sends it; ``from_terms`` reads it."""
        numbers = {"dimension": self.dimension, "people": self.people}
        codes = {"key": self.seed.hex(), "digest": self.digest.hex()}
        terms = {"scheme": self.scheme.spec, **numbers, **codes}
        return json.dumps(terms, sort_keys=True).encode()

    @classmethod
    def from_terms(cls, terms: bytes, *, scheme: Sphere) -> Round:
        """Read a round; its ``terms`` must name ``scheme``, as a server does not choose ε."""
        try:
            read = json.loads(terms)
            key, people = bytes.fromhex(read["key"]), int(read["people"])
            found = cls(scheme, int(read["dimension"]), key, people)
            spec, digest = read["scheme"], bytes.fromhex(read["digest"])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise PayloadError(f"these are not the terms of a round: {error!r:.100}") from error
        if spec != scheme.spec:
            told = f"the terms name scheme {spec!r:.200}"
            raise PayloadError(f"{told}, this client has {scheme.spec}")
        if not compare_digest(digest, found.digest):
            raise PayloadError(
                "the terms were made by another version of jopeq: use the same on both ends"
            )
        return found

    @property
    def shared(self) -> SharedStream:
        """The stream that determines rotation and codebooks."""
        return SharedStream(self.seed)

    @property
    def scale(self) -> Scale:
        """The clip, as both ends round it."""
        (scale,) = self.scheme.scaling.public(("",))
        return scale

    def report(
        self,
        update: Any,
        *,
        client: int,
        secret: bytes | None = None,
        noise: PrivateStream | None = None,
    ) -> bytes:
        """Make a client's report of its update (an array, a tensor, a state).

        Give each client of a round its own number: it chooses the codebook, and the server counts
        each number once. With ``secret`` (32 bytes, shared with the server alone) the report has a
        tag, so that nobody else can report in the client's name. A client that reports more than
        once keeps a ledger; charge it first (``jopeq.Ledger.charge``).
        """
        secrets = None if secret is None else lambda _: secret
        (report,) = self.reports([update], clients=[client], secrets=secrets, noise=noise)
        return report

    def reports(
        self,
        updates: Any,
        *,
        clients: Sequence[int] | NDArray[Any],
        secrets: Secrets | None = None,
        noise: PrivateStream | None = None,
    ) -> list[bytes]:
        """Make the reports of many clients, each as ``report`` does: of rows or a list of updates.

        ``secrets`` gives a client's secret by its number.
        """
        found, size = self.indices(updates, clients=clients, noise=noise), self.plan.report_bytes
        bodies = [index.to_bytes(size, "little") for index in found.tolist()]
        if secrets is None:
            return bodies
        pairs = zip(bodies, map(int, clients), strict=True)
        return [body + self._tag(body, client, secrets(client)) for body, client in pairs]

    def indices(
        self,
        updates: Any,
        *,
        clients: Sequence[int] | NDArray[Any],
        noise: PrivateStream | None = None,
    ) -> NDArray[np.int64]:
        """Draw the indices that the reports of many clients hold, for ``Aggregator.add_many``."""
        numbers = np.array([self.check_client(client) for client in clients], dtype=np.int64)
        different, times = np.unique(numbers, return_counts=True)
        if len(different) < len(numbers):
            twice = different[times > 1][0]
            raise ValueError(f"client {twice} is there twice: give every client its own number")
        if isinstance(updates, Mapping) or len(updates) != len(numbers):
            raise ValueError(
                f"updates must be a list, or an array of rows, of {len(numbers)} updates: one for "
                f"each client, got {'one state' if isinstance(updates, Mapping) else len(updates)}"
            )
        private = private_stream(noise)
        step = max(1, _ENTRIES // self.plan.padded)
        found = np.empty(len(numbers), dtype=np.int64)
        for first in range(0, len(numbers), step):
            here = slice(first, first + step)
            with np.errstate(all="ignore"):
                members, counts = self._weights(updates[here], numbers[here])
            words = private.words64(lane=0, start=2 * first, count=2 * len(members))
            found[here] = codebook.draw_indices(members, counts, self.plan, words)
        return found

    def draws(
        self, update: Any, *, count: int, client: int = 0, noise: PrivateStream | None = None
    ) -> NDArray[np.int64]:
        """Draw ``count`` indices of one update, each with its ε: for audits, never to be sent."""
        numbers = np.array([self.check_client(client)])
        words = private_stream(noise).words64(lane=0, start=0, count=2 * count)
        with np.errstate(all="ignore"):
            members, counts = self._weights([update], numbers)
        return codebook.draw_indices(members, counts, self.plan, words)

    def _weights(self, updates: Any, clients: Any) -> codebook.Weights:
        inside = [codebook.into_ball(row) for row in self._rows(updates)]
        turned = codebook.rotate(np.array(inside), self.plan, self.shared)
        return codebook.weights(turned, self.plan, self.shared, clients)

    def _rows(self, updates: Any) -> Iterator[NDArray[np.float64]]:
        """Yield updates in units of ``clip``; each entry is judged by itself."""
        is_array, scaling = getattr(updates, "ndim", 0) == 2, self.scheme.scaling
        for update in [updates] if is_array else updates:
            entries = Entries.of(update)
            count = updates.shape[1] if is_array else entries.count
            if count != self.dimension:
                told = f"the update has {count} entries"
                raise ValueError(f"{told}, this round is for {self.dimension}")
            kernels.measure(entries, None, 1, scaling.limits(1))
            pieces = [piece for _, piece in entries.read(0, entries.count)]
            scaled = self.scale.apply(np.concatenate(pieces))
            yield from scaled.reshape(-1, self.dimension)

    def check_client(self, client: Any) -> int:
        """The client's number; ``ValueError`` if the round has no such client."""
        return check_count("client", client, 0, self.people - 1)

    def _tag(self, body: bytes, client: int, secret: bytes | None) -> bytes:
        signed = self.digest + client.to_bytes(4, "little") + body
        return derive(secret, b"jopeq report", signed)[:TAG_BYTES]

    def aggregator(self, *, secrets: Secrets | None = None) -> Aggregator:
        """Start an empty sum; ``secrets`` opens signed reports."""
        return Aggregator(self, secrets)

    def open_report(self, report: Any, client: int, secrets: Secrets | None) -> int:
        """The index in a report; ``PayloadError`` if it is malformed or forged."""
        size, malformed = self.plan.report_bytes, "this is no report of the round"
        expected = size + (0 if secrets is None else TAG_BYTES)
        is_bytes = isinstance(report, bytes | bytearray | memoryview)
        if not is_bytes or memoryview(report).nbytes != expected:
            raise PayloadError(malformed, code="malformed")
        body, tag = bytes(report)[:size], bytes(report)[size:]
        if secrets is not None:
            try:
                secret = secrets(client)
            except LookupError:
                secret = None
            if secret is None:
                raise PayloadError("nobody knows this client's secret", code="unknown")
            if not compare_digest(tag, self._tag(body, client, secret)):
                raise PayloadError("the tag is not this client's", code="forged")
        index = int.from_bytes(body, "little")
        if index >= self.plan.codewords:
            raise PayloadError(malformed, code="malformed")
        return index


class Aggregator:
    """The sum of a round's reports, in any order. Bad reports are counted, never added.

    ``refused`` counts them: "number" (no client has that number), "duplicate" (the client was
    counted before), "malformed" (no such report), "forged" (its tag is wrong) and "unknown"
    (``secrets`` raised a ``LookupError``, or gave None).

    Parts that several servers make add up, ``a + b``, to exactly the sum that one server would
    have made. Pickling drops the secrets: add such a sum to one that has them.
    """

    def __init__(self, terms: Round, secrets: Secrets | None = None) -> None:
        self.round = terms
        self.count = 0  # reports in the sum
        self.refused: Counter[str] = Counter()
        self._secrets = secrets
        self._is_signed = secrets is not None
        self._seen = np.zeros(-(-terms.people // 8), dtype=np.uint8)  # one bit for each client
        self._total = np.zeros(terms.plan.padded, dtype=np.int64)

    def add(self, report: bytes, *, client: int) -> bool:
        """Add a client's report; False if it is refused. ``add_many`` is faster for many."""
        return self.add_many([report], clients=[client]) == 1

    def add_many(
        self, reports: Sequence[bytes] | NDArray[Any], *, clients: Iterable[int] | NDArray[Any]
    ) -> int:
        """Add many reports, or an array of their indices; returns how many were added.

        An error leaves the sum as it was.
        """
        if self._is_signed and self._secrets is None:
            raise ValueError(
                "this sum of signed reports came without their secrets: give secrets to "
                "Round.aggregator, or add it to the sum that has them"
            )
        terms, is_array = self.round, isinstance(reports, np.ndarray)
        if is_array and self._is_signed:
            raise ValueError("signed reports are bytes: indices alone have no tag")
        if not isinstance(clients, np.ndarray):  # Python's numbers may be of any size
            numbers = [one if _is_number(one, terms.people) else -1 for one in clients]
            clients = np.array(numbers, dtype=np.int64)
        if len(clients) != len(reports):
            raise ValueError(f"{len(reports)} reports of {len(clients)} clients: give one each")
        for name, values in {"clients": clients, "reports": reports}.items():
            if isinstance(values, np.ndarray) and not _is_whole(values):
                told = f"{values.dtype} of shape {values.shape}"
                raise ValueError(f"{name} must be whole numbers in one row, got {told}")
        is_good = (clients >= 0) & (clients < terms.people)
        refused = Counter(number=int(np.count_nonzero(~is_good)))
        indices = reports
        if not isinstance(indices, np.ndarray):
            indices = np.full(len(reports), -1, dtype=np.int64)
            for place in np.flatnonzero(is_good).tolist():
                client = int(clients[place])
                try:
                    indices[place] = terms.open_report(reports[place], client, self._secrets)
                except PayloadError as error:
                    refused[error.code] += 1
                    is_good[place] = False
        is_codeword = (indices >= 0) & (indices < terms.plan.codewords)
        refused["malformed"] += int(np.count_nonzero(is_good & ~is_codeword))
        is_good &= is_codeword
        who, chosen = clients[is_good].astype(np.int64), indices[is_good].astype(np.int64)
        is_new = _are_new(self._seen, who)
        refused["duplicate"] += int(np.count_nonzero(~is_new))
        who = who[is_new]
        self._add(who, chosen[is_new])
        np.bitwise_or.at(self._seen, who >> 3, _bit_of(who))
        self.count += len(who)
        self.refused += refused
        return len(who)

    def _add(self, clients: NDArray[np.int64], indices: NDArray[np.int64]) -> None:
        """Add all of them, or none where an error comes: a single vector is added at once."""
        plan, is_single = self.round.plan, len(clients) * self.round.plan.lists == 1
        fresh = self._total if is_single else np.zeros_like(self._total)
        codebook.add_codewords(clients, indices, plan, self.round.shared, fresh)
        if not is_single:
            self._total += fresh

    def mean(self) -> NDArray[np.float64]:
        """The mean update in one row."""
        if not self.count:
            raise ValueError("no report was added: there is no mean")
        plan, shared = self.round.plan, self.round.shared
        return codebook.decode_sum(self._total, plan, shared) * (self.round.scale.unit / self.count)

    @property
    def standard_error(self) -> float:
        """√E‖mean − true mean‖² if every update is as long as ``clip``."""
        return self.round.scale.unit * math.sqrt(self.round.plan.error() / max(1, self.count))

    def __add__(self, other: Aggregator) -> Aggregator:
        """Add two sums that have no client in common."""
        if not isinstance(other, Aggregator):
            return NotImplemented
        if self.round != other.round:
            raise ValueError("these are sums of different rounds")
        if self._is_signed != other._is_signed:
            raise ValueError("one sum is of signed reports, the other is not: keep them apart")
        if both := int(np.unpackbits(self._seen & other._seen).sum(dtype=np.int64)):
            raise ValueError(f"{both} clients are in both sums: give each client to one server")
        result = Aggregator(self.round, self._secrets)
        result._is_signed = self._is_signed
        result._total = self._total + other._total
        result._seen = self._seen | other._seen
        result.count = self.count + other.count
        result.refused = self.refused + other.refused
        return result

    def __getstate__(self) -> dict[str, Any]:
        """The sum without its secrets, which do not travel."""
        return {**self.__dict__, "_secrets": None}


def _is_number(value: Any, most: int) -> bool:
    """True if this is a whole number from 0 to ``most`` − 1."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_whole and 0 <= int(value) < most


def _is_whole(values: NDArray[Any]) -> bool:
    return values.ndim == 1 and (values.dtype.kind in "iu" or not len(values))


def _are_new(seen: NDArray[np.uint8], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers have no bit yet; of equal ones the first counts as new."""
    is_new: NDArray[np.bool_] = (seen[numbers >> 3] & _bit_of(numbers)) == 0
    ordered = np.sort(numbers)
    if (ordered[1:] == ordered[:-1]).any():
        is_first = np.zeros_like(is_new)
        is_first[np.unique(numbers, return_index=True)[1]] = True
        is_new &= is_first
    return is_new


def _bit_of(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    return (1 << (numbers & 7)).astype(np.uint8)
