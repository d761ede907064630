"""A member of a circle: one key, one answer, and a line in a file for each."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jopeq.circle import crypto
from jopeq.circle.circle import (
    DIGEST_BYTES,
    Attempt,
    CircleTerms,
    Entry,
    Kind,
    check_terms,
    fingerprint,
    kind_of,
    pack_message,
    pair_key,
    read_message,
    reply_statement,
)
from jopeq.circle.circle_recover import RecoverMember
from jopeq.circle.masks import add_mask, pack, to_ring
from jopeq.errors import ProtocolError
from jopeq.files import alone, atomic, boot_id, check_own_file, own_folder
from jopeq.random.streams import fresh_seed

Train = Callable[[Attempt], Any]
Encode = Callable[[Attempt, Any], Any]


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
        A folder that lasts, of this client alone: the audit file and the serials.
    identity : Ed25519PrivateKey
        The key that signs.
    trusted : Collection[bytes] (default: ())
        Public keys (32 bytes) of all members, this one included; none for unsigned terms.
    charge : Callable[[Attempt], Optional[Mapping]]
        Counts one share in the ledger and syncs it, or raises; called under the client's lock. What
        it returns goes into the audit file, such as the ε spent.
    count : Callable[[], int]
        Shares that the ledger counts so far.
    keys : Optional[path] (default: None)
        A folder for the unused key, best one that does not survive a reboot; ``home`` if None. A
        key of an earlier boot is not used (on Linux; elsewhere serials alone show a restored disk).
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
        keys: str | os.PathLike[str] | None = None,
    ) -> None:
        self.terms, self._identity, self._trusted = terms, identity, frozenset(trusted)
        self._me = identity.public_key().public_bytes_raw()
        self._bound = terms.bind(self._trusted)
        if trusted and self._me not in self._trusted:
            raise ValueError("trusted must list the identity of this client too")
        self._charge, self._count = charge, count
        home = own_folder(Path(home))
        runtime = home if keys is None else own_folder(Path(keys))
        name = hashlib.sha256(self._bound + self._me).hexdigest()[:16]
        self.audit = home / "audit.jsonl"
        self._lock, self._seen = home / ".circle.lock", home / "serials.json"
        self._state = runtime / f".{name}.key"
        self._recover = None
        if terms.dropouts == "recover":
            self._recover = RecoverMember(
                terms,
                self._bound,
                runtime / f".{name}.round",
                self._lock,
                identity=identity,
                trusted=self._trusted,
                join=self._serial,
                check=self._check_serials,
                charge=self._pay,
            )

    @property
    def fingerprint(self) -> str:
        """The trusted list in 32 digits: members compare it by telephone."""
        return fingerprint(self._trusted)

    def answer(
        self, message: bytes, *, content: bytes | None = None, train: Train, encode: Encode
    ) -> bytes:
        """The reply to any message of the circle: ``accept``, and where a share is due, ``finish``.

        ``train(attempt)`` samples afresh and computes what stays at home. ``encode(attempt,
        trained)`` draws fresh noise for ``attempt.honest`` shares and returns
        ``attempt.plan.length`` integers. Neither may fail because of the data: a missing reply is
        seen.
        """
        found = self.accept(message, content=content)
        if isinstance(found, bytes):
            return found
        return found.finish(encode(found.attempt, train(found.attempt)))

    def accept(self, message: bytes, *, content: bytes | None = None) -> bytes | Due:
        """The reply to a message that needs no share; else the share that is due, and paid for.

        ``content`` is the ``digest`` of what came with the message; only messages that train need
        it (``CircleServer.is_training``). All refusals are made here.
        """
        kind = kind_of(message)
        if kind == Kind.ASK:
            offered, nonce = read_message(message, Kind.ASK, 2)
            check_terms(offered, self.terms)
            with alone(self._lock):
                entry = self._entry().to_bytes()
            return self._sign(Kind.KEYS, nonce, entry)
        if self._recover is not None:
            found = self._recover.accept(
                message, lambda attempt: self._check_numbers(attempt, content)
            )
            return found if isinstance(found, bytes) else Due(*found)
        attempt = Attempt.from_bytes(message, self.terms)
        transcript = attempt.transcript(self._bound)
        with alone(self._lock):
            private, serial = self._load()
            at = self._check(attempt, private)
            self._check_numbers(attempt, content)
            self._save(b"", serial)
            self._pay(attempt, transcript, {one.identity: one.serial for one in attempt.entries})
            following = self._entry().to_bytes()

        def finish(share: Any) -> bytes:
            total = to_ring(share, attempt.plan.bits)
            if len(total) != attempt.plan.length:
                raise ValueError(
                    f"encode must return {attempt.plan.length} integers, got {len(total)}"
                )
            for other, entry in enumerate(attempt.entries):
                if other != at:
                    key = pair_key(private, entry.key, transcript, at, other)
                    add_mask(total, key, 1 if at < other else -1)
            return self._sign(Kind.REPLY, transcript, following, pack(total, attempt.plan.bits))

        return Due(attempt, finish)

    def _sign(self, kind: Kind, asked: bytes, entry: bytes, vector: bytes = b"") -> bytes:
        if len(asked) != DIGEST_BYTES:
            raise ProtocolError(f"a nonce has {DIGEST_BYTES} bytes, got {len(asked)}")
        signature = self._identity.sign(reply_statement(kind, asked, entry, vector))
        return pack_message(kind, asked, entry, signature, vector)

    # Refusals

    def _check_numbers(self, attempt: Attempt, content: bytes | None) -> None:
        if not 1 <= attempt.attempt <= self.terms.attempts:
            raise ProtocolError(
                f"attempts are 1 to {self.terms.attempts}, the server's is {attempt.attempt}"
            )
        if content is None or len(content) != DIGEST_BYTES or attempt.content != content:
            raise ProtocolError(
                "the message names another content than came with it; nothing was sent"
            )

    def _check(self, attempt: Attempt, private: bytes) -> int:
        """The client's position in the cohort; ``ProtocolError`` unless all is as agreed."""
        entries = attempt.entries
        identities = [entry.identity for entry in entries]
        if identities != sorted(set(identities)):
            raise ProtocolError("the identities of a cohort must rise")
        if len({entry.key for entry in entries}) != len(entries):
            raise ProtocolError("two keys of the cohort are the same")
        if self._me not in identities:
            raise ProtocolError("the cohort does not name this client")
        at = identities.index(self._me)
        if not private or entries[at].key != crypto.public(private):
            raise ProtocolError(
                "the cohort has another key for this client than its unused one: the attempt was "
                "repeated, or this client has restarted; ask for its key"
            )
        for entry in entries:
            entry.check(self._bound, self._trusted)
        self._check_serials({entry.identity: entry.serial for entry in entries})
        return at

    def _check_serials(self, serials: Mapping[bytes, int]) -> None:
        """Refuse members whose ledger counts less than it did, in whatever circle that was."""
        seen = self._serials()
        for identity, serial in serials.items():
            if serial < seen.get(identity.hex(), 0):
                raise ProtocolError(
                    f"the serial {serial} of identity {identity.hex()} is below one that was seen: "
                    "its ledger was restored from a copy, or is new and needs a new identity"
                )

    # Files; all under the lock

    def _pay(self, attempt: Attempt, transcript: bytes, members: Mapping[bytes, int]) -> None:
        """Charge the ledger, then write the share down and remember the serials of its cohort."""
        self._serial()
        told = self._charge(attempt) or {}
        serials = {identity.hex(): serial for identity, serial in members.items()}
        line = {
            "previous": _last_hash(self.audit),
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
        if self.terms.unsigned:
            serials.clear()  # of identities that anybody may invent
        serials[self._me.hex()] = self._count()
        seen = self._serials()
        known = {one: max(serial, seen.get(one, 0)) for one, serial in serials.items()}
        self._write(self._seen, json.dumps({**seen, **known}).encode())

    def _entry(self) -> Entry:
        """The client's unused key, a new one if there is none, with its signature."""
        private, _ = self._load()
        if not private:
            private = fresh_seed()
            self._save(private, self._serial())
        entry = Entry(self._me, crypto.public(private), self._serial())
        signature = self._identity.sign(entry.statement(self._bound))
        return Entry(entry.identity, entry.key, entry.serial, signature)

    def _load(self) -> tuple[bytes, int]:
        """The unused private key, empty if there is none, and the serial it was made for."""
        state: dict[str, Any] = {"key": "", "serial": 0, "boot": ""}
        if self._state.exists():
            check_own_file(self._state, is_secret=True)
            state = json.loads(self._state.read_bytes())
        self._serial(state["serial"])
        is_same_boot = state["boot"] == boot_id()
        return (bytes.fromhex(state["key"]) if is_same_boot else b""), state["serial"]

    def _serial(self, least: int = 0) -> int:
        """Shares that the ledger counts; refused where this client has sent more in any circle."""
        sent = (
            [line["serial"] for line in read_audit(self.audit)[-1:]] if self.audit.exists() else []
        )
        known, found = max(least, self._serials().get(self._me.hex(), 0), *sent), self._count()
        if found < known:
            raise ProtocolError(
                f"the ledger counts {found} shares and this client has sent {known}: the ledger "
                "was restored from a copy; count the missing shares before anything else"
            )
        return found

    def _save(self, private: bytes, serial: int) -> None:
        state = {"key": private.hex(), "serial": serial, "boot": boot_id()}
        self._write(self._state, json.dumps(state).encode())

    def _serials(self) -> dict[str, int]:
        if not self._seen.exists():
            return {}
        check_own_file(self._seen)
        return dict(json.loads(self._seen.read_bytes()))

    def _write(self, path: Path, data: bytes) -> None:
        with atomic(path, mode=0o600) as file:
            file.write(data)

    def __repr__(self) -> str:
        return f"CircleClient(circle={self.terms.circle!r}, identity={self._me.hex()}, <secrets>)"


def read_audit(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The shares in an audit file; ``ProtocolError`` where its chain is broken."""
    lines, previous = [], bytes(32).hex()
    for number, line in enumerate(Path(path).read_bytes().splitlines(keepends=True), 1):
        try:
            found = json.loads(line)
        except ValueError:  # cut off by a power cut: the next line's hash covers it
            found = None
        if found is not None:
            if found["previous"] != previous:
                raise ProtocolError(f"{path}, line {number}: the line before it was changed")
            lines.append(found)
        previous = hashlib.sha256(line.rstrip(b"\n")).hexdigest()
    return lines


def _last_hash(path: Path) -> str:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return hashlib.sha256(lines[-1]).hexdigest() if lines else bytes(32).hex()
