import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from jopeq.channel import design as module
from jopeq.channel.channel import TOTAL, level_positions, level_weights
from jopeq.channel.design import Problem, lower_bound, optimal_channel, relax, solve_channel
from jopeq.channel.response import best_response, randomized_response
from jopeq.channel.tables import UNBIASED, from_entry, shipped_channel, to_entry, verify
from jopeq.errors import DesignError

EPSILONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)


def check_exactly(channel, epsilon):
    """Privacy and unbiasedness in rational arithmetic, by other means than the library's."""
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


@pytest.mark.parametrize("most", [4, 8, 16, 32])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_shipped_channels(epsilon, most):
    channel = shipped_channel(epsilon, most)
    assert channel is not None
    check_exactly(channel, epsilon)
    assert channel.letters <= most
    assert channel.epsilon > epsilon - 1e-6
    assert channel == optimal_channel(epsilon, most)
    ours = channel.gaussian_distortion()
    assert ours <= best_response(epsilon, most, sigma=1 / 3).gaussian_distortion()
    assert lower_bound(epsilon) <= ours
    assert channel.counts == tuple(row[::-1] for row in channel.counts[::-1])


GAINS = [
    *((2.0, 16, 0.6544, 0.6681), (3.0, 8, 0.2031, 0.2166), (4.0, 8, 0.0764, 0.0860)),
    *((6.0, 16, 0.0142, 0.0174), (8.0, 32, 0.0031, 0.0041)),
]


@pytest.mark.parametrize(("epsilon", "most", "ours", "response"), GAINS)
def test_gains_over_randomized_response(epsilon, most, ours, response):
    channel = optimal_channel(epsilon, most)
    rival = best_response(epsilon, most, sigma=1 / 3)
    assert channel.gaussian_distortion() <= 0.98 * rival.gaussian_distortion()
    assert channel.gaussian_distortion() == pytest.approx(ours, abs=1e-4)
    assert rival.gaussian_distortion() == pytest.approx(response, abs=1e-4)
    assert module.best_channel(epsilon, most) == channel


def test_best_channel_keeps_the_response_where_little_is_won():
    for epsilon, most in ((4.0, 2), (4.0, 4), (2.0, 8), (0.5, 16)):
        assert module.best_channel(epsilon, most) == best_response(epsilon, most, sigma=1 / 3)


@pytest.mark.parametrize(("epsilon", "most"), [(4.0, 8), (1.2, 5), (9.5, 5)])
def test_a_fresh_solve(epsilon, most):
    relax.cache_clear()
    channel = solve_channel(epsilon, most)
    check_exactly(channel, epsilon)
    if epsilon == 1.2:
        relax.cache_clear()  # a solver gives the same channel again
        assert solve_channel(epsilon, most).fingerprint == channel.fingerprint
    rival = best_response(epsilon, most, sigma=1 / 3)
    assert channel.gaussian_distortion() <= rival.gaussian_distortion()
    shipped = shipped_channel(epsilon, most)
    if shipped is not None:
        expected = shipped.gaussian_distortion()
        assert channel.gaussian_distortion() == pytest.approx(expected, rel=2e-3)


def test_two_letters_need_no_solver():
    for epsilon in (0.5, 4.0):
        assert solve_channel(epsilon, 2) == optimal_channel(epsilon, 2)


def test_the_bound_is_below_every_channel():
    for epsilon in (1.0, 4.0, 6.0):
        bound = lower_bound(epsilon)
        for letters in range(2, 13):
            assert bound <= randomized_response(epsilon, letters).gaussian_distortion()
        for levels in (4, 9, 12):
            assert bound <= relax(Problem(epsilon, levels)).bound + 1e-9


def test_a_bound_outside_the_table(monkeypatch):
    monkeypatch.setattr(module, "MAX_DESIGNED_LETTERS", 9)  # the full one takes seconds
    bound = lower_bound(3.25)
    lower_bound.cache_clear()
    assert lower_bound(3.5) < bound < lower_bound(3.0)


@pytest.mark.parametrize(
    ("epsilon", "bits", "input_bits"),
    [
        *((4.0, bits, None) for bits in (1, 2, 3, 4)),
        *((1.0, 3, None), (8.0, 3, None), (4.0, 2, 3), (4.0, 1, 3), (4.0, 3, 2)),
    ],
)
def test_mvu_is_private_and_unbiased(epsilon, bits, input_bits):
    channel = module.mvu_channel(epsilon, bits, input_bits)
    check_exactly(channel, epsilon)
    assert not channel.is_dither_shared
    assert channel.letters <= 2**bits
    assert channel.levels == 2 ** (bits if input_bits is None else input_bits)
    if input_bits is None:
        rival = randomized_response(epsilon, 2**bits).conditional_variance.mean()
        assert channel.conditional_variance.mean() <= rival * (1 + 1e-6)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (optimal_channel, (-1.0, 8), "epsilon must be positive"),
        (module.best_channel, (1.0, 1), "max_letters must be at least 2"),
        (lower_bound, (20.0,), "epsilon must be in"),
        (module.mvu_channel, (1.0, 0), "bits must be an integer from 1 to 5, got 0"),
        (module.mvu_channel, (1.0, 2, 9), "input_bits must be an integer from 1 to 5, got 9"),
        (module.mvu_channel, (20.0, 2), "epsilon must be in"),
    ],
)
def test_bad_parameters_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def plain_programme(epsilon, levels, values):
    """The programme written down directly: K × G probabilities over a grid of decoder values."""
    v, w, size = level_positions(levels), level_weights(levels), len(values)
    ratio, unit, below = math.exp(epsilon), np.eye(size), []
    for j in range(levels):
        pick = np.kron(np.eye(levels)[j], unit)
        below += [np.hstack([pick, -ratio * unit]), np.hstack([-pick, unit])]
    equal = np.zeros((2 * levels, (levels + 1) * size))
    for j in range(levels):
        equal[j, j * size : (j + 1) * size] = 1
        equal[levels + j, j * size : (j + 1) * size] = values
    cost = np.concatenate([(w[:, None] * (values - v[:, None]) ** 2).ravel(), np.zeros(size)])
    target = np.concatenate([np.ones(levels), v])
    rows = np.vstack(below)
    result = linprog(cost, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=equal, b_eq=target)
    assert result.status == 0
    return result.fun + 1 / (3 * (levels - 1) ** 2)


def test_the_relaxation_against_the_plain_programme():
    relaxed = relax(Problem(3.0, 5))
    plain = plain_programme(3.0, 5, np.linspace(-2, 2, 81))
    assert relaxed.bound <= relaxed.error <= relaxed.bound * (1 + 2e-6)
    assert relaxed.error <= plain * (1 + 1e-9) <= relaxed.error * 1.002


def test_a_design_against_the_plain_programme():
    found = module.design(Problem(4.0, 8), 8)
    assert found is not None
    assert found.error == pytest.approx(plain_programme(4.0, 8, found.values), rel=1e-6)


def test_tampered_entries_are_refused():
    entry = to_entry(optimal_channel(4.0, 8))
    assert from_entry(entry, 4.0) == optimal_channel(4.0, 8)
    with pytest.raises(DesignError, match="not private enough"):
        from_entry(entry, 3.999)
    first = list(entry["counts"][0])
    first[0], first[-1] = first[0] + first[-1] // 2, first[-1] - first[-1] // 2
    with pytest.raises(DesignError, match="not private enough"):
        from_entry({**entry, "counts": [first, *entry["counts"][1:]]}, 4.0)
    with pytest.raises(DesignError, match="bias"):
        from_entry({**entry, "values": [v * 1.0001 for v in entry["values"]]}, 4.0)
    with pytest.raises(ValueError, match=r"sum to 2\*\*32"):
        from_entry({**entry, "counts": [[1] * 8, *entry["counts"][1:]]}, 4.0)
    sure = replace(randomized_response(4.0, 2), counts=((TOTAL, 0), (0, TOTAL)), values=(-1, 1))
    with pytest.raises(DesignError, match="not private enough"):
        verify(sure, 4.0)
