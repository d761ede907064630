"""The server of a circle: names cohorts, adds up, and asks again when somebody is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jopeq.checks import check_count
from jopeq.circle import crypto
from jopeq.circle.circle import (
    DIGEST_BYTES,
    Attempt,
    CircleTerms,
    Entry,
    Kind,
    pack_message,
    read_message,
    recovery_terms,
    reply_statement,
)
from jopeq.circle.crypto import Ring, unpack
from jopeq.circle.server import Replies, Server
from jopeq.errors import PayloadError, ProtocolError, TooFewClientsError
from jopeq.random.streams import fresh_seed

_NOBODY = Entry(b"", b"", 0)  # "recover" has entries of its own


class CircleServer:
    """Rounds of a circle.

    ``start`` begins a round and returns the message to each client. Give the replies to ``step``,
    which returns the next messages, until there are none: then ``total`` is the sum over
    ``cohort``, and ``attempt`` is the attempt that gave it. Whoever is missing or answers wrongly
    is left out of the next attempt, named in ``refused`` or ``missing``, and asked again after 1,
    2, 4, … rounds. ``TooFewClientsError`` ends a round; its ``clients`` are those who failed.

    Parameters
    ----------
    terms, trusted
        The same as the clients'; ``trusted`` are the identities of all members.
    is_plausible : Optional[Callable[[Ring, Attempt], bool]] (default: None)
        Whether a total can be what its decoder expects. One bad vector makes a total uniform: such
        a total is dropped, and the attempt repeated.
    """

    def __init__(
        self,
        terms: CircleTerms,
        *,
        trusted: Collection[bytes] = (),
        is_plausible: Callable[[Ring, Attempt], bool] | None = None,
    ) -> None:
        self.terms, self._trusted = terms, frozenset(trusted)
        self._bound, self._is_plausible = terms.bind(self._trusted), is_plausible
        self.total: Ring | None = None
        self.attempt: Attempt | None = None
        self.refused: dict[int, str] = {}
        self.missing: set[int] = set()
        self._rounds = 0
        self._away: dict[int, tuple[int, int]] = {}  # times missed, and the last round to skip
        self._serials: dict[bytes, int] = {}
        self._entries: dict[int, Entry] = {}  # unused keys
        self._cohort: dict[int, Entry] = {}
        self._asked: dict[int, Kind] = {}  # what the last messages were
        self._sum: Ring | None = None
        self._inner: Server | None = None  # of an attempt of "recover", and its steps
        self._steps: list[Callable[[Replies], Any]] = []
        self._nonces: dict[int, bytes] = {}  # a reply that others have seen is of no use to them
        self._open: set[int] = set()  # clients that this round may still count on
        self._done: set[int] = set()  # of these, clients that can make no further share

    @property
    def cohort(self) -> tuple[int, ...]:
        """The clients whose vectors are in ``total``, by number."""
        return () if self.total is None else tuple(sorted(self._cohort))

    @property
    def is_training(self) -> bool:
        """True if the last messages make clients train, and need the content beside them."""
        if self._inner is not None:
            return self._steps[:1] == [self._inner.survivors]  # the clients have their inboxes
        return Kind.ATTEMPT in self._asked.values()

    def start(
        self, clients: Iterable[int], *, round_number: int, content: bytes
    ) -> dict[int, bytes]:
        """Begin a round with those of these clients that are not backing off."""
        if not isinstance(content, bytes) or len(content) != DIGEST_BYTES:
            raise ValueError(f"content must be a digest of {DIGEST_BYTES} bytes, got {content!r}")
        listed = {check_count("clients", number, 0, (1 << 64) - 1) for number in clients}
        if len(listed) > self.terms.clients:
            raise ValueError(f"at most {self.terms.clients} clients, got {len(listed)}")
        self._rounds += 1
        self._asked, self._nonces, self._inner = {}, {}, None  # of a round that was given up
        self._open = {n for n in listed if self._away.get(n, (0, 0))[1] < self._rounds}
        if len(self._open) < self.terms.threshold:
            self._open = listed  # nobody can be spared
        self._round, self._content, self._tries, self._done = round_number, content, 0, set()
        self.total, self.attempt, self.refused, self.missing = None, None, {}, set()
        return self._next()

    def step(self, replies: Replies, *, done: Collection[int] = ()) -> dict[int, bytes]:
        """Read the replies to the last messages; the next messages, none when the sum is there.

        Clients in ``done`` can make no further share. What they sent still counts, but another
        attempt of the round goes without them, so that nobody else pays for one that must fail.
        """
        if not self._asked:
            raise ProtocolError("no round is open: start one")
        self._done |= {*done}
        if self._inner is not None:
            return self._step_recovery(self._inner, replies)
        asked, good = self._asked, set()
        is_attempt, self._sum = Kind.ATTEMPT in asked.values(), None
        for number, data in replies:
            try:
                if number not in asked or number in good:
                    raise ProtocolError("it sent a reply that was not asked for")
                self._read(number, asked[number], data)
                good.add(number)
                self.refused.pop(number, None)  # only something late came before
            except (ProtocolError, PayloadError) as error:
                self.refused[number] = str(error)
        self._asked = {}
        for number in asked.keys() - good:
            self._miss(number)
        is_whole = is_attempt and self._cohort.keys() <= good
        if is_whole and self._sum is not None and self._is_sum(self._sum):
            return {}
        return self._next()

    def _next(self) -> dict[int, bytes]:
        self._open -= self._done
        if len(self._open) < self.terms.threshold:
            told = f"{len(self._open)} clients are left and {self.terms.threshold} are needed"
            failed = sorted(self.missing | self.refused.keys())
            raise TooFewClientsError(f"{told}: no sum was opened", clients=failed)
        if self.terms.dropouts == "recover":
            self.attempt = self._new_attempt()
            terms = recovery_terms(self.attempt, self._bound)
            self._inner = inner = Server(terms, trusted=self._trusted)
            signed = [] if self.terms.unsigned else [inner.signatures]
            self._steps = [inner.roster, inner.inboxes, inner.survivors, *signed, inner.total]
            return self._wrap(self.attempt, dict.fromkeys(self._open, inner.offer))
        ready = self._open & self._entries.keys()
        if len(ready) < self.terms.threshold:
            return self._ask_keys(self._open - ready)
        self._cohort = {number: self._entries.pop(number) for number in ready}
        listed = sorted(self._cohort.values(), key=lambda entry: entry.identity)
        self.attempt = replace(self._new_attempt(), entries=tuple(listed))
        self._asked = dict.fromkeys(ready, Kind.ATTEMPT)
        messages = dict.fromkeys(ready, self.attempt.encoded)
        return messages | self._ask_keys(self._open - ready)

    def _ask_keys(self, clients: Collection[int]) -> dict[int, bytes]:
        self._asked |= dict.fromkeys(clients, Kind.ASK)
        self._nonces = {number: fresh_seed() for number in clients}
        return {
            number: pack_message(Kind.ASK, self.terms.encoded, nonce)
            for number, nonce in self._nonces.items()
        }

    def _new_attempt(self) -> Attempt:
        self._tries += 1
        if self._tries > self.terms.attempts:
            told = f"{self.terms.attempts} attempts at round {self._round} gave no sum"
            raise ProtocolError(told, clients=sorted(self.missing | self.refused.keys()))
        return Attempt(
            terms=self.terms, round=self._round, attempt=self._tries, seed=fresh_seed(),
            content=self._content,
        )  # fmt: skip

    def _read(self, number: int, asked: Kind, data: bytes) -> None:
        """Take one reply: the entry of the sender's next key, and a vector that was asked for."""
        attempt = None if asked == Kind.ASK else self.attempt
        kind = Kind.KEYS if attempt is None else Kind.REPLY
        found, listed, signature, vector = read_message(data, kind, 4)
        expected = self._nonces[number] if attempt is None else attempt.transcript(self._bound)
        if found != expected:
            raise ProtocolError("it answers another message than it was sent")
        entry = Entry.from_bytes(listed)
        entry.check(self._bound, self._trusted)
        if not crypto.is_signed(
            entry.identity, signature, reply_statement(kind, found, listed, vector)
        ):
            raise ProtocolError("its reply is not signed by its identity")
        if entry.serial < self._serials.get(entry.identity, 0):
            raise ProtocolError(f"its serial fell to {entry.serial}: its ledger was restored")
        for held in self._entries.values():
            if held.identity != entry.identity and held.key == entry.key:
                raise ProtocolError("its key is another member's")
        if attempt is not None:
            before = self._cohort[number]
            is_next = entry.identity == before.identity and entry.serial > before.serial
            if not is_next or any(entry.key == held.key for held in attempt.entries):
                raise ProtocolError("its next entry does not follow the one it used")
            part = unpack(vector, attempt.plan.length, attempt.plan.bits)
            self._sum = part if self._sum is None else self._sum + part
        elif vector:
            raise ProtocolError("it sent what was not asked for")
        for other, held in list(self._entries.items()):
            if other != number and held.identity == entry.identity:
                del self._entries[other]  # the member has moved to another number
        self._entries[number] = entry
        self._serials[entry.identity] = entry.serial

    def _is_sum(self, total: Ring) -> bool:
        """True if the vectors of the whole cohort make a total that can be one."""
        attempt = self.attempt
        if attempt is None:
            return False
        total = total & total.dtype.type((1 << attempt.plan.bits) - 1)
        if self._is_plausible is not None and not self._is_plausible(total, attempt):
            return False
        self.total = total
        for number in self._cohort:
            self._away.pop(number, None)
        return True

    def _wrap(self, attempt: Attempt, sent: dict[int, bytes]) -> dict[int, bytes]:
        """The messages of ``Server`` in messages PHASE."""
        self._asked = dict.fromkeys(sent, Kind.PHASE)
        return {
            number: pack_message(Kind.PHASE, number.to_bytes(8, "little"), attempt.encoded, inner)
            for number, inner in sent.items()
        }

    def _step_recovery(self, inner: Server, replies: Replies) -> dict[int, bytes]:
        """One exchange of "recover"; a round that cannot go on begins anew without who failed."""
        listed, failed, total = [], set(self._asked), None
        for number, data in replies:
            failed.discard(number)
            with suppress(ProtocolError):
                listed.append((number, read_message(data, Kind.ANSWER, 1)[0]))
                continue
            listed.append((number, b""))  # which the server refuses
        try:
            found = self._steps.pop(0)(listed)
            if self._steps and found and self.attempt is not None:
                return self._wrap(self.attempt, found)
            total = None if self._steps else found
        except ProtocolError as error:
            failed.update(error.clients)
        self.refused |= inner.refused
        self._asked, self._inner = {}, None
        if total is not None:
            alive = set(inner.alive)
            self._cohort = dict.fromkeys(alive, _NOBODY)
            for number in self._open - alive:
                self._miss(number)
            if self._is_sum(total):
                return {}
        for number in self._open.intersection(failed):
            self._miss(number)
        return self._next()

    def _miss(self, number: int) -> None:
        times = min(self._away.get(number, (0, 0))[0], 15)
        self._away[number] = (times + 1, self._rounds + (1 << times))
        self._entries.pop(number, None)
        self._open.discard(number)
        self.missing.add(number)

    # Between two rounds

    def forget(self, clients: Iterable[int]) -> None:
        """Ask these clients for their keys again, which costs them nothing."""
        for number in clients:
            self._entries.pop(number, None)

    def state_dict(self) -> dict[str, Any]:
        """The state of a resumed server, in JSON's types. Keys are not kept: they are asked for."""
        return {
            "terms": self.terms.encoded.hex(),
            "trusted": sorted(one.hex() for one in self._trusted),
            "rounds": self._rounds,
            "away": {str(number): list(times) for number, times in self._away.items()},
            "serials": {identity.hex(): serial for identity, serial in self._serials.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the same terms; the list of trusted members may have changed."""
        if state["terms"] != self.terms.encoded.hex():
            raise ValueError("the state is of another circle, or of other terms: start a new run")
        self._rounds = int(state["rounds"])
        self._away = {int(number): (at[0], at[1]) for number, at in state["away"].items()}
        self._serials = {bytes.fromhex(one): int(n) for one, n in state["serials"].items()}
        self._entries, self._asked, self._inner = {}, {}, None
