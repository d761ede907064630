"""Theorem III.4: the formulas, and that one is a bound of the other."""

import numpy as np
import pytest

from jopeq.analysis.theory import aggregation_bound, aggregation_error
from jopeq.schemes.quantized import JoPEQ


def test_equal_weights_fall_as_one_over_k():
    errors = [aggregation_error(np.full(k, 1 / k), np.ones(k), 0.5) for k in (1, 10, 100)]
    assert errors == pytest.approx([4.5, 0.45, 0.045])


def test_the_bound_is_attained_by_equal_gradients():
    steps, xi = np.array([0.1, 0.1, 0.1]), 2.0
    update = xi * steps.sum()  # all gradients alike and as long as allowed
    error = aggregation_error([0.3, 0.7], [update, update], 0.5)
    assert aggregation_bound([0.3, 0.7], [xi**2, xi**2], 0.5, steps) == pytest.approx(error)


@pytest.mark.parametrize("spread", [2.0, 3.0])
def test_the_error_is_that_of_a_payload(private, spread):
    """Uniform entries never leave the ball at these spreads: within five standard errors."""
    update = np.random.default_rng(0).uniform(-1.0, 1.0, 200_000)
    scheme = JoPEQ(epsilon=4.0, rate=2.0, coding="entropy", spread=spread)
    payload, counted = scheme.encode(
        update, seed=bytes(32), noise=private("aggregation"), statistics=True
    )
    squares = np.square(scheme.decode(payload) - update)
    variance = scheme.target.noise.variance
    expected = aggregation_error([1.0], [np.linalg.norm(update)], variance, spread)
    assert counted.clipped == 0
    assert abs(squares.sum() - expected) <= 5 * squares.std() * len(squares) ** 0.5
