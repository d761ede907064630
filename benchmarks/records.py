"""Exact totals of clipped rows against PyTorch's inexact ones, and shares, in one process.

    PYTHONPATH=src python benchmarks/records.py [cpu] [cuda]

On the CPU: seconds of `(rows * factors[:, None]).sum(0)`, whose factors are given, and of
`ClippedTotal.add`, which finds the norms too, and what memory that takes; then the share of a
million entries. On a GPU also the share of the bandwidth of a copy at
which the rows are read once. Arguments choose the devices.
"""

from __future__ import annotations

import resource
import statistics
import sys
from collections.abc import Callable

import torch

import jopeq
from jopeq import kernels
from jopeq.sums.clipped_total import ClippedTotal
from timing import best_seconds

SHAPES = ((8192, 5210), (65536, 520), (1024, 26010), (32, 1_000_000))
ENTRIES = 1_000_000
LARGE_SHAPES = ((65536, 5210), (262144, 520), (32768, 12810), (1024, 1_000_000))


def device_seconds(work: Callable[[], object]) -> float:
    """The median of the device's clock over seven calls, after two to warm up."""
    times = []
    for _ in range(9):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times[2:])


def compare(shape: tuple[int, int], device: str) -> None:
    rows, factors = torch.randn(shape, device=device), torch.rand(shape[0], 1, device=device)
    seconds = best_seconds if device == "cpu" else device_seconds
    total = ClippedTotal(shape[1], 1.0)
    torch_seconds = seconds(lambda: (rows * factors).sum(0))
    own_seconds = seconds(lambda: total.add(rows))
    line = f"{shape[0]:>7} × {shape[1]:<8}{torch_seconds * 1e3:10.2f}{own_seconds * 1e3:10.2f}"
    line += f"{own_seconds / torch_seconds:8.2f}"
    if device == "cuda":
        copy = torch.empty_like(rows)
        line += f"{device_seconds(lambda: copy.copy_(rows)) / 2 / own_seconds:10.2f}"
    print(line)


def shares() -> None:
    """Milliseconds of a share: of ``RecordSum`` from a total, of ``ClientSum`` from an update."""
    records, clients = (
        jopeq.RecordSum(
            epsilon=4.0, clip=1.0, records=10_000, sampling=1.0, rounds=1, clients=10, threshold=10
        ),
        jopeq.ClientSum(epsilon=4.0, clip=1.0, clients=1000, threshold=1000),
    )
    seed = bytes(32)
    rows = torch.randn(1, ENTRIES).numpy()
    total = ClippedTotal(ENTRIES, 1.0).add(rows)
    own = best_seconds(lambda: records.encode(total, seed=seed))
    other = best_seconds(lambda: clients.encode(rows[0], seed=seed))
    print(
        f"share of {ENTRIES:,} entries: RecordSum {own * 1e3:.2f} ms, ClientSum {other * 1e3:.2f}"
    )


def memory() -> None:
    """Bytes that a total of the first shape takes beyond its rows."""
    rows = torch.randn(SHAPES[0])
    ClippedTotal(SHAPES[0][1], 1.0).add(rows[:8])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ClippedTotal(SHAPES[0][1], 1.0).add(rows)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"memory beyond {rows.numel() * 4 >> 20} MiB of rows: {more / 1024:.1f} MiB")


def main() -> None:
    found = sys.argv[1:] or ["cpu", "cuda"][: 1 + torch.cuda.is_available()]
    if "cpu" in found:
        kernels.use("on")
        kernels.load()  # compiling is not what is timed
        memory()  # first: the peak of a process only grows
        for shape in SHAPES:
            compare(shape, "cpu")
        shares()
    if "cuda" in found:
        name = torch.cuda.get_device_name()
        print(f"{name}: torch ms, jopeq ms, jopeq / torch, share of a copy's bandwidth")
        for shape in (*SHAPES, *LARGE_SHAPES):
            compare(shape, "cuda")


if __name__ == "__main__":
    main()
