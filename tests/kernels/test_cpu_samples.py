"""Samples into the unit ball and behind noise: the plain path's bytes at every edge."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq


def test_samples_are_brought_just_short_of_the_edge_of_the_ball(agree):
    """Of samples whose grid rounding is a tie there, which only one part in 10¹² decides."""
    scheme = jopeq.scheme("t", epsilon=4.0, size=2, clip=1.0)
    short = (np.arange(1, 4001, 2) + 0.5) * scheme.grid
    long = np.sqrt(1.0 - short * short)
    rest = long / scheme.grid % 1.0
    rows = np.stack((short, long), axis=1)[(rest > 0.1) & (rest < 0.4)]
    assert len(rows) > 100
    agree(scheme, 2.0 * rows)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("laplace", {"epsilon": 47.0}),
        ("t", {"epsilon": 99.0, "size": 1}),
        ("t", {"epsilon": 99.0, "size": 2}),
        ("t", {"epsilon": 99.0, "size": 4}),
        ("laplace+sdq", {"epsilon": 47.0, "rate": 12.0, "gamma": 3.0}),
        ("t+sdq", {"epsilon": 99.0, "rate": 12.0, "gamma": 3.0}),
        ("laplace+sdq", {"epsilon": 60.0, "rate": 6.0, "gamma": 3.0, "lattice": "A2"}),
        ("t+sdq", {"epsilon": 99.0, "rate": 6.0, "gamma": 3.0, "lattice": "A2"}),
        ("t+sdq", {"epsilon": 99.0, "rate": 3.0, "gamma": 3.0, "lattice": "D4"}),
    ],
    ids=str,
)
def test_noisy_values_are_cut_where_the_sampler_ends(name, parameters, agree, private):
    """Only narrow noise, and inputs on the edge of the ball, reach the end in a test."""
    scheme = jopeq.scheme(name, clip=1.0, **parameters)
    size, count = scheme.dimension, 4000
    sample = np.zeros(size, np.float32)
    sample[0] = 1.0
    limit = scheme.recipe.noise.limit
    noisy = sample + scheme.noise.sample(private("noise"), 0, count)
    assert (np.abs(noisy) > limit).any()
    agree(scheme, np.tile(sample, count))
