"""Noise, then SDQ: ε holds by post-processing, and the cell comes on top."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import jopeq
from jopeq.random.streams import PrivateStream


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [1.0, 2.0, 8.0])
def test_laplace_then_sdq_keeps_its_epsilon(epsilon: float, rate: float) -> None:
    guarantee = jopeq.scheme("laplace+sdq", epsilon=epsilon, rate=rate).guarantee
    assert guarantee.epsilon == guarantee.nominal == epsilon


@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8"])
def test_t_then_sdq_keeps_its_epsilon(lattice: str) -> None:
    guarantee = jopeq.scheme("t+sdq", epsilon=3.0, rate=1.0, lattice=lattice).guarantee
    assert guarantee.epsilon <= 3.0
    assert guarantee.epsilon == pytest.approx(3.0, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "rate"), [(4.0, 1.0), (4.0, 2.0), (1.0, 2.0), (2.0, 3.0)])
def test_no_letter_tells_more_than_epsilon(epsilon: float, rate: float) -> None:
    """Exactly, letter by letter, over a grid of dithers and all pairs of inputs."""
    scheme = jopeq.scheme("laplace+sdq", epsilon=epsilon, rate=rate)
    step, letters = scheme.cells.step, scheme.codebook.letters
    edges = (np.arange(1, letters) - letters / 2) * step
    law = stats.laplace(scale=2 / epsilon)
    x = np.linspace(-1, 1, 41)
    worst = 0.0
    for dither in np.linspace(-step / 2, step / 2, 41):
        shifted = edges[None, :] - dither - x[:, None]
        below = np.hstack((np.zeros((41, 1)), law.cdf(shifted), np.ones((41, 1))))
        above = np.hstack((np.ones((41, 1)), law.sf(shifted), np.zeros((41, 1))))
        upper = shifted.mean(axis=0) > 0  # differences of the tail that is small
        first = np.where(np.append(upper, True), -np.diff(above), np.diff(below))
        worst = max(worst, float(np.log(first.max(axis=0) / first.min(axis=0)).max()))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst == pytest.approx(epsilon, rel=1e-6) or not scheme.guarantee.is_exact


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_error_is_laplace_plus_a_uniform_whatever_the_input(
    epsilon: float, assert_same_law: Any
) -> None:
    scheme = jopeq.scheme("laplace+sdq", epsilon=epsilon, rate=2.0, coding="entropy", clip=1.0)
    step = scheme.cells.step
    source = np.random.default_rng(0)
    expected = source.laplace(scale=2 / epsilon, size=30_000)
    expected += source.uniform(-step / 2, step / 2, 30_000)
    for number, x in enumerate((-1.0, 0.0, 0.4)):
        noise = PrivateStream.reproducible(bytes([number]) * 32)
        payload = scheme.encode(np.full(30_000, x), seed=bytes([9 + number]) * 32, noise=noise)
        assert_same_law(scheme.decode(payload).astype(np.float64) - x, expected)


def test_compression_costs_on_top_of_the_noise() -> None:
    alone = jopeq.scheme("laplace", epsilon=4.0).distortion
    for rate in (2.0, 3.0, 4.0):
        scheme = jopeq.scheme("laplace+sdq", epsilon=4.0, rate=rate, coding="entropy")
        assert scheme.distortion == pytest.approx(alone + scheme.cells.step**2 / 12)
        joint = jopeq.scheme("jopeq", epsilon=4.0, rate=rate, coding="entropy")
        assert joint.distortion == pytest.approx(alone)
