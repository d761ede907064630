"""Images attacked per minute: all at once against one by one, in the same process.

One by one is the published way (``torch.optim.LBFGS`` and two plain backward passes); "batch of 1"
is this package's attack on one image at a time. All make the same number of evaluations per image,
with a history of 100 pairs, so that a minute means the same work.

    python benchmarks/attacks.py [--threads N] [--evaluations N] [--images N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

import jopeq
from jopeq_lab.attacks import AttackConfig, GradientMap, attack, observe, true_gradients
from jopeq_lab.attacks.attack import EVALUATIONS
from jopeq_lab.attacks.images import photos
from jopeq_lab.attacks.observation import Observation
from jopeq_lab.training.models import build

SHAPE = (3, 32, 32)
AT_ONCE = {"cpu": 16, "cuda": 70}
ALONE = 4  # images that the slow ways are timed on


def seconds(work: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def victims(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bundled photographs, again and again."""
    images = photos()
    return images[torch.arange(count) % len(images)], torch.arange(count) % 10


def published(gradients: torch.Tensor, labels: torch.Tensor, device: str, evaluations: int) -> None:
    """The loop of the DLG authors' code, one image after another."""
    model = build("lenet", SHAPE, 10, seed=0).to(device)
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    for row, label in zip(gradients.to(device), labels.to(device), strict=True):
        wanted = [
            part.view_as(parameter)
            for part, parameter in zip(row.split(sizes), parameters, strict=True)
        ]
        generator = torch.Generator().manual_seed(0)
        start = 0.5 + 0.1 * torch.randn(1, *SHAPE, generator=generator)
        image = start.to(device).requires_grad_()
        optimizer = torch.optim.LBFGS([image], lr=1, max_iter=EVALUATIONS)
        optimizer.param_groups[0].update(tolerance_grad=0, tolerance_change=0)

        def closure(
            image: torch.Tensor = image,
            label: torch.Tensor = label,
            wanted: list[torch.Tensor] = wanted,
            optimizer: torch.optim.LBFGS = optimizer,
        ) -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(image), label[None])
            found = torch.autograd.grad(loss, parameters, create_graph=True)
            distance = sum(
                ((one - other) ** 2).sum() for one, other in zip(found, wanted, strict=True)
            )
            distance.backward()
            return distance

        for _ in range(evaluations // EVALUATIONS):
            optimizer.step(closure)


def measured(device: str, count: int, evaluations: int) -> list[tuple[str, int, float]]:
    """(way, images, images per minute)."""
    images, labels = victims(count)
    gradient_map = GradientMap(build("lenet", SHAPE, 10, seed=0), SHAPE, device=device)
    gradients = true_gradients(gradient_map, images, labels)
    sent = observe(jopeq.scheme("none"), gradients, gradient_map.layout)
    config = AttackConfig(iterations=evaluations // EVALUATIONS, tolerance=0.0, patience=0)

    def ours(rows: range) -> None:
        some = list(rows)
        mine = Observation(
            tuple(sent.schemes[row] for row in some),
            tuple(sent.payloads[row] for row in some),
            sent.gradients[some],
        )
        attack(gradient_map, mine, config, labels=labels[some], names=some)

    few = min(ALONE, count)
    ours(range(count))  # the first time pays for memory and kernels
    published(gradients[:1], labels[:1], device, EVALUATIONS)
    together = seconds(lambda: ours(range(count)), device)
    alone = seconds(lambda: [ours(range(row, row + 1)) for row in range(few)], device)
    plain = seconds(lambda: published(gradients[:few], labels[:few], device, evaluations), device)
    return [
        ("one by one, as published", few, 60 * few / plain),
        ("batch of 1", few, 60 * few / alone),
        (f"batch of {count}", count, 60 * count / together),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="of PyTorch on the CPU")
    parser.add_argument("--evaluations", type=int, default=200, help="per image")
    parser.add_argument("--images", type=int, help="at once; 16 on the CPU, 70 on the GPU")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    table = Table(title=f"LeNet, 3×32×32, float32, {options.evaluations} evaluations an image")
    for heading in ("device", "way", "timed on", "images a minute", "against one by one"):
        table.add_column(heading, justify="right")
    for device in ("cpu", "cuda"):
        if device == "cuda" and not torch.cuda.is_available():
            continue
        count = options.images or AT_ONCE[device]
        name = (
            torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU"
        )
        rows = measured(device, count, options.evaluations)
        for way, images, rate in rows:
            table.add_row(name, way, str(images), f"{rate:,.1f}", f"{rate / rows[0][2]:.1f}×")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
