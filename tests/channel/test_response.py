import math
from fractions import Fraction

import pytest

from jopeq.channel.response import best_response, randomized_response
from jopeq.random.rational import exp_floor


def largest_ratio(channel):
    return max(Fraction(max(column), min(column)) for column in zip(*channel.counts, strict=True))


def test_randomized_response_is_private_and_unbiased_in_exact_arithmetic():
    for epsilon in (0.01, 0.5, 1.0, 2.5, 4.0, 8.0, 16.0, 40.0):
        for letters in (2, 3, 5, 8, 17):
            channel = randomized_response(epsilon, letters)
            assert largest_ratio(channel) <= exp_floor(epsilon)
            assert channel.epsilon <= epsilon
            if epsilon <= 8:
                assert channel.epsilon > epsilon - 2e-5
            assert channel.bias <= 4e-16 * max(channel.values)


def test_best_response_is_the_best_of_all():
    for epsilon in (0.7, 3.0, 5.0):
        every = [randomized_response(epsilon, letters) for letters in range(2, 25)]
        assert best_response(epsilon, 24) == min(every, key=lambda c: c.distortion(0.0))
        assert best_response(epsilon, 24, sigma=0.25) == min(
            every, key=lambda c: c.gaussian_distortion(0.25)
        )
    assert best_response(4.0, 10**9).letters == 5


def test_bad_parameters_are_refused():
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon"):
            randomized_response(epsilon, 4)
    with pytest.raises(ValueError, match="raise epsilon"):
        randomized_response(1e-12, 3)
    with pytest.raises(ValueError, match="letters must be at least 2"):
        randomized_response(1.0, 1)
    with pytest.raises(ValueError, match="best_response"):
        randomized_response(1.0, 257)
    with pytest.raises(ValueError, match="max_letters"):
        best_response(1.0, 0)
