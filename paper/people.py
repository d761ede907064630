"""``python -m paper.people``: what people's reports teach a model, at ε for a whole person.

    tune      the recipe, on training images held out; a Gaussian in place of the reports
    sphere    50,000 to 1,000,000 people, one report each, trusting nobody
    sum       6,000 people and fewer, trusting only the sum; central noise and none beside it
    entries   per-entry schemes, at the ε that they add up to for a person
    cifar     10,000 people of 5 images, a small convolutional network, by secure sums
    attack    what four attackers see in one report of ``sphere``, and in per-entry ``response``
    page      docs/person-level.md and its figures, from what is kept; needs the extras of paper/

Every run is a line of ``people.jsonl`` in ``--results`` as soon as it is there; a second call runs
what is missing. All but ``page`` need PyTorch, NumPy and SciPy alone. More people than training
images means that images are given out again, as fresh people's.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jopeq.errors import DataError
from jopeq.federated.cohorts import Central, CentralCohort, Cohort, Mechanism
from jopeq.federated.config import PeopleConfig
from jopeq.federated.data import Dataset, load
from jopeq.federated.population import Population, train_people
from jopeq.federated.runs import add_record, read_records
from jopeq.privacy.guarantee import Guarantee
from jopeq.schemes import scheme
from jopeq.schemes.secure_sum import SecureSum
from jopeq.schemes.sphere import Sphere

FILE, RECIPES, PICTURES = "people.jsonl", "people_recipes.jsonl", "people_attacks.npz"
SEEDS = 3
SIZES = (50_000, 200_000, 1_000_000)
EPSILONS = (2.0, 4.0, 8.0)
BITS = (6, 8, 10)
DELTA = 1e-5


@dataclass(frozen=True)
class PeopleRun:
    """One run, small enough to commit."""

    label: str
    data: str
    seed: int
    test_accuracy: float
    validation: list[float]  # accuracy after each round
    epsilon: float | None  # of a person, for all that she sent; None without a guarantee
    delta: float
    summary: dict[str, Any]
    config: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells a run from all others."""
        return self.label, self.data, self.seed


@dataclass(frozen=True)
class Recipe:
    """The best settings found for one population, by accuracy on held-out training images."""

    label: str
    validation_accuracy: float
    trials: int
    settings: dict[str, float]


@dataclass(frozen=True)
class Job:
    """A configuration under the name that tables and figures know."""

    label: str
    config: PeopleConfig


# Recipes


@dataclass(frozen=True)
class Surrogate:
    """``sphere`` as its error says it is: a Gaussian on the mean. For tuning alone: no privacy."""

    scheme: Sphere

    @property
    def spec(self) -> str:
        return f"surrogate of {self.scheme.spec}"

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        clip = self.scheme.clip or 1.0
        error = self.scheme.expected_error(dimension) / (dimension * people)
        return CentralCohort(dimension, clip, clip * math.sqrt(error))

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        return Guarantee(epsilon=math.inf, unit="client")

    def clipped_to(self, clip: float) -> Mechanism:
        return Surrogate(replace(self.scheme, clip=clip))


def sphere_label(features: str, people: int, epsilon: float) -> str:
    """What a population of reports is called."""
    return f"sphere, {features}, {people:,} people, ε = {epsilon:g}"


def populations() -> Iterator[tuple[str, str, int, float]]:
    """Those of ``sphere``: (label, features, people, ε)."""
    for people in SIZES:
        for epsilon in EPSILONS:
            yield sphere_label("hog", people, epsilon), "hog", people, epsilon
    for epsilon in (4.0, 8.0):
        yield sphere_label("pixels", SIZES[0], epsilon), "pixels", SIZES[0], epsilon


def tune(dataset: Dataset, folder: Path, trials: int, device: str, until: float) -> None:
    """A random search for every population; the test images are not there at all."""
    blind = replace(
        dataset, test_inputs=dataset.test_inputs[:0], test_labels=dataset.test_labels[:0]
    )
    known = {recipe.label for recipe in read_records(folder / RECIPES, Recipe)}
    for number, (label, features, people, epsilon) in enumerate(populations()):
        if label in known:
            continue
        draw = np.random.default_rng(number)
        best = Recipe(label, 0.0, trials, {})
        for _ in range(trials):
            if time.time() > until:
                return
            settings = _drawn(draw)
            accuracy = _validated(blind, features, people, epsilon, settings, device)
            if accuracy > best.validation_accuracy:
                best = Recipe(label, accuracy, trials, settings)
        with (folder / RECIPES).open("a", encoding="utf-8") as file:
            add_record(file, best)
        print(label, f"{best.validation_accuracy:.4f}", best.settings, flush=True)


def _drawn(draw: np.random.Generator) -> dict[str, float]:
    clip, momentum = float(draw.choice([0.05, 0.1, 0.2])), float(draw.choice([0.5, 0.8, 0.9]))
    rounds = int(draw.choice([16, 32, 64]))
    length = math.exp(draw.uniform(math.log(150.0), math.log(3000.0)))  # of the way, in clips
    return {
        "clip": clip,
        "rounds": rounds,
        "server_momentum": momentum,
        "server_lr": length * (1.0 - momentum) / (clip * rounds),
        "center": float(draw.choice([0.0, 0.03, 0.06])),
        "average": float(draw.choice([0.0, 0.3])),
        "decay": float(draw.choice([0.0, 0.5])),
    }


def _validated(
    dataset: Dataset,
    features: str,
    people: int,
    epsilon: float,
    settings: dict[str, float],
    device: str,
) -> float:
    others = {name: value for name, value in settings.items() if name != "clip"}
    found = []
    for seed in (101, 102):
        config = PeopleConfig(
            scheme=Surrogate(Sphere(epsilon=epsilon, clip=settings["clip"])),
            people=people,
            features=features,
            seed=seed,
            device=device,
            **others,
        )
        population = Population(config, dataset=dataset)
        while not population.is_done:
            population.step()
        found.append(population.history[-1].validation_accuracy or 0.0)
    return float(np.mean(found))


DEFAULT = {  # found on two cores, by the same search cut short
    "clip": 0.1,
    "rounds": 32,
    "server_momentum": 0.8,
    "server_lr": 25.0,
    "center": 0.03,
}


def settings_of(label: str, folder: Path) -> dict[str, Any]:
    """The recipe that was found for a population, or the default where none was looked for."""
    found = [recipe for recipe in read_records(folder / RECIPES, Recipe) if recipe.label == label]
    return dict(found[-1].settings if found else DEFAULT)


# Runs


def sphere_jobs(data: str, folder: Path, draws: int | None) -> Iterator[Job]:
    """Every population, each with the recipe of MNIST, whatever the data are."""
    for label, features, people, epsilon in populations():
        settings = settings_of(label, folder)
        clip = settings.pop("clip")
        made = Sphere(epsilon=epsilon, clip=clip, draws=draws)
        yield Job(label, PeopleConfig(scheme=made, people=people, features=features, **settings))
    settings = settings_of(sphere_label("hog", SIZES[0], 8.0), folder)
    clip = settings.pop("clip")
    for epsilon in EPSILONS:
        central = Central(epsilon=epsilon, delta=DELTA, clip=clip)
        name = f"central, hog, {SIZES[0]:,} people, ε = {epsilon:g}"
        config = PeopleConfig(scheme=central, people=SIZES[0], features="hog", **settings)
        yield Job(name, config)
    free = PeopleConfig(scheme="none", people=SIZES[0], features="hog", **settings)
    yield Job(f"none, hog, {SIZES[0]:,} people", free)


def entries_jobs(folder: Path) -> Iterator[Job]:
    """Schemes that protect entries, with the best recipe of a little noise."""
    settings = settings_of(sphere_label("hog", SIZES[0], 8.0), folder)
    clip = settings.pop("clip")
    for epsilon in (2.0, 4.0):
        # of a clipped update of so many entries this is the usual size of an entry, thrice
        made = scheme("response", epsilon=epsilon, rate=2.0, clip=3.0 * clip / math.sqrt(5210))
        label = f"response, hog, {SIZES[0]:,} people, ε = {epsilon:g} per entry"
        yield Job(label, PeopleConfig(scheme=made, people=SIZES[0], features="hog", **settings))


SUM_SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {"clip": 0.4, "lr": 0.1, "server_lr": 1.0},
    "mlp": {"clip": 0.4, "lr": 0.1, "server_lr": 1.0},
    "cnn": {"clip": 0.4, "lr": 0.1, "server_lr": 1.0},
}


def _cohort_jobs(
    name: str, base: dict[str, Any], settings: dict[str, Any], epsilon: float, bits: Any
) -> Iterator[Job]:
    """The same population by secure sums, by central noise, and without noise."""
    chosen = dict(settings)
    clip = chosen.pop("clip")
    for width in bits:
        made = SecureSum(
            epsilon=epsilon, delta=DELTA, clip=clip, clients=100, threshold=100, bits=width
        )
        end = "" if width is None else f", {width} bits"
        yield Job(f"sum, {name}, ε = {epsilon:g}{end}", PeopleConfig(scheme=made, **base, **chosen))
    central = Central(epsilon=epsilon, delta=DELTA, clip=clip)
    yield Job(f"central, {name}, ε = {epsilon:g}", PeopleConfig(scheme=central, **base, **chosen))
    yield Job(f"none, {name}", PeopleConfig(scheme="none", **base, **chosen))


def sum_jobs(tuned: dict[str, Any]) -> Iterator[Job]:
    """Cohorts of a hundred. People of 8 images (6,000 people) or 50 (1,000 people)."""
    for model, usual in SUM_SETTINGS.items():
        settings = {**usual, **tuned}
        base = {"model": model, "people": 6000, "examples": 8, "rounds": 60, "local_steps": 5}
        for epsilon in (4.0, 8.0) if model == "linear" else (4.0,):
            bits = (*BITS, None) if epsilon == 4.0 else (None,)
            yield from _cohort_jobs(f"{model}, 6,000 people", base, settings, epsilon, bits)
    base = {"model": "linear", "people": 1000, "examples": 50, "rounds": 30, "local_steps": 5}
    for epsilon in (4.0, 8.0):
        yield from _cohort_jobs(
            "linear, 1,000 people, 3 rounds each",
            {**base, "participations": 3},
            {**SUM_SETTINGS["linear"], **tuned},
            epsilon,
            (None,),
        )


def cifar_jobs(tuned: dict[str, Any]) -> Iterator[Job]:
    """10,000 people of 4 images (8 rounds of 10,000 held out leave 40,000), a LeNet-sized CNN."""
    base = {"model": "cnn", "people": 10_000, "examples": 4, "rounds": 50, "local_steps": 5}
    settings = {"clip": 0.5, "lr": 0.1, "server_lr": 1.0, "server_momentum": 0.9, **tuned}
    yield from _cohort_jobs("CIFAR-10 cnn, 10,000 people", base, settings, 8.0, (None,))


def run_jobs(
    jobs: Iterator[Job], dataset: Dataset, folder: Path, seeds: int, device: str, until: float
) -> None:
    """Train what the file lacks, all jobs of a seed before the next seed."""
    path = folder / FILE
    done = {run.key for run in read_records(path, PeopleRun)}
    wanted = list(jobs)
    for seed in range(seeds):
        for job in wanted:
            if (job.label, dataset.name, seed) in done or time.time() > until:
                continue
            config = replace(job.config, seed=seed, device=device, data=dataset.name)
            try:
                result = train_people(config, dataset=dataset)
            except (ArithmeticError, ValueError) as error:
                print(f"{job.label}, seed {seed}: {error}", file=sys.stderr, flush=True)
                continue
            accuracies = [one.validation_accuracy for one in result.history if one.round]
            summary = dict(result.summary)
            run = PeopleRun(
                label=job.label,
                data=dataset.name,
                seed=seed,
                test_accuracy=summary.pop("test_accuracy"),
                validation=[round(value or 0.0, 4) for value in accuracies],
                epsilon=summary.pop("epsilon"),
                delta=summary.pop("delta"),
                summary={**summary, "device": device},
                config={**config.as_dict(), "data_dir": None},
            )
            with path.open("a", encoding="utf-8") as file:
                add_record(file, run)
            print(f"{job.label}, seed {seed}: {run.test_accuracy:.4f}", flush=True)


# Attacks


def attack_reports(data_dir: Path, folder: Path, device: str, images: int, iterations: int) -> None:
    """DLG, iDLG, inverting and the adaptive attacker on gradients of single CIFAR-10 images."""
    import torch

    from jopeq.attacks import AttackConfig, GradientMap, true_gradients
    from jopeq.attacks.compare import compare
    from jopeq.federated.models import build

    dataset = load("cifar10", data_dir)
    victims, labels = dataset.test_inputs[:images], dataset.test_labels[:images]
    seen = GradientMap(build("lenet", dataset.input_shape, 10, seed=0).to(device), (3, 32, 32))
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
        ("dlg", "idlg", "inverting", "adaptive"),
        AttackConfig(method="dlg", iterations=iterations),
        keep=folder / PICTURES,
        resume=True,
        progress=None,
    )
    for one in outcomes:
        best, mean = max(one.ssim), sum(one.ssim) / len(one.ssim)
        print(f"{one.label}, {one.method}: {one.recovered}, SSIM {mean:.3f}, at most {best:.3f}")


COMMANDS = ("tune", "sphere", "sum", "entries", "cifar", "attack", "page")


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser("python -m paper.people", description=__doc__)
    parser.add_argument("name", choices=COMMANDS)
    add = parser.add_argument
    add("--results", type=Path, default=Path("results"), help="where runs are kept")
    add("--data", default="mnist", help="mnist or fashion-mnist")
    add("--data-dir", type=Path, help="where the data files are")
    add("--device", default="cpu", help="cpu or cuda")
    add("--seeds", type=int, default=SEEDS)
    add("--seconds", type=float, default=math.inf, help="begin nothing after so many")
    add("--trials", type=int, default=60, help="of tune, for each population")
    add("--draws", type=int, help="of sphere: fewer are faster, and cost a little error")
    add("--images", type=int, default=8, help="that are attacked")
    add("--iterations", type=int, default=100, help="of each attack")
    add("--set", action="append", default=[], help="NAME=NUMBER: a setting of sum and cifar")
    given = parser.parse_args(arguments)
    given.results.mkdir(parents=True, exist_ok=True)
    until = time.time() + given.seconds
    tuned = {name: float(value) for name, _, value in (text.partition("=") for text in given.set)}
    try:
        if given.name == "page":
            from paper.people_page import write

            write(given.results, Path("docs"))
            return 0
        if given.name == "attack":
            attack_reports(
                given.data_dir, given.results, given.device, given.images, given.iterations
            )
            return 0
        dataset = load("cifar10" if given.name == "cifar" else given.data, given.data_dir)
        if given.name == "tune":
            tune(dataset, given.results, given.trials, given.device, until)
            return 0
        jobs = {
            "sphere": lambda: sphere_jobs(dataset.name, given.results, given.draws),
            "entries": lambda: entries_jobs(given.results),
            "sum": lambda: sum_jobs(tuned),
            "cifar": lambda: cifar_jobs(tuned),
        }[given.name]()
        run_jobs(jobs, dataset, given.results, given.seeds, given.device, until)
    except (DataError, OSError) as error:
        print(f"python -m paper.people {given.name}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
