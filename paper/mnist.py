"""Table I and Figures 2 and 3 of the paper: MNIST, K = 10 clients, scalar schemes."""

from __future__ import annotations

import importlib
import inspect
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from jopeq.errors import JoPEQError
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq_lab.pictures.colours import DARK, LOOKS, Look
from jopeq_lab.training.config import TrainConfig
from paper.cifar import authors_rate
from paper.runs import Job, theirs
from paper.words import code, decibels, epsilon_up, number, percent, percents, plain

EPSILON, RATE = 4.0, 1.0
ROUNDS, SEEDS = 95, 3
MORE_SEEDS = {("cnn", "none"): 5}  # where three seeds left a question open
MODELS = ("linear", "mlp", "cnn")
FIG2_EPSILONS = (3.0, 3.5, 4.0)
FIG2_RATES = tuple(float(rate) for rate in range(1, 9))
FIG2_ROUNDS = 5
BALL, ODD = "unit ball and a cell", "unit ball and a cell, odd levels"  # supports of plain sdq

PAPER = {row: one["accuracy"] for row, one in theirs("paper", "Table I").items()}
CODE = theirs("code", "Table I")
AUTHORS_CODE = {row: one["accuracy"] for row, one in CODE.items()}
AUTHORS_SNR_DB = {row: one["snr_db"] for row, one in CODE.items() if one["snr_db"] is not None}
AUTHORS_CNN_MOVED = max(abs(one["accuracy"][2] - one["earlier"]["cnn"]) for one in CODE.values())

# Jobs

ADDED: dict[str, Callable[..., Scheme]] = {}  # rows of other packages, by label
REFUSED: dict[str, Exception] = {}  # where one has no point, and why
_LOOK = Look("#0b7285", "#17becf", "D")


def add(place: str) -> None:
    """Add rows ``module:name``: a scheme, or what makes one.

    A class or function gets those of ``epsilon`` and ``rate`` that it takes.
    """
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
        taken = () if isinstance(found, Scheme) else inspect.signature(found).parameters

        def make(**given: float) -> Scheme:
            few = {each: value for each, value in given.items() if each in taken}
            made = found if isinstance(found, Scheme) else found(**few)
            if not isinstance(made, Scheme):
                raise TypeError(f"{name} makes {made!r:.60}, which is no Scheme")
            return made

        make(epsilon=EPSILON, rate=RATE)
    except Exception as error:  # whatever a module of the user's own may raise
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"--add {place}: {said}: give an importable module:name") from error
    ADDED[place] = make
    LOOKS[place], DARK[_LOOK.colour] = _LOOK, _LOOK.dark
    schemes_at.cache_clear()


def added_at(epsilon: float, rate: float) -> dict[str, Scheme]:
    """The rows of other packages; one that refuses the place has no point there."""
    rows = {}
    for label, make in ADDED.items():
        try:
            rows[label] = make(epsilon=epsilon, rate=rate)
        except (JoPEQError, ValueError) as error:
            REFUSED[f"{label} has no point at ε = {epsilon:g}, R = {rate:g}"] = error
    return rows


@lru_cache
def schemes_at(epsilon: float = EPSILON, rate: float = RATE) -> dict[str, Scheme]:
    """The paper's rows, then ours."""
    private, both = {"epsilon": epsilon}, {"epsilon": epsilon, "rate": rate}
    return {
        "none": scheme("none"),
        "sdq": scheme("sdq", rate=rate),
        "laplace": scheme("laplace", **private),
        "laplace+sdq": scheme("laplace+sdq", **both),
        "jopeq": scheme("jopeq", **both),
        "response": scheme("response", **both),
        "response, R=2, spread auto": scheme(
            "response", **private, rate=2.0, spread="auto", clients=10
        ),
        **added_at(epsilon, rate),
    }


@lru_cache
def as_the_code(epsilon: float = EPSILON, rate: float = RATE) -> dict[str, Scheme]:
    """The paper's rows as the authors' code quantizes, where it departs from the text.

    2^R + 1 levels, γ = 1.5·√(1 + the noise's variance), and a scale and mean for every tensor.
    """
    private, scaled = {"epsilon": epsilon}, {"per": "tensor", "center": True}
    levels = {"rate": authors_rate(rate), **scaled}
    wide = 1.5 * math.sqrt(1.0 + 2.0 * (2.0 / epsilon) ** 2)
    return {
        "none": scheme("none"),
        "sdq": scheme("sdq", gamma=1.5, **levels),
        "laplace": scheme("laplace", **private, **scaled),
        "laplace+sdq": scheme("laplace+sdq", gamma=wide, **private, **levels),
        "jopeq": scheme("jopeq", gamma=wide, **private, **levels),
    }


def table1_jobs(data_dir: Path | None = None, count: int = SEEDS) -> Iterator[Job]:
    """Table I, ``count`` seeds of each run: our rows, then the paper's as in the authors' code."""
    yield from own_jobs(data_dir, count)
    yield from code_jobs(data_dir, count)


def own_jobs(data_dir: Path | None = None, count: int = SEEDS) -> Iterator[Job]:
    """Every row and column of Table I."""
    for model in MODELS:
        yield from _jobs(schemes_at(), data_dir, count, model)


def code_jobs(data_dir: Path | None = None, count: int = SEEDS) -> Iterator[Job]:
    """The paper's rows of Table I, trained and quantized as in the authors' code."""
    settings = {"centered": True, "keep_momentum": True, "schedule": "client-plateau"}
    for model in MODELS:
        yield from _jobs(as_the_code(), data_dir, count, model, **settings)


def fig3_jobs(data_dir: Path | None = None, count: int = SEEDS) -> Iterator[Job]:
    """Validation curves of the linear model; the runs of Table I serve here too."""
    rows = {**schemes_at(), "mvu": scheme("mvu", epsilon=EPSILON, rate=RATE)}
    return _jobs(rows, data_dir, count)


def fig2_jobs(data_dir: Path | None = None, count: int = 1) -> Iterator[Job]:
    """SNR of the updates of the first rounds, for every ε and R."""
    for epsilon in FIG2_EPSILONS:
        for rate in FIG2_RATES:
            both = {"epsilon": epsilon, "rate": rate}
            rows = {name: scheme(name, **both) for name in ("laplace+sdq", "jopeq", "response")}
            rows |= added_at(epsilon, rate)
            named = {f"{name} ε={epsilon:g} R={rate:g}": coder for name, coder in rows.items()}
            yield from _jobs(named, data_dir, count, rounds=FIG2_ROUNDS)
    for rate in FIG2_RATES:
        plain = {f"{name} R={rate:g}": coder for name, coder in fig2_plain(rate).items()}
        yield from _jobs(plain, data_dir, count, rounds=FIG2_ROUNDS)


def fig2_plain(rate: float) -> dict[str, Scheme]:
    """``sdq`` by its support: the unit ball and a cell, or the paper's γ for noise of some ε."""
    rows = {BALL: scheme("sdq", rate=rate)}
    if rate > 1.0:
        rows[ODD] = scheme("sdq", rate=rate, levels="odd")
    for epsilon in FIG2_EPSILONS:
        gamma = 2.0 * rate + 1.0 / epsilon
        rows[f"γ = 2R + 1/ε, ε = {epsilon:g}"] = scheme("sdq", rate=rate, gamma=gamma)
    return rows


def _jobs(
    rows: Mapping[str, Scheme],
    data_dir: Path | None,
    count: int,
    model: str = "linear",
    rounds: int = ROUNDS,
    **settings: Any,
) -> Iterator[Job]:
    place = None if data_dir is None else str(data_dir)
    usual = {"model": model, "rounds": rounds, "validation": 10_000, "compile": "off"}
    for label, coder in rows.items():
        seeds_here = MORE_SEEDS.get((model, label), count) if count == SEEDS else count
        config = TrainConfig(scheme=coder, data="mnist", data_dir=place, **usual, **settings)
        for seed in range(seeds_here):
            yield Job(label, replace(config, seed=seed))


# Table I


def table1(runs: pd.DataFrame) -> pd.DataFrame:
    """Paper, authors' code and ours side by side."""
    ours = runs.groupby(["label", "model"])["test_accuracy"].agg(percents)
    linear = runs[runs.model == "linear"]
    rows = []
    for label, mine in linear.groupby("label", sort=False):
        first = mine.iloc[0]
        row = {"scheme": code(label)}
        for column, model in enumerate(MODELS):
            paper = f"{PAPER[label][column]}" if label in PAPER else "–"
            run_once = f"{AUTHORS_CODE[label][column]:.1f}" if label in AUTHORS_CODE else "–"
            cell = f"{paper} / {run_once} / **{ours[label, model]}**"
            row[f"{model}: paper / authors' code / ours"] = cell
        snr = number(AUTHORS_SNR_DB.get(label), 1)
        row["SNR dB (linear): authors' code / ours"] = f"{snr} / {number(decibels(mine.snr), 1)}"
        row["bits per parameter"] = number(first.bits_per_parameter)
        row["ε asked"] = plain(first.nominal)
        row["ε proven"] = epsilon_up(first.epsilon)
        rows.append(row)
    return pd.DataFrame(rows)


def table1_code(runs: pd.DataFrame) -> pd.DataFrame:
    """The authors' code and our runs as the code trains and quantizes, side by side."""
    ours = runs.groupby(["label", "model"])["test_accuracy"].agg(percents)
    rows = []
    for label, accuracies in AUTHORS_CODE.items():
        row = {"scheme": code(label)}
        for model, one in zip(MODELS, accuracies, strict=True):
            row[f"{model}: authors' code / as the code"] = f"{one:.1f} / **{ours[label, model]}**"
        linear = runs[(runs.model == "linear") & (runs.label == label)]
        row["bits per parameter"] = number(linear.bits_per_parameter.iloc[0])
        row["ε proven"] = epsilon_up(linear.epsilon.iloc[0])
        rows.append(row)
    return pd.DataFrame(rows)


def above_the_code(runs: pd.DataFrame, model: str) -> pd.Series:
    """Points by which each row is above the authors' code's single run, ascending."""
    ours = 100 * runs[runs.model == model].groupby("label")["test_accuracy"].mean()
    column = MODELS.index(model)
    once = pd.Series({label: row[column] for label, row in AUTHORS_CODE.items()})
    return (ours[once.index] - once).sort_values()


def above_none(runs: pd.DataFrame) -> pd.Series:
    """Points by which the best coded row is above the one without coding, by model."""
    means = 100 * runs.groupby(["model", "label"])["test_accuracy"].mean().unstack()
    return means.drop(columns="none").max(axis=1) - means["none"]


def seed_deviation(runs: pd.DataFrame, model: str) -> float:
    """Points between seeds of one row: the root mean square of all rows' deviations."""
    deviations = 100 * runs[runs.model == model].groupby("label")["test_accuracy"].std()
    return math.sqrt((deviations**2).mean())


def difference_error(runs: pd.DataFrame, model: str) -> pd.Series:
    """Standard error of the difference between each row's mean and one run, in points."""
    seeds = runs[runs.model == model].groupby("label")["seed"].nunique()
    return seed_deviation(runs, model) * (1 + 1 / seeds) ** 0.5


# Figures 2 and 3


FIG2_VALUES = {
    "snr": ("snr", decibels),
    "bits": ("bits_per_parameter", "mean"),
    "overload": ("overload_rate", "mean"),  # the share of clamped indices
}


def fig2_grid(runs: pd.DataFrame, value: str = "snr") -> pd.DataFrame:
    """SNR in dB, or another of ``FIG2_VALUES``, by scheme and ε (rows) and R (columns)."""
    places = runs.label.str.extract(r"(?P<scheme>.+) ε=(?P<epsilon>[\d.]+) R=(?P<rate>[\d.]+)")
    column, mean = FIG2_VALUES[value]
    points = places.assign(value=runs[column]).dropna(subset="rate")
    points = points.astype({"epsilon": float, "rate": float})
    return points.pivot_table("value", ["epsilon", "scheme"], "rate", aggfunc=mean, sort=False)


def fig2(runs: pd.DataFrame) -> pd.DataFrame:
    """``fig2_grid`` as texts, in brackets the share of entries that are overloaded."""
    shares = fig2_grid(runs, "overload").map(lambda one: f" ({percent(one)})" if one > 0 else "")
    shown = (fig2_grid(runs).map(number) + shares).rename(columns=lambda rate: f"R={rate:g}")
    shown = shown.reset_index()
    shown.insert(0, "scheme", shown.pop("scheme").map(code))
    shown["epsilon"] = shown["epsilon"].map(plain)
    return shown.rename(columns={"epsilon": "ε"})


def fig2_supports(runs: pd.DataFrame) -> pd.DataFrame:
    """SNR in dB of ``sdq`` by its support (rows) and R (columns)."""
    split = runs.label.str.extract(r"^(?P<support>(?:unit|γ).+) R=(?P<rate>[\d.]+)$")
    means = runs.join(split).dropna(subset="support").astype({"rate": float})
    return means.pivot_table("snr", "support", "rate", aggfunc=decibels, sort=False)


def fig2_plain_table(runs: pd.DataFrame) -> pd.DataFrame:
    """``fig2_supports`` as texts."""
    shown = fig2_supports(runs).map(number).rename(columns=lambda rate: f"R={rate:g}")
    return shown.sort_index().reset_index(names="support")


def apart_from_none(runs: pd.DataFrame, first: int, end: int | None) -> pd.DataFrame:
    """Points between each curve of Figure 3 and ``none`` with the same seed, mean of some rounds.

    ``first`` and ``end`` are those of a slice. A scheme is a row, a seed is a column.
    """
    means = runs.validation.str[first:end].map(statistics.fmean)
    grid = 100 * means.groupby([runs.label, runs.seed]).mean().unstack()
    return grid.drop(index="none") - grid.loc["none"]


def spread_after(runs: pd.DataFrame, number: int) -> float:
    """Points between the best and the worst curve of Figure 3 after a round (−1: the last)."""
    values = runs.validation.str[number].groupby(runs.label).mean()
    return 100 * (values.max() - values.min())
