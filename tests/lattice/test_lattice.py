"""Nearest points against brute force, reduced bases, cells, moments, exact dithers.

The brute force here knows nothing of the library: it has its own basis of every lattice, and of E8
the 240 + 2160 shortest vectors, among which are all that bound the Voronoi cell (Conway and Sloane,
chapter 21).
"""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jopeq.lattice.lattices import NAMES, Lattice
from jopeq.lattice.reduced import Reduced

ROOT3 = math.sqrt(3.0)
BASES = {  # rows; not the library's own
    "Z": np.array([[1.0]]),
    "A2": np.array([[1.0, 0.0], [-0.5, ROOT3 / 2]]),
    "D4": np.array([[1.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 1, -1]]),
}


def turned(angle, matrix):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return turn @ np.asarray(matrix, dtype=float)


HEXAGON = [[1.0, 0.5], [0.0, ROOT3 / 2]]
RHOMBUS = (  # b1·b2 = ±|b1|²/2 up to rounding, which once kept reduction in a loop
    (-0.009926420478752002, 0.015327057909484604),
    (-0.2347220796272143, -0.1987349720032462),
)
GENERATORS = {  # columns, as the paper's G
    "square": ((1.0, 0.0), (0.0, 1.0)),
    "skewed": ((1.0, 0.7), (0.0, 1.0)),
    "obtuse": ((1.0, -0.45), (0.0, 1.0)),
    "to reduce": ((1.0, 12.3), (0.0, 0.9)),
    "integers": ((2.0, -7.0), (1.0, 3.0)),
    "elongated": ((1.0, 0.3), (0.0, 50.0)),
    "hexagon": tuple(map(tuple, turned(0.7123, HEXAGON).tolist())),
    "rhombus": RHOMBUS,
    "tiny": ((3e-9, 1e-9), (0.0, 2e-9)),
    "huge": ((4e9, 1e9), (0.0, 3e9)),
    "body-centred": ((-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0)),
    "face-centred": ((1.0, 1.0, 0.0), (1.0, 0.0, 1.0), (0.0, 1.0, 1.0)),
    "five": tuple(map(tuple, np.random.default_rng(5).normal(size=(5, 5)).tolist())),
}
STEPS = (1.0, 0.37, 1e-9, 1e9)
BUILT_IN = [Lattice(name, step=step) for name in NAMES for step in STEPS]
CUSTOM = [Lattice(generator=g) for g in GENERATORS.values()]
CUSTOM.append(Lattice(generator=GENERATORS["to reduce"], step=1e-6))
ALL = BUILT_IN + CUSTOM


def label(lattice):
    names = {g: name for name, g in GENERATORS.items()}
    return f"{names.get(lattice.generator, lattice.name)}×{lattice.step:g}"


def own_basis(lattice):
    if lattice.generator is not None:
        return np.array(lattice.generator).T * lattice.step
    return BASES[lattice.name] * lattice.step


def is_member(lattice, points):
    if lattice.name == "E8":
        unit = points / lattice.step
        whole = np.abs(unit - np.rint(unit)).max(axis=1)
        half = np.abs(unit - 0.5 - np.rint(unit - 0.5)).max(axis=1)
        is_even = np.abs(np.mod(unit.sum(axis=1) + 0.5, 2.0) - 0.5)
        return (np.minimum(whole, half) < 1e-9) & (is_even < 1e-6)
    coordinates = points @ np.linalg.inv(own_basis(lattice))
    return np.abs(coordinates - np.rint(coordinates)).max(axis=1) < 1e-6


def _e8_vectors():
    """All points of squared length 2 and 4."""
    whole = np.indices((5,) * 8).reshape(8, -1).T - 2.0
    points = np.concatenate((whole, whole - 0.5))
    squares = (points**2).sum(axis=1)
    return points[(squares > 0) & (squares <= 4) & (points.sum(axis=1) % 2 == 0)]


E8_VECTORS = _e8_vectors()


def vectors(lattice):
    """Among them are all that bound the Voronoi cell."""
    if lattice.name == "E8":
        return E8_VECTORS * lattice.step
    reach = 15 if lattice.dimension <= 2 else 2  # a generator of the plane may be far from reduced
    axis = np.arange(-reach, reach + 1.0)
    every = np.array(list(itertools.product(axis, repeat=lattice.dimension)))
    # in more dimensions the library's basis, which the reduction below checks
    basis = own_basis(lattice) if lattice.dimension in (1, 2, 4) else lattice.basis
    return every[every.any(axis=1)] @ basis


def probes(lattice, far=0.0):
    """Random points, and points at, near and beyond the faces and vertices of cells."""
    rng = np.random.default_rng(1)
    size, basis, n = lattice.dimension, lattice.basis / lattice.step, 60
    few = np.array(list(itertools.product((-1, 0, 1), repeat=min(size, 5))))
    short = E8_VECTORS if lattice.name == "E8" else few @ basis
    vertices = short[rng.integers(len(short), size=n)] / 2.0
    lengths = np.linalg.norm(basis, axis=1)
    rows = [rng.uniform(-20, 20, (n, size)) * lengths.max()]
    rows += [rng.normal(size=(n, size)) * lengths.min()]
    for nudge in (0.0, 1e-12, -1e-12, 1e-7, -1e-7):
        rows += [vertices * (1 + nudge), vertices + nudge * rng.normal(size=vertices.shape)]
    rows += [hole + 1e-12 * rng.normal(size=(20, size)) for hole in deep_holes(lattice)]
    x = np.concatenate(rows)
    centres = np.rint((5.0 + far) * rng.uniform(-1, 1, x.shape))
    return (x + centres @ basis) * lattice.step


def deep_holes(lattice):
    """Points as far from the lattice as any, at step 1."""
    if lattice.name == "Z":
        return [np.array([0.5]), np.array([-0.5])]
    if lattice.name == "D4":
        return [np.eye(4)[i] for i in range(4)] + [np.full(4, 0.5), np.array([-0.5, 0.5, 0.5, 0.5])]
    if lattice.name == "E8":
        return [np.eye(8)[i] for i in range(8)]
    if lattice.dimension > 2:  # the corners of the cell
        corners = lattice.geometry.nearest.__self__.vertices
        lengths = np.linalg.norm(corners, axis=1)
        return list(corners[lengths >= lengths.max() * (1 - 1e-9)][:6])
    b1, b2 = lattice.basis / lattice.step
    centre = np.linalg.solve(np.stack((b1, b2)), [b1 @ b1 / 2, b2 @ b2 / 2])
    return [centre, -centre]


def slack(x, lattice):
    """What rounding of x itself can do to a distance."""
    return 1e-15 * np.abs(x).sum(axis=1) * 8 + 1e-13 * lattice.covering_radius


@pytest.mark.parametrize("far", [0.0, 1e6, 1e12])
@pytest.mark.parametrize("lattice", ALL, ids=label)
def test_no_lattice_point_is_nearer_than_the_nearest(lattice, far):
    """x − p has 2(x − p)·v ≤ |v|² for all v that bound the cell."""
    x = probes(lattice, far=far)
    points = lattice.points(lattice.nearest(x))
    tolerance = slack(x, lattice)
    is_exact = lattice.step == 1.0 and lattice.name in ("Z", "D4", "E8")  # even at 1e12
    if is_exact:
        tolerance = np.full(len(x), 1e-15)
    if is_exact or not far:
        assert is_member(lattice, points).all()
    around = vectors(lattice)
    lengths = np.linalg.norm(around, axis=1)
    beyond = 2.0 * (x - points) @ around.T / lengths - lengths
    assert (beyond.max(axis=1) <= 2 * tolerance).all()


@settings(max_examples=60)
@given(
    angle=st.floats(0, 2 * math.pi),
    across=st.floats(-40, 40),
    up=st.floats(0.02, 30),
    size=st.sampled_from([1e-7, 1.0, 1e7]),
    seed=st.integers(0, 1000),
)
def test_any_generator_finds_its_nearest_points(angle, across, up, size, seed):
    matrix = size * turned(angle, [[1.0, across], [0.0, up]])
    lattice = Lattice(generator=tuple(map(tuple, matrix)))
    x = np.random.default_rng(seed).uniform(-3, 3, (40, 2)) * np.abs(matrix).max()
    distance = np.linalg.norm(x - lattice.points(lattice.nearest(x)), axis=1)
    # rows of lattice points, each row tried near x: exact for every basis
    b1, b2 = matrix.T
    heights = np.arange(-150, 151.0)
    normal = b2 - (b2 @ b1) / (b1 @ b1) * b1
    first = np.rint(x @ normal / (normal @ normal))[:, None] + heights
    rest = x[:, None, :] - first[..., None] * b2
    second = np.rint(rest @ b1 / (b1 @ b1))
    best = np.linalg.norm(rest - second[..., None] * b1, axis=2).min(axis=1)
    # a thousand rows of a flat lattice lie in reach of x, and their rounding adds up
    assert np.abs(distance - best).max() <= 1e-9 * np.abs(matrix).max()


# Reduction ends, and its basis spans the same lattice

TIES = st.builds(
    lambda angle, up, across, size, a, b: (
        size * turned(angle, [[1.0, across], [0.0, up]]) @ [[1, a], [0, 1]] @ [[1, 0], [b, 1]]
    ),
    angle=st.floats(0, 2 * math.pi),
    up=st.sampled_from([ROOT3 / 2, 0.9, 1.0, 2.3]),
    across=st.sampled_from([0.5, -0.5, 0.0, 1.5]),
    size=st.floats(1e-6, 1e6),
    a=st.integers(-4, 4),
    b=st.integers(-4, 4),
)
ENTRIES = st.floats(-100, 100).filter(lambda entry: abs(entry) > 1e-3)
MATRICES = st.lists(ENTRIES, min_size=4, max_size=4).map(lambda four: np.reshape(four, (2, 2)))


@settings(max_examples=600)
@example(generator=np.array(RHOMBUS))
@given(generator=TIES | MATRICES)
def test_any_generator_is_reduced(generator):
    determinant = abs(np.linalg.det(generator))
    if determinant < 1e-4 * np.abs(generator).max() ** 2:
        return
    reduced = Reduced.of(generator)
    b1, b2 = reduced.basis
    shortest = b1 @ b1
    assert shortest <= b2 @ b2 * (1 + 1e-12)
    assert -1e-12 * shortest <= b1 @ b2 <= shortest / 2 * (1 + 1e-9)
    assert_same_lattice(generator, reduced.basis)


def assert_same_lattice(generator, basis):
    change = np.linalg.solve(generator, basis.T)
    assert np.abs(change - np.rint(change)).max() < 1e-6
    assert abs(round(np.linalg.det(np.rint(change)))) == 1


@pytest.mark.parametrize("size", range(3, 9))
def test_generators_of_more_dimensions(size, dither_words):
    """Reduced, with a nearest point that no sum of up to three of the basis vectors improves.

    The second moment of 20,000 dithers is that of the cell to five standard errors.
    """
    rng = np.random.default_rng(size)
    mixed = rng.integers(-2, 3, (size, size)) * np.triu(np.ones((size, size)), 1) + np.eye(size)
    generator = rng.normal(size=(size, size)) @ mixed
    lattice = Lattice(generator=tuple(map(tuple, generator.tolist())))
    assert_same_lattice(generator, lattice.basis)
    x = 5.0 * rng.normal(size=(200, size))
    rest = x - lattice.points(lattice.nearest(x))
    around = np.array(list(itertools.product((-1, 0, 1), repeat=size))) @ lattice.basis
    around = around[np.square(around).sum(axis=1) > 0]
    beyond = 2.0 * rest @ around.T - np.square(around).sum(axis=1)
    assert beyond.max() < 1e-9
    dither = lattice.dither(dither_words("more", 20_000, size))
    power = np.square(dither).sum(axis=1)
    off = power.mean() - np.trace(lattice.covariance)
    assert abs(off) < 5 * power.std() / len(power) ** 0.5 + 1e-3 * power.mean() * (size > 5)
    assert np.sqrt(power.max()) <= lattice.covering_radius * (1 + 1e-12)


@pytest.mark.parametrize("name", GENERATORS)
def test_covariance_and_covering_radius_are_those_of_the_cell(name):
    """By a midpoint grid of the parallelogram, folded into the cell by brute force.

    It may put a whole line of the grid on the wrong side of a face.
    """
    reduced = Reduced.of(np.array(GENERATORS[name]))
    size = len(reduced.basis)
    each = {2: 400, 3: 60, 5: 10}[size]
    axis = (np.arange(each) + 0.5) / each
    points = np.stack(np.meshgrid(*[axis] * size), axis=-1).reshape(-1, size) @ reduced.basis
    moved, longest = np.zeros_like(points), 0.0
    shifts = np.array(list(itertools.product((-1, 0, 1, 2), repeat=size))) @ reduced.basis
    for part in np.array_split(np.arange(len(points)), 50):
        every = points[part, None, :] - shifts
        moved[part] = every[np.arange(len(part)), (every**2).sum(axis=2).argmin(axis=1)]
    moments = moved.T @ moved / len(moved)
    allowed = {2: 1e-3, 3: 2e-3, 5: 1e-2}[size]
    assert np.abs(reduced.covariance - moments).max() < allowed * np.trace(moments)
    longest = np.linalg.norm(moved, axis=1).max()
    least = {2: 0.99, 3: 0.97, 5: 0.85}[size]
    assert least * reduced.covering_radius <= longest <= reduced.covering_radius * (1 + 1e-12)


@pytest.mark.parametrize("lattice", ALL, ids=label)
def test_each_row_is_quantized_and_dithered_by_itself(lattice, dither_words):
    coordinates = np.random.default_rng(2).integers(-1000, 1001, (500, lattice.dimension))
    assert np.array_equal(lattice.nearest(lattice.points(coordinates)), coordinates)
    words = dither_words("rows", 100, lattice.dimension)
    for function, rows in ((lattice.nearest, probes(lattice)[::5]), (lattice.dither, words)):
        whole = function(rows)
        assert np.array_equal(whole, np.concatenate([function(row[None]) for row in rows]))
        assert function(rows[:0]).shape == (0, lattice.dimension)
    for value in (np.nan, np.inf, -np.inf, 1e17):
        x = np.zeros((3, lattice.dimension))
        x[1, -1] = value * lattice.basis[0, 0] * 1e3
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="too far"):
            lattice.nearest(x)


MOMENTS = {"Z": 0.083333, "A2": 0.080188, "D4": 0.076603, "E8": 0.071682}
VOLUMES = {"Z": 1.0, "A2": ROOT3 / 2, "D4": 2.0, "E8": 1.0}


@pytest.mark.parametrize("lattice", ALL, ids=label)
def test_closed_forms(lattice):
    size = lattice.dimension
    volume = abs(np.linalg.det(lattice.basis / lattice.step)) * lattice.step**size
    assert lattice.cell_volume == pytest.approx(volume, rel=1e-9)
    if lattice.name in MOMENTS:
        assert lattice.normalised_second_moment == pytest.approx(MOMENTS[lattice.name], abs=5e-7)
        assert lattice.cell_volume == pytest.approx(VOLUMES[lattice.name] * lattice.step**size)
        moment = lattice.normalised_second_moment * lattice.cell_volume ** (2 / size)
        assert lattice.second_moment == pytest.approx(moment)
        assert np.allclose(lattice.covariance, lattice.second_moment * np.eye(size), atol=0)


@pytest.mark.parametrize("lattice", ALL, ids=label)
def test_dither_lies_in_the_cell_and_has_its_moments_and_radius(lattice, dither_words, assert_mean):
    """Mean 0 and covariance as told, each within 5 standard errors of 40,000 draws (1.1 %)."""
    dither = lattice.dither(dither_words(label(lattice), 40_000, lattice.dimension))
    nearest = lattice.points(lattice.nearest(dither))
    on_a_face = nearest.any(axis=1)  # the last rounding may tip what lies exactly on one
    assert on_a_face.mean() < 1e-3
    length, other = np.linalg.norm(dither, axis=1), np.linalg.norm(dither - nearest, axis=1)
    assert (length <= other * (1 + 1e-14)).all()
    scale = math.sqrt(lattice.second_moment)
    unit = dither / scale
    assert_mean(unit, 0.0)
    products = unit[:, :, None] * unit[:, None, :]
    assert_mean(products.reshape(len(unit), -1), (lattice.covariance / scale**2).ravel())
    assert_mean((unit**2).mean(axis=1), 1.0)
    holes = np.array(deep_holes(lattice)) * lattice.step
    gap = np.linalg.norm(holes - lattice.points(lattice.nearest(holes)), axis=1)
    assert gap == pytest.approx(lattice.covering_radius, rel=1e-12)
    # volume near the hole is small in eight dimensions, and none of it near in one
    least = {1: 0.999, 2: 0.98, 3: 0.95, 4: 0.95, 5: 0.9, 8: 0.9}[lattice.dimension]
    assert least <= length.max() / lattice.covering_radius <= 1 + 1e-12


@pytest.mark.parametrize("lattice", [Lattice(name) for name in NAMES], ids=label)
def test_dither_is_the_word_point_reduced_exactly(lattice, dither_words):
    """Dither and G·u differ by a lattice point to the last bit: it is uniform on the cell.

    And so is x + u less its nearest point, whatever x: Theorem II.5. Payloads show it in
    ``tests/paper/theorems``.
    """
    words = dither_words("exact", 5000, lattice.dimension)
    words[:2] = [[0], [65535]]
    unit = (2 * words.astype(np.int64) + 1) / 2.0**17
    axes = np.array([1.0, ROOT3]) if lattice.name == "A2" else np.ones(lattice.dimension)
    frame = {"A2": np.array([[1.0, 0.0], [0.5, 0.5]])}.get(lattice.name, lattice.basis)
    dither = lattice.dither(words)
    moved = unit @ frame - np.rint((unit @ frame - dither / axes) * 2) / 2
    assert np.array_equal(moved * axes, dither)
    assert is_member(lattice, unit @ frame * axes - dither).all()


def test_planar_dither_is_the_same_in_scalar_arithmetic(dither_words):
    """One rounding per product and sum: no fused multiply-add, no reordering, on any machine."""
    lattice = Lattice(generator=GENERATORS["skewed"], step=0.37)
    words = dither_words("scalar", 200, 2)
    dither = lattice.dither(words)
    (b11, b12), (b21, b22) = Lattice(generator=GENERATORS["skewed"]).basis.tolist()
    for (w1, w2), (x, y) in zip(words.tolist(), dither.tolist(), strict=True):
        u1, u2 = (w1 + 0.5) / 65536, (w2 + 0.5) / 65536
        corners = [(u1 - i, u2 - j) for i in (0, 1) for j in (0, 1)]
        space = [(a * b11 + b * b21, a * b12 + b * b22) for a, b in corners]
        assert [(a * 0.37, b * 0.37) for a, b in space].count((x, y)) == 1


@pytest.mark.parametrize("lattice", ALL, ids=label)
def test_scaled_lattices_bases_and_halves(lattice):
    assert pickle.loads(pickle.dumps(lattice)) == lattice.scale(lattice.step) == lattice
    radius = lattice.covering_radius * 3.0 / lattice.step
    assert lattice.scale(3.0).covering_radius == pytest.approx(radius)
    coordinates = np.arange(1, lattice.dimension + 1)
    expected = lattice.points(coordinates[None])[0]
    np.testing.assert_allclose(lattice.basis.T @ coordinates, expected)
    doubled = 2.0 * np.array(lattice.geometry.halves)
    assert np.array_equal(doubled, np.rint(doubled))
    assert np.abs(doubled % 2).max(axis=1).min() == 1  # not lattice vectors themselves


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Leech"}, "must be Z, A2, D4, E8 or a generator matrix"),
        ({}, "'custom'"),
        *(({"name": "Z", "step": bad}, "step must be a pos") for bad in (0.0, math.nan, math.inf)),
        ({"name": "E8", "step": 1e39}, r"step must be .* from 1e-38 to 1e\+38, got 1e\+39"),
        ({"name": "A2", "generator": ((1.0, 0.0), (0.0, 1.0))}, "either a name or a generator"),
        ({"generator": ((1.0, 2.0), (2.0, 4.0))}, "independent columns"),
        ({"generator": ((1.0, 0.0), (0.0, 1.1e-8))}, r"at most 1000 times .* \(9.09e\+07 times\)"),
        ({"generator": ((1.0, 0.0), (0.0, math.nan))}, "square matrix of 2 to 8 rows"),
        ({"generator": tuple(map(tuple, np.eye(9)))}, "2 to 8 rows"),
        ({"generator": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))}, "square matrix"),
        ({"generator": ((2.0,),)}, "for one dimension use 'Z'"),
        ({"generator": ((1e120, 0.0), (0.0, 1e120))}, "1e-30…1e30"),
    ],
)
def test_impossible_lattices_raise_at_construction(arguments, message):
    with pytest.raises(ValueError, match=message):
        Lattice(**arguments)
