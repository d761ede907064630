"""Populations of ``paper.people``, and the recipes that they train by.

A random search over settings found the recipes, by accuracy on held-out training images; they are
kept in ``people_recipes.jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper.kept_runs import read_records

RECIPES = "people_recipes.jsonl"
SIZES = (50_000, 200_000, 1_000_000)
EPSILONS = (2.0, 4.0, 8.0)
DELTA = 1e-5


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


# Recipes

# found on two cores by a search of the same kind, cut short
_STEPS = {"server_lr": 25.0, "server_momentum": 0.8}
DEFAULT = {"clip": 0.1, "rounds": 32, "center": 0.03, **_STEPS}
DEFAULTS: dict[str, dict[str, Any]] = {
    sphere_label("hog", 50_000, 2.0): {"center": 0.0},  # too few people for a mean at this ε
    sphere_label("hog", 50_000, 8.0): {"server_lr": 43.75},
    sphere_label("pixels", 50_000, 4.0): {"server_lr": 37.5, "center": 0.08},
    sphere_label("pixels", 50_000, 8.0): {"server_lr": 37.5, "center": 0.08},
    **{
        sphere_label("hog", 200_000, epsilon): {"server_lr": rate}
        for epsilon, rate in zip(EPSILONS, (44.0, 56.0, 100.0), strict=True)
    },
}
_STEPS_OF_COHORTS = {"server_lr": 0.391, "server_momentum": 0.5, "decay": 0.7}
COHORT_DEFAULT = {"clip": 2.5, "local_steps": 5, "lr": 0.05, **_STEPS_OF_COHORTS}


def settings_of(label: str, folder: Path) -> dict[str, Any]:
    """The recipe that was found for a population, or the default where none was looked for."""
    found = [recipe for recipe in read_records(folder / RECIPES, Recipe) if recipe.label == label]
    usual = COHORT_DEFAULT if label.startswith("sum") else DEFAULT
    return dict(found[-1].settings if found else {**usual, **DEFAULTS.get(label, {})})
