"""From ε to a law, and the guarantee of a law."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from jopeq import scheme
from jopeq.entries.additive import LAWS, NoiseTarget
from jopeq.noise import Laplace, MultivariateT
from jopeq.privacy import calibration
from jopeq.privacy.calibration import CellBounds, calibrate_laplace, calibrate_t, rounding_excess

DIMENSIONS = [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("squared_scale", "nu", "published", "true"), [(1.0, 12, 2.014, 3.99), (0.5, 14, 3.006, 5.91)]
)
def test_the_pairs_of_the_paper_hold_for_half_the_diameter(squared_scale, nu, published, true):
    law = MultivariateT(nu, squared_scale, 2)
    assert law.epsilon(1.0) == pytest.approx(published, abs=5e-4)
    assert law.epsilon() == pytest.approx(true, abs=5e-3)
    assert calibrate_t(law.epsilon(), 2, nu=nu).squared_scale == pytest.approx(squared_scale)


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0, 50.0])
def test_the_free_nu_has_the_smallest_variance(epsilon, dimension):
    best = calibrate_t(epsilon, dimension)
    for nu in np.concatenate((np.linspace(2.06, 30, 60), np.geomspace(30, 390, 12))):
        assert best.variance <= calibrate_t(epsilon, dimension, nu=nu).variance * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.inf, math.nan, "3", None, [1.0]])
def test_epsilon_must_be_a_positive_finite_number(epsilon):
    for calibrate in (calibration.check_epsilon, calibrate_laplace, lambda e: calibrate_t(e, 2)):
        with pytest.raises(ValueError, match="epsilon"):
            calibrate(epsilon)


def test_an_epsilon_beyond_any_noise_is_refused():
    with pytest.raises(ValueError, match=r"epsilon.*2400"):
        calibrate_t(3000.0, 2, nu=6)
    with pytest.raises(ValueError, match="epsilon must be at most"):
        calibrate_t(1e6, 2)
    assert calibrate_t(1000.0, 2).epsilon() <= 1000.0


LATTICES = {"Z": 1, "A2": 2, "D4": 4, "E8": 8}


def guarantee_of(law, nominal=1.0):
    fixed = {"is_exact": False, "sample_size": law.dimension, "assumptions": ()}
    return calibration.guarantee_of_noise(law, nominal=nominal, **fixed)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-3, 0.1, 4.0, 40.0])
def test_the_printed_epsilon_holds_for_floating_point_draws(epsilon, log_chances):
    """Outputs of ``laplace``, counted: below ε = 0.05 rounding adds what five digits show."""
    built = scheme("laplace", epsilon=epsilon, clip=1.0)
    law, grid = built.noise, built.grid
    limit = law.reach - 1.0
    outputs = np.rint(np.linspace(0.9, 0.99, 40) * limit / grid)

    def output_of(x):
        return lambda draws: np.rint(np.clip(x + law.scale * draws, -limit, limit) / grid)

    ratio = log_chances(output_of(1.0), outputs) - log_chances(output_of(-1.0), outputs)
    assert 0.99 * epsilon < ratio.max() <= built.guarantee.epsilon * (1 + 1e-5)
    assert (built.guarantee.epsilon == epsilon) == built.guarantee.is_exact == (epsilon > 0.05)


DELTAS = {"gaussian": 1e-5}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("lattice", LATTICES)
def test_rounding_costs_nothing_beside_ordinary_cells(law, lattice):
    for epsilon in (0.5, 4.0, 20.0):
        given = {"epsilon": epsilon, "rate": 2.0, "lattice": lattice, "gamma": 9.0}
        found = scheme("jopeq", **given, law=law, delta=DELTAS.get(law))
        if found.noise is not None:
            cells = CellBounds.of(found.cells)
            assert rounding_excess(found.noise, cells) < 1e-10 * epsilon
            assert rounding_excess(found.noise, CellBounds(1e-9, 1e-9)) > 1e-10 * epsilon
            assert rounding_excess(found.noise, CellBounds(1e-18, 1e-18)) == math.inf


@pytest.mark.parametrize(("name", "size"), [("t", 1), ("t", 2), ("t", 4), ("t", 64)])
def test_only_laws_that_lose_some_of_their_tail_say_so(name, size):
    built = scheme(name, epsilon=4.0, size=size, clip=1.0)
    is_told = any("sampler's range" in text for text in built.guarantee.assumptions)
    assert is_told == (built.noise.lost > 0.0) == (size > 2)
    assert built.noise.lost < 1e-12


def test_what_the_ends_take_is_added(monkeypatch):
    law = calibrate_t(4.0, 4)
    for lost, epsilon in ((1e-9, 4.0), (0.5, 4.0 + math.log(2.0)), (1.0, math.inf)):
        monkeypatch.setattr(MultivariateT, "lost", lost)
        assert guarantee_of(law, nominal=4.0).epsilon == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("lattice", LATTICES)
@pytest.mark.parametrize("law", LAWS)
def test_matched_noise_spends_more_than_it_was_asked_for(law, lattice):
    delta = DELTAS.get(law)
    built = scheme("jopeq", epsilon=4.0, rate=2.0, lattice=lattice, law=law, delta=delta, clip=1.0)
    guarantee = built.guarantee
    assert guarantee.nominal == 4.0
    target = NoiseTarget(law, 4.0, LATTICES[lattice], delta=delta).noise
    total = built.noise.variance + built.cells.second_moment
    assert total == pytest.approx(target.variance)
    assert 4.0 < guarantee.epsilon < 9.0
    if delta is None:
        assert guarantee.epsilon == built.noise.epsilon()
        assert guarantee.delta == 0.0
        return
    assert guarantee.delta == delta
    for law, epsilon in ((built.noise, guarantee.epsilon), (target, 4.0)):
        half, rest = 1.0 / law.scale, epsilon * law.scale / 2.0  # δ(ε) of Balle and Wang (2018)
        found = special.ndtr(half - rest) - math.exp(epsilon) * special.ndtr(-half - rest)
        assert delta * (1 - 1e-4) < found < delta


@settings(max_examples=200)
@given(
    epsilon=st.floats(1e-3, 100.0),
    dimension=st.integers(1, 8),
    nu=st.none() | st.floats(2.01, 1000.0),
)
def test_calibrated_laws_have_the_epsilon_asked_for_and_never_more(epsilon, dimension, nu):
    student = calibrate_t(epsilon, dimension, nu=nu)
    assert epsilon * (1 - 1e-9) <= student.epsilon() <= epsilon
    laplace = calibrate_laplace(epsilon, dimension)
    assert laplace == Laplace(2 * math.sqrt(dimension) / epsilon, dimension)
    assert laplace.epsilon() == pytest.approx(epsilon, rel=1e-15)
