"""Encode and decode speed of every scheme, as a share of a memory copy in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import jopeq

ENTRIES = 1_000_000
SCHEMES = [
    jopeq.scheme("none"),
    jopeq.scheme("sdq", rate=2),
    jopeq.scheme("sdq", rate=2, lattice="A2"),
    jopeq.scheme("sdq", rate=2, lattice="D4"),
    jopeq.scheme("sdq", rate=2, lattice="E8"),
    jopeq.scheme("sdq", rate=2, coding="entropy"),
    jopeq.scheme("laplace", epsilon=4),
    jopeq.scheme("t", epsilon=4),
    jopeq.scheme("laplace+sdq", epsilon=4, rate=2),
    jopeq.scheme("jopeq", epsilon=4, rate=2),
    jopeq.scheme("jopeq", epsilon=4, rate=2, lattice="A2"),
]


def seconds(work: Callable[[], object]) -> float:
    """The best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    update = np.random.default_rng(0).normal(size=ENTRIES).astype(np.float32)
    copy = seconds(lambda: update.copy())
    table = Table(title=f"{ENTRIES:,} entries; memory copy: {ENTRIES / copy / 1e6:,.0f} M/s")
    for heading in ("scheme", "bits/entry", "encode M/s", "of copy", "decode M/s", "of copy"):
        table.add_column(heading, justify="right")
    for scheme in SCHEMES:
        payload, counted = scheme.encode(update, statistics=True)
        encode = seconds(lambda s=scheme: s.encode(update))
        decode = seconds(lambda s=scheme, p=payload: s.decode(p))
        table.add_row(
            scheme.spec,
            f"{counted.bits_per_entry:.3f}",
            f"{ENTRIES / encode / 1e6:.1f}",
            f"{copy / encode:.2%}",
            f"{ENTRIES / decode / 1e6:.1f}",
            f"{copy / decode:.2%}",
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
