"""Time rounds of records and of plain FedAvg with the same app, on Flower's deployment engine.

    PYTHONPATH=src:. python benchmarks/records_flower.py [--rounds 20] [--nodes 10]

Two SuperLinks on 127.0.0.1, each with its SuperNodes. Every message is answered by a process of its
own, which imports everything anew; the plain app imports nothing of jopeq. The two federations take
turns, a round of one and then a round of the other, so that both see the same load of the machine.
Seconds are of a round on the server, the first left out: medians, and the quartiles behind them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jopeq
from jopeq.files import user_cache
from jopeq.kernels.cache import is_compiled
from tests.flower.test_federation import deployment
from tests.flower.test_records import write_identity
from timing import cores

APP = """
import json, time
from pathlib import Path
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn.functional import cross_entropy

NODES, ROUNDS, WIDTH, HIDDEN, IS_PRIVATE, TURNS = SETTINGS
if IS_PRIVATE:
    import jopeq
    from jopeq.flower import RecordStrategy, record_client

    scheme = jopeq.RecordSum(
        epsilon=3.0, clip=1.0, records=100 * NODES, sampling=1.0, rounds=ROUNDS + 2, clients=NODES,
        threshold=max(3, NODES - 2), most_records=100, largest_mean=0.5,
    )


def net():
    if not HIDDEN:
        return nn.Linear(WIDTH, 10)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))


def records(context):
    numbers = torch.Generator().manual_seed(int(context.node_config["part"]))
    inputs = torch.randn(100, WIDTH, generator=numbers)
    return inputs, torch.randint(10, (100,), generator=numbers)


client = ClientApp()


@client.train()
def train(msg, context):
    model = net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = records(context)
    cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    content = {"arrays": ArrayRecord(model.state_dict())}
    return Message(RecordDict({**content, "metrics": MetricRecord({"num-examples": 100})}),
                   reply_to=msg)


if IS_PRIVATE:
    example = torch.zeros(WIDTH), torch.tensor(0)
    client = record_client(
        scheme, model=net, loss=cross_entropy, load=records, example=example
    )
server = ServerApp()


@server.main()
def main(grid, context):
    folder, turns = Path(context.run_config["folder"]), Path(TURNS)
    mine, other = ("records", "plain") if IS_PRIVATE else ("plain", "records")
    seconds, began = [], 0.0

    def take_turns(number, arrays):
        nonlocal began  # plain goes first: a round of plain, one of records, one of plain
        seconds.append(time.monotonic() - began)
        (turns / f"{mine}-{number}").touch()
        awaited = turns / f"{other}-{number + IS_PRIVATE}"
        while number + IS_PRIVATE <= ROUNDS and not awaited.exists():
            time.sleep(0.05)
        began = time.monotonic()

    if IS_PRIVATE:
        strategy = RecordStrategy(
            scheme, model=net(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            trusted=folder / "trusted", min_available_nodes=NODES,
        )
    else:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    arrays = ArrayRecord(net().state_dict())
    strategy.start(grid, arrays, num_rounds=ROUNDS, evaluate_fn=take_turns)
    ups = [max(r.bytes_up.values()) for r in strategy.reports] if IS_PRIVATE else []
    report = {"seconds": seconds[2:], "bytes": ups[1:]}  # without the start and round 1
    (folder / "partial").write_text(json.dumps(report))
    (folder / "partial").rename(folder / "report.json")
"""

MODELS = {"linear": (1280, 0), "mlp": (784, 1258)}  # inputs, and hidden units


def measure(nodes: int, rounds: int, width: int, hidden: int) -> list[dict[str, list]]:
    """Seconds and bytes of every round but the first, of plain FedAvg and of records."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        turns, federations = Path(name, "turns"), []
        turns.mkdir()
        for is_private in (False, True):
            folder = Path(name, "records" if is_private else "plain")
            folder.mkdir()
            settings = (nodes, rounds, width, hidden, is_private, str(turns))
            app = APP.replace("SETTINGS", repr(settings))
            federation = stack.enter_context(deployment(folder, app=app, is_forked=False))
            add_nodes(federation, folder, nodes)
            federations.append(federation)
        for federation in federations:
            federation.run()
        return [federation.report(most=24 * 3600.0) for federation in federations]


def add_nodes(federation: Any, folder: Path, nodes: int) -> None:
    """SuperNodes with keys and ledgers, which the plain app leaves alone."""
    publics = [write_identity(folder, part)[1] for part in range(nodes)]
    (folder / "trusted").write_text("\n".join(publics))
    for part in range(nodes):
        jopeq.Ledger.create(folder / f"{part}.json", 3.0, 1e-5)
        names = {"ledger": f"{part}.json", "identity": f"{part}.pem", "trusted": "trusted"}
        config = " ".join(f'jopeq-{key}="{folder / file}"' for key, file in names.items())
        federation.add_node(f"node{part}", part, nodes, "honest", config)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    given = parser.parse_args()
    os.environ.setdefault("XDG_CACHE_HOME", str(user_cache().parent))  # deployments have own homes
    print(f"compiled kernels: {is_compiled()} (jopeq doctor --warmup compiles them)")
    print(f"{given.nodes} SuperNodes, {given.rounds} rounds, {cores()} cores: seconds a round")
    print(f"{'parameters':>12}{'FedAvg':>22}{'records':>22}{'ratio':>7}{'bytes up':>11}")
    for width, hidden in (MODELS[name] for name in given.models):
        count = (width + 1) * hidden + (hidden + 1) * 10 if hidden else (width + 1) * 10
        plain, private = measure(given.nodes, given.rounds, width, hidden)
        quartiles = [statistics.quantiles(one["seconds"], n=4) for one in (plain, private)]
        told = "".join(f"{f'{q[1]:.2f} ({q[0]:.2f} to {q[2]:.2f})':>22}" for q in quartiles)
        ratio, up = quartiles[1][1] / quartiles[0][1], max(private["bytes"])
        print(f"{count:>12,}{told}{ratio:7.2f}{up:>11,}", flush=True)
        print(json.dumps({"plain": plain, "records": private}), flush=True)


if __name__ == "__main__":
    main()
