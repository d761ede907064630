"""The low-order-bits attack works on the textbook sampler and finds nothing to hold on here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jopeq import scheme
from jopeq.analysis.empirical import grid_leak, is_reachable, textbook_laplace, textbook_leak
from jopeq.schemes.quantized import log_interval

DRAWS = 400_000


def letters_of(built, x, count, private, label):
    """The integers that scheme ``laplace`` sends for ``count`` entries x."""
    samples = np.full((count, 1), x)
    return built.to_letters(samples, 0, None, private(label)).values[:, 0].astype(np.int64)


# The attack


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_textbook_sampler_leaks(epsilon):
    assert textbook_leak(epsilon) > 0.2
    assert textbook_leak(epsilon, x=1.0, other=-1.0) > 0.2


def test_the_textbook_sampler_is_laplace(private, assert_follows):
    words = private("textbook").words64(lane=0, start=0, count=50_000)
    law = scheme("laplace", epsilon=4.0).noise
    assert_follows(textbook_laplace(0.3, law.scale, words) - 0.3, law.distribution)


@pytest.mark.parametrize("x", [0.3, -0.3, 0.0, 1.0, 0.123456789])
@pytest.mark.parametrize("scale", [2.0, 0.5, 1 / 3])
def test_the_true_input_is_always_among_the_suspects(x, scale, private):
    words = private(f"suspects {x} {scale}").words64(lane=0, start=0, count=20_000)
    outputs = textbook_laplace(x, scale, words)
    assert is_reachable(outputs, x, scale).mean() >= 0.999


def test_an_input_on_the_same_side_of_nothing_is_told_apart(private):
    """Not only the ends of the ball: inputs a hair apart are told apart just as well."""
    words = private("hair").words64(lane=0, start=0, count=10_000)
    outputs = textbook_laplace(0.3, 0.5, words)
    assert is_reachable(outputs, 0.3 + 1e-9, 0.5).mean() < 0.8


# Our scheme


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
def test_the_grid_leaks_nothing(epsilon):
    assert grid_leak(epsilon) == 0.0
    assert grid_leak(epsilon, x=1.0, other=-1.0) == 0.0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 30.0])
def test_outputs_are_multiples_of_a_power_of_two(epsilon):
    built = scheme("laplace", epsilon=epsilon, clip=1.0)
    mantissa, _ = math.frexp(built.grid)
    assert mantissa == 0.5
    deviation = math.sqrt(built.noise.variance)
    assert built.grid <= min(deviation, 1.0) * 2.0**-15 or built.grid < built.noise.reach * 2.0**-29
    for x in (0.3, -0.3, 1.0):
        decoded = built.decode(built.encode(np.full(5_000, x))).astype(np.float64)
        multiples = decoded / built.grid
        assert np.abs(multiples - np.rint(multiples)).max() <= np.abs(multiples).max() * 2.0**-24


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_low_order_bits_say_nothing_about_the_input(epsilon, private, assert_counts):
    built = scheme("laplace", epsilon=epsilon)
    for x in (0.3, -0.3, 0.30001):
        letters = letters_of(built, x, DRAWS, private, f"bits {x}")
        assert_counts(np.bincount(letters & 63, minlength=64))


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_every_multiple_has_the_probability_of_the_law(epsilon, private, assert_counts):
    """On a coarse grid each multiple can be counted: both inputs reach all, as the law says.

    The grid is set to 1/8, which changes no line of the sampler.
    """
    built = scheme("laplace", epsilon=epsilon)
    built.__dict__["grid"] = grid = 0.125
    span = np.arange(-2 * round(4 / grid / epsilon), 2 * round(4 / grid / epsilon) + 1)
    counted, chances = [], []
    for x in (0.3, -0.3):
        near = np.rint(x / grid) * grid
        letters = letters_of(built, x, DRAWS, private, f"coarse {x}")
        counts = np.bincount(np.clip(letters - span[0] + 1, 0, len(span) + 1))
        edges = (np.arange(span[0], span[-1] + 2) - 0.5) * grid - near
        low, high = np.append(-np.inf, edges), np.append(edges, np.inf)
        log_chance = log_interval(built.noise, low, high)
        assert_counts(counts, DRAWS * np.exp(log_chance))
        assert counts.min() > 0
        counted.append(counts)
        chances.append(log_chance)
        steps = np.abs(np.diff(log_chance[1:-1]))
        assert steps.max() <= grid / built.noise.scale + 1e-12
    moved = np.abs(chances[0] - chances[1])
    assert moved.max() <= 0.5 * epsilon * (2 * np.rint(0.3 / grid) * grid) + 1e-9


def test_both_ends_differ_by_epsilon_on_the_real_grid():
    built = scheme("laplace", epsilon=4.0)
    grid = built.grid
    places = np.concatenate((np.arange(-400, 400), np.arange(-80_000, 80_000, 997)))
    low, high = (places - 0.5) * grid, (places + 0.5) * grid
    ratio = log_interval(built.noise, low - 1, high - 1) - log_interval(
        built.noise, low + 1, high + 1
    )
    assert np.abs(ratio).max() == pytest.approx(4.0, rel=1e-9)
