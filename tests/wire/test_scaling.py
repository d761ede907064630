"""Scales: the paper's ζ, public clips, means, groups, and the ends of float32."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jopeq import kernels
from jopeq.errors import UpdateError
from jopeq.wire.entries import Entries
from jopeq.wire.scaling import LARGEST_SCALE, Scale, Scaling


def measure(update, dimension=1, **parameters):
    entries = Entries.of(update)
    return kernels.measure(entries, Scaling(**parameters), dimension)


@given(
    dimension=st.sampled_from([1, 2, 4, 8]), count=st.integers(1, 1000), spread=st.floats(0.1, 5.0)
)
def test_norm_scaling_is_the_papers_zeta(dimension, count, spread):
    update = np.random.default_rng(count).standard_normal(count)
    (scale,) = measure(update, dimension, spread=spread)
    expected = spread * np.linalg.norm(update) / math.sqrt(math.ceil(count / dimension))
    assert scale.unit == np.float32(scale.unit)
    assert expected <= scale.unit * (1 + 1e-15)
    assert scale.unit <= expected * (1 + 2.0**-23)
    assert scale.mean == 0.0


@given(st.floats(0, 2.0**111, width=32))
def test_rounding_the_unit_never_enlarges_an_entry(value):
    (scale,) = measure(np.array([value]), spread=1.0)
    assert scale.unit >= value
    assert abs(scale.apply(np.array([value]))[0]) <= 1.0


def test_zero_and_nothing_scale_to_zero_and_back():
    (scale,) = measure(np.zeros(5))
    assert scale == Scale(0.0)
    assert scale.apply(np.zeros(5)).tolist() == [0.0] * 5
    assert scale.undo(np.full(5, 7.0)).tolist() == [0.0] * 5
    assert measure(np.zeros((0, 3))) == [Scale(0.0)]
    assert measure({}) == [Scale(0.0)]
    assert measure({}, per="tensor") == []


def test_updates_near_the_ends_of_their_type_keep_a_scale():
    for value in (1e-45, 1.2e-38, 3e-39):
        (scale,) = measure(np.full(10, value, np.float32))
        assert 0 < scale.unit < 1e-37
        assert np.abs(scale.apply(np.full(10, value))).max() <= 1.0
    scaled = measure(np.full(10, 1e-300))[0].apply(np.full(10, 1e-300))
    assert np.abs(scaled).max() < 1e-200
    (scale,) = measure(np.full(4, 60000, np.float16), spread=1.0)
    assert scale.unit == pytest.approx(60000, rel=1e-3)


def test_updates_too_large_are_refused():
    for value in (1e38, 3.4e38, 3.34e33):
        with pytest.raises(UpdateError, match=r"too large to be scaled .* divide it by a constant"):
            measure(np.full(4, value))
    below = float(np.nextafter(np.float32(LARGEST_SCALE), np.float32(0)))
    (scale,) = measure(np.array([below]), spread=1.0)
    assert scale.unit <= LARGEST_SCALE  # one that a decoder accepts
    with pytest.raises(UpdateError):  # rounded up it would not fit
        measure(np.array([9.9999999e33]), spread=1.0)


def test_the_mean_is_removed_first():
    update = np.array([10.0, 12.0, 11.0])
    (scale,) = measure(update, center=True, spread=1.0)
    assert scale.mean == 11.0
    assert scale.unit == pytest.approx(math.sqrt(2 / 3), rel=1e-6)
    np.testing.assert_allclose(scale.undo(scale.apply(update)), update, rtol=1e-12)
    (scale,) = measure(np.full(6, 0.5), center=True)
    assert scale == Scale(0.0, 0.5)  # a constant update is all mean
    assert scale.undo(scale.apply(np.full(6, 0.5))).tolist() == [0.5] * 6
    # rounded to float32 before the energy is measured, so that both sides remove the same
    update = np.full(9, 0.1) + 1e-9 * np.arange(9)
    (scale,) = measure(update, center=True)
    assert scale.mean == float(np.float32(scale.mean))
    assert np.abs(scale.apply(update)).max() <= math.sqrt(9) / 3 * (1 + 1e-6)
    with pytest.raises(UpdateError, match="too large"):
        measure(np.full(4, 1e35), center=True)


STATE = {"a": np.array([3.0, 4.0]), "b": np.zeros(2), "c": np.array([[1.0]])}


def test_a_clip_is_public_and_needs_no_update():
    scaling = Scaling(clip=0.1)
    assert not scaling.is_sent
    assert Scaling().is_sent
    assert scaling.public("abc") == [Scale(float(np.float32(0.1)))]
    assert Scaling(clip=0.1, per="tensor").public("abc") == scaling.public("abc") * 3
    assert measure(STATE, clip=0.1) == scaling.public("abc")
    with pytest.raises(ValueError, match="known only from the update"):
        Scaling().public("a")
