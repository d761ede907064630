"""Do survival curves, the log-rank test and evaluations keep what their intervals promise?

    PYTHONPATH=src python benchmarks/survival.py [--trials 2000] [--out results/survival.jsonl]

Patients are simulated: exponential times of hazard 0.12 a year in the first group and ``ratio``
times that in the second, censored from year 2 to 12, cut into bins of ten years. Ten hospitals send
one sum; its noise is drawn with the variance of the plan's shares, and "shares" sends real ones.
A line says how often the test rejects, how often bands cover the true survival at years 2, 4, 6, 8
and 10 and how often those years are told; of evaluations, errors and coverage of each figure;
of hazard ratios, coverage of their intervals.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import rankdata

from jopeq import RecordSum
from jopeq.models import Category, Hazard, Number, State
from jopeq.statistics import Scoring, Survey, Survival
from jopeq.statistics.questions import Total
from jopeq.statistics.survival import SurvivalAnswer

YEARS, HAZARD = 10.0, 0.12
LEVELS = ("A", "B")
EVEN = [
    (records, epsilon, bins, 1.0, 0.5, HAZARD)
    for records in (1000, 2000, 4000)
    for epsilon in (0.5, 1.0)
    for bins in (5, 10, 20)
]
UNEVEN = [(n, 0.5, 10, 1.0, *rest) for n in (1000, 4000) for rest in ((0.25, HAZARD), (0.5, 0.03))]
POWER = [(n, e, 10, 1.5, 0.5, HAZARD) for n in (1000, 2000) for e in (0.5, 1.0, math.inf)]

USUAL, STRONG = (1.0, -0.7, 0.5, 0.0), (2.0, -2.0, 1.0, 0.0)
HAZARDS = [
    *((n, e, rate, USUAL, 0.0) for n, e in ((4000, 1.0), (4000, 0.5)) for rate in (HAZARD, 0.03)),
    (2000, 1.0, HAZARD, USUAL, 0.0),
    (4000, 1.0, 0.05, STRONG, 0.0),
    (4000, 1.0, 0.03, (1.0, 0.3, 0.5, 0.6), 3.0),
    (4000, 1.0, 0.03, (1.0, 0.8, 0.5, 0.6), 10.0),
]


def patients(
    records: int, ratio: float, share: float, hazard: float, rng: np.random.Generator
) -> dict[str, Any]:
    arm = (rng.random(records) < share).astype(int)
    time = rng.exponential(1.0 / (hazard * ratio**arm))
    end = rng.uniform(2.0, 12.0, records)
    event = (time <= end).astype(float)
    return {"time": np.minimum(time, end), "event": event, "arm": np.array(LEVELS)[arm]}


def answers(
    trials: int, bins: int, records: int, epsilon: float, *world: float, real: bool = False
) -> Iterator[SurvivalAnswer]:
    edges = tuple(np.linspace(0.0, YEARS, bins + 1).tolist())
    question = Survival("time", "event", edges, by=Category("arm", LEVELS))
    with_noise = math.isfinite(epsilon)
    survey = Survey([question], epsilon=epsilon if with_noise else 1.0, clients=10, threshold=8)
    plan, part = survey.sum.plan(survey.dimension), question.parts[0]
    error = survey.records * math.sqrt(plan.error / survey.dimension) / survey.weights[part]
    error = error if with_noise else 1e-6
    rng = np.random.default_rng(44)
    for _ in range(trials):
        table = patients(records, *world, rng)
        if real:
            tables = [{k: column[one::10] for k, column in table.items()} for one in range(10)]
            yield survey.ask(tables)["time"][question.name]
            continue
        rows = np.zeros((records, part.size))
        part.fill(rows, {key: table[key[0]] for key in part.columns})
        values = rows.sum(axis=0) + rng.normal(0.0, error, part.size)
        yield question.answer({part: Total(values, np.full(part.size, error))}, True)


def survival(
    trials: int, records: int, epsilon: float, bins: int, ratio: float, share: float,
    hazard: float, *, real: bool = False,
) -> dict[str, Any]:  # fmt: skip
    at = [bins * part // 5 for part in range(1, 6)]
    true = np.exp(-hazard * YEARS * np.array(at) / bins)
    rejected, inside, told = [], [], []
    for answer in answers(trials, bins, records, epsilon, ratio, share, hazard, real=real):
        rejected.append(answer.log_rank is not None and answer.log_rank.p < 0.05)
        curve = answer.curves[0]
        told.append([place < len(curve.times) for place in at])
        inside.append([
            t and curve.lower[place] <= value <= curve.upper[place]
            for t, place, value in zip(told[-1], at, true, strict=True)
        ])  # fmt: skip
    times = np.sum(told, axis=0)
    return {
        "what": "shares" if real else "power" if ratio > 1.0 else "level",
        "records": records, "epsilon": None if math.isinf(epsilon) else epsilon, "bins": bins,
        "ratio": ratio, "share": share, "hazard": hazard, "trials": trials,
        "rejected": float(np.mean(rejected)),
        "covered": (np.sum(inside, axis=0) / np.maximum(times, 1)).round(4).tolist(),
        "told": (times / trials).round(4).tolist(),
    }  # fmt: skip


def scores(records: int, intercept: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Scores and outcomes of a model whose logits are 1.2 times too large."""
    logits = intercept + rng.normal(0.0, 1.5, records)
    outcomes = (rng.random(records) < 1.0 / (1.0 + np.exp(-logits))).astype(float)
    return 1.0 / (1.0 + np.exp(-1.2 * logits)), outcomes


def truth(intercept: float) -> dict[str, float]:
    rng = np.random.default_rng(0)
    p, y = scores(4_000_000, intercept, rng)
    ranks, ones = rankdata(p), float(y.sum())
    return {
        "AUC": (ranks[y == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(y) - ones)),
        "accuracy": float(np.mean((p >= 0.5) == y)),
        "Brier score": float(np.mean((p - y) ** 2)),
        "sensitivity": float(np.mean(p[y == 1] >= 0.5)),
        "specificity": float(np.mean(p[y == 0] < 0.5)),
        "calibration slope": 1.0 / 1.2,
        "calibration intercept": 0.0,
    }


def evaluation(
    trials: int, records: int, epsilon: float, intercept: float, *, real: bool = False
) -> dict[str, Any]:
    scoring, true, rng = Scoring(), truth(intercept), np.random.default_rng(45)
    scheme = RecordSum(
        epsilon=epsilon, clip=1.0, records=records, sampling=1.0, rounds=1, clients=10, threshold=8
    )
    error = math.sqrt(scheme.plan(scoring.dimension).error / scoring.dimension)
    wrong: dict[str, list[float]] = {name: [] for name in true}
    inside: dict[str, list[bool]] = {name: [] for name in true}
    for trial in range(trials):
        rows = scoring.rows(*scores(records, intercept, rng))
        if real:
            seed = trial.to_bytes(32, "big")
            total = sum(scheme.encode(rows[one::10], seed=seed).astype(int) for one in range(10))
            mean = scheme.decode(total, seed=seed, dimension=scoring.dimension, clients=10)
        else:
            mean = rows.sum(axis=0) / records + rng.normal(0.0, error, scoring.dimension)
        found = scoring.read(mean, scheme, 10).figures
        for name in set(true) & set(found):
            value, lower, upper = found[name]
            wrong[name].append(value - true[name])
            inside[name].append(lower <= true[name] <= upper)
    return {
        "what": "evaluation" if not real else "evaluation by shares",
        "records": records, "epsilon": epsilon, "intercept": intercept, "trials": trials,
        "figures": {
            name: {
                "true": round(value, 4),
                "told": len(wrong[name]) / trials,
                "bias": round(float(np.mean(wrong[name])), 5),
                "rms": round(float(np.sqrt(np.mean(np.square(wrong[name])))), 5),
                "within 0.02": float(np.mean(np.abs(wrong[name]) <= 0.02)),
                "covered": float(np.mean(inside[name])),
            }
            for name, value in true.items()
        },
    }  # fmt: skip


def hazard(
    trials: int, records: int, epsilon: float, rate: float, beta: tuple[float, ...], skewed: float
) -> dict[str, Any]:
    """Intervals of hazard ratios: two numbers from −1 to 1 and two columns of 0 and 1.

    With ``skewed`` the second number is from 0 to that, 0.8 on average with an exponential tail,
    and the last column is 1 in 5%.
    """
    bounds = (0, skewed) if skewed else (-1, 1)
    columns = [
        Number("a", -1, 1),
        Number("b", *bounds),
        Category("c", [0, 1]),
        Category("d", [0, 1]),
    ]
    model = Hazard(
        "time", columns, event="event", cuts=(0, 1, 2, 4, 6, 10), epsilon=epsilon, clients=10,
        threshold=10, records=records,
    )  # fmt: skip
    rng, found = np.random.default_rng(46), []
    for _ in range(trials):
        x = np.c_[rng.uniform(-1, 1, (records, 2)), rng.integers(0, 2, (records, 2))]
        if skewed:
            x[:, 1] = np.minimum(rng.exponential(0.8, records), skewed)
            x[:, 3] = rng.random(records) < 0.05
        time, end = rng.exponential(1 / (rate * np.exp(x @ beta))), rng.uniform(2, 12, records)
        table = {"time": np.minimum(time, end), "event": (time <= end).astype(float)}
        table |= {name: x[:, place] for place, name in enumerate("abcd")}
        mine, state = model.read(table), State()
        while state.step < model.method.messages:
            total = model.total(mine, state.step, state.sent).to_numpy()
            total += rng.normal(0.0, model.noise_of(state.step), len(total))
            state = model.advance(state, total / records)
        told = list(model.finish(state).values())[1:]
        found.append([
            (np.nan, np.nan) if one.hidden else (one.value - true, one.error)
            for one, true in zip(told, beta, strict=True)
        ])  # fmt: skip
    wrong, error = np.moveaxis(np.array(found), 2, 0)
    inside = np.where(np.isnan(wrong), np.nan, np.abs(wrong) < 1.96 * error)
    return {
        "what": "hazard", "records": records, "epsilon": epsilon, "rate": rate, "trials": trials,
        "beta": beta, "skewed": skewed, "events": int(table["event"].sum()),
        "told": float(np.mean(~np.isnan(wrong))), "covered": float(np.nanmean(inside)),
        "told_each": np.mean(~np.isnan(wrong), axis=0).round(4).tolist(),
        "covered_each": np.nanmean(inside, axis=0).round(4).tolist(),
        "bias": np.nanmean(wrong, axis=0).round(4).tolist(),
        "rms": np.sqrt(np.nanmean(wrong**2, axis=0)).round(4).tolist(),
        "error": np.nanmedian(error, axis=0).round(4).tolist(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--out", default="results/survival.jsonl")
    given = parser.parse_args()
    with open(given.out, "w", encoding="utf-8") as file:

        def keep(line: dict[str, Any]) -> None:
            print(json.dumps(line), flush=True)
            file.write(json.dumps(line) + "\n")

        for setting in (*EVEN, *UNEVEN, *POWER):
            keep(survival(given.trials, *setting))
        for setting in (EVEN[1], EVEN[-2]):
            keep(survival(min(given.trials, 100), *setting, real=True))
        for records, epsilon in ((4000, 0.25), (4000, 1.0), (1000, 1.0)):
            for intercept in (0.0, -2.5):
                keep(evaluation(given.trials, records, epsilon, intercept))
        keep(evaluation(min(given.trials, 100), 4000, 0.25, 0.0, real=True))
        for setting in HAZARDS:
            keep(hazard(min(given.trials, 400), *setting))


if __name__ == "__main__":
    main()
