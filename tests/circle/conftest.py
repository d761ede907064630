"""A whole round in one process; messages can be lost or changed on their way."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jopeq.circle.client import Client
from jopeq.circle.messages import Terms
from jopeq.circle.server import Server
from jopeq.errors import ProtocolError
from tests.circle.circles import Circle

STEPS = ("keys", "shares", "masked", "sign", "open")


class Round:
    """Clients with numbers 100, 101, … and random vectors.

    ``lost[step]`` are the numbers whose reply of that step does not arrive. ``change(step, number,
    message)`` may replace the message that a client gets before a step, and ``spoil(step, number,
    reply)`` what the client answers.
    """

    def __init__(self, clients, threshold, *, colluding=0, bits=8, length=20, is_signed=False):
        self.numbers = [100 + place for place in range(clients)]
        identities = {number: Ed25519PrivateKey.generate() for number in self.numbers}
        trusted = {key.public_key().public_bytes_raw() for key in identities.values()}
        self.keys = {number: {} for number in self.numbers}
        if is_signed:
            self.keys = {n: {"identity": identities[n], "trusted": trusted} for n in self.numbers}
        self.terms = Terms(
            spec="test",
            bits=bits,
            length=length,
            clients=clients,
            threshold=threshold,
            colluding=colluding,
            is_signed=is_signed,
        )
        self.server = Server(self.terms, trusted=trusted if is_signed else ())
        self.clients = {n: Client(self.terms, n, **self.keys[n]) for n in self.numbers}
        random = np.random.default_rng(clients)
        self.vectors = {n: random.integers(0, 1 << bits, length) for n in self.numbers}
        self.refusals, self.complaints = {}, {}
        self.spoil = lambda step, number, reply: reply
        self.sent = {step: {} for step in STEPS}  # what clients answered
        self.got = {step: {} for step in STEPS}  # what clients were sent

    def answer(self, step, number, message):
        """One client's reply, by a client that lives in a file between its messages."""
        before = self.clients[number]
        client = Client.from_bytes(before.to_bytes(), before.terms, **self.keys[number])
        try:
            if step == "masked":
                client.receive(message)
                return client.mask(self.vectors[number])
            return getattr(client, step)(message)
        except ProtocolError as error:
            self.refusals[number] = str(error)
            if error.clients:
                self.complaints[number] = client.complain(error.clients)
            return None
        finally:
            self.clients[number] = client

    def step(self, step, messages, lost=(), change=None):
        replies = {}
        for number, message in messages.items():
            if change is not None:
                message = change(step, number, message)
            self.got[step][number] = message
            reply = self.answer(step, number, message)
            if reply is not None:
                self.sent[step][number] = reply = self.spoil(step, number, reply)
            if reply is None and step == "masked":
                reply = self.complaints.get(number)
            if reply is not None and number not in lost:
                replies[number] = reply
        return list(replies.items())

    def run(self, lost=None, change=None):
        lost = lost or {}
        server, messages = self.server, dict.fromkeys(self.numbers, self.server.offer)
        following = {"keys": server.roster, "shares": server.inboxes, "masked": server.survivors}
        following |= {"sign": server.signatures, "open": server.total}
        for step in STEPS:
            if step != "sign" or self.terms.is_signed:
                messages = following[step](self.step(step, messages, lost.get(step, ()), change))
        return messages

    def confirmations(self, number, alive):
        """What those at ``alive`` places confirmed to ``number`` (all sent shares)."""
        for place in alive:
            if place != number - 100:
                start = 22 + 16 * (number - 100 - (number - 100 > place))
                yield self.sent["masked"][100 + place][start : start + 16].ljust(16, b"?")

    def expected(self):
        total = sum(self.vectors[number] for number in self.server.alive)
        return (total % (1 << self.terms.bits)).tolist()


@pytest.fixture(scope="session")
def round_of():
    return Round


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # no power cut here, and 60 s less


@pytest.fixture
def circle(tmp_path):
    return lambda *sizes, **options: Circle(tmp_path, *sizes, **options)
