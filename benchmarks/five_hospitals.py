"""Five unequal hospitals, TLS, authentication and guards: all that can go wrong in one run.

    PYTHONPATH=src:. python benchmarks/five_hospitals.py

Real patients: scikit-learn's breast-cancer table, 250 to 15 of them in a hospital, ε = 2 for each.
The last hospital's ledger pays for two rounds. A SuperNode is killed while it trains, a sixth
hospital joins, the SuperLink is killed while hospitals train, and the run goes on. In the end
ledgers, audit files and the server's table must agree, nobody may have paid for more attempts than
the two that were killed, and every node but the one whose ledger is spent must be well. One line
goes to results/five_hospitals.jsonl. Columns are scaled by the bounds that the table's description
has published; the learning rate is from a simulation on the training patients.
"""

from __future__ import annotations

import csv
import json
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

import jopeq
from jopeq.circle import read_audit
from jopeq.flower.guard import check_health
from jopeq.sums.record_accounting import epsilon_of
from tests.flower.identities import write_identity
from tests.flower.test_federation import deployment, wait_for

BOUNDS = r"^\w[\w ]*\((?:mean|standard error|worst)\): +([\d.]+) +([\d.]+)$"
RESULTS = Path(__file__).parents[1] / "results" / "five_hospitals.jsonl"
SIZES = (250, 80, 50, 30, 15, 40)  # the sixth joins
GUARD = (sys.executable, "-m", "jopeq", "guard", "--")
ROUNDS, KILLED, JOINS, CRASH = 5, 2, 3, 4
VICTIM, POOR, SIXTH = 1, 4, 5
TERMS: dict[str, Any] = {
    "epsilon": 2.0, "clip": 1.0, "records": 400, "sampling": 1.0, "rounds": ROUNDS + 3,
    "clients": 6, "threshold": 3, "most_records": 250,
}  # fmt: skip

APP = """
import json, time
from pathlib import Path
import numpy as np
import torch
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
import jopeq
from jopeq.flower import RecordStrategy, record_client

TERMS, ROUNDS, KILLED, JOINS, CRASH, VICTIM = SETTINGS
scheme = jopeq.RecordSum(**TERMS)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(30, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, values):
        return self.linear(nn.functional.normalize(values, dim=-1)).squeeze(-1)


def samples(file):
    with np.load(file) as found:
        return torch.from_numpy(found["inputs"]), torch.from_numpy(found["labels"])


def records(context):
    folder, part = Path(context.run_config["folder"]), int(context.node_config["part"])
    number = len(list(folder.glob("done-*")))  # the round: there is a done-0
    if part == VICTIM and number == KILLED and not (folder / "victim-is-dead").exists():
        (folder / "victim-trains").touch()
        time.sleep(3600)
    if number == CRASH:
        (folder / "crash-now").touch()
        while not (folder / "superlink-is-dead").exists():
            time.sleep(0.1)
    return samples(folder / f"hospital{part}.npz")


example = torch.zeros(30), torch.tensor(0.0)
client = record_client(
    scheme, model=Net, loss=binary_cross_entropy_with_logits, load=records, example=example
)
server = ServerApp()


@server.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    strategy = RecordStrategy(
        scheme,
        model=Net(),
        optimizer=lambda p: torch.optim.SGD(p, lr=4.0),
        trusted=folder / "trusted",
        min_available_nodes=4,
        checkpoint=folder / "run.pt",
        csv=folder / "rounds.csv",
        deadline=240.0,
    )
    inputs, labels = samples(folder / "test.npz")

    def wait_for_nodes(count):
        while len(list(grid.get_node_ids())) < count:
            time.sleep(0.5)

    def evaluate(number, arrays):
        model = Net()
        model.load_state_dict(arrays.to_torch_state_dict())
        (folder / f"done-{number}").touch()
        if number == JOINS - 1:
            while not (folder / "sixth-is-there").exists():
                time.sleep(0.5)
            wait_for_nodes(5)
        right = ((model(inputs) > 0) == (labels > 0)).double().mean()
        return MetricRecord({"accuracy": float(right)})

    wait_for_nodes(5)
    result = strategy.start(grid, num_rounds=ROUNDS, evaluate_fn=evaluate)
    found = {n: dict(m) for n, m in result.evaluate_metrics_serverapp.items()}
    (folder / "partial").write_text(json.dumps({"epsilon": strategy.epsilon, "accuracy": found}))
    (folder / "partial").rename(folder / "report.json")
"""


def run_five(folder: Path) -> dict[str, Any]:
    """The federation, its failures, and what is left on disk of all of it."""
    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    low, high = np.array(re.findall(BOUNDS, data.DESCR, re.MULTILINE), np.float64).T
    inputs = ((data.data - low) / (high - low) - 0.25)[order]  # most values are low ones
    inputs, labels = inputs.astype(np.float32), data.target[order].astype(np.float32)
    ends = np.cumsum(SIZES)
    for part, end in enumerate(ends):
        mine = slice(end - SIZES[part], end)
        np.savez(folder / f"hospital{part}.npz", inputs=inputs[mine], labels=labels[mine])
    np.savez(folder / "test.npz", inputs=inputs[ends[-1] :], labels=labels[ends[-1] :])
    scheme = jopeq.RecordSum(**TERMS)
    enough = epsilon_of((scheme.spend(31, 2),), scheme.delta, scheme.epsilon)
    for part in range(6):
        budget = enough * 1.001 if part == POOR else 2.0
        jopeq.Ledger.create(folder / f"{part}.json", budget, scheme.delta)
    keys = [write_identity(folder, part)[1] for part in range(6)]
    (folder / "trusted").write_text("\n".join(keys[:5]))
    settings = TERMS, ROUNDS, KILLED, JOINS, CRASH, VICTIM
    began = time.monotonic()

    def config_of(part: int) -> dict[str, Any]:
        names = {"ledger": f"{part}.json", "identity": f"{part}.pem", "trusted": "trusted"}
        config = {f"jopeq-{key}": str(folder / name) for key, name in names.items()}
        return {**config, "jopeq-max-epsilon": 2.0, "jopeq-max-delta": 1e-5}

    app = APP.replace("SETTINGS", repr(settings))
    with deployment(folder, secure=True, app=app) as federation:

        def add_node(part: int) -> None:
            texts = (f"{key}={json.dumps(value)}" for key, value in config_of(part).items())
            federation.add_node(f"node{part}", part, 6, "honest", " ".join(texts), guard=GUARD)

        def wait(name: str) -> None:
            wait_for((folder / name).exists, alive=[federation.superlink], most=3600.0)

        for part in range(5):
            add_node(part)
        federation.run()
        wait("victim-trains")
        federation.stop(federation.nodes[f"node{VICTIM}"], signal.SIGKILL)
        (folder / "victim-is-dead").touch()
        wait(f"done-{JOINS - 1}")
        (folder / "trusted").write_text("\n".join(keys))
        add_node(SIXTH)
        add_node(VICTIM)
        (folder / "sixth-is-there").touch()
        wait("crash-now")
        federation.stop(federation.superlink, signal.SIGKILL)
        (folder / "superlink-is-dead").touch()
        for process in federation.nodes.values():
            federation.stop(process, signal.SIGKILL)
        federation.start_superlink("superlink-again")
        for part in range(6):
            add_node(part)
        federation.run()
        wait("report.json")
        report = federation.report()
    with (folder / "rounds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ledgers = [jopeq.Ledger.load(folder / f"{part}.json") for part in range(6)]
    audits = [folder / f"{part}.json.circle" / "audit.jsonl" for part in range(6)]
    attempts = [(line["round"], line["attempt"]) for line in read_audit(audits[0])]
    found = {
        "patients": SIZES,
        "hospitals": [int(row["hospitals"]) for row in rows],
        "attempts": [int(row["attempt"]) for row in rows],
        "asked_of_the_first": attempts,
        "ledgers": [ledger.rounds for ledger in ledgers],
        "audits": [len(read_audit(path)) for path in audits],
        "epsilon_ledgers": [round(ledger.spent.epsilon, 4) for ledger in ledgers],
        "epsilon_server": report["epsilon"],
        "accuracy": report["accuracy"],
        "health": [check_health(config_of(part)) for part in range(6)],
        "seconds": round(time.monotonic() - began),
    }
    return {**found, "agree": judge(found)}


def judge(found: dict[str, Any]) -> bool:
    """Tell if ledgers, audit files and the server agree, and only two attempts were wasted."""
    spare = len(found["asked_of_the_first"]) - len(found["hospitals"])
    is_safe = found["epsilon_server"] >= max(found["epsilon_ledgers"]) - 1e-4
    unwell = [part for part, said in enumerate(found["health"]) if said]
    is_known = unwell == [POOR] and "[budget-spent]" in found["health"][POOR][0]
    return found["ledgers"] == found["audits"] and spare <= 2 and is_safe and is_known


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        found = run_five(Path(name))
    print(json.dumps(found))
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")
    sys.exit(not found["agree"])


if __name__ == "__main__":
    main()
