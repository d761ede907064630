"""The messages of a round as bytes, the terms all ends must share, and the roster of clients.

Every message starts with ``JoPS``, version, kind and round. Readers trust nothing: a wrong kind,
round, length or padding raises ``ProtocolError``. docs/wire-format.md has every field.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, partial
from itertools import pairwise

from jopeq.circle.graph import Graph
from jopeq.errors import ProtocolError, TooFewClientsError
from jopeq.random.streams import fresh_seed

MAGIC, VERSION = b"JoPS", 2
ROUND_BYTES, KEY_BYTES, SIGNATURE_BYTES = 16, 32, 64


class Kind(IntEnum):
    """Kinds of messages; clients send the even ones."""

    TERMS = 1
    KEYS = 2
    ROSTER = 3
    SHARES = 4
    INBOX = 5
    MASKED = 6
    SURVIVORS = 7
    SIGNATURE = 8
    SIGNATURES = 9
    OPENED = 10
    COMPLAINT = 12


def kind_of(data: bytes) -> int:
    """The kind that a message claims to be; 0 for too short a one."""
    return data[5] if isinstance(data, bytes) and len(data) > 5 else 0


def round_of(data: bytes) -> bytes:
    """The round that a message claims to be of."""
    return data[6 : 6 + ROUND_BYTES]


def to_bits(flags: Iterable[bool]) -> bytes:
    """Flags as bits, the first in the lowest bit of the first byte."""
    listed = list(flags)
    number = sum(1 << place for place, flag in enumerate(listed) if flag)
    return number.to_bytes((len(listed) + 7) // 8, "little")


class Reader:
    """Reads one message from its start to its end."""

    def __init__(self, data: bytes, kind: Kind, round_id: bytes | None = None) -> None:
        if not isinstance(data, bytes):
            raise ProtocolError(f"a message is bytes, got {type(data).__name__}")
        self._data, self._at = data, 0
        if self.take(5) != MAGIC + bytes((VERSION,)):
            raise ProtocolError(f"this is no message of the secure sum, version {VERSION}")
        found = self.number(1)
        if found != kind:
            raise ProtocolError(f"expected message {kind.name}, got kind {found}")
        self.round = self.take(ROUND_BYTES)
        if round_id not in (None, self.round):
            raise ProtocolError(f"message {kind.name} belongs to another round")

    def take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise ProtocolError("the message is too short")
        self._at += count
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def bits(self, count: int) -> list[bool]:
        number = self.number((count + 7) // 8)
        if number >> count:
            raise ProtocolError("bits beyond the last client are set")
        return [bool(number >> place & 1) for place in range(count)]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("the message is too long")


_NUMBERS = struct.Struct("<BQIIIB")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms that a server and its clients must agree on; ``CircleTerms`` checks the numbers.

    ``spec`` says all that the mechanism's noise depends on, in any words that both ends compare.
    Vectors of ``length`` integers are added mod 2^``bits``. At most ``clients`` take part, of whom
    ``colluding`` may tell the server all they know, and no sum of fewer than ``threshold`` is
    opened. With ``is_signed`` clients sign their keys and the list of survivors. ``seed`` (public
    random bits for the mechanism) and ``round`` (a name) are fresh each time.
    """

    spec: str
    bits: int
    length: int
    clients: int
    threshold: int
    colluding: int = 0
    is_signed: bool = False
    seed: bytes = field(default_factory=fresh_seed)
    round: bytes = field(default_factory=partial(fresh_seed, ROUND_BYTES))

    def message(self, kind: Kind, *parts: bytes) -> bytes:
        return b"".join((MAGIC, bytes((VERSION, kind)), self.round, *parts))

    def to_bytes(self) -> bytes:
        spec = self.spec.encode()
        numbers = (self.bits, self.length, self.clients, self.threshold, self.colluding)
        packed = _NUMBERS.pack(*numbers, self.is_signed)
        return self.message(Kind.TERMS, packed, self.seed, spec)

    def check(self, offer: bytes) -> None:
        if offer != self.to_bytes():
            told = f"the server's terms are {offer!r:.300}, this client's {self.to_bytes()!r:.300}"
            raise ProtocolError(f"{told}; nothing was sent")

    @staticmethod
    def check_count(count: int, least: int) -> None:
        if count < least:
            told = f"{count} clients are left and {least} are needed: nothing was opened"
            raise TooFewClientsError(told)


@dataclass(frozen=True)
class Entry:
    """A client of the roster; its last three parts are in messages only if keys are signed.

    The serial counts the shares that its ledger has paid for.
    """

    id: int
    mask_key: bytes
    share_key: bytes
    identity: bytes = b""
    serial: int = 0
    signature: bytes = b""

    def keys(self) -> bytes:
        serial = self.serial.to_bytes(8, "little") if self.identity else b""
        return self.mask_key + self.share_key + self.identity + serial + self.signature

    def statement(self, terms: Terms) -> bytes:
        about = hashlib.sha256(terms.to_bytes()).digest() + self.id.to_bytes(8, "little")
        serial = self.serial.to_bytes(8, "little")
        return b"jopeq sum keys\0" + about + self.mask_key + self.share_key + serial

    @classmethod
    def read(cls, reader: Reader, number: int, terms: Terms) -> Entry:
        keys = reader.take(KEY_BYTES), reader.take(KEY_BYTES)
        if not terms.is_signed:
            return cls(number, *keys)
        identity, serial = reader.take(KEY_BYTES), reader.number(8)
        return cls(number, *keys, identity, serial, reader.take(SIGNATURE_BYTES))


@dataclass(frozen=True)
class Roster:
    """All clients of a round, by rising id. Who holds another roster derives other keys."""

    terms: Terms
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        count, terms = len(self.entries), self.terms
        if not terms.threshold <= count <= terms.clients:
            raise ProtocolError(
                f"a roster has {terms.threshold} to {terms.clients} clients, this one has {count}"
            )
        if any(one.id >= two.id for one, two in pairwise(self.entries)):
            raise ProtocolError("the ids of a roster must rise")
        keys = [k for e in self.entries for k in (e.mask_key, e.share_key, e.identity) if k]
        if len(set(keys)) != len(keys):
            raise ProtocolError("two keys of the roster are the same")

    def to_bytes(self) -> bytes:
        parts = (entry.id.to_bytes(8, "little") + entry.keys() for entry in self.entries)
        return self.terms.message(Kind.ROSTER, len(self.entries).to_bytes(4, "little"), *parts)

    @classmethod
    def from_bytes(cls, data: bytes, terms: Terms) -> Roster:
        reader = Reader(data, Kind.ROSTER, terms.round)
        count = reader.number(4)
        if count > terms.clients:
            raise ProtocolError(f"a roster has at most {terms.clients} clients, got {count}")
        entries = tuple(Entry.read(reader, reader.number(8), terms) for _ in range(count))
        reader.end()
        return cls(terms, entries)

    @cached_property
    def transcript(self) -> bytes:
        """Hash of terms and roster: every key of the round is derived from it."""
        parts = hashlib.sha256(self.terms.to_bytes()), hashlib.sha256(self.to_bytes())
        return hashlib.sha256(b"".join(part.digest() for part in parts)).digest()

    @cached_property
    def graph(self) -> Graph:
        terms = self.terms
        return Graph(len(self.entries), terms.threshold, terms.colluding, self.transcript)

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {entry.id: position for position, entry in enumerate(self.entries)}

    def position(self, number: int) -> int:
        if number not in self._positions:
            raise ProtocolError(f"client {number} is not in the roster")
        return self._positions[number]

    def bind(self, senders: Iterable[bool]) -> bytes:
        """Hash of terms, roster and all clients whose shares came: masks are derived from it."""
        told = b"jopeq sum senders\0" + self.transcript + to_bits(senders)
        return hashlib.sha256(told).digest()

    def statement(self, senders: Iterable[bool], survivors: Iterable[bool]) -> bytes:
        """The bytes that identity keys sign before anything is opened."""
        return b"jopeq sum survivors\0" + self.bind(senders) + to_bits(survivors)
