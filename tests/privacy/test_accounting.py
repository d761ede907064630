"""Composition against exact sums, many digits and dp-accounting."""

import math
from fractions import Fraction

import pytest

from jopeq.checks import check_count, check_delta, check_number
from jopeq.privacy.accounting import (
    BASIC,
    Composition,
    Mechanism,
    _binomial_window,
    _hockey_stick,
    optimal_epsilon,
)

NEVER_BELOW = 1e-12


def rational_delta(odds, times, total):
    """δ at e^ε' = total of randomized response with e^ε = odds, without any rounding."""
    keep = odds / (1 + odds)
    result = Fraction(0)
    for flips in range(times + 1):
        ratio = odds ** (times - 2 * flips)
        if ratio > total:
            chance = math.comb(times, flips) * keep ** (times - flips) * (1 - keep) ** flips
            result += chance * (1 - total / ratio)
    return float(result)


def summed_delta(epsilon, times, total):
    """The δ that ``optimal_epsilon`` compares with the one asked for."""
    return _hockey_stick(epsilon, times, *_binomial_window(epsilon, times), total)


@pytest.mark.parametrize(
    ("odds", "times", "total"),
    [
        (Fraction(2), 1, Fraction(3, 2)),
        (Fraction(3), 7, Fraction(10)),
        (Fraction(11, 10), 60, Fraction(5, 2)),
        (Fraction(60), 30, Fraction(10) ** 40),
        (Fraction(10001, 10000), 200, Fraction(1001, 1000)),
        (Fraction(2), 5, Fraction(1)),
    ],
)
def test_delta_is_the_rational_sum(odds, times, total):
    exact = rational_delta(odds, times, total)
    found = summed_delta(math.log(odds), times, math.log(total))
    assert exact * (1 - NEVER_BELOW) <= found
    assert found == pytest.approx(exact, rel=5e-9)


def test_epsilon_inverts_delta():
    for epsilon in (1e-6, 1e-3, 0.3, 4.0, 60.0, 31400.0):
        for times in (1, 2, 17, 7850):
            for delta in (1e-12, 1e-5, 0.3):
                found = optimal_epsilon(epsilon, times, delta)
                assert 0.0 <= found <= epsilon * times
                if found < epsilon * times:
                    assert summed_delta(epsilon, times, found) <= delta
                less = found - max(1e-9 * found, 1e-9 * epsilon)
                if less > 0.0 and found < 1e5:  # beyond, one rounding of ε' moves δ by more
                    assert summed_delta(epsilon, times, less) > delta * (1 - 1e-6)


def test_nothing_and_everything():
    assert optimal_epsilon(1.0, 0, 1e-5) == 0.0
    assert optimal_epsilon(0.0, 9, 1e-5) == 0.0
    assert optimal_epsilon(1.0, 9, 1e-300) == 9.0  # below what sums resolve: basic composition
    assert optimal_epsilon(1e-8, 10, 1e-3) == 0.0  # δ(0) is below 10⁻³ already


@pytest.mark.parametrize(
    ("epsilon", "times"), [(0.01, 10**9), (4.0, 10**9), (1e-4, 10**8), (4.0, 745750)]
)
def test_large_compositions_obey_the_central_limit(epsilon, times):
    """L has mean nε·tanh(ε/2) and standard deviation ε√n/cosh(ε/2)."""
    found = optimal_epsilon(epsilon, times, 1e-6)
    mean = times * epsilon * math.tanh(epsilon / 2)
    deviation = epsilon * math.sqrt(times) / math.cosh(epsilon / 2)
    assert mean + 2 * deviation < found < mean + 5 * deviation


def pure_losses(epsilon, times, interval):
    """dp-accounting's law of the privacy loss."""
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
    one = pld.from_privacy_parameters(parameters, value_discretization_interval=interval)
    return one.self_compose(times)


@pytest.mark.parametrize(("epsilon", "times", "delta"), [(0.5, 40, 1e-5), (2.0, 100, 1e-3)])
def test_optimum_equals_the_privacy_loss_distribution(epsilon, times, delta):
    theirs = pure_losses(epsilon, times, epsilon).get_epsilon_for_delta(delta)
    assert optimal_epsilon(epsilon, times, delta) == pytest.approx(theirs, rel=1e-6)


def test_beyond_what_can_be_summed_epsilons_add_up():
    assert optimal_epsilon(0.01, 10**12, 1e-6) is None
    assert Composition.of(Mechanism(0.01), 10**12).epsilon_at(1e-6) == (1e10, BASIC)


def test_mixtures_lie_between_the_optimum_and_basic_composition():
    for first, second in [((0.5, 60), (0.25, 2)), ((0.5, 60), (0.125, 2)), ((1.0, 90), (0.5, 2))]:
        losses = pure_losses(*first, 0.125).compose(pure_losses(*second, 0.125))
        best = losses.get_epsilon_for_delta(1e-5)
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


@pytest.mark.parametrize(
    ("check", "arguments", "message"),
    [
        *((check_delta, (bad,), "delta must be") for bad in (-0.1, 1.0, math.nan, "0.1", None)),
        *((check_count, ("x", bad), "must be a whole number") for bad in (1.5, True, "3")),
        (check_count, ("x", -1), "x must be a whole number of at least 0, got -1"),
        *((check_number, ("x", bad), "x must be") for bad in (math.nan, -1.0)),
    ],
)
def test_numbers_are_checked(check, arguments, message):
    with pytest.raises(ValueError, match=message):
        check(*arguments)
    check_number("epsilon", math.inf)
