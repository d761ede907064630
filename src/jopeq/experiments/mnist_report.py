"""Tables and figures of the MNIST experiments, from the runs that were kept."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jopeq.experiments.mnist import (
    AUTHORS_CODE,
    AUTHORS_SNR_DB,
    FIG2_EPSILONS,
    MODELS,
    PAPER,
    schemes_at,
)
from jopeq.experiments.runs import Run

_FIG2_LABEL = re.compile(r"(?P<name>.+) ε=(?P<epsilon>[\d.]+) R=(?P<rate>[\d.]+)")


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float
    count: int

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.deviation:.2f}"


def over_seeds(values: Sequence[float]) -> Cell:
    """The cell of some values; the deviation of one value is 0."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Cell(statistics.fmean(values), spread, len(values))


def decibels(runs: Iterable[Run]) -> float | None:
    """20·log10 of the mean SNR, as in the paper's tables; None when nothing was lost."""
    values = [run.snr for run in runs]
    if not values or None in values:
        return None
    return 20.0 * math.log10(statistics.fmean(value for value in values if value is not None))


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Runs by key, in the order they come."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def table1_markdown(runs: Sequence[Run]) -> str:
    """Table I: paper, authors' code and ours side by side."""
    cells = grouped(runs, lambda run: (run.label, run.model))
    labels = [label for label in schemes_at() if any(run.label == label for run in runs)]
    lines = [
        "| scheme | " + " | ".join(f"{model}: paper / authors' code / ours" for model in MODELS),
        "|---|" + "---|" * len(MODELS),
    ]
    lines[0] += (
        " | SNR dB (linear): authors' code / ours | bits per parameter | ε asked | ε proven |"
    )
    lines[1] += "---|---|---|---|"
    for label in labels:
        row = [f"`{label}`" if label in PAPER else label]
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
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def fig2_markdown(runs: Sequence[Run]) -> str:
    """SNR in dB for every scheme, ε and R."""
    points = _fig2_points(runs)
    rates = sorted({rate for _, _, rate in points})
    lines = [
        "| scheme | ε | " + " | ".join(f"R={rate:g}" for rate in rates) + " |",
        "|---|---|" + "---|" * len(rates),
    ]
    for name, epsilon in dict.fromkeys((name, epsilon) for name, epsilon, _ in points):
        values = [points.get((name, epsilon, rate)) for rate in rates]
        shown = ["–" if value is None else f"{value:.2f}" for value in values]
        lines.append(f"| `{name}` | {epsilon:g} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _fig2_points(runs: Sequence[Run]) -> dict[tuple[str, float, float], float]:
    points = {}
    for label, group in grouped(runs, lambda run: run.label).items():
        match = _FIG2_LABEL.fullmatch(label)
        value = decibels(group)
        if match is not None and value is not None:
            key = (match["name"], float(match["epsilon"]), float(match["rate"]))
            points[key] = value
    return points


def save_fig2(runs: Sequence[Run], path: Path) -> None:
    """Figure 2: SNR against R, one panel an ε."""
    figure, panels = new_figure(len(FIG2_EPSILONS), (4.0 * len(FIG2_EPSILONS), 4.0))
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


def save_fig3(runs: Sequence[Run], path: Path) -> None:
    """Figure 3: validation accuracy against rounds, mean and range over seeds."""
    figure, (panel,) = new_figure(1, (7.2, 4.6))
    for index, (label, group) in enumerate(grouped(runs, lambda run: run.label).items()):
        curves = [run.validation for run in group]
        rounds = range(1, len(curves[0]) + 1)
        means = [statistics.fmean(values) for values in zip(*curves, strict=True)]
        low = [min(values) for values in zip(*curves, strict=True)]
        high = [max(values) for values in zip(*curves, strict=True)]
        panel.plot(rounds, means, color=f"C{index}", label=label, linewidth=1.4)
        panel.fill_between(rounds, low, high, color=f"C{index}", alpha=0.12, linewidth=0)
    panel.set_xlabel("round")
    panel.set_ylabel("validation accuracy")
    panel.set_ylim(bottom=0.85)
    panel.set_title("MNIST, linear model, 10 clients, R = 1, ε = 4")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


def new_figure(panels: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure of panels side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels, squeeze=False)[0]
