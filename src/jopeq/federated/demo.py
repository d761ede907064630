"""A federation in a minute: 5,000 real digits, ten clients, every kind of scheme."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jopeq.analysis.drawing import draw_mean_and_range, new_panels
from jopeq.federated.config import PeopleConfig, TrainConfig
from jopeq.federated.metrics import decibels, mean
from jopeq.federated.runs import Job, Run, seeds
from jopeq.privacy.guarantee import places_up
from jopeq.schemes import scheme
from jopeq.schemes.sphere import Sphere

EPSILON = 4.0
RATES = (1.0, 2.0)
ROUNDS, LOCAL_STEPS, CLIENTS, SEEDS = 20, 50, 10, 3
PEOPLE = 50_000


def demo_jobs(*, rounds: int = ROUNDS, count: int = SEEDS) -> Iterator[Job]:
    """No compression; then compression, separate privacy, the paper's, and ours at 1 and 2 bits."""
    built = {"none": scheme("none")}
    for rate in RATES:
        for name in ("sdq", "laplace+sdq", "jopeq", "response"):
            private = {} if name == "sdq" else {"epsilon": EPSILON}
            built[f"{name}, R={rate:g}"] = scheme(name, rate=rate, **private)
    for label, coded in built.items():
        config = TrainConfig(
            scheme=coded,
            data="mnist5k",
            clients=CLIENTS,
            rounds=rounds,
            local_steps=LOCAL_STEPS,
            compile="off",
        )
        for seeded in seeds(config, count):
            yield Job(label, seeded)


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


def demo_rows(runs: Sequence[Run]) -> list[DemoRow]:
    """The table of the demonstration."""
    rows = []
    for label, group in _by_label(runs).items():
        accuracies = [100 * run.test_accuracy for run in group]
        spread = f" ± {statistics.stdev(accuracies):.2f}" if len(group) > 1 else ""
        snrs = [run.snr for run in group if run.snr is not None]
        first = group[0]
        rows.append(
            DemoRow(
                label=label,
                accuracy=f"{statistics.fmean(accuracies):.2f}{spread}",
                bits_per_parameter=first.bits_per_parameter,
                bytes_sent=first.bytes_per_client * first.rounds,
                snr_db=decibels(mean(snrs)) if len(snrs) == len(group) else None,
                nominal=first.nominal,
                epsilon=first.epsilon,
            )
        )
    return rows


def _by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {label: [run for run in runs if run.label == label] for label in (r.label for r in runs)}


def save_demo(runs: Sequence[Run], path: Path) -> None:
    """Validation accuracy against rounds, a panel for each rate."""
    from matplotlib.ticker import MaxNLocator

    figure, panels = new_panels(len(RATES), (10.0, 4.4), sharey=True)
    groups = _by_label(runs)
    for panel, rate in zip(panels, RATES, strict=True):
        shown = [label for label in groups if label == "none" or label.endswith(f"R={rate:g}")]
        for index, label in enumerate(shown):
            group = groups[label]
            rounds = list(zip(*(run.validation for run in group), strict=True))
            name = label.split(",")[0]
            if group[0].epsilon is not None:
                name += f" (ε asked {group[0].nominal:g}, holds {places_up(group[0].epsilon)})"
            draw_mean_and_range(panel, rounds, color=f"C{index}", label=name, alpha=0.08)
        panel.set_title(f"R = {rate:g} bit{'s' if rate > 1 else ''} per parameter")
        panel.set_xlabel("round")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, loc="lower right")
    panels[0].set_ylabel("validation accuracy")
    figure.suptitle("5,000 MNIST digits, 10 clients, linear model: 7,850 parameters", fontsize=11)
    figure.savefig(path, dpi=150)
