"""The server's side of a round: collects, forwards, adds up, and opens the sum once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager

from jopeq.errors import PayloadError, ProtocolError
from jopeq.secure import crypto
from jopeq.secure.masks import Ring, add_mask, unpack, zeros
from jopeq.secure.messages import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Entry,
    Kind,
    Reader,
    Roster,
    Terms,
    to_bits,
)
from jopeq.secure.shamir import PRIME, SHARE_BYTES, combine

Replies = Iterable[tuple[int, bytes]]
"""(client, message) in any order; whoever is missing has dropped out."""


class Server:
    """One round of a server.

    Send ``offer`` to at most ``terms.clients`` clients, then call ``roster``, ``inboxes``,
    ``survivors``, with signed terms ``signatures``, and ``total``, in this order, each with the
    replies to the messages that the last call returned. A reply that cannot be used is left out as
    if its client had dropped out; ``refused`` tells why. ``TooFewClientsError`` ends a round with
    fewer than ``terms.threshold`` clients, and no sum of fewer is ever computed.

    Parameters
    ----------
    terms : Terms
        What the clients must agree to; fresh for each round.
    trusted : Collection[bytes] (default: ())
        With signed terms: the public keys of clients that may take part.
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

    @property
    def offer(self) -> bytes:
        """The first message to every client."""
        return self.terms.to_bytes()

    @property
    def alive(self) -> tuple[int, ...]:
        """The clients whose vectors are in the sum."""
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
            result = {}
            for at in sealed:
                flags = to_bits(other in sealed for other in self._others(at))
                boxes = (sealed[other][at] for other in self._others(at) if other in sealed)
                inbox = self.terms.message(Kind.INBOX, flags, *boxes)
                result[self._roster.entries[at].id] = inbox
            return result

    def survivors(self, replies: Replies) -> dict[int, bytes]:
        """Add up the masked vectors; the message to each client that sent one."""
        self._total = zeros(self.terms.length, self.terms.bits)

        def read(number: int, reader: Reader) -> None:
            self._total += unpack(reader.rest(), self.terms.length, self.terms.bits)
            self._alive.add(self._roster.position(number))

        with self._step("survivors", "signatures" if self.terms.is_signed else "total"):
            senders = {self._roster.entries[at].id for at in self._commitments}
            self._read(replies, Kind.MASKED, senders, read)
            self.terms.check_count(len(self._alive), self.terms.threshold)
            flags = to_bits(self._flags(self._alive))
            return dict.fromkeys(self.alive, self.terms.message(Kind.SURVIVORS, flags))

    def signatures(self, replies: Replies) -> dict[int, bytes]:
        """With signed terms: the message that shows every client the others' signatures."""
        signed: dict[int, bytes] = {}

        def read(number: int, reader: Reader) -> None:
            signature, at = reader.take(SIGNATURE_BYTES), self._roster.position(number)
            reader.end()
            statement = self._roster.statement(self._flags(self._alive))
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
        """The sum of the survivors' vectors mod 2^bits, from the shares that they opened."""
        with self._step("total", "done"):
            secrets = self._secrets(replies)
            total, roster = self._total, self._roster
            del self._total
            for at, secret in secrets.items():
                if at in self._alive:
                    add_mask(total, crypto.self_mask_key(secret, roster.transcript), -1)
                    continue
                for other in self._alive.intersection(self._others(at)):
                    theirs = roster.entries[other].mask_key
                    key = crypto.mask_key(secret, theirs, roster.transcript, at, other)
                    add_mask(total, key, -1 if other < at else 1)  # takes back what other added
            total &= total.dtype.type((1 << self.terms.bits) - 1)
            return total

    def _secrets(self, replies: Replies) -> dict[int, bytes]:
        """The seed of every survivor and the private key of every other, all of them checked."""
        roster, graph = self._roster, self._roster.graph
        shares: dict[int, dict[int, bytes]] = {at: {} for at in self._commitments}

        def read(number: int, reader: Reader) -> None:
            opener = roster.position(number)
            held = [at for at in graph.holders(opener) if at in shares]
            parts = [reader.take(SHARE_BYTES) for _ in held]
            reader.end()
            if any(int.from_bytes(part, "little") >= PRIME for part in parts):
                raise ProtocolError("a share is no element of the field")
            for at, part in zip(held, parts, strict=True):
                shares[at][opener + 1] = part

        self._read(replies, Kind.OPENED, self.alive, read)
        secrets = {}
        for at, found in shares.items():
            self.terms.check_count(len(found), graph.opening)
            secret = combine({point: found[point] for point in sorted(found)[: graph.opening]})
            if at in self._alive:
                fits = crypto.commitment(secret, roster.transcript) == self._commitments[at]
            else:
                fits = crypto.public(secret) == roster.entries[at].mask_key
            if not fits:
                raise ProtocolError(
                    f"the shares of client {roster.entries[at].id} do not fit together: this "
                    "client or one that opened its shares sent wrong ones; no sum was opened"
                )
            secrets[at] = secret
        return secrets

    @contextmanager
    def _step(self, phase: str, following: str) -> Iterator[None]:
        """One step of the round: in order, once, and the last one if it fails."""
        if self._phase != phase:
            raise ProtocolError(f"the round is at {self._phase!r}, not at {phase!r}")
        self._phase = "failed"
        yield
        self._phase = following

    def _read(
        self,
        replies: Replies,
        kind: Kind,
        expected: Container[int] | None,
        read: Callable[[int, Reader], None],
    ) -> None:
        """Read the first message of each client that may send one; a bad one is its own loss."""
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

    def _flags(self, positions: Collection[int]) -> list[bool]:
        return [at in positions for at in range(len(self._roster.entries))]
