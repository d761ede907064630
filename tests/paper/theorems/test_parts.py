"""The numbers of every theorem, computed anew at a small size and as they are kept."""

import math

import numpy as np
import pytest
from scipy import optimize

from paper.theorems.aggregation import FREE
from paper.theorems.convergence import CLIPPED, NAMES, SPLITS, build
from paper.theorems.total_error import resolution


def test_dither_is_uniform_and_the_control_is_not(parts):
    part = parts["dither"]
    keys = ("p_joint", "p_input", "p_neighbour")
    for row in part["lattices"]:
        assert min(*row["p_coordinate"], *(row[key] for key in keys)) > 1e-7, row["lattice"]
        assert row["outside"] == 0
        assert abs(row["second_moment_sigmas"]) < 5
    assert part["control"]["p_input"] < 1e-12


def test_codebooks_overload_at_the_radius_that_the_theorem_allows(parts):
    for row in parts["dither"]["overload"]:
        share = dict(zip(row["radii"], row["overloaded"], strict=True))
        assert share[0.0] == 0
        assert share[1.0] > 0.3
        if row["lattice"] == "Z":  # (|x| + Δ/2 − γ)/Δ, Δ = γ/2
            expected = np.clip((np.array(row["radii"]) - 0.75) / 0.5, 0, 1)
            count = parts["dither"]["samples"] // 16
            assert np.abs(expected - row["overloaded"]).max() < 5 * 0.5 / math.sqrt(count)


def test_payloads_have_the_computed_distances(parts):
    part = parts["total_error"]
    allowed = resolution(part["samples"])
    for row in part["checked"]:
        assert abs(row["measured"] - row["computed"]) < allowed, row
    for row in part["staircase"]:
        assert row["measured"] < allowed
        assert row["kolmogorov"] == pytest.approx(2**-17, rel=1e-3)
    assert all(row["kolmogorov"] > 1e-4 for row in (*part["line"], *part["plane"]))


def test_the_average_errs_as_computed_while_nothing_is_clipped(parts):
    """Five standard errors: ‖·‖² of m entries of kurtosis at most 6 scatters by √(5/m).

    0.3% of the entries are clipped here: their bias is below 2% of the noise at every K.
    """
    part = parts["aggregation"]
    for row in part["rows"]:
        if row["features"] != "even" or row["scheme"] != FREE:
            continue
        for count, found, exact, bound in zip(
            row["counts"], row["measured"], row["exact"], row["bound"], strict=True
        ):
            draws = part["trials"] * (part["clients"] // count)
            scatter = math.sqrt(5 / part["parameters"] / draws)
            assert abs(found / exact - 1) < 5 * scatter + 0.02, (row["weights"], count)
            assert found < bound


def test_convergence_stays_below_the_bound(parts):
    for row in parts["convergence"]["rows"]:
        if row["scheme"] != CLIPPED:
            for form in ("printed", "corrected"):
                assert (np.array(row["highest"]) < row[form]).all()


@pytest.fixture(scope="module", params=[(name, split) for name in NAMES for split in SPLITS])
def problem(request):
    pytest.importorskip("sklearn")
    return build(*request.param)


def test_the_minimum_is_a_minimum(problem):
    rng = np.random.default_rng(0)
    found = optimize.minimize(
        problem.loss, rng.normal(size=problem.parameters) / 10, options={"gtol": 1e-7}
    )
    assert problem.loss(problem.optimum) <= found.fun + 1e-12
    assert np.abs(found.x - problem.optimum).max() < 1e-3


def gradients(problem, model):
    """∇F_k^i of every client and sample, samples × clients × parameters."""
    models = np.tile(model, (problem.clients, 1))
    samples = range(problem.inputs.shape[1])
    return np.array([problem.gradient(models, np.full(problem.clients, i)) for i in samples])


def test_the_gradient_is_that_of_the_loss(problem):
    model = np.random.default_rng(1).normal(size=problem.parameters) / 5
    every = gradients(problem, model)
    expected = optimize.approx_fprime(model, problem.loss, 1e-7)
    assert np.allclose(problem.weights @ every.mean(axis=0), expected, atol=1e-5)
    squares = np.square(every).sum(axis=2).mean(axis=0)
    models = np.tile(model, (problem.clients, 1))
    assert np.allclose(problem.squared_gradients(models), squares)
