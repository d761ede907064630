"""The density of t noise plus hexagonal dither: against sums over the cell, limits, and samples."""

import numpy as np
import pytest

from jopeq.analysis.theory import (
    dithered_density,
    hexagon,
    plane_distance,
    radial_distribution,
    radius_at,
)
from jopeq.lattice.lattices import Lattice
from jopeq.noise import MultivariateT
from jopeq.schemes.quantized import JoPEQ

LAW = MultivariateT(5.0, 0.4, 2)


def test_the_hexagon_is_the_cell(dither_words):
    corners = hexagon(2.0)
    lattice = Lattice("A2", step=2.0)
    area = 0.5 * np.sum(
        corners[:, 0] * np.roll(corners[:, 1], -1) - corners[:, 1] * np.roll(corners[:, 0], -1)
    )
    assert area == pytest.approx(lattice.cell_volume)
    assert not lattice.nearest(corners * 0.999).any()
    assert lattice.nearest(corners * 1.001).any(axis=1).all()
    inside = dithered_density(None, 2.0, lattice.dither(dither_words("cell", 1000, 2))) > 0
    assert inside.all()


def test_the_radius_and_its_chance_are_inverse():
    chance = np.array([1e-9, 0.1, 0.5, 0.99, 1 - 1e-9])
    assert np.allclose(radial_distribution(LAW, radius_at(LAW, chance)), chance, rtol=1e-7)


@pytest.mark.parametrize("squared_scale", [0.003, 0.1, 2.0])
def test_the_density_is_the_mean_over_the_cell(squared_scale, dither_words):
    """Against 400,000 dithers, five standard errors."""
    law = MultivariateT(5.0, squared_scale, 2)
    points = np.array([[0.0, 0.0], [0.3, 0.1], [0.5, 0.0], [0.45, 0.3], [1.2, -0.7]])
    dither = Lattice("A2").dither(dither_words("density", 400_000, 2))
    found = dithered_density(law, 1.0, points)
    for point, value in zip(points, found, strict=True):
        each = law.density(point - dither)
        assert abs(each.mean() - value) <= 5 * each.std() / len(each) ** 0.5 + 1e-12


def test_far_out_and_far_in():
    assert dithered_density(LAW, 1e-3, np.array([[0.4, 0.2]])) == pytest.approx(
        LAW.density([0.4, 0.2]), rel=1e-5
    )
    narrow = MultivariateT(5.0, 1e-8, 2)
    middle = dithered_density(narrow, 1.0, np.array([[0.1, 0.05]]))
    assert middle == pytest.approx(1.0 / Lattice("A2").cell_volume, rel=1e-5)


def test_the_distance_agrees_with_samples(private, dither_words):
    """Of ‖n + u‖, 2¹⁶ samples, false alarm 1e-7."""
    scheme = JoPEQ(epsilon=4.0, rate=1.0, lattice=Lattice("A2"))
    found = plane_distance(scheme)
    noise = scheme.noise.sample(private("plane"), 0, 1 << 16)
    total = noise + scheme.cells.dither(dither_words("plane", 1 << 16, 2))
    places = np.sort(radial_distribution(scheme.target.noise, np.linalg.norm(total, axis=1)))
    measured = np.abs(places - (np.arange(1 << 16) + 0.5) / (1 << 16)).max()
    assert abs(measured - found.kolmogorov) < 2.9 / (1 << 8)
    assert found.defect < 1e-4
    assert found.kolmogorov <= found.total_variation


def test_finer_rings_change_nothing():
    scheme = JoPEQ(epsilon=3.0, rate=2.0, lattice=Lattice("A2"))
    coarse, fine = plane_distance(scheme, rings=300), plane_distance(scheme, rings=1200)
    assert coarse.total_variation == pytest.approx(fine.total_variation, abs=5e-5)
    assert coarse.kolmogorov == pytest.approx(fine.kolmogorov, abs=5e-5)


def test_other_schemes_are_refused():
    with pytest.raises(ValueError, match="t target on A2"):
        plane_distance(JoPEQ(epsilon=4.0, rate=2.0))
    with pytest.raises(ValueError, match="isotropic"):
        radial_distribution(MultivariateT(5.0, 1.0, 4), np.ones(1))
