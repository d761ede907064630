"""The client's side of a round: bytes in, bytes out, and a state that fits into a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jopeq.circle import crypto
from jopeq.circle.crypto import add_mask, pack, to_ring
from jopeq.circle.messages import SIGNATURE_BYTES, Entry, Kind, Reader, Roster, Terms, to_bits
from jopeq.circle.shamir import SHARE_BYTES, split
from jopeq.errors import ProtocolError
from jopeq.random.streams import fresh_seed


class Client:
    """One client in one round.

    Call ``keys``, ``shares``, ``receive``, ``mask``, with signed terms ``sign``, and ``open``, in
    this order, with the server's messages. A refused message raises ``ProtocolError`` and changes
    nothing. The client sends one masked vector and opens once, if at least ``terms.threshold``
    clients survived: of every other client the share of its self mask or that of its pairwise key.

    ``me`` is the number by which the transport knows the client, ``serial`` the shares that its
    ledger has paid for. Signed terms need ``identity``, which signs, and all keys (``trusted``).
    """

    def __init__(
        self,
        terms: Terms,
        me: int,
        *,
        identity: Ed25519PrivateKey | None = None,
        trusted: Collection[bytes] = (),
        serial: int = 0,
    ) -> None:
        if terms.is_signed != (identity is not None) or terms.is_signed != bool(trusted):
            raise ValueError("signed terms need identity and trusted, other terms take neither")
        if isinstance(me, bool) or not isinstance(me, int) or not 0 <= me < 1 << 64:
            raise ValueError(f"me must be a whole number, 0 to 2⁶⁴ − 1, got {me!r}")
        self.terms, self.me, self._serial = terms, me, serial
        self._identity, self._trusted = identity, frozenset(trusted)
        self.phase = "keys"  # the method that comes next; "done" after the last
        self._mask_key = b""  # private; its shares open the masks of a client that disappears
        self._share_key = b""  # private; opens the shares that others sealed for this client
        self._seed = b""  # of the self mask
        self._roster: Roster | None = None
        self._shares: dict[int, bytes] = {}  # of both secrets of each client that this one holds
        self._senders: list[bool] = []  # whose shares came, as the server told it
        self._confirmations: dict[int, bytes] = {}  # of each holder: to it, then from it
        self._list: list[bool] = []  # signed terms: the survivors that this client signed

    def keys(self, offer: bytes) -> bytes:
        self._expect("keys")
        self.terms.check(offer)
        self._mask_key, self._share_key = fresh_seed(), fresh_seed()
        entry = self._entry()
        if self._identity is not None:
            entry = replace(entry, signature=self._identity.sign(entry.statement(self.terms)))
        self.phase = "shares"
        return self.terms.message(Kind.KEYS, entry.keys())

    def shares(self, roster: bytes) -> bytes:
        """Answer the roster with sealed shares of this client's two secrets."""
        self._expect("shares")
        read = Roster.from_bytes(roster, self.terms)
        at = read.position(self.me)
        if replace(read.entries[at], signature=b"") != self._entry():
            raise ProtocolError("the roster has other keys for this client than it sent")
        for entry in read.entries if self.terms.is_signed else ():
            if entry.identity not in self._trusted:
                raise ProtocolError(f"client {entry.id} of the roster is not trusted")
            if not crypto.is_signed(entry.identity, entry.signature, entry.statement(self.terms)):
                raise ProtocolError(f"the keys of client {entry.id} are not signed by it")
        seed, holders = fresh_seed(), read.graph.holders(at)
        points = [holder + 1 for holder in holders]
        halves = [split(secret, read.graph.opening, points) for secret in (seed, self._mask_key)]
        both = {holder: halves[0][holder + 1] + halves[1][holder + 1] for holder in holders}
        own = both.pop(at)
        sealed = [crypto.seal(both[to], *self._between(read, to), at, to) for to in both]
        self._seed, self._roster, self._shares, self.phase = seed, read, {at: own}, "receive"
        return self.terms.message(Kind.SHARES, crypto.commitment(seed, read.transcript), *sealed)

    def receive(self, inbox: bytes) -> None:
        """Take the shares of the others. The vector will be masked with these clients.

        Where shares do not open, the error's ``clients`` sealed them: ``complain`` of them.
        """
        self._expect("receive")
        roster, at = self._place()
        reader = Reader(inbox, Kind.INBOX, self.terms.round)
        senders = reader.bits(len(roster.entries))
        others = [o for o in roster.graph.holders(at) if o != at and senders[o]]
        boxes = {other: reader.take(2 * SHARE_BYTES + crypto.TAG_BYTES) for other in others}
        reader.end()
        if not senders[at]:
            raise ProtocolError("the server says that the shares of this client did not come")
        self.terms.check_count(sum(senders), self.terms.threshold)
        self.terms.check_count(len(others) + 1, roster.graph.opening)
        bound, shares, closed = roster.bind(senders), dict(self._shares), []
        confirmations = {}
        for other, sealed in boxes.items():
            try:
                shares[other] = crypto.unseal(sealed, *self._between(roster, other), other, at)
            except ProtocolError as error:
                closed.append((roster.entries[other].id, error))
                continue
            theirs = roster.entries[other].share_key
            confirmations[other] = b"".join(
                crypto.confirmation(self._share_key, theirs, bound, *way)
                for way in ((at, other), (other, at))
            )
        if closed:
            clients = [client for client, _ in closed]
            raise ProtocolError(f"of clients {clients}: {closed[0][1]}", clients=clients)
        self._share_key, self._shares, self.phase = b"", shares, "masked"
        self._senders, self._confirmations = senders, confirmations

    def complain(self, clients: Iterable[int]) -> bytes:
        """Answer an inbox that was refused by naming the clients whose shares did not open."""
        self._expect("receive")
        (roster, _), named = self._place(), set(clients)
        return self.terms.message(Kind.COMPLAINT, to_bits(e.id in named for e in roster.entries))

    def mask(self, vector: Any) -> bytes:
        """The vector of integers below 2^bits, masked: to the server, uniform noise."""
        self._expect("masked")
        roster, at = self._place()
        total = to_ring(vector, self.terms.bits)
        if len(total) != self.terms.length:
            raise ValueError(f"the vector has {len(total)} entries, the terms {self.terms.length}")
        bound = roster.bind(self._senders)
        add_mask(total, crypto.self_mask_key(self._seed, bound), 1)
        for other in self._shares:
            if other != at:
                theirs = roster.entries[other].mask_key
                key = crypto.mask_key(self._mask_key, theirs, bound, at, other)
                add_mask(total, key, 1 if at < other else -1)
        self._mask_key, self._seed = b"", b""
        self.phase = "sign" if self.terms.is_signed else "open"
        told = [] if self.terms.is_signed else sorted(self._confirmations.items())
        confirmations = (both[: crypto.CONFIRMATION_BYTES] for _, both in told)
        return self.terms.message(Kind.MASKED, *confirmations, pack(total, self.terms.bits))

    def sign(self, survivors: bytes) -> bytes:
        """With signed terms: confirm the one list of survivors that this client will open."""
        self._expect("sign")
        flags, (roster, _) = self._survivors(survivors), self._place()
        if self._identity is None:
            raise ValueError("the terms are signed: restore this client with its identity")
        self._list, self.phase = flags, "open"
        statement = roster.statement(self._senders, flags)
        return self.terms.message(Kind.SIGNATURE, self._identity.sign(statement))

    def open(self, last: bytes) -> bytes:
        """Open one share of every client: its self mask's if it survived, its key's if not.

        Without signatures, a survivor that does not confirm that it was told the same senders
        counts as gone. ``last`` is the list of survivors; with signed terms, its signatures.
        """
        self._expect("open")
        if self.terms.is_signed:
            self._check_signatures(last)
        flags = self._list or self._survivors(last)
        held = sorted(self._shares.items())
        which, half = [flags[other] for other, _ in held], SHARE_BYTES
        opened = [both[:half] if flags[other] else both[half:] for other, both in held]
        self._shares, self._confirmations, self._roster, self.phase = {}, {}, None, "done"
        return self.terms.message(Kind.OPENED, to_bits(which), *opened)

    # Between two messages

    def to_bytes(self) -> bytes:
        """Everything but the identity, secrets included: for a file that nobody else reads."""
        state = {
            "terms": self.terms.to_bytes().hex(),
            "serial": self._serial,
            "me": self.me,
            "phase": self.phase,
            "secrets": [part.hex() for part in (self._mask_key, self._share_key, self._seed)],
            "roster": "" if self._roster is None else self._roster.to_bytes().hex(),
            "shares": {other: both.hex() for other, both in self._shares.items()},
            "senders": self._senders,
            "confirmations": {other: both.hex() for other, both in self._confirmations.items()},
            "list": self._list,
        }
        return json.dumps(state).encode()

    @classmethod
    def from_bytes(cls, data: bytes, terms: Terms, **options: Any) -> Client:
        """The client of these terms that ``to_bytes`` wrote; takes its keyword arguments again."""
        state = json.loads(data)
        if state["terms"] != terms.to_bytes().hex():
            raise ProtocolError("the message belongs to another attempt than this client's")
        client = cls(terms, state["me"], serial=state["serial"], **options)
        client.phase, client._list = state["phase"], state["list"]
        client._senders = state["senders"]
        client._mask_key, client._share_key, client._seed = map(bytes.fromhex, state["secrets"])
        for name in ("shares", "confirmations"):
            kept = {int(at): bytes.fromhex(both) for at, both in state[name].items()}
            setattr(client, f"_{name}", kept)
        if state["roster"]:
            client._roster = Roster.from_bytes(bytes.fromhex(state["roster"]), terms)
        return client

    @property
    def transcript(self) -> bytes:
        return self._place()[0].bind(self._senders)

    @property
    def members(self) -> dict[str, int]:
        """The identities of the roster, in hexadecimal, and their serials; none unless signed."""
        return {e.identity.hex(): e.serial for e in self._place()[0].entries if e.identity}

    def __repr__(self) -> str:
        return f"Client(me={self.me}, phase={self.phase!r}, <secrets>)"

    # Checks

    def _expect(self, phase: str) -> None:
        if self.phase != phase:
            raise ProtocolError(f"the message for phase {phase!r} came in phase {self.phase!r}")

    def _entry(self) -> Entry:
        """The client in the roster, without its signature."""
        public = crypto.public(self._mask_key), crypto.public(self._share_key)
        if self._identity is None:
            return Entry(self.me, *public)
        identity = self._identity.public_key().public_bytes_raw()
        return Entry(self.me, *public, identity, self._serial)

    def _place(self) -> tuple[Roster, int]:
        if self._roster is None:
            raise ProtocolError("this client has no roster yet")
        return self._roster, self._roster.position(self.me)

    def _between(self, roster: Roster, other: int) -> tuple[bytes, bytes, bytes]:
        return self._share_key, roster.entries[other].share_key, roster.transcript

    def _survivors(self, survivors: bytes) -> list[bool]:
        roster, at = self._place()
        reader = Reader(survivors, Kind.SURVIVORS, self.terms.round)
        flags = reader.bits(len(roster.entries))
        if not flags[at]:
            raise ProtocolError("the server lists this client as gone and asks it to open")
        if any(is_there and not sent for is_there, sent in zip(flags, self._senders, strict=True)):
            raise ProtocolError("a survivor took no part in the masks of this round")
        if not self.terms.is_signed:
            for other, both in sorted(self._confirmations.items()):
                if flags[other]:
                    confirmed = reader.take(crypto.CONFIRMATION_BYTES)
                    flags[other] = confirmed == both[crypto.CONFIRMATION_BYTES :]
        reader.end()
        self.terms.check_count(sum(flags), self.terms.threshold)
        return flags

    def _check_signatures(self, signatures: bytes) -> None:
        roster, _ = self._place()
        reader = Reader(signatures, Kind.SIGNATURES, self.terms.round)
        signers = reader.bits(len(roster.entries))
        self.terms.check_count(sum(signers), self.terms.threshold)
        statement = roster.statement(self._senders, self._list)
        for entry, is_there, has_signed in zip(roster.entries, self._list, signers, strict=True):
            if has_signed:
                signature = reader.take(SIGNATURE_BYTES)
                if not (is_there and crypto.is_signed(entry.identity, signature, statement)):
                    raise ProtocolError(f"client {entry.id} has not signed this list of survivors")
        reader.end()
