"""A round of ``sphere``: terms that all agree on once, reports of a few bytes, and their sum.

    terms    scheme, dimension, a key of 32 bytes: public, sent to every client once
    report   the index of a codeword, ⌈bits/8⌉ bytes, and 4 bytes more where clients sign it
    sum      whole numbers in the rotated domain, O(k) a report; rotated back once, by ``mean``

A sum takes memory for the dimension and one bit for every client it has counted.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.random.streams import (
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    describe_secret,
    private_stream,
)
from jopeq.schemes.sphere_codebook import (
    MOST_CLIENTS,
    add_codewords,
    decoded,
    from_bytes,
    report_bytes,
    scaled,
    to_bytes,
)
from jopeq.schemes.sphere_plan import SpherePlan
from jopeq.wire.entries import Entries, Limits

if TYPE_CHECKING:
    from jopeq.schemes.base import OnInvalid
    from jopeq.schemes.sphere import Sphere

Secrets = Callable[[int], bytes]

TAG_BYTES = 4
_TOGETHER = 1 << 12  # reports that are added at once
_TOGETHER_ENTRIES = 1 << 21  # rotated entries of clients that are coded at once


@dataclass(frozen=True)
class Round:
    """The terms of one round. ``Sphere.round`` makes it; both ends have the same.

    The key is public: privacy does not rest on it. It must be fresh for every round, and the server
    must not choose it after it has seen updates.

    >>> import jopeq
    >>> terms = jopeq.Sphere(epsilon=8.0, clip=1.0).round(dimension=1000, key=bytes(32))
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
    key: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or len(self.key) != SEED_BYTES:
            raise ValueError(f"key must be {SEED_BYTES} bytes, got {describe_secret(self.key)}")
        if not self.dimension:
            raise ValueError("dimension must be at least 1, got 0: there is nothing to report")
        self.plan  # noqa: B018 (refuses a dimension that the scheme cannot code)

    @cached_property
    def plan(self) -> SpherePlan:
        """Codebook and integers of this round."""
        plan = self.scheme.plan_for(self.dimension)
        if plan is None:
            raise ValueError(f"dimension must be at least 1, got {self.dimension}")
        return plan

    @cached_property
    def digest(self) -> bytes:
        """What tells this round from any other: the terms and all that both ends derive of them."""
        derived = f"{self.scheme.spec}|{self.plan!r}".encode()
        return hashlib.sha256(self.key + derived).digest()

    @property
    def terms(self) -> bytes:
        """The round as the server sends it to clients; ``from_terms`` reads it."""
        terms = {
            "scheme": self.scheme.spec,
            "dimension": self.dimension,
            "key": self.key.hex(),
            "digest": self.digest.hex(),
        }
        return json.dumps(terms, sort_keys=True).encode()

    @classmethod
    def from_terms(cls, terms: bytes, *, scheme: Sphere) -> Round:
        """The round that ``terms`` name, if they name ``scheme``: a server does not choose ε."""
        try:
            read = json.loads(terms)
            found = cls(scheme, int(read["dimension"]), bytes.fromhex(read["key"]))
            spec, digest = read["scheme"], bytes.fromhex(read["digest"])
        except (KeyError, TypeError, ValueError) as error:
            raise PayloadError(f"these are not the terms of a round: {error!r:.100}") from error
        if spec != scheme.spec:
            raise PayloadError(
                f"the terms name scheme {spec!r:.200}, this client has {scheme.spec}"
            )
        if not hmac.compare_digest(digest, found.digest):
            raise PayloadError(
                "the terms were made by another version of jopeq: use the same on both ends"
            )
        return found

    @property
    def shared(self) -> SharedStream:
        return SharedStream(self.key)

    def report(
        self,
        update: Any,
        *,
        client: int,
        secret: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
    ) -> bytes:
        """What client number ``client`` sends for its update (an array, a tensor, a state).

        Give every client of a round a number of its own: the number chooses its codebook, and the
        server counts each number once. With ``secret`` (32 bytes that only this client and the
        server know) the report has a tag, so that nobody else can report in its name.
        """
        number = _checked_client(client)
        (index,) = self.indices([update], clients=[number], noise=noise, on_invalid=on_invalid)
        return self._signed(int(index), number, secret)

    def reports(
        self,
        updates: Any,
        *,
        clients: Sequence[int] | NDArray[Any],
        secrets: Secrets | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
    ) -> list[bytes]:
        """Reports of many clients: an array with a row for each, or a list of updates.

        The same as ``report`` for each of them, and as private: every client has private words of
        its own. ``secrets`` gives a client's secret by its number, where reports are signed.
        """
        found = self.indices(updates, clients=clients, noise=noise, on_invalid=on_invalid).tolist()
        return [
            self._signed(index, int(client), None if secrets is None else secrets(int(client)))
            for index, client in zip(found, clients, strict=True)
        ]

    def indices(
        self,
        updates: Any,
        *,
        clients: Sequence[int] | NDArray[Any],
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
    ) -> NDArray[np.int64]:
        """What the reports of many clients hold, as ``Aggregator.add_many`` takes it."""
        numbers = _checked_clients(clients)
        if isinstance(updates, Mapping) or len(updates) != len(numbers):
            raise ValueError(
                f"updates must be a list, or an array of rows, of {len(numbers)} updates: one for "
                f"each client, got {_described(updates)}"
            )
        limits = self.scheme.limits(on_invalid)
        private = private_stream(noise)
        found = np.empty(len(numbers), dtype=np.int64)
        step = max(1, _TOGETHER_ENTRIES // self.plan.padded)
        for first in range(0, len(numbers), step):
            here = slice(first, first + step)
            own = numbers[here]
            words = private.words64(lane=0, start=2 * first, count=2 * len(own))
            with np.errstate(all="ignore"):
                rows = self._rows(updates[here], limits)
                found[here], _, _ = self.scheme.draw(rows, self.plan, self.shared, words, own)
        return found

    def _rows(self, updates: Any, limits: Limits | None) -> Iterable[NDArray[np.float64]]:
        """Updates in units of ``clip``, one after the other; each entry is judged by itself."""
        is_array = getattr(updates, "ndim", 0) == 2
        for update in [updates] if is_array else updates:
            entries = self.scheme.entries(update)
            if not isinstance(entries, Entries):
                raise TypeError("sphere codes updates on the CPU: move the update there")
            found = updates.shape[1] if is_array else entries.count
            if found != self.dimension:
                raise ValueError(
                    f"the update has {found} entries, this round is for {self.dimension}"
                )
            scales = kernels.measured(entries, self.scheme.scaling, 1, limits)
            yield from scaled(entries, scales).reshape(-1, self.dimension)

    def _signed(self, index: int, client: int, secret: bytes | None) -> bytes:
        body = to_bytes(index, self.plan)
        return body if secret is None else body + self._tag(body, client, secret)

    def _tag(self, body: bytes, client: int, secret: bytes) -> bytes:
        if not isinstance(secret, bytes) or len(secret) != SEED_BYTES:
            raise ValueError(f"secret must be {SEED_BYTES} bytes, got {describe_secret(secret)}")
        signed = b"jopeq report\0" + self.digest + client.to_bytes(4, "little") + body
        return hmac.new(secret, signed, hashlib.sha256).digest()[:TAG_BYTES]

    def aggregator(
        self, *, secrets: Secrets | None = None, state: bytes | None = None
    ) -> Aggregator:
        """An empty sum, or the one that ``Aggregator.to_bytes`` wrote.

        ``secrets`` gives a client's secret by its number, where reports are signed.
        """
        total = Aggregator(self, secrets)
        if state is not None:
            total.restore(state)
        return total

    def opened(self, report: bytes, client: int, secrets: Secrets | None) -> int:
        """The index in a report; raises ``PayloadError`` where it is malformed or forged."""
        size = report_bytes(self.plan)
        if not isinstance(report, bytes) or len(report) != size + (TAG_BYTES if secrets else 0):
            raise PayloadError("malformed")
        if secrets is not None and not hmac.compare_digest(
            report[size:], self._tag(report[:size], client, secrets(client))
        ):
            raise PayloadError("forged")
        try:
            return from_bytes(report[:size], self.plan)
        except PayloadError as error:
            raise PayloadError("malformed") from error


class Aggregator:
    """The sum of a round's reports, in any order. Bad reports are counted, never added.

    Sums of whole numbers: parts that several servers make add up, ``a + b``, to the very sum that
    one would have made. ``to_bytes`` keeps a sum, ``Round.aggregator(state=…)`` goes on with it.
    """

    def __init__(self, terms: Round, secrets: Secrets | None = None) -> None:
        self.round = terms
        self.refused: Counter[str] = Counter()
        self._secrets = secrets
        self._total = np.zeros(terms.plan.padded, dtype=np.int64)
        self._seen = _Numbers()
        self._waiting: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        """Reports in the sum."""
        return self._seen.count

    def add(self, report: bytes, *, client: int) -> bool:
        """Add a client's report; False where it is refused, and ``refused`` says for what."""
        if not _is_client(client):
            return self._refuse("number")
        try:
            index = self.round.opened(report, int(client), self._secrets)
        except PayloadError as error:
            return self._refuse(str(error))
        if not self._seen.add_one(int(client)):
            return self._refuse("duplicate")
        self._waiting.append((int(client), index))
        if len(self._waiting) >= _TOGETHER:
            self._flush()
        return True

    def add_many(
        self, reports: Sequence[bytes] | NDArray[Any], *, clients: Iterable[int] | NDArray[Any]
    ) -> int:
        """Add many reports, or the indices in them as whole numbers; how many were added."""
        if not isinstance(reports, np.ndarray):
            numbers = list(clients)
            if len(numbers) != len(reports):
                raise ValueError(f"{len(reports)} reports of {len(numbers)} clients: give one each")
            pairs = zip(reports, numbers, strict=True)
            return sum(self.add(report, client=number) for report, number in pairs)
        if self._secrets is not None:
            raise ValueError("signed reports are bytes: indices alone have no tag")
        who = np.asarray(clients)
        if who.shape != reports.shape or who.ndim != 1:
            raise ValueError(f"{reports.shape} indices of {who.shape} clients: give one each")
        if not (np.issubdtype(who.dtype, np.integer) and np.issubdtype(reports.dtype, np.integer)):
            raise ValueError("clients and indices must be whole numbers")
        is_numbered = (who >= 0) & (who < MOST_CLIENTS)
        is_codeword = (reports >= 0) & (reports < self.round.plan.codewords)
        self.refused.update(
            number=int((~is_numbered).sum()), malformed=int((is_numbered & ~is_codeword).sum())
        )
        good = is_numbered & is_codeword
        who, indices = who[good].astype(np.int64), reports[good].astype(np.int64)
        is_new = self._seen.add(who)
        self.refused["duplicate"] += int((~is_new).sum())
        self.refused = +self.refused
        self._add(who[is_new], indices[is_new])
        return int(is_new.sum())

    def mean(self) -> NDArray[np.float64]:
        """The mean update, in one row."""
        self._flush()
        if not self.count:
            raise ValueError("no report was added: there is no mean")
        plan, terms = self.round.plan, self.round
        clip = terms.scheme.clip
        assert clip is not None  # the scheme requires it
        return decoded(self._total, plan, terms.shared) * (clip / self.count)

    @property
    def standard_error(self) -> float:
        """√E‖mean − true mean‖², when every update is as long as ``clip``."""
        clip = self.round.scheme.clip or 0.0
        return clip * math.sqrt(self.round.plan.error() / max(1, self.count))

    def __add__(self, other: Aggregator) -> Aggregator:
        """Both sums; refused where a client is in both, since it would count twice."""
        if not isinstance(other, Aggregator):
            return NotImplemented
        if self.round != other.round:
            raise ValueError("these are sums of different rounds")
        both = self._seen.common(other._seen)
        if both:
            raise ValueError(
                f"{both} clients are in both sums: give each client to one server alone"
            )
        self._flush()
        other._flush()
        result = Aggregator(self.round, self._secrets)
        result._total = self._total + other._total
        result._seen = self._seen.joined(other._seen)
        result.refused = self.refused + other.refused
        return result

    def to_bytes(self) -> bytes:
        """The sum, to be kept in a file."""
        self._flush()
        kept = io.BytesIO()
        chunks, bits = self._seen.as_arrays()
        refused = np.frombuffer(json.dumps(self.refused).encode(), dtype=np.uint8)
        np.savez(
            kept,
            digest=np.frombuffer(self.round.digest, dtype=np.uint8),
            total=self._total,
            chunks=chunks,
            bits=bits,
            refused=refused,
        )
        return kept.getvalue()

    def restore(self, state: bytes) -> None:
        """Take the place of a sum that ``to_bytes`` wrote."""
        try:
            with np.load(io.BytesIO(state), allow_pickle=False) as kept:
                read = {name: kept[name] for name in kept.files}
            digest, total = read["digest"].tobytes(), read["total"]
            seen = _Numbers.from_arrays(read["chunks"], read["bits"])
            refused = Counter(json.loads(read["refused"].tobytes()))
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise PayloadError(f"this is not a kept sum: {error!r:.100}") from error
        if digest != self.round.digest:
            raise PayloadError("this is the sum of another round")
        if total.shape != self._total.shape or total.dtype != np.int64:
            raise PayloadError("the kept sum has another size")
        self._total, self._seen, self.refused = total.copy(), seen, refused

    def __getstate__(self) -> dict[str, Any]:
        """Sums travel between processes; secrets do not."""
        self._flush()
        return {**self.__dict__, "_secrets": None}

    def _refuse(self, reason: str) -> bool:
        self.refused[reason] += 1
        return False

    def _flush(self) -> None:
        if self._waiting:
            clients, indices = np.array(self._waiting, dtype=np.int64).T
            self._waiting = []
            self._add(np.ascontiguousarray(clients), np.ascontiguousarray(indices))

    def _add(self, clients: NDArray[np.int64], indices: NDArray[np.int64]) -> None:
        add_codewords(clients, indices, self.round.plan, self.round.shared, self._total)


class _Numbers:
    """A set of numbers below 2³², a bit each, in chunks of 2¹⁶."""

    def __init__(self) -> None:
        self._chunks: dict[int, NDArray[np.uint8]] = {}
        self.count = 0

    def add_one(self, number: int) -> bool:
        """Whether it is new."""
        bits, byte, bit = self._chunk(number >> 16), (number & 0xFFFF) >> 3, 1 << (number & 7)
        if bits[byte] & bit:
            return False
        bits[byte] |= bit
        self.count += 1
        return True

    def add(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are new; of the same number twice the first is."""
        is_new = np.zeros(len(numbers), dtype=np.bool_)
        is_new[np.unique(numbers, return_index=True)[1]] = True
        for chunk in np.unique(numbers >> 16).tolist():
            here = np.flatnonzero(is_new & (numbers >> 16 == chunk))
            places = numbers[here] & 0xFFFF
            bits = np.unpackbits(self._chunk(chunk), bitorder="little")
            is_new[here] = bits[places] == 0
            bits[places] = 1
            self._chunks[chunk] = np.packbits(bits, bitorder="little")
        self.count += int(is_new.sum())
        return is_new

    def _chunk(self, chunk: int) -> NDArray[np.uint8]:
        return self._chunks.setdefault(chunk, np.zeros(1 << 13, dtype=np.uint8))

    def common(self, other: _Numbers) -> int:
        shared = self._chunks.keys() & other._chunks.keys()
        return sum(
            int(np.unpackbits(self._chunks[chunk] & other._chunks[chunk]).sum()) for chunk in shared
        )

    def joined(self, other: _Numbers) -> _Numbers:
        result = _Numbers()
        result._chunks = dict(self._chunks)
        for chunk, bits in other._chunks.items():
            own = result._chunks.get(chunk)
            result._chunks[chunk] = bits if own is None else own | bits
        result.count = self.count + other.count
        return result

    def as_arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        chunks = sorted(self._chunks)
        bits = [self._chunks[chunk] for chunk in chunks]
        return np.array(chunks, dtype=np.int64), np.array(bits, dtype=np.uint8)

    @classmethod
    def from_arrays(cls, chunks: NDArray[Any], bits: NDArray[Any]) -> _Numbers:
        if bits.size and bits.shape != (len(chunks), 1 << 13):
            raise ValueError("the numbers are not in chunks of 2¹⁶")
        result = cls()
        result._chunks = dict(zip(chunks.tolist(), bits.astype(np.uint8), strict=True))
        result.count = int(np.unpackbits(bits.astype(np.uint8)).sum())
        return result


def _is_client(client: Any) -> bool:
    is_whole = isinstance(client, int | np.integer) and not isinstance(client, bool)
    return is_whole and 0 <= int(client) < MOST_CLIENTS


def _checked_client(client: Any) -> int:
    if not _is_client(client):
        raise ValueError(
            f"client must be a whole number from 0 to {MOST_CLIENTS - 1}, got {client!r:.50}: "
            "more people than that need several rounds"
        )
    return int(client)


def _checked_clients(clients: Any) -> NDArray[np.int64]:
    numbers = np.array([_checked_client(client) for client in clients], dtype=np.int64)
    different, counts = np.unique(numbers, return_counts=True)
    if len(different) < len(numbers):
        raise ValueError(
            f"client {different[counts > 1][0]} is there twice: give every client its own number"
        )
    return numbers


def _described(updates: Any) -> str:
    if isinstance(updates, Mapping):
        return "one state"
    return f"{len(updates)}"
