"""Optimal composition against exact rational sums, hand formulas and dp-accounting."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from jopeq.privacy.accounting import (
    _binomial,
    _binomial_window,
    _hockey_stick,
    optimal_epsilon,
    renyi_epsilon,
)

NEVER_BELOW = 1e-12


def rational_delta(odds: Fraction, times: int, total: Fraction) -> float:
    """δ at e^ε' = total of randomized response with e^ε = odds, without any rounding."""
    keep = odds / (1 + odds)
    result = Fraction(0)
    for flips in range(times + 1):
        ratio = odds ** (times - 2 * flips)
        if ratio > total:
            chance = math.comb(times, flips) * keep ** (times - flips) * (1 - keep) ** flips
            result += chance * (1 - total / ratio)
    return float(result)


def summed_delta(epsilon: float, times: int, total: float) -> float:
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


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.3, 4.0, 60.0, 31400.0])
@pytest.mark.parametrize("times", [1, 2, 17, 7850])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_epsilon_inverts_delta(epsilon, times, delta):
    found = optimal_epsilon(epsilon, times, delta)
    assert 0.0 <= found <= epsilon * times
    if found < epsilon * times:
        assert summed_delta(epsilon, times, found) <= delta
    less = found - max(1e-9 * found, 1e-9 * epsilon)
    if less > 0.0 and found < 1e5:  # beyond, one rounding of ε' moves δ by more
        assert summed_delta(epsilon, times, less) > delta * (1 - 1e-6)


def test_one_mechanism_by_hand():
    keep = 1 / (1 + math.exp(-2.0))
    by_hand = math.log((keep - 1e-3) / (1 - keep))
    assert optimal_epsilon(2.0, 1, 1e-3) == pytest.approx(by_hand, rel=1e-9)


def test_nothing_and_everything():
    assert optimal_epsilon(1.0, 0, 1e-5) == 0.0
    assert optimal_epsilon(0.0, 9, 1e-5) == 0.0
    assert optimal_epsilon(1.0, 9, 1e-300) == 9.0  # below what sums resolve: basic composition
    assert optimal_epsilon(1e-8, 10, 1e-3) == 0.0  # δ(0) is below 10⁻³ already


def test_probabilities_hold_twelve_digits_at_any_size():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        for n, flip in [(50, 0.3), (10**6, 1e-7), (10**6, 0.3), (10**9, 0.018), (10**9, 0.5)]:
            mean = n * flip
            spots = np.round(mean + math.sqrt(mean) * np.array([-30, -5, 0, 0.1, 7, 30]))
            spots = np.unique(np.clip(np.append(spots, [0, 1, 15, 16, 17]), 0, n))
            for j, found in zip(spots.tolist(), _binomial(spots, n, flip).tolist(), strict=True):
                exact = (
                    mpmath.loggamma(n + 1)
                    - mpmath.loggamma(j + 1)
                    - mpmath.loggamma(n - j + 1)
                    + j * mpmath.log(flip)
                    + (n - j) * mpmath.log(1 - mpmath.mpf(flip))
                )
                if exact > -650:
                    assert found == pytest.approx(float(mpmath.exp(exact)), rel=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "times"), [(0.01, 10**9), (4.0, 10**9), (1e-4, 10**8), (4.0, 745750)]
)
def test_large_compositions_obey_the_central_limit(epsilon, times):
    """L has mean nε·tanh(ε/2) and standard deviation ε√n/cosh(ε/2)."""
    found = optimal_epsilon(epsilon, times, 1e-6)
    mean = times * epsilon * math.tanh(epsilon / 2)
    deviation = epsilon * math.sqrt(times) / math.cosh(epsilon / 2)
    assert mean + 2 * deviation < found < mean + 5 * deviation
    bound = renyi_epsilon(Counter({epsilon: times}), 1e-6)
    assert found <= bound < mean + 5.7 * deviation


@pytest.mark.parametrize(("epsilon", "times", "delta"), [(0.5, 40, 1e-5), (2.0, 100, 1e-3)])
def test_optimum_equals_the_privacy_loss_distribution(epsilon, times, delta):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
    law = pld.from_privacy_parameters(parameters, value_discretization_interval=epsilon)
    theirs = law.self_compose(times).get_epsilon_for_delta(delta)
    assert optimal_epsilon(epsilon, times, delta) == pytest.approx(theirs, rel=1e-6)

    flip = 1 / (1 + math.exp(epsilon))
    law = pld.from_randomized_response(2 * flip, 2, value_discretization_interval=epsilon / 64)
    theirs = law.self_compose(times).get_epsilon_for_delta(delta)
    assert optimal_epsilon(epsilon, times, delta) == pytest.approx(theirs, rel=2e-2)
