"""A scheme that names an ε sends whatever the floats are: a refusal would tell about them."""

import logging
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jopeq
from jopeq.errors import UpdateError
from jopeq.wire.payload import open_payload
from jopeq.wire.scaling import LARGEST_SCALE
from tests.schemes.every import RATED, SCHEMES, fixed

torch = pytest.importorskip("torch")

FLOAT32_MAX = float(np.finfo(np.float32).max)
CLIP = 0.25
PRIVATE = [replace(scheme, clip=None) for scheme in SCHEMES if scheme.is_private]
SCALINGS = [
    *({}, {"clip": CLIP}, {"clip": 1e-36}, {"center": True}, {"per": "tensor"}),
    {"per": "tensor", "center": True, "spread": 0.01},
]
every_scheme = pytest.mark.parametrize("scheme", PRIVATE, ids=lambda s: s.spec)
FLOATS = st.one_of(
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300, 1e154, 1e39, FLOAT32_MAX]),
    st.sampled_from([2e33, -8e32, 1e30, 5e-324, 1e-45, -0.0, 0.1]),
)
DTYPES = st.sampled_from([np.float16, np.float32, np.float64, np.longdouble])


def coded(scheme, update):
    """Payload and statistics, with noise and dither fixed."""
    return scheme.encode(update, counts=True, **fixed(scheme))


@settings(max_examples=400)
@given(
    scheme=st.sampled_from(PRIVATE),
    scaling=st.sampled_from(SCALINGS),
    values=st.lists(FLOATS, min_size=1, max_size=40),
    dtype=DTYPES,
)
def test_encoding_is_total(scheme, scaling, values, dtype):
    scheme = replace(scheme, **scaling)
    with np.errstate(over="ignore", under="ignore"):
        update = np.array(values).astype(dtype)
    with np.errstate(all="raise"), warnings.catch_warnings(action="error"):  # as strict apps do
        payload, counted = scheme.encode(update, counts=True)
    assert np.isfinite(scheme.decode(payload)).all()
    with np.errstate(over="ignore"):
        wide = update.astype(np.float64)
    limits = scheme.codec.limits()
    assert counted.invalid == np.count_nonzero(~(np.abs(wide) <= limits.largest))
    assert len(payload) == len(scheme.encode(np.zeros(len(values))))


@every_scheme
def test_with_a_clip_nan_is_zero_and_infinity_the_clip(scheme):
    scheme = replace(scheme, clip=CLIP)
    for dtype in (np.float16, np.float32, np.float64):
        bad = np.array([math.inf, math.nan, 0.1, -math.inf, 0.2, 0.0, 0.0, math.inf], dtype)
        fine = np.array([CLIP, 0.0, 0.1, -CLIP, 0.2, 0.0, 0.0, CLIP], dtype)
        payload, counted = coded(scheme, bad)
        assert (payload, counted.invalid) == (coded(scheme, fine)[0], 4)
        assert coded(scheme, {"a": bad[:2], "b": bad[2:]})[1].invalid == 4
    half = [torch.from_numpy(x).to(torch.bfloat16) for x in (bad, fine)]
    assert coded(scheme, half[0])[0] == coded(scheme, half[1])[0]
    if scheme.dimension == 1:
        expected = coded(scheme, np.array([CLIP, 0.0, -CLIP]))[0]
        for large in (1e30, 1e39, 1e300):
            assert coded(scheme, np.array([math.inf, math.nan, -large]))[0] == expected


@pytest.mark.parametrize("scheme", PRIVATE, ids=lambda s: s.spec)
def test_with_norm_scaling_a_fixed_bound_stands_in(scheme):
    for scaling in (s for s in SCALINGS if "clip" not in s):
        changed = replace(scheme, **scaling)
        bound = changed.codec.scaling.limits(scheme.dimension).instead
        expected, counted = coded(changed, np.array([bound, 0.0, 0.1, -bound, bound]))
        assert counted.invalid == 0
        scales = open_payload(expected)[0].scales
        assert all(max(scale.unit, abs(scale.mean)) <= LARGEST_SCALE for scale in scales)
        for large in (math.inf, 1e300, 1e34):
            payload, counted = coded(changed, np.array([large, math.nan, 0.1, -large, 1e38]))
            assert (payload, counted.invalid) == (expected, 4)


@pytest.mark.parametrize("largest", [FLOAT32_MAX, 1e300, math.inf])
@pytest.mark.parametrize("count", [1, 2, 70_000])
@pytest.mark.parametrize("spread", [1e-3, 3.0, 1e5])
def test_no_update_is_too_large_to_be_scaled(largest, count, spread):
    for center in (False, True):
        scheme = jopeq.scheme("jopeq", **RATED, lattice="A2", spread=spread, center=center)
        for update in (np.full(count, largest), largest * np.resize([1.0, -1.0], count)):
            assert scheme.encode(update, counts=True)[1].invalid == count


@pytest.mark.parametrize("scheme", [s for s in PRIVATE if s.dimension > 1], ids=lambda s: s.spec)
def test_one_bad_sample_does_not_change_the_letters_of_another(scheme):
    """ε is stated per sample: a sample decides about itself alone."""
    scheme = replace(scheme, clip=CLIP)
    size = scheme.dimension
    one, other = np.full(60 * size, 0.01), np.full(60 * size, 0.01)
    one[size:], other[size:] = 1e30, 1e30
    one[size::3], other[size::3] = 2e30, 2e30
    one[0] = math.nan
    changed = scheme.decode(coded(scheme, one)[0]) != scheme.decode(coded(scheme, other)[0])
    assert not changed[size:].any()


@pytest.mark.parametrize("name", ["none", "sdq", "dq"])
def test_schemes_without_epsilon_refuse_unless_asked(name):
    scheme = jopeq.scheme(name, **({} if name == "none" else {"rate": 4.0, "clip": 2.0}))
    update = np.array([math.nan, math.inf, -1e300, 1.0])
    with pytest.raises(UpdateError, match="holds nan"):
        scheme.encode(update)
    payload, counted = scheme.encode(update, on_invalid="replace", counts=True)
    most = FLOAT32_MAX if name == "none" else 2.0
    np.testing.assert_allclose(scheme.decode(payload), [0.0, most, -most, 1.0], atol=0.3)
    assert counted.invalid == 3


def test_the_client_alone_is_told(caplog):
    scheme = jopeq.scheme("response", **RATED, clip=CLIP)
    with caplog.at_level(logging.WARNING, "jopeq"):
        scheme.encode(np.array([0.125, math.inf, math.nan]))
        scheme.encode(np.array([0.125, 0.5, 0.0]))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("jopeq", "WARNING")
    assert record.getMessage().startswith("2 of 3 entries of an update were NaN")
