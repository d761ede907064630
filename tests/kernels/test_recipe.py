"""Which schemes fit the kernels' line of steps, and what their recipes say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import jopeq
from jopeq.kernels.recipe import (
    MAX_LETTERS,
    MAX_SIZE,
    Cells,
    CellStairs,
    Chances,
    Grid,
    Line,
    Stairs,
)

FUSED = [
    ("sdq", {"rate": 2.0}, Line, "Z"),
    ("sdq", {"rate": 16.0}, Line, "Z"),
    ("dq", {"rate": 2.0}, Line, "Z"),
    ("sdq", {"rate": 2.0, "lattice": "A2"}, Cells, "A2"),
    ("dq", {"rate": 1.5, "lattice": "D4"}, Cells, "D4"),
    ("sdq", {"rate": 1.0, "lattice": "E8"}, Cells, "E8"),
    ("laplace", {"epsilon": 4.0}, Grid, "Z"),
    ("t", {"epsilon": 4.0, "size": 1}, Grid, "Z"),
    ("t", {"epsilon": 4.0, "size": 64}, Grid, "Z"),
    ("laplace+sdq", {"epsilon": 4.0, "rate": 2.0}, Line, "Z"),
    ("t+sdq", {"epsilon": 4.0, "rate": 2.0, "lattice": "A2"}, Cells, "A2"),
    ("jopeq", {"epsilon": 4.0, "rate": 1.0}, Line, "Z"),
    ("staircase", {"epsilon": 4.0, "rate": 2.0}, Stairs, "Z"),
    ("staircase", {"epsilon": 4.0, "rate": 1.5, "lattice": "A2"}, CellStairs, "A2"),
    ("response", {"epsilon": 4.0, "rate": 2.0}, Chances, "Z"),
]
PLAIN = [
    ("none", {}),
    ("sdq", {"rate": 17.0}),
    ("sdq", {"rate": 2.0, "coding": "entropy"}),
    ("sdq", {"rate": 2.0, "lattice": ((1.0, 0.3), (0.0, 1.2))}),
    ("sdq", {"rate": 2.0, "rotate": True}),
    ("t", {"epsilon": 4.0, "size": 3}),
    ("t", {"epsilon": 4.0, "size": 66}),
    ("l2", {"epsilon": 4.0}),
    ("gaussian", {"epsilon": 4.0, "delta": 1e-4}),
    ("l2+sdq", {"epsilon": 4.0, "rate": 2.0}),
    ("gaussian+sdq", {"epsilon": 4.0, "rate": 2.0}),
    ("staircase", {"epsilon": 4.0}),
    ("response", {"epsilon": 64.0, "rate": 2.0, "clip": 1.0, "unit": "update"}),
]


@pytest.mark.parametrize(("name", "parameters", "kind", "lattice"), FUSED)
def test_fused(name, parameters, kind, lattice, compiled):
    scheme = jopeq.scheme(name, **parameters)
    recipe = scheme.kernel_recipe(1)
    assert type(recipe.step) is kind
    assert recipe.lattice == lattice
    assert recipe.dimension == scheme.dimension
    assert recipe.dimension <= MAX_SIZE
    assert getattr(recipe.step, "letters", 2) <= MAX_LETTERS
    assert scheme.kernel_recipe(0) is None


@pytest.mark.parametrize(("name", "parameters"), PLAIN)
def test_left_to_the_plain_path(name, parameters, compiled):
    scheme = jopeq.scheme(name, **parameters)
    assert scheme.kernel_recipe(1) is None
    update = np.linspace(-1, 1, 66)
    assert scheme.decode(scheme.encode(update)).shape == (66,)


def test_a_noise_that_is_not_round_is_left_to_the_plain_path(compiled):
    # the hexagonal dither of a stretched lattice is not round, so neither is the matched noise
    scheme = jopeq.scheme("jopeq", epsilon=1.0, rate=2.0, lattice=((1.0, 0.3), (0.0, 1.2)))
    assert scheme.kernel_recipe(1) is None


def test_the_recipe_says_what_the_scheme_says():
    scheme = jopeq.scheme("t+sdq", epsilon=3.0, rate=math.log2(5), nu=6.0, squared_scale=2.0)
    recipe = scheme.recipe
    assert recipe.is_clipped
    assert (recipe.noise.law, recipe.noise.nu, recipe.noise.scale) == ("t", 6.0, math.sqrt(2.0))
    assert recipe.noise.limit == scheme.noise.reach - 1.0
    assert recipe.step.letters == 5
    assert recipe.step.is_subtractive
    assert not jopeq.scheme("sdq", rate=2.0).recipe.is_clipped
    assert not jopeq.scheme("dq", rate=2.0).recipe.step.is_subtractive


def test_noise_too_narrow_is_not_cut():
    assert jopeq.scheme("laplace", epsilon=60.0).recipe.noise.limit == math.inf
    assert jopeq.scheme("laplace", epsilon=40.0).recipe.noise.limit < 2.0
