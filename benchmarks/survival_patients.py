"""Survival of real patients in ten hospitals, next to the same without privacy.

    PYTHONPATH=src python benchmarks/survival_patients.py [--runs 20] [--picture FILE]

Needs scikit-survival (flchain, whas500, and the curves and tests without privacy), and lifelines'
file ACTG175.csv, both from their wheels. Lines are added to results/survival.jsonl: how far private
curves are from those of Kaplan and Meier, how often these are in the bands, the log-rank test, and
the C-index of hazard ratios next to that of Cox.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sksurv.compare import compare_survival
from sksurv.datasets import load_flchain, load_whas500
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.nonparametric import kaplan_meier_estimator

from jopeq.models import Category, Hazard, Number
from jopeq.models.hazard import concordance
from jopeq.statistics import Survey, Survival
from jopeq.statistics.tables import read_table


def tables() -> dict[str, tuple[Any, Survival]]:
    found = {}
    (folder,) = importlib.util.find_spec("lifelines").submodule_search_locations
    actg = pd.read_csv(Path(folder) / "datasets" / "ACTG175.csv")
    names = {0: "zidovudine", 1: "+ didanosine", 2: "+ zalcitabine", 3: "didanosine"}
    actg["arm"] = actg["arms"].map(names)
    by = Category("arm", tuple(names.values()))
    found["ACTG175"] = actg, Survival("days", "cens", range(0, 1201, 100), by=by)
    for name, load, group, levels, edges in (
        ("flchain", load_flchain, "sex", ("F", "M"), range(0, 5001, 500)),
        ("whas500", load_whas500, "chf", ("0", "1"), (0, 30, 90, 180, 365, 730, 1095, 1460, 1825)),
    ):
        table, outcome = load()
        event, time = outcome.dtype.names
        table = table.assign(death=outcome[event], days=outcome[time])
        asked = Survival("days", "death", edges, by=Category(group, levels))
        found[name] = table, asked
    return found


def run(name: str, table: Any, asked: Survival, epsilon: float, runs: int) -> dict[str, Any]:
    time, event = table[asked.column].to_numpy(float), table[asked.event].to_numpy(bool)
    group = table[asked.by.column].astype(str).to_numpy()
    outcome = np.array(list(zip(event, time, strict=True)), dtype=[("e", "?"), ("t", "f8")])
    exact = {}
    for level in asked.by.levels:
        steps, survival = kaplan_meier_estimator(event[group == level], time[group == level])
        places = np.searchsorted(steps, asked.edges, side="right")
        exact[level] = np.append(1.0, survival)[places]
    worst, inside, chances = [], [], []
    for seed in range(runs):
        mixed = table.sample(frac=1.0, random_state=seed)
        survey = Survey([asked], epsilon=epsilon, clients=10, threshold=8)
        answer = survey.ask([mixed.iloc[one::10] for one in range(10)])[asked.column][asked.name]
        chances.append(answer.log_rank.p)
        for curve in answer.curves:
            true = exact[curve.group][1 : len(curve.times)]
            worst.append(np.abs(curve.survival[1:] - true).max())
            inside += ((curve.lower[1:] <= true) & (true <= curve.upper[1:])).tolist()
    return {
        "what": "patients", "data": name, "records": len(table), "events": int(event.sum()),
        "epsilon": epsilon, "groups": len(exact), "bins": len(asked.edges) - 1, "runs": runs,
        "largest_difference": float(np.median(worst)), "within_bands": float(np.mean(inside)),
        "log_rank_p": float(np.median(chances)),
        "log_rank_p_without": float(compare_survival(outcome, group)[1]),
    }  # fmt: skip


HAZARDS = {
    "flchain": (
        [
            *(Number(name, *bounds) for name, bounds in (
                ("age", (50, 100)), ("sample.yr", (1995, 2003)), ("kappa", (0, 10)),
                ("lambda", (0, 10)), ("flc.grp", (1, 10)),
            )),
            Number("creatinine", 0, 3, missing=True),
            Category("sex", ["F", "M"]),
            Category("mgus", ["no", "yes"]),
        ],
        (0, 1000, 2000, 3000, 4000, 5300),
    ),
    "ACTG175": (
        [
            *(Number(name, *bounds) for name, bounds in (
                ("age", (12, 70)), ("cd40", (0, 800)), ("karnof", (70, 100)),
            )),
            Category("arms", [0, 1, 2, 3]),
            Category("symptom", [0, 1]),
        ],
        (0, 300, 600, 900, 1240),
    ),
}  # fmt: skip


def concordances(name: str, table: Any, asked: Survival, epsilon: float, runs: int) -> Any:
    """C-index on a quarter held out, of a private fit to the others and of Cox's."""
    columns, cuts = HAZARDS[name]
    private, cox, fits = [], [], []
    table = table.assign(**{asked.event: table[asked.event].astype(float)})
    for name_of in {"sample.yr", "flc.grp"} & set(table):
        table[name_of] = table[name_of].astype(float)
    for seed in range(runs):
        mixed = table.sample(frac=1.0, random_state=seed)
        count = len(mixed) * 3 // 4
        train, test = mixed.iloc[:count], mixed.iloc[count:]
        model = Hazard(
            asked.column, columns, event=asked.event, cuts=cuts, epsilon=epsilon, clients=10,
            threshold=10, records=count,
        )  # fmt: skip
        fits.append(model.fit([train.iloc[one::10] for one in range(10)]))
        private.append(fits[-1].score(test))

        def rows(some: Any, design: Any = model.design) -> Any:
            return design.rows(read_table(some, design.keys)[1])[0][:, 1:]

        outcome = np.array(
            list(zip(train[asked.event] == 1, train[asked.column], strict=True)),
            dtype=[("e", "?"), ("t", "f8")],
        )
        risks = CoxPHSurvivalAnalysis(alpha=1e-6).fit(rows(train), outcome).predict(rows(test))
        times, events = test[asked.column].to_numpy(float), test[asked.event].to_numpy()
        cox.append(concordance(times, events, risks))
    line = {
        "what": "c-index", "data": name, "records": count, "epsilon": epsilon, "runs": runs,
        "c_index": float(np.mean(private)), "cox": float(np.mean(cox)),
    }  # fmt: skip
    return line, fits[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", default="results/survival.jsonl")
    parser.add_argument("--picture")
    given = parser.parse_args()
    found = tables()
    with open(given.out, "a", encoding="utf-8") as file:
        for name, (table, asked) in found.items():
            for epsilon in (0.5, 1.0):
                line = run(name, table, asked, epsilon, given.runs)
                print(line, flush=True)
                file.write(json.dumps(line) + "\n")
        for name in HAZARDS:
            for epsilon in (0.5, 1.0, 4.0):
                line, fit = concordances(name, *found[name], epsilon, given.runs)
                print(line, fit, sep="\n", flush=True)
                file.write(json.dumps(line) + "\n")
    if given.picture:
        table, asked = found["ACTG175"]
        survey = Survey([asked], epsilon=1.0, clients=10, threshold=8)
        mixed = table.sample(frac=1.0, random_state=0)
        answers = survey.ask([mixed.iloc[one::10] for one in range(10)])
        answers.plot().savefig(given.picture)
        print(answers)


if __name__ == "__main__":
    main()
