"""The tables of docs/hospitals.md and the picture of the front page, from ``paper.hospitals``.

python -m paper.hospitals_page
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paper import front
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
    fits = read_lines(results / front.FITS)
    fill_in(docs / "hospitals.md", START, tables(runs, fits))
    for name in front.FILES:
        front.draw(fits, runs, docs / "figures" / name)


if __name__ == "__main__":
    write(Path("results"), Path("docs"))
