"""docs/person-level.md and its figures, from the kept runs of ``paper.people``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jopeq.analysis.drawing import new_figure
from jopeq.attacks.metrics import RECOVERED, share
from jopeq.attacks.picture import Column, save_grid
from jopeq.errors import DataError
from jopeq.federated.runs import over_seeds, read_records
from jopeq.files import atomic
from paper import people
from paper.pages import environment

_SHOWN = 4  # images of the picture


def write(results: Path, docs: Path) -> None:
    """The page, its figure, and the picture of the attacks where they are kept."""
    runs = read_records(results / people.FILE, people.PeopleRun)
    if not runs:
        raise DataError(f"{results / people.FILE} holds no run: python -m paper.people sphere")
    draw(runs, docs / "figures" / "person-level.png")
    attacked = read_records(results / people.ATTACKS, people.Attacked)
    if attacked:
        draw_attacks(results, attacked, docs / "figures" / "person-level-attacks.png")
    text = (
        environment()
        .get_template("person-level.md.j2")
        .render(
            reports=reports_table(runs),
            sums=sums_table(runs),
            entries=entries_table(runs),
            recipes=recipes_table(read_records(results / people.RECIPES, people.Recipe)),
            attacks=attacks_table(attacked),
            data_sets=sorted({run.data for run in runs}),
        )
    )
    with atomic(docs / "person-level.md") as file:
        file.write(text.encode())


def accuracy(runs: Iterable[people.PeopleRun], label: str, data: str) -> str:
    """Mean ± deviation over seeds in percent, and the number of seeds."""
    found = [run.test_accuracy for run in runs if (run.label, run.data) == (label, data)]
    return f"{over_seeds(found)} ({len(found)})" if found else "—"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join((*lines, *("| " + " | ".join(row) + " |" for row in rows)))


def reports_table(runs: Sequence[people.PeopleRun]) -> str:
    """People and features down, ε across."""
    rows = []
    for data in sorted({run.data for run in runs if run.label.startswith("sphere")}):
        for features, size in [*(("hog", size) for size in people.SIZES), ("pixels", 50_000)]:
            labels = [people.sphere_label(features, size, e) for e in people.EPSILONS]
            cells = [accuracy(runs, label, data) for label in labels]
            if any(cell != "—" for cell in cells):
                again = any(run.summary["is_resampled"] for run in runs if run.label in labels)
                size_text = f"{size:,}{'*' if again else ''}"
                rows.append([data, features, size_text, *cells])
    return _table(
        ["data", "features", "people", *(f"ε = {epsilon:g}" for epsilon in people.EPSILONS)], rows
    )


def sums_table(runs: Sequence[people.PeopleRun]) -> str:
    """One row for each population and ε of the central baseline."""
    rows = []
    for data in sorted({run.data for run in runs}):
        names = dict.fromkeys(
            run.label.removeprefix("central, ")
            for run in runs
            if run.data == data and run.label.startswith("central")
        )
        for name in names:
            population = name.rpartition(", ε")[0]
            bits = [accuracy(runs, f"sum, {name}, {width} bits", data) for width in people.BITS]
            rows.append(
                [
                    data,
                    name,
                    *bits,
                    accuracy(runs, f"sum, {name}", data),
                    accuracy(runs, f"central, {name}", data),
                    accuracy(runs, f"none, {population}", data),
                ]
            )
    widths = [f"{width} bits" for width in people.BITS]
    return _table(["data", "population", *widths, "bits by the plan", "central", "none"], rows)


def entries_table(runs: Sequence[people.PeopleRun]) -> str:
    """Per-entry schemes with the ε of a person."""
    labels = dict.fromkeys(run.label for run in runs if run.label.startswith("response"))
    rows = []
    for label in labels:
        mine = [run for run in runs if run.label == label]
        rows.append([label, f"{mine[0].epsilon or 0.0:,.0f}", accuracy(runs, label, mine[0].data)])
    return _table(["scheme", "ε of a person", "accuracy"], rows) if rows else ""


def recipes_table(recipes: Sequence[people.Recipe]) -> str:
    """The settings that were found."""
    if not recipes:
        rows = [["default", *(f"{people.DEFAULT.get(name, 0):g}" for name in _SETTINGS), ""]]
    else:
        rows = [
            [
                one.label,
                *(f"{one.settings.get(name, 0):.3g}" for name in _SETTINGS),
                f"{100 * one.validation_accuracy:.2f}",
            ]
            for one in recipes
        ]
    return _table(["population", *_SETTINGS, "held-out accuracy"], rows)


_SETTINGS = (
    *("clip", "rounds", "local_steps", "lr", "server_lr", "server_momentum"),
    *("center", "average", "decay"),
)


def attacks_table(attacked: Sequence[people.Attacked]) -> str:
    """Recovered images and the best SSIM, methods across."""
    if not attacked:
        return ""
    methods = list(dict.fromkeys(one.method for one in attacked))
    rows = []
    for label in dict.fromkeys(one.label for one in attacked):
        cells = []
        for method in methods:
            (one,) = (a for a in attacked if (a.label, a.method) == (label, method))
            hits = share(sum(value > RECOVERED for value in one.ssim), len(one.ssim))
            cells.append(f"{hits}; {statistics.fmean(one.ssim):.2f}, {max(one.ssim):.2f}")
        rows.append([label, *cells])
    return _table(["sent by", *methods], rows)


# Figures


def draw(runs: Sequence[people.PeopleRun], path: Path) -> None:
    """Test accuracy on MNIST against the ε of a person."""
    figure = new_figure((7.0, 4.4))
    panel = figure.subplots()
    lines: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        if run.data == "mnist" and run.epsilon is not None and "bits" not in run.label:
            name = run.label.partition(", ε")[0]
            lines.setdefault(name, {}).setdefault(run.epsilon, []).append(run.test_accuracy)
    for name, points in lines.items():
        places = sorted(points)
        means = [100 * statistics.fmean(points[place]) for place in places]
        marks = {"sphere": "o-", "sum": "s--", "central": "^:", "response": "x-"}
        panel.plot(places, means, marks[name.partition(",")[0]], label=name, markersize=5)
    panel.set_xscale("log", base=2)
    panel.set(xlabel="ε of a person, for all that she sends", ylabel="test accuracy, %")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw_attacks(results: Path, attacked: Sequence[people.Attacked], path: Path) -> None:
    """The best attacker's pictures, for every scheme."""
    with np.load(results / people.PICTURES, allow_pickle=False) as held:
        pictures: dict[str, Any] = {name: held[name] for name in held.files}
    columns = []
    for label in dict.fromkeys(one.label for one in attacked):
        own = [one for one in attacked if one.label == label]
        best = max(own, key=lambda one: statistics.fmean(one.ssim))
        images = pictures[f"{label}|{best.method}"][:_SHOWN]
        title = f"{label.replace(', ', chr(10))}\n({best.method})"
        columns.append(Column(title, images, best.ssim[:_SHOWN]))
    save_grid(pictures["originals"][:_SHOWN], columns, path)
