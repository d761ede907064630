"""The spread: the design's numbers, computed and measured with real payloads, and its minimum."""

import math
from dataclasses import replace

import numpy as np
import pytest

from jopeq import scheme
from jopeq.entries.spread import best_spread, beyond_ball, normalised_error

NUMBERS = [  # rate, spread, clients, normalised error; ε = 4
    (2.0, 3.0, 1, 0.86),
    (2.0, 1.5, 1, 0.30),
    (2.0, 3.0, 10, 0.086),
    (2.0, 2.0, 10, 0.053),
    (1.0, 3.0, 10, 0.37),
    (1.0, 1.5, 10, 0.14),
]
UPDATE = np.random.default_rng(12).normal(size=60_000)


def response(rate=2.0, **parameters):
    return scheme("response", epsilon=4.0, rate=rate, **parameters)


def check_measured(built, spread, clients, private):
    """The same Gaussian update, encoded by so many clients and averaged, is as far off as planned.

    On lattices the plan's own draws err too, by a percent.
    """
    chosen = replace(built, spread=spread)
    copies = [
        chosen.decode(chosen.encode(UPDATE, noise=private(f"{k} {spread}"), seed=bytes([k] * 32)))
        for k in range(clients)
    ]
    error = np.square(np.mean(copies, axis=0, dtype=np.float64) - UPDATE)
    energy, found = np.square(UPDATE).mean(), normalised_error(built, spread, clients)
    own = 0.03 * found if built.dimension > 1 else 0.0
    tolerance = 5 * error.std() / math.sqrt(len(error)) / energy + own
    assert tolerance < 0.1 * found
    assert abs(error.mean() / energy - found) < tolerance


@pytest.mark.parametrize(("rate", "spread", "clients", "expected"), NUMBERS)
def test_the_numbers_of_the_design(rate, spread, clients, expected, private):
    found = normalised_error(response(rate), spread, clients)
    assert round(found, 3 if expected < 0.1 else 2) == expected
    check_measured(response(rate), spread, clients, private)


@pytest.mark.parametrize(
    "built",
    [
        scheme("jopeq", epsilon=4.0, rate=2.0),
        scheme("laplace+sdq", epsilon=1.0, rate=1.0),
        scheme("jopeq", epsilon=3.0, rate=2.0, levels="odd"),
        scheme("dq", rate=2.0),
        scheme("t+sdq", epsilon=4.0, rate=2.0, lattice="A2"),
    ],
    ids=lambda value: value.spec,
)
@pytest.mark.parametrize(("spread", "clients"), [(2.0, 1), (1.2, 10), (2.5, 30)])
def test_the_bias_of_clamping_is_in_the_error(built, spread, clients, private):
    check_measured(built, spread, clients, private)


@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0])
def test_the_clipping_error_is_that_of_clipped_gaussians(dimension, sigma, assert_mean):
    draws = np.random.default_rng(3).normal(size=(200_000, dimension)) * sigma
    norms = np.linalg.norm(draws, axis=1)
    cut = draws * np.minimum(1.0, 1.0 / norms)[:, None]
    assert_mean(np.square(cut - draws).mean(axis=1), beyond_ball(sigma, dimension, 2) / dimension)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *(("response", {"rate": rate}) for rate in (1.0, 2.0, 3.0)),
        ("jopeq", {"rate": 2.0, "lattice": "A2"}),
    ],
)
def test_the_best_spread_is_a_minimum(name, parameters):
    """More clients want a wider scale: noise averages out, the bias of clipping does not."""
    built, spreads = scheme(name, epsilon=4.0, **parameters), []
    for clients in (1, 10, 1000):
        spreads.append(best_spread(built, clients))
        least = normalised_error(built, spreads[-1], clients)
        if name == "response":  # computed, not simulated
            for factor in (0.5, 0.8, 0.97, 1.03, 1.25, 2.0):
                assert normalised_error(built, spreads[-1] * factor, clients) > least
    assert spreads == sorted(spreads)
    assert spreads[-1] > 1.5 * spreads[0]


def test_auto_is_the_best_spread():
    built = response(spread="auto", clients=10)
    assert built.spread == best_spread(response(), 10) == pytest.approx(2.0, abs=0.05)
    assert '"spread":' in built.spec
    assert built.guarantee.epsilon == response().guarantee.epsilon
