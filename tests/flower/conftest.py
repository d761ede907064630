"""Flower messages without a network: what a ServerApp sends, and what a ClientApp answers."""

import os
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import jopeq

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
collect_ignore_glob = []
if find_spec("torch") is None:
    collect_ignore_glob += ["test_record*.py", "test_guard.py"]
if find_spec("flwr") is None:
    collect_ignore_glob.append("test_*.py")
else:
    from flwr import app as flwr
    from flwr.clientapp import ClientApp

    if find_spec("flwr.supercore.task_identity") is not None:  # not in older versions
        from flwr.supercore.task_identity import TaskIdentity

        # Flower knows who sends a message from the process it runs in: here, the server.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def records(arrays, key="arrays"):
    made = {
        n: v if isinstance(v, flwr.Array) else flwr.Array(np.asarray(v)) for n, v in arrays.items()
    }
    return {key: flwr.ArrayRecord(made)}


def train_message(arrays, *, kind="train", node=7, **others):
    content = flwr.RecordDict(
        {**records(arrays), "config": flwr.ConfigRecord({"lr": 0.1}), **others}
    )
    return flwr.Message(content=content, message_type=kind, dst_node_id=node)


def context(run_config=None, node_config=None, node=7):
    configs = {"node_config": node_config or {}, "run_config": run_config or {}}
    return flwr.Context(run_id=1, node_id=node, state=flwr.RecordDict(), **configs)


def copied(message):
    """What travels is a copy, as on a network."""
    copies = {
        key: flwr.ArrayRecord(dict(record))
        if isinstance(record, flwr.ArrayRecord)
        else record.copy()
        for key, record in message.content.items()
    }
    given = message.metadata
    content = flwr.RecordDict(copies)
    return flwr.Message(content, message_type=given.message_type, dst_node_id=given.dst_node_id)


def trainer(change, mods, *, examples=10, key="arrays"):
    """A ClientApp whose training is ``change(name, array)``."""
    app = ClientApp(mods=mods)

    def answer(msg, _):
        arrays = {}
        for record in msg.content.array_records.values():
            for name in list(record):
                arrays[name] = change(name, record.pop(name).numpy())  # as careless apps do
        metrics = flwr.MetricRecord({"num-examples": examples, "loss": 0.5})
        content = flwr.RecordDict({**records(arrays, key), "metrics": metrics})
        return flwr.Message(content=content, reply_to=msg)

    for register in (app.train, app.evaluate, app.query):
        register()(answer)
    return app


class Federation:
    """A strategy and its clients in one process; ``spoil(node, reply)`` may tamper."""

    def __init__(self, strategy, apps, contexts=None):
        self.strategy = strategy
        self.apps = apps
        self.grid = SimpleNamespace(get_node_ids=lambda: list(apps))
        self.contexts = contexts or {node: context(node=node) for node in apps}

    def round(self, number, arrays, spoil=None):
        messages = self.strategy.configure_train(number, arrays, flwr.ConfigRecord(), self.grid)
        replies = self._answers(messages, spoil)
        return self.strategy.aggregate_train(number, replies)

    def evaluate(self, number, arrays):
        messages = self.strategy.configure_evaluate(number, arrays, flwr.ConfigRecord(), self.grid)
        return self.strategy.aggregate_evaluate(number, self._answers(messages, None))

    def _answers(self, messages, spoil):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            reply = self.apps[node](copied(message), self.contexts[node])
            if spoil is not None:
                reply = spoil(node, reply)
            if reply is not None:
                replies.append(reply)
        return replies


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """Ledgers that nobody named lie in Flower's home; servers do not wait between two looks."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    for name in ("_WAIT", "_POLL"):
        monkeypatch.setattr(f"jopeq.flower.server.{name}", 0.0)


@pytest.fixture
def flower(tmp_path):
    """What this file has, by name; ``ledger`` makes a new ledger's file and returns its path."""

    def ledger(budget, delta=0.0):
        path = tmp_path / f"ledger{len(list(tmp_path.iterdir()))}.json"
        jopeq.Ledger.create(path, budget, delta)
        return path

    made = {"records": records, "train_message": train_message, "context": context}
    return SimpleNamespace(
        **made, copied=copied, trainer=trainer, Federation=Federation, ledger=ledger
    )
