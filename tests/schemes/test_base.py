"""What all schemes share: round trips, seeds, statistics, memory, identity, parameters."""

from __future__ import annotations

import importlib
import json
import math
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import jopeq
from jopeq import kernels
from jopeq.errors import PayloadError, UpdateError
from jopeq.random.streams import SharedStream
from jopeq.wire.payload import open_payload
from tests.schemes.every import SCHEMES, fixed

torch = pytest.importorskip("torch")

SCALED = [s for s in SCHEMES if s.codec.is_scaled and s.clip is None]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.spec)


def farthest(scheme):
    """The largest a decoded sample can be in scaled units, whatever the noise; inf for none."""
    if scheme.name in ("none", "response", "mvu"):
        return math.inf
    root = math.sqrt(scheme.dimension)
    if scheme.name in ("laplace", "t"):
        return root * (scheme.noise.reach + scheme.grid)
    cell = scheme.cells.covering_radius
    letters = np.arange(scheme.codebook.letters)
    return float(np.linalg.norm(scheme.codebook.points(letters), axis=1).max()) + cell


# Round trips

ARRAY = np.random.default_rng(0).standard_normal((3, 5, 7)) * 0.01


@settings(max_examples=400)
@given(
    scheme=st.sampled_from(SCHEMES),
    update=arrays.arrays(
        dtype=st.sampled_from([np.float16, np.float32, np.float64, np.dtype(">f4")]),
        shape=arrays.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=4),
        elements=st.just(0.0) | st.floats(-1000, 1000, width=16),
    ),
)
def test_shapes_and_values_nobody_thinks_of(scheme, update):
    values = np.asarray(update, dtype=np.float64)
    payload = scheme.encode(update, **fixed(scheme))
    decoded = scheme.decode(payload)
    assert (decoded.shape, decoded.dtype) == (values.shape, np.float32)
    assert np.isfinite(decoded).all()
    if scheme.name == "none":
        assert decoded.tobytes() == values.astype(np.float32).tobytes()
    elif values.size:
        assert values.any() or not decoded.any() or scheme not in SCALED
        header, _ = open_payload(payload)
        scale = header.scales[0] if header.scales else scheme.codec.scaling.public(("",))[0]
        scaled = (decoded.astype(np.float64).reshape(-1) - scale.mean) / (scale.unit or 1.0)
        slack = 1e-5 * (1 + abs(scale.mean) / (scale.unit or 1.0))
        assert np.abs(scaled).max() <= farthest(scheme) + slack


@every_scheme
def test_every_dtype_and_layout(scheme):
    tensor = torch.from_numpy(ARRAY)
    for view in (ARRAY.T, ARRAY[::-1, :, ::-1], tensor.permute(2, 0, 1), tensor.bfloat16()):
        copy = np.ascontiguousarray(view.double() if torch.is_tensor(view) else view)
        assert scheme.encode(view, **fixed(scheme)) == scheme.encode(copy, **fixed(scheme))
    exact = np.arange(-20, 20) / 8.0  # precision that loses nothing changes nothing
    narrow = torch.from_numpy(exact.astype(np.float32)).requires_grad_()
    halves = exact.astype(np.float16), narrow.bfloat16(), narrow.half()
    versions = exact, exact.astype(np.float32), exact.tolist(), narrow, narrow.double(), *halves
    assert len({scheme.encode(version, **fixed(scheme)) for version in versions}) == 1
    is_random = scheme.codec.has_dither or scheme.is_private
    assert (scheme.encode(exact) != scheme.encode(exact)) == is_random


@every_scheme
def test_huge_updates_are_sent_or_refused_and_subnormal_ones_sent(scheme):
    huge = np.full(4, 1e38, np.float32)
    if scheme in SCALED:
        with pytest.raises(UpdateError, match="divide it by a constant"):
            scheme.encode(huge, on_invalid="raise")
    else:
        assert np.isfinite(scheme.decode(scheme.encode(huge))).all()
    for value in (1e-45, 1e-40, 1e-38):
        decoded = scheme.decode(scheme.encode(np.full(9, value, np.float32), **fixed(scheme)))
        assert np.isfinite(decoded).all()
        assert scheme not in SCALED or np.abs(decoded).max() <= 1e4 * value * 3


@every_scheme
def test_no_payload_raises_what_an_app_lets_numpy_raise(scheme):
    """A server that has called ``np.seterr`` would end with a client's payload."""
    state = {"half": np.full(9, 1e-7, np.float16), "bn.running_var": np.full(9, 1e-45, np.float32)}
    for value in (1e-45, 1e-40, 1e-38, 1e30):
        update = np.full(9, value, np.float32)
        payload, whole = (scheme.encode(one, **fixed(scheme)) for one in (update, state))
        expected = scheme.decode(payload)
        with np.errstate(all="raise"):
            assert (scheme.decode(payload) == expected).all()
            assert np.isfinite(jopeq.aggregate([payload] * 2, scheme=scheme)).all()
            jopeq.updated_state(state, scheme.decode(whole, like=state))


@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8"])
def test_what_is_too_far_to_quantize_is_an_update_error(lattice):
    scheme = jopeq.scheme("sdq", rate=1.0, lattice=lattice, clip=1e-30)
    if lattice == "Z":  # overloads instead
        assert np.isfinite(scheme.decode(scheme.encode(np.full(8, 1e30)))).all()
    else:
        with pytest.raises(UpdateError, match="raise clip or spread"):
            scheme.encode(np.full(8, 1e30))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.spec)
def test_what_is_not_a_float32_is_refused_where_that_is_asked_for(scheme):
    for bad in (np.nan, np.inf, -np.inf, 1e39):
        update = np.zeros((2, 3))
        update[1, 2] = bad
        with pytest.raises(UpdateError, match=r"at position \(1, 2\)"):
            scheme.encode(update, on_invalid="raise")
    for wrong in (np.arange(3), np.array([True]), np.ones(2, complex), "abc"):
        with pytest.raises(UpdateError, match="floats"):
            scheme.encode(wrong)
    for wrong in ("ignore", "", True, 0):
        with pytest.raises(ValueError, match="on_invalid"):
            scheme.encode(update, on_invalid=wrong)


# Seeds, noise and threads


@every_scheme
def test_threads_get_the_bytes_of_the_serial_run(scheme):
    again = pickle.loads(pickle.dumps(scheme))  # nothing cached yet, so threads race to cache
    update = np.random.default_rng(3).standard_normal(70_000 if scheme.dimension == 1 else 9_000)
    expected = scheme.encode(update, **fixed(scheme))
    decoded = scheme.decode(expected)

    def work(_):
        payload = again.encode(update, **fixed(again))
        return payload, again.decode(payload)

    with ThreadPoolExecutor(8) as pool:
        for payload, values in pool.map(work, range(8)):
            assert payload == expected
            np.testing.assert_array_equal(values, decoded)


# Statistics and memory


def test_clipped_and_overloaded_are_counted():
    update = np.array([0.1, -0.2, 3.0, 0.0, -5.0, 0.9])
    _, counted = jopeq.scheme("laplace", epsilon=2.0, clip=1.0).encode(update, counts=True)
    assert (counted.clipped, counted.overloaded) == (2, 0)
    _, counted = jopeq.scheme("sdq", rate=4.0, clip=1.0).encode(update, counts=True)
    assert (counted.clipped, counted.overloaded) == (0, 2)
    private = jopeq.scheme("t", epsilon=2.0, clip=1.0)  # samples of two: the first is inside
    assert private.encode(update, counts=True)[1].clipped == 2


@pytest.mark.parametrize("name", ["sdq", "dq", "laplace+sdq", "jopeq"])
@pytest.mark.parametrize("lattice", ["Z", "A2"])
def test_integer_rates_are_never_exceeded(name, lattice):
    parameters = {"epsilon": 2.0} if name in ("laplace+sdq", "jopeq") else {}
    for rate in (1.0, 2.0, 3.0, 8.0):
        scheme = jopeq.scheme(name, rate=rate, lattice=lattice, **parameters)
        assert scheme.bits_per_entry == rate
        for count in (1, 2, 13, 1000, 4096):
            _, counted = scheme.encode(np.ones(count), counts=True)
            padded = scheme.dimension * counted.samples
            assert counted.body_bytes == math.ceil(rate * padded / 8)


@every_scheme
def test_statistics_are_those_of_the_bytes(scheme):
    count = 27 * 29 * 64 * 3  # whole numbers of every packing used here, and of t's samples
    update = np.random.default_rng(5).standard_normal(count)
    update *= 1.0 if scheme.clip is None else scheme.clip / 3
    payload, counted = scheme.encode(update, counts=True, **fixed(scheme))
    header, body = open_payload(payload)
    assert (counted.payload_bytes, counted.body_bytes) == (len(payload), len(body))
    assert (counted.entries, counted.samples) == (count, math.ceil(count / scheme.dimension))
    assert counted.bits_per_entry == len(body) * 8 / count
    assert len(header.to_bytes()) + len(body) + 4 == len(payload)
    assert counted.bits_per_entry == pytest.approx(scheme.bits_per_entry, rel=1e-4)


def check_memory(scheme, count):
    update = np.full(count, 0.5, np.float32)
    scheme.decode(scheme.encode(update[:1000]))  # caches are the scheme's, not the update's
    tracemalloc.start()
    try:
        payload = scheme.encode(update)
        peak = tracemalloc.get_traced_memory()[1]
        chunks = 8e6 + 7e6 * scheme.dimension  # a few arrays of 65,536 samples each
        assert peak <= 2.1 * len(payload) + chunks, peak
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        decoded = scheme.decode(payload)
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak <= decoded.nbytes + chunks, peak
    finally:
        tracemalloc.stop()
    assert decoded.shape == update.shape


MEMORY = [s for s in SCHEMES if s.per == "update" and not s.center and s.dimension == 1]


@pytest.mark.parametrize("scheme", MEMORY, ids=lambda s: s.spec)
def test_extra_memory_is_bounded(scheme):
    """In double precision alone the update would take 16 MB, and all its steps many times that."""
    check_memory(scheme, 2_000_000)


# Identity


@every_scheme
def test_specs_pickles_and_hashes_name_the_same_scheme(scheme):
    payload = scheme.encode(ARRAY, **fixed(scheme))
    assert scheme.distortion >= 0.0  # what is cached pickles too
    for same in (jopeq.scheme_from_spec(scheme.spec), pickle.loads(pickle.dumps(scheme))):
        assert (same, hash(same), same.spec) == (scheme, hash(scheme), scheme.spec)
        assert type(same) is type(scheme)
        assert same.encode(ARRAY, **fixed(scheme)) == payload
        np.testing.assert_array_equal(same.decode(payload), scheme.decode(payload))
    assert json.loads(scheme.spec)[0] == scheme.name
    with pytest.raises(AttributeError):
        scheme.clip = 2.0  # type: ignore[misc]
    with pytest.raises(PayloadError, match="scheme"):
        jopeq.scheme("sdq", rate=7.0).decode(payload)


@pytest.mark.parametrize("four", [4, 4.0, np.float64(4), np.float32(4), np.int64(4)])
def test_numbers_of_any_type_make_equal_schemes(four):
    scheme = jopeq.scheme("jopeq", epsilon=four, rate=2.0, clip=four)
    same = jopeq.scheme("jopeq", epsilon=4.0, rate=2, clip=4.0)
    assert scheme == same
    assert hash(scheme) == hash(same)
    assert scheme.spec == same.spec == '["jopeq",{"clip":4.0,"epsilon":4.0,"rate":2.0}]'
    assert type(scheme.epsilon) is float  # type: ignore[attr-defined]


@pytest.mark.parametrize("noise", [SharedStream(bytes(32)), np.random.default_rng(0), 7, b""])
def test_noise_from_anything_but_a_private_stream_is_refused(noise):
    with pytest.raises(ValueError, match="noise"):
        jopeq.scheme("laplace", epsilon=4.0).encode(ARRAY, noise=noise)


@every_scheme
def test_threads_of_the_plain_path_make_the_same_bytes(scheme, monkeypatch):
    module = importlib.import_module("jopeq.kernels.threads")  # a function hides its name
    monkeypatch.setattr(module, "_LEAST_ENTRIES", 1)
    monkeypatch.setattr("jopeq.wire.coders._CHUNK_SAMPLES", 64)
    update = 0.3 * np.random.default_rng(2).standard_normal(20_001)
    scheme = replace(scheme)  # whose chunks are not known yet
    kernels.use("off")
    try:
        found = []
        for count in (1, 3):
            kernels.set_threads(count)
            payload, counted = scheme.encode(update, counts=True, **fixed(scheme))
            found.append((payload, counted, scheme.decode(payload).tobytes()))
        assert found[0] == found[1]
    finally:
        kernels.use(None)
        kernels.set_threads(None)
