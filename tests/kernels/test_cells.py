"""Compiled searches find the first of equally near letters, as ``codebook`` does."""

import numpy as np
import pytest

from jopeq.lattice.codebook import LatticeCodebook
from jopeq.lattice.lattices import Lattice

pytest.importorskip("numba")

from jopeq.kernels.cpu import lattice as cells

NAMES = ["A2", "D4", "E8"]


@pytest.mark.parametrize("letters", [2, 4, 7, 16, 64])
@pytest.mark.parametrize("name", NAMES)
def test_the_first_of_equally_near_letters(name, letters):
    book = LatticeCodebook(Lattice(name), letters)
    points = book.codewords
    rows = np.concatenate((
        np.zeros((1, book.lattice.dimension)), 8.0 * points, 0.5 * (points + points[::-1]), -points,
        np.random.default_rng(0).integers(-9, 10, (200, book.lattice.dimension)) * 0.5,
    ))  # fmt: skip
    distances = np.square(rows[:, None, :] - points).sum(axis=2)
    x, words = np.ascontiguousarray(rows.T), np.ascontiguousarray(points).reshape(-1)
    found = [cells.nearest_letter(x, b, words) for b in range(len(rows))]
    assert found == book.nearest_letter(rows).tolist()
    ties = (np.isclose(distances, distances.min(axis=1)[:, None]).sum(axis=1) > 1).sum()
    assert ties > 0
