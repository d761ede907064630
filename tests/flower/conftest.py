"""Flower messages without a network: what a ServerApp sends, and what a ClientApp answers."""

import os
from importlib.util import find_spec

import numpy as np
import pytest

import jopeq

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
collect_ignore_glob = []
if find_spec("flwr") is None:
    collect_ignore_glob.append("test_*.py")
else:
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp import ClientApp

    if find_spec("flwr.supercore.task_identity") is not None:  # not in older versions
        from flwr.supercore.task_identity import TaskIdentity

        # Flower knows who sends a message from the process it runs in: here, the server.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class FakeGrid:
    """As much of a Grid as strategies ask for."""

    def __init__(self, nodes):
        self.nodes = list(nodes)

    def get_node_ids(self):
        return self.nodes


def records(arrays, key="arrays"):
    return {key: ArrayRecord({name: Array(np.asarray(v)) for name, v in arrays.items()})}


def train_message(arrays, *, kind="train", node=7, **others):
    content = RecordDict({**records(arrays), "config": ConfigRecord({"lr": 0.1}), **others})
    return Message(content=content, message_type=kind, dst_node_id=node)


def context(run_config=None, node_config=None, node=7):
    return Context(
        run_id=1,
        node_id=node,
        node_config=node_config or {},
        state=RecordDict(),
        run_config=run_config or {},
    )


def trainer(change, mods, *, examples=10, key="arrays"):
    """A ClientApp whose training is ``change(name, array)``."""
    app = ClientApp(mods=mods)

    def answer(msg, _):
        arrays = {}
        for record in msg.content.array_records.values():
            for name in list(record):
                arrays[name] = change(name, record.pop(name).numpy())  # as careless apps do
        metrics = MetricRecord({"num-examples": examples, "loss": 0.5})
        content = RecordDict({**records(arrays, key), "metrics": metrics})
        return Message(content=content, reply_to=msg)

    app.train()(answer)
    app.evaluate()(answer)
    app.query()(answer)
    return app


class Federation:
    """A strategy and its clients in one process; ``spoil(node, reply)`` may tamper."""

    def __init__(self, strategy, apps, contexts=None):
        self.strategy = strategy
        self.apps = apps
        self.grid = FakeGrid(apps)
        self.contexts = contexts or {node: context(node=node) for node in apps}

    def round(self, number, arrays, spoil=None):
        messages = self.strategy.configure_train(number, arrays, ConfigRecord(), self.grid)
        replies = self._answers(messages, spoil)
        return self.strategy.aggregate_train(number, replies)

    def evaluate(self, number, arrays):
        messages = self.strategy.configure_evaluate(number, arrays, ConfigRecord(), self.grid)
        return self.strategy.aggregate_evaluate(number, self._answers(messages, None))

    def _answers(self, messages, spoil):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            # what travels is a copy, as on a network
            content = RecordDict({k: _copy(v) for k, v in message.content.items()})
            received = Message(
                content=content, message_type=message.metadata.message_type, dst_node_id=node
            )
            reply = self.apps[node](received, self.contexts[node])
            if spoil is not None:
                reply = spoil(node, reply)
            if reply is not None:
                replies.append(reply)
        return replies


def _copy(record):
    return ArrayRecord(dict(record)) if isinstance(record, ArrayRecord) else record.copy()


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """Ledgers that nobody named lie in Flower's home."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))


@pytest.fixture
def flower(tmp_path):
    """The tools of this file by name; ``ledger`` makes a new ledger's file and returns its path."""

    def ledger(budget, delta=0.0, *, allow_any_scheme=False):
        path = tmp_path / f"ledger{len(list(tmp_path.iterdir()))}.json"
        jopeq.Ledger.create(path, budget, delta, allow_any_scheme=allow_any_scheme)
        return path

    class Tools:
        pass

    tools = Tools()
    tools.records, tools.train_message, tools.context = records, train_message, context
    tools.trainer, tools.Federation, tools.FakeGrid = trainer, Federation, FakeGrid
    tools.ledger = ledger
    return tools
