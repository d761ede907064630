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
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import one_hot

from jopeq.errors import DataError
from jopeq.federated.cohorts import Central, CentralCohort, Cohort, Mechanism
from jopeq.federated.config import PeopleConfig
from jopeq.federated.data import Dataset, load, split_validation
from jopeq.federated.features import features, finished
from jopeq.federated.population import Population, train_people
from jopeq.federated.runs import add_record, read_records
from jopeq.federated.server import Descent, Server
from jopeq.privacy.accounting import gaussian_epsilon
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
SIGNAL = 0.4  # of the clip: what the mean of updates is taken to be where 6 bits must do
DELTA = 1e-5
_SIMULATED = 20_000  # people of a simulated round, at most


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


@dataclass(frozen=True, kw_only=True)
class LocalDpMod:
    """Flower's mod of that name: people clip, and add Gaussian noise to every entry themselves.

    σ = sensitivity·√(2 ln(1.25/δ))/ε, by its formula, whose proof needs ε ≤ 1. Two updates are up
    to 2·clip apart, so that is the sensitivity given to it. ``guarantee`` has the ε that Gaussian
    noise of this σ really has. The mean of n people's noise is drawn at once.
    """

    epsilon: float
    clip: float
    delta: float = DELTA

    @property
    def sigma(self) -> float:
        """Of an entry of one person's update."""
        return 2.0 * self.clip * math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon

    @property
    def spec(self) -> str:
        return json.dumps(["LocalDpMod", asdict(self)])

    def cohort(self, dimension: int, people: int, participations: int) -> Cohort:
        return CentralCohort(dimension, self.clip, self.sigma / math.sqrt(people))

    def guarantee(self, dimension: int, people: int, participations: int) -> Guarantee:
        mu = 2.0 * self.clip / self.sigma * math.sqrt(participations)
        return Guarantee(
            epsilon=gaussian_epsilon(mu, self.delta),
            nominal=self.epsilon,
            delta=self.delta,
            unit="client",
            assumptions=("noise drawn in floating point",),
        )

    def clipped_to(self, clip: float) -> Mechanism:
        return replace(self, clip=clip)


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


def tune(
    dataset: Dataset, folder: Path, trials: int, device: str, until: float, only: str = ""
) -> None:
    """A random search for every population; the test images are not there at all.

    The best tenth on one held-out part is compared on two others; what is best there is kept.
    """
    blind = replace(
        dataset, test_inputs=dataset.test_inputs[:0], test_labels=dataset.test_labels[:0]
    )
    known = {recipe.label for recipe in read_records(folder / RECIPES, Recipe)}
    for number, (label, judge, draw) in enumerate(_searches(blind, device)):
        if label in known or only not in label:
            continue
        source = np.random.default_rng(number)
        found: list[tuple[float, dict[str, Any]]] = []
        while len(found) < trials and (len(found) < 2 or time.time() < until):
            settings = draw(source)
            found.append((judge(settings, 101), settings))
        found.sort(key=lambda one: -one[0])
        finals = [
            (float(np.mean([judge(settings, seed) for seed in (102, 103)])), settings)
            for _, settings in found[: 1 + len(found) // 10]
        ]
        accuracy, settings = max(finals, key=lambda one: one[0])
        with (folder / RECIPES).open("a", encoding="utf-8") as file:
            add_record(file, Recipe(label, accuracy, len(found), settings))
        print(label, f"{accuracy:.4f}", settings, flush=True)


Judge = Callable[[dict[str, Any], int], float]  # settings and seed to held-out accuracy
Draw = Callable[[np.random.Generator], dict[str, Any]]


def _searches(dataset: Dataset, device: str) -> Iterator[tuple[str, Judge, Draw]]:
    """What is looked for: (label, the judge of settings, settings by chance)."""
    if dataset.name != "cifar10":
        for label, kind, people, epsilon in populations():
            noise = partial(_report_noise, epsilon)
            yield label, Simulated(dataset, kind, people, 1, noise, device).accuracy, _reports_drawn
    for name, base, epsilon in cohorts_of(dataset.name, is_search=True):
        given, examples = dict(base), base["examples"]
        if kind := given.get("features"):
            noise = partial(_central_noise, epsilon)
            simulated = Simulated(dataset, kind, given["people"], examples, noise, device)
            yield f"sum, {name}", simulated.accuracy, _features_drawn
        else:
            judge = partial(_trained, dataset, given, epsilon, device)
            yield f"sum, {name}", judge, _cohorts_drawn if "rounds" in given else _many_drawn


def _report_noise(epsilon: float, dimension: int, people: int, participations: int) -> float:
    """σ of an entry of the mean of reports, in units of clip."""
    error = Sphere(epsilon=epsilon, clip=1.0).expected_error(dimension)
    return math.sqrt(error / (dimension * people))


def _central_noise(epsilon: float, dimension: int, people: int, participations: int) -> float:
    return Central(epsilon=epsilon, delta=DELTA, clip=1.0).deviation(people, participations)


class Simulated:
    """A linear model on features as ``Population`` trains it, with Gaussian noise on its means.

    A person's gradient is Σ_j e_j ⊗ a_j/m, of errors e and features a. Its norm follows from the
    products of each, so no gradient of a single person is made: a run takes moments.
    """

    def __init__(
        self,
        dataset: Dataset,
        kind: str,
        people: int,
        examples: int,
        noise: Callable[[int, int, int], float],
        device: str,
    ) -> None:
        self._dataset, self._kind, self._device = dataset, kind, device
        self._people, self._examples, self._noise = people, examples, noise
        self._splits: dict[int, tuple[torch.Tensor, ...]] = {}

    def _split(self, seed: int) -> tuple[torch.Tensor, ...]:
        if seed not in self._splits:
            rows, labels, held, held_labels = (
                part.to(self._device) for part in split_validation(self._dataset, None, seed)
            )
            made = (features(rows, self._kind), labels, features(held, self._kind), held_labels)
            self._splits[seed] = made
        return self._splits[seed]

    def accuracy(self, settings: dict[str, Any], seed: int) -> float:
        """On held-out images, with the settings of ``PeopleConfig`` and the clip."""
        weights, held = self.trained(settings, seed)
        return float(((held @ weights.T).argmax(1) == self._split(seed)[3]).float().mean())

    def trained(self, settings: dict[str, Any], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights, and the held-out images as the model takes them."""
        rows, labels, held, _ = self._split(seed)
        source = torch.Generator(device=self._device).manual_seed(seed)
        normal = partial(torch.randn, generator=source, device=self._device)
        among = partial(torch.randint, len(rows), generator=source, device=self._device)
        participations, rounds = settings.get("participations", 1), settings["rounds"]
        first = round(settings.get("center", 0.0) * self._people)
        center = None
        if first:
            size = rows.shape[1]
            center = rows[among((first,))].mean(0) + self._noise(size, first, 1) * normal(size)
        rows, held = finished(rows, center), finished(held, center)
        count = (self._people * participations - first) // rounds
        clip, classes = settings["clip"], int(labels.max()) + 1
        deviation = clip * self._noise(classes * rows.shape[1], count, participations)
        rule = Descent(
            rounds=rounds,
            lr=settings["server_lr"],
            momentum=settings["server_momentum"],
            decay=settings["decay"],
            average=settings["average"],
        )
        server = Server(rule, torch.zeros(classes, rows.shape[1], device=self._device))
        for number in range(rounds):
            mine = among((min(count, _SIMULATED), self._examples))
            inputs = rows[mine]
            errors = torch.softmax(inputs @ server.asked.T, 2)
            errors = (errors - one_hot(labels[mine], classes)) / self._examples
            products = (inputs @ inputs.mT) * (errors @ errors.mT)
            norms = products.sum((1, 2)).clamp_min(1e-30).sqrt()
            errors *= (clip / norms).clamp_max(1.0)[:, None, None]
            mean = errors.flatten(0, 1).T @ inputs.flatten(0, 1) / len(mine)
            server.step(number, mean.double() + deviation * normal(mean.shape))
        return server.result, held


def _trained(
    dataset: Dataset, base: dict[str, Any], epsilon: float, device: str,
    settings: dict[str, Any], seed: int,
) -> float:  # fmt: skip
    """The held-out accuracy of a population under central noise; 0 where it diverges."""
    given = {**base, **settings}
    made = Central(epsilon=epsilon, delta=DELTA, clip=given.pop("clip"))
    config = PeopleConfig(scheme=made, **given, seed=seed, device=device, data=dataset.name)
    population = Population(config, dataset=dataset)
    try:
        while not population.is_done:
            population.step()
    except ArithmeticError:
        return 0.0
    return population.history[-1].validation_accuracy or 0.0


def _descent_drawn(
    source: np.random.Generator, rounds: Sequence[int], clips: Sequence[float], least: float
) -> dict[str, Any]:
    clip, momentum = float(source.choice(clips)), float(source.choice([0.8, 0.9, 0.95]))
    count = int(source.choice(rounds))
    length = least * math.exp(source.uniform(0.0, math.log(100.0)))  # of the way, in clips
    return {
        "clip": clip,
        "rounds": count,
        "server_momentum": momentum,
        "server_lr": length * (1.0 - momentum) / (clip * count),
        "average": float(source.choice([0.0, 0.15, 0.3])),
        "decay": float(source.choice([0.0, 0.5, 0.9])),
    }


def _reports_drawn(source: np.random.Generator) -> dict[str, Any]:
    drawn = _descent_drawn(source, (16, 32, 64, 128), (0.02, 0.05, 0.1, 0.2), 300.0)
    return {**drawn, "center": float(source.choice([0.0, 0.02, 0.05]))}


def _features_drawn(source: np.random.Generator) -> dict[str, Any]:
    """A quarter of the people take part in every round."""
    drawn = _descent_drawn(source, (40, 60), (0.05, 0.1, 0.2, 0.4), 1000.0)
    return {**drawn, "participations": drawn["rounds"] // 4}


def _many_drawn(source: np.random.Generator) -> dict[str, Any]:
    """Large cohorts, many rounds of one step each."""
    participations = int(source.choice([25, 50, 100]))
    clip, momentum = float(source.choice([0.3, 1.0, 3.0])), float(source.choice([0.8, 0.9, 0.95]))
    length = 0.5 * math.exp(source.uniform(0.0, math.log(20.0)))  # of a step in the end, in clips
    return {
        "clip": clip,
        "local_steps": 1,
        "server_momentum": momentum,
        "server_lr": length * (1.0 - momentum) / clip,
        "average": float(source.choice([0.0, 0.3])),
        "decay": float(source.choice([0.0, 0.7])),
        "rounds": 4 * participations,
        "participations": participations,
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
        sphere_label("hog", 200_000, epsilon): {"server_lr": rate}
        for epsilon, rate in zip(EPSILONS, (44.0, 56.0, 100.0), strict=True)
    },
    **{
        sphere_label("hog", 1_000_000, epsilon): {"rounds": 128, "server_lr": rate, "decay": 0.9}
        for epsilon, rate in zip(EPSILONS, (60.0, 90.0, 125.0), strict=True)
    },
    "sum, CIFAR-10 hog, 10,000 people of 5": {
        "local_steps": 1,
        "clip": 0.1,
        "rounds": 60,
        "participations": 10,
        "server_lr": 200.0,
        "server_momentum": 0.9,
        "decay": 0.9,
    },
    "sum, CIFAR-10 cnn, 10,000 people of 5": {"rounds": 50},
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
    usual = COHORT_DEFAULT if label.startswith("sum") else DEFAULT
    return dict(found[-1].settings if found else {**usual, **DEFAULTS.get(label, {})})


# Runs


def sphere_jobs(folder: Path, draws: int | None) -> Iterator[Job]:
    """Every population, each with the recipe of MNIST, whatever the data are."""
    for label, kind, people, epsilon in populations():
        settings = settings_of(label, folder)
        clip = settings.pop("clip")
        made = Sphere(epsilon=epsilon, clip=clip, draws=draws)
        yield Job(label, PeopleConfig(scheme=made, people=people, features=kind, **settings))
    settings = settings_of(sphere_label("hog", SIZES[0], 8.0), folder)
    clip = settings.pop("clip")
    for epsilon in EPSILONS:
        central = Central(epsilon=epsilon, delta=DELTA, clip=clip)
        name = f"central, hog, {SIZES[0]:,} people, ε = {epsilon:g}"
        config = PeopleConfig(scheme=central, people=SIZES[0], features="hog", **settings)
        yield Job(name, config)
        share = SecureSum(epsilon=epsilon, delta=DELTA, clip=clip, clients=2, threshold=2)
        name = f"sum, hog, {SIZES[0]:,} people, ε = {epsilon:g}"
        yield Job(name, PeopleConfig(scheme=share, people=SIZES[0], features="hog", **settings))
        own = settings_of(sphere_label("hog", SIZES[0], epsilon), folder)
        local = LocalDpMod(epsilon=epsilon, clip=own.pop("clip"))
        name = f"LocalDpMod, hog, {SIZES[0]:,} people, ε = {epsilon:g}"
        yield Job(name, PeopleConfig(scheme=local, people=SIZES[0], features="hog", **own))
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


_ALL_IMAGES = {"examples": 5, "validation": 0}


def cohorts_of(data: str, is_search: bool = False) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Populations for secure sums: (name, people and rounds, the ε of the search)."""
    if data == "cifar10":  # while the recipe is sought, 10,000 images are held out
        base = {"people": 10_000, **({"examples": 4} if is_search else _ALL_IMAGES)}
        yield "CIFAR-10 cnn, 10,000 people of 5", {"model": "cnn", **base}, 8.0
        yield "CIFAR-10 hog, 10,000 people of 5", {"features": "hog", **base}, 8.0
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
        is_first = " 6,000" in name
        for epsilon in (tuned,) if tuned == 8.0 else (4.0, 8.0):
            for width in (*BITS, None) if is_first and epsilon == 4.0 else (None,):
                made = SecureSum(
                    epsilon=epsilon, delta=DELTA, clip=clip, clients=2, threshold=2, bits=width,
                    signal=SIGNAL if width == BITS[0] else 1.0,
                )  # fmt: skip
                end = "" if width is None else f", {width} bits"
                config = PeopleConfig(scheme=made, **base, **settings)
                yield Job(f"sum, {name}, ε = {epsilon:g}{end}", config)
            central = Central(epsilon=epsilon, delta=DELTA, clip=clip)
            config = PeopleConfig(scheme=central, **base, **settings)
            yield Job(f"central, {name}, ε = {epsilon:g}", config)
        yield Job(f"none, {name}", PeopleConfig(scheme=Clipped(clip), **base, **settings))


def run_jobs(
    jobs: Sequence[Job], dataset: Dataset, folder: Path, seeds: Sequence[int], device: str,
    until: float,
) -> None:  # fmt: skip
    """Train what the file lacks, all jobs of a seed before the next seed."""
    path = folder / FILE
    done = {run.key for run in read_records(path, PeopleRun)}
    for seed in seeds:
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
    add("--seeds", type=int, nargs="*", default=list(range(SEEDS)), help="of runs: 0 1 2")
    add("--seconds", type=float, default=math.inf, help="begin nothing after so many")
    add("--trials", type=int, default=60, help="of tune, for each population")
    add("--draws", type=int, help="of sphere: fewer are faster, and cost a little error")
    add("--only", default="", help="runs, or recipes, whose label has this in it")
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
            tune(dataset, given.results, given.trials, given.device, until, given.only)
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
