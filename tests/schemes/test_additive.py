"""Noise without quantization: the law of what is decoded, its grid, its guarantee."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import jopeq
from jopeq.random.samplers import MAX_EXPONENTIAL
from jopeq.random.streams import PrivateStream
from jopeq.schemes.ball import into_unit_ball
from jopeq.wire.payload import open_payload

NOISE = bytes(range(60, 92))
T = {"nu": 12.0, "squared_scale": 0.75}


def decoded(scheme: Any, x: list[float], count: int) -> np.ndarray:
    payload = scheme.encode(np.tile(x, (count, 1)), noise=PrivateStream.reproducible(NOISE))
    return scheme.decode(payload).astype(np.float64)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 20.0])
@pytest.mark.parametrize("x", [0.0, 0.7, -1.0])
def test_laplace_is_laplace_around_every_input(
    epsilon: float, x: float, assert_follows: Any
) -> None:
    scheme = jopeq.scheme("laplace", epsilon=epsilon, clip=1.0)
    values = decoded(scheme, [x], 30_000)[:, 0]
    assert_follows(values, stats.laplace(loc=x, scale=2 / epsilon).cdf)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_t_is_multivariate_t_around_every_input(size: int, assert_follows: Any) -> None:
    scheme = jopeq.scheme("t", epsilon=3.0, size=size, clip=1.0, **T)
    x = [0.6] + [-0.1] * (size - 1)
    off = decoded(scheme, x, 30_000) - x
    for axis in range(size):
        assert_follows(off[:, axis], stats.t(df=12.0, scale=math.sqrt(0.75)).cdf)
    radius = np.square(off).sum(axis=1) / (size * 0.75)  # one χ² for all: an F law, not a product
    assert_follows(radius, stats.f(size, 12.0).cdf)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("name", ["laplace", "t"])
def test_distortion_is_what_the_bytes_show(name: str, epsilon: float, assert_mean: Any) -> None:
    parameters = {"nu": 12.0} if name == "t" else {}  # moments enough for a standard error
    scheme = jopeq.scheme(name, epsilon=epsilon, clip=1.0, **parameters)
    off = decoded(scheme, [0.0] * scheme.dimension, 50_000)
    assert_mean(np.square(off).mean(axis=1), scheme.distortion)


def test_laplace_keeps_exactly_its_epsilon() -> None:
    for epsilon in (0.1, 1.0, 4.0):
        guarantee = jopeq.scheme("laplace", epsilon=epsilon).guarantee
        assert guarantee.epsilon == guarantee.nominal == epsilon
        assert guarantee.is_exact
        assert guarantee.for_update(100).epsilon == pytest.approx(100 * epsilon)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_calibrated_t_keeps_its_epsilon(size: int, epsilon: float) -> None:
    guarantee = jopeq.scheme("t", epsilon=epsilon, size=size).guarantee
    assert guarantee.epsilon <= epsilon
    assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert guarantee.sample_size == size
    assert not guarantee.is_exact


def test_the_papers_pairs_hold_less_than_their_name() -> None:
    for epsilon, nu, squared_scale, true in ((2.0, 12.0, 1.0, 3.99), (3.0, 14.0, 0.5, 5.91)):
        scheme = jopeq.scheme("t", epsilon=epsilon, nu=nu, squared_scale=squared_scale)
        assert scheme.guarantee.nominal == epsilon
        assert scheme.guarantee.epsilon == pytest.approx(true, abs=0.01)


SCHEMES = [
    jopeq.scheme("laplace", epsilon=e, clip=1.0) for e in (1e-4, 0.01, 1.0, 4.0, 40.0, 1000.0)
] + [jopeq.scheme("t", epsilon=e, clip=1.0) for e in (0.01, 1.0, 4.0, 40.0)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.spec)
def test_the_grid_is_fine_and_32_bits_reach(scheme: Any) -> None:
    assert math.frexp(scheme.grid)[0] == 0.5  # a power of two
    assert (scheme.noise.reach + 1) / scheme.grid <= 2**31 - 1
    spread = math.sqrt(scheme.noise.variance)
    if scheme.name == "laplace":
        assert scheme.grid <= spread * 2.0**-15


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.spec)
def test_what_is_sent_lies_on_the_grid(scheme: Any) -> None:
    payload = scheme.encode(np.linspace(-1, 1, 2000))
    words = np.frombuffer(open_payload(payload)[1], "<i4").astype(np.float64)
    np.testing.assert_allclose(
        scheme.decode(payload), (words * scheme.grid)[:2000].astype(np.float32), rtol=1e-7
    )
    # noise this narrow (ε > 48) is not cut, but its sampler ends: see ``add_noise``
    end = (
        scheme.noise.reach if scheme.noise.reach >= 2 else 1 + MAX_EXPONENTIAL * scheme.noise.scale
    )
    assert np.abs(words * scheme.grid).max() <= end + scheme.grid


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_rounding_to_the_grid_does_not_leave_the_ball(size: int) -> None:
    """Or two samples could be more than the diameter apart, and ε a little more than promised."""
    scheme = jopeq.scheme("t", epsilon=3.0, size=size)
    rows = np.random.default_rng(0).standard_normal((50_000, size))
    rows[0], rows[1] = 0.0, 1 / math.sqrt(size)
    rows, _ = into_unit_ball(rows * np.linspace(0.1, 10, 50_000)[:, None])
    on_grid = scheme._on_grid(rows)
    assert np.square(on_grid).sum(axis=1).max() <= 1.0
    assert np.abs(on_grid - rows).max() <= scheme.grid
    np.testing.assert_array_equal(on_grid / scheme.grid, np.rint(on_grid / scheme.grid))


def test_inputs_closer_than_the_grid_send_the_same() -> None:
    """What is sent tells nothing of the bits of x below the grid (Mironov 2012)."""
    scheme = jopeq.scheme("laplace", epsilon=2.0, clip=1.0)
    base = np.arange(-100, 100) * (64 * scheme.grid)
    near = base + 0.3 * scheme.grid
    stream = PrivateStream.reproducible(NOISE)
    assert scheme.encode(base, noise=stream) == scheme.encode(near, noise=stream)


def test_entries_beyond_the_clip_count_as_the_clip() -> None:
    scheme = jopeq.scheme("laplace", epsilon=2.0, clip=0.5)
    stream = PrivateStream.reproducible(NOISE)
    far, edge = (scheme.encode(np.full(50, v), noise=stream) for v in (9.0, 0.5))
    assert far == edge


@pytest.mark.parametrize("size", [0, -1, 2.0, "2", True, 1 << 17, 10**400])
def test_size_is_a_whole_number(size: Any) -> None:
    with pytest.raises(ValueError, match="size must be a whole number"):
        jopeq.scheme("t", epsilon=2.0, size=size)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["laplace", "t"])
def test_epsilon_is_positive_and_finite(name: str, epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be a positive finite number"):
        jopeq.scheme(name, epsilon=epsilon)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("t", {"nu": 1.0}, "nu must be above 2"),
        ("t", {"nu": 3.0, "squared_scale": -1.0}, "squared_scale must be a positive number"),
        ("gaussian", {"delta": 1e-320}, "a delta above 0"),
        ("l2", {"epsilon": 1e300}, "decay must be at most"),
    ],
)
def test_impossible_noise_is_refused_at_construction(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        jopeq.scheme(name, **({"epsilon": 3.0} | parameters))
