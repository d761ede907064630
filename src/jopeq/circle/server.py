"""The server's side of a round: collects, forwards, adds up, and opens the sum once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, combinations

from jopeq.circle import crypto
from jopeq.circle.crypto import Ring, add_mask, unpack, zeros
from jopeq.circle.messages import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Entry,
    Kind,
    Reader,
    Roster,
    Terms,
    kind_of,
    to_bits,
)
from jopeq.circle.shamir import PRIME, SHARE_BYTES, combine
from jopeq.errors import PayloadError, ProtocolError

Replies = Iterable[tuple[int, bytes]]
"""(client, message) in any order; whoever is missing has dropped out."""
_TRIES = 256  # subsets of the shares of one secret


class Server:
    """One round of a server.

    Send ``offer`` to at most ``terms.clients`` clients, then call ``roster``, ``inboxes``,
    ``survivors``, with signed terms ``signatures``, and ``total``, each with the replies to the
    messages of the last call; ``survivors`` takes complaints too. A reply that cannot be used
    counts as a dropout; ``refused``, and ``clients`` of every error, name their senders. No sum of
    fewer than ``terms.threshold`` clients is ever computed. Signed terms, fresh for each round,
    need the public keys of all who may take part (``trusted``).
    """

    def __init__(self, terms: Terms, *, trusted: Collection[bytes] = ()) -> None:
        if terms.is_signed != bool(trusted):
            raise ValueError("signed terms need trusted, other terms do not take it")
        self.terms = terms
        self.refused: dict[int, str] = {}
        self._trusted = frozenset(trusted)
        self._phase = "roster"
        self._commitments: dict[int, bytes] = {}  # of those who sent shares, by position
        self._alive: set[int] = set()
        self._vectors: dict[int, bytes] = {}  # as they came: one may have to leave the sum

    @property
    def offer(self) -> bytes:
        return self.terms.to_bytes()

    @property
    def alive(self) -> tuple[int, ...]:
        return tuple(self._roster.entries[at].id for at in sorted(self._alive))

    def roster(self, replies: Replies) -> dict[int, bytes]:
        """From the clients' keys, the message to each of them: who takes part.

        Keys that the others would refuse are their sender's loss, and do not stop the round.
        """
        entries: list[Entry] = []
        taken: set[bytes] = set()

        def read(number: int, reader: Reader) -> None:
            if not 0 <= number < 1 << 64:
                raise ProtocolError(f"client numbers are 0 to 2⁶⁴ − 1, got {number}")
            entry = Entry.read(reader, number, self.terms)
            reader.end()
            if self.terms.is_signed and not (
                entry.identity in self._trusted
                and crypto.is_signed(entry.identity, entry.signature, entry.statement(self.terms))
            ):
                raise ProtocolError("its keys are not signed by a trusted identity")
            own = [key for key in (entry.mask_key, entry.share_key, entry.identity) if key]
            if len(taken | set(own)) < len(taken) + len(own):
                raise ProtocolError("it sent a key twice, or another client's")
            crypto.check_public(entry.mask_key)
            crypto.check_public(entry.share_key)
            taken.update(own)
            entries.append(entry)

        with self._step("roster", "inboxes"):
            self._read(replies, Kind.KEYS, None, read)
            self.terms.check_count(len(entries), self.terms.threshold)
            self._roster = Roster(self.terms, tuple(sorted(entries, key=lambda entry: entry.id)))
            return dict.fromkeys((entry.id for entry in entries), self._roster.to_bytes())

    def inboxes(self, replies: Replies) -> dict[int, bytes]:
        """From the sealed shares, the message to each sender: what others sealed for it."""
        sealed: dict[int, dict[int, bytes]] = {}

        def read(number: int, reader: Reader) -> None:
            at, committed = self._roster.position(number), reader.take(KEY_BYTES)
            size = 2 * SHARE_BYTES + crypto.TAG_BYTES
            boxes = {other: reader.take(size) for other in self._others(at)}
            reader.end()
            sealed[at], self._commitments[at] = boxes, committed

        with self._step("inboxes", "survivors"):
            ids = {entry.id for entry in self._roster.entries}
            self._read(replies, Kind.SHARES, ids, read)
            self.terms.check_count(len(sealed), self.terms.threshold)
            result, flags = {}, to_bits(self._flags(sealed))
            for at in sealed:
                boxes = (sealed[other][at] for other in self._senders(at))
                inbox = self.terms.message(Kind.INBOX, flags, *boxes)
                result[self._roster.entries[at].id] = inbox
            return result

    def survivors(self, replies: Replies) -> dict[int, bytes]:
        """Add up the masked vectors; the message to each client that sent one."""
        self._total = zeros(self.terms.length, self.terms.bits)
        confirmations: dict[int, dict[int, bytes]] = {}

        def read(number: int, reader: Reader) -> None:
            at, size = self._roster.position(number), crypto.CONFIRMATION_BYTES
            others = [] if self.terms.is_signed else self._senders(at)
            confirmed, vector = {other: reader.take(size) for other in others}, reader.rest()
            self._total += unpack(vector, self.terms.length, self.terms.bits)
            self._vectors[at], confirmations[at] = vector, confirmed
            self._alive.add(at)

        with self._step("survivors", "signatures" if self.terms.is_signed else "total"):
            senders = {self._roster.entries[at].id for at in self._commitments}
            told: tuple[list[tuple[int, bytes]], ...] = ([], [])
            for one in replies:
                told[kind_of(one[1]) == Kind.COMPLAINT].append(one)
            self._read(told[0], Kind.MASKED, senders, read)
            self._hear(told[1], senders)
            self.terms.check_count(len(self._alive), self.terms.threshold)
            flags, result = to_bits(self._flags(self._alive)), {}
            for at in self._alive:
                others = sorted(self._alive.intersection(confirmations[at]))
                parts = (confirmations[other][at] for other in others)
                message = self.terms.message(Kind.SURVIVORS, flags, *parts)
                result[self._roster.entries[at].id] = message
            return result

    def _hear(self, complaints: Replies, senders: Container[int]) -> None:
        """Blame whom most of its neighbours complain of, else who complains."""
        accused: dict[int, set[int]] = {}

        def read(number: int, reader: Reader) -> None:
            flags = reader.bits(len(self._roster.entries))
            reader.end()
            for at in (at for at, is_named in enumerate(flags) if is_named):
                accused.setdefault(at, set()).add(number)

        self._read(complaints, Kind.COMPLAINT, senders, read)
        for at, numbers in accused.items():
            name = self._roster.entries[at].id
            if 2 * len(numbers) > len(self._senders(at)):
                self.refused[name] = f"its shares do not open at clients {sorted(numbers)}"
            else:
                reason = f"it complains of the shares of client {name}, which opened elsewhere"
                self.refused.update(dict.fromkeys(numbers, reason))

    def signatures(self, replies: Replies) -> dict[int, bytes]:
        """With signed terms: the message that shows every client the others' signatures."""
        signed: dict[int, bytes] = {}

        def read(number: int, reader: Reader) -> None:
            signature, at = reader.take(SIGNATURE_BYTES), self._roster.position(number)
            reader.end()
            lists = self._flags(self._commitments), self._flags(self._alive)
            statement = self._roster.statement(*lists)
            if not crypto.is_signed(self._roster.entries[at].identity, signature, statement):
                raise ProtocolError("this is not its signature of the survivors")
            signed[at] = signature

        with self._step("signatures", "total"):
            self._read(replies, Kind.SIGNATURE, self.alive, read)
            self.terms.check_count(len(signed), self.terms.threshold)
            parts = (to_bits(self._flags(signed)), *(signed[at] for at in sorted(signed)))
            last = self.terms.message(Kind.SIGNATURES, *parts)
            return {self._roster.entries[at].id: last for at in signed}

    def total(self, replies: Replies) -> Ring:
        """The sum of the survivors' vectors mod 2^bits, from the shares that they opened.

        A client that most others took for gone leaves the sum; ``alive`` has those who stay.
        """
        with self._step("total", "done"):
            secrets = self._secrets(replies)
            total, roster = self._total, self._roster
            del self._total
            bound = roster.bind(self._flags(self._commitments))
            for at, secret in secrets.items():
                if at in self._alive:
                    add_mask(total, crypto.self_mask_key(secret, bound), -1)
                    continue
                if at in self._vectors:
                    total -= unpack(self._vectors[at], self.terms.length, self.terms.bits)
                for other in self._alive.intersection(self._others(at)):
                    theirs = roster.entries[other].mask_key
                    key = crypto.mask_key(secret, theirs, bound, at, other)
                    add_mask(total, key, -1 if other < at else 1)  # takes back what other added
            self._vectors.clear()
            total &= total.dtype.type((1 << self.terms.bits) - 1)
            return total

    def _secrets(self, replies: Replies) -> dict[int, bytes]:
        """The seed of every survivor and the private key of every other, all of them checked."""
        roster, graph = self._roster, self._roster.graph
        opened: dict[tuple[int, bool], dict[int, bytes]] = {
            (at, is_seed): {} for at in self._commitments for is_seed in (True, False)
        }

        def read(number: int, reader: Reader) -> None:
            opener = roster.position(number)
            held = [at for at in graph.holders(opener) if at in self._commitments]
            flags = reader.bits(len(held))
            parts = [reader.take(SHARE_BYTES) for _ in held]
            reader.end()
            if any(int.from_bytes(part, "little") >= PRIME for part in parts):
                raise ProtocolError("a share is no element of the field")
            for at, is_seed, part in zip(held, flags, parts, strict=True):
                opened[at, is_seed][opener + 1] = part

        self._read(replies, Kind.OPENED, self.alive, read)
        secrets, good = {}, tuple[int, ...]()
        for at in self._commitments:
            kinds = (True, False) if at in self._alive else (False,)
            for is_seed in kinds:
                found = self._fitting(at, is_seed, opened[at, is_seed], good)
                if found is not None:
                    break
            else:
                self.terms.check_count(max(len(opened[at, kind]) for kind in kinds), graph.opening)
                client = roster.entries[at].id
                told = f"the shares of client {client} do not fit: it or those who opened them lied"
                raise ProtocolError(f"{told}; no sum was opened", clients=(client,))
            secrets[at], good = found
            if at in self._alive and not is_seed:
                self._alive.remove(at)
                self.refused[roster.entries[at].id] = "others have no confirmation of its senders"
        self.terms.check_count(len(self._alive), self.terms.threshold)
        return secrets

    def _fitting(
        self, at: int, is_seed: bool, shares: dict[int, bytes], good: tuple[int, ...]
    ) -> tuple[bytes, tuple[int, ...]] | None:
        """The secret that its check confirms, and the points of shares that gave it.

        ``good`` is tried first. Where the first subset fails, whose shares do not fit is refused.
        """
        roster, opening = self._roster, self._roster.graph.opening

        def try_points(points: Iterable[int]) -> bytes | None:
            with suppress(ProtocolError):  # the shares of these points belong to no secret
                secret = combine({point: shares[point] for point in points})
                if is_seed:
                    fits = crypto.commitment(secret, roster.transcript) == self._commitments[at]
                else:
                    fits = crypto.public(secret) == roster.entries[at].mask_key
                return secret if fits else None
            return None

        first = [good] if good and set(good) <= set(shares) else []
        for tried, points in enumerate(chain(first, _subsets(sorted(shares), opening))):
            secret = try_points(points)
            if secret is not None:
                for point in set(shares).difference(points) if tried else ():
                    if try_points((*points[1:], point)) is None:
                        self.refused[roster.entries[point - 1].id] = "it opened a wrong share"
                return secret, points
        return None

    @contextmanager
    def _step(self, phase: str, following: str) -> Iterator[None]:
        """One step of the round: in order, once, and the last one if it fails."""
        if self._phase != phase:
            raise ProtocolError(f"the round is at {self._phase!r}, not at {phase!r}")
        self._phase = "failed"
        try:
            yield
        except ProtocolError as error:
            error.clients = tuple(sorted({*error.clients, *self.refused}))
            raise
        self._phase = following

    def _read(
        self,
        replies: Replies,
        kind: Kind,
        expected: Container[int] | None,
        read: Callable[[int, Reader], None],
    ) -> None:
        """Read the first message of each client that may send one; invalid messages are dropped."""
        seen = set()
        for number, data in replies:
            try:
                if number in seen or (expected is not None and number not in expected):
                    raise ProtocolError(f"it sent a {kind.name} that was not asked for")
                seen.add(number)
                read(number, Reader(data, kind, self.terms.round))
            except (ProtocolError, PayloadError) as error:
                self.refused[number] = str(error)

    def _others(self, at: int) -> list[int]:
        return [other for other in self._roster.graph.holders(at) if other != at]

    def _senders(self, at: int) -> list[int]:
        """The other holders whose shares came."""
        return [other for other in self._others(at) if other in self._commitments]

    def _flags(self, positions: Collection[int]) -> list[bool]:
        return [at in positions for at in range(len(self._roster.entries))]


def _subsets(points: list[int], size: int) -> Iterator[tuple[int, ...]]:
    """Subsets to try: all if they are few, else many that a hash draws."""
    if math.comb(len(points), size) <= _TRIES:
        yield from combinations(points, size)
        return
    for turn in range(_TRIES):

        def place(point: int, turn: int = turn) -> bytes:
            return hashlib.sha256(b"%d %d" % (turn, point)).digest()

        yield tuple(sorted(sorted(points, key=place)[:size]))
