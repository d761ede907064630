"""How far are answers of a survey from the truth? The table of docs/statistics.md.

    PYTHONPATH=src python benchmarks/surveys.py [--runs 400]

Ages of 4,000 records in ten hospitals; every run sums real shares with fresh noise. The line is
kept in results/surveys.jsonl, and the table is made of the last one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from jopeq.statistics import Histogram, Mean, Quantiles, Survey
from timing import machine

ROOT = Path(__file__).parents[1]
KEPT, PAGE = ROOT / "results" / "surveys.jsonl", ROOT / "docs" / "statistics.md"
START, END = "<!-- surveys: begin -->", "<!-- surveys: end -->"
RECORDS, HOSPITALS, EPSILON, DELTA, TOP = 4000, 10, 0.5, 1e-5, 120
AIMS = {  # of each error: what it is called, and the aim
    "mean": ("mean, of the range", 0.02),
    "quartiles": ("the worst of three quartiles, of the range", 0.03),
    "bins": ("the worst of 20 bins, of the records", 0.015),
}


def errors(runs: int) -> dict[str, list[float]]:
    """Each error of every run."""
    ages = np.clip(np.random.default_rng(0).normal(55, 18, RECORDS), 0, TOP)
    quartiles = np.quantile(ages, (0.25, 0.5, 0.75))
    counts, _ = np.histogram(ages, 20, (0, TOP))
    survey = Survey(
        [Mean("age", 0, TOP), Quantiles("age", 0, TOP), Histogram("age", np.linspace(0, TOP, 21))],
        epsilon=EPSILON, delta=DELTA, clients=HOSPITALS, threshold=8,
    )  # fmt: skip
    tables = [{"age": part} for part in np.array_split(ages, HOSPITALS)]
    found: dict[str, list[float]] = {name: [] for name in AIMS}
    for _ in range(runs):
        lines = {kind: answer.lines for kind, answer in survey.ask(tables)["age"].items()}
        values = {kind: np.array([value for _, value, _ in one]) for kind, one in lines.items()}
        found["mean"].append(abs(values["mean"][0] - ages.mean()) / TOP)
        found["quartiles"].append(np.abs(values["quartiles"] - quartiles).max() / TOP)
        found["bins"].append(np.abs(values["histogram"][:20] - counts).max() / RECORDS)
    return found


def table(kept: dict[str, Any]) -> str:
    """The table of a kept line."""
    lines = ["| error | root mean square | 99% of runs are below | our aim |", "|---|---|---|---|"]
    for name, (said, aim) in AIMS.items():
        square, most = (f"{100 * kept[name][key]:.1f}%" for key in ("rms", "99%"))
        lines.append(f"| {said} | {square} | {most} | {100 * aim:g}% |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    kept: dict[str, Any] = {
        name: {"rms": float(np.sqrt(np.mean(np.square(one)))), "99%": float(np.quantile(one, 0.99))}
        for name, one in errors(runs).items()
    }
    kept |= {"runs": runs, "machine": machine()}
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(kept) + "\n")
    head, _, rest = PAGE.read_text("utf-8").partition(START)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{START}\n\n{table(kept)}\n\n{END}{tail}", "utf-8")


if __name__ == "__main__":
    main()
