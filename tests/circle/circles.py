"""A circle in one process: members with files, ledgers and random vectors."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jopeq.circle import CircleClient, CircleServer, CircleTerms, Plan, digest
from jopeq.errors import BudgetSpentError, ProtocolError

CONTENT = digest(b"model", b"configuration")
PROTOCOLS = ("repeat", "recover")
ENTRY = 136
HEAD = 6  # bytes before the first part of a message


def parts_of(message):
    """The parts of a message, read without the library."""
    parts, at = [], HEAD
    while at < len(message):
        size = int.from_bytes(message[at : at + 8], "little")
        parts.append(message[at + 8 : at + 8 + size])
        at += 8 + size
    return parts


def message_of(head, parts):
    return head + b"".join(len(part).to_bytes(8, "little") + part for part in parts)


class Ledger:
    """Counts shares, up to a budget."""

    def __init__(self, budget=1000):
        self.shares, self.budget = [], budget

    def charge(self, attempt):
        if len(self.shares) >= self.budget:
            raise BudgetSpentError("no share is left")
        self.shares.append((attempt.round, attempt.attempt))
        return {"epsilon": 0.25 * len(self.shares)}

    def count(self):
        return len(self.shares)


class Circle:
    """Members 1 … n. ``lost(exchange, number)`` are replies that do not arrive, and ``spoil(number,
    reply)`` may change one; ``change(number, message)`` what a member gets."""

    def __init__(self, folder, clients=4, threshold=3, *, bits=8, length=20, **terms):
        self.folder, self.bits, self.length = folder, bits, length
        self.terms = CircleTerms(
            **{
                "circle": "test",
                "spec": "random",
                "plan": lambda n: Plan(bits=bits, length=length, text=f"for {n}"),
                "clients": clients,
                "threshold": threshold,
                **terms,
            }
        )
        self.numbers = list(range(1, clients + 1))
        self.identities = {n: Ed25519PrivateKey.generate() for n in self.numbers}
        keys = [key.public_key().public_bytes_raw() for key in self.identities.values()]
        self.trusted = () if self.terms.unsigned else keys
        self.ledgers = {n: Ledger() for n in self.numbers}
        self.clients = {n: self.member(n) for n in self.numbers}
        self.server = CircleServer(self.terms, trusted=self.trusted)
        self.random = np.random.default_rng(clients)
        self.vectors, self.refusals, self.exchanges, self.late = {}, {}, 0, []
        self.lost, self.spoil = (lambda exchange, number: False), (lambda number, reply: reply)
        self.change = lambda number, message: message

    def member(self, number):
        """The client of that number in a new process."""
        return CircleClient(
            self.terms,
            self.folder / str(number),
            identity=self.identities[number],
            trusted=self.trusted,
            charge=self.ledgers[number].charge,
            count=self.ledgers[number].count,
        )

    def identity(self, number):
        return self.identities[number].public_key().public_bytes_raw()

    def answer(self, number, message, content=CONTENT):
        """A reply by a member that lives in files; None if it refuses."""

        self.clients[number] = self.member(number)
        try:
            found = self.clients[number].accept(message, content=content)
            if isinstance(found, bytes):
                return found
            self.vectors[number] = self.random.integers(0, 1 << self.bits, self.length)
            return found.finish(self.vectors[number])
        except (ProtocolError, BudgetSpentError) as error:
            self.refusals[number] = error
            return None

    def exchange(self, messages):
        """Replies to these messages."""
        self.exchanges += 1
        replies = []
        for number, message in messages.items():
            reply = self.answer(number, self.change(number, message))
            if reply is not None and not self.lost(self.exchanges, number):
                replies.append((number, self.spoil(number, reply)))
        return replies

    def run(self, round_number=1, numbers=None):
        """The total of a round, checked against the vectors of its cohort."""
        self.exchanges = 0
        messages = self.server.start(
            numbers or self.numbers, round_number=round_number, content=CONTENT
        )
        while messages:
            replies = self.exchange(messages)
            messages = self.server.step(replies + self.late)
        expected = sum(self.vectors[number] for number in self.server.cohort)
        assert self.server.total.tolist() == (expected % (1 << self.bits)).tolist()
        return self.server.cohort


def flipped(message, place):
    return message[:place] + bytes((message[place] ^ 1,)) + message[place + 1 :]


def opened(one, round_number=1):
    """The messages of the first attempt, after the keys."""
    messages = one.server.start(one.numbers, round_number=round_number, content=CONTENT)
    return one.server.step(one.exchange(messages))


def forge(message, **changes):
    """An ATTEMPT with other parts: terms, numbers, seed, content, plan, entries."""
    names = ("terms", "numbers", "seed", "content", "plan", "entries")
    parts = dict(zip(names, parts_of(message), strict=True)) | changes
    return message_of(message[:HEAD], parts.values())


def listed(message):
    entries = parts_of(message)[5]
    return [entries[at : at + ENTRY] for at in range(0, len(entries), ENTRY)]
