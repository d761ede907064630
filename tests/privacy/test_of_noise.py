"""Guarantees of additive noise, (ε, δ) of Gaussian noise, and which law errs least.

Least variance per entry for each (ε, L), δ = 1e-5, as ``test_which_law_errs_least`` computes it:

    ε \\ L   1              2          4          8
    1       laplace=l2 8   l2 12      l2 20      l2 36
    2       laplace=l2 2   l2 3       l2 5       l2 9
    4       laplace=l2 .5  l2 0.75    l2 1.25    l2 2.25
    8       t 0.076        t 0.160    l2 0.3125  l2 0.5625

ℓ2 noise is the best until ε is large against L, where the t law's heavy tails pay; Gaussian noise,
which gives δ away for nothing at one sample, never is (it is for composed updates).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from jopeq import scheme
from jopeq.noise import Gaussian, Laplace, RadialExponential, add_noise
from jopeq.privacy.accounting import gaussian_delta, gaussian_epsilon
from jopeq.privacy.calibration import (
    CellBounds,
    calibrate_gaussian,
    calibrate_l2,
    calibrate_laplace,
    guarantee_of_noise,
    rounding_excess,
)
from jopeq.random.samplers import MAX_EXPONENTIAL
from jopeq.random.streams import PrivateStream
from jopeq.schemes.additive import DELTA, NoiseTarget

SEED = bytes(range(32))
LATTICES = {"Z": 1, "A2": 2, "D4": 4, "E8": 8}
LAWS = ("laplace", "t", "l2", "gaussian")


def variances(epsilon: float, dimension: int) -> dict[str, float]:
    return {law: NoiseTarget(law, epsilon, dimension).noise.variance for law in LAWS}


# The guarantee of a law


def test_pure_noise_has_the_epsilon_of_the_diameter():
    found = guarantee_of_noise(
        Laplace(0.5), nominal=4.0, delta=0.1, is_exact=True, sample_size=1, assumptions=("a",)
    )
    assert (found.epsilon, found.nominal, found.delta) == (4.0, 4.0, 0.0)
    assert (found.is_exact, found.assumptions, found.gaussian_mu) == (True, ("a",), None)


def test_no_noise_has_none():
    common = {"delta": 0.0, "is_exact": True, "sample_size": 2, "assumptions": ("a",)}
    private = guarantee_of_noise(None, nominal=4.0, **common)
    assert private.epsilon == math.inf
    assert private.assumptions == ("no noise is added",)
    assert guarantee_of_noise(None, nominal=None, **common).assumptions == ()


@pytest.mark.parametrize("sigma", [0.9, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.01])
def test_gaussian_noise_has_epsilon_delta_and_mu(sigma, delta):
    found = guarantee_of_noise(
        Gaussian(sigma, 2), nominal=1.0, delta=delta, is_exact=False, sample_size=2, assumptions=()
    )
    assert found.gaussian_mu == 2 / sigma
    assert found.delta == delta
    assert found.epsilon == gaussian_epsilon(2 / sigma, delta)
    assert gaussian_delta(2 / sigma, found.epsilon) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.2, 0.25])
def test_narrow_gaussian_noise_of_pairs_promises_nothing(sigma):
    """The larger of two normals with one radius leaves the other too little room."""
    law, other = Gaussian(sigma, 2), np.array([-1.0, 0.0])
    stream = PrivateStream.reproducible(SEED)
    noisy = add_noise(law, np.tile([1.0, 0.0], (200_000, 1)), stream, 0)
    farthest = sigma * math.sqrt(2.0 * MAX_EXPONENTIAL)
    escaped = (np.sqrt(np.square(noisy - other).sum(axis=1)) > farthest).mean()
    assert DELTA < escaped < law.escape
    found = guarantee_of_noise(
        law, nominal=1.0, delta=DELTA, is_exact=False, sample_size=2, assumptions=()
    )
    assert found.epsilon == math.inf
    assert Gaussian(sigma, 1).escape == 0.0


def test_the_end_of_the_radial_sampler_is_told():
    for size, told in ((1, 0), (2, 1), (8, 1)):
        assumptions = scheme("l2", epsilon=4.0, size=size, clip=1.0).guarantee.assumptions
        assert len(assumptions) == told


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


@pytest.mark.parametrize("law", ["laplace", "t", "l2", "gaussian"])
@pytest.mark.parametrize("lattice", LATTICES)
def test_rounding_costs_nothing_beside_ordinary_cells(law, lattice):
    for epsilon in (0.5, 4.0, 20.0):
        found = scheme("jopeq", epsilon=epsilon, rate=2.0, lattice=lattice, law=law, gamma=9.0)
        if found.noise is not None:
            cells = CellBounds.of(found.cells)
            assert rounding_excess(found.noise, cells) < 1e-10 * epsilon
            assert rounding_excess(found.noise, CellBounds(1e-9, 1e-9)) > 1e-10 * epsilon
            assert rounding_excess(found.noise, CellBounds(1e-18, 1e-18)) == math.inf


@pytest.mark.parametrize(("name", "size"), [("l2", 1), ("l2", 2), ("l2", 64), ("t", 2), ("t", 4)])
def test_only_laws_that_lose_some_of_their_tail_say_so(name, size):
    built = scheme(name, epsilon=4.0, size=size, clip=1.0)
    is_told = any("end of the noise" in text for text in built.guarantee.assumptions)
    assert is_told == (built.noise.lost > 0.0) == (size > (1 if name == "l2" else 2))
    assert built.noise.lost < 1e-12


def test_what_the_ends_take_is_added(monkeypatch):
    law = RadialExponential(2.0, 4)
    common = {"nominal": 4.0, "delta": 0.0, "is_exact": False, "sample_size": 4, "assumptions": ()}
    for lost, epsilon in ((1e-9, 4.0), (0.5, 4.0 + math.log(2.0)), (1.0, math.inf)):
        monkeypatch.setattr(RadialExponential, "lost", lost)
        assert guarantee_of_noise(law, **common).epsilon == pytest.approx(epsilon, rel=1e-12)


# Calibration


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.2])
def test_gaussian_calibration_round_trip(epsilon, delta):
    law = calibrate_gaussian(epsilon, 3, delta)
    assert law.dimension == 3
    assert gaussian_delta(2 / law.sigma, epsilon) <= delta
    assert gaussian_delta(2 / law.sigma * 1.0001, epsilon) > delta
    assert gaussian_epsilon(2 / law.sigma, delta) == pytest.approx(epsilon, rel=1e-9)


def test_gaussian_delta_is_the_hockey_stick_of_the_densities():
    law, epsilon = calibrate_gaussian(2.0, 1, 1e-3), 2.0
    x = np.linspace(-12 * law.sigma, 12 * law.sigma, 400_001)
    excess = law.density(x - 1) - math.exp(epsilon) * law.density(x + 1)
    assert np.trapezoid(np.maximum(excess, 0), x) == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_l2_calibration(epsilon, dimension):
    law = calibrate_l2(epsilon, dimension)
    assert law == RadialExponential(epsilon / 2, dimension)
    assert law.epsilon() == epsilon
    assert law.variance == pytest.approx(4 * (dimension + 1) / epsilon**2)


# Schemes


@pytest.mark.parametrize("size", [1, 2, 5])
def test_additive_l2_and_gaussian_schemes(size, private, assert_mean):
    for name in ("l2", "gaussian"):
        built = scheme(name, epsilon=4.0, size=size, clip=1.0)
        guarantee = built.guarantee
        assert guarantee.epsilon == pytest.approx(4.0, rel=1e-9)
        assert guarantee.epsilon <= 4.0 * (1 + 1e-12)
        assert guarantee.delta == (DELTA if name == "gaussian" else 0.0)
        assert guarantee.sample_size == size
        update = np.tile([0.3, -0.2, 0.1, 0.0, -0.4], 12_000)
        decoded = built.decode(built.encode(update, noise=private(f"{name} {size}")))
        error = (decoded - update).reshape(-1, size)
        assert_mean(error, 0.0)
        assert_mean(np.square(error).mean(axis=1), built.distortion)
        assert built.distortion == built.noise.variance


@pytest.mark.parametrize("lattice", LATTICES)
@pytest.mark.parametrize("name", ["l2+sdq", "gaussian+sdq"])
def test_noise_then_dither_keeps_the_guarantee(name, lattice):
    built = scheme(name, epsilon=3.0, rate=2.0, lattice=lattice, clip=1.0)
    assert built.guarantee.epsilon == pytest.approx(3.0, rel=1e-9)
    assert built.guarantee.delta == (DELTA if name == "gaussian+sdq" else 0.0)
    assert built.noise == NoiseTarget(name.removesuffix("+sdq"), 3.0, LATTICES[lattice]).noise
    assert built.bits_per_entry <= 2.0


@pytest.mark.parametrize("lattice", LATTICES)
@pytest.mark.parametrize("law", LAWS)
def test_matched_noise_spends_more_than_it_was_asked_for(law, lattice):
    built = scheme("jopeq", epsilon=4.0, rate=2.0, lattice=lattice, law=law, clip=1.0)
    guarantee = built.guarantee
    assert guarantee.nominal == 4.0
    target = NoiseTarget(law, 4.0, LATTICES[lattice]).noise
    total = built.noise.variance + built.cells.second_moment
    assert total == pytest.approx(target.variance)
    assert 4.0 < guarantee.epsilon < 9.0
    if law == "gaussian":
        assert guarantee.gaussian_mu == 2 / built.noise.sigma
        assert gaussian_delta(guarantee.gaussian_mu, guarantee.epsilon) <= guarantee.delta == DELTA
    else:
        assert guarantee.epsilon == built.noise.epsilon()
        assert guarantee.delta == 0.0


@pytest.mark.parametrize(("lattice", "law"), [("A2", "l2"), ("D4", "gaussian"), ("Z", "gaussian")])
def test_matched_noise_errs_as_much_as_its_target(lattice, law, private, assert_mean):
    built = scheme(
        "jopeq", epsilon=4.0, step=0.5, coding="entropy", lattice=lattice, law=law, clip=1.0
    )
    update = np.full(60_000, 0.2)
    payload = built.encode(update, seed=SEED, noise=private(f"{law} {lattice}"))
    error = (built.decode(payload) - update).reshape(-1, built.dimension)
    assert_mean(
        np.square(error).mean(axis=1), NoiseTarget(law, 4.0, built.dimension).noise.variance
    )


def test_delta_can_be_chosen():
    tight, loose = (
        scheme("gaussian", epsilon=1.0, size=1, delta=delta).distortion for delta in (1e-9, 1e-3)
    )
    assert loose < scheme("gaussian", epsilon=1.0, size=1).distortion < tight


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_an_impossible_delta_is_refused(delta):
    for name, others in (("gaussian", {}), ("gaussian+sdq", {"rate": 2.0})):
        with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
            scheme(name, epsilon=1.0, delta=delta, **others)
    with pytest.raises(ValueError, match="delta must be above 0 and below 1"):
        scheme("jopeq", epsilon=1.0, rate=2.0, law="gaussian", delta=delta)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("jopeq", {"rate": 2.0, "delta": 1e-5}, "delta belongs to law='gaussian'"),
        ("jopeq", {"rate": 2.0, "law": "l2", "nu": 4.0}, "nu and squared_scale belong"),
        ("jopeq", {"rate": 2.0, "law": "cauchy"}, "law must be one of"),
        ("jopeq", {"rate": 2.0, "law": "l2", "paper_sensitivity": True}, "paper's laws"),
        ("l2+sdq", {"rate": 2.0, "delta": 1e-5}, "delta belongs"),
        ("l2", {"delta": 1e-5}, "no parameter 'delta'"),
        ("l2", {"size": 0}, "size must be a whole number"),
    ],
)
def test_parameters_of_other_laws_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        scheme(name, epsilon=4.0, **parameters)


# Which law


BEST = {
    (1.0, 1): ("l2", 8.0),
    (1.0, 2): ("l2", 12.0),
    (1.0, 4): ("l2", 20.0),
    (1.0, 8): ("l2", 36.0),
    (2.0, 1): ("l2", 2.0),
    (2.0, 2): ("l2", 3.0),
    (2.0, 4): ("l2", 5.0),
    (2.0, 8): ("l2", 9.0),
    (4.0, 1): ("l2", 0.5),
    (4.0, 2): ("l2", 0.75),
    (4.0, 4): ("l2", 1.25),
    (4.0, 8): ("l2", 2.25),
    (8.0, 1): ("t", 0.076),
    (8.0, 2): ("t", 0.160),
    (8.0, 4): ("l2", 0.3125),
    (8.0, 8): ("l2", 0.5625),
}


@pytest.mark.parametrize(("epsilon", "dimension"), BEST)
def test_which_law_errs_least(epsilon, dimension):
    found = variances(epsilon, dimension)
    law, variance = BEST[epsilon, dimension]
    assert found[law] == pytest.approx(variance, abs=5e-4)
    assert found[law] <= min(found.values()) * (1 + 1e-12)
    assert found["gaussian"] > 1.3 * found["l2"]


@pytest.mark.parametrize("dimension", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 9.0])
def test_l2_beats_laplace_of_the_true_sensitivity(epsilon, dimension):
    laplace = calibrate_laplace(epsilon, dimension)
    assert laplace.epsilon() == pytest.approx(epsilon)
    gain = laplace.variance / calibrate_l2(epsilon, dimension).variance
    assert gain == pytest.approx(2 * dimension / (dimension + 1))
