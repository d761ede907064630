"""PayloadMod and Flower's LocalDpMod on the same app, in one process: ``python compare.py``.

Both run the example's training; only the mod and the strategy differ. Prints the tables of
docs/flower.md as Markdown.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from dp_accounting import get_epsilon_gaussian
from flower_mnist import client_app, task
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

import jopeq
from jopeq.flower import PayloadMod, PayloadStrategy
from jopeq.privacy.guarantee import digits_up

CONFIG = {"local-steps": 100, "batch-size": 16, "learning-rate": 0.1, "momentum": 0.5}
DELTA = 1e-5


@dataclass(frozen=True)
class Way:
    """One row: the mods of the client and the wrapper of the server's strategy."""

    name: str
    mods: list[Any]
    wrap: Callable[[Strategy], Strategy]
    epsilon: str


def with_jopeq(scheme: jopeq.Scheme) -> tuple[list[Any], Callable[[Strategy], Strategy]]:
    """Both ends with one scheme."""
    return [PayloadMod(scheme)], lambda inner: PayloadStrategy(inner, scheme)


def ways(parameters: int, rounds: int) -> Iterator[Way]:
    """The rows of the first table."""
    yield Way("FedAvg alone", [], lambda inner: inner, "none")
    for epsilon in (4.0, 100.0):
        sigma = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon  # LocalDpMod's, for norm 1
        # any two updates of norm at most 1 are up to 2 apart
        exact = get_epsilon_gaussian(sigma / 2.0, DELTA)
        yield Way(
            f"LocalDpMod, clipping_norm=1, sensitivity=1, epsilon={epsilon:g}",
            [LocalDpMod(1.0, 1.0, epsilon, DELTA)],
            lambda inner: inner,
            f"{digits_up(exact, 3)} per update (δ = 10⁻⁵); rounds not added up",
        )
    schemes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("sphere", {"epsilon": 8.0, "clip": 1.0}),
        ("response", {"epsilon": 4.0, "rate": 2.0, "clip": 0.05}),
        ("jopeq", {"epsilon": 4.0, "rate": 2.0}),
        ("sdq", {"rate": 2.0}),
    )
    for name, options in schemes:
        scheme = jopeq.scheme(name, **options)
        total = scheme.guarantee.for_client(parameters, rounds).epsilon
        unit = "number" if scheme.guarantee.unit == "sample" else "update"
        told = f"{digits_up(scheme.guarantee.epsilon, 3)} per {unit}, {digits_up(total, 3)} in all"
        if math.isinf(total):
            told = "none"
        shown = ", ".join(f"{key}={value}" for key, value in options.items())
        yield Way(f"PayloadMod, `{name}`, {shown}", *with_jopeq(scheme), told)


def federation(way: Way, clients: int, rounds: int, seed: int) -> tuple[float, float]:
    """Test accuracy after the last round, and array bytes up per client and round.

    The seed is PyTorch's; noise is fresh in every call, so that no repeat gives the same digits.
    """
    torch.manual_seed(seed)
    app = ClientApp(mods=way.mods)
    app.train()(client_app.train)
    contexts = {
        node: Context(
            run_id=1,
            node_id=node,
            node_config={"partition-id": node - 2, "num-partitions": clients},
            state=RecordDict(),
            run_config=dict(CONFIG),
        )
        for node in range(2, clients + 2)
    }
    strategy = way.wrap(FedAvg(fraction_evaluate=0.0))
    arrays = ArrayRecord(task.new_model().state_dict())
    grid: Any = SimpleNamespace(get_node_ids=lambda: list(contexts))
    sent = 0
    for number in range(1, rounds + 1):
        replies = []
        for message in strategy.configure_train(number, arrays, ConfigRecord(), grid):
            reply = app(message, contexts[message.metadata.dst_node_id])
            records = reply.content.array_records.values()
            sent += sum(len(array.data) for record in records for array in record.values())
            replies.append(reply)
        averaged, _ = strategy.aggregate_train(number, replies)
        assert averaged is not None
        arrays = averaged
    model = task.new_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return task.accuracy(model), sent / (clients * rounds)


def outcome(mod: Any, before: dict[str, Any], after: dict[str, Any]) -> str:
    """Describe how a mod treats one reply."""
    app = ClientApp(mods=[mod])

    @app.train()
    def train(msg: Message, _: Context) -> Message:
        return Message(RecordDict({"arrays": record(after)}), reply_to=msg)

    message = Message(RecordDict({"arrays": record(before)}), dst_node_id=2, message_type="train")
    context = Context(1, 2, {}, RecordDict(), {})
    try:
        with np.errstate(all="ignore"):
            reply = app(message, context)
    except Exception as error:  # whatever it is, the table shows it
        return f"raises {type(error).__name__}"
    if reply.has_error():
        return "error reply, nothing sent"
    arrays = [array for item in reply.content.array_records.values() for array in item.values()]
    if arrays[0].stype == "jopeq.payload":
        return "payload"
    if any(not np.isfinite(array.numpy()).all() for array in arrays):
        return "sends NaN"
    sent = dict(zip(after, (array.numpy() for array in arrays), strict=True))
    bare = [name for name, value in sent.items() if np.array_equal(value, after[name])]
    if bare:
        return "sends it without noise or clipping"
    return "sends the whole model"


def record(arrays: dict[str, Any]) -> ArrayRecord:
    """Arrays as a message holds them."""
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The rows of the second table: a model and what training made of it."""
    w, moved = np.zeros(4, np.float32), np.full(4, 0.01, np.float32)
    yield "an ordinary update", {"w": w}, {"w": moved}
    yield "a zero update", {"w": w}, {"w": w}
    yield "a 0-d float array", {"w": w, "s": np.array(1.0)}, {"w": moved, "s": np.array(1.01)}
    yield "an int64 counter", {"w": w, "n": np.array([3])}, {"w": moved, "n": np.array([4])}
    yield "a boolean mask", {"w": w, "m": np.array([True])}, {"w": moved, "m": np.array([True])}
    yield "NaN after training", {"w": w}, {"w": np.full(4, np.nan, np.float32)}


def say(line: str) -> None:
    """To the terminal, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    parameters = sum(p.numel() for p in task.new_model().parameters())

    say("| | test accuracy | bytes up per client and round | ε against the server |")
    say("|---|---|---|---|")
    for way in ways(parameters, options.rounds):
        runs = [
            federation(way, options.clients, options.rounds, seed)
            for seed in range(options.repeats)
        ]
        accuracies, sizes = zip(*runs, strict=True)
        shown = f"{np.mean(accuracies):.3f}"
        if options.repeats > 1:
            shown += f" ± {np.std(accuracies, ddof=1):.3f}"
        say(f"| {way.name} | {shown} | {np.mean(sizes):,.0f} | {way.epsilon} |")

    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)
    say("\n| the reply holds | LocalDpMod | PayloadMod |\n|---|---|---|")
    for name, before, after in cases():
        flowers = outcome(LocalDpMod(1.0, 1.0, 4.0, DELTA), before, after)
        say(f"| {name} | {flowers} | {outcome(PayloadMod(scheme), before, after)} |")


if __name__ == "__main__":
    main()
