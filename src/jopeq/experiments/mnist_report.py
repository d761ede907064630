"""Tables and figures of the MNIST experiments, from the runs that were kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from jopeq.experiments.drawing import draw_mean_and_range, new_panels
from jopeq.experiments.mnist import (
    AUTHORS_CODE,
    AUTHORS_SNR_DB,
    FIG2_EPSILONS,
    MODELS,
    PAPER,
    ROUNDS,
    fig3_jobs,
    schemes_at,
)
from jopeq.experiments.page_words import table
from jopeq.federated.runs import Run, decibels, grouped, over_seeds

_FIG2_LABEL = re.compile(r"(?P<name>.+) ε=(?P<epsilon>[\d.]+) R=(?P<rate>[\d.]+)")


def table1_markdown(runs: Sequence[Run]) -> str:
    """Table I: paper, authors' code and ours side by side."""
    cells = grouped(runs, lambda run: (run.label, run.model))
    labels = [label for label in schemes_at() if any(run.label == label for run in runs)]
    head = [
        "scheme",
        *(f"{model}: paper / authors' code / ours" for model in MODELS),
        *("SNR dB (linear): authors' code / ours", "bits per parameter", "ε asked", "ε proven"),
    ]
    rows = []
    for label in labels:
        name, *options = label.split(", ")
        row = [", ".join([f"`{name}`", *options])]
        for column, model in enumerate(MODELS):
            mine = cells.get((label, model))
            ours = str(over_seeds([run.test_accuracy for run in mine])) if mine else "–"
            paper = f"{100 * PAPER[label][column]:.0f}" if label in PAPER else "–"
            code = f"{100 * AUTHORS_CODE[label][column]:.1f}" if label in AUTHORS_CODE else "–"
            row.append(f"{paper} / {code} / **{ours}**")
        linear = cells.get((label, "linear"), [])
        theirs = AUTHORS_SNR_DB.get(label)
        found = decibels(linear)
        row.append(
            f"{'–' if theirs is None else theirs} / {'∞' if found is None else f'{found:.1f}'}"
        )
        first = linear[0] if linear else None
        row.append("–" if first is None else f"{first.bits_per_parameter:.2f}")
        row.append("–" if first is None or first.nominal is None else f"{first.nominal:g}")
        row.append("none" if first is None or first.epsilon is None else f"{first.epsilon:.2f}")
        rows.append(row)
    return table(head, rows)


def fig2_markdown(runs: Sequence[Run]) -> str:
    """SNR in dB for every scheme, ε and R."""
    points = _fig2_points(runs)
    rates = sorted({rate for _, _, rate in points})
    rows = []
    for name, epsilon in dict.fromkeys((name, epsilon) for name, epsilon, _ in points):
        values = [points.get(Fig2Place(name, epsilon, rate)) for rate in rates]
        shown = ["–" if value is None else f"{value:.2f}" for value in values]
        rows.append((f"`{name}`", f"{epsilon:g}", *shown))
    return table(("scheme", "ε", *(f"R={rate:g}" for rate in rates)), rows)


class Fig2Place(NamedTuple):
    """Which point of Figure 2 a run is for."""

    name: str
    epsilon: float
    rate: float


def fig2_place(label: str) -> Fig2Place | None:
    """What a run's label tells; None if it is not one of Figure 2.

    >>> fig2_place("laplace+sdq ε=3.5 R=2")
    Fig2Place(name='laplace+sdq', epsilon=3.5, rate=2.0)
    """
    match = _FIG2_LABEL.fullmatch(label)
    if match is None:
        return None
    return Fig2Place(match["name"], float(match["epsilon"]), float(match["rate"]))


def _fig2_points(runs: Sequence[Run]) -> dict[Fig2Place, float]:
    points = {}
    for label, group in grouped(runs, lambda run: run.label).items():
        place, value = fig2_place(label), decibels(group)
        if place is not None and value is not None:
            points[place] = value
    return points


def save_fig2(runs: Sequence[Run], path: Path) -> None:
    """Figure 2: SNR against R, one panel an ε."""
    figure, panels = new_panels(len(FIG2_EPSILONS), (4.0 * len(FIG2_EPSILONS), 4.0))
    points = _fig2_points(runs)
    names = list(dict.fromkeys(name for name, _, _ in points))
    for panel, epsilon in zip(panels, FIG2_EPSILONS, strict=True):
        for index, name in enumerate(names):
            line = sorted(
                (rate, v) for (n, e, rate), v in points.items() if (n, e) == (name, epsilon)
            )
            if line:  # runs may still be missing
                rates, values = zip(*line, strict=True)
                panel.plot(rates, values, "o-", markersize=4, color=f"C{index}", label=name)
        panel.set_title(f"ε = {epsilon:g}")
        panel.set_xlabel("rate R, bits per entry")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("SNR at the server, 20·log10, dB")
    drawn = [panel for panel in panels if panel.lines]
    if drawn:
        drawn[-1].legend(fontsize=8)
    figure.savefig(path, dpi=150)


def fig3_runs(runs: Iterable[Run]) -> list[Run]:
    """Those that Figure 3 shows: of the linear model, as long as the paper's, each once."""
    labels = {job.label for job in fig3_jobs(None)}
    unique = {(run.label, run.seed, run.rounds): run for run in runs if run.model == "linear"}
    return [run for run in unique.values() if run.label in labels and run.rounds == ROUNDS]


def save_fig3(runs: Sequence[Run], path: Path) -> None:
    """Figure 3: validation accuracy against rounds, mean and range over seeds."""
    figure, (panel,) = new_panels(1, (7.2, 4.6))
    for index, (label, group) in enumerate(grouped(runs, lambda run: run.label).items()):
        rounds = list(zip(*(run.validation for run in group), strict=True))
        draw_mean_and_range(panel, rounds, color=f"C{index}", label=label, linewidth=1.4)
    panel.set_xlabel("round")
    panel.set_ylabel("validation accuracy")
    panel.set_ylim(bottom=0.85)
    panel.set_title("MNIST, linear model, 10 clients, R = 1, ε = 4")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)
