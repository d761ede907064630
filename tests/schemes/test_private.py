"""What the private quantized schemes share: the noise's parameters and the ball."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import jopeq
from jopeq.noise import Laplace, MultivariateT
from jopeq.randomness import PrivateStream

NAMES = ["laplace+sdq", "t+sdq", "jopeq"]


@pytest.mark.parametrize("name", NAMES)
def test_epsilon_is_kept_as_the_nominal_one(name: str) -> None:
    guarantee = jopeq.scheme(name, epsilon=3.0, rate=4.0).guarantee
    assert guarantee.nominal == 3.0
    assert guarantee.adversary == "server"
    assert guarantee.unit == "sample"


@pytest.mark.parametrize("name", NAMES)
def test_the_norm_in_the_clear_is_admitted(name: str) -> None:
    assert "norm travels in the clear" in str(jopeq.scheme(name, epsilon=2.0, rate=4.0).guarantee)
    centered = jopeq.scheme(name, epsilon=2.0, rate=4.0, center=True)
    assert "norm and mean travel in the clear" in str(centered.guarantee)
    clipped = jopeq.scheme(name, epsilon=2.0, rate=4.0, clip=1.0)
    assert "in the clear" not in str(clipped.guarantee)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_samples_beyond_the_ball_count_as_its_edge(name: str, lattice: str) -> None:
    """The guarantee rests on it: what is far must not show."""
    scheme = jopeq.scheme(name, epsilon=2.0, rate=1.0, lattice=lattice, clip=1.0)
    direction = np.ones(scheme.dimension) / math.sqrt(scheme.dimension)
    arguments: dict[str, Any] = {
        "seed": bytes(32),
        "noise": PrivateStream.reproducible(bytes(32)),
        "statistics": True,
    }
    far, far_counted = scheme.encode(np.tile(50 * direction, 40), **arguments)
    near, near_counted = scheme.encode(np.tile(1.0000001 * direction, 40), **arguments)
    assert far == near
    assert far_counted.clipped == near_counted.clipped == 40
    inside, counted = scheme.encode(np.tile(0.99 * direction, 40), **arguments)
    assert counted.clipped == 0
    assert len(inside) == len(far)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", ["Z", "A2"])
def test_support_is_the_papers_unless_given(name: str, lattice: str) -> None:
    scheme = jopeq.scheme(name, epsilon=4.0, rate=2.0, lattice=lattice)
    assert scheme._codebook.gamma == pytest.approx(scheme._target.gamma(2.0))
    given = jopeq.scheme(name, epsilon=4.0, rate=2.0, lattice=lattice, gamma=1.5)
    assert given._codebook.gamma == pytest.approx(1.5)


@pytest.mark.parametrize("name", ["t+sdq", "jopeq"])
def test_t_parameters_reach_the_law(name: str) -> None:
    scheme = jopeq.scheme(name, epsilon=3.0, rate=4.0, lattice="A2", nu=12.0, squared_scale=0.75)
    assert scheme._target.noise == MultivariateT(12.0, 0.75, 2)
    assert scheme.spec.count("nu") == 1


def test_laplace_on_a_lattice_is_laplace_in_every_entry() -> None:
    scheme = jopeq.scheme("laplace+sdq", epsilon=3.0, rate=2.0, lattice="A2")
    assert scheme.noise == Laplace(2 * math.sqrt(2) / 3, 2)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("laplace+sdq", {"nu": 5.0}, "nu and squared_scale belong to law='t'"),
        ("jopeq", {"nu": 5.0}, "nu and squared_scale belong to law='t'"),
        ("jopeq", {"law": "cauchy"}, "law must be one of laplace, t"),
        ("t+sdq", {"squared_scale": 1.0}, "squared_scale needs nu"),
        ("t+sdq", {"nu": 1.0}, "nu must be above 2"),
        ("t+sdq", {"nu": 1.0, "gamma": 2.0}, "nu must be above 2"),
        (
            "jopeq",
            {"law": "t", "nu": 1.0, "rate": None, "step": 0.1, "coding": "entropy"},
            "nu must be above 2",
        ),
        ("jopeq", {"epsilon": -1.0}, "epsilon must be a positive finite number"),
        ("jopeq", {"epsilon": "4"}, "epsilon must be a number"),
    ],
)
def test_impossible_noise_is_refused_at_construction(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        jopeq.scheme(name, **({"epsilon": 3.0, "rate": 2.0} | parameters))
