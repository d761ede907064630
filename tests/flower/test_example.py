from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq.flower import PayloadStrategy, RecordStrategy, SumStrategy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower-mnist"


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("torch")
    sys.path.insert(0, str(EXAMPLE))
    from flower_mnist import client_app, server_app, task

    yield client_app, server_app, task
    sys.path.remove(str(EXAMPLE))


def test_it_learns(flower, example):
    client_app, server_app, task = example
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config = {**app["config"], "local-steps": 30}
    contexts = {
        node: flower.context(config, {"partition-id": node - 2, "num-partitions": 3}, node)
        for node in (2, 3, 4)
    }
    strategy = PayloadStrategy(FedAvg(), task.scheme)
    apps = dict.fromkeys(contexts, client_app.app)
    clients = flower.Federation(strategy, apps, contexts)
    arrays = ArrayRecord(task.new_model().state_dict())
    before = server_app.evaluate(0, arrays)["accuracy"]
    for number in (1, 2, 3):
        arrays, metrics = clients.round(number, arrays)
    assert before < 0.3 < 0.6 < server_app.evaluate(3, arrays)["accuracy"]
    assert "jopeq-bytes-up" in metrics
    assert "train-loss" not in metrics  # private runs keep it


@pytest.mark.parametrize(
    ("page", "count", "objects"),
    [
        ("README.md", 1, 1),
        ("docs/flower.md", 6, 6),
        ("docs/models.md", 2, 2),
        ("docs/statistics.md", 2, 2),
    ],
)
def test_the_printed_lines_run_as_they_stand(page, count, objects, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    trusted = Path("trusted.txt")
    trusted.touch(0o600)
    trusted.write_text("\n".join(f"{number:064x}" for number in range(1, 11)))
    terms = {"records": 4_000, "sampling": 1.0, "rounds": 60, "clients": 10, "threshold": 5}
    known = {  # what the pages leave to the reader
        "torch": torch,
        "jopeq": jopeq,
        "Net": lambda: torch.nn.Linear(520, 10),
        "body": torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(16), torch.nn.Flatten()),
        "load_records": lambda context: None,
        "load_table": lambda context: None,
        "scheme": jopeq.RecordSum(epsilon=1.0, clip=1.0, **terms),
    }
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)
    programmes = [block for block in blocks if "jopeq.flower" in block and ">>>" not in block]
    assert len(programmes) == count
    made = []
    for programme in programmes:  # each alone, as a file of its own
        names = dict(known)
        exec(programme.partition("strategy.start(")[0], names)
        made += [names[name] for name in ("strategy", "app") if name in names]
    kinds = RecordStrategy | PayloadStrategy | SumStrategy | ClientApp | ServerApp
    assert len(made) == objects
    assert all(isinstance(one, kinds) for one in made)


def test_the_hospitals_example_asks_and_then_trains(flower, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from tests.flower.delivery import Grid
    from tests.flower.identities import write_identity

    monkeypatch.syspath_prepend(str(ROOT / "examples" / "flower-hospitals"))
    from flower_hospitals import client_app, server_app, task

    contexts, trusted = {}, tmp_path / "trusted.txt"
    for number in range(task.HOSPITALS):
        ledger, (key, public) = flower.ledger(1.0, 1e-4), write_identity(tmp_path, number)
        config = {"hospital": number, "jopeq-ledger": str(ledger), "jopeq-identity": str(key)}
        config |= {"jopeq-trusted": str(trusted), "jopeq-max-epsilon": 0.8}
        contexts[number + 2] = flower.context(node_config=config, node=number + 2)
        with trusted.open("a") as file:
            file.write(f"{public}\n")
    grid = Grid(flower, dict.fromkeys(contexts, client_app.app), contexts)
    config = {"num-server-rounds": 2, "trusted": str(trusted), "table": "", "checkpoint": ""}
    server_app.main(grid, flower.context(config))
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds == ["query"] * 20 + ["train"] * 30  # keys and shares of each
    arrays = grid.sent[-1].content["arrays"]
    found = {name: arrays[f"standardise.{name}"].numpy() for name in ("lower", "means", "upper")}
    assert len(found["means"]) == 30
    assert (found["lower"] <= found["means"]).all()
    assert (found["means"] <= found["upper"]).all()
    assert arrays["linear.weight"].numpy().any()
    assert server_app.evaluate(1, arrays)["accuracy"] > 0.3
    spent = jopeq.Ledger.load(ledger).spent.epsilon
    assert 0.2 < spent < 0.8
    assert task.scheme.plan(31).epsilon <= 0.8
