"""Gaussian noise against dp-accounting, many digits and its own inverse."""

import math

import pytest

from jopeq.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_sigma


@pytest.mark.parametrize(("sigma", "times"), [(1.0, 1), (4.0, 50), (0.5, 3)])
def test_gaussian_epsilon_equals_the_privacy_loss_distribution(sigma, times):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    law = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3)
    theirs = law.self_compose(times).get_epsilon_for_delta(1e-6)
    ours = gaussian_epsilon(math.sqrt(times) / sigma, 1e-6)
    assert ours <= theirs == pytest.approx(ours, rel=1e-4)


def test_gaussian_calibration_equals_theirs():
    pytest.importorskip("dp_accounting")
    from dp_accounting import gaussian_mechanism as theirs

    for epsilon, delta in [(0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-9)]:
        sigma = gaussian_sigma(epsilon, delta, 1.0)
        assert sigma == pytest.approx(theirs.get_sigma_gaussian(epsilon, delta), rel=1e-8)
        assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(
            theirs.get_epsilon_gaussian(sigma, delta), rel=1e-8
        )


@pytest.mark.parametrize(
    ("mu", "x"),
    [
        (mu, x)
        for mu in (1e-5, 0.03, 1.0, 12.0, 1400.0)
        for x in (-20.0, -3.0, -0.5, 0.0, 0.7, 4.0, 20.0)
        if x + 0.5 * mu >= 0.0
    ],
)
def test_gaussian_delta_to_nine_digits(mu, x):
    mpmath = pytest.importorskip("mpmath")
    epsilon = mu * (x + 0.5 * mu)
    with mpmath.workdps(700):
        ratio, half = mpmath.mpf(epsilon) / mpmath.mpf(mu), mpmath.mpf(mu) / 2
        exact = mpmath.ncdf(half - ratio) - mpmath.exp(epsilon) * mpmath.ncdf(-half - ratio)
    found = gaussian_delta(mu, epsilon)
    # ε itself carries one rounding, which moves δ by up to ε·2⁻⁵³ of the density
    assert found == pytest.approx(float(exact), rel=1e-9 + 1e-15 * (1 + epsilon) * (1 + abs(x)))
    if mu < 100.0:
        assert found >= float(exact)


def test_gaussian_at_zero_by_hand():
    assert gaussian_delta(0.8, 0.0) == pytest.approx(math.erf(0.4 / math.sqrt(2)), rel=1e-12)
    assert gaussian_epsilon(0.8, 0.4) == 0.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == math.inf == gaussian_epsilon(math.inf, 1e-5)
    assert gaussian_delta(math.inf, 3.0) == 1.0
    assert gaussian_delta(0.0, 0.0) == 0.0


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-20, 1e-5, 0.2, 0.9])
def test_gaussian_epsilon_is_the_smallest(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 0.0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-9)) > delta


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_gaussian_sigma_is_the_smallest(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta, 2.0)
    assert gaussian_delta(2.0 / sigma, epsilon) <= delta
    assert gaussian_delta(2.0 / (sigma * (1 - 1e-9)), epsilon) > delta


def test_gaussian_parameters_are_checked():
    for call in (
        lambda: gaussian_sigma(1.0, 0.0, 1.0),
        lambda: gaussian_sigma(math.inf, 1e-5, 1.0),
        lambda: gaussian_sigma(1.0, 1e-5, 0.0),
        lambda: gaussian_sigma(math.nan, 1e-5, 1.0),
        lambda: gaussian_epsilon(-1.0, 1e-5),
        lambda: gaussian_epsilon(1.0, 1.0),
        lambda: gaussian_delta(1.0, math.nan),
    ):
        with pytest.raises(ValueError, match=r"must be|needs"):
            call()
