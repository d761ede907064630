"""The story in a minute, on bundled data: ten hospitals, one model, ε for every patient.

Two data sets are trained on in every way to protect a patient, at ε = 1 and 4; then the paper's
schemes, whose ε is of one entry. Every share and payload is really made. ``jopeq.models`` has
nothing to tune. tools/demo_settings.py chose clip and learning rate of the other ways, for each
seed on training records that were held out; rounds and sampling of the digits are chosen for speed.
No way protects a whole hospital: among ten hospitals that takes so much noise that nothing is
learnt (``jopeq plan`` says so), and ``ClientSum`` is for a hundred and more.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jopeq import kernels
from jopeq.models import Features, Logistic, Number, Softmax
from jopeq.models.model import Model
from jopeq.registry import scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import RecordSum
from jopeq_lab.pictures.colours import GREY, LOOKS
from jopeq_lab.pictures.drawing import WIDTH, new_figure, save
from jopeq_lab.training import data
from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, RunConfig, TrainConfig
from jopeq_lab.training.features import features, finished
from jopeq_lab.training.seeding import permutation
from jopeq_lab.training.simulation import Result, train

EPSILONS = (1.0, 4.0)
HOSPITALS = 10
PAPER = ("none", "sdq", "laplace+sdq", "jopeq", "response")
RATE, PAPER_EPSILON, PAPER_ROUNDS = 2.0, 4.0, 10


class Way(NamedTuple):
    """One way to train: how the table and the picture call it, by who is protected."""

    said: str
    name: str


WAYS = {
    "none": Way("nobody", "nobody: without privacy"),
    "records": Way("a patient: RecordSum", "every patient: RecordSum, {rounds} rounds"),
    "models": Way(
        "a patient: jopeq.models", "every patient: jopeq.models, {messages} messages, nothing tuned"
    ),
    "local": Way("a patient: all noise in each", "every patient: each hospital adds all the noise"),
    "sphere": Way("a patient, no trust: Sphere", "every patient, trusting nobody: Sphere"),
    "alone": Way("a patient: one alone", "every patient: one hospital trains alone"),
}
TUNED = ("none", "records", "local", "sphere", "alone")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A data set that ten hospitals share, and its settings."""

    title: str
    data: str
    features: str
    each: int  # patients of a hospital
    delta: float
    rounds: int
    sampling: float
    largest_mean: float = 1.0
    test: int | None = None  # drawn by the seed; None: the data set's own
    seeds: int = 1
    settings: Mapping[str, Sequence[tuple[float, float]]]  # clip and rate of a way, by seed


STUDIES = (
    Study(
        title="breast cancer, 40 patients each", data="cancer", features="table", each=40,
        delta=1e-4, rounds=30, sampling=1.0, test=169, seeds=3,
        settings={
            "none": ((1.0, 4.0), (1.0, 4.0), (1.0, 4.0)),
            "records": ((1.0, 1.0), (1.0, 4.0), (1.0, 4.0)),
            "local": ((0.3, 2.0), (1.0, 1.0), (0.3, 4.0)),
            "alone": ((1.0, 1.0), (0.3, 1.0), (0.3, 1.0)),
            "sphere": ((0.1, 4.0), (0.3, 1.0), (0.3, 1.0)),
        },
    ),
    Study(
        title="digits, 400 each", data="mnist5k", features="hog", each=400,
        delta=1e-5, rounds=20, sampling=0.4, largest_mean=0.3,
        settings={
            "none": ((1.0, 20.0),), "records": ((0.3, 50.0),), "local": ((0.3, 20.0),),
            "alone": ((0.1, 20.0),), "sphere": ((0.1, 8.0),),
        },
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """A model of a study's patients in a few messages, with its defaults."""

    study: Study
    epsilon: float
    seed: int

    @property
    def data(self) -> str:
        """The data set."""
        return self.study.data


class Fitted(NamedTuple):
    """The result of a ``FitConfig``."""

    test_accuracy: float
    epsilon: float
    messages: int


class Job(NamedTuple):
    """One run of the demonstration."""

    study: str  # its title, or "paper"
    way: str  # of WAYS, or a scheme of the paper
    epsilon: float
    config: RunConfig | FitConfig
    test: int | None = None


def study_jobs(study: Study, rounds: int | None = None) -> Iterator[Job]:
    """Every way at every ε and seed; without privacy once per seed."""
    for seed in range(study.seeds):
        for epsilon in EPSILONS:
            model = FitConfig(study=study, epsilon=epsilon, seed=seed)
            yield Job(study.title, "models", epsilon, model, study.test)
            for way in TUNED:
                if way != "none" or epsilon == EPSILONS[0]:
                    config = config_of(study, way, epsilon, *study.settings[way][seed], rounds)
                    config = replace(config, seed=seed)
                    yield Job(study.title, way, epsilon, config, study.test)


def config_of(
    study: Study, way: str, epsilon: float, clip: float, lr: float, rounds: int | None = None
) -> RunConfig:
    """One way to train, with these settings."""
    count = rounds or study.rounds
    common: dict[str, Any] = {"data": study.data, "features": study.features, "threads": 1}
    if way == "sphere":  # each patient reports once
        return PeopleConfig(
            scheme=Sphere(epsilon=epsilon, clip=clip, draws=1 << 12),
            people=HOSPITALS * study.each, rounds=min(count, 16),
            server_lr=lr, server_momentum=0.8, **common,
        )  # fmt: skip
    records = RecordSum(
        epsilon=epsilon, delta=study.delta, clip=clip, records=HOSPITALS * study.each,
        sampling=study.sampling, rounds=count, clients=HOSPITALS, threshold=HOSPITALS // 2,
        largest_mean=study.largest_mean, most_records=study.each,
    )  # fmt: skip
    baseline = None if way == "records" else way
    return HospitalsConfig(scheme=records, baseline=baseline, server_lr=lr, **common)


def paper_jobs(rounds: int | None = None) -> Iterator[Job]:
    """The paper's schemes and ours for one entry, on the digits' pixels."""
    for name in PAPER:
        asked = {} if name in ("none", "sdq") else {"epsilon": PAPER_EPSILON}
        coded = scheme(name, **({} if name == "none" else {"rate": RATE, **asked}))
        config = TrainConfig(
            scheme=coded, data="mnist5k", clients=HOSPITALS, local_steps=50, threads=1,
            rounds=rounds or PAPER_ROUNDS, compile="off",
        )  # fmt: skip
        yield Job("paper", name, PAPER_EPSILON, config)


def all_jobs(rounds: int | None = None) -> list[Job]:
    """The whole demonstration, the study of long runs first."""
    studies = (job for study in reversed(STUDIES) for job in study_jobs(study, rounds))
    return [*studies, *paper_jobs(rounds)]


def run_all(
    jobs: Sequence[Job], processes: int | None = None
) -> Iterator[tuple[Job, Result | Fitted]]:
    """Every job, one process each, as they end."""
    count = max(1, min(len(jobs), processes or os.cpu_count() or 1))
    if count == 1:
        yield from ((job, _run(job)) for job in jobs)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        begun = {pool.submit(_run, job): job for job in jobs}
        for future in as_completed(begun):
            yield begun[future], future.result()


def _run(job: Job) -> Result | Fitted:
    kernels.use("off")  # so little is coded that compiling would take longer
    dataset = data.load(job.config.data)
    if job.test is not None:
        dataset = dataset.split_anew(job.test, job.config.seed)
    config = job.config
    if isinstance(config, FitConfig):
        return _fit(config, dataset)
    if isinstance(config, HospitalsConfig):
        config = replace(config, test=None)
    return train(config, dataset=dataset)


def _fit(config: FitConfig, dataset: data.Dataset) -> Fitted:
    """A fit of ``jopeq.models`` through the shares of ten hospitals."""
    torch.set_num_threads(1)
    study, count = config.study, HOSPITALS * config.study.each
    terms: dict[str, Any] = {
        "epsilon": config.epsilon, "delta": study.delta, "clients": HOSPITALS,
        "threshold": HOSPITALS // 2 + 1, "records": count,
    }  # fmt: skip

    def read(inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        if study.features == "table":
            rows = inputs.flatten(1).numpy()
            return {"y": labels.numpy()} | {f"x{i}": row for i, row in enumerate(rows.T)}
        return {"y": labels.numpy(), "x": finished(features(inputs, study.features)).numpy()}

    train, test = (
        read(inputs, labels)
        for inputs, labels in (
            (dataset.train_inputs, dataset.train_labels),
            (dataset.test_inputs, dataset.test_labels),
        )
    )
    model: Model
    if study.features == "table":  # columns that are public numbers from 0 to 1
        columns = [Number(name, 0, 1) for name in train if name != "y"]
        model = Logistic("y", columns, goal="prediction", **terms)
    else:
        classes = range(dataset.classes)
        model = Softmax("y", [Features("x", train["x"].shape[1])], classes=classes, **terms)
    order = permutation(len(train["y"]), config.seed, "records")[:count]
    parts = [order[place::HOSPITALS] for place in range(HOSPITALS)]
    fit = model.fit([{name: column[part] for name, column in train.items()} for part in parts])
    return Fitted(fit.score(test), fit.epsilon, model.method.messages)


Found = Mapping[tuple[str, str, float], Sequence[Result | Fitted]]
"""Results of all seeds by study, way and ε."""


def percents(group: Sequence[Result | Fitted]) -> list[float]:
    """Test accuracies."""
    return [100.0 * (result.test_accuracy or 0.0) for result in group]


def accuracy_text(group: Sequence[Result | Fitted]) -> str:
    """The mean in percent, and the deviation over seeds."""
    found = percents(group)
    spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
    return f"{statistics.fmean(found):.1f}{spread}"


def story_rows(found: Found) -> Iterator[tuple[str, ...]]:
    """A row for each way: what it protects, and its accuracies by study and ε."""
    for way, (said, *_) in WAYS.items():
        cells = []
        for study in STUDIES:
            for epsilon in EPSILONS:
                group = found.get((study.title, way, epsilon))
                cells.append(accuracy_text(group) if group else "")
        yield said, *cells


def save_demo(found: Found, path: Path) -> None:
    """Test accuracy on the digits at ε = 1 as bars, with who is protected above each."""
    study = STUDIES[-1]
    bars = {way: found.get((study.title, way, EPSILONS[0])) for way in WAYS}
    means = {way: statistics.fmean(percents(group)) for way, group in bars.items() if group}
    means.pop("sphere", None)  # for thousands of people: the table has it
    (fit,) = found[study.title, "models", EPSILONS[0]]
    told = {"rounds": study.rounds, "messages": getattr(fit, "messages", "")}
    figure = new_figure((WIDTH, 3.8))
    panel = figure.subplots()
    for place, (way, mean) in enumerate(means.items()):
        together = way in ("records", "models")
        colour = LOOKS["records"].colour if together else GREY
        weight = "bold" if together else "normal"
        panel.barh(-place, mean, height=0.46, color=colour)
        name = WAYS[way].name.format(**told)
        panel.text(0, 0.33 - place, name, va="bottom", fontweight=weight, fontsize=10.5)
        panel.text(mean + 1, -place, f"{mean:.1f}", va="center", fontweight=weight, fontsize=10.5)
    panel.set_title(
        f"Ten hospitals, ε = {EPSILONS[0]:g} for every patient: {means['models']:.1f}% in\n"
        f"{told['messages']} messages, against {means['none']:.1f}% without privacy",
        loc="left", fontsize=12, fontweight="bold",
    )  # fmt: skip
    panel.set(xlim=(0, 110), ylim=(0.45 - len(means), 0.85), yticks=[], xticks=range(0, 101, 20))
    panel.set_xlabel(
        f"test accuracy, %: digits, {study.each} in each hospital (δ = {study.delta:g})"
    )
    panel.spines[["top", "right", "left"]].set_visible(False)
    save(figure, path)
