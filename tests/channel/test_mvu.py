"""MVU's channel: private and unbiased in exact arithmetic, and of least variance."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from jopeq.channel.channel import TOTAL, level_positions, randomized_response
from jopeq.channel.mvu import UNBIASED, mvu_channel, verify
from jopeq.errors import DesignError


@pytest.mark.parametrize(
    ("epsilon", "bits"), [*((4.0, bits) for bits in (1, 2, 3, 4)), (1.0, 3), (8.0, 3)]
)
def test_it_is_private_unbiased_and_better_than_a_response(epsilon, bits):
    """In rational arithmetic, by other means than the library's."""
    channel = mvu_channel(epsilon, bits)
    term = series = Fraction(1)
    for n in range(1, 120):
        term *= Fraction(epsilon) / n
        series += term  # below e^ε
    for column in zip(*channel.counts, strict=True):
        assert Fraction(max(column), min(column)) <= series
    for j, row in enumerate(channel.counts):
        assert sum(row) == TOTAL
        mean = sum(count * Fraction(v) for count, v in zip(row, channel.values, strict=True))
        bias = mean / TOTAL - Fraction(2 * j, channel.levels - 1) + 1
        assert abs(bias) <= UNBIASED * max(channel.values)
    assert channel.epsilon <= epsilon
    assert channel.counts == tuple(row[::-1] for row in channel.counts[::-1])
    assert not channel.is_dither_shared
    assert channel.letters <= channel.levels == 2**bits
    rival = randomized_response(epsilon, 2**bits).conditional_variance.mean()
    assert channel.conditional_variance.mean() <= rival * (1 + 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "bits", "least"),
    [(0.5, 2, 15.992), (1.25, 2, 2.4880), (1.4125, 2, 1.8801), (1.5, 2, 1.6361),
     (1.5, 3, 1.6098), (2.2387, 2, 0.6378), (2.5, 3, 0.4524), (2.6102, 3, 0.4020)],
)  # fmt: skip
def test_its_variance_is_within_a_percent_of_what_a_finer_search_found(epsilon, bits, least):
    """Where a response leads to a worse channel."""
    assert mvu_channel(epsilon, bits).conditional_variance.mean() < 1.01 * least


def test_it_solves_the_plain_programme():
    """The programme written down directly: probabilities of all letters on all levels."""
    epsilon, levels = 4.0, 8
    channel = mvu_channel(epsilon, 3)
    v, values = level_positions(levels), np.array(channel.values)
    size, ratio, below = len(values), math.exp(epsilon), []
    unit = np.eye(size)
    for j in range(levels):
        pick = np.kron(np.eye(levels)[j], unit)
        below += [np.hstack([pick, -ratio * unit]), np.hstack([-pick, unit])]
    equal = np.zeros((2 * levels, (levels + 1) * size))
    for j in range(levels):
        equal[j, j * size : (j + 1) * size] = 1
        equal[levels + j, j * size : (j + 1) * size] = values
    cost = np.concatenate([((values - v[:, None]) ** 2).ravel() / levels, np.zeros(size)])
    rows = np.vstack(below)
    target = np.concatenate([np.ones(levels), v])
    result = linprog(cost, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=equal, b_eq=target)
    assert result.status == 0
    assert channel.conditional_variance.mean() == pytest.approx(result.fun, rel=1e-5)


def test_a_channel_that_leaks_or_leans_is_refused():
    channel = mvu_channel(4.0, 2)
    assert verify(channel, 4.0) is channel
    sure = replace(randomized_response(4.0, 2), counts=((TOTAL, 0), (0, TOTAL)), values=(-1, 1))
    leaning = replace(channel, values=tuple(1.0001 * value for value in channel.values))
    for wrong, epsilon in ((channel, 3.999), (sure, 4.0), (leaning, 4.0)):
        with pytest.raises(DesignError):
            verify(wrong, epsilon)


@pytest.mark.parametrize(("epsilon", "bits"), [(1.0, 0), (1.0, 6), (20.0, 2), (-1.0, 2)])
def test_bad_parameters_are_refused(epsilon, bits):
    with pytest.raises(ValueError, match="bits" if epsilon == 1.0 else "epsilon"):
        mvu_channel(epsilon, bits)
