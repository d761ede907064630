"""Figures without a closed form: computed once, and right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import jopeq
from jopeq.random.streams import PrivateStream
from jopeq.schemes.quantized import measured_bits


def by_quadrature(scheme: Any) -> float:
    """E(decoded²) at x = 0 on Z, from the density of the noise, dither by dither."""
    step, letters = scheme.cells.step, scheme.codebook.letters
    points = (np.arange(letters) - (letters - 1) / 2) * step
    law = stats.laplace(scale=scheme.noise.scale)

    def at(dither: float) -> float:
        edges = np.concatenate(([-np.inf], points[:-1] + step / 2, [np.inf])) - dither
        return float(np.diff(law.cdf(edges)) @ (points - dither) ** 2)

    return integrate.quad(at, -step / 2, step / 2, limit=200)[0] / step


NOISY = [
    scheme
    for name in ("laplace+sdq", "jopeq")
    for epsilon in (0.5, 2.0, 4.0, 8.0)
    for rate in (1.0, 1.6, 2.0, 4.0)
    if (scheme := jopeq.scheme(name, epsilon=epsilon, rate=rate)).noise is not None
]


@pytest.mark.parametrize("scheme", NOISY, ids=lambda s: s.spec)
def test_the_sum_over_dithers_is_the_integral(scheme: Any) -> None:
    assert scheme.distortion == pytest.approx(by_quadrature(scheme), rel=1e-4)


def test_many_letters_hardly_overload() -> None:
    """Where the sum is left out, noise plus cell is what it would give."""
    below, above = (jopeq.scheme("laplace+sdq", epsilon=4.0, rate=r, gamma=20.0) for r in (12, 13))
    for scheme in (below, above):
        closed = scheme.noise.variance + scheme.cells.second_moment
        assert scheme.distortion == pytest.approx(closed, rel=1e-5)


def test_figures_do_not_change_from_call_to_call() -> None:
    one, two = (jopeq.scheme("t+sdq", epsilon=3.0, rate=1.0, lattice="A2") for _ in range(2))
    assert one.distortion == two.distortion
    one, two = (jopeq.scheme("sdq", rate=2.0, coding="entropy") for _ in range(2))
    assert one.bits_per_entry == two.bits_per_entry


@pytest.mark.parametrize("clip", [None, 0.01, 5.0])
def test_bits_are_those_of_a_gaussian_at_the_spread(clip: float | None) -> None:
    scheme = jopeq.scheme("sdq", rate=4.0, coding="entropy", clip=clip)
    reference = jopeq.scheme("sdq", rate=4.0, coding="entropy")
    assert measured_bits(scheme) == pytest.approx(measured_bits(reference), rel=0.01)


def test_bits_follow_the_size_of_the_cells() -> None:
    """Half the step is one more bit, once the cells are small."""
    coarse, fine = (jopeq.scheme("sdq", step=s, coding="entropy") for s in (0.04, 0.02))
    assert fine.bits_per_entry - coarse.bits_per_entry == pytest.approx(1.0, abs=0.02)


def test_bits_match_an_update_of_ones_own() -> None:
    scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=2.0, coding="entropy")
    update = np.random.default_rng(0).standard_normal(131_072)
    noise = PrivateStream.reproducible(bytes(range(32)))
    _, counted = scheme.encode(update, seed=bytes(32), noise=noise, statistics=True)
    # one figure has a standard deviation of 0.0025 over seeds, the difference of two 0.0035
    assert counted.bits_per_entry == pytest.approx(scheme.bits_per_entry, abs=5 * 0.0035)
    assert math.isfinite(scheme.bits_per_entry)
