"""Lagrange reduction ends and reduces; cell, covering radius and moments against integration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq.lattice.lattices import Planar


def turned(angle, matrix):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return turn @ np.asarray(matrix, dtype=float)


def assert_reduced(planar):
    b1, b2 = planar.basis
    shortest = b1 @ b1
    assert shortest <= b2 @ b2 * (1 + 1e-12)
    assert -1e-12 * shortest <= b1 @ b2 <= shortest / 2 * (1 + 1e-9)


RHOMBUS = [
    [-0.009926420478752002, 0.015327057909484604],
    [-0.2347220796272143, -0.1987349720032462],
]


def test_a_rhombus_that_rounding_once_kept_in_a_loop():
    """b1·b2 = ±|b1|²/2 up to rounding: adding and subtracting b1 looked like progress for ever."""
    assert_reduced(Planar.reduced(np.array(RHOMBUS)))


@settings(max_examples=400, deadline=2000)
@given(
    angle=st.floats(0, 2 * math.pi),
    up=st.sampled_from([math.sqrt(3) / 2, 0.9, 1.0, 2.3]),
    across=st.sampled_from([0.5, -0.5, 0.0, 1.5]),
    size=st.floats(1e-6, 1e6),
    mix=st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
)
def test_reduction_ends_on_ties_turned_by_any_angle(angle, up, across, size, mix):
    change = np.array([[1, mix[0]], [0, 1]]) @ np.array([[1, 0], [mix[1], 1]])
    generator = size * turned(angle, [[1.0, across], [0.0, up]]) @ change
    planar = Planar.reduced(generator)
    assert_reduced(planar)
    assert planar.area == pytest.approx(size * size * up, rel=1e-9)


@settings(max_examples=200, deadline=2000)
@given(
    entries=st.lists(st.floats(-100, 100).filter(lambda v: abs(v) > 1e-3), min_size=4, max_size=4)
)
def test_reduced_basis_spans_the_same_lattice(entries):
    generator = np.array(entries).reshape(2, 2)
    determinant = abs(np.linalg.det(generator))
    if determinant < 1e-4 * np.abs(generator).max() ** 2:
        return
    planar = Planar.reduced(generator)
    assert_reduced(planar)
    change = np.linalg.solve(generator, planar.basis.T)
    assert np.abs(change - np.rint(change)).max() < 1e-6
    assert abs(round(np.linalg.det(np.rint(change)))) == 1
    assert planar.area == pytest.approx(determinant, rel=1e-9)


GENERATORS = {
    "square": [[1.0, 0.0], [0.0, 1.0]],
    "rectangle": [[0.5, 0.0], [0.0, 3.0]],
    "hexagon": [[1.0, 0.5], [0.0, math.sqrt(3) / 2]],
    "turned hexagon": turned(0.3, [[1.0, 0.5], [0.0, math.sqrt(3) / 2]]).tolist(),
    "rhombus": RHOMBUS,
    "skewed": [[1.0, 0.7], [0.0, 1.0]],
    "long": [[1.0, 12.3], [0.0, 0.9]],
}


@pytest.fixture(params=GENERATORS.values(), ids=GENERATORS.keys())
def planar(request):
    return Planar.reduced(np.array(request.param))


def grid_of_the_cell(planar, count=400):
    """A midpoint grid of the parallelogram, folded into the Voronoi cell by brute force."""
    axis = (np.arange(count) + 0.5) / count
    unit = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    points = unit @ planar.basis
    shifts = np.array(list(itertools.product((-1, 0, 1, 2), repeat=2))) @ planar.basis
    moved = points[:, None, :] - shifts
    return moved[np.arange(len(moved)), (moved**2).sum(axis=2).argmin(axis=1)]


def test_covariance_is_that_of_the_cell(planar):
    """A midpoint rule of 400 × 400 may put a whole grid line on the wrong side of a face."""
    cell = grid_of_the_cell(planar)
    moments = cell.T @ cell / len(cell)
    assert np.abs(planar.covariance - moments).max() < 1e-3 * np.trace(moments)


def test_covering_radius_is_the_farthest_point_of_the_cell(planar):
    longest = np.linalg.norm(grid_of_the_cell(planar), axis=1).max()
    assert 0.99 * planar.covering_radius <= longest <= planar.covering_radius * (1 + 1e-12)
