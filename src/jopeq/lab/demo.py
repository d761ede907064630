"""A federation in a minute: 5,000 real digits, ten clients, every kind of scheme."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from jopeq.lab.pictures.colours import LOOKS, PAGE, look_of
from jopeq.lab.pictures.drawing import dress, new_stack, plain_log, save
from jopeq.lab.training.config import PeopleConfig, TrainConfig
from jopeq.lab.training.metrics import decibels, mean
from jopeq.lab.training.simulation import Result, train
from jopeq.privacy.guarantee import places_up
from jopeq.registry import scheme
from jopeq.sphere.sphere import Sphere

EPSILON = 4.0
RATES = (1.0, 2.0)
ROUNDS, LOCAL_STEPS, CLIENTS, SEEDS = 20, 50, 10, 3
PEOPLE = 50_000

Results = Mapping[str, Sequence[Result]]  # of all seeds, by label


def demo_configs(*, rounds: int = ROUNDS) -> dict[str, TrainConfig]:
    """No compression; then compression, separate privacy, the paper's, and ours at 1 and 2 bits."""
    built = {"none": scheme("none")}
    for rate in RATES:
        for name in ("sdq", "laplace+sdq", "jopeq", "response"):
            private = {} if name == "sdq" else {"epsilon": EPSILON}
            built[f"{name}, R={rate:g}"] = scheme(name, rate=rate, **private)
    common = TrainConfig(
        data="mnist5k", clients=CLIENTS, local_steps=LOCAL_STEPS, rounds=rounds, threads=1,
        compile="off",
    )  # fmt: skip
    return {label: replace(common, scheme=coded) for label, coded in built.items()}


def train_all(
    configs: Mapping[str, TrainConfig], seeds: int = SEEDS, processes: int | None = None
) -> Iterator[tuple[str, Result]]:
    """Every configuration with seeds 0, 1, …, one process each, as they end."""
    jobs = [(label, replace(c, seed=seed)) for label, c in configs.items() for seed in range(seeds)]
    count = max(1, min(len(jobs), processes or os.cpu_count() or 1))
    if count == 1:
        yield from ((label, train(config)) for label, config in jobs)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        begun = {pool.submit(train, config): label for label, config in jobs}
        for future in as_completed(begun):
            yield begun[future], future.result()


def demo_people(people: int = PEOPLE) -> PeopleConfig:
    """People with one digit each who report once, with ε for all that a person sends."""
    return PeopleConfig(
        scheme=Sphere(epsilon=2.0 * EPSILON, clip=0.1, draws=1 << 14),
        data="mnist5k",
        people=people,
        features="hog",
        center=0.03,
        rounds=16,
        server_lr=25.0,
        server_momentum=0.8,
        threads=1,
    )


@dataclass(frozen=True)
class DemoRow:
    """One scheme over all seeds."""

    label: str
    accuracy: str  # in percent, with its deviation over seeds
    bits_per_parameter: float
    bytes_sent: float  # by one client, in all rounds
    snr_db: float | None
    nominal: float | None
    epsilon: float | None


def demo_rows(runs: Results) -> list[DemoRow]:
    """The table of the demonstration."""
    rows = []
    for label, group in runs.items():
        accuracies = _percents(group)
        spread = f" ± {statistics.stdev(accuracies):.2f}" if len(group) > 1 else ""
        snr = mean([one.snr or 0.0 for result in group for one in result.history])
        last = group[0].history[-1]
        rows.append(
            DemoRow(
                label=label,
                accuracy=f"{statistics.fmean(accuracies):.2f}{spread}",
                bits_per_parameter=last.bits_per_parameter,
                bytes_sent=_bytes_sent(group[0]),
                snr_db=decibels(snr) if math.isfinite(snr) else None,
                nominal=last.nominal_sample,
                epsilon=last.epsilon_sample,
            )
        )
    return rows


def _percents(group: Sequence[Result]) -> list[float]:
    return [100.0 * (result.test_accuracy or 0.0) for result in group]


def _bytes_sent(result: Result) -> float:
    """By one client, in all rounds."""
    return result.history[-1].bytes_per_client * len(result.history)


def save_demo(runs: Results, taught: Result, path: Path) -> None:
    """Test accuracy against the bytes that a client, or a person, sends in all."""
    figure, (panel,) = new_stack(1, 4.4)
    dress(panel, "5,000 digits; ten clients, ε = 4 an entry: filled R = 1, hollow R = 2")
    for label, group in runs.items():
        name, _, rate = label.partition(", R=")
        _draw(panel, name, _bytes_sent(group[0]), _percents(group), filled=rate != "2")
    said = taught.summary
    bytes_each = said["bytes_sent"] / said["reports"]
    _draw(panel, "sphere", bytes_each, [100 * said["test_accuracy"]], filled=True)
    people = (
        f"{said['people']:,} people, public features,\nε = {places_up(said['epsilon'], 0)} for each"
    )
    panel.annotate(
        people, (bytes_each, 100 * said["test_accuracy"]), xytext=(12, 0),
        textcoords="offset points", va="center", fontsize=9, color=LOOKS["sphere"].colour,
    )  # fmt: skip
    plain_log(panel, "x")
    panel.set(xlabel="bytes sent by a client in all rounds", ylabel="test accuracy, %")
    low, high = panel.get_ylim()
    panel.set_ylim(low - 5.0, high + 1.0)  # small differences look small
    panel.legend(fontsize=8, loc="lower left", frameon=False)
    save(figure, path)


def _draw(panel: Any, name: str, place: float, accuracies: list[float], *, filled: bool) -> None:
    look = look_of(name)
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    panel.errorbar(
        place, statistics.fmean(accuracies), spread or None, fmt=look.marker, markersize=8,
        color=look.colour, markerfacecolor=look.colour if filled else PAGE,
        label=name if filled else None, capsize=2, linewidth=1,
    )  # fmt: skip
