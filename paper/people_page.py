"""A section of docs/people.md and its figures, from the kept runs of ``paper.people``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from jopeq.errors import DataError
from jopeq_lab.attacks.picture import Row, save_grid
from jopeq_lab.attacks.similarity import RECOVERED, measure_fraction
from jopeq_lab.pictures.colours import LOOKS, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save
from paper import people
from paper.runs import read_lines, read_records
from paper.words import ClaimError, environment, fill_in, markdown

_DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
_SHOWN = 4  # images of the picture


def write(results: Path, docs: Path) -> None:
    """The page, its figure, and the picture of the attacks where they are kept."""
    runs = read_records(results / people.FILE, people.PeopleRun)
    if not runs:
        raise DataError(f"{results / people.FILE} holds no run: python -m paper.people sphere")
    draw(runs, docs / "figures" / "person-level.svg")
    attacked = [SimpleNamespace(**one) for one in read_lines(results / people.ATTACKS)]
    if attacked:
        check_attacks(attacked)
        draw_attacks(results, attacked, docs / "figures" / "person-level-attacks.svg")
        fill_in(docs / "entries.md", START, attacks_table(attacked))
    text = (
        environment()
        .get_template("people.md.j2")
        .render(
            reports=reports_table(runs),
            sums=sums_table(runs),
            bits=bits_table(runs),
            entries=entries_table(runs),
            is_resampled=any(run.summary["is_resampled"] for run in runs),
            attacks=bool(attacked),
            data_sets=sorted({run.data for run in runs}),
        )
    )
    fill_in(docs / "people.md", TRAINED, text.strip())


def accuracy(runs: Iterable[people.PeopleRun], label: str, data: str) -> str:
    """Mean ± deviation over seeds in percent, and their number unless it is the usual one."""
    found = [run.test_accuracy for run in runs if (run.label, run.data) == (label, data)]
    if not found:
        return "—"
    number = "" if len(found) == people.SEEDS else f"\u00a0({len(found)})"
    return f"{_over_seeds(found)}{number}"


def _over_seeds(values: Sequence[float]) -> str:
    """Mean ± deviation in percent; one value has no deviation."""
    spread = f"\u00a0±\u00a0{100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.2f}{spread}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown(pd.DataFrame(list(rows), columns=list(headings)))


def reports_table(runs: Sequence[people.PeopleRun]) -> str:
    """People and features down, ε across."""
    rows = []
    trained = {run.data for run in runs if run.label.startswith("sphere")}
    for data in (name for name in _DATA if name in trained):
        for kind, features, size in _POPULATIONS:
            labels = [f"{kind}, {features}, {size:,} people, ε = {e:g}" for e in people.EPSILONS]
            cells = [accuracy(runs, label, data) for label in labels]
            if any(cell != "—" for cell in cells):
                mine = [run for run in runs if run.label in labels and run.data == data]
                star = "*" if any(run.summary["is_resampled"] for run in mine) else ""
                rows.append([_DATA[data], kind, features, f"{size:,}{star}", *cells])
        free = accuracy(runs, f"none, hog, {people.SIZES[0]:,} people", data)
        rows.append([_DATA[data], "no noise", "hog", f"{people.SIZES[0]:,}", free, free, free])
    headings = ("data", "by", "features", "people")
    return _table([*headings, *(f"ε = {epsilon:g}" for epsilon in people.EPSILONS)], rows)


_POPULATIONS = (
    *(("sphere", "hog", size) for size in people.SIZES),
    ("sphere", "pixels", people.SIZES[0]),
    *((kind, "hog", people.SIZES[0]) for kind in ("sum", "central")),
)


def _cohorts(runs: Sequence[people.PeopleRun]) -> Iterator[tuple[str, str, list[str]]]:
    """(data, name of the central baseline, its cells) for each population of sums and its ε."""
    for data, title in _DATA.items():
        for label in dict.fromkeys(run.label for run in runs if run.data == data):
            name = label.removeprefix("central, ")
            if name != label and not name.startswith("hog"):
                model, _, rest = name.removeprefix("CIFAR-10 ").partition(", ")
                size, _, epsilon = rest.rpartition(", ε = ")
                yield data, name, [title, model, size.replace(" people", ""), epsilon]


def sums_table(runs: Sequence[people.PeopleRun]) -> str:
    """Secure sums with the bits of the plan, central noise, and none."""
    rows = []
    for data, name, cells in _cohorts(runs):
        labels = (f"sum, {name}", f"central, {name}", f"none, {name.rpartition(', ε')[0]}")
        rows.append([*cells, *(accuracy(runs, label, data) for label in labels)])
    headings = ("data", "model", "people", "ε", "sum", "central", "no noise")
    return _table(headings, rows)


def bits_table(runs: Sequence[people.PeopleRun]) -> str:
    """The accuracies of the sums with different numbers of bits."""
    rows = []
    for data, name, cells in _cohorts(runs):
        found = [accuracy(runs, f"sum, {name}, {width} bits", data) for width in people.BITS]
        if any(cell != "—" for cell in found):
            rows.append([*cells[:2], *found, accuracy(runs, f"sum, {name}", data)])
    widths = [f"{width} bits" for width in people.BITS]
    return _table(["data", "model", *widths, "the plan's"], rows)


def entries_table(runs: Sequence[people.PeopleRun]) -> str:
    """Per-entry schemes with the ε of a person."""
    labels = dict.fromkeys(run.label for run in runs if run.label.startswith("response"))
    rows = []
    for label in labels:
        mine = [run for run in runs if run.label == label]
        rows.append([label, f"{mine[0].epsilon or 0.0:,.0f}", accuracy(runs, label, mine[0].data)])
    return _table(["scheme", "ε of a person", "accuracy"], rows) if rows else ""


def attacks_table(attacked: Sequence[Any]) -> str:
    """Recovered images and the best SSIM, methods across."""
    methods = list(dict.fromkeys(one.method for one in attacked))
    rows = []
    for label in dict.fromkeys(one.label for one in attacked):
        cells = []
        for method in methods:
            (one,) = (a for a in attacked if (a.label, a.method) == (label, method))
            hits = measure_fraction(sum(value > RECOVERED for value in one.ssim), len(one.ssim))
            cells.append(f"{hits}; {statistics.fmean(one.ssim):.2f}, {max(one.ssim):.2f}")
        rows.append([label, *cells])
    return _table(["sent by", *methods], rows)


def check_attacks(attacked: Sequence[Any]) -> None:
    """Raise unless, as docs/entries.md says, nothing is recovered from ``sphere``."""
    hits = [
        f"{one.label}, {one.method}"
        for one in attacked
        if one.label.startswith("sphere") and max(one.ssim) > RECOVERED
    ]
    if hits:
        raise ClaimError(f"docs/entries.md says that nothing is recovered: {'; '.join(hits)}")


TRAINED = "<!-- trained: written by python -m paper.people page -->"
START = "<!-- attacks on reports: written by python -m paper.people page -->"


# Figures


_FAR = 1000.0
_LINES = {"central": ":", "1,000,000 people": ":", "200,000 people": "--"}


def draw(runs: Sequence[people.PeopleRun], path: Path) -> None:
    """Test accuracy on MNIST against the ε of a person; ε of thousands stand in a note.

    All with the same features: the tables have the others.
    """
    lines: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        is_shown = run.epsilon is not None and ("hog" in run.label or run.epsilon > _FAR)
        if run.data == "mnist" and is_shown and "bits" not in run.label:
            name = run.label.partition(", ε")[0]
            lines.setdefault(name, {}).setdefault(run.epsilon, []).append(run.test_accuracy)
    figure, (panel,) = new_panels(1, 4.2)
    dress(panel, "MNIST, hog features", ylabel="test accuracy, %", ylim=(89, 98))
    plain_log(panel, "x", people.EPSILONS)
    names, far = [], []
    for name, points in sorted(lines.items(), key=lambda line: line[0].startswith("central")):
        look = LOOKS["clients"] if name.startswith("sum") else look_of(name)
        means = {place: 100 * statistics.fmean(points[place]) for place in sorted(points)}
        if max(means) > _FAR:
            far += [f"{mean:.1f}% at ε = {place:,.0f}" for place, mean in means.items()]
            continue
        how = "central" if name.startswith("central") else name.split(", ")[-1]
        style: Any = {"linestyle": _LINES.get(how, "-"), "markersize": 5}
        panel.plot(*zip(*means.items(), strict=True), look.marker, color=look.colour, **style)
        said = name.replace(" people", "").replace(", hog", "")
        names.append((list(means.values())[-1], said, look.colour))
    panel.set_xlabel("ε of a person, over all reports")
    name_lines(panel, names)
    if far:
        figure.supxlabel(f"Not shown: response, per entry, {' and '.join(far)}", fontsize=8)
    save(figure, path)


def draw_attacks(results: Path, attacked: Sequence[Any], path: Path) -> None:
    """The best attacker's pictures, for every scheme."""
    with np.load(results / people.PICTURES, allow_pickle=False) as held:
        pictures: dict[str, Any] = {name: held[name] for name in held.files}
    rows = []
    for label in dict.fromkeys(one.label for one in attacked):
        own = [one for one in attacked if one.label == label]
        best = max(own, key=lambda one: statistics.fmean(one.ssim))
        images = pictures[f"{label}|{best.method}"][:_SHOWN]
        name = f"{label.replace(', ', chr(10))}\n({best.method})"
        rows.append(Row(name, images, best.ssim[:_SHOWN]))
    save_grid(pictures["originals"][:_SHOWN], rows, path)
