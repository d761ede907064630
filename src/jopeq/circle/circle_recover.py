"""The protocol of ``Server`` and ``Client`` inside a circle: ``dropouts="recover"``.

A message PHASE holds the client's number, the attempt and one message of that protocol. Hashes of
the attempt and of the circle are part of its terms, and so of every key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jopeq.circle import messages
from jopeq.circle.circle import Attempt, CircleTerms, Kind, kind_of, pack_message, read_message
from jopeq.circle.client import Client
from jopeq.circle.masks import Ring
from jopeq.circle.messages import Terms
from jopeq.circle.server import Replies, Server
from jopeq.errors import ProtocolError
from jopeq.files import alone, atomic, boot_id, check_own_file


def _round_terms(attempt: Attempt, bound: bytes, **name: bytes) -> Terms:
    """The terms of the inner protocol; ``round`` is fresh unless it is given."""
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


def joins(message: bytes) -> bool:
    """Whether a message only asks who takes part: its answer costs nothing."""
    if kind_of(message) != Kind.PHASE:
        return kind_of(message) == Kind.ASK
    return messages.kind_of(read_message(message, Kind.PHASE, 3)[2]) == messages.Kind.TERMS


class RecoverMember:
    """The client's side; the callables are called under the lock.

    ``join()`` is the serial of a client whose ledger was not restored, ``check(serials)`` refuses
    members whose ledger was, and ``charge(attempt, transcript, serials)`` pays.
    """

    def __init__(
        self,
        terms: CircleTerms,
        bound: bytes,
        file: Path,
        lock: Path,
        *,
        identity: Ed25519PrivateKey,
        trusted: Collection[bytes],
        join: Callable[[], int],
        check: Callable[[Mapping[bytes, int]], None],
        charge: Callable[[Attempt, bytes, Mapping[bytes, int]], None],
    ) -> None:
        self._terms, self._bound, self._file, self._lock = terms, bound, file, lock
        self._options: dict[str, Any] = {"identity": identity, "trusted": trusted}
        if terms.unsigned:
            self._options = {"unsigned": True}
        self._join, self._check, self._charge = join, check, charge

    def accept(
        self, message: bytes, check: Callable[[Attempt], None]
    ) -> bytes | tuple[Attempt, Callable[[Any], bytes]]:
        """The reply to one message, or what is due; ``check`` sees an attempt before its charge."""
        number, offered, inner = read_message(message, Kind.PHASE, 3)
        attempt = Attempt.from_bytes(offered, self._terms)
        if len(number) != 8 or attempt.entries:
            raise ProtocolError("PHASE names a number of 8 bytes and an attempt without a cohort")
        kind = messages.kind_of(inner)
        if kind == messages.Kind.INBOX:
            check(attempt)
        with alone(self._lock):
            if kind == messages.Kind.TERMS:
                mine = _round_terms(attempt, self._bound, round=Terms.from_bytes(inner).round)
                me, serial = int.from_bytes(number, "little"), self._join()
                client = Client(mine, me, serial=serial, **self._options)
                reply = client.keys(inner)
            else:
                client = self._load(attempt)
                if kind == messages.Kind.INBOX:
                    return self._receive(attempt, client, inner)
                steps = {
                    messages.Kind.ROSTER: client.shares,
                    messages.Kind.SURVIVORS: client.open if self._terms.unsigned else client.sign,
                    messages.Kind.SIGNATURES: client.open,
                }
                if kind not in steps:
                    raise ProtocolError(f"a client answers no message of kind {kind}")
                reply = steps[messages.Kind(kind)](inner)
                if kind == messages.Kind.ROSTER:
                    self._check(client.members)
            self._save(client)
        return pack_message(Kind.ANSWER, reply)

    def _receive(
        self, attempt: Attempt, client: Client, inbox: bytes
    ) -> bytes | tuple[Attempt, Callable[[Any], bytes]]:
        """Pay for the share that is due, under the lock; a complaint costs nothing."""
        try:
            client.receive(inbox)
        except ProtocolError as error:
            if not error.clients:
                raise
            return pack_message(Kind.ANSWER, client.complain(error.clients))
        self._save(client)  # whoever repeats the message is refused from here on
        self._charge(attempt, client.transcript, client.members)

        def finish(share: Any) -> bytes:
            with alone(self._lock):
                if self._load(attempt).to_bytes() != client.to_bytes():
                    raise ProtocolError("another attempt has begun while this client trained")
                reply = client.mask(share)
                self._save(client)
            return pack_message(Kind.ANSWER, reply)

        return attempt, finish

    def _load(self, attempt: Attempt) -> Client:
        if not self._file.exists():
            raise ProtocolError("this client takes part in no attempt: it has not begun here")
        check_own_file(self._file, is_secret=True)
        boot, state = self._file.read_bytes().split(b"\n", 1)
        if boot.decode() != boot_id():
            raise ProtocolError("this client was restarted in the middle of the attempt")
        client = Client.from_bytes(state, **self._options)
        if client.terms.spec != _round_terms(attempt, self._bound).spec:
            raise ProtocolError("the message belongs to another attempt than this client's")
        return client

    def _save(self, client: Client) -> None:
        if client.phase == "done":
            self._file.unlink()
            return
        with atomic(self._file, mode=0o600) as file:
            file.write(boot_id().encode() + b"\n" + client.to_bytes())


class RecoverRound:
    """The server's side of one attempt."""

    def __init__(
        self, attempt: Attempt, bound: bytes, trusted: Collection[bytes], clients: Iterable[int]
    ) -> None:
        unsigned = attempt.terms.unsigned
        server = Server(_round_terms(attempt, bound), trusted=trusted, unsigned=unsigned)
        self.server, self._attempt = server, attempt
        signed = [] if unsigned else [server.signatures]
        self._steps: list[Callable[[Replies], Any]]
        self._steps = [server.roster, server.inboxes, server.survivors, *signed, server.total]
        self.total: Ring | None = None
        self.messages = self._wrap(dict.fromkeys(clients, server.offer))

    @property
    def is_training(self) -> bool:
        """Whether the clients have their inboxes."""
        return self.server.survivors in self._steps[:1]

    def step(self, replies: Replies) -> dict[int, bytes]:
        """The next messages; none when ``total`` is there."""
        inner = []
        for number, data in replies:
            try:
                inner.append((number, read_message(data, Kind.ANSWER, 1)[0]))
            except ProtocolError:
                inner.append((number, b""))  # which the server refuses
        result = self._steps.pop(0)(inner)
        if self._steps:
            return self._wrap(result)
        self.total = result
        return {}

    def _wrap(self, sent: dict[int, bytes]) -> dict[int, bytes]:
        offered = self._attempt.to_bytes()
        return {
            number: pack_message(Kind.PHASE, number.to_bytes(8, "little"), offered, inner)
            for number, inner in sent.items()
        }
