"""The noise of (14) and (15) does not exist: the quotient is no characteristic function."""

import math

import numpy as np
import pytest

from jopeq.lattice.lattices import NAMES, Lattice
from jopeq.noise import Laplace, MultivariateT


def dual_points(lattice):
    """2π times some non-zero points w of the dual lattice (w·λ integer for all λ)."""
    dual = np.linalg.inv(lattice.basis).T  # rows
    size = lattice.dimension
    rng = np.random.default_rng(8)
    mixed = rng.integers(-1, 2, (20, size))
    whole = np.concatenate((np.eye(size, dtype=int), mixed))
    chosen = whole[np.abs(whole).any(axis=1)][:10]
    assert np.allclose(chosen @ dual @ lattice.basis.T, chosen, atol=1e-12)
    return 2 * math.pi * chosen @ dual


@pytest.mark.parametrize("name", NAMES)
def test_the_uniform_law_of_a_cell_vanishes_on_the_dual_lattice(name, dither_words):
    """And Laplace and t do not: so (14)/(15) has poles, and is no characteristic function.

    The cells tile, so ∫ over a cell of e^{2πi w·x} is that over a parallelepiped: 0. By a grid of
    dithers to rounding error, and by random dithers within 5 standard errors of √(1/2n).
    """
    lattice = Lattice(name)
    size = lattice.dimension
    frequencies = dual_points(lattice)
    levels = {1: 4096, 2: 256, 4: 16, 8: 4}[size]
    axis = np.arange(levels) * (65536 // levels)
    grid = np.stack(np.meshgrid(*[axis] * size), axis=-1).reshape(-1, size).astype(np.uint16)
    by_grid = np.exp(1j * lattice.dither(grid) @ frequencies.T).mean(axis=0)
    assert np.abs(by_grid).max() < 1e-9
    count = 100_000
    random = lattice.dither(dither_words("poles", count, size))
    by_chance = np.cos(random @ frequencies.T).mean(axis=0)
    assert np.abs(by_chance).max() < 5 / math.sqrt(2 * count)
    # halfway to the dual point nothing vanishes: the verdict can fail
    halfway = np.cos(random @ frequencies.T / 2).mean(axis=0)
    assert np.abs(halfway).max() > 0.1

    for law in (Laplace(0.02, size), MultivariateT(12.0, 0.02**2, size)):
        target = law.characteristic(frequencies)
        assert target.min() > 0.1
        # a characteristic function never exceeds 1
        assert (target / np.maximum(np.abs(by_chance), 0.012)).min() > 8
