"""A sum over clients on Flower's deployment engine, over TLS: a node is killed in each step.

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
TERMS = {"epsilon": 2.0, "clip": 1e6, "clients": 9, "threshold": 5, "colluding": 0}
VICTIMS = ("TERMS", "ROSTER", "INBOX", "SURVIVORS")

APP = '''
import json, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from jopeq import ClientSum, RecordSum
from jopeq.circle import messages
from jopeq.circle.circle import Kind, read_message
from jopeq.flower import SumMod, SumStrategy

scheme = ClientSum(**TERMS)


def encode(self, total, **_):
    return np.rint(total.to_numpy()).astype(np.uint32)


def decode(self, total, **_):
    return total / 9.0


RecordSum.encode, RecordSum.decode = encode, decode  # no noise: the sum can be checked exactly


def name_of(message):
    data = message.content["jopeq-sum"]["message"]
    return messages.Kind(messages.kind_of(read_message(data, Kind.PHASE, 3)[2])).name


def die(msg, ctxt, call_next):
    """Outermost: a node that dies before it answers one kind of message."""
    if name_of(msg) == ctxt.node_config["role"]:
        Path(ctxt.run_config["folder"], f"{name_of(msg)}-arrived").touch()
        time.sleep(3600)
    return call_next(msg, ctxt)


class Watching:
    """A grid that says at once of a killed node what Flower says after a minute."""

    def __init__(self, grid, folder):
        self.grid, self.folder, self.sent = grid, folder, {}

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        numbers = list(self.grid.push_messages(messages))
        self.sent = dict(zip(numbers, messages))
        return numbers

    def pull_messages(self, numbers):
        found = list(self.grid.pull_messages(numbers))
        dead = Path(self.folder, f"{name_of(self.sent[numbers[0]])}-is-dead")
        if not found and len(numbers) == 1 and dead.exists():  # all others have answered
            (number,) = numbers
            reply = Message(Error(2, "the node is unavailable"), reply_to=self.sent[number])
            vars(reply.metadata)["_reply_to_message_id"] = number
            found.append(reply)
        return found


client = ClientApp(mods=[die, SumMod(scheme, unsigned=True)])


@client.train()
def train(msg, context):
    w = msg.content["arrays"]["w"].numpy().copy()
    w[:10] += 1 + int(context.node_config["part"])  # few: sums that look uniform are dropped
    content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": MetricRecord()})
    return Message(content, reply_to=msg)


server = ServerApp()


@server.main()
def main(grid, context):
    folder = context.run_config["folder"]
    try:
        found = run(Watching(grid, folder))
    except Exception as error:
        found = {"error": repr(error)}
    Path(folder, "partial").write_text(json.dumps(found))
    Path(folder, "partial").rename(Path(folder, "report.json"))


def run(grid):
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=9, min_available_nodes=9)
    strategy = SumStrategy(inner, scheme, unsigned=True, min_available_nodes=9, deadline=3600.0)
    zeros = ArrayRecord({"w": Array(np.zeros(ENTRIES, np.float32))})
    result = strategy.start(grid, zeros, 1)
    (metrics,) = result.train_metrics_clientapp.values()
    values = sorted(set(result.arrays["w"].numpy().tolist()))
    report = strategy.reports[0]
    refusals = [report.rejected, [one.reason for one in report.failed if one.is_refusal]]
    bits = scheme.plan(ENTRIES).bits
    return {"values": values, "metrics": dict(metrics), "refusals": refusals, "bits": bits}
'''


def test_a_node_is_killed_in_each_step(tmp_path):
    app = APP.replace("ENTRIES", str(ENTRIES)).replace("**TERMS", f"**{TERMS}")
    with deployment(tmp_path, secure=True, app=app) as federation:
        for part in range(9):
            jopeq.Ledger.create(tmp_path / f"{part}.json", 2.0, 1e-5)
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
    assert report["values"] == [0.0, pytest.approx(sum(1 + part for part in survivors) / 6)]
    assert report["metrics"]["jopeq-clients"] == 6
    assert report["refusals"] == [{}, []]
    counted = [v for name, v in report["metrics"].items() if name.startswith("jopeq-bytes-up/")]
    share = ENTRIES * report["bits"] / 8
    assert share < max(counted) < 1.01 * share  # the share, and the keys
    # everything a SuperNode sent since it started: polling, heartbeats and headers included
    assert max(ups.values()) < 2 * share
    rounds = [jopeq.Ledger.load(tmp_path / f"{part}.json").rounds for part in range(9)]
    assert rounds == [0, 0, 0, 1, 1, 1, 1, 1, 1]  # the third dies before its mod is asked
