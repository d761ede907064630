"""Kernels of A2, D4 and E8 give the plain path's bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import jopeq
from jopeq.schemes.staircase import StaircaseLattice

EPSILONS = [0.1, 0.5, 4.0, 20.0]
EXTRA_LANE = 1 << 31
# bits per entry for alphabets that are a power of two, odd, small enough to be searched, and not
CODEBOOKS = [
    *(("A2", rate) for rate in (1, 1.41, 1.5, math.log2(3), 2, 2.33, 3, 4.01, 5, 8)),
    *(("D4", rate) for rate in (1, 1.165, 1.5, 2, 2.33, 3)),
    *(("E8", rate) for rate in (0.5, 0.99, 1, 1.2, 1.5)),
]


def sdq(lattice, rate, **parameters):
    return jopeq.scheme("sdq", rate=rate, lattice=lattice, gamma=1.3, **parameters)


@pytest.mark.parametrize(("lattice", "rate"), CODEBOOKS)
def test_sdq(lattice, rate, agree, gaussian):
    _, counted, _ = agree(sdq(lattice, rate, spread=1.0), gaussian(5003))
    assert 0 < counted.overloaded < counted.samples


@pytest.mark.parametrize(("lattice", "rate"), [("A2", 2), ("D4", 1.165), ("E8", 1)])
def test_dq(lattice, rate, agree, gaussian):
    agree(jopeq.scheme("dq", rate=rate, lattice=lattice, gamma=1.3), gaussian(5003))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    ("lattice", "rate"),
    [("A2", 1), ("A2", 2.33), ("A2", 5), ("D4", 1.5), ("D4", 2.33), ("E8", 1), ("E8", 1.2)],
)
@pytest.mark.parametrize("name", ["laplace+sdq", "t+sdq", "jopeq"])
def test_noisy_and_quantized(name, lattice, rate, epsilon, agree, gaussian):
    scheme = jopeq.scheme(name, epsilon=epsilon, rate=rate, lattice=lattice, spread=1.0)
    _, counted, _ = agree(scheme, gaussian(3003))
    assert counted.clipped > 0


@pytest.mark.parametrize("law", ["laplace", "t"])
@pytest.mark.parametrize("lattice", ["A2", "D4", "E8"])
def test_jopeq_with_either_law(lattice, law, agree, gaussian):
    scheme = jopeq.scheme("jopeq", epsilon=2.0, rate=1.0, lattice=lattice, law=law)
    agree(scheme, gaussian(5003))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    ("lattice", "rate", "moves"),
    [
        ("A2", 1.41, 1),
        ("A2", 2.33, 3),
        ("A2", 4.01, 9),
        ("D4", 1, 2),
        ("D4", 2.33, 3),
        ("E8", 1, 2),
    ],
)
def test_staircase(lattice, rate, moves, epsilon, agree, gaussian):
    if not StaircaseLattice(epsilon, lattice, moves).noise.is_drawable:
        epsilon /= 4
    scheme = jopeq.scheme(
        "staircase", epsilon=epsilon, rate=rate, lattice=lattice, moves=moves, spread=1.0
    )
    _, counted, lanes = agree(scheme, gaussian(2003))
    assert counted.clipped > 0
    if scheme.core.noise.listed is not None:
        assert lanes <= {0}, "its noise comes from a list"
    elif epsilon >= 4.0:
        assert {4, 8} <= lanes, "no two proposals were rejected"


@pytest.mark.parametrize("lattice", ["A2", "D4", "E8"])
def test_the_gamma_sampler_and_the_rare_branch_on_lattices(lattice, agree, gaussian):
    scheme = jopeq.scheme("t+sdq", epsilon=2.0, rate=1.0, lattice=lattice)
    _, _, lanes = agree(scheme, gaussian(120_000))
    assert EXTRA_LANE in lanes
    if lattice != "A2":
        assert {1, 2} <= lanes


@pytest.mark.parametrize("lattice", ["A2", "D4", "E8"])
def test_points_too_far_are_refused_alike(lattice, same_outcome):
    scheme = sdq(lattice, 1.5, clip=1e-20)
    kind, message = same_outcome(lambda: scheme.encode(np.full(99, 1e10), seed=bytes(32)))
    assert kind is jopeq.UpdateError
    assert "too far" in message


@pytest.mark.parametrize("value", [0.0, 0.25, 0.5, 1.0, -1.0, 1e-38, 3e32])
@pytest.mark.parametrize(
    "scheme",
    [
        sdq("A2", 2),
        sdq("D4", 1.5),
        sdq("E8", 1),
        jopeq.scheme("staircase", epsilon=2.0, rate=1.5, lattice="A2", moves=1),
    ],
    ids=lambda scheme: f"{scheme.name}-{scheme.dimension}",
)
def test_constant_updates(scheme, value, agree):
    agree(scheme, np.full(301, value, dtype=np.float32))
