"""The walk over chunks: sizes around chunks, threads, sources of every kind, errors alike."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream

SCHEMES = [
    jopeq.scheme("sdq", rate=2.0),
    jopeq.scheme("sdq", rate=math.log2(3)),
    jopeq.scheme("sdq", rate=7.0),
    jopeq.scheme("sdq", rate=math.log2(5), lattice="A2"),
    jopeq.scheme("laplace", epsilon=4.0),
    jopeq.scheme("t", epsilon=4.0, size=1),
    jopeq.scheme("t", epsilon=4.0, size=6),
    jopeq.scheme("t+sdq", epsilon=4.0, rate=1.5, lattice="D4"),
    jopeq.scheme("jopeq", epsilon=4.0, rate=1.0),
    jopeq.scheme("jopeq", epsilon=4.0, rate=2.0, lattice="A2"),
    jopeq.scheme("laplace+sdq", epsilon=4.0, rate=1.0, lattice="E8"),
    jopeq.scheme("staircase", epsilon=4.0, rate=2.33, moves=3),
    jopeq.scheme("staircase", epsilon=4.0, rate=1.5, lattice="A2", moves=2),
    jopeq.scheme("response", epsilon=4.0, rate=2.0),
]
SCALINGS = [
    {},
    {"clip": 0.7},
    {"center": True},
    {"per": "tensor"},
    {"per": "tensor", "center": True},
    {"per": "tensor", "clip": 0.2},
    {"spread": 0.5},
]
pytestmark = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.name}-{s.dimension}")


@pytest.mark.parametrize("count", [0, 1, 2, 7, 63, 64, 65, 1000])
def test_small_sizes(scheme, count, agree, gaussian):
    agree(scheme, gaussian(count))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sizes_around_chunks(scheme, threads, agree, gaussian, chunk_of, many_threads):
    chunk = chunk_of(scheme) * scheme.dimension
    for count in (chunk - 1, chunk, chunk + 1, 3 * chunk + 5):
        agree(scheme, gaussian(count), threads=threads)


def test_a_range_of_chunks_for_every_thread(scheme, agree, gaussian, chunk_of, many_threads):
    agree(scheme, gaussian(5 * chunk_of(scheme) * scheme.dimension + 3), threads=2, keyed=False)


def _views(x):
    even = np.zeros(2 * len(x), np.float32)
    even[::2] = x
    fixed = x.copy()
    fixed.setflags(write=False)
    shifted = np.zeros(4 * len(x) + 1, np.uint8)[1:].view(np.float32)
    shifted[:] = x
    return {
        "float16": x.astype(np.float16),
        "float64": x.astype(np.float64) * 1.000000123,
        "longdouble": x.astype(np.longdouble),
        "big-endian float32": x.astype(">f4"),
        "big-endian float64": x.astype(">f8"),
        "every second": even[::2],
        "backwards": x[::-1],
        "read-only": fixed,
        "read-only float64": fixed.astype(np.float64),
        "unaligned": shifted,
        "transposed": x.reshape(-1, 7).T,
        "Fortran": np.asfortranarray(x.reshape(7, -1)),
        "many axes": x.reshape(7, 1, -1, 2),
        "repeated": np.broadcast_to(x[:10], (50, 10)),
        "a list": x[:9].tolist(),
        "0-d": x[0],
        "0-d float64": np.array(float(x[1])),
        "no entry": x.reshape(-1, 7)[:, :0],
    }


def test_sources(scheme, agree, gaussian, chunk_of):
    chunk = chunk_of(scheme) * scheme.dimension
    for label, update in _views(gaussian(14 * (chunk // 14 + 3))).items():
        payload, _, _ = agree(scheme, update)
        assert payload[:4] == b"JoPQ", label


def test_tensors(scheme, agree, gaussian):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(gaussian(2100))
    for update in (
        *(x.to(kind) for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64)),
        x[::3],
        x.reshape(30, 70).T,
        x.clone().requires_grad_(),
        x[0],
    ):
        agree(scheme, update)


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_states(scheme, scaling, agree, gaussian, chunk_of, many_threads):
    scheme = replace(scheme, **scaling)
    rng = np.random.default_rng(5)
    whole = 2 * chunk_of(scheme) * scheme.dimension  # holds a chunk, wherever it begins
    sizes = [0, 1, 3, 64, 0, 1000, 65, whole, 9]
    state = {
        f"layer{i}": gaussian(size, seed=i) * np.float32(10.0 ** (i % 5 - 2)) + np.float32(0.1 * i)
        for i, size in enumerate(sizes)
    }
    state["half"] = rng.normal(size=(3, 5)).astype(np.float16)
    state["double"] = rng.normal(size=(40, 50))
    state["turned"] = rng.normal(size=(40, 50)).astype(np.float32).T
    state["zero"] = np.zeros(77, np.float32)
    state["scalar"] = np.float32(0.25)
    state["steps"] = np.array(7)
    for threads in (1, 3):
        agree(scheme, state, threads=threads, keyed=scheme.is_seeded)


@pytest.mark.parametrize("magnitude", [0.0, 1e-45, 1e-38, 1e-20, 1e20, 1e32])
def test_magnitudes(scheme, magnitude, agree, gaussian):
    with np.errstate(under="ignore"):
        agree(scheme, gaussian(999) * np.float32(magnitude))


def test_tiny_float64(scheme, agree, gaussian):
    agree(scheme, gaussian(999).astype(np.float64) * 1e-300)


@pytest.mark.parametrize(
    "update",
    [
        np.array([1.0, np.nan, np.inf]),
        np.array([[1.0, 2.0], [3.0, -np.inf]], np.float32),
        np.array([np.nan], np.float16),
        np.array(np.nan, np.float32),
        np.array([0.0, 1e300]),
        np.full(5, 3e38),
        np.full(100_000, 2e34, np.float32),
        np.array([1, 2]),
        np.array([1j]),
    ],
    ids=str,
)
def test_what_cannot_be_encoded_is_refused_alike(scheme, update, same_outcome):
    kind, _ = same_outcome(lambda: scheme.encode(update, on_invalid="raise"))
    assert kind is jopeq.UpdateError


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_invalid_entries_are_replaced_alike(scheme, scaling, agree, gaussian, chunk_of):
    if not scheme.is_private:
        pytest.skip("refused")
    scheme = replace(scheme, **scaling)
    whole = gaussian(chunk_of(scheme) * scheme.dimension + 99)
    whole[::1001] = np.nan
    state = {
        "fine": gaussian(70),
        "narrow": whole,
        "wide": np.array([1e300, -1e39, 0.1, 3e33, np.nan, -np.inf]),
        "half": np.array([np.inf, 0.5, -np.inf], np.float16),
        "long": np.array(["1e4000", "0.25"], np.longdouble),
        "alone": np.array(np.nan, np.float32),
    }
    before = {name: value.copy() for name, value in state.items()}
    _, counted, _ = agree(scheme, state)
    beyond = 8 if scheme.clip is not None else 9  # 3e33 fits float32, but no norm's scale
    assert counted.invalid == np.isnan(whole).sum() + beyond
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value)


def test_a_late_bad_entry_is_named(scheme, same_outcome, gaussian):
    for dtype in (np.float32, np.float64):
        update = gaussian(200_000).astype(dtype).reshape(2, -1)
        update[1, 99_998] = np.nan
        kind, message = same_outcome(
            lambda update=update: scheme.encode(update, on_invalid="raise")
        )
        assert kind is jopeq.UpdateError
        assert "nan at position (1, 99998)" in message


def test_updates_are_left_alone(scheme, on, gaussian):
    update = gaussian(5000)
    before = update.copy()
    with on():
        scheme.decode(scheme.encode(update))
    assert update.tobytes() == before.tobytes()


def test_noise_is_fresh_without_a_stream(scheme, on, gaussian):
    update = gaussian(5000)
    arguments = {"seed": bytes(32)} if scheme.is_seeded else {}
    with on():
        one, two = (scheme.encode(update, **arguments) for _ in range(2))
    has_noise = scheme.guarantee.epsilon != math.inf
    assert (one != two) == has_noise


def test_many_callers_at_once(scheme, on, gaussian, many_threads):
    update, results = gaussian(70_000), {}
    arguments = {"seed": bytes(32)} if scheme.is_seeded else {}

    def code(number):
        noise = PrivateStream.reproducible(bytes(32))
        payload = scheme.encode(update, noise=noise, **arguments)
        results[number] = payload, scheme.decode(payload).tobytes()

    with on(threads=2):
        workers = [threading.Thread(target=code, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len(results) == 4
    assert len(set(results.values())) == 1
