"""Local training of all clients at once against a plain loop over clients, in one process.

    python benchmarks/federated.py                  # two cores, MNIST-sized inputs, K=10
    python benchmarks/federated.py --compile        # also torch.compile, which takes a minute
    python benchmarks/federated.py --device cuda    # the CIFAR CNN with K=30

Runs of the two sides alternate, and each side counts its best: ratios hold on a busy machine.
The difference is the largest of an update's entries, for the median client: now and then rounding
decides which of two pixels a pooling takes, and that client then goes another way, in either side.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

import jopeq
from jopeq_lab.training import models
from jopeq_lab.training.data import Dataset
from jopeq_lab.training.local import LocalTrainer, batches
from jopeq_lab.training.simulation import Simulation, TrainConfig

STEPS, BATCH, RATE, MOMENTUM = 100, 16, 0.1, 0.5
CLASSES = 10
AIMS = {"linear": 5.0, "mlp": 4.0, "cnn": 2.0, "cifar-cnn": 10.0}
SCHEMES = [
    jopeq.scheme("none"),
    jopeq.scheme("sdq", rate=1),
    jopeq.scheme("laplace", epsilon=4),
    jopeq.scheme("laplace+sdq", epsilon=4, rate=1),
    jopeq.scheme("jopeq", epsilon=4, rate=1),
    jopeq.scheme("response", epsilon=4, rate=2),
]


def make_samples(shape: tuple[int, int, int], count: int, device: str):
    source = torch.Generator().manual_seed(0)
    inputs = 0.3 * torch.randn(count, *shape, generator=source)
    labels = torch.randint(0, CLASSES, (count,), generator=source)
    return inputs.to(device), labels.to(device)


def plain_round(model: nn.Module, inputs, labels, order) -> torch.Tensor:
    """The obvious way: one client after another, each with its own optimizer."""
    trained = []
    for client in range(order.shape[1]):
        mine = copy.deepcopy(model)
        optimizer = torch.optim.SGD(mine.parameters(), lr=RATE, momentum=MOMENTUM)
        for indices in order[:, client]:
            optimizer.zero_grad()
            loss = functional.cross_entropy(mine(inputs[indices]), labels[indices])
            loss.backward()
            optimizer.step()
        trained.append(torch.cat([p.detach().reshape(-1) for p in mine.parameters()]))
    return torch.stack(trained).cpu()


def best_seconds(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best of alternating runs of each side, after one run to warm up."""
    best = dict.fromkeys(sides, float("inf"))
    for repeat in range(repeats + 1):
        for name, work in sides.items():
            start = time.perf_counter()
            work()
            if repeat:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


class Round:
    """One round of K clients, by either side."""

    def __init__(self, name, shape, clients, device, compile="off"):  # noqa: A002
        self.inputs, self.labels = make_samples(shape, 600 * clients, device)
        self.model = models.build(name, shape, CLASSES, seed=0).to(device)
        self.parts = list(torch.arange(600 * clients).chunk(clients))
        self.clients = range(clients)
        self.trainer = LocalTrainer(
            self.model,
            self.inputs,
            self.labels,
            steps=STEPS,
            batch_size=BATCH,
            momentum=MOMENTUM,
            compile=compile,
            device=device,
        )
        self.start = self.trainer.layout.read(self.model)

    def plain(self):
        order = batches(
            self.parts, self.clients, steps=STEPS, batch_size=BATCH, seed=0, round_number=0
        )
        return plain_round(self.model, self.inputs, self.labels, order.to(self.inputs.device))

    def together(self):
        return self.trainer.train(
            self.start,
            self.parts,
            self.clients,
            learning_rate=RATE,
            seed=0,
            round_number=0,
        ).updates


def speed_up(names, shape, clients, device, repeats, with_compiler) -> Table:
    table = Table(title=f"One round, K={clients}, τ={STEPS}, batch {BATCH}, {device}")
    for heading in ("model", "way", "loop s", "together s", "ratio", "aim", "difference"):
        table.add_column(heading, justify="right")
    for name in names:
        for mode in ("off", "on") if with_compiler else ("off",):
            job = Round(name, shape, clients, device, mode)
            start = time.perf_counter()
            job.together()
            first = time.perf_counter() - start
            difference = "dropout"
            if not any(isinstance(module, nn.Dropout) for module in job.model.modules()):
                apart = (job.plain() - job.start - torch.from_numpy(job.together())).abs()
                difference = f"{float(apart.amax(1).median()):.1e}"
            best = best_seconds({"loop": job.plain, "together": job.together}, repeats)
            way = job.trainer.kind
            if mode == "on":
                way += f", compiled in {first - best['together']:.0f} s"
            ratio = best["loop"] / best["together"]
            cells = (f"{best['loop']:.3f}", f"{best['together']:.3f}", f"{ratio:.1f}×")
            table.add_row(name, way, *cells, f"{AIMS[name]:.0f}×", difference)
    return table


def growth(device: str, repeats: int) -> Table:
    table = Table(title="Linear model: cost of a round by the number of clients")
    for heading in ("K", "seconds", "of K=1", "per client, of K=1"):
        table.add_column(heading, justify="right")
    jobs = {clients: Round("linear", (1, 28, 28), clients, device) for clients in (1, 10, 30, 100)}
    best = best_seconds({str(k): job.together for k, job in jobs.items()}, repeats)
    for clients in jobs:
        seconds = best[str(clients)]
        ratio = seconds / best["1"]
        table.add_row(str(clients), f"{seconds:.3f}", f"{ratio:.1f}×", f"{ratio / clients:.2f}")
    return table


def coding(names, device: str, repeats: int) -> Table:
    table = Table(title="Share of coding (encode and decode of all payloads) in a round, K=10")
    for heading in ("model", "scheme", "training ms", "coding ms", "evaluation ms", "coding share"):
        table.add_column(heading, justify="right")
    inputs, labels = make_samples((1, 28, 28), 7000, "cpu")
    samples = Dataset("noise", inputs, labels, inputs[:10], labels[:10], CLASSES)
    for name in names:
        for scheme in SCHEMES:
            config = TrainConfig(
                scheme=scheme, model=name, validation=1000, compile="off", device=device
            )
            simulation = Simulation(config, dataset=samples)
            rounds = [simulation.step() for _ in range(repeats + 1)][1:]
            train = min(m.training_seconds for m in rounds)
            code = min(m.coding_seconds for m in rounds)
            check = min(m.evaluation_seconds for m in rounds)
            times = (f"{1e3 * seconds:.1f}" for seconds in (train, code, check))
            table.add_row(name, scheme.name, *times, f"{code / (train + code + check):.1%}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(width=120)
    device, repeats = options.device, options.repeats
    if device.startswith("cuda"):
        jobs = ((("linear", "mlp", "cnn"), (1, 28, 28), 10), (("cifar-cnn",), (3, 32, 32), 30))
    else:
        jobs = ((("linear", "mlp", "cnn"), (1, 28, 28), 10),)
    for names, shape, clients in jobs:
        console.print(speed_up(names, shape, clients, device, repeats, options.compile))
    console.print(growth(device, repeats))
    console.print(coding(("linear", "mlp", "cnn"), device, repeats))


if __name__ == "__main__":
    main()
