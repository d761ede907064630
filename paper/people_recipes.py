"""Populations of ``paper.people``, and the search for the recipes that they train by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import one_hot

from jopeq.lab.training.cohorts import Central
from jopeq.lab.training.config import PeopleConfig
from jopeq.lab.training.data import Dataset, split_validation
from jopeq.lab.training.descent import Descent, Server
from jopeq.lab.training.features import features, finished
from jopeq.lab.training.runs import add_record, read_records
from jopeq.lab.training.simulation import Simulation
from jopeq.sphere.sphere import Sphere

RECIPES = "people_recipes.jsonl"
SIZES = (50_000, 200_000, 1_000_000)
EPSILONS = (2.0, 4.0, 8.0)
DELTA = 1e-5
_SIMULATED = 20_000  # people of a simulated round, at most


@dataclass(frozen=True)
class Recipe:
    """The best settings found for one population, by accuracy on held-out training images."""

    label: str
    validation_accuracy: float
    trials: int
    settings: dict[str, float]


# Populations


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


# The search


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
    population = Simulation(config, dataset=dataset)
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
