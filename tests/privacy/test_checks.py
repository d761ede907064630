import math

import pytest

from jopeq.privacy.accounting import check_count, check_delta, check_number, private_side


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan, "0.1", None])
def test_delta_must_be_a_probability_below_one(delta):
    with pytest.raises(ValueError, match="delta must be"):
        check_delta(delta)


@pytest.mark.parametrize("count", [1.5, True, "3"])
def test_counts_are_whole(count):
    with pytest.raises(ValueError, match="rounds must be a whole number, got"):
        check_count("rounds", count)


def test_counts_are_not_negative():
    with pytest.raises(ValueError, match="rounds must not be negative, got -1"):
        check_count("rounds", -1)


def test_numbers_may_be_infinite_but_not_nan():
    check_number("epsilon", math.inf)
    with pytest.raises(ValueError, match="epsilon must be"):
        check_number("epsilon", math.nan)


def test_private_side_moves_up_to_where_it_holds():
    assert private_side(1.0, math.inf, lambda value: value >= 1.0) == 1.0
    found = private_side(1.0, math.inf, lambda value: value > 1.0)
    assert 1.0 < found < 1.0 + 1e-12
    assert private_side(1.0, 2.0, lambda value: False) == 2.0
