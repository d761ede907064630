"""The server of a circle: names cohorts, adds up, and asks again when somebody is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from jopeq.circle import crypto
from jopeq.circle.circle import (
    DIGEST_BYTES,
    Attempt,
    CircleTerms,
    Entry,
    Kind,
    fingerprint,
    pack_message,
    read_message,
    reply_statement,
)
from jopeq.circle.circle_recover import RecoverRound
from jopeq.circle.masks import Ring, unpack
from jopeq.circle.server import Replies
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
    terms : CircleTerms
        The same as the clients'.
    trusted : Collection[bytes] (default: ())
        The identities of all members; none for unsigned terms.
    is_plausible : Optional[Callable[[Ring, Attempt], bool]] (default: None)
        Whether a total can be what its decoder expects. One bad vector makes a
        total uniform: such a total is dropped, and the attempt repeated.
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
        self._recovery: RecoverRound | None = None
        self._nonces: dict[int, bytes] = {}  # a reply that others have seen is of no use to them
        self._open: set[int] = set()  # clients that this round may still count on
        self._done: set[int] = set()  # of these, clients that can make no further share

    @property
    def cohort(self) -> tuple[int, ...]:
        """The clients whose vectors are in ``total``, by number."""
        return () if self.total is None else tuple(sorted(self._cohort))

    @property
    def is_training(self) -> bool:
        """Whether the last messages make clients train, and need the content beside them."""
        if self._recovery is not None:
            return self._recovery.is_training
        return Kind.ATTEMPT in self._asked.values()

    @property
    def fingerprint(self) -> str:
        """The trusted list in 32 digits: compare it with the members'."""
        return fingerprint(self._trusted)

    def start(
        self, clients: Iterable[int], *, round_number: int, content: bytes
    ) -> dict[int, bytes]:
        """Begin a round with those of these clients that are not backing off."""
        if not isinstance(content, bytes) or len(content) != DIGEST_BYTES:
            raise ValueError(f"content must be a digest of {DIGEST_BYTES} bytes, got {content!r}")
        listed = set(clients)
        if len(listed) > self.terms.clients:
            raise ValueError(f"at most {self.terms.clients} clients, got {len(listed)}")
        for number in listed:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
                raise ValueError(f"clients must be whole numbers, 0 to 2⁶⁴ − 1, got {number!r}")
        self._rounds += 1
        self._asked, self._nonces, self._recovery = {}, {}, None  # of a round that was given up
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
        if self._recovery is not None:
            return self._step_recovery(self._recovery, replies)
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
            raise TooFewClientsError(
                f"{len(self._open)} clients are left and {self.terms.threshold} are needed: no sum "
                "was opened",
                clients=sorted(self.missing | self.refused.keys()),
            )
        if self.terms.dropouts == "recover":
            self.attempt = self._new_attempt()
            self._recovery = RecoverRound(self.attempt, self._bound, self._trusted, self._open)
            self._asked = dict.fromkeys(self._open, Kind.PHASE)
            return self._recovery.messages
        ready = self._open & self._entries.keys()
        if len(ready) < self.terms.threshold:
            return self._ask_keys(self._open - ready)
        self._cohort = {number: self._entries.pop(number) for number in ready}
        listed = sorted(self._cohort.values(), key=lambda entry: entry.identity)
        self.attempt = replace(self._new_attempt(), entries=tuple(listed))
        message = self.attempt.to_bytes()
        messages = self._ask(ready, Kind.ATTEMPT, lambda nonce: message)
        return messages | self._ask_keys(self._open - ready)

    def _ask(
        self, clients: Collection[int], kind: Kind, message: Callable[[bytes], bytes]
    ) -> dict[int, bytes]:
        self._asked |= dict.fromkeys(clients, kind)
        self._nonces |= {number: fresh_seed() for number in clients}
        return {number: message(self._nonces[number]) for number in clients}

    def _ask_keys(self, clients: Collection[int]) -> dict[int, bytes]:
        terms = self.terms.to_bytes()
        return self._ask(clients, Kind.ASK, lambda nonce: pack_message(Kind.ASK, terms, nonce))

    def _new_attempt(self) -> Attempt:
        self._tries += 1
        if self._tries > self.terms.attempts:
            raise ProtocolError(
                f"{self.terms.attempts} attempts at round {self._round} gave no sum",
                clients=sorted(self.missing | self.refused.keys()),
            )
        return Attempt(
            terms=self.terms,
            round=self._round,
            attempt=self._tries,
            seed=fresh_seed(),
            content=self._content,
        )

    def _read(self, number: int, asked: Kind, data: bytes) -> None:
        """Take one reply: the entry of the sender's next key, and a vector that was asked for."""
        attempt, expected = self.attempt, self._nonces[number]
        kind = Kind.KEYS if asked == Kind.ASK else Kind.REPLY
        if attempt is not None and kind == Kind.REPLY:
            expected = attempt.transcript(self._bound)
        found, listed, signature, vector = read_message(data, kind, 4)
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
        others = [held for held in self._entries.values() if held.identity != entry.identity]
        if entry.key in {held.key for held in others}:
            raise ProtocolError("its key is another member's")
        if attempt is not None and kind == Kind.REPLY:
            before = self._cohort[number]
            is_next = entry.identity == before.identity and entry.serial > before.serial
            if not is_next or entry.key in {held.key for held in self._cohort.values()}:
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
        """Whether the vectors of the whole cohort make a total that can be one."""
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

    def _step_recovery(self, recovery: RecoverRound, replies: Replies) -> dict[int, bytes]:
        """One exchange of "recover"; a round that cannot go on begins anew without who failed."""
        listed = list(replies)
        failed = self._asked.keys() - {number for number, _ in listed}
        try:
            messages = recovery.step(listed)
            self._asked = dict.fromkeys(messages, Kind.PHASE)
            if messages:
                return messages
        except ProtocolError as error:
            failed = failed.union(error.clients)
        self.refused |= recovery.server.refused
        self._asked, self._recovery = {}, None
        if recovery.total is not None:
            alive = set(recovery.server.alive)
            self._cohort = dict.fromkeys(alive, _NOBODY)
            for number in self._open - alive:
                self._miss(number)
            if self._is_sum(recovery.total):
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
            "terms": self.terms.to_bytes().hex(),
            "trusted": sorted(one.hex() for one in self._trusted),
            "rounds": self._rounds,
            "away": {str(number): list(times) for number, times in self._away.items()},
            "serials": {identity.hex(): serial for identity, serial in self._serials.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the server of ``state_dict`` was; its terms are the same.

        The list of trusted members may be another: hospitals join and leave.
        """
        if state["terms"] != self.terms.to_bytes().hex():
            raise ValueError("the state is of another circle, or of other terms: start a new run")
        self._rounds = int(state["rounds"])
        self._away = {int(number): (at[0], at[1]) for number, at in state["away"].items()}
        self._serials = {bytes.fromhex(one): int(n) for one, n in state["serials"].items()}
        self._entries, self._asked, self._recovery = {}, {}, None
