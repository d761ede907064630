"""How far quantized points move: against brute-force projection, and against real quantizers."""

import numpy as np
import pytest
from scipy import optimize

from jopeq.lattice.codebook import points_within
from jopeq.lattice.lattices import Lattice
from jopeq.lattice.moves import _MARGIN, _distance_to_cell, _facets, _representatives, moves

LATTICES = ["A2", "D4", "E8"]
PAIRS = 40_000  # a magnification; five of them a lattice


def project(lattice, point):
    """Nearest point of the Voronoi cell, by quadratic programming over the facets in sight."""
    facets = _facets(lattice.name)
    facets = facets[facets @ point > 0]
    bounds = 0.5 * np.square(facets).sum(axis=1)
    seen = np.argsort(bounds - facets @ point)[:60]
    while True:
        found = optimize.minimize(
            lambda y: np.square(y - point).sum(),
            np.zeros(len(point)),
            jac=lambda y: 2 * (y - point),
            method="SLSQP",
            constraints={
                "type": "ineq",
                "fun": lambda y, seen=seen: bounds[seen] - facets[seen] @ y,
                "jac": lambda y, seen=seen: -facets[seen],
            },
            options={"ftol": 1e-15, "maxiter": 500},
        )
        violated = np.flatnonzero(facets @ found.x - bounds > 1e-7)
        if not len(violated):
            return found.x
        seen = np.union1d(seen, violated)


def in_ball(generator, rows, size):
    """A mixture of points on the sphere and inside."""
    points = generator.normal(size=(rows, size))
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points * np.maximum(generator.random((rows, 1)), generator.random((rows, 1)) < 0.5)


def longest(name, reach):
    """The lattice vectors of that length, at most 300 of them."""
    lattice = Lattice(name)
    points = lattice.points(points_within(lattice, np.zeros(lattice.dimension), reach + 1e-6))
    norms = np.linalg.norm(points, axis=1)
    return points[np.abs(norms - reach) < 1e-6][:300]


def sampled(name):
    """Five magnifications of the table, from coarse to fine."""
    count = min(len(moves(name)), 10 if name == "E8" else 40)
    return sorted({0, 1, 2, count // 3, count - 1})


def test_on_the_integers_a_step_of_2_over_m_moves_by_m():
    table = moves("Z")
    assert len(table) >= 32
    for m, move in enumerate(table, start=1):
        assert move.step == pytest.approx(2 / m, rel=2 * _MARGIN)
        assert move.reach == m
        assert move.step * move.reach == pytest.approx(2.0, rel=2 * _MARGIN)


@pytest.mark.parametrize("name", LATTICES)
def test_the_facets_bound_the_cell(name, dither_words):
    lattice, facets = Lattice(name), _facets(name)
    assert len(facets) == {"A2": 6, "D4": 24, "E8": 2400}[name]
    half = 0.5 * np.square(facets).sum(axis=1)
    inside = lattice.dither(dither_words("facets", 4000, lattice.dimension))
    assert (inside @ facets.T <= half + 1e-12).all()
    gaps = (half - inside @ facets.T).min(axis=1)
    beyond = inside[gaps < 0.05] * 1.25  # pushed out through a face
    is_out = (beyond @ facets.T > half).any(axis=1)
    assert is_out.any()
    np.testing.assert_array_equal(lattice.nearest(beyond).any(axis=1), is_out)


@pytest.mark.parametrize("name", LATTICES)
def test_distance_to_the_cell_against_brute_force(name, dither_words):
    lattice = Lattice(name)
    size = lattice.dimension
    generator = np.random.default_rng(11)
    cell = lattice.dither(dither_words("cell", 20_000, size))
    points = [*(longest(name, moves(name)[i].reach)[0] / 2 for i in sampled(name))]
    points += list(generator.normal(size=(6, size)) * 2)
    for point in points:
        distance = _distance_to_cell(lattice, point)
        nearest = project(lattice, point)
        assert np.linalg.norm(nearest - point) == pytest.approx(distance, abs=1e-6)
        assert np.linalg.norm(cell - point, axis=1).min() >= distance - 1e-12
    assert _distance_to_cell(lattice, np.zeros(size)) == 0.0
    assert _distance_to_cell(lattice, cell[0]) == 0.0


@pytest.mark.parametrize("name", LATTICES)
def test_no_pair_of_inputs_moves_the_point_farther(name, dither_words):
    """Random pairs, opposite pairs, and pairs along lattice vectors with dithers near faces."""
    generator = np.random.default_rng(5)
    size = Lattice(name).dimension
    table = moves(name)
    for i in sampled(name):
        move = table[i]
        cells = Lattice(name, step=move.step)
        dither = cells.dither(dither_words(f"moves {i}", PAIRS, size))
        x, y = in_ball(generator, PAIRS, size), in_ball(generator, PAIRS, size)
        y[::2] = -x[::2]  # as far apart as can be
        vectors = longest(name, move.reach)
        chosen = vectors[generator.integers(len(vectors), size=PAIRS // 2)]
        along = chosen / move.reach + 0.2 * generator.normal(size=(PAIRS // 2, size))
        along /= np.linalg.norm(along, axis=1)[:, None]
        x[: PAIRS // 2], y[: PAIRS // 2] = along, -along
        middle = chosen * (move.step / 2)  # half a lattice vector: on a face, or a vertex
        near = middle + generator.normal(size=middle.shape) * 1e-4 * move.step
        dither[: PAIRS // 2] = near - cells.points(cells.nearest(near))
        moved = cells.points(cells.nearest(x + dither) - cells.nearest(y + dither))
        largest = np.linalg.norm(moved, axis=1).max()
        assert largest <= move.step * move.reach * (1 + 1e-12)


@pytest.mark.parametrize("name", LATTICES)
def test_the_longest_vector_is_in_reach_and_every_longer_one_is_not(name):
    """And the step is the smallest such: one more part in 10⁷, and one comes into reach."""
    lattice, table = Lattice(name), moves(name)
    vectors = np.array(list(_representatives(lattice, {"A2": 12.0, "D4": 8.0, "E8": 5.0}[name])))
    norms = np.linalg.norm(vectors, axis=1)
    gaps = np.array([_distance_to_cell(lattice, vector / 2) for vector in vectors])
    for move in table[: 40 if name == "A2" else 12]:
        assert gaps[np.abs(norms - move.reach) < 1e-9].min() <= 1 / move.step
        assert gaps[norms > move.reach + 1e-9].min() > 1 / move.step
        # all vectors of the table that are no longer in reach, also those that are not longer
        assert gaps[gaps * move.step > 1].min() * move.step < 1 + 1e-7
