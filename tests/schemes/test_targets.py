"""Targets: which law, which support, and which parameters go together."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jopeq.noise import Laplace, MultivariateT
from jopeq.schemes.additive import NoiseTarget


@pytest.mark.parametrize("dimension", [1, 2, 4, 8])
def test_laplace_covers_the_l1_diameter_of_the_ball(dimension: int) -> None:
    law = NoiseTarget("laplace", 4.0, dimension).noise
    assert law == Laplace(2 * math.sqrt(dimension) / 4.0, dimension)
    assert law.epsilon() == pytest.approx(4.0)
    paper = NoiseTarget("laplace", 4.0, dimension, paper_sensitivity=True).noise
    assert paper.epsilon() == pytest.approx(4.0 * math.sqrt(dimension))


def test_t_laws_are_calibrated_given_or_half_given() -> None:
    assert NoiseTarget("t", 3.0, 2, 12.0, 0.75).noise == MultivariateT(12.0, 0.75, 2)
    half = NoiseTarget("t", 3.0, 2, nu=6.0).noise
    assert isinstance(half, MultivariateT)
    assert half.nu == 6.0
    assert half.squared_scale == pytest.approx(1.131, abs=5e-4)
    assert half.variance == pytest.approx(1.697, abs=5e-4)
    chosen = NoiseTarget("t", 3.0, 2).noise
    assert chosen.variance <= half.variance
    assert chosen.epsilon() == pytest.approx(3.0)
    assert NoiseTarget("t", 4.0, 2, nu=6.0).noise.variance == pytest.approx(0.921, abs=5e-4)


def test_the_papers_sensitivity_is_half_the_diameter() -> None:
    law = NoiseTarget("t", 2.0, 2, nu=12.0, paper_sensitivity=True).noise
    assert law.epsilon(1.0) == pytest.approx(2.0)
    assert law.epsilon() > 3.9


@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0])
def test_the_papers_supports(rate: float) -> None:
    assert NoiseTarget("laplace", 4.0, 1).gamma(rate) == 2 * rate + 0.25
    law = NoiseTarget("t", 3.0, 2, 14.0, 0.5)
    assert law.gamma(rate) == pytest.approx(1.5 * (1 + 0.5 * 14 / 12))
    eight = NoiseTarget("t", 3.0, 8, 14.0, 0.5)
    assert eight.gamma(rate) == pytest.approx(2 * law.gamma(rate))
    line = NoiseTarget("t", 3.0, 1, 14.0, 0.5)
    assert line.gamma(rate) == pytest.approx(law.gamma(rate))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"law": "cauchy"}, "law must be one of laplace, t.*, got 'cauchy'"),
        ({"law": "laplace", "nu": 5.0}, "nu and squared_scale belong to law='t'"),
        ({"law": "laplace", "squared_scale": 5.0}, "nu and squared_scale belong to law='t'"),
        ({"law": "t", "squared_scale": 1.0}, "squared_scale needs nu: give both, or neither"),
        (
            {"law": "t", "nu": 5.0, "squared_scale": 1.0, "paper_sensitivity": True},
            "paper_sensitivity has nothing to choose",
        ),
        ({"law": "t", "epsilon": 0.0}, "epsilon must be a positive finite number"),
        ({"law": "t", "epsilon": math.inf}, "for no privacy use scheme='sdq' or scheme='none'"),
    ],
)
def test_parameters_that_do_not_go_together(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoiseTarget(**({"epsilon": 3.0, "dimension": 2} | arguments))


@pytest.mark.parametrize("nu", [2.0, 0.5, -1.0, math.nan])
def test_nu_leaves_a_finite_variance(nu: float) -> None:
    with pytest.raises(ValueError, match="nu must be above 2"):
        _ = NoiseTarget("t", 3.0, 2, nu=nu).noise
