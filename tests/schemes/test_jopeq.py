"""JoPEQ: what its noise is matched to, and what the server really learns."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import jopeq
from jopeq.noise import Laplace, MultivariateT
from jopeq.random.streams import PrivateStream

# ε asked for, rate, ε against the server at the paper's γ
PUBLISHED = [
    (4.0, 1.0, 10.12), (4.0, 2.0, 8.04), (4.0, 3.0, 5.19), (4.0, 4.0, 4.41),
    (3.0, 1.0, 4.29), (3.0, 2.0, 4.01), (3.0, 3.0, 3.43), (3.0, 4.0, 3.17),
]  # fmt: skip


@pytest.mark.parametrize(("epsilon", "rate", "server"), PUBLISHED)
def test_epsilon_against_the_server(epsilon: float, rate: float, server: float) -> None:
    guarantee = jopeq.scheme("jopeq", epsilon=epsilon, rate=rate).guarantee
    assert guarantee.epsilon == pytest.approx(server, abs=0.005)
    assert guarantee.nominal == epsilon
    assert guarantee.epsilon > epsilon
    assert f"asked for: {epsilon:g}" in str(guarantee)


def channel(epsilon: float, rate: float, dither: float, x: float) -> np.ndarray:
    """P(letter | x, dither), from the paper alone: matched Laplace noise, γ = 2R + 1/ε."""
    letters = round(2**rate)
    step = 2 * (2 * rate + 1 / epsilon) / letters
    scale = math.sqrt(((2 / epsilon) ** 2 * 2 - step**2 / 12) / 2)
    edges = [(i - letters / 2) * step - dither - x for i in range(1, letters)]

    def below(z: float) -> float:
        return math.exp(z / scale) / 2 if z < 0 else 1 - math.exp(-z / scale) / 2

    def between(low: float, high: float) -> float:
        # mirror what lies above 0, so that the small tail is never a difference of ones
        return below(high) - below(low) if high <= 0 or low < 0 else below(-low) - below(-high)

    inner = [between(a, b) for a, b in itertools.pairwise(edges)]
    return np.array([below(edges[0]), *inner, below(-edges[-1])])


@pytest.mark.parametrize(("epsilon", "rate", "server"), PUBLISHED)
def test_the_same_from_the_probabilities_of_every_letter(
    epsilon: float, rate: float, server: float
) -> None:
    letters = round(2**rate)
    step = 2 * (2 * rate + 1 / epsilon) / letters
    worst = 0.0
    for dither in np.linspace(-step / 2, step / 2, 65):
        rows = [channel(epsilon, rate, float(dither), x) for x in np.linspace(-1, 1, 9).tolist()]
        table = np.array(rows)
        np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
        worst = max(worst, float(np.log(table.max(axis=0) / table.min(axis=0)).max()))
    assert worst == pytest.approx(server, abs=0.005)
    scheme = jopeq.scheme("jopeq", epsilon=epsilon, rate=rate)
    assert scheme.guarantee.is_exact
    assert worst == pytest.approx(scheme.guarantee.epsilon, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "rate"), [(4.0, 1.0), (4.0, 2.0), (2.0, 2.0)])
@pytest.mark.parametrize("x", [-1.0, 0.3])
def test_the_bytes_have_those_probabilities(
    epsilon: float, rate: float, x: float, assert_counts: Any
) -> None:
    """The letters of one dither value, over many noises."""
    scheme = jopeq.scheme("jopeq", epsilon=epsilon, rate=rate, clip=1.0)
    count = 60_000
    stream = PrivateStream.reproducible(bytes(range(32)))
    dither = 0.21 * scheme.cells.step
    noisy = x + scheme.noise.sample(stream, 0, count) + dither
    letters, _ = scheme.codebook.quantize(noisy)
    expected = count * channel(epsilon, rate, dither, x)
    seen = np.bincount(letters, minlength=len(expected))
    is_common = expected >= 5
    assert seen[~is_common].sum() <= 40
    assert_counts(
        np.append(seen[is_common], seen[~is_common].sum() + 5),
        np.append(expected[is_common], expected[~is_common].sum() + 5),
    )


def test_theorem_iii_3_has_no_noise_and_no_privacy() -> None:
    scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0, gamma=3.0)
    assert scheme.noise is None
    assert scheme.guarantee.epsilon == math.inf
    assert scheme.guarantee.nominal == 4.0
    assert "No privacy" in str(scheme.guarantee)
    assert "no noise is added" in str(scheme.guarantee)
    noises = [PrivateStream.reproducible(bytes([n]) * 32) for n in range(3)]
    assert len({scheme.encode(np.ones(99), seed=bytes(32), noise=n) for n in noises}) == 1


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0, 8.0])
def test_noise_and_dither_have_the_targets_variance_together(epsilon: float, rate: float) -> None:
    scheme = jopeq.scheme("jopeq", epsilon=epsilon, rate=rate)
    assert isinstance(scheme.noise, Laplace)
    total = scheme.noise.variance + scheme.cells.second_moment
    assert total == pytest.approx(2 * (2 / epsilon) ** 2)


@pytest.mark.parametrize("lattice", ["A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2))], ids=str)
def test_on_lattices_the_covariances_add_up(lattice: Any) -> None:
    scheme = jopeq.scheme("jopeq", epsilon=2.0, rate=2.0, lattice=lattice, coding="entropy")
    assert isinstance(scheme.noise, MultivariateT)
    total = scheme.noise.covariance + scheme.cells.covariance
    np.testing.assert_allclose(total, scheme.target.noise.covariance, atol=1e-12)
    assert scheme.guarantee.epsilon > 2.0
    assert not scheme.guarantee.is_exact


def test_more_rate_brings_the_true_epsilon_to_the_nominal_one() -> None:
    true = [jopeq.scheme("jopeq", epsilon=4.0, rate=r).guarantee.epsilon for r in range(1, 13)]
    assert true == sorted(true, reverse=True)
    assert true[-1] == pytest.approx(4.0, abs=1e-3)


@pytest.mark.parametrize("lattice", ["Z", "A2"])
@pytest.mark.parametrize("law", ["laplace", "t"])
def test_the_law_can_be_chosen(lattice: str, law: str) -> None:
    scheme = jopeq.scheme("jopeq", epsilon=2.0, rate=4.0, lattice=lattice, law=law)
    assert isinstance(scheme.noise, Laplace if law == "laplace" else MultivariateT)
    default = jopeq.scheme("jopeq", epsilon=2.0, rate=4.0, lattice=lattice)
    assert (type(default.noise) is type(scheme.noise)) == ((lattice == "Z") == (law == "laplace"))


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_decoded_error_has_the_targets_variance_for_every_input(
    epsilon: float, assert_mean: Any
) -> None:
    scheme = jopeq.scheme("jopeq", epsilon=epsilon, rate=2.0, coding="entropy", clip=1.0)
    for number, x in enumerate((-1.0, 0.0, 0.6)):
        noise = PrivateStream.reproducible(bytes([number]) * 32)
        payload = scheme.encode(np.full(40_000, x), seed=bytes([number + 7]) * 32, noise=noise)
        off = scheme.decode(payload).astype(np.float64) - x
        assert_mean(off, 0.0)
        assert_mean(off**2, 2 * (2 / epsilon) ** 2)
