"""Hospitals and a server in a loop of your own: masks, ledgers and audit files without Flower.

Five hospitals fit a logistic regression to scikit-learn's breast-cancer table, ε = 2 for every
patient. Here messages are handed over in one process. In your own loop they travel by whatever you
have: a ``Hospital`` lives in the hospital, and every message and every reply is bytes.
"""

import json
import re
import tempfile
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn.datasets import load_breast_cancer

import jopeq
from jopeq.circle import (
    CircleClient,
    CircleServer,
    CircleTerms,
    Plan,
    digest,
    fingerprint,
    read_audit,
)
from jopeq.sums.clipped_total import ClippedTotal

HOSPITALS, ROUNDS, DIMENSION = 5, 12, 31
LINE = r"^\w[\w ]*\((?:mean|standard error|worst)\): +[\d.]+ +([\d.]+)$"
SIZES = np.repeat(range(HOSPITALS), (180, 90, 60, 40, 30))  # which hospital has a patient
scheme = jopeq.RecordSum(
    epsilon=2.0, clip=1.0, records=400, sampling=1.0, rounds=ROUNDS + 2, clients=HOSPITALS,
    threshold=4, most_records=200,
)  # fmt: skip


def plan(clients):
    """How a cohort of so many hospitals shares a sum: both ends compute the same."""
    found = scheme.plan(DIMENSION, clients)
    return Plan(bits=found.bits, length=DIMENSION, text=json.dumps(found.integers[1:]))


terms = CircleTerms(
    circle="tumours",
    spec=scheme.spec,
    plan=plan,
    clients=scheme.clients,
    threshold=scheme.threshold,
    colluding=scheme.colluding,
    attempts=4,
    dropouts=scheme.dropouts,
)


class Hospital:
    """A hospital: its patients, its ledger's file, its key."""

    def __init__(self, folder, key, trusted, inputs, labels):
        self.file, self.inputs, self.labels = folder / "ledger.json", inputs, labels
        jopeq.Ledger.create(self.file, budget=2.0, delta=1e-5)
        self.circle = CircleClient(
            terms,
            folder / "circle",
            identity=key,
            trusted=trusted,
            charge=self.charge,
            count=lambda: jopeq.Ledger.load(self.file).rounds,
        )

    def charge(self, attempt):
        """Count one share on disk, before anything is computed."""
        ledger = jopeq.Ledger.load(self.file)
        ledger.charge(scheme, DIMENSION, run=terms.circle, about={"asked": "to train a model"})
        ledger.save(self.file)
        return {"epsilon": ledger.spent.epsilon}

    def answer(self, message, weights):
        """Bytes for bytes; ``weights`` came with the message."""
        due = self.circle.accept(message, content=digest(weights.tobytes()))
        if isinstance(due, bytes):
            return due  # nothing was asked of the data
        odds = 1.0 / (1.0 + np.exp(-(self.inputs @ weights)))
        gradients = self.inputs * (odds - self.labels)[:, None]  # one of each patient
        total = ClippedTotal(DIMENSION, scheme.clip).add(gradients)
        clients = len(due.attempt.entries) or HOSPITALS
        return due.finish(scheme.encode(total, seed=due.attempt.seed, clients=clients))


def main():
    """Train, lose a hospital for a round, and compare the ledgers with the audit files."""
    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    described = re.findall(LINE, data.DESCR, re.MULTILINE)  # public: bounds of the measurements
    inputs = np.hstack([data.data / np.array(described, float), np.ones((len(order), 1))])[order]
    inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
    labels = data.target[order]
    keys = [Ed25519PrivateKey.generate() for _ in range(HOSPITALS)]
    trusted = [key.public_key().public_bytes_raw() for key in keys]
    with tempfile.TemporaryDirectory() as name:
        hospitals = []
        for number, key in enumerate(keys):
            folder = Path(name) / f"hospital{number}"
            folder.mkdir(mode=0o700)
            mine = np.flatnonzero(number == SIZES)
            hospitals.append(Hospital(folder, key, trusted, inputs[mine], labels[mine]))
        server, weights = CircleServer(terms, trusted=trusted), np.zeros(DIMENSION)
        print("compare by telephone:", fingerprint(trusted))
        for round_number in range(1, ROUNDS + 1):
            away = {4} if round_number == 3 else set()
            content = digest(weights.tobytes())
            messages = server.start(range(HOSPITALS), round_number=round_number, content=content)
            while messages:
                replies = [(n, hospitals[n].answer(data, weights))
                           for n, data in messages.items() if n not in away]  # fmt: skip
                messages = server.step(replies)
            attempt = server.attempt
            mean = scheme.decode(
                server.total, seed=attempt.seed, dimension=DIMENSION, clients=len(server.cohort)
            )
            weights = weights - 8.0 * mean
            print(f"round {round_number}: {len(server.cohort)} hospitals")
        right = np.mean((inputs[len(SIZES) :] @ weights > 0) == (labels[len(SIZES) :] == 1))
        print(f"accuracy on {len(labels) - len(SIZES)} other patients: {right:.3f}")
        for number, hospital in enumerate(hospitals):
            ledger = jopeq.Ledger.load(hospital.file)
            lines = read_audit(hospital.circle.audit)
            assert len(lines) == ledger.rounds
            print(f"hospital {number}: {ledger.rounds} shares, ε = {ledger.spent.epsilon:.3f}")


if __name__ == "__main__":
    main()
