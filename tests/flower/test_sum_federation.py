"""A secure sum on Flower's deployment engine, over TLS, in which a node is killed in each step.

Nine authenticated SuperNodes, one of which dies with each of the four messages of a round in its
hands. Every message is answered by a process of its own.
"""

import signal
from pathlib import Path

import pytest

import jopeq
from tests.flower.test_federation import deployment, needs_flower, wait_for

pytestmark = needs_flower
ENTRIES = 300_000
VICTIMS = ("TERMS", "ROSTER", "INBOX", "SURVIVORS")

APP = '''
import json, time
from dataclasses import dataclass, replace
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from jopeq import SecureSum
from jopeq.flower import JoPEQSumMod, JoPEQSumStrategy
from jopeq.circle.messages import Kind, kind_of
from .patient import Patient


def name_of(message):
    return Kind(kind_of(message.content["jopeq-sum"]["message"])).name


@dataclass(frozen=True, kw_only=True)
class Plain(SecureSum):
    """No noise: the sum that arrives can be checked to the last bit."""

    epsilon: float = 4.0
    clip: float = 1.0
    clients: int = 9
    threshold: int = 5
    colluding: int = 0

    def plan(self, dimension):
        # of few entries: every process plans anew
        return replace(super().plan(8), dimension=dimension, kept=dimension, bits=8)

    def encode(self, update, *, seed):
        return np.rint(update).astype(np.uint8)

    def decode(self, total, *, seed, dimension, clients):
        return total / clients


def die(msg, ctxt, call_next):
    """Outermost: a node that dies before it answers one kind of message."""
    if name_of(msg) == ctxt.node_config["role"]:
        Path(ctxt.run_config["folder"], f"{name_of(msg)}-arrived").touch()
        time.sleep(3600)
    return call_next(msg, ctxt)


client = ClientApp(mods=[die, JoPEQSumMod(Plain())])


@client.train()
def train(msg, context):
    w = msg.content["arrays"]["w"].numpy() + 2 ** int(context.node_config["part"])
    content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": MetricRecord()})
    return Message(content, reply_to=msg)


server = ServerApp()


@server.main()
def main(grid, context):
    folder = context.run_config["folder"]
    is_dead = lambda messages: Path(folder, f"{name_of(messages[0])}-is-dead").exists()
    try:
        found = run(Patient(grid, is_dead))
    except Exception as error:
        found = {"error": repr(error)}
    Path(folder, "partial").write_text(json.dumps(found))
    Path(folder, "partial").rename(Path(folder, "report.json"))


def run(patient):
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=9, min_available_nodes=9)
    strategy = JoPEQSumStrategy(inner, Plain())
    zeros = ArrayRecord({"w": Array(np.zeros(ENTRIES, np.float32))})
    messages = strategy.configure_train(1, zeros, ConfigRecord(), patient)
    arrays, metrics = strategy.aggregate_train(1, patient.send_and_receive(messages))
    values = sorted(set(arrays["w"].numpy().tolist()))
    report = strategy.reports[0]
    refusals = [report.rejected, report.failed]
    return {"values": values, "metrics": dict(metrics), "refusals": refusals}
'''


def test_a_node_is_killed_in_each_step(tmp_path):
    app = APP.replace("ENTRIES", str(ENTRIES))
    with deployment(tmp_path, secure=True, app=app) as federation:
        for part in range(9):
            jopeq.Ledger.create(tmp_path / f"{part}.json", 4.0, 1e-5)
            role = VICTIMS[part] if part < 4 else f"honest{part}"
            federation.add_node(role, part, 9, role, f'jopeq-ledger="{tmp_path}/{part}.json"')
        federation.run()
        for name in VICTIMS:
            events = tmp_path / f"{name}-arrived", tmp_path / "report.json"
            living = [federation.superlink, *federation.nodes.values()]
            wait_for(lambda: any(map(Path.exists, events)), alive=living)  # noqa: B023
            federation.stop(federation.nodes.pop(name), signal.SIGKILL)
            (tmp_path / f"{name}-is-dead").touch()
        report = federation.report()
        ups = {name: proxy.up for name, proxy in federation.proxies.items()}
    assert "error" not in report, report
    survivors = (3, 4, 5, 6, 7, 8)  # 3 died after its masked vector had come
    assert report["values"] == [pytest.approx(sum(2**p for p in survivors) % 256 / 6)]
    assert report["metrics"]["jopeq-clients"] == 6
    assert report["refusals"] == [{}, []]
    counted = [v for name, v in report["metrics"].items() if name.startswith("jopeq-bytes-up/")]
    assert ENTRIES < max(counted) < 1.01 * ENTRIES  # eight bits an entry, and the keys
    # everything a SuperNode sent since it started: polling, heartbeats and headers included
    assert max(ups.values()) < 2 * ENTRIES
    rounds = [jopeq.Ledger.load(tmp_path / f"{part}.json").rounds for part in range(9)]
    assert rounds == [0, 0, 0, 1, 1, 1, 1, 1, 1]  # the third dies before its mod is asked
    left = {path.name for path in tmp_path.glob(".*.round")}
    assert left == {".1.json.round", ".2.json.round", ".3.json.round"}  # of those who never opened
