"""Exponential noise on lattices: theta series by enumeration, shells, directions, rejection."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jopeq.lattice.codebook import points_within
from jopeq.lattice.lattices import Lattice
from jopeq.noise.on_lattice import LatticeExponential, shells

THETA = {
    "A2": [1, 6, 0, 6, 6, 0, 0, 12, 0, 6, 0, 0, 6, 12, 0, 0, 6],
    "D4": [1, 24, 24, 96, 24, 144, 96, 192, 24],
    "E8": [1, 240, 2160, 6720, 17520],
}
NAMES = list(THETA)


@pytest.mark.parametrize("name", NAMES)
def test_shells_are_the_theta_series(name):
    lattice = Lattice(name)
    squares, counts = shells(name, 3.0)
    unit = squares[1]
    assert unit == {"A2": 1.0, "D4": 2.0, "E8": 2.0}[name]
    known = THETA[name]
    assert counts[: len(known)].tolist() == known
    radius = {"A2": 12.0, "D4": 6.0, "E8": 8**0.5}[name]
    points = lattice.points(points_within(lattice, np.zeros(lattice.dimension), radius))
    shell = np.rint((points**2).sum(axis=1) / unit).astype(int)
    enumerated = np.bincount(shell)
    np.testing.assert_array_equal(enumerated, counts[: len(enumerated)])


@pytest.mark.parametrize("name", NAMES)
def test_shells_fill_the_volume_of_a_ball(name):
    """Also where the sum over divisors changes sides, beyond the square root of the last shell."""
    lattice = Lattice(name)
    size = lattice.dimension
    squares, counts = shells(name, 1.5)
    volume = math.pi ** (size / 2) / math.gamma(size / 2 + 1) * squares[-1] ** (size / 2)
    assert counts.sum() * lattice.cell_volume == pytest.approx(volume, rel=0.02)
    divisors = [d for d in range(1, 1001) if 1000 % d == 0]
    expected = {
        "A2": 6 * sum((0, 1, -1)[d % 3] for d in divisors),
        "D4": 24 * sum(d for d in divisors if d % 2),
        "E8": 240 * sum(d**3 for d in divisors),
    }
    assert counts[1000] == expected[name]


@pytest.mark.parametrize(("name", "decay"), [("A2", 0.7), ("A2", 4.0), ("D4", 2.5), ("E8", 3.5)])
def test_draws_follow_the_law(name, decay, private, assert_counts, assert_mean):
    noise, lattice = LatticeExponential(name, decay), Lattice(name)
    rows = 20_000
    coordinates = noise.sample(private(f"lattice noise {name}"), 0, rows)
    points = lattice.points(coordinates)
    squares, counts = shells(name, decay)
    weights = counts * np.exp(-decay * np.sqrt(squares))
    expected = rows * weights / weights.sum()
    shell = np.rint((points**2).sum(axis=1) / squares[1]).astype(int)
    observed = np.bincount(shell, minlength=len(expected))[: len(expected)]
    kept = expected >= 20
    assert_counts(
        np.append(observed[kept], observed[~kept].sum()),
        np.append(expected[kept], expected[~kept].sum()),
    )
    # within the first shell every point is as likely as any other
    nearest, tally = np.unique(coordinates[shell == 1], axis=0, return_counts=True)
    assert len(nearest) == counts[1]
    assert_counts(tally)
    # isotropy
    assert_mean(points, 0.0)
    size = lattice.dimension
    outer = (points[:, :, None] * points[:, None, :]).reshape(rows, -1)
    assert_mean(outer, noise.variance * np.eye(size).ravel())


@pytest.mark.parametrize(
    ("name", "decay", "radius"),
    [("A2", 0.2, 150.0), ("A2", 2.0, 20.0), ("D4", 6.0, 6.0), ("E8", 16.0, 8**0.5)],
)
def test_variance_is_that_of_the_enumerated_points(name, decay, radius):
    lattice = Lattice(name)
    points = lattice.points(points_within(lattice, np.zeros(lattice.dimension), radius))
    squares = (points**2).sum(axis=1)
    chances = np.exp(-decay * np.sqrt(squares))
    expected = (chances @ squares) / chances.sum() / lattice.dimension
    assert LatticeExponential(name, decay).variance == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_variance_of_a_fine_lattice_is_that_of_the_continuous_law(name):
    size = Lattice(name).dimension
    decay = 0.06
    assert LatticeExponential(name, decay).variance * decay**2 == pytest.approx(size + 1, rel=1e-5)
    assert LatticeExponential(name, 1e-4).variance == pytest.approx((size + 1) * 1e8)


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_random_access(name, private):
    noise, stream = LatticeExponential(name, 2.0), private("lattice access")
    whole = noise.sample(stream, 0, 200)
    np.testing.assert_array_equal(noise.sample(stream, 71, 50), whole[71:121])
    pieces = [noise.sample(stream, start, 40) for start in range(0, 200, 40)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize(("name", "decay"), [("D4", 5.0), ("E8", 4.0)])
def test_acceptance_is_what_the_check_believes(name, decay, private, monkeypatch):
    """Counts the proposals of a real run: geometric with the acceptance of the formula."""
    noise, rows = LatticeExponential(name, decay), 4000
    proposals = []
    original = LatticeExponential._propose

    def counted(self, stream, start, count, pending, attempt):
        proposals.append(len(pending))
        return original(self, stream, start, count, pending, attempt)

    monkeypatch.setattr(LatticeExponential, "_propose", counted)
    noise.sample(private("acceptance"), 0, rows)
    attempts, chance = sum(proposals), noise._acceptance
    spread = math.sqrt(rows * (1 - chance)) / chance
    assert abs(attempts - rows / chance) < 5 * spread
    assert noise.is_drawable


@pytest.mark.parametrize("name", NAMES)
def test_noise_too_narrow_to_be_drawn_says_so(name):
    assert LatticeExponential(name, 0.01).is_drawable
    assert LatticeExponential(name, 8.0).is_drawable
    assert not LatticeExponential(name, 30.0).is_drawable


@pytest.mark.parametrize("decay", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_decay_is_refused(decay):
    with pytest.raises(ValueError, match="decay must be a positive number"):
        LatticeExponential("A2", decay)


def test_a_table_of_shells_that_would_be_too_long_is_refused():
    with pytest.raises(ValueError, match="raise epsilon"):
        shells("A2", 1e-3)
