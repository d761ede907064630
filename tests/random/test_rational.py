import math
from fractions import Fraction

import pytest

from jopeq.random.rational import exp_floor, log_ceiling


def exp_series(x):
    """Partial sums of the exponential series are below e^x, and here by less than 1e-40."""
    term, total = Fraction(1), Fraction(1)
    for n in range(1, 160):
        term *= Fraction(x) / n
        total += term
    return total


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.5, 4.0, 5.5, 8.0, 16.0, 30.0])
def test_exp_floor_is_just_below(epsilon):
    gap = exp_series(epsilon) - exp_floor(epsilon)
    assert 0 < gap < exp_floor(epsilon) / 10**50


@pytest.mark.parametrize("ratio", [Fraction(3, 2), Fraction(2718281828, 10**9), Fraction(55, 1)])
def test_log_ceiling_is_the_smallest_float_above_the_truth(ratio):
    found = log_ceiling(ratio)
    assert exp_series(found) >= ratio
    assert exp_series(math.nextafter(found, 0)) < ratio
    assert log_ceiling(Fraction(7, 7)) == 0.0
    assert exp_floor(1e300) == exp_floor(64.0) > 2**64  # beyond all counts
