"""What the codecs are measured against does what it says."""

import numpy as np
import pytest

import jopeq
from jopeq.lattice.lattices import Lattice

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["A2", "D4", "E8"])
def test_the_eager_nearest_point_is_the_nearest(load, name):
    lattice = Lattice(name)
    x = np.random.default_rng(0).normal(0, 2, (5000, lattice.dimension))
    expected = lattice.points(lattice.nearest(x))
    found = load("eager")._NEAREST[name](torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("rate", [1, 2, 4])
def test_the_eager_quantizer_errs_as_much_as_ours(load, rate):
    """Dither that is not subtracted doubles the error: Δ²/12 twice, in scaled units."""
    torch.manual_seed(0)
    scheme = jopeq.scheme("sdq", rate=rate)
    update = torch.rand(200_000) - 0.5
    index = load("eager").eager(scheme)(update)[:, 0]
    letters, step = scheme.codebook.letters, scheme.cells.step
    points = (index - (letters - 1) / 2) * step
    scaled = update / (scheme.spread * update.norm() / len(update) ** 0.5)
    lost = (points - scaled).double()
    error = float(lost.mean()), float(lost.square().std()) / len(update) ** 0.5
    assert abs(error[0]) < 5 * float(lost.std()) / len(update) ** 0.5
    # E(q − x)² = p(1−p)Δ² with p uniform-ish: never above Δ²/4, and above what ours leaves
    assert step**2 / 12 - 5 * error[1] < float(lost.square().mean()) <= step**2 / 4
