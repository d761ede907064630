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
from jopeq.secure.messages import Kind, kind_of
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


RESUMED = '''
import json, logging, pickle, sys, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvgM
import jopeq
from jopeq.flower import JoPEQSumMod, JoPEQSumStrategy
from .patient import Patient

scheme = jopeq.SecureSum(
    epsilon=8.0, delta=1e-5, clip=1.0, clients=4, threshold=3, participations=3
)
client = ClientApp(mods=[JoPEQSumMod(scheme)])


@client.train()
def train(msg, context):
    number, role = msg.content["config"]["server-round"], context.node_config["role"]
    folder = Path(context.run_config["folder"])
    if role == "victim" and number == 2:
        (folder / "victim").write_text(str(context.node_id))
        time.sleep(3600)
    if role == "quitter":
        sys.exit("the loss is not finite")
    w = Array(msg.content["arrays"]["w"].numpy() + np.float32(0.1))
    return Message(RecordDict({"arrays": ArrayRecord({"w": w})}), reply_to=msg)


server = ServerApp()


@server.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    logging.getLogger("flwr").addHandler(logging.FileHandler(folder / "server.log"))
    kept, is_resumed = folder / "kept", (folder / "kept").exists()
    nodes = {name: 3 if is_resumed else 4 for name in ("min_train_nodes", "min_available_nodes")}
    inner = FedAvgM(fraction_evaluate=0.0, server_momentum=0.5, **nodes)
    strategy, w = JoPEQSumStrategy(inner, scheme), np.zeros(8, np.float32)
    if is_resumed:
        state, w = pickle.loads(kept.read_bytes())
        strategy.load_state_dict(state)

    def keep(number, arrays):
        """As an app would save its model after each round."""
        if number:
            inner.min_train_nodes = inner.min_available_nodes = 3
            kept.write_bytes(pickle.dumps((strategy.state_dict(), arrays["w"].numpy())))
        if number == 2 and not is_resumed:
            (folder / "saved").touch()
            time.sleep(3600)

    def is_dead(messages):
        here = {str(message.metadata.dst_node_id) for message in messages}
        return (folder / "victim-is-dead").exists() and (folder / "victim").read_text() in here

    patient = Patient(grid, is_dead)
    result = strategy.start(patient, ArrayRecord({"w": Array(w)}), 4, evaluate_fn=keep)
    report = {
        "rounds": [[r.server_round, len(r.bytes_up), len(r.missing)] for r in strategy.reports],
        "codes": sorted({f.code for r in strategy.reports for f in r.failed}),
        "moved": bool((result.arrays["w"].numpy() != w).all()),
    }
    (folder / "partial").write_text(json.dumps(report))
    (folder / "partial").rename(folder / "report.json")
'''


def test_a_run_goes_on_after_a_killed_node_and_a_killed_superlink(tmp_path):
    """More rounds are asked for than paid: the run ends by itself, with the model."""
    roles = ("honest", "honest", "quitter", "victim")
    with deployment(tmp_path, app=RESUMED) as federation:
        for part, role in enumerate(roles):
            federation.add_node(f"node{part}", part, 4, role)
        federation.run()
        living = [federation.superlink, *federation.nodes.values()]
        wait_for((tmp_path / "victim").exists, alive=living)
        federation.stop(federation.nodes["node3"], signal.SIGKILL)
        (tmp_path / "victim-is-dead").touch()
        wait_for((tmp_path / "saved").exists, alive=[federation.superlink])
        for process in (federation.superlink, *federation.nodes.values()):
            federation.stop(process, signal.SIGKILL)
        federation.start_superlink("superlink-again")
        for part, role in enumerate(roles[:3]):
            federation.add_node(f"node{part}", part, 4, role)
        federation.run()
        report = federation.report()
        log = (tmp_path / "server.log").read_text()
    # node, clients in the sum, nodes that did not answer
    assert report["rounds"] == [[1, 4, 0], [2, 3, 1], [3, 3, 0], [4, 0, 0]]
    assert report["codes"] == ["budget-spent"]
    assert report["moved"]
    victim = (tmp_path / "victim").read_text()
    assert f"round 2: node {victim} did not answer" in log
    ledgers = [tmp_path / f"home-node{n}/jopeq/ledgers/client.json" for n in range(4)]
    assert [jopeq.Ledger.load(path).rounds for path in ledgers] == [3, 3, 3, 2]
