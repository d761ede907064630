"""A member of a circle: one key, one answer, and a line in a file for each."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jopeq.circle import crypto, messages
from jopeq.circle.circle import (
    DIGEST_BYTES,
    Attempt,
    CircleTerms,
    Entry,
    Kind,
    check_terms,
    kind_of,
    pack_message,
    read_message,
    recovery_terms,
    reply_statement,
)
from jopeq.circle.client import Client
from jopeq.circle.crypto import add_mask, pack, to_ring
from jopeq.errors import ProtocolError
from jopeq.files import alone, atomic, boot_id, check_own_file, own_folder
from jopeq.random.streams import fresh_seed


class Due(NamedTuple):
    """A share that was agreed to and paid for: ``finish`` masks and signs its integers."""

    attempt: Attempt
    finish: Callable[[Any], bytes]


class CircleClient:
    """Answers the messages of a ``CircleServer``; refuses with ``ProtocolError``.

    Before anything is computed, under one lock and synced to disk, the client erases its key,
    charges the ledger and writes a line into ``audit.jsonl``, chained to the line before by a hash.
    No message gets a second answer: the key of the first is gone. Serials of all members are kept;
    one that falls shows a ledger that was restored from a copy, or an entry that has served.

    Parameters
    ----------
    terms : CircleTerms
        The client's own: it refuses any other.
    home : path
        A folder that lasts, of this client alone: the audit file, the serials, and the unused key.
        A key of an earlier boot is not used (on Linux; elsewhere serials show a restored disk).
    identity, trusted
        The key that signs, and the public keys (32 bytes) of all members, this one included; none
        for unsigned terms.
    charge : Callable[[Attempt], Optional[Mapping]]
        Counts one share in the ledger and syncs it, or raises; called under the client's lock. What
        it returns goes into the audit file, such as the ε spent.
    count : Callable[[], int]
        Shares that the ledger counts so far.
    """

    def __init__(
        self,
        terms: CircleTerms,
        home: str | os.PathLike[str],
        *,
        identity: Ed25519PrivateKey,
        trusted: Collection[bytes] = (),
        charge: Callable[[Attempt], Mapping[str, Any] | None],
        count: Callable[[], int],
    ) -> None:
        self.terms, self._identity, self._trusted = terms, identity, frozenset(trusted)
        self._me = identity.public_key().public_bytes_raw()
        self._bound = terms.bind(self._trusted)
        if trusted and self._me not in self._trusted:
            raise ValueError("trusted must list the identity of this client too")
        self._charge, self._count = charge, count
        home = own_folder(Path(home))
        name = hashlib.sha256(self._bound + self._me).hexdigest()[:16]
        self.audit = home / "audit.jsonl"
        self._lock, self._serials = home / ".circle.lock", home / "serials.json"
        self._key = home / f".{name}.key"
        # read by ``_opened``; ``_recovered`` is the state of a ``Client`` amid a round
        self._private, self._recovered = b"", ""
        self._seen, self._chain = dict[str, int](), ""

    def accept(self, message: bytes, *, content: bytes | None = None) -> bytes | Due:
        """The reply to a message that needs no share; else the share that is due, and paid for.

        ``content`` is the ``digest`` of what came with the message; only messages that train need
        it (``CircleServer.is_training``). All refusals are made here: what computes the share must
        not fail because of the data, as a missing reply is seen.
        """
        if kind_of(message) == Kind.ASK:
            offered, nonce = read_message(message, Kind.ASK, 2)
            check_terms(offered, self.terms)
            with self._opened():
                entry = self._next_entry()
            return self._sign(Kind.KEYS, nonce, entry)
        if self.terms.dropouts == "recover":
            return self._recover(message, content)
        attempt = Attempt.from_bytes(message, self.terms)
        transcript = attempt.transcript(self._bound)
        with self._opened():
            private, (at, serials) = self._private, self._find(attempt)
            self._check(attempt, content, serials)
            self._private = b""
            self._keep()
            self._pay(attempt, transcript, serials)
            following = self._next_entry()

        def finish(share: Any) -> bytes:
            total = to_ring(share, attempt.plan.bits)
            if len(total) != attempt.plan.length:
                raise ValueError(f"a share has {attempt.plan.length} integers, got {len(total)}")
            for other, entry in enumerate(attempt.entries):
                if other != at:
                    key = crypto.mask_key(private, entry.key, transcript, at, other, crypto.CIRCLE)
                    add_mask(total, key, 1 if at < other else -1)
            return self._sign(Kind.REPLY, transcript, following, pack(total, attempt.plan.bits))

        return Due(attempt, finish)

    def _sign(self, kind: Kind, asked: bytes, entry: bytes, vector: bytes = b"") -> bytes:
        if len(asked) != DIGEST_BYTES:
            raise ProtocolError(f"a nonce has {DIGEST_BYTES} bytes, got {len(asked)}")
        signature = self._identity.sign(reply_statement(kind, asked, entry, vector))
        return pack_message(kind, asked, entry, signature, vector)

    # Refusals

    def _find(self, attempt: Attempt) -> tuple[int, dict[str, int]]:
        """The client's position in the cohort, and the serials of all.

        ``ProtocolError`` unless all entries are good.
        """
        entries, keys, last = attempt.entries, set[bytes](), b""
        serials, at = dict[str, int](), -1
        for place, entry in enumerate(entries):
            if entry.identity <= last:
                raise ProtocolError("the identities of a cohort must rise")
            if entry.key in keys:
                raise ProtocolError("two keys of the cohort are the same")
            if entry.identity == self._me:
                at = place
            last, serials[entry.identity.hex()] = entry.identity, entry.serial
            keys.add(entry.key)
        if at < 0:
            raise ProtocolError("the cohort does not name this client")
        if not self._private or entries[at].key != crypto.public(self._private):
            raise ProtocolError(
                "the cohort has another key than this client's unused one: an attempt was repeated "
                "or this client has restarted; ask for its key"
            )
        for entry in entries:
            entry.check(self._bound, self._trusted)
        return at, serials

    def _check(self, attempt: Attempt, content: bytes | None, serials: Mapping[str, int]) -> None:
        """Refuse other contents, and members whose ledger counts less than in any circle before."""
        for identity, serial in serials.items():
            if serial < self._seen.get(identity, 0):
                told = f"the serial {serial} of identity {identity} is below one that was seen"
                raise ProtocolError(f"{told}: its ledger was restored, or needs a new identity")
        if not 1 <= attempt.attempt <= self.terms.attempts:
            raise ProtocolError(
                f"attempts are 1 to {self.terms.attempts}, the server's is {attempt.attempt}"
            )
        if content is None or len(content) != DIGEST_BYTES or attempt.content != content:
            raise ProtocolError(
                "the message names another content than came with it; nothing was sent"
            )

    # Files, under the lock

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Lock and read the files; refuse a ledger that counts less than this client has sent."""
        with alone(self._lock):
            state: dict[str, Any] = {"key": "", "round": "", "serial": 0, "boot": boot_id()}
            if self._key.exists():
                check_own_file(self._key, is_secret=True)
                state = json.loads(self._key.read_bytes())
            is_fresh = state["boot"] == boot_id()  # else it may have served before a restart
            self._private = bytes.fromhex(state["key"]) if is_fresh else b""
            self._recovered = state["round"] if is_fresh else ""
            self._seen = {}
            if self._serials.exists():
                check_own_file(self._serials)
                self._seen = json.loads(self._serials.read_bytes())
            shares, self._chain = _read_chain(self.audit)
            sent = max(state["serial"], self._seen.get(self._me.hex(), 0))
            if shares:
                sent = max(sent, shares[-1]["serial"])
            if (found := self._count()) < sent:
                told = f"the ledger counts {found} shares and this client has sent {sent}"
                raise ProtocolError(f"{told}: it was restored; count the missing ones first")
            yield

    def _pay(self, attempt: Attempt, transcript: bytes, serials: Mapping[str, int]) -> None:
        """Charge the ledger, then write the share down and remember the serials of its cohort."""
        told = self._charge(attempt) or {}
        line = {
            "previous": self._chain,
            "circle": self.terms.circle,
            "round": attempt.round,
            "attempt": attempt.attempt,
            "serial": self._count(),
            "transcript": transcript.hex(),
            "cohort": sorted(serials),
            **told,
        }
        with open(self.audit, "ab", opener=partial(os.open, mode=0o600)) as file:
            if file.tell() and not self.audit.read_bytes().endswith(b"\n"):
                file.write(b"\n")  # after a line that a power cut left unfinished
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        known = {} if self.terms.unsigned else serials  # else of identities that anybody invents
        for one, serial in {**known, self._me.hex(): self._count()}.items():
            self._seen[one] = max(serial, self._seen.get(one, 0))
        with atomic(self._serials, mode=0o600) as file:
            file.write(json.dumps(self._seen).encode())

    def _next_entry(self) -> bytes:
        """The client's unused key, a new one if there is none, with its signature."""
        if not self._private:
            self._private = fresh_seed()
            self._keep()
        entry = Entry(self._me, crypto.public(self._private), self._count())
        signature = self._identity.sign(entry.statement(self._bound))
        return replace(entry, signature=signature).to_bytes()

    def _keep(self) -> None:
        """Write down the unused key, which serves one answer, and the state of a recovered sum."""
        state: dict[str, Any] = {"key": self._private.hex(), "round": self._recovered}
        state |= {"serial": self._count(), "boot": boot_id()}
        with atomic(self._key, mode=0o600) as file:
            file.write(json.dumps(state).encode())

    # The protocol of ``Server`` and ``Client``: a message PHASE holds the client's number, the
    # attempt and one of its messages. Hashes of attempt and circle are in its terms, and so in keys

    def _recover(self, message: bytes, content: bytes | None) -> bytes | Due:
        number, offered, inner = read_message(message, Kind.PHASE, 3)
        attempt = Attempt.from_bytes(offered, self.terms)
        if len(number) != 8 or attempt.entries:
            raise ProtocolError("PHASE names a number of 8 bytes and an attempt without a cohort")
        kind = messages.kind_of(inner)
        terms = recovery_terms(attempt, self._bound, round=messages.round_of(inner))
        with self._opened():
            if kind == messages.Kind.INBOX:
                self._check(attempt, content, {})
                return self._receive(attempt, terms, inner)
            if kind == messages.Kind.TERMS:
                me, serial = int.from_bytes(number, "little"), self._count()
                client = Client(terms, me, serial=serial, **self._options)
                reply = client.keys(inner)
            else:
                client = self._load_round(terms)
                steps = {
                    messages.Kind.ROSTER: client.shares,
                    messages.Kind.SURVIVORS: client.open if self.terms.unsigned else client.sign,
                    messages.Kind.SIGNATURES: client.open,
                }
                if kind not in steps:
                    raise ProtocolError(f"a client answers no message of kind {kind}")
                reply = steps[messages.Kind(kind)](inner)
                if kind == messages.Kind.ROSTER:
                    self._check(attempt, attempt.content, client.members)
            self._save_round(client)
        return pack_message(Kind.ANSWER, reply)

    def _receive(self, attempt: Attempt, terms: messages.Terms, inbox: bytes) -> bytes | Due:
        """Pay for the share that is due; a complaint costs nothing."""
        client = self._load_round(terms)
        try:
            client.receive(inbox)
        except ProtocolError as error:
            if not error.clients:
                raise
            return pack_message(Kind.ANSWER, client.complain(error.clients))
        self._save_round(client)  # whoever repeats the message is refused from here on
        kept = self._key.read_bytes()
        self._pay(attempt, client.transcript, client.members)

        def finish(share: Any) -> bytes:
            with alone(self._lock):
                if self._key.read_bytes() != kept:
                    raise ProtocolError("another attempt has begun while this client trained")
                reply = client.mask(share)
                self._save_round(client)
            return pack_message(Kind.ANSWER, reply)

        return Due(attempt, finish)

    @property
    def _options(self) -> dict[str, Any]:
        return {} if self.terms.unsigned else {"identity": self._identity, "trusted": self._trusted}

    def _load_round(self, terms: messages.Terms) -> Client:
        if not self._recovered:
            told = (
                "this client takes part in no attempt: it has not begun here, or before a restart"
            )
            raise ProtocolError(told)
        return Client.from_bytes(self._recovered.encode(), terms, **self._options)

    def _save_round(self, client: Client) -> None:
        self._recovered = "" if client.phase == "done" else client.to_bytes().decode()
        self._keep()

    def __repr__(self) -> str:
        return f"CircleClient(circle={self.terms.circle!r}, identity={self._me.hex()}, <secrets>)"


def joins(message: bytes) -> bool:
    """True if a message only asks who takes part: its answer costs nothing."""
    if kind_of(message) != Kind.PHASE:
        return kind_of(message) == Kind.ASK
    return messages.kind_of(read_message(message, Kind.PHASE, 3)[2]) == messages.Kind.TERMS


def read_audit(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The shares in an audit file; ``ProtocolError`` where its chain is broken."""
    return _read_chain(Path(path))[0]


def _read_chain(path: Path) -> tuple[list[dict[str, Any]], str]:
    """The shares, and the hash of the last line, which the next one will name."""
    shares, previous = [], bytes(32).hex()
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            found = json.loads(line)
        except ValueError:  # cut off by a power cut: the next line's hash covers it
            found = None
        if found is not None:
            if found["previous"] != previous:
                raise ProtocolError(f"{path}, line {number}: the line before it was changed")
            shares.append(found)
        previous = hashlib.sha256(line).hexdigest()
    return shares, previous
