"""The noise of (14) and (15) does not exist: the quotient is no characteristic function."""

import math

import numpy as np
import pytest

from jopeq.lattice.lattices import NAMES, Lattice
from jopeq.noise import Laplace, MultivariateT


@pytest.mark.parametrize("name", NAMES)
def test_the_uniform_law_of_a_cell_vanishes_on_the_dual_lattice(name):
    """And Laplace and t do not: so (14)/(15) has poles, and is no characteristic function.

    The cells tile, so ∫ over a cell of e^{2πi w·x} is that over a parallelepiped: 0.
    """
    lattice = Lattice(name)
    size = lattice.dimension
    mixed = np.random.default_rng(8).integers(-1, 2, (20, size))
    whole = np.concatenate((np.eye(size, dtype=int), mixed[mixed.any(axis=1)]))
    frequencies = 2 * math.pi * whole @ np.linalg.inv(lattice.basis).T  # of the dual lattice
    levels = {1: 4096, 2: 256, 4: 16, 8: 4}[size]
    axis = np.arange(levels) * (65536 // levels)
    grid = np.stack(np.meshgrid(*[axis] * size), axis=-1).reshape(-1, size).astype(np.uint16)
    phases = lattice.dither(grid) @ frequencies.T
    assert np.abs(np.exp(1j * phases).mean(axis=0)).max() < 1e-9
    assert np.abs(np.exp(0.5j * phases).mean(axis=0)).max() > 0.1  # halfway nothing vanishes
    for law in (Laplace(0.02, size), MultivariateT(12.0, 0.02**2, size)):
        assert law.characteristic(frequencies[:10]).min() > 0.1
