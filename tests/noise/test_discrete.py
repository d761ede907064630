"""Discrete Laplace noise in integers: the ratios in exact fractions, the law from the words."""

import math
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jopeq.noise.discrete import TOTAL, DiscreteLaplace, most_moves

CASES = [(0.05, 1), (0.5, 3), (1.0, 1), (2.5, 26), (4.0, 2), (8.0, 3), (20.0, 7), (40.0, 1)]


def exp_below(exponent):
    """A rational number below e^x, by less than 1e-30 of it: the series at x/64, 64 times."""
    term, total = Fraction(1), Fraction(1)
    for n in range(1, 40):
        term *= exponent / 64 / n
        total += term
    bits = total.numerator.bit_length() - total.denominator.bit_length()
    unit = 2 ** (200 - bits)
    return (Fraction(math.floor(total * unit), unit)) ** 64


@pytest.mark.parametrize(("epsilon", "moves"), CASES)
def test_neighbouring_counts_and_tails_keep_to_the_ratio_in_exact_arithmetic(epsilon, moves):
    noise = DiscreteLaplace(epsilon, moves)
    assert min(noise.counts) >= 1
    assert noise.counts[0] + 2 * sum(noise.counts[1:]) == TOTAL == 2**64
    most = exp_below(Fraction(epsilon) / moves)
    assert abs(float(most) / math.exp(epsilon / moves) - 1) < 1e-13
    # single values short of T, and the tails k ≥ 0, k ≥ 1, …, k ≥ T
    single, beyond = noise.counts[:-1], [*accumulate(reversed(noise.counts))][::-1]
    for row in (single, beyond):
        for inner, outer in pairwise(row):
            assert outer <= inner <= most * outer
    # the lump at T never makes the tail of a clamped output lighter than the unbounded law's
    assert beyond[-1] * most >= single[-1] * (1 / (1 - 1 / most)) * Fraction(99, 100)
    # the printed ε is that of the largest ratio over a move of m
    pairs = [pair for row in (single, beyond) for pair in zip(row, row[moves:], strict=False)]
    ratio = max(Fraction(*pair) for pair in pairs)
    assert ratio <= exp_below(Fraction(epsilon))
    assert exp_below(Fraction(noise.exact_epsilon) * (1 + Fraction(1, 10**25))) >= ratio
    assert noise.exact_epsilon <= epsilon
    if epsilon < 20:
        assert noise.exact_epsilon >= epsilon - 1e-6


@settings(max_examples=60)
@example(epsilon=1.0634734419089225, moves=1)  # an odd count left over must not go to 0
@example(epsilon=2.5, moves=26)  # 2.5/26 rounds up
@example(epsilon=5.0, moves=3)
@given(epsilon=st.floats(0.01, 40.0), moves=st.integers(1, 32))
def test_epsilon_is_never_exceeded(epsilon, moves):
    if moves > 300 * epsilon:
        moves = 1  # a table of ten thousands of fractions: right, but slow
    noise = DiscreteLaplace(epsilon, moves)
    assert noise.exact_epsilon <= epsilon
    # fine steps waste at most the rounding of the smallest counts, 2²⁴ and more
    if noise.counts[-2] > 1 << 20:
        assert noise.exact_epsilon >= epsilon - 1e-6 * max(1, moves)


@pytest.mark.parametrize(
    ("epsilon", "moves"), [(0.1, 1), (0.5, 1), (1.0, 1), (4.0, 2), (6.0, 20), (8.0, 16)]
)
def test_each_value_gets_exactly_its_words(epsilon, moves):
    noise = DiscreteLaplace(epsilon, moves)
    counts = [*reversed(noise.counts[1:]), *noise.counts]
    first = 0
    for value, count in zip(range(-noise.reach, noise.reach + 1), counts, strict=True):
        ends = np.array([first, first + count - 1], dtype=np.uint64)
        assert noise.sample(ends).tolist() == [value, value]
        first += count
    assert first == TOTAL
    np.testing.assert_allclose(noise.chances, np.array(counts) / TOTAL, rtol=1e-12)
    r, values = math.exp(-epsilon / moves), np.arange(-noise.reach, noise.reach + 1.0)
    law = r ** np.abs(values)
    np.testing.assert_allclose(noise.chances[1:-1], (law / law.sum())[1:-1], rtol=1e-6, atol=1e-15)
    assert noise.variance == pytest.approx(2 * r / (1 - r) ** 2, rel=1e-12)
    assert noise.chances @ values**2 == pytest.approx(noise.variance, rel=1e-7)
    assert noise.chances @ values == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.0003, 0.001, 0.01, 0.3])
def test_the_most_moves_are_the_last_whose_table_is_short_enough(epsilon):
    most = most_moves(epsilon, 10_000)
    DiscreteLaplace(epsilon, most)
    with pytest.raises(
        ValueError, match=rf"over {most + 1} moves needs a table.*raise epsilon or lower"
    ):
        DiscreteLaplace(epsilon, most + 1)
    assert most_moves(epsilon, 1) == 1
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must be a positive number"):
            DiscreteLaplace(wrong, 1)
    for moves in (0, -1, 1.5, None):
        with pytest.raises(ValueError, match="moves must be a whole number"):
            DiscreteLaplace(1.0, moves)
