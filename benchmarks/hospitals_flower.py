"""Ten hospitals on Flower's deployment engine at a patient's ε = 1, and the run in a process.

    PYTHONPATH=src:. python benchmarks/hospitals_flower.py choose
    PYTHONPATH=src:. python benchmarks/hospitals_flower.py here --runs 20
    PYTHONPATH=src:. python benchmarks/hospitals_flower.py flower [--forked]

``choose`` tries clips and learning rates on digits held out of the training digits. ``here`` trains
with real shares and no network, with all hospitals and with one away. ``flower`` starts a SuperLink
and ten SuperNodes on 127.0.0.1, kills a SuperNode while it trains in round 7, starts it again for
round 12, kills the SuperLink while hospitals train in round 20, and resumes. It compares accuracy,
the ledgers with the shares that hospitals were asked for, and the ε that the server prints with the
accountant's. Every line goes to results/hospitals_flower.jsonl. ``--forked`` shares imports among
Flower's processes, which makes rounds short and changes nothing else.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import jopeq
from jopeq.circle.circle_client import read_audit
from jopeq.files import user_cache
from jopeq.random.streams import fresh_seed
from jopeq.sums.record_accounting import epsilon_of
from jopeq.torch import clipped_sum
from jopeq_lab.training.data import load
from jopeq_lab.training.features import features, finished
from tests.flower.test_federation import deployment, wait_for
from tests.flower.test_records import write_identity

RESULTS = Path(__file__).parents[1] / "results" / "hospitals_flower.jsonl"
HOSPITALS, ROUNDS, SPARE = 10, 30, 4  # every attempt that fails takes one of the spare shares
VICTIM, KILLED, BACK, CRASH = 3, 7, 12, 20  # a hospital, its rounds, and the SuperLink's
HELD = 800  # training digits that choose the settings
CLIPS, RATES = (0.1, 0.3, 1.0), (5.0, 10.0, 20.0, 40.0, 80.0)

Samples = tuple[torch.Tensor, torch.Tensor]


def samples() -> tuple[Samples, Samples]:
    """4,000 digits to train on and 1,000 to test on, as public features."""
    digits = load("mnist5k")
    train, test = (
        finished(features(images, "hog")) for images in (digits.train_inputs, digits.test_inputs)
    )
    return (train, digits.train_labels), (test, digits.test_labels)


def scheme_of(records: int, clip: float) -> jopeq.RecordSum:
    return jopeq.RecordSum(
        epsilon=1.0,
        clip=clip,
        load=records,
        sampling=1.0,
        rounds=ROUNDS + SPARE,
        clients=HOSPITALS,
        threshold=5,
        largest_mean=0.3,
        most_load=records // HOSPITALS,
    )


def net(width: int) -> nn.Module:
    model = nn.Linear(width, 10, bias=False)
    nn.init.zeros_(model.weight)
    return model


def accuracy(model: nn.Module, samples: Samples) -> float:
    with torch.no_grad():
        return float((model(samples[0]).argmax(1) == samples[1]).double().mean())


def train_here(train: Samples, test: Samples, clip: float, lr: float, away: range) -> float:
    """Accuracy after all rounds, the victim missing in those of ``away``."""
    inputs, labels = train
    scheme, model = scheme_of(len(labels), clip), net(inputs.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ROUNDS)
    for number in range(1, ROUNDS + 1):
        seed, total = fresh_seed(), 0
        cohort = [part for part in range(HOSPITALS) if part != VICTIM or number not in away]
        for part in cohort:
            mine = slice(part, None, HOSPITALS)
            found = clipped_sum(model, cross_entropy, inputs[mine], labels[mine], clip)
            share = scheme.encode(found, seed=seed, clients=len(cohort))
            total = total + share.astype(np.int64)
        size = model.weight.numel()
        bits = scheme.plan(size, len(cohort)).bits
        mean = scheme.decode(
            total & ((1 << bits) - 1), seed=seed, dimension=size, clients=len(cohort)
        )
        model.weight.grad = torch.from_numpy(mean.reshape(model.weight.shape)).float()
        optimizer.step()
        schedule.step()
    return accuracy(model, test)


def choose() -> None:
    """The mean of four runs for each setting, each on other digits held out of the training set."""
    (inputs, labels), _ = samples()
    for clip in CLIPS:
        for lr in RATES:
            found = []
            for fold in range(len(labels) // HELD - 1):
                is_held = torch.arange(len(labels)) // HELD == fold
                kept, held = ((inputs[at], labels[at]) for at in (~is_held, is_held))
                found.append(train_here(kept, held, clip, lr, range(0)))
            write({"kind": "trial", "clip": clip, "lr": lr, "held_out": found})


def write(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


APP = """
import json, time
from pathlib import Path
import numpy as np
import torch
from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from torch import nn
from torch.nn.functional import cross_entropy
import jopeq
from jopeq.flower import RecordStrategy, record_client

TERMS, LR, WIDTH, HOSPITALS, ROUNDS, VICTIM, KILLED, BACK, CRASH = SETTINGS
scheme = jopeq.RecordSum(**TERMS)


def net():
    model = nn.Linear(WIDTH, 10, bias=False)
    nn.init.zeros_(model.weight)
    return model


def samples(file):
    with np.load(file) as found:
        return torch.from_numpy(found["inputs"]), torch.from_numpy(found["labels"])


def records(context):
    folder, part = Path(context.run_config["folder"]), int(context.node_config["part"])
    (folder / f"asked-{part}-{time.time_ns()}").touch()  # counts shares independently of the ledger
    number = len(list(folder.glob("done-*")))  # the round: there is a done-0
    if part == VICTIM and number == KILLED and not (folder / "victim-is-dead").exists():
        (folder / "victim-trains").touch()
        time.sleep(3600)
    if number == CRASH:
        (folder / "crash-now").touch()
        while not (folder / "superlink-is-dead").exists():
            time.sleep(0.1)
    return samples(folder / f"hospital{part}.npz")


example = torch.zeros(WIDTH), torch.tensor(0)
client = record_client(scheme, model=net, loss=cross_entropy, load=records, example=example)
server = ServerApp()


@server.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    strategy = RecordStrategy(
        scheme,
        model=net(),
        optimizer=lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9),
        schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ROUNDS),
        trusted=folder / "trusted",
        min_available_nodes=HOSPITALS - 1,
        checkpoint=folder / "run.pt",
        csv=folder / "rounds.csv",
    )
    inputs, labels = samples(folder / "test.npz")

    def wait_for_all():
        while len(list(grid.get_node_ids())) < HOSPITALS:
            time.sleep(1.0)

    def evaluate(number, arrays):
        model = net()
        model.load_state_dict(arrays.to_torch_state_dict())
        (folder / f"done-{number}").touch()
        if number == BACK - 2:  # it sends its key during the next round
            wait_for_all()
        right = (model(inputs).argmax(1) == labels).double().mean()
        return MetricRecord({"accuracy": float(right)})

    wait_for_all()
    strategy.start(grid, num_rounds=ROUNDS, evaluate_fn=evaluate)
    ups = [up for report in strategy.reports for up in report.bytes_up.values()]
    report = {"epsilon": strategy.epsilon, "bytes_up": min(ups)}  # of one attempt
    (folder / "partial").write_text(json.dumps(report))
    (folder / "partial").rename(folder / "report.json")
"""


def run_flower(folder: Path, clip: float, lr: float, is_forked: bool) -> dict[str, Any]:
    """The federation, its failures, and what is left on disk of all of it."""
    train, test = samples()
    scheme, width = scheme_of(len(train[1]), clip), train[0].shape[1]
    for part in range(HOSPITALS):
        mine = slice(part, None, HOSPITALS)
        np.savez(folder / f"hospital{part}.npz", inputs=train[0][mine], labels=train[1][mine])
        jopeq.Ledger.create(folder / f"{part}.json", scheme.epsilon, scheme.delta)
    np.savez(folder / "test.npz", inputs=test[0], labels=test[1])
    keys = [write_identity(folder, part)[1] for part in range(HOSPITALS)]
    (folder / "trusted").write_text("\n".join(keys))
    terms = dict(json.loads(scheme.spec)[1])
    settings = (terms, lr, width, HOSPITALS, ROUNDS, VICTIM, KILLED, BACK, CRASH)
    began = time.monotonic()
    with deployment(
        folder, app=APP.replace("SETTINGS", repr(settings)), is_forked=is_forked
    ) as federation:

        def add_node(part: int) -> None:
            names = {"ledger": f"{part}.json", "identity": f"{part}.pem", "trusted": "trusted"}
            config = " ".join(f'jopeq-{key}="{folder / file}"' for key, file in names.items())
            limits = f"jopeq-max-epsilon={scheme.epsilon} jopeq-max-delta={scheme.delta}"
            federation.add_node(f"node{part}", part, HOSPITALS, "honest", f"{config} {limits}")

        def wait(name: str) -> None:
            wait_for((folder / name).exists, alive=[federation.superlink], most=3 * 3600.0)

        for part in range(HOSPITALS):
            add_node(part)
        federation.run()
        wait("victim-trains")
        federation.stop(federation.nodes[f"node{VICTIM}"], signal.SIGKILL)
        (folder / "victim-is-dead").touch()
        wait(f"done-{BACK - 2}")
        add_node(VICTIM)
        wait("crash-now")
        federation.stop(federation.superlink, signal.SIGKILL)
        (folder / "superlink-is-dead").touch()
        for process in federation.nodes.values():  # a new SuperLink does not know them: they end
            federation.stop(process, signal.SIGKILL)
        federation.start_superlink("superlink-again")
        for part in range(HOSPITALS):
            add_node(part)
        federation.run()
        wait("report.json")
        report = federation.report()
    seconds = time.monotonic() - began
    model = net(width)
    model.load_state_dict(torch.load(folder / "run.pt", weights_only=True)["model"])
    with (folder / "rounds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ledgers = [jopeq.Ledger.load(folder / f"{part}.json") for part in range(HOSPITALS)]
    asked = [len(list(folder.glob(f"asked-{part}-*"))) for part in range(HOSPITALS)]
    audits = [folder / f"{part}.json.circle" / "audit.jsonl" for part in range(HOSPITALS)]
    spent = [epsilon_of((scheme.spend(10 * width, ledger.rounds),), scheme.delta, scheme.epsilon)
             for ledger in ledgers]  # fmt: skip
    return {
        "accuracy": accuracy(model, test),
        "rounds": len(rows),
        "hospitals": [int(row["hospitals"]) for row in rows],
        "attempts": [int(row["attempt"]) for row in rows],
        "asked": asked,
        "ledgers": [ledger.rounds for ledger in ledgers],
        "audits": [len(read_audit(path)) for path in audits],
        "epsilon_printed": report["epsilon"],
        "epsilon_accountant": max(spent),
        "epsilon_ledgers": max(ledger.spent.epsilon for ledger in ledgers),
        "bits": scheme.plan(10 * width).bits,
        "bytes_up": report["bytes_up"],
        "seconds_a_round": statistics.median(float(row["seconds"]) for row in rows),
        "seconds": round(seconds),
    }


def chosen() -> dict[str, float]:
    """The setting of highest mean accuracy on the digits held out."""
    lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    trials = [line for line in lines if line["kind"] == "trial"]
    best = max(trials, key=lambda line: statistics.mean(line["held_out"]))
    return {"clip": best["clip"], "lr": best["lr"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("choose", "here", "flower"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--forked", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.step == "choose":
        choose()
    elif given.step == "here":
        train, test = samples()
        for away in (range(0), range(KILLED, BACK)):
            found = [train_here(train, test, **chosen(), away=away) for _ in range(given.runs)]
            write({"kind": "here", **chosen(), "away": list(away), "accuracy": found})
    else:
        # deployments have own homes
        os.environ.setdefault("XDG_CACHE_HOME", str(user_cache().parent))
        with tempfile.TemporaryDirectory() as name:
            found = run_flower(Path(name), **chosen(), is_forked=given.forked)
        write({"kind": "flower", "forked": given.forked, **chosen(), **found})


if __name__ == "__main__":
    main()
