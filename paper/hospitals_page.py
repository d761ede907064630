"""The tables of docs/hospitals.md and the picture of the front page, from ``paper.hospitals``.

python -m paper.hospitals_page
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jopeq_lab.pictures.colours import DARK, GREY, INK, LOOKS, PAGE
from jopeq_lab.pictures.drawing import new_figure, save
from paper.hospitals import EPSILONS, RUNS, SETS, Job
from paper.runs import read_lines
from paper.words import ClaimError, fill_in

START = "<!-- results: written by python -m paper.hospitals_page -->"
AUC, ACCURACY = "test_auc", "test_accuracy"
ROWS = {  # what a row is called: label of its runs, and what it shows
    "MNIST, HOG, 60,000 digits": ("MNIST, HOG", ACCURACY),
    "MNIST, HOG, 4,000 digits": ("MNIST, 400 a hospital", ACCURACY),
    "MNIST, scattering, 60,000 digits": ("MNIST, scattering", ACCURACY),
    "Fashion-MNIST, scattering, 60,000 images": ("Fashion-MNIST, scattering", ACCURACY),
    "CIFAR-10, ImageNet features, 50,000 images": ("CIFAR-10, ImageNet features", ACCURACY),
    "breast cancer, 400 patients": ("breast cancer", ACCURACY),
    "breast cancer, AUC": ("breast cancer", AUC),
    "flchain, 6,300 patients, AUC": ("flchain", AUC),
}
BETWEEN = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
SAME = {"MNIST, HOG": "mnist", "CIFAR-10, ImageNet features": "cifar"}
_IMAGES = [label for label, one in SETS.items() if one.test is None]
_CANCER = "breast cancer"
Record = dict[str, Any]


def alike(runs: Iterable[Record], job: Job) -> Iterator[Record]:
    """Runs of all seeds that are like ``job`` in all but their settings."""
    place = (job.label, job.method, job.epsilon, job.hospitals, job.partition)
    for run in runs:
        one = Job.of(run)
        if (one.label, one.method, one.epsilon, one.hospitals, one.partition) == place:
            yield run


def values(runs: Iterable[Record], job: Job, what: str = ACCURACY) -> list[float]:
    """The accuracies of all seeds, in percent."""
    return [100 * run[what] for run in alike(runs, job)]


def cell(runs: Iterable[Record], job: Job, what: str = ACCURACY) -> str:
    """Mean ± deviation over the seeds, in one line."""
    if not (found := values(runs, job, what)):
        return "—"
    return f"{statistics.fmean(found):.2f}{BETWEEN}{statistics.stdev(found):.2f}"


def converged(fits: Iterable[Record], label: str, what: str = ACCURACY) -> list[float]:
    """The converged model's mean, and deviation over splits, in percent: ``benchmarks/fits.py``."""
    name, table = what.removeprefix("test_"), SAME.get(label, label)
    found = list[float]()
    for one in fits:
        if one["bench"] in ("converged", "hospitals") and one.get("table") == table:
            found = [one[key] for key in (name, f"± {name}") if key in one] or found
    return found


def tables(runs: Sequence[Record], fits: Sequence[Record]) -> str:
    """Show the accuracy at each ε, next to the alternatives, and by number of hospitals."""
    there = {run["label"] for run in runs}
    rows = {name: of for name, of in ROWS.items() if of[0] in there}
    first = [("rounds, q | bits at ε = 1", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))]
    beside = ("central", "shares", "local", "alone", "sum")
    second = [
        ("no privacy, converged", "no privacy, as many rounds", "trusted server", "**RecordSum**",
         "each adds all its noise", "one hospital alone", "`ClientSum`, ε for the hospital"),
    ]  # fmt: skip
    third = [(*(f"{count} hospitals" for count in (5, 10, 30, 100)), "ten unequal")]
    for label, what in rows.values():
        one, ours = SETS[label], Job(label, "shares", 1.0, 0)
        bits = next(alike(runs, ours))["bits"]
        at = [cell(runs, Job(label, "shares", epsilon, 0), what) for epsilon in EPSILONS]
        first.append((f"{one.rounds}, {one.sampling:g} | {bits}", *at))
        methods = [cell(runs, Job(label, method, 1.0, 0), what) for method in ("none", *beside)]
        best = BETWEEN.join(f"{one:.2f}" for one in converged(fits, label, what))
        second.append((best or "not run", *methods))
        cohorts = [Job(label, "shares", 1.0, 0, hospitals=count) for count in (5, 10, 30, 100)]
        cohorts.append(Job(label, "shares", 1.0, 0, partition="dirichlet"))
        third.append(tuple(cell(runs, job, what) for job in cohorts))
    heads = (
        "Ten hospitals, `RecordSum`, by ε for one patient:",
        "How the alternatives compare, all at ε = 1:",
        "`RecordSum` at ε = 1, by number of hospitals:",
    )
    parts = []
    for head, (titles, *lines) in zip(heads, (first, second, third), strict=True):
        columns = " | ".join(titles)
        text = [head, "", f"| data, % | {columns} |", "|---" * (columns.count("|") + 2) + "|"]
        named = zip(rows, lines, strict=True)
        parts += [*text, *(f"| {name} | {' | '.join(line)} |" for name, line in named), ""]
    twenty = Job(_CANCER, "shares", 1.0, 0, hospitals=20)
    found = (cell(runs, twenty, what) for what in (ACCURACY, AUC))
    parts.append("Breast cancer in 20 hospitals, 20 patients each: {}, AUC {}.".format(*found))
    return "\n".join(parts).rstrip()


def claims(runs: Sequence[Record]) -> dict[str, bool]:
    """The page's claims about the numbers, and whether they hold."""
    labels = [label for label in _IMAGES if any(run["label"] == label for run in runs)]

    def mean(label: str, method: str, epsilon: float = 1.0, **other: Any) -> float:
        return statistics.fmean(values(runs, Job(label, method, epsilon, 0, **other)))

    ours = [run for run in runs if run["method"] == "shares"]
    near = [mean(x, "shares", e) - mean(x, "central", e) for x in labels for e in EPSILONS]
    order = ("none", "shares", "local", "alone", "sum")
    many = [(x, count) for x in labels for count in SETS[x].cohorts]
    moved = [mean(x, "shares") - mean(x, "shares", hospitals=count) for x, count in many]
    moved += [mean(x, "shares") - mean(x, "shares", partition="dirichlet") for x in labels]
    return {
        "ε is proven for every share": all(run["proven"] <= run["epsilon"] for run in ours),
        "images: within 0.6 points of a trusted server": max(map(abs, near)) < 0.6,
        "images: no privacy, RecordSum, own noise, alone, ClientSum, in this order": all(
            sorted(order, key=lambda method, x=x: -mean(x, method)) == [*order] for x in labels
        ),
        "images: other numbers and sizes of hospitals move it by at most 0.6": (
            max(map(abs, moved)) < 0.6
        ),
        "breast cancer: other numbers of hospitals move it by less than one deviation": all(
            abs(mean(_CANCER, "shares") - mean(_CANCER, "shares", hospitals=count))
            < statistics.stdev(values(runs, Job(_CANCER, "shares", 1.0, 0)))
            for count in SETS[_CANCER].cohorts
        ),
    }


def write(results: Path, docs: Path) -> None:
    """Fill in the tables and draw the picture, if all claims hold."""
    runs = read_lines(results / RUNS)
    if failed := [said for said, holds in claims(runs).items() if not holds]:
        raise ClaimError(f"{results / RUNS} does not support: {'; '.join(failed)}")
    fits = read_lines(results / FITS)
    fill_in(docs / "hospitals.md", START, tables(runs, fits))
    for name in FILES:
        draw(fits, runs, docs / "figures" / name)


# The picture of the front page: ten hospitals, one model in seven messages, and its accuracy


FITS, MESSAGES = "fits.jsonl", 7
FILES = (
    *("front.svg", "front-phone.svg"),  # of the site, and those of README:
    *("front.png", "front-dark.png", "front-phone.png", "front-phone-dark.png"),
)
_PANELS = {  # of a panel: its title, its name in fits.jsonl, and the label of the runs in rounds
    "MNIST, HOG features": ("mnist", "MNIST, HOG"),
    "CIFAR-10, public ImageNet features": ("cifar", "CIFAR-10, ImageNet features"),
}
_OURS = LOOKS["records"].colour
_ROUNDS = {  # method of the runs in rounds: its name in the picture
    "none": "without privacy, {rounds} rounds",
    "shares": "ε = 1, training together in {rounds} rounds",
    "local": "ε = 1, each adds all the noise, {rounds} rounds",
    "alone": "ε = 1, one hospital alone, {rounds} rounds",
}


def rows_of(
    name: str, label: str, fits: Sequence[Record], runs: Sequence[Record]
) -> dict[str, float]:
    """Accuracies by what the picture calls them; none where the model was not run.

    Later lines of fits.jsonl replace earlier ones of the same kind.
    Without privacy the converged model is the comparison, or else training in as many rounds.
    """
    models = [one for one in fits if (one["bench"], one.get("messages")) == (name, MESSAGES)]
    plain = [one for one in fits if (one["bench"], one.get("table")) == ("converged", name)]
    if not models:
        return {}
    found = {"converged, without privacy": plain[-1]["accuracy"]} if plain else {}
    ours = {f"ε = 1, {MESSAGES} messages, nothing tuned": models[-1]["accuracy"]}
    for method, said in _ROUNDS.items():
        mine = [
            run
            for run in runs
            if (run["label"], run["method"]) == (label, method)
            and (method == "none" or run["epsilon"] == 1.0)
            and {"hospitals", "partition"}.isdisjoint(run)
        ]
        accuracy = 100 * statistics.fmean(run["test_accuracy"] for run in mine)
        if method != "none" or not plain:
            found[said.format(rounds=mine[0]["rounds"])] = accuracy
        found |= ours  # below what has no privacy
    return found


def draw(fits: Sequence[Record], runs: Sequence[Record], path: Path) -> None:
    """Hospitals and server beside the accuracies; in a file "…-phone…" above them.

    An SVG file follows the page; a PNG file "…-dark" is for dark pages.
    """
    panels = {title: rows_of(*names, fits, runs) for title, names in _PANELS.items()}
    panels = {title: rows for title, rows in panels.items() if rows}
    is_stacked = "-phone" in path.stem
    high = 3.1 * len(panels)
    figure = new_figure((6.0, 4.8 + high) if is_stacked else (12.0, 3.8 + 1.2 * len(panels)))
    figure.set_layout_engine("none")
    part = high / (4.8 + high)
    story = (0.0, part, 1.0, 1 - part) if is_stacked else (0.0, 0.0, 0.5, 1.0)
    _draw_story(figure.add_axes(story))
    top = part if is_stacked else 1.0
    for place, (title, rows) in enumerate(panels.items()):
        each = top / len(panels)
        bottom = top - each * (place + 1) + 0.2 * each
        left, wide = (0.06, 0.86) if is_stacked else (0.54, 0.43)
        _draw_accuracies(figure.add_axes((left, bottom, wide, 0.66 * each)), title, rows)
    if path.stem.endswith("-dark"):
        _darken(figure)
    save(figure, path)


def _darken(figure: Any) -> None:
    """Give everything the colour that it has on a dark page."""
    from matplotlib.colors import to_hex

    kinds = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
    for artist in figure.findobj():
        for kind in kinds:
            colour = getattr(artist, f"get_{kind}", lambda: None)()
            is_one = isinstance(colour, str) or (isinstance(colour, tuple) and colour[-1:] != (0,))
            if is_one and colour != "none" and to_hex(colour) in DARK:
                getattr(artist, f"set_{kind}")(DARK[to_hex(colour)])


def _draw_story(panel: Any) -> None:
    """Ten hospitals, one of them opened, and what the server gets."""
    from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Wedge

    panel.set(xlim=(0, 600), ylim=(0, 480), aspect="equal")
    panel.axis("off")

    def write(x: float, y: float, text: str, size: float, colour: str = INK, **look: Any) -> None:
        look = {"ha": "center", "va": "center", **look}
        panel.text(x, y, text, fontsize=size, color=colour, **look)

    def box(x: float, y: float, width: float, height: float, **look: Any) -> None:
        look = {"facecolor": PAGE, "edgecolor": GREY, "linewidth": 1.2, "zorder": 2, **look}
        corners = "round,pad=0,rounding_size=7"
        panel.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corners, **look))

    def point(
        start: tuple[float, float], end: tuple[float, float], width: float, **look: Any
    ) -> None:
        look = {"arrowstyle": "-|>", "mutation_scale": 7 + 3 * width, "linewidth": width, **look}
        panel.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, zorder=1, **look))

    bold = {"fontweight": "bold"}
    write(26, 452, "Ten hospitals, one model, ε = 1 for every patient", 14, ha="left", **bold)
    write(26, 424, "Patients trust only their own hospital.", 13, GREY, ha="left")
    box(26, 150, 206, 222, edgecolor=_OURS, linewidth=2.4, linestyle=(0, (4, 2)))
    write(26, 388, "only your hospital sees this", 12.5, _OURS, ha="left", **bold)
    for place in range(15):
        x, y = 55 + 37 * (place % 5), 334 - 48 * (place // 5)
        panel.add_patch(Circle((x, y + 13), 6, color=GREY, linewidth=0, zorder=3))
        panel.add_patch(Wedge((x, y - 8), 11, 0, 180, color=GREY, linewidth=0, zorder=3))
    write(129, 184, "clip, add up,\nadd noise, mask", 12.5)
    box(408, 164, 170, 152, edgecolor=INK, linewidth=1.8)
    point((236, 258), (404, 250), 2.8, color=_OURS)
    for place in range(9):
        x, y = 26 + 72 * (place % 3), 102 - 38 * (place // 3)
        box(x, y, 62, 28)
        panel.plot([x + 31] * 2, [y + 7, y + 21], color=GREY, linewidth=2.4, zorder=3)
        panel.plot([x + 24, x + 38], [y + 14] * 2, color=GREY, linewidth=2.4, zorder=3)
    for place in range(9):  # from the hospitals' right side, fanned out
        start, end = (236, 126 - 12.5 * place), (421 + 18 * place, 161)
        bend = f"arc3,rad={0.22 + 0.02 * place}"
        point(start, end, 1.1, color=GREY, connectionstyle=bend)
    write(318, 288, f"{MESSAGES} masked\nshares", 13, _OURS, **bold)
    for row in range(3):
        box(437, 286 - 23 * row, 112, 18, linewidth=1.0)
        panel.plot([449], [295 - 23 * row], "o", color=_OURS, markersize=4, zorder=3)
    write(493, 220, "the server", 13.5, **bold)
    write(493, 188, "sees only the\ntotal + noise", 12.5)
    point((493, 318), (493, 350), 1.6, color=INK)
    write(493, 365, "a model for all", 13)


def _draw_accuracies(panel: Any, title: str, rows: Mapping[str, float]) -> None:
    """A dot for each way, with what it is above it."""
    least = min(rows.values())
    low = 5 * ((least - 1) // 5)
    high = 100.0
    for place, (name, accuracy) in enumerate(rows.items()):
        is_ours = "messages" in name
        colour = _OURS if is_ours else INK if "without" in name else GREY
        look = {"fontweight": "bold"} if is_ours else {}
        panel.plot([low, high], [-place] * 2, color=GREY, linewidth=0.8, alpha=0.4, zorder=1)
        panel.plot([accuracy], [-place], "o", color=colour, markersize=14 if is_ours else 9)
        panel.text(low, 0.2 - place, name, va="bottom", fontsize=13, color=colour, **look)
        panel.text(
            high, 0.2 - place, f"{accuracy:.2f}%", va="bottom", ha="right", fontsize=13,
            color=colour, **look,
        )  # fmt: skip
    panel.set(xlim=(low, high), ylim=(0.5 - len(rows), 0.8), yticks=[])
    panel.locator_params(axis="x", nbins=5, steps=[1, 2, 5, 10])
    panel.set_xlabel("test accuracy, %", fontsize=12)
    panel.tick_params(labelsize=12)
    panel.set_title(title, loc="left", fontsize=13.5, fontweight="bold", pad=8)
    panel.spines[["top", "right", "left"]].set_visible(False)


if __name__ == "__main__":
    write(Path("results"), Path("docs"))
