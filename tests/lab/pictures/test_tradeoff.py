"""Distortion against rate: the points are the schemes' own figures, the figure is drawn."""

import math

import pytest

from jopeq import scheme
from jopeq.lab.pictures.tradeoff import SCHEMES, tradeoff


@pytest.fixture(scope="module")
def points():
    return tradeoff(epsilons=(4.0,), rates=(1.0, 2.0))


def test_the_points_are_the_schemes_own_figures(points):
    for p in points:
        parameters = {} if p.name == "laplace" else {"rate": p.rate}
        built = scheme(p.name, epsilon=p.epsilon, **parameters)
        assert (p.distortion, p.proven) == (built.distortion, built.guarantee.epsilon)
        assert p.bias == built.bias()
        assert math.isfinite(p.distortion)


def test_what_a_scheme_refuses_has_no_point():
    points = tradeoff(epsilons=(1.0,), rates=(1.0, 1.5, 2.0, 6.0))
    drawn = {name: [p.rate for p in points if p.name == name] for name in SCHEMES}
    assert drawn["mvu"] == [1.0, 2.0]  # whole bits up to 5
    for name in ("laplace", "laplace+sdq", "jopeq", "response"):
        assert drawn[name] == [1.0, 1.5, 2.0, 6.0]
    points = tradeoff(epsilons=(10.0,), rates=(2.0,))  # mvu's linear programme has no solution
    assert [p.name for p in points] == [name for name in SCHEMES if name != "mvu"]
