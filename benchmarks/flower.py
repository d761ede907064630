"""Measure the server of a Flower round: ``python benchmarks/flower.py`` prints Markdown tables.

One round's replies are aggregated, by FedAvg alone from float32 arrays and by ``PayloadStrategy``
from payloads, each in a process of its own. CPU seconds are of all threads; the peak memory is the
process's, its replies included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timing import load, machine

_TENSORS = 10
WAYS = ("FedAvg", "PayloadStrategy(FedAvg)", "FedMedian", "PayloadStrategy(FedMedian)")
CLIENTS = ("off", "auto", "on")


def _replies(way: str, clients: int, entries: int) -> tuple[Any, list[Any]]:
    """A strategy that has sent its messages, and the clients' replies."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import strategy as flower
    from flwr.supercore.task_identity import TaskIdentity

    import jopeq
    from jopeq.flower import PayloadStrategy
    from jopeq.flower.arrays import to_record

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    name = way.removeprefix("PayloadStrategy(").removesuffix(")")
    options = {"fraction_evaluate": 0.0, "min_train_nodes": clients, "min_available_nodes": clients}
    strategy = getattr(flower, name)(**options)
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)
    if name != way:
        strategy = PayloadStrategy(strategy, scheme)
    shape = entries // _TENSORS
    zeros = {f"w{i}": Array(np.zeros(shape, np.float32)) for i in range(_TENSORS)}

    class Grid:
        def get_node_ids(self) -> list[int]:
            return list(range(2, clients + 2))

    sent = strategy.configure_train(1, ArrayRecord(zeros), ConfigRecord(), Grid())
    generator, replies = np.random.default_rng(0), []
    for message in sent:
        update = {name: 0.01 * generator.standard_normal(shape, dtype=np.float32) for name in zeros}
        arrays = (
            ArrayRecord({name: Array(value) for name, value in update.items()})
            if name == way
            else to_record(scheme.encode(update))
        )
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        reply = Message(content, reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
        replies.append(reply)
    return strategy, replies


def aggregate(way: str, clients: int, entries: int) -> dict[str, float]:
    """CPU and wall seconds of ``aggregate_train``, and megabytes at its peak."""
    strategy, replies = _replies(way, clients, entries)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    cpu, wall = time.process_time(), time.perf_counter()
    arrays, _ = strategy.aggregate_train(1, replies)
    seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    if arrays is None or len(arrays) != _TENSORS:
        raise RuntimeError(f"{way} gave no model")
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return {**seconds, "peak": peak / 1024}


def encode(mode: str, entries: int) -> dict[str, float]:
    """Seconds that a client's process needs for its only update, kernels included."""
    import jopeq
    from jopeq import kernels

    kernels.use(mode)
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)
    update = np.random.default_rng(0).standard_normal(entries, dtype=np.float32)
    cpu, wall = time.process_time(), time.perf_counter()
    scheme.encode(update)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def _alone(ways: Sequence[str], size: Sequence[str], repeats: int) -> dict[str, dict[str, float]]:
    """Each way in processes of its own, in turns; of each number, the least."""
    least: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for way in ways:
            command = [sys.executable, __file__, "--one", way, *size]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            least[way] = {key: min(found[key], least.get(way, found)[key]) for key in found}
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--entries", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--median", action="store_true", help="FedMedian too, which takes minutes")
    parser.add_argument("--one", choices=(*WAYS, *CLIENTS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one in CLIENTS:
        print(json.dumps(encode(given.one, given.entries)))
        return
    if given.one is not None:
        print(json.dumps(aggregate(given.one, given.clients, given.entries)))
        return
    size = ("--clients", str(given.clients), "--entries", str(given.entries))
    print(f"{machine()}, load {load()}\n")
    print(f"{given.clients} replies of {given.entries:,} entries, `response` at 2 bits:\n")
    print("| aggregate_train of | CPU s | beside Flower's | wall s | peak MB | beside Flower's |")
    print("|---|---|---|---|---|---|")
    rows = _alone(WAYS if given.median else WAYS[:2], size, given.repeats)
    for way, row in rows.items():
        plain = rows[way.removeprefix("PayloadStrategy(").removesuffix(")")]
        cpu, peak = (row[key] / plain[key] for key in ("cpu", "peak"))
        times = f"{row['cpu']:.2f} | {cpu:.2f} × | {row['wall']:.2f}"
        print(f"| {way} | {times} | {row['peak']:.0f} | {peak:.0%} |")
    print("\n| one update of a new process, kernels | CPU s | wall s |\n|---|---|---|")
    for mode, row in _alone(CLIENTS, size, given.repeats).items():
        print(f"| {mode} | {row['cpu']:.2f} | {row['wall']:.2f} |")


if __name__ == "__main__":
    main()
