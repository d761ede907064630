"""The story in a minute, on bundled data: ten hospitals, one model, ε for every patient.

Two data sets are trained on in every way to protect somebody, at ε = 1 and 4; then the paper's
schemes, whose ε is of one entry. Every share and payload is really made. tools/demo_settings.py
chose clip and learning rate of every way, for each seed on training records that were held out;
rounds and sampling of the digits are chosen for speed.
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

from jopeq import kernels
from jopeq.registry import scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.client_sum import ClientSum
from jopeq.sums.record_sum import RecordSum
from jopeq_lab.pictures.colours import FAINT, GREY, INK, LOOKS
from jopeq_lab.pictures.drawing import dress, name_lines, new_figure, save
from jopeq_lab.training import data
from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, RunConfig, TrainConfig
from jopeq_lab.training.simulation import Result, train

EPSILONS = (1.0, 4.0)
HOSPITALS = 10
PAPER = ("none", "sdq", "laplace+sdq", "jopeq", "response")
RATE, PAPER_EPSILON, PAPER_ROUNDS = 2.0, 4.0, 10


class Way(NamedTuple):
    """One way to train: how the table and the picture call it, and its colour and marker."""

    said: str
    name: str
    colour: str
    marker: str


WAYS = {
    "none": Way("nobody", "no privacy", INK, ""),
    "records": Way("a patient: RecordSum", "RecordSum", LOOKS["records"].colour, "o"),
    "local": Way("a patient: all noise in each", "each adds all", GREY, "v"),
    "alone": Way("a patient: one alone", "one alone", FAINT, "X"),
    "sphere": Way("a patient, no trust: Sphere", "Sphere", LOOKS["sphere"].colour, "D"),
    "sum": Way("a hospital: ClientSum", "ClientSum", LOOKS["clients"].colour, "s"),
}


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
            "sum": ((0.1, 1.0), (0.1, 1.0), (0.1, 2.0)),
        },
    ),
    Study(
        title="digits, 400 each", data="mnist5k", features="hog", each=400,
        delta=1e-5, rounds=20, sampling=0.4, largest_mean=0.3,
        settings={
            "none": ((1.0, 20.0),), "records": ((0.3, 50.0),), "local": ((0.3, 20.0),),
            "alone": ((0.1, 20.0),), "sphere": ((0.1, 8.0),), "sum": ((0.1, 8.0),),
        },
    ),
)  # fmt: skip


class Job(NamedTuple):
    """One run of the demonstration."""

    study: str  # its title, or "paper"
    way: str  # of WAYS, or a scheme of the paper
    epsilon: float
    config: RunConfig
    test: int | None = None


def study_jobs(study: Study, rounds: int | None = None) -> Iterator[Job]:
    """Every way at every ε and seed; without privacy once per seed."""
    for seed in range(study.seeds):
        for epsilon in EPSILONS:
            for way in WAYS:
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
    if way == "sum":
        whole = ClientSum(
            epsilon=epsilon, delta=study.delta, clip=clip, clients=HOSPITALS,
            threshold=HOSPITALS - 1, rounds=count,
        )  # fmt: skip
        return PeopleConfig(
            scheme=whole, people=HOSPITALS, examples=study.each, participations=count,
            rounds=count, server_lr=lr, server_momentum=0.9, **common,
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
    """The whole demonstration, long runs first."""
    studies = (job for study in reversed(STUDIES) for job in study_jobs(study, rounds))
    return [*studies, *paper_jobs(rounds)]


def run_all(jobs: Sequence[Job], processes: int | None = None) -> Iterator[tuple[Job, Result]]:
    """Every job, one process each, as they end."""
    count = max(1, min(len(jobs), processes or os.cpu_count() or 1))
    if count == 1:
        yield from ((job, _run(job)) for job in jobs)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        begun = {pool.submit(_run, job): job for job in jobs}
        for future in as_completed(begun):
            yield begun[future], future.result()


def _run(job: Job) -> Result:
    kernels.use("off")  # so little is coded that compiling would take longer
    dataset = data.load(job.config.data)
    if job.test is not None:
        dataset = dataset.split_anew(job.test, job.config.seed)
    config = job.config
    if isinstance(config, HospitalsConfig):
        config = replace(config, test=None)
    return train(config, dataset=dataset)


Found = Mapping[tuple[str, str, float], Sequence[Result]]
"""Results of all seeds by study, way and ε."""


def percents(group: Sequence[Result]) -> list[float]:
    """Test accuracies."""
    return [100.0 * (result.test_accuracy or 0.0) for result in group]


def accuracy_text(group: Sequence[Result]) -> str:
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
    """Test accuracy of both studies against ε, a line for each way."""
    figure = new_figure((9.6, 4.0))
    for panel, study in zip(figure.subplots(1, len(STUDIES)), STUDIES, strict=True):
        dress(panel, f"ten hospitals: {study.title}")
        names = []
        for place, (way, (_, name, colour, marker)) in enumerate(WAYS.items()):
            aside = 0.03 * (place - len(WAYS) / 2)  # else error bars hide each other
            groups = [found.get((study.title, way, epsilon)) for epsilon in EPSILONS]
            lists = [percents(group) for group in groups if group]
            means = [statistics.fmean(each) for each in lists]
            if way == "none":
                panel.axhline(means[0], color=colour, linestyle="--", linewidth=1)
            else:
                spreads = [statistics.stdev(one) if len(one) > 1 else 0.0 for one in lists]
                panel.errorbar(
                    [at + aside for at in range(len(means))], means, spreads, color=colour,
                    linewidth=3.0 if way == "records" else 1.5,
                    marker=marker, markersize=7, capsize=2,
                )  # fmt: skip
            said = " → ".join(f"{mean:.1f}" for mean in means)
            names.append((means[-1], f"{name} {said}", GREY if colour == FAINT else colour))
        panel.set(
            xlabel=f"ε, of what is protected (δ = {study.delta:g})", ylabel="test accuracy, %"
        )
        panel.set_xticks(range(len(EPSILONS)), [f"{epsilon:g}" for epsilon in EPSILONS])
        panel.set_xlim(-0.15, len(EPSILONS) - 0.9)
        panel.set_ylim(top=100)
        name_lines(panel, names)
    save(figure, path)
