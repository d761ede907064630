"""``python -m paper.people``: what people's reports teach a model, at ε for a whole person.

    tune      the recipe, on training images held out; a Gaussian in place of the reports
    sphere    50,000 to 1,000,000 people, one report each, trusting nobody
    sum       cohorts of a hundred and more, trusting only the sum; central noise and none beside
    entries   per-entry schemes, at the ε that they add up to for a person
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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

FILE, RECIPES = "people.jsonl", "people_recipes.jsonl"
ATTACKS, PICTURES = "people_attacks.jsonl", "people_attacks.npz"
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


@dataclass(frozen=True)
class Clipped:
    """No noise: the mean of clipped updates, which is what noise is added to elsewhere."""

    clip: float

    @property
    def spec(self) -> str:
        return f"no noise, clip {self.clip:g}"

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        return CentralCohort(dimension, self.clip, 0.0)

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        return Guarantee(epsilon=math.inf, unit="client")

    def clipped_to(self, clip: float) -> Mechanism:
        return Clipped(clip)


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
    for number, (label, make, draw) in enumerate(_searches(dataset.name)):
        if label in known:
            continue
        source = np.random.default_rng(number)
        best = Recipe(label, 0.0, trials, {})
        for _ in range(trials):
            if time.time() > until:
                return
            settings = draw(source)
            accuracy = _validated(blind, make, settings, device)
            if accuracy > best.validation_accuracy:
                best = Recipe(label, accuracy, trials, settings)
        with (folder / RECIPES).open("a", encoding="utf-8") as file:
            add_record(file, best)
        print(label, f"{best.validation_accuracy:.4f}", best.settings, flush=True)


Make = Callable[..., PeopleConfig]
Draw = Callable[[np.random.Generator], dict[str, Any]]


def _searches(data: str) -> Iterator[tuple[str, Make, Draw]]:
    """What is looked for: (label, a configuration from settings, settings by chance)."""
    if data != "cifar10":
        for label, features, people, epsilon in populations():
            yield label, partial(_surrogate_config, features, people, epsilon), _reports_drawn
    for name, base, epsilon in cohorts_of(data, is_search=True):
        yield f"sum, {name}", partial(_central_config, base, epsilon), _cohorts_drawn


def _surrogate_config(
    features: str, people: int, epsilon: float, clip: float, **settings: Any
) -> PeopleConfig:
    made = Surrogate(Sphere(epsilon=epsilon, clip=clip))
    return PeopleConfig(scheme=made, people=people, features=features, **settings)


def _central_config(
    base: dict[str, Any], epsilon: float, clip: float, **settings: Any
) -> PeopleConfig:
    made = Central(epsilon=epsilon, delta=DELTA, clip=clip)
    return PeopleConfig(scheme=made, **base, **settings)


def _reports_drawn(source: np.random.Generator) -> dict[str, Any]:
    clip, momentum = float(source.choice([0.05, 0.1, 0.2])), float(source.choice([0.5, 0.8, 0.9]))
    rounds = int(source.choice([16, 32, 64]))
    length = math.exp(source.uniform(math.log(150.0), math.log(10_000.0)))  # of the way, in clips
    return {
        "clip": clip,
        "rounds": rounds,
        "server_momentum": momentum,
        "server_lr": length * (1.0 - momentum) / (clip * rounds),
        "center": float(source.choice([0.0, 0.03, 0.06, 0.1])),
        "average": float(source.choice([0.0, 0.3])),
        "decay": float(source.choice([0.0, 0.5])),
    }


def _cohorts_drawn(source: np.random.Generator) -> dict[str, Any]:
    steps, momentum = int(source.choice([1, 5])), float(source.choice([0.0, 0.5, 0.9]))
    rate = math.exp(source.uniform(math.log(0.5), math.log(8.0)))  # of the mean of a step
    return {
        "clip": float(source.choice([0.25, 0.5, 1.0, 2.0])) * steps,
        "local_steps": steps,
        "lr": float(source.choice([0.05, 0.1, 0.2])),
        "server_momentum": momentum,
        "server_lr": rate * (1.0 - momentum) / steps,
        "average": float(source.choice([0.0, 0.3, 0.6])),
        "decay": float(source.choice([0.0, 0.7])),
    }


def _validated(dataset: Dataset, make: Make, settings: dict[str, Any], device: str) -> float:
    found = []
    for seed in (101, 102):
        population = Population(
            make(**settings, seed=seed, device=device, data=dataset.name), dataset=dataset
        )
        try:
            while not population.is_done:
                population.step()
        except ArithmeticError:
            return 0.0
        found.append(population.history[-1].validation_accuracy or 0.0)
    return float(np.mean(found))


DEFAULT = {  # found on two cores by a search of the same kind, cut short
    "clip": 0.1,
    "rounds": 32,
    "server_momentum": 0.8,
    "server_lr": 25.0,
    "center": 0.03,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    sphere_label("hog", 50_000, 2.0): {"center": 0.0},  # too few people for a mean at this ε
    sphere_label("hog", 50_000, 8.0): {"server_lr": 43.75},
    sphere_label("pixels", 50_000, 4.0): {"server_lr": 37.5, "center": 0.08},
    sphere_label("pixels", 50_000, 8.0): {"server_lr": 37.5, "center": 0.08},
    **{
        sphere_label("hog", people, epsilon): {"server_lr": rate}
        for people, rates in {200_000: (44.0, 56.0, 100.0), 1_000_000: (94.0, 187.5, 312.5)}.items()
        for epsilon, rate in zip(EPSILONS, rates, strict=True)
    },
}
COHORT_DEFAULT = {
    "clip": 2.5,
    "local_steps": 5,
    "lr": 0.05,
    "server_lr": 0.391,
    "server_momentum": 0.5,
    "decay": 0.7,
}


def settings_of(label: str, folder: Path) -> dict[str, Any]:
    """The recipe that was found for a population, or the default where none was looked for."""
    found = [recipe for recipe in read_records(folder / RECIPES, Recipe) if recipe.label == label]
    default = {**DEFAULT, **DEFAULTS.get(label, {})}
    if label.startswith("sum"):
        default = COHORT_DEFAULT
    return dict(found[-1].settings if found else default)


# Runs


def sphere_jobs(folder: Path, draws: int | None) -> Iterator[Job]:
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
    free = PeopleConfig(scheme=Clipped(clip), people=SIZES[0], features="hog", **settings)
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


def cohorts_of(data: str, is_search: bool = False) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Populations for secure sums: (name, people and rounds, the ε of the search)."""
    if data == "cifar10":  # while the recipe is sought, 10,000 images are held out
        held_out = {"examples": 4} if is_search else {"examples": 5, "validation": 0}
        base = {"model": "cnn", "people": 10_000, "rounds": 50, **held_out}
        yield "CIFAR-10 cnn, 10,000 people of 5", base, 8.0
        return
    for model in ("linear", "mlp", "cnn"):
        base = {"model": model, "people": 6000, "examples": 8, "rounds": 60}
        yield f"{model}, 6,000 people of 8", base, 4.0
    base = {"model": "linear", "people": 1000, "examples": 50, "rounds": 30, "participations": 3}
    yield "linear, 1,000 people of 50, 3 rounds each", base, 4.0


def sum_jobs(data: str, folder: Path) -> Iterator[Job]:
    """Each population by secure sums, by central noise, and without noise."""
    for name, base, tuned in cohorts_of(data):
        settings = settings_of(f"sum, {name}", folder)
        clip = settings.pop("clip")
        is_first = name.startswith(("linear, 6", "mlp", "cnn"))
        for epsilon in (tuned,) if tuned == 8.0 else (4.0, 8.0):
            for width in (*BITS, None) if is_first and epsilon == 4.0 else (None,):
                made = SecureSum(
                    epsilon=epsilon, delta=DELTA, clip=clip, clients=2, threshold=2, bits=width
                )
                end = "" if width is None else f", {width} bits"
                config = PeopleConfig(scheme=made, **base, **settings)
                yield Job(f"sum, {name}, ε = {epsilon:g}{end}", config)
            central = Central(epsilon=epsilon, delta=DELTA, clip=clip)
            config = PeopleConfig(scheme=central, **base, **settings)
            yield Job(f"central, {name}, ε = {epsilon:g}", config)
        yield Job(f"none, {name}", PeopleConfig(scheme=Clipped(clip), **base, **settings))


def run_jobs(
    jobs: Sequence[Job], dataset: Dataset, folder: Path, seeds: int, device: str, until: float
) -> None:
    """Train what the file lacks, all jobs of a seed before the next seed."""
    path = folder / FILE
    done = {run.key for run in read_records(path, PeopleRun)}
    for seed in range(seeds):
        for job in jobs:
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
                validation=[round(value, 4) for value in accuracies if value is not None],
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
    from jopeq.attacks.compare import compare, write_npz
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
        keep=folder / "unfinished" / PICTURES,
        resume=True,
    )
    pictures = {"originals": victims}
    with (folder / ATTACKS).open("w", encoding="utf-8") as file:
        for one in outcomes:
            facts = Attacked(one.label, one.method, one.spec, clip, one.ssim, one.mse, one.status)
            add_record(file, facts)
            pictures[f"{one.label}|{one.method}"] = one.images.cpu()
            print(f"{one.label}, {one.method}: {one.recovered}, SSIM at most {max(one.ssim):.3f}")
    pixels = {k: (v.clamp(0.0, 1.0) * 255.0).round().byte().numpy() for k, v in pictures.items()}
    write_npz(folder / PICTURES, **pixels)


@dataclass(frozen=True)
class Attacked:
    """What one attacker saw in one scheme's payloads."""

    label: str
    method: str
    scheme: str
    clip: float
    ssim: list[float]
    mse: list[float]
    status: list[str]


COMMANDS = ("tune", "sphere", "sum", "entries", "attack", "page")


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser("python -m paper.people", description=__doc__)
    parser.add_argument("name", choices=COMMANDS)
    add = parser.add_argument
    add("--results", type=Path, default=Path("results"), help="where runs are kept")
    add("--data", default="mnist", help="mnist, fashion-mnist or, for sum, cifar10")
    add("--data-dir", type=Path, help="where the data files are")
    add("--device", default="cpu", help="cpu or cuda")
    add("--seeds", type=int, default=SEEDS)
    add("--seconds", type=float, default=math.inf, help="begin nothing after so many")
    add("--trials", type=int, default=60, help="of tune, for each population")
    add("--draws", type=int, help="of sphere: fewer are faster, and cost a little error")
    add("--only", default="", help="runs whose label has this in it")
    add("--images", type=int, default=8, help="that are attacked")
    add("--iterations", type=int, default=100, help="of each attack")
    given = parser.parse_args(arguments)
    given.results.mkdir(parents=True, exist_ok=True)
    until = time.time() + given.seconds
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
        dataset = load(given.data, given.data_dir)
        if given.name == "tune":
            tune(dataset, given.results, given.trials, given.device, until)
            return 0
        jobs = {
            "sphere": partial(sphere_jobs, given.results, given.draws),
            "entries": partial(entries_jobs, given.results),
            "sum": partial(sum_jobs, given.data, given.results),
        }[given.name]()
        chosen = [job for job in jobs if given.only in job.label]
        run_jobs(chosen, dataset, given.results, given.seeds, given.device, until)
    except (DataError, OSError) as error:
        print(f"python -m paper.people {given.name}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
