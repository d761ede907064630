import math

import numpy as np
import pytest
from scipy.optimize import linprog

from jopeq.channel.channel import level_positions, level_weights
from jopeq.channel.design import Problem, design, relax


def plain_programme(epsilon, levels, values):
    """The programme written down directly: K × G probabilities over a grid of decoder values."""
    v, w, ratio, size = (
        level_positions(levels),
        level_weights(levels),
        math.exp(epsilon),
        len(values),
    )
    unit, below = np.eye(size), []
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
    found = design(Problem(4.0, 8), 8)
    assert found is not None
    assert found.error == pytest.approx(plain_programme(4.0, 8, found.values), rel=1e-6)
