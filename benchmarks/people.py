"""Whole updates of many people: error, bits and time of ``sphere`` and its peers, in one run.

    python benchmarks/people.py --json results/people_bench.json
    python benchmarks/people_page.py results/people_bench.json docs

It takes a few minutes. Seconds of a core are processor time of one thread; what others do on the
machine hardly counts.
Nothing is extrapolated: the number of reports stands next to each time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jopeq
from jopeq import kernels
from jopeq.sphere import sphere_codebook as codebook
from people_peers import peers
from privunit import best_known_error
from timing import load, machine

DIMENSIONS = (1_000, 7_850, 100_000, 1_000_000)
EPSILONS = (1, 2, 4, 8, 16)
REPORTS = {1_000: 400, 7_850: 200, 100_000: 40, 1_000_000: 8}  # whose error is measured
SERVER = 100_000  # the dimension that sums are timed at
KEY = bytes(range(32))


def core_seconds(work: Callable[[], object], least: int = 3) -> float:
    """Processor time of the quickest of a few calls."""
    best = math.inf
    for _ in range(least + 1):  # the first fills caches
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def direction(dimension: int) -> Any:
    x = np.random.default_rng(dimension).normal(size=dimension)
    return x / np.linalg.norm(x)


def mean_of(errors: list[float]) -> dict[str, float]:
    spread = float(np.std(errors, ddof=1)) / math.sqrt(len(errors))
    return {"measured": float(np.mean(errors)), "sigma": spread, "reports": len(errors)}


def sphere_row(dimension: int, epsilon: int) -> dict[str, Any]:
    """Closed form and measured error, bits, and a client's time."""
    scheme = jopeq.Sphere(epsilon=float(epsilon), clip=1.0)
    terms = scheme.round(dimension=dimension, seed=KEY)
    x, clients = direction(dimension), np.arange(REPORTS[dimension])
    indices = terms.indices([x] * len(clients), clients=clients)
    errors = []
    for client, index in zip(clients, indices, strict=True):
        total = np.zeros(terms.plan.padded, dtype=np.int64)
        codebook.add_codewords(client[None], index[None], terms.plan, terms.shared, total)
        errors.append(
            float(np.sum((codebook.decode_sum(total, terms.plan, terms.shared) - x) ** 2))
        )
    batch = np.tile(x.astype(np.float32), (min(64, max(4, (1 << 21) // dimension)), 1))
    who = np.arange(len(batch))
    return {
        "error": scheme.expected_error(dimension),
        **mean_of(errors),
        "bits": scheme.bits_for(dimension),
        "block": terms.plan.block,
        "encode": core_seconds(lambda: terms.report(batch[0], client=0)),
        "encode_in_batch": core_seconds(lambda: terms.indices(batch, clients=who)) / len(batch),
        "epsilon": scheme.guarantee_for(dimension).epsilon,
    }


def peer_row(peer: Any, dimension: int, most: int) -> dict[str, Any]:
    """A row like ``sphere_row``'s; ``encode`` makes and decodes a report, in NumPy."""
    row = {"error": peer.error(dimension), "bits": peer.bits(dimension), "server": peer.server}
    if dimension <= most:
        x = direction(dimension)
        rng = np.random.default_rng([dimension, int(peer.epsilon), peer.bits(dimension)])
        count = max(8, REPORTS[dimension] // 4)
        start = time.process_time()
        drawn = [peer.report(x, rng) for _ in range(count)]
        row["both_ends"] = (time.process_time() - start) / count
        row |= mean_of([float(np.sum((one - x) ** 2)) for one in drawn])
    return row


def measure_errors(say: Callable[[str], None], most: int) -> dict[str, Any]:
    """By scheme, dimension and ε."""
    found: dict[str, Any] = {}
    kernels.set_threads(1)
    for dimension in DIMENSIONS:
        for epsilon in EPSILONS:
            say(f"errors: d = {dimension:,}, ε = {epsilon}")
            place = (str(dimension), str(epsilon))
            rows = {"sphere": sphere_row(dimension, epsilon)}
            rows |= {p.name: peer_row(p, dimension, most) for p in peers(float(epsilon))}
            best = best_known_error(dimension, epsilon)
            for name, row in rows.items():
                row["ratio"] = row["error"] / best
                found.setdefault(name, {}).setdefault(place[0], {})[place[1]] = row
    kernels.set_threads(None)
    return found


def random_reports(terms: Any, count: int) -> tuple[Any, Any]:
    """Any index is a report: what the server does depends on no more."""
    rng = np.random.default_rng(2)
    return rng.integers(0, terms.plan.codewords, count), rng.permutation(count)


def measure_server(say: Callable[[str], None]) -> dict[str, Any]:
    """Sums of reports on the CPU: a core's seconds, the clock, memory."""
    found = {}
    for epsilon in EPSILONS:
        terms = jopeq.Sphere(epsilon=float(epsilon), clip=1.0).round(dimension=SERVER, seed=KEY)
        count = 10**6 if epsilon >= 8 else 10**5
        say(f"server: {count:,} reports, ε = {epsilon}")
        indices, clients = random_reports(terms, count)
        total = terms.aggregator()
        start, clock = time.process_time(), time.perf_counter()
        total.add_many(indices, clients=clients)
        row = {
            "reports": count,
            "core": time.process_time() - start,
            "clock": time.perf_counter() - clock,
            "threads": kernels.threads(),
            "mean": core_seconds(total.mean),
            "block": terms.plan.block,
        }
        found[str(epsilon)] = row
    scheme = jopeq.Sphere(epsilon=8.0, clip=1.0)
    rounds = {n: scheme.round(dimension=SERVER, seed=KEY, people=n) for n in (10**5, 10**6)}
    found["peak"] = {str(n): peak_bytes(terms, n) for n, terms in rounds.items()}
    return found


def peak_bytes(terms: Any, count: int) -> int:
    """The most memory that a sum of so many reports takes, in batches of a few thousand."""
    tracemalloc.start()
    total = terms.aggregator()
    for first in range(0, count, 4096):
        clients = np.arange(first, min(first + 4096, count))
        total.add_many(clients % terms.plan.codewords, clients=clients)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--most", type=int, default=100_000, help="the largest update of peers")
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    kernels.use("on")
    kernels.load()
    found: dict[str, Any] = {"machine": {**machine(), "load_before": load()}}
    found["server"] = measure_server(say)
    found["errors"] = measure_errors(say, given.most)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    else:
        say(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
