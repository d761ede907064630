"""Compositions add up, and take the theorem that gives the least; amplification is attained."""

import math
import subprocess
import sys

import numpy as np
import pytest

from jopeq.privacy.accounting import (
    BASIC,
    OPTIMAL,
    RENYI,
    Composition,
    Mechanism,
    gaussian_epsilon,
    optimal_epsilon,
    subsampled_epsilon,
)


def test_beyond_what_can_be_summed_renyi_bounds():
    assert optimal_epsilon(0.01, 10**12, 1e-6) is None
    epsilon, theorem = Composition.of(Mechanism(0.01), 10**12).epsilon_at(1e-6)
    assert theorem == RENYI
    mean, deviation = 10**12 * 0.01 * math.tanh(0.005), 0.01 * 10**6
    assert mean + 4 * deviation < epsilon < mean + 6 * deviation


def test_failures_compose_as_the_privacy_loss_distribution():
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(0.5, 1e-7)
    law = pld.from_privacy_parameters(parameters, value_discretization_interval=0.5)
    theirs = law.self_compose(40).get_epsilon_for_delta(1e-5)
    ours, theorem = Composition.of(Mechanism(0.5, 1e-7), 40).epsilon_at(1e-5)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert theorem == OPTIMAL


def test_mixtures_lie_between_the_optimum_and_basic_composition():
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    def law(epsilon, times):
        parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
        one = pld.from_privacy_parameters(parameters, value_discretization_interval=0.125)
        return one.self_compose(times)

    for first, second in [((0.5, 60), (0.25, 60)), ((0.5, 60), (0.125, 2)), ((1.0, 2), (0.5, 90))]:
        best = law(*first).compose(law(*second)).get_epsilon_for_delta(1e-5)
        both = Composition.of(Mechanism(first[0]), first[1])
        both += Composition.of(Mechanism(second[0]), second[1])
        found, _ = both.epsilon_at(1e-5)
        assert best * (1 - 1e-9) <= found <= 1.1 * best < both.basic()[0]


def test_counts_add_up():
    one, two = Mechanism(0.5), Mechanism(1.0, 1e-6)
    both = (Composition.of(one, 3) + Composition.of(two) + Composition.of(one)).times(2)
    assert dict(both.counts) == {one: 8, two: 2}
    assert both.basic() == (6.0, 2e-6)
    assert Composition.of(one, 3).times(0) == Composition() == Composition.of(one, 0)
    assert Composition().epsilon_at(1e-5) == (0.0, BASIC)


def test_failures_beyond_delta_leave_no_privacy():
    many = Composition.of(Mechanism(0.5, 1e-6), 100)
    assert many.epsilon_at(1e-5)[0] == math.inf
    assert many.epsilon_at(0.0)[0] == math.inf
    assert many.epsilon_at(1.0001e-4)[0] < 50.0
    assert Composition.of(Mechanism(math.inf)).epsilon_at(0.1)[0] == math.inf


def test_a_gaussian_beside_a_pure_mechanism():
    gaussian = Mechanism(math.inf, 0.0, 0.5)  # ε at δ = 0 is infinite, μ tells all the same
    alone = Composition.of(gaussian, 4)
    assert alone.epsilon_at(1e-5)[0] == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-9)
    bit = alone + Composition.of(Mechanism(0.1))
    assert (
        gaussian_epsilon(1.0, 1e-5) < bit.epsilon_at(1e-5)[0] <= gaussian_epsilon(1, 1e-5) + 0.1001
    )
    many = alone + Composition.of(Mechanism(0.1), 400)
    assert many.epsilon_at(1e-5)[0] < 0.5 * (gaussian_epsilon(1.0, 1e-5) + 40.0)


@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 1.0, 20.0, 31400.0])
@pytest.mark.parametrize("probability", [1e-9, 0.01, 0.5, 1.0])
def test_amplification_formula(epsilon, probability):
    found = subsampled_epsilon(epsilon, probability)
    assert found <= epsilon
    if epsilon <= 20.0:
        exact = math.log1p(probability * math.expm1(epsilon))
        assert found == pytest.approx(exact, rel=1e-12, abs=2e-16)
    else:
        assert found == pytest.approx(epsilon + math.log(probability), rel=1e-12)


def test_amplification_is_attained_by_randomized_response_with_a_stand_in():
    """The exact law of one bit: drawn with q, else randomized response of 0 in its place."""
    keep, q = 1 / (1 + math.exp(-2.0)), 0.1
    drawn, absent = np.array([1 - keep, keep]), np.array([keep, 1 - keep])
    one, zero = q * drawn + (1 - q) * absent, absent
    worst = max(np.log(one / zero).max(), np.log(zero / one).max())
    assert worst == pytest.approx(subsampled_epsilon(2.0, q), rel=1e-12)


def test_composing_needs_no_dp_accounting():
    code = (
        "import sys; sys.modules['dp_accounting'] = None; from jopeq.privacy import Guarantee; "
        "Guarantee(epsilon=0.1).for_client(100, 5, delta=1e-5)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
