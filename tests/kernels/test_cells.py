"""Nearest points, dither and letters of a block are those of ``lattice`` and ``codebook``."""

import numpy as np
import pytest

from jopeq.lattice.codebook import LatticeCodebook
from jopeq.lattice.lattices import Lattice

pytest.importorskip("numba")

from jopeq.kernels.cpu import lattice as cells

NAMES = ["A2", "D4", "E8"]


def rows_of(name, count=400):
    """Random points, lattice points, and points as far from several of them."""
    lattice, rng = Lattice(name), np.random.default_rng(1)
    size = lattice.dimension
    steps = rng.integers(-4, 5, (count, size))
    points = lattice.points(steps)
    return np.concatenate((
        rng.normal(0, 2, (count, size)), points, 0.5 * points, 0.25 * points, points + 0.5,
        rng.integers(-6, 7, (count, size)) * 0.5, np.zeros((1, size)), -0.0 * np.ones((1, size)),
        rng.normal(0, 1e6, (count, size)), rng.normal(0, 1e13, (9, size)),
    ))  # fmt: skip


def table(name, step, letters=7):
    return cells.LetterTable(LatticeCodebook(Lattice(name, step=step), letters))


def coordinates(name, step, rows):
    size, count = rows.shape[1], len(rows)
    buffers, x = np.empty((4, size, count)), np.ascontiguousarray(rows.T)
    inverse = table(name, step)._inverse
    fine = cells.coordinates(x, step, inverse, *buffers, np.empty((5, count)))
    return buffers[0].T if fine else None


@pytest.mark.parametrize("step", [1.0, 0.3, 1 / 3])
@pytest.mark.parametrize("name", NAMES)
def test_coordinates(name, step):
    rows = rows_of(name) * step
    expected = Lattice(name, step=step).nearest(rows)
    assert (coordinates(name, step, rows) == expected).all()
    for width in (1, 2, 3, 8, 31):
        assert (coordinates(name, step, rows[:width]) == expected[:width]).all()


@pytest.mark.parametrize("name", NAMES)
def test_points_too_far_to_be_exact_are_refused(name):
    rows = np.zeros((5, Lattice(name).dimension))
    assert coordinates(name, 1.0, rows) is not None
    for bad in (2.0**51, -(2.0**52), 1e300, np.inf, np.nan):
        rows[3, -1] = bad
        assert coordinates(name, 1.0, rows) is None


@pytest.mark.parametrize("letters", [2, 7, 64, 255, 256, 257, 4000])
@pytest.mark.parametrize("name", NAMES)
def test_every_letter_is_found_and_nothing_else(name, letters):
    book = LatticeCodebook(Lattice(name), letters)
    ready = cells.LetterTable(book)
    rng = np.random.default_rng(2)
    size = book.lattice.dimension
    steps = np.concatenate((
        book.coordinates, book.coordinates + 1, -book.coordinates,
        rng.integers(-9, 9, (500, size)), rng.integers(-(2**40), 2**40, (50, size)),
    ))  # fmt: skip
    listed = {tuple(row): letter for letter, row in enumerate(book.coordinates.tolist())}
    found = np.empty(len(steps), np.int64)
    rows = np.ascontiguousarray(steps.T, dtype=np.float64)
    cells.find_letters(rows, *ready._box, *ready._letters, found, np.empty((3, len(steps))))
    assert found.tolist() == [listed.get(tuple(row), -1) for row in steps.tolist()]
    assert (found[:letters] == np.arange(letters)).all()
