"""Accuracy of the models people bring, with the settings that a newcomer gets.

    python benchmarks/models.py            # the runs that results/models.jsonl lacks
    python benchmarks/models.py --page     # then the table of docs/own-model.md

FedAvg in plain Python, as docs/own-model.md shows it: ten clients with a tenth of the bundled
digits each, one local epoch a round. The accuracy is the mean over the last three rounds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import nn
from torch.nn import functional

import jopeq
from jopeq.entries import LayerClips
from jopeq_lab.training.data import digits

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results/models.jsonl", ROOT / "docs/own-model.md"
START, END = "<!-- models: begin -->\n", "<!-- models: end -->\n"
CLIENTS, ROUNDS, BATCH, SEEDS, LAST = 10, 20, 32, (0, 1, 2), 3


def norm(kind: str, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(4, channels)


def cnn(kind: str) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), norm(kind, 16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), norm(kind, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )


class Block(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1:
            narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def resnet8(width: int = 8) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
        *(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)),
    )


class Transformer(nn.Module):
    """Two layers over the eight rows of an image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(8, width), nn.Parameter(0.02 * torch.randn(8, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.embed(x[:, 0]) + self.place).mean(1))


MODELS = {
    "CNN with BatchNorm": lambda: cnn("batch"),
    "CNN with GroupNorm": lambda: cnn("group"),
    "ResNet-8 with BatchNorm": resnet8,
    "2-layer transformer": Transformer,
    "logistic regression": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
}
SCHEMES = {
    "plain FedAvg": jopeq.scheme("none"),
    "`sdq`, R = 2": jopeq.scheme("sdq", rate=2.0),
    "`response`, ε = 4, R = 2, clip 0.05": jopeq.scheme(
        "response", epsilon=4.0, rate=2.0, clip=0.05
    ),
    '`response`, ε = 4, R = 2, clip="layers"': jopeq.scheme(
        "response", epsilon=4.0, rate=2.0, clip="layers"
    ),
}


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    if isinstance(model, Transformer):
        return torch.optim.Adam(model.parameters(), lr=0.005)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def run(make, scheme: jopeq.Scheme, seed: int, rounds: int = ROUNDS) -> tuple[float, int]:
    """Accuracy over the last rounds in percent, and the bytes of one client's last payload."""
    inputs, labels, test, truth = map(torch.from_numpy, digits())
    torch.manual_seed(seed)
    model = make()
    shares = torch.randperm(len(inputs)).chunk(CLIENTS)
    received = {name: value.clone() for name, value in model.state_dict().items()}
    found, size, rule = [], 0, LayerClips()
    for _ in range(rounds):
        payloads = []
        for share in shares:
            model.load_state_dict(received)
            model.train()
            optimizer = optimizer_of(model)
            whole = len(share) // BATCH * BATCH  # the last, smaller batch is left out
            for batch in share[torch.randperm(len(share))[:whole]].split(BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimizer.step()
            update = jopeq.state_update(received, model.state_dict())
            payloads.append(scheme.encode(update))
        mean_update = jopeq.aggregate(payloads, scheme=scheme, like=received)
        if scheme.per == "layers":
            like = jopeq.state_update(received, received)
            scheme = rule.update(scheme, [scheme.decode(one, like=like) for one in payloads])
        received, size = jopeq.updated_state(received, mean_update), len(payloads[-1])
        model.load_state_dict(received)
        model.eval()
        with torch.no_grad():
            found.append(100.0 * (model(test).argmax(1) == truth).double().mean().item())
    return mean(found[-LAST:]), size


def table(rows: list[dict]) -> str:
    lines = [f"| | {' | '.join(SCHEMES)} |", "|---" * (len(SCHEMES) + 1) + "|"]
    for name in MODELS:
        cells = []
        for scheme in SCHEMES:
            mine = [r["accuracy"] for r in rows if (r["model"], r["scheme"]) == (name, scheme)]
            cells.append(f"{mean(mine):.1f} ± {stdev(mine):.1f}" if len(mine) > 1 else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="fill in the table of the docs")
    page = parser.parse_args().page
    torch.set_num_threads(1)
    rows = (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    done = {(row["model"], row["scheme"], row["seed"]) for row in rows}
    for seed in SEEDS:
        for name, make in MODELS.items():
            for label, scheme in SCHEMES.items():
                if (name, label, seed) in done:
                    continue
                accuracy, size = run(make, scheme, seed)
                row = {"model": name, "scheme": label, "seed": seed}
                rows.append({**row, "accuracy": round(accuracy, 2), "payload_bytes": size})
                with RESULTS.open("a") as file:
                    file.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
                print(rows[-1], flush=True)
    if page:
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text(before + START + "\n" + table(rows) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
