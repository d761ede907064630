"""Kernels of words on a fine grid give the plain path's bytes: Laplace and t noise, any size."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq

EPSILONS = [0.1, 0.5, 4.0, 20.0]
EXTRA_LANE = 1 << 31  # read when twelve exponent bits are zero


@pytest.mark.parametrize("epsilon", [*EPSILONS, 60.0])
@pytest.mark.parametrize(("name", "size"), [("laplace", None), ("t", 1)])
def test_words(name, size, epsilon, agree, gaussian):
    parameters = {"epsilon": epsilon} | ({} if size is None else {"size": size})
    agree(jopeq.scheme(name, **parameters), gaussian(5003))


@pytest.mark.parametrize(
    "scheme",
    [jopeq.scheme("laplace", epsilon=4.0), jopeq.scheme("t", epsilon=4.0, size=1)],
    ids=lambda scheme: scheme.name,
)
def test_the_rare_branch_of_the_logarithm(scheme, agree, gaussian):
    _, _, lanes = agree(scheme, gaussian(120_000))
    assert EXTRA_LANE in lanes


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 4, 6, 8, 64])
def test_t_words(size, epsilon, agree, gaussian):
    agree(jopeq.scheme("t", epsilon=epsilon, size=size), gaussian(5003))


def test_t_words_of_a_given_law(agree, gaussian):
    scheme = jopeq.scheme("t", epsilon=3.0, size=2, nu=5.35, squared_scale=0.75)
    agree(scheme, gaussian(5003))


@pytest.mark.parametrize("size", [4, 8])
def test_the_gamma_sampler_tries_three_times(size, agree, gaussian):
    scheme = jopeq.scheme("t", epsilon=2.0, size=size, nu=4.0, squared_scale=2.0)
    _, _, lanes = agree(scheme, gaussian(30_000 * size))
    assert {0, 1, 2, 3, EXTRA_LANE} <= lanes


@pytest.mark.parametrize("size", [3, 5])
def test_odd_sizes_are_left_to_the_plain_path(size, on):
    scheme = jopeq.scheme("t", epsilon=2.0, size=size)
    with on():
        assert scheme.kernel_recipe(100) is None
        assert scheme.decode(scheme.encode(np.ones(7))).shape == (7,)


@pytest.mark.parametrize("value", [0.0, -0.0, 0.25, 1.0, -1.0, 1 + 2**-23, 1e-38, 3e32])
@pytest.mark.parametrize(
    "scheme",
    [
        jopeq.scheme("laplace", epsilon=4.0, clip=1.0),
        jopeq.scheme("t", epsilon=4.0, clip=1.0, size=1),
        jopeq.scheme("t", epsilon=4.0, size=2),
        jopeq.scheme("t", epsilon=4.0, size=4),
        jopeq.scheme("t", epsilon=4.0, size=2, clip=1.0),
        jopeq.scheme("t", epsilon=4.0, size=4, clip=0.5),
    ],
    ids=lambda scheme: f"{scheme.name}-{scheme.dimension}-{scheme.clip}",
)
def test_constant_updates(scheme, value, agree):
    agree(scheme, np.full(301, value, dtype=np.float32))
