"""Hospitals with ε for a patient: the runs of the table in docs/hospitals.md.

    python -m paper.hospitals SET … --files FOLDER --device cuda --jobs 16

Two steps for each data set. ``trials``: settings (clip, learning rate) are chosen on samples held
out of the training set, never on the test set; if the seed draws the test set, for each seed.
``runs``: trained anew on all training samples with the chosen settings. What is kept is not run
again. FOLDER holds the files of examples/public-features and the folder of MNIST.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jopeq
from jopeq_lab.training.data import Dataset, load
from jopeq_lab.training.simulation import HospitalsConfig, PeopleConfig, RunConfig, train
from paper.runs import read_lines

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
METHODS = ("shares", "central", "local", "alone", "none", "sum")
RUNS, TRIALS = "hospitals.jsonl", "hospitals_trials.jsonl"


@dataclass(frozen=True)
class Set:
    """A data set and what is fixed for it."""

    data: str  # a name, or a file of examples/public-features
    features: str
    samples: int  # to train on
    rounds: int
    sampling: float
    test: int | None = None  # drawn by the seed
    delta: float = 1e-5
    seeds: int = 3
    rates: tuple[float, ...] = (8.0, 20.0, 50.0, 125.0)
    clips: tuple[float, ...] = (0.3, 1.0)
    cohorts: tuple[int, ...] = (100, 30, 5)  # numbers of hospitals besides ten, at ε = 1


SETS = {
    "MNIST, HOG": Set("mnist", "hog", 60_000, 60, 0.14),
    "MNIST, 400 a hospital": Set("mnist", "hog", 4_000, 30, 1.0),
    "MNIST, scattering": Set("mnist.npz", "rows", 60_000, 100, 0.14),
    "Fashion-MNIST, scattering": Set("fashion.npz", "rows", 60_000, 100, 0.14),
    "CIFAR-10, ImageNet features": Set("cifar10.npz", "rows", 50_000, 100, 0.16),
    "breast cancer": Set(
        *("cancer", "table", 400, 30, 1.0),
        test=169,
        delta=1e-4,
        seeds=8,
        rates=(0.5, 1.0, 2.0, 4.0),
        cohorts=(100, 30, 20, 5),
    ),
    "flchain": Set("flchain.npz", "table", 6_300, 60, 0.5, test=1_574, rates=(1.0, 4.0, 16.0)),
}


@dataclass(frozen=True)
class Job:
    """One training; ``held`` samples are held out to choose settings, and then none."""

    label: str
    method: str
    epsilon: float
    seed: int
    hospitals: int = 10
    partition: str = "iid"
    clip: float = 1.0
    lr: float = 1.0
    rounds: int = 0
    held: int = 0

    @property
    def choice(self) -> tuple[Any, ...]:
        """The trials that choose its settings: shares take those of central noise."""
        method = "central" if self.method == "shares" else self.method
        epsilon = 0.0 if self.method == "none" else self.epsilon
        return self.label, method, epsilon, self.seed if SETS[self.label].test else 0

    @property
    def told(self) -> dict[str, Any]:
        """The settings that differ from the defaults, as a record has them."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Job:
        """The job of a record."""
        return cls(**{f.name: record[f.name] for f in fields(cls) if f.name in record})

    def config(self, device: str) -> RunConfig:
        one = SETS[self.label]
        records = one.samples - self.held
        shared = {"data": one.data, "features": one.features, "seed": self.seed, "device": device}
        shared |= {"server_lr": self.lr, "validation": self.held}
        private = {"epsilon": self.epsilon, "delta": one.delta, "clip": self.clip}
        if self.method == "sum":
            scheme = jopeq.ClientSum(
                **private, clients=10, threshold=10, rounds=self.rounds, largest_mean=0.5
            )
            people = {"people": 10, "examples": records // 10, "participations": self.rounds}
            return PeopleConfig(scheme=scheme, rounds=self.rounds, **people, **shared)
        records_sum = jopeq.RecordSum(
            **private, records=records, sampling=one.sampling, rounds=self.rounds, largest_mean=0.3,
            clients=self.hospitals, threshold=max(3, -(-self.hospitals // 2)),
        )  # fmt: skip
        baseline = None if self.method == "shares" else self.method
        return HospitalsConfig(
            scheme=records_sum, baseline=baseline, partition=self.partition, test=one.test, **shared
        )


def trials(label: str) -> Iterator[Job]:
    """Every setting of every method and ε."""
    one = SETS[label]
    held = one.samples // 6 if one.test is None else one.samples // 4
    for seed in range(one.seeds if one.test else 1):
        for method in METHODS[1:]:
            for epsilon in EPSILONS if method != "none" else (0.0,):
                job = Job(label, method, epsilon or 1.0, seed, held=held, rounds=one.rounds)
                if method == "sum":
                    for rounds in (1, 5, 20):
                        for lr in one.rates[:3]:
                            for clip in (0.1, 0.3):
                                yield replace(job, rounds=rounds, clip=clip, lr=lr)
                else:
                    for clip in one.clips:
                        for lr in one.rates:
                            yield replace(job, clip=clip, lr=lr)


def runs(label: str, chosen: dict[tuple[Any, ...], dict[str, Any]]) -> Iterator[Job]:
    """The runs of the table, with the settings that the trials chose."""
    one = SETS[label]
    for seed in range(one.seeds):
        plain = [Job(label, "shares", 1.0, seed, hospitals=n) for n in one.cohorts]
        plain += [Job(label, m, e, seed) for m in METHODS if m != "none" for e in EPSILONS]
        plain += [Job(label, "none", 1.0, seed)]
        plain += [Job(label, "shares", 1.0, seed, partition="dirichlet")]
        for job in plain:
            if job.choice in chosen:
                yield replace(job, **chosen[job.choice])


@lru_cache(maxsize=1)
def dataset_of(label: str, folder: str) -> Dataset:
    """Load a data set; the process keeps it for its next run."""
    data = SETS[label].data
    if data.endswith(".npz"):
        return load(str(Path(folder) / data))
    return load(data, str(Path(folder) / data) if data == "mnist" else None)


def run(job: Job, folder: str, device: str) -> dict[str, Any]:
    """The record of one training."""
    dataset, one = dataset_of(job.label, folder), SETS[job.label]
    if job.method == "sum" and one.test is not None:
        dataset = dataset.split_anew(one.test, job.seed)
    found = train(job.config(device), dataset=dataset)
    last, facts = found.history[-1], found.summary
    kept = ("test_accuracy", "test_auc", "dimension", "bits", "noise_multiplier", "price")
    kept += ("delta", "bytes_sent", "diverged")
    record = {name: facts[name] for name in kept if facts.get(name) is not None}
    record["proven"] = facts["epsilon"]
    if job.held:
        record = {"validation_accuracy": last.validation_accuracy}
        if len(set(dataset.test_labels.tolist())) == 2:
            record["validation_loss"] = last.validation_loss
    else:
        record["device"] = device
    return {**job.told, **record}


def choose(records: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The settings of highest accuracy on the samples held out; of two classes, of least loss."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}

    def score(record: dict[str, Any]) -> float:
        loss = record.get("validation_loss")
        return float(record["validation_accuracy"] if loss is None else -loss)

    for record in records:
        place = Job.of(record).choice
        if place not in best or score(record) > score(best[place]):
            best[place] = record
    return {
        place: {name: getattr(Job.of(record), name) for name in ("clip", "lr", "rounds")}
        for place, record in best.items()
    }


def main() -> None:
    """Run what is not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="+", choices=[*SETS])
    parser.add_argument("--files", default=".")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for label in given.sets:
            for step, path in (("trials", given.results / TRIALS), ("runs", given.results / RUNS)):
                tried = [r for r in read_lines(given.results / TRIALS) if r["label"] == label]
                jobs = list(trials(label) if step == "trials" else runs(label, choose(tried)))
                done = set(map(Job.of, read_lines(path)))
                left = [job for job in jobs if job not in done]
                waiting = [pool.submit(run, job, given.files, given.device) for job in left]
                with path.open("a", encoding="utf-8") as file:
                    for one in as_completed(waiting):
                        file.write(json.dumps(one.result()) + "\n")
                        file.flush()


if __name__ == "__main__":
    main()
