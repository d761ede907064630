"""`jopeq.torch.clipped_sum` against Opacus: sums of clipped gradients, chunk by chunk.

    PYTHONPATH=src python benchmarks/clipped_sum.py [cpu] [cuda]

Opacus: `GradSampleModule`, norms over all parameters, the clipped sum of every parameter, as its
optimizer makes it. Both work through the same records in chunks of one size, on the CPU and, where
there is one, on a GPU; or where the arguments say.
"""

from __future__ import annotations

import copy
import statistics
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn
from torch.nn import functional

from jopeq import kernels
from jopeq.torch import clipped_sum
from timing import best_seconds, cores

CLIP = 1.0
TURNS = 7  # of both, one after the other: a machine that slows down meanwhile slows both


class Attention(nn.Module):
    """Four heads, of linear layers that Opacus knows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).unflatten(-1, (3, 4, -1)).movedim(-3, 0).transpose(2, 3)
        mixed = functional.scaled_dot_product_attention(*parts)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    """Two blocks of a transformer on sequences of 16 numbers, classified by their mean."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, width), nn.Linear(width, 10)
        self.attention = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), Attention(width)) for _ in range(2)
        )
        self.feed = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width)
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for attention, feed in zip(self.attention, self.feed, strict=True):
            x = x + attention(x)
            x = x + feed(x)
        return self.out(x.mean(1))


def convolutions() -> nn.Module:
    """26,010 weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


# name, model, shape of a record, records, chunk
CASES: tuple[tuple[str, Callable[[], nn.Module], tuple[int, ...], int, int], ...] = (
    ("linear head, 1,281 features", lambda: nn.Linear(1281, 10), (1281,), 4096, 512),
    ("convolutions", convolutions, (1, 28, 28), 2048, 256),
    ("transformer", Encoder, (32, 16), 1024, 128),
)


def sum_with_opacus(model: Any, inputs: Tensor, labels: Tensor, chunk: int) -> list[Tensor]:
    totals = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in zip(inputs.split(chunk), labels.split(chunk), strict=True):
        functional.cross_entropy(model(x), y, reduction="sum").backward()
        samples = [p.grad_sample for p in model.parameters()]
        norms = torch.stack([s.flatten(1).norm(dim=1) for s in samples], dim=1).norm(dim=1)
        factors = (CLIP / (norms + 1e-6)).clamp(max=1.0)
        for total, sample in zip(totals, samples, strict=True):
            total += torch.einsum("i,i...", factors, sample)
        model.zero_grad()
        for p in model.parameters():
            p.grad_sample = None
    return totals


def compare(device: str) -> None:
    for name, make, shape, count, chunk in CASES:
        torch.manual_seed(0)
        model = make().to(device)
        inputs, labels = torch.randn(count, *shape).to(device), torch.arange(count).to(device) % 10
        theirs = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")

        def by_opacus(theirs=theirs, inputs=inputs, labels=labels, chunk=chunk) -> Tensor:
            totals = sum_with_opacus(theirs, inputs, labels, chunk)
            return torch.cat([total.flatten() for total in totals]).cpu()

        def by_jopeq(model=model, inputs=inputs, labels=labels, chunk=chunk) -> Tensor:
            loss = functional.cross_entropy
            total = clipped_sum(model, loss, inputs, labels, CLIP, chunk=chunk)
            return torch.from_numpy(total.to_numpy())

        difference = (by_opacus() - by_jopeq()).abs().max() / CLIP
        turns = [(best_seconds(by_opacus), best_seconds(by_jopeq)) for _ in range(TURNS)]
        seconds = [statistics.median(times) for times in zip(*turns, strict=True)]
        print(
            f"{name:<30}{seconds[0] * 1e3:10.1f}{seconds[1] * 1e3:10.1f}"
            f"{seconds[0] / seconds[1]:8.2f}{difference:12.1e}"
        )


def main() -> None:
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    found = sys.argv[1:] or ["cpu", "cuda"][: 1 + torch.cuda.is_available()]
    if "cpu" in found:
        kernels.use("on")
        kernels.load()  # compiling is not what is timed
    for device in found:
        name = f"CPU, {cores()} cores" if device == "cpu" else torch.cuda.get_device_name()
        print(f"{name}: Opacus ms, jopeq ms, Opacus / jopeq, difference in clips")
        compare(device)


if __name__ == "__main__":
    main()
