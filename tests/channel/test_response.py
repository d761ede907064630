import math
from fractions import Fraction

import pytest

from jopeq.channel.channel import Channel, level_positions
from jopeq.channel.response import best_response, randomized_response
from jopeq.random.rational import exp_floor


def largest_ratio(channel: Channel) -> Fraction:
    return max(Fraction(max(column), min(column)) for column in zip(*channel.counts, strict=True))


@pytest.mark.parametrize(
    ("epsilon", "most", "centre", "worst", "letters"),
    [
        (1.0, 2, 4.016, 4.016, 2),
        (1.0, 4, 3.279, 5.025, 3),
        (1.0, 8, 3.279, 5.025, 3),
        (2.0, 2, 1.057, 1.057, 2),
        (2.0, 4, 0.543, 1.013, 3),
        (2.0, 8, 0.543, 1.013, 3),
        (3.0, 2, 0.554, 0.554, 2),
        (3.0, 4, 0.201, 0.387, 4),
        (3.0, 8, 0.186, 0.448, 5),
        (4.0, 2, 0.409, 0.409, 2),
        (4.0, 4, 0.090, 0.156, 4),
        (4.0, 8, 0.072, 0.165, 5),
        (6.0, 2, 0.343, 0.343, 2),
        (6.0, 4, 0.044, 0.053, 4),
        (6.0, 8, 0.016, 0.035, 8),
    ],
)
def test_the_table_of_the_design(epsilon, most, centre, worst, letters):
    channel = best_response(epsilon, most)
    assert channel.letters == letters
    assert round(channel.distortion(0.0), 3) == centre
    ends = level_positions(channel.levels)  # the error is linear between levels
    assert round(max(map(channel.distortion, ends)), 3) == worst


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.5, 4.0, 8.0, 16.0, 40.0])
@pytest.mark.parametrize("letters", [2, 3, 5, 8, 17])
def test_randomized_response_is_private_and_unbiased_in_exact_arithmetic(epsilon, letters):
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
