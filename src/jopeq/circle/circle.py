"""Circles: secure sums in one exchange. Terms, entries, attempts and their bytes.

The members of a named cohort mask with one another and nobody ever reveals a mask. If all answer,
the masks cancel; if one is missing, nothing opens and a smaller cohort is asked anew. A member's
key serves one answer. ``CircleServer`` and ``CircleClient`` exchange bytes; the transport, the
ledger and the mechanism are the caller's.

``examples/own_loop.py`` is a complete loop of five hospitals in one process.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import starmap
from typing import Literal

from jopeq.checks import check_count, check_recovery, set_fields
from jopeq.circle import crypto
from jopeq.circle.crypto import LEAST_BITS, MOST_BITS
from jopeq.circle.messages import KEY_BYTES, SIGNATURE_BYTES, Terms
from jopeq.errors import ProtocolError
from jopeq.random.streams import SEED_BYTES

HEAD = b"JoPC\x01"  # and the version
DIGEST_BYTES = 32
_ENTRY = struct.Struct(f"<{KEY_BYTES}s{KEY_BYTES}sQ{SIGNATURE_BYTES}s")

Dropouts = Literal["repeat", "recover"]


class Kind(IntEnum):
    """Kinds of messages; clients send the even ones."""

    ASK = 1
    KEYS = 2
    ATTEMPT = 3
    REPLY = 4
    OFFER = 5
    PHASE = 7
    ANSWER = 8


def kind_of(data: bytes) -> int:
    """The kind that a message claims to be; 0 for bytes that are none of a circle's."""
    is_one = isinstance(data, bytes) and len(data) > len(HEAD) and data.startswith(HEAD)
    return data[len(HEAD)] if is_one else 0


def frame(*parts: bytes) -> bytes:
    """All parts, each after its length: different parts never give the same bytes."""
    framed = list[bytes]()
    for part in parts:
        framed += len(part).to_bytes(8, "little"), part
    return b"".join(framed)


def pack_message(kind: Kind, *parts: bytes) -> bytes:
    """A message of these parts."""
    return HEAD + bytes((kind,)) + frame(*parts)


def read_message(data: bytes, kind: Kind, count: int) -> list[bytes]:
    """The parts of a message; ``ProtocolError`` unless it is of this kind and has so many."""
    if kind_of(data) != kind:
        raise ProtocolError(f"expected message {kind.name} of a circle, got other bytes")
    parts, at = [], len(HEAD) + 1
    for _ in range(count):
        size = int.from_bytes(data[at : at + 8], "little")
        at += 8 + size
        if at > len(data):
            raise ProtocolError("the message is too short")
        parts.append(data[at - size : at])
    if at != len(data):
        raise ProtocolError("the message is too long")
    return parts


def digest(*parts: bytes) -> bytes:
    """The content of a round in 32 bytes: pass all that a client acts on, in one order."""
    hashed = hashlib.sha256(b"jopeq circle content\0")
    for part in parts:  # as ``frame``, without another copy of the model
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()


def fingerprint(trusted: Iterable[bytes]) -> str:
    """The list of trusted identities in 32 digits, which members compare by telephone.

    >>> fingerprint([bytes(32)])
    '79ee 563e 8035 71ad 7116 f769 bb80 ae51'
    """
    found = hashlib.sha256(b"jopeq circle trusted\0" + b"".join(sorted(trusted))).digest()
    return found[:16].hex(" ", 2)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Vectors of a cohort of one size: ``length`` integers mod 2^``bits``.

    ``text`` holds whatever else of the mechanism depends on the size, to be compared.
    """

    bits: int
    length: int
    text: str = ""

    def __post_init__(self) -> None:
        bits = check_count("bits", self.bits, LEAST_BITS, MOST_BITS)
        set_fields(self, bits=bits, length=check_count("length", self.length, 1, 1 << 48))

    @cached_property
    def encoded(self) -> bytes:
        numbers = self.bits.to_bytes(1, "little") + self.length.to_bytes(8, "little")
        return frame(numbers, self.text.encode())


@dataclass(frozen=True, kw_only=True)
class CircleTerms:
    """The terms that all members of a circle agree on before the first round.

    Parameters
    ----------
    circle, spec : str
        The circle's name, and all that the mechanism's noise depends on but the cohort, in words
        that are compared.
    plan : Callable[[int], Plan]
        The vectors of a cohort of that size, the same at both ends. With "recover" only
        ``plan(threshold)`` is used: its noise is for the threshold, its bits for all clients.
    clients, threshold : int
        The most and the fewest members of a cohort.
    colluding : int (default: 1)
        Members that may tell the server all they know. Every member knows its own noise, so 0 means
        a circle whose members look at no total.
    attempts : int (default: 8)
        Attempts at one round, each with a charge of its own.
    dropouts : "repeat" or "recover" (default: "repeat")
        "repeat" is one exchange, and one more for each attempt in which somebody is missing.
        "recover" is the protocol of ``Server`` and ``Client``: four exchanges, five if signed, and
        members may vanish at any of them.
    unsigned : bool (default: False)
        For simulations: any identity is let in. A server that invents members reads a share alone.
    """

    circle: str
    spec: str
    plan: Callable[[int], Plan] = field(compare=False)
    clients: int
    threshold: int
    colluding: int = 1
    attempts: int = 8
    dropouts: Dropouts = "repeat"
    unsigned: bool = False

    def __post_init__(self) -> None:
        for name in ("circle", "spec"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be text, got {getattr(self, name)!r:.80}")
        for name, least in (("clients", 1), ("colluding", 0), ("attempts", 1)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least, 1 << 20))
        threshold = check_count("threshold", self.threshold, self.colluding + 2, self.clients)
        object.__setattr__(self, "threshold", threshold)
        if self.dropouts not in ("repeat", "recover"):
            raise ValueError(f'dropouts must be "repeat" or "recover", got {self.dropouts!r:.80}')
        if self.unsigned not in (True, False):
            raise ValueError(f"unsigned must be True or False, got {self.unsigned!r:.80}")
        if self.dropouts == "recover":
            check_recovery(self.clients, self.threshold, self.colluding)

    @cached_property
    def encoded(self) -> bytes:
        numbers = (self.clients, self.threshold, self.colluding, self.attempts, self.unsigned)
        packed = struct.pack("<5I", *numbers)
        return frame(self.circle.encode(), self.spec.encode(), self.dropouts.encode(), packed)

    def bind(self, trusted: Collection[bytes]) -> bytes:
        """Hash of the terms and the trusted identities: whoever has another joins no cohort."""
        if self.unsigned == bool(trusted):
            raise ValueError("trusted lists the identities of all members, or unsigned is True")
        if {*map(type, trusted)} - {bytes} or {*map(len, trusted)} - {KEY_BYTES}:
            raise ValueError(f"trusted must hold public keys of {KEY_BYTES} bytes")
        listed = b"".join(sorted(set(trusted)))
        return hashlib.sha256(b"jopeq circle\0" + frame(self.encoded, listed)).digest()


@dataclass(frozen=True)
class Entry:
    """A member's next answer: its key serves one attempt; its serial counts shares charged."""

    identity: bytes
    key: bytes
    serial: int
    signature: bytes = b""

    def statement(self, bound: bytes) -> bytes:
        serial = self.serial.to_bytes(8, "little")
        return b"jopeq circle entry\0" + bound + self.identity + self.key + serial

    def to_bytes(self) -> bytes:
        return _ENTRY.pack(self.identity, self.key, self.serial, self.signature)

    @classmethod
    def from_bytes(cls, data: bytes) -> Entry:
        if len(data) != _ENTRY.size:
            raise ProtocolError(f"an entry has {_ENTRY.size} bytes, got {len(data)}")
        return cls(*_ENTRY.unpack(data))

    def check(self, bound: bytes, trusted: Collection[bytes]) -> None:
        """``ProtocolError`` unless a trusted identity signed a usable key for this circle."""
        if trusted and self.identity not in trusted:
            raise ProtocolError(f"identity {self.identity.hex()} is not trusted")
        if not crypto.is_signed(self.identity, self.signature, self.statement(bound)):
            raise ProtocolError(f"identity {self.identity.hex()} did not sign its entry")
        crypto.check_public(self.key)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at one round: everything that a member acts on."""

    terms: CircleTerms
    round: int
    attempt: int
    seed: bytes
    """32 public random bytes for the mechanism."""
    content: bytes
    """``digest`` of model, configuration and whatever else members act on."""
    entries: tuple[Entry, ...] = ()
    """Members of the cohort by rising identity; none while it is not named."""

    @cached_property
    def plan(self) -> Plan:
        """The vectors of this cohort; before it is named, of the smallest."""
        return self.terms.plan(len(self.entries) or self.terms.threshold)

    @cached_property
    def encoded(self) -> bytes:
        """The message ATTEMPT; an OFFER as long as no cohort is named."""
        if not self.entries:
            return pack_message(Kind.OFFER, *self._parts())
        listed = b"".join(entry.to_bytes() for entry in self.entries)
        return pack_message(Kind.ATTEMPT, *self._parts(), self.plan.encoded, listed)

    def _parts(self) -> tuple[bytes, ...]:
        numbers = self.round.to_bytes(8, "little") + self.attempt.to_bytes(4, "little")
        return self.terms.encoded, numbers, self.seed, self.content

    @cached_property
    def offered(self) -> bytes:
        """Hash of all but the cohort."""
        return hashlib.sha256(b"jopeq circle offer\0" + frame(*self._parts())).digest()

    def transcript(self, bound: bytes) -> bytes:
        """H: hash of everything. Members that were told different things share no mask."""
        told = b"jopeq circle attempt\0" + bound + self.encoded
        return hashlib.sha256(told).digest()

    @classmethod
    def from_bytes(cls, data: bytes, terms: CircleTerms) -> Attempt:
        """The attempt that a server offers; ``ProtocolError`` if its terms are not these."""
        is_offer = kind_of(data) == Kind.OFFER
        parts = read_message(data, *((Kind.OFFER, 4) if is_offer else (Kind.ATTEMPT, 6)))
        offered, numbers, seed, content, *rest = parts
        check_terms(offered, terms)
        sizes = (12, SEED_BYTES, DIGEST_BYTES)
        if (found := (len(numbers), len(seed), len(content))) != sizes:
            raise ProtocolError(
                f"numbers, seed and content of an attempt have {sizes} bytes, got {found}"
            )
        plan, listed = rest or (b"", b"")
        count, over = divmod(len(listed), _ENTRY.size)
        if rest and (over or not terms.threshold <= count <= terms.clients):
            told = f"a cohort has {terms.threshold} to {terms.clients} members"
            raise ProtocolError(f"{told}, the server names {len(listed) / _ENTRY.size:g}")
        attempt = cls(
            terms=terms,
            round=int.from_bytes(numbers[:8], "little"),
            attempt=int.from_bytes(numbers[8:], "little"),
            seed=seed,
            content=content,
            entries=tuple(starmap(Entry, _ENTRY.iter_unpack(listed))),
        )
        if rest and attempt.plan.encoded != plan:
            raise ProtocolError(f"the server's plan for {count} members is another: {plan!r:.200}")
        vars(attempt)["encoded"] = data  # every part was compared, or has its exact length
        return attempt


def check_terms(offered: bytes, terms: CircleTerms) -> None:
    """Refuse terms that are not these very terms."""
    if offered != terms.encoded:
        told = f"the server's terms are {offered!r:.300}, this client's {terms.encoded!r:.300}"
        raise ProtocolError(f"{told}; nothing was sent")


def reply_statement(kind: Kind, asked: bytes, entry: bytes, vector: bytes = b"") -> bytes:
    """The bytes of a reply that an identity signs; ``asked`` are the 32 bytes that it answers."""
    hashed = hashlib.sha256(vector).digest()
    return b"jopeq circle reply\0" + bytes((kind,)) + asked + entry + hashed


def recovery_terms(attempt: Attempt, bound: bytes, **name: bytes) -> Terms:
    """The terms of "recover" within an attempt; ``round`` is fresh unless it is given."""
    circle, plan = attempt.terms, attempt.plan
    return Terms(
        spec=f"{circle.spec} in circle {bound.hex()}, attempt {attempt.offered.hex()}",
        bits=plan.bits,
        length=plan.length,
        clients=circle.clients,
        threshold=circle.threshold,
        colluding=circle.colluding,
        is_signed=not circle.unsigned,
        seed=attempt.seed,
        **name,
    )
