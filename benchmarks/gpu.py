"""The GPU kernels against a device copy and against eager PyTorch, on the GPU that is there.

    python benchmarks/gpu.py [--entries 268435456] [--json FILE]

Kernel columns time the device alone (CUDA events, median); "payload" is all of an encode on the
host's clock: scale, kernel, packed bytes on the host. Bytes are those the kernel must move: every
entry read or written once, every packed bit once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import jopeq
from jopeq.kernels.gpu import DeviceEntries, codec, encode_body
from jopeq.kernels.gpu.arguments import plan_of, uses_triton
from jopeq.kernels.gpu.entries import chunk_sums
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.scaling import Scale

SCHEMES = [
    jopeq.scheme("sdq", rate=1),
    jopeq.scheme("sdq", rate=2),
    jopeq.scheme("sdq", rate=8),
    jopeq.scheme("sdq", rate=2, lattice="A2"),
    jopeq.scheme("response", epsilon=4, rate=1),
    jopeq.scheme("response", epsilon=4, rate=2),
    jopeq.scheme("response", epsilon=4, rate=3, levels=5),
    jopeq.scheme("jopeq", epsilon=4, rate=1),
    jopeq.scheme("jopeq", epsilon=4, rate=2),
    jopeq.scheme("jopeq", epsilon=3, rate=2, lattice="A2"),
]
SHARED, NOISE = SharedStream(bytes(range(32))), PrivateStream.reproducible(bytes(range(32)))
PAYLOAD_ENTRIES = 1 << 26
HEADINGS = (
    *("scheme", "bits", "encode G/s", "TB/s", "of copy", "× eager", "payload G/s"),
    *("decode G/s", "TB/s", "of copy", "add G/s", "TB/s"),
)


def device_seconds(work: Callable[[], object], repeats: int = 9) -> float:
    """The median of the device's own clock, after two turns to warm up."""
    times = []
    for turn in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        if turn >= 2:
            times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def host_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median of the host's clock, the device's queue empty before and after."""
    times = []
    for turn in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if turn:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def eager(scheme: Any, x: torch.Tensor) -> torch.Tensor | None:
    """The obvious version of a scalar scheme, in float32, without making bits of it."""
    recipe = scheme.codec.recipe
    if scheme.dimension != 1:
        return None
    letters = recipe.step.letters
    scaled = x / (scheme.spread * x.norm() / x.numel() ** 0.5)
    if recipe.is_clipped:
        scaled = scaled.clamp(-1, 1)
    if recipe.noise is not None:
        uniform = torch.rand_like(x) - 0.5
        scaled = scaled - recipe.noise.scale * uniform.sign() * torch.log1p(-2 * uniform.abs())
    step = getattr(recipe.step, "step", 2 / (letters - 1))
    dithered = scaled + (torch.rand_like(x) - 0.5) * step
    index = torch.floor(dithered / step + letters / 2).clamp(0, letters - 1)
    if not hasattr(recipe.step, "thresholds"):
        return index
    kept = torch.rand_like(x) < 0.9
    return torch.where(kept, index, torch.randint_like(x, letters))


def measured(scheme: Any, x: torch.Tensor, total: torch.Tensor, copy: float) -> dict[str, float]:
    """One row of the table, as numbers; rates in entries or bytes a second."""
    entries = x.numel()
    plan = plan_of(scheme.codec.recipe, x.device)
    words = codec.key_words(SHARED)
    scales = [Scale(3.0)]
    spans = [(0, entries, scales[0])]
    counts = torch.zeros(4, dtype=torch.int64, device=x.device)

    def encode() -> torch.Tensor:
        packed = codec.encode_with_triton(plan, [x], scales, words, words, counts)
        if plan.packing is None:
            return packed
        letters = packed.view(torch.uint8)
        return codec.join_with_triton(letters, plan.letters_in(entries), plan.packing)

    packed = torch.zeros(plan.letters_in(entries + (1 << 16)) * plan.width // 8, dtype=torch.uint8)
    packed = packed.to(x.device)
    letters = codec.encode_with_triton(plan, [x], scales, words, words, counts).view(torch.uint8)
    packed[: len(letters)] = letters[: len(packed)]
    out = torch.empty_like(x, dtype=torch.float32)

    def decode(target: torch.Tensor, weight: float | None) -> None:
        codec.decode_with_triton(plan, target, packed, spans, words, weight)

    size = plan.size(entries)
    part = x[:PAYLOAD_ENTRIES]

    def payload() -> object:
        there = DeviceEntries(("",), (part,))
        found = there.measure(scheme.codec.scaling, scheme.dimension)
        return encode_body(scheme.codec.recipe, there, found, SHARED, NOISE)

    encoding, decoding = device_seconds(encode), device_seconds(lambda: decode(out, None))
    adding = device_seconds(lambda: decode(total, 0.5))
    row = {
        "bits": 8 * size / entries,
        "encode": entries / encoding,
        "encode_bytes": (x.element_size() * entries + size) / encoding,
        "payload": part.numel() / host_seconds(payload),
        "decode": entries / decoding,
        "decode_bytes": (4 * entries + size) / decoding,
        "add": entries / adding,
        "add_bytes": (2 * total.element_size() * entries + size) / adding,
    }
    row["encode_of_copy"] = row["encode_bytes"] / copy
    row["decode_of_copy"] = row["decode_bytes"] / copy
    if eager(scheme, part) is not None:
        row["over_eager"] = (
            row["encode"] / part.numel() * device_seconds(lambda: eager(scheme, part), 3)
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1 << 28)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    device = torch.device("cuda")
    if not uses_triton(device):
        raise SystemExit("this benchmark needs Triton: pip install triton")
    x = torch.randn(given.entries, device=device)
    other = torch.empty_like(x)
    copy = 2 * x.nbytes / device_seconds(lambda: other.copy_(x))
    total = torch.zeros(given.entries, dtype=torch.float64, device=device)
    scaling = x.nbytes / device_seconds(lambda: chunk_sums(x, 0.0, True))
    table = Table(
        title=f"{torch.cuda.get_device_name()}: {given.entries:,} float32 entries; copy "
        f"{copy / 1e12:.2f} TB/s; norm {scaling / 1e12:.2f} TB/s"
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    rows: dict[str, Any] = {"copy": copy, "norm": scaling, "entries": given.entries}
    for scheme in SCHEMES:
        row = measured(scheme, x, total, copy)
        rows[scheme.spec] = row
        table.add_row(
            scheme.spec,
            f"{row['bits']:.3f}",
            f"{row['encode'] / 1e9:.0f}",
            f"{row['encode_bytes'] / 1e12:.2f}",
            f"{row['encode_of_copy']:.0%}",
            f"{row['over_eager']:.1f}" if "over_eager" in row else "",
            f"{row['payload'] / 1e9:.1f}",
            f"{row['decode'] / 1e9:.0f}",
            f"{row['decode_bytes'] / 1e12:.2f}",
            f"{row['decode_of_copy']:.0%}",
            f"{row['add'] / 1e9:.0f}",
            f"{row['add_bytes'] / 1e12:.2f}",
        )
    Console(width=200).print(table)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
