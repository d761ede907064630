"""``python -m paper.people``: train models on people's reports, at ε for a whole person.

    sphere    50,000 to 1,000,000 people, one report each, trusting nobody
    sum       cohorts of a hundred and more, trusting only the sum; central noise and no noise
    entries   per-entry schemes, at the ε that they add up to for a person
    attack    what four attackers see in one report of ``sphere``, and in per-entry ``response``
    page      docs/people.md and its figures, from what is kept; needs the extras of paper/

Every run is a line of ``people.jsonl`` in ``--results`` as soon as it is there; a second call runs
what is missing. All but ``page`` need PyTorch, NumPy and SciPy alone. More people than training
images means that images are given out again, as fresh people's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from jopeq.errors import DataError
from jopeq.registry import scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import ClientSum
from jopeq_lab.training.cohorts import Central
from jopeq_lab.training.config import PeopleConfig
from jopeq_lab.training.data import Dataset, load
from jopeq_lab.training.simulation import train
from paper.runs import add_record, read_lines, read_records

FILE = "people.jsonl"
RECIPES = "people_recipes.jsonl"
SIZES = (50_000, 200_000, 1_000_000)
EPSILONS = (2.0, 4.0, 8.0)
DELTA = 1e-5
ATTACKS, PICTURES = "people_attacks.jsonl", "people_attacks.npz"
ATTACKED = ((16, ("dlg", "idlg")), (4, ("inverting", "adaptive")))  # images, and by what
SEEDS = 3
BITS = (6, 8, 10)
SIGNAL = 0.4  # of the clip: what the mean of updates is taken to be where 6 bits must do


@dataclass(frozen=True)
class PeopleRun:
    """One run, small enough to commit."""

    label: str
    data: str
    seed: int
    test_accuracy: float
    validation: list[float]  # accuracy after each round
    epsilon: float | None  # of a person, for all reports; None without a guarantee
    delta: float
    summary: dict[str, Any]
    config: dict[str, Any]


Jobs = Iterable[tuple[str, PeopleConfig]]  # by the name that tables and figures know

# Populations and recipes. A random search over settings found the recipes that
# ``people_recipes.jsonl`` keeps, by accuracy on held-out training images.


def sphere_label(features: str, people: int, epsilon: float) -> str:
    """The label of a population of reports."""
    return f"sphere, {features}, {people:,} people, ε = {epsilon:g}"


def cohorts_of(data: str) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Populations for secure sums: (name, people and rounds, the ε of the recipe)."""
    if data == "cifar10":
        base = {"people": 10_000, "examples": 5, "validation": 0}
        yield "CIFAR-10 cnn, 10,000 people of 5", {"model": "cnn", **base}, 8.0
        yield "CIFAR-10 hog, 10,000 people of 5", {"features": "hog", **base}, 8.0
        return
    for model in ("linear", "mlp", "cnn"):
        base = {"model": model, "people": 6000, "examples": 8, "rounds": 60}
        yield f"{model}, 6,000 people of 8", base, 4.0
    base = {"model": "linear", "people": 1000, "examples": 50, "rounds": 30, "participations": 3}
    yield "linear, 1,000 people of 50, 3 rounds each", base, 4.0


# found on two cores by a shorter search of the same kind
_STEPS = {"server_lr": 25.0, "server_momentum": 0.8}
DEFAULT = {"clip": 0.1, "rounds": 32, "center": 0.03, **_STEPS}
_STEPS_OF_COHORTS = {"server_lr": 0.391, "server_momentum": 0.5, "decay": 0.7}
COHORT_DEFAULT = {"clip": 2.5, "local_steps": 5, "lr": 0.05, **_STEPS_OF_COHORTS}


def settings_of(label: str, folder: Path) -> dict[str, Any]:
    """The recipe chosen for a population, or the default if none was searched for."""
    found = {one["label"]: one["settings"] for one in read_lines(folder / RECIPES)}
    usual = COHORT_DEFAULT if label.startswith("sum") else DEFAULT
    return dict(found.get(label, usual))


# Runs


def sphere_jobs(folder: Path, draws: int | None) -> Jobs:
    """Every population; all data sets use the recipe of MNIST."""
    shown = [("hog", size, epsilon) for size in SIZES for epsilon in EPSILONS]
    for kind, people, epsilon in (*shown, *(("pixels", SIZES[0], e) for e in (4.0, 8.0))):
        label = sphere_label(kind, people, epsilon)
        settings = settings_of(label, folder)
        made = Sphere(epsilon=epsilon, clip=settings.pop("clip"), draws=draws)
        yield label, PeopleConfig(scheme=made, people=people, features=kind, **settings)
    population, given = f"hog, {SIZES[0]:,} people", {"people": SIZES[0], "features": "hog"}
    settings = settings_of(f"sphere, {population}, ε = 8", folder)
    clip = settings.pop("clip")
    for epsilon in EPSILONS:
        private = {"epsilon": epsilon, "delta": DELTA, "clip": clip}
        for name, made in (
            ("central", Central(**private)),
            ("sum", ClientSum(**private, clients=2, threshold=2, colluding=0)),
        ):
            config = PeopleConfig(scheme=made, **given, **settings)
            yield f"{name}, {population}, ε = {epsilon:g}", config
    free = Central(epsilon=math.inf, clip=clip)
    yield f"none, {population}", PeopleConfig(scheme=free, **given, **settings)


def entries_jobs(folder: Path) -> Jobs:
    """Schemes that protect entries, with the best recipe of a little noise."""
    settings = settings_of(sphere_label("hog", SIZES[0], 8.0), folder)
    clip = settings.pop("clip")
    for epsilon in (2.0, 4.0):
        # of a clipped update of so many entries this is the usual size of an entry, thrice
        made = scheme("response", epsilon=epsilon, rate=2.0, clip=3.0 * clip / math.sqrt(5210))
        label = f"response, hog, {SIZES[0]:,} people, ε = {epsilon:g} per entry"
        yield label, PeopleConfig(scheme=made, people=SIZES[0], features="hog", **settings)


def sum_jobs(data: str, folder: Path) -> Jobs:
    """The runs of each population: by secure sums, by central noise, and without noise."""
    for name, base, tuned in cohorts_of(data):
        settings = settings_of(f"sum, {name}", folder)
        clip = settings.pop("clip")
        is_first = " 6,000" in name
        for epsilon in (tuned,) if tuned == 8.0 else (4.0, 8.0):
            for width in (*BITS, None) if is_first and epsilon == 4.0 else (None,):
                made = ClientSum(
                    epsilon=epsilon, delta=DELTA, clip=clip, clients=2, threshold=2, colluding=0,
                    bits=width, largest_mean=SIGNAL if width == BITS[0] else 1.0,
                )  # fmt: skip
                end = "" if width is None else f", {width} bits"
                config = PeopleConfig(scheme=made, **base, **settings)
                yield f"sum, {name}, ε = {epsilon:g}{end}", config
            central = Central(epsilon=epsilon, delta=DELTA, clip=clip)
            config = PeopleConfig(scheme=central, **base, **settings)
            yield f"central, {name}, ε = {epsilon:g}", config
        free = Central(epsilon=math.inf, clip=clip)
        yield f"none, {name}", PeopleConfig(scheme=free, **base, **settings)


def run_jobs(
    jobs: Sequence[tuple[str, PeopleConfig]],
    dataset: Dataset,
    folder: Path,
    seeds: Sequence[int],
    device: str,
) -> None:
    """Train what the file lacks, all jobs of a seed before the next seed."""
    path = folder / FILE
    done = {(run.label, run.data, run.seed) for run in read_records(path, PeopleRun)}
    for seed in seeds:
        for label, given in jobs:
            if (label, dataset.name, seed) in done:
                continue
            config = replace(given, seed=seed, device=device, data=dataset.name)
            try:
                result = train(config, dataset=dataset)
                reason = result.diverged
            except ValueError as error:  # a cohort too small for its ε
                reason = str(error)
            if reason is not None:
                print(f"{label}, seed {seed}: {reason}", file=sys.stderr, flush=True)
                continue
            accuracies = [one.validation_accuracy for one in result.history if one.round]
            summary = dict(result.summary)
            run = PeopleRun(
                label=label,
                data=dataset.name,
                seed=seed,
                test_accuracy=summary.pop("test_accuracy"),
                validation=[round(value, 4) for value in accuracies if value is not None],
                epsilon=summary.pop("epsilon"),
                delta=summary.pop("delta"),
                summary={**summary, "device": device},
                config={**config.as_dict(), "data_dir": None},
            )
            with path.open("a", encoding="utf-8") as file:
                add_record(file, run)
            print(f"{label}, seed {seed}: {run.test_accuracy:.4f}", flush=True)


# Attacks


def attack_reports(data_dir: Path, folder: Path, device: str) -> None:
    """DLG, iDLG, inverting and the adaptive attacker on gradients of single CIFAR-10 images."""
    from jopeq_lab.attacks import AttackConfig, GradientMap, true_gradients
    from jopeq_lab.attacks.compare import compare
    from jopeq_lab.training.models import build
    from paper.attacks import write_npz

    dataset = load("cifar10", data_dir)
    seen = GradientMap(build("lenet", dataset.input_shape, 10, seed=0).to(device), (3, 32, 32))
    few = ATTACKED[-1][0]  # images whose reconstructions are kept
    pictures, lines = {"originals": dataset.test_inputs[:few]}, []
    for count, methods in ATTACKED:
        victims, labels = dataset.test_inputs[:count], dataset.test_labels[:count]
        gradients = true_gradients(seen, victims, labels)
        clip = float(torch.linalg.vector_norm(gradients, dim=1).median())
        schemes = {
            "raw": scheme("none"),
            "response, ε = 3 per entry": scheme("response", epsilon=3.0, rate=8.0),
            "response, ε = 4 per entry": scheme("response", epsilon=4.0, rate=8.0),
            **{f"sphere, ε = {e:g}": Sphere(epsilon=e, clip=clip) for e in (8.0, 4.0, 2.0)},
        }
        outcomes = compare(
            seen,
            victims.to(device),
            labels.to(device),
            schemes,
            methods,
            AttackConfig(method="dlg", iterations=100),
        )
        for one in outcomes:
            facts = {name: getattr(one, name) for name in ("label", "method", "ssim", "mse")}
            lines.append(SimpleNamespace(**facts, status=one.status, scheme=one.spec, clip=clip))
            pictures[f"{one.label}|{one.method}"] = one.images[:few].cpu()
            print(f"{one.label}, {one.method}: {one.recovered}, SSIM at most {max(one.ssim):.3f}")
    with (folder / ATTACKS).open("w", encoding="utf-8") as file:
        for line in lines:
            add_record(file, line)
    pixels = {k: (v.clamp(0.0, 1.0) * 255.0).round().byte().numpy() for k, v in pictures.items()}
    write_npz(folder / PICTURES, **pixels)


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser("python -m paper.people", description=__doc__)
    parser.add_argument("name", choices=("sphere", "sum", "entries", "attack", "page"))
    add = parser.add_argument
    add("--results", type=Path, default=Path("results"), help="where runs are kept")
    add("--data", default="mnist", help="mnist, fashion-mnist or, for sum, cifar10")
    add("--data-dir", type=Path, help="where the data files are")
    add("--device", default="cpu", help="cpu or cuda")
    add("--seeds", type=int, nargs="*", default=list(range(SEEDS)), help="of runs: 0 1 2")
    add("--draws", type=int, help="of sphere: fewer are faster, and cost a little error")
    given = parser.parse_args(arguments)
    given.results.mkdir(parents=True, exist_ok=True)
    try:
        if given.name == "page":
            from paper.people_page import write

            write(given.results, Path("docs"))
        elif given.name == "attack":
            attack_reports(given.data_dir, given.results, given.device)
        else:
            jobs = {
                "sphere": partial(sphere_jobs, given.results, given.draws),
                "entries": partial(entries_jobs, given.results),
                "sum": partial(sum_jobs, given.data, given.results),
            }[given.name]
            dataset = load(given.data, given.data_dir)
            run_jobs(jobs(), dataset, given.results, given.seeds, given.device)
    except (DataError, OSError) as error:
        print(f"python -m paper.people {given.name}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
