"""Dithered quantization: the error is uniform on the cell whatever the input (Theorem II.5)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import jopeq
from jopeq.random.streams import SharedStream

LATTICES = ["Z", "A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2))]
SEED = bytes(range(32))


def errors(scheme: Any, x: list[float], count: int) -> np.ndarray:
    """Decoded minus sent, one row a sample, through the real bytes; clip 1 makes the unit 1."""
    samples = np.tile(x, (count, 1))
    return scheme.decode(scheme.encode(samples, seed=SEED)).astype(np.float64) - samples


@pytest.mark.parametrize("lattice", LATTICES, ids=str)
@pytest.mark.parametrize("coding", ["fixed", "entropy"])
@pytest.mark.parametrize("place", [0.0, 0.3, -0.9])
def test_the_error_stays_in_the_cell(lattice: Any, coding: str, place: float) -> None:
    rate = 1.0 if lattice == "E8" else 2.0
    scheme = jopeq.scheme("sdq", rate=rate, lattice=lattice, coding=coding, clip=1.0)
    x = [place] + [0.0] * (scheme.dimension - 1)
    off = errors(scheme, x, 4000)
    payload, counted = scheme.encode(np.tile(x, (4000, 1)), seed=SEED, statistics=True)
    assert len(payload) > 0
    if counted.overloaded == 0:
        assert np.linalg.norm(off, axis=1).max() <= scheme.cells.covering_radius * (1 + 1e-6)
        assert not scheme.cells.nearest(off * (1 - 1e-6)).any()
    else:  # few on lattices whose codebook is not quite round; never on Z
        assert lattice != "Z"
        assert counted.overloaded < 400


@pytest.mark.parametrize("rate", [1.0, 1.6, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("x", [-1.0, -0.37, 0.0, 0.5, 1.0])
def test_on_z_the_error_is_uniform_for_every_input(
    rate: float, x: float, assert_follows: Any
) -> None:
    scheme = jopeq.scheme("sdq", rate=rate, clip=1.0)
    step = scheme.cells.step
    off = errors(scheme, [x], 20_000)[:, 0]
    assert_follows(off, stats.uniform(-step / 2, step).cdf)


@pytest.mark.parametrize("lattice", ["A2", "D4", "E8"])
def test_the_law_of_the_error_does_not_depend_on_the_input(
    lattice: str, assert_same_law: Any, assert_mean: Any
) -> None:
    scheme = jopeq.scheme("sdq", step=0.3, lattice=lattice, coding="entropy", clip=1.0)
    count = 20_000
    zeros = [0.0] * scheme.dimension
    here = errors(scheme, zeros, count)
    other = [0.61, *[-0.27] * (scheme.dimension - 1)]
    samples = np.tile(other, (count, 1))
    payload = scheme.encode(samples, seed=SEED[::-1])
    there = scheme.decode(payload).astype(np.float64) - samples
    for axis in range(scheme.dimension):
        assert_same_law(here[:, axis], there[:, axis])
    assert_same_law(np.linalg.norm(here, axis=1), np.linalg.norm(there, axis=1))
    assert_mean(there, 0.0)
    assert_mean(np.square(there).mean(axis=1), scheme.distortion)


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0, 5.0])
def test_nothing_in_the_unit_ball_overloads_on_z(rate: float) -> None:
    scheme = jopeq.scheme("sdq", rate=rate, clip=1.0)
    update = np.linspace(-1, 1, 20_001)
    _, counted = scheme.encode(update, statistics=True)
    assert counted.overloaded <= 1  # the very ends meet the edge of the outer cells
    assert scheme.cells.step == pytest.approx(2 / (2**rate - 1))


def test_sdq_promises_no_privacy() -> None:
    guarantee = jopeq.scheme("sdq", rate=2.0).guarantee
    assert guarantee.epsilon == math.inf
    assert guarantee.nominal is None


def test_dq_keeps_the_dither_in() -> None:
    subtractive, kept = (jopeq.scheme(n, rate=2.0, clip=1.0) for n in ("sdq", "dq"))
    update = np.linspace(-0.9, 0.9, 501)
    one, two = (s.decode(s.encode(update, seed=SEED)) for s in (subtractive, kept))
    words = SharedStream(SEED).words16(lane=0, start=0, count=501)
    dither = subtractive.cells.dither(words[:, None])[:, 0]
    np.testing.assert_allclose(two - dither, one, atol=1e-6)
    assert len(np.unique(two)) == 4


@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_dq_makes_twice_the_error_on_average_over_inputs(lattice: str, assert_mean: Any) -> None:
    kept = jopeq.scheme("dq", step=0.25, lattice=lattice, coding="entropy", clip=1.0)
    single = jopeq.scheme("sdq", step=0.25, lattice=lattice, coding="entropy", clip=1.0)
    samples = np.random.default_rng(3).uniform(-5, 5, (20_000, kept.dimension))
    off = kept.decode(kept.encode(samples, seed=SEED)).astype(np.float64) - samples
    assert kept.distortion == pytest.approx(2 * single.distortion)
    assert_mean(np.square(off).mean(axis=1), kept.distortion)


def test_dq_depends_on_the_input() -> None:
    scheme = jopeq.scheme("dq", step=0.5, coding="entropy", clip=1.0)
    on_a_point = np.abs(errors(scheme, [0.0], 2000))
    between = np.abs(errors(scheme, [0.25], 2000))
    assert on_a_point.max() == 0.0
    assert between.min() == pytest.approx(0.25)
