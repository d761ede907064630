"""Strongly convex problems: gradients, minima and curvatures against independent arithmetic."""

import numpy as np
import pytest
from scipy import optimize

from jopeq.experiments.theory_problems import NAMES, SPLITS, build

pytest.importorskip("sklearn")


@pytest.fixture(scope="module", params=[(name, split) for name in NAMES for split in SPLITS])
def problem(request):
    return build(*request.param)


def test_the_minimum_is_a_minimum(problem):
    rng = np.random.default_rng(0)
    found = optimize.minimize(
        problem.loss, rng.normal(size=problem.parameters) / 10, options={"gtol": 1e-7}
    )
    assert problem.loss(problem.optimum) <= found.fun + 1e-12
    assert np.abs(found.x - problem.optimum).max() < 1e-3


def test_the_gradient_is_that_of_the_loss(problem):
    rng = np.random.default_rng(1)
    model = rng.normal(size=problem.parameters) / 5
    models = np.tile(model, (problem.clients, 1))
    samples = problem.inputs.shape[1]
    every = [problem.gradient(models, np.full(problem.clients, i)) for i in range(samples)]
    mean = np.mean(every, axis=0).mean(axis=0)
    expected = optimize.approx_fprime(model, problem.loss, 1e-7)
    assert np.allclose(mean, expected, atol=1e-5)
    squares = np.square(every).sum(axis=2).mean(axis=0)
    assert np.allclose(problem.squared_gradients(models), squares)


def _mean_gradients(problem, model):
    """∇F_k of every client."""
    models = np.tile(model, (problem.clients, 1))
    samples = range(problem.inputs.shape[1])
    return np.mean([problem.gradient(models, np.full(problem.clients, i)) for i in samples], axis=0)


def test_the_curvatures_bound_the_hessians(problem):
    low, high = problem.curvatures
    rng = np.random.default_rng(2)
    for _ in range(10):
        one, two = rng.normal(size=(2, problem.parameters)) / 5
        along = (_mean_gradients(problem, one) - _mean_gradients(problem, two)) @ (one - two)
        distance = np.square(one - two).sum()
        assert (along >= low * distance * (1 - 1e-9)).all()
        assert (along <= high * distance * (1 + 1e-9)).all()


def test_the_largest_curvature_is_attained_at_zero(problem):
    """Where the logistic loss bends most, along the direction in which a client's inputs spread."""
    bends = []
    for client, inputs in enumerate(problem.inputs):
        step = 1e-3 * np.linalg.eigh(inputs.T @ inputs)[1][:, -1]
        gap = _mean_gradients(problem, step)[client] - _mean_gradients(problem, -step)[client]
        bends.append(gap @ (2 * step) / np.square(2 * step).sum())
    assert max(bends) == pytest.approx(problem.curvatures[1], rel=1e-4)


def test_sorted_samples_are_heterogeneous():
    for name in NAMES:
        gaps = {split: build(name, split).gap for split in SPLITS}
        assert 0 < gaps["iid"] < 0.2 * gaps["heterogeneous"]


def test_a_factor_scales_the_loss_and_leaves_the_minimum():
    plain, small = build("linear", "iid"), build("linear", "iid", 1e-3)
    assert np.array_equal(plain.optimum, small.optimum)
    assert small.gap == pytest.approx(1e-3 * plain.gap)
    assert small.curvatures == pytest.approx([1e-3 * c for c in plain.curvatures])


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="name must be one of linear, logistic"):
        build("cubic", "iid")
    with pytest.raises(ValueError, match="split must be one of"):
        build("linear", "sorted")
