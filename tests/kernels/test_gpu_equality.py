"""The GPU kernels give the plain path's bytes; without a GPU, NumPy stands in for them.

With TRITON_INTERPRET=1 in the environment the same tests run the Triton kernels themselves on the
CPU, operation by operation, on fewer cases (``test_gpu_interpreter`` starts that).
"""

import numpy as np
import pytest
import torch

import jopeq
from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.kernels.gpu import DeviceEntries
from jopeq.kernels.gpu import entries as gpu_entries
from jopeq.kernels.gpu.codec import decode_body, decode_into, encode_body
from jopeq.kernels.gpu.jit import IS_INTERPRETED
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.entries import READ_CHUNK, Entries, lane_sum
from jopeq.wire.scaling import Scale
from tests.kernels import gpu_in_numpy

# The interpreter warns of floats beyond an integer (never used) or float32 (refused afterwards).
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{what} encountered in cast:RuntimeWarning")
    for what in ("invalid value", "overflow")
]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    gpu_in_numpy.stand_in(monkeypatch)


SEED, NOISE_KEY = SharedStream(bytes(range(32))), bytes(range(100, 132))
DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]

FEW = [
    *(("sdq", {"rate": rate}) for rate in (1, 3, 7.3)),
    ("sdq", {"rate": 0.5, "lattice": "A2", "gamma": 2.0}),
    ("sdq", {"rate": 1.5, "lattice": "A2"}),
    ("response", {"epsilon": 4, "rate": 2}),
    ("response", {"epsilon": 4, "rate": 3, "levels": 5}),
    ("jopeq", {"epsilon": 4, "rate": 1}),
    ("jopeq", {"epsilon": 3, "rate": 2, "lattice": "A2"}),
]
MANY = [
    *FEW,
    *(("sdq", {"rate": rate}) for rate in (2, 4, 5, 6, 7, 8)),
    *(("sdq", {"rate": rate, "lattice": "A2"}) for rate in (2.3, 4)),
    ("sdq", {"rate": 2, "clip": 0.5}),
    *(("response", {"epsilon": epsilon, "rate": rate}) for epsilon, rate in ((4, 1), (6, 4))),
    *(("jopeq", {"epsilon": 4, "rate": rate}) for rate in (2, 3)),
    ("jopeq", {"epsilon": 60, "rate": 2, "gamma": 0.4}),
    ("jopeq", {"epsilon": 4, "rate": 4, "lattice": "A2"}),
]
CASES = [(name, dict(given)) for name, given in (FEW if IS_INTERPRETED else MANY)]
COUNTS = [1061] if IS_INTERPRETED else [1, 33, 4129]

named = pytest.mark.parametrize(
    "scheme", [jopeq.scheme(name, **given) for name, given in CASES], ids=lambda scheme: scheme.spec
)
on_devices = pytest.mark.parametrize("device", DEVICES)
not_interpreted = pytest.mark.skipif(IS_INTERPRETED, reason="slow in the interpreter")


def numbers(count, seed=1):
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def plain_body(scheme, entries, noise_key=NOISE_KEY):
    scales = kernels.measure(entries, scheme.codec.scaling, scheme.dimension)
    private = PrivateStream.reproducible(noise_key)
    body = scheme.codec.to_body(entries, scales, SEED, private)
    return b"".join(body.parts), body.clipped, body.overloaded, scales


def same(scheme, arrays, tensors, device, noise_key=NOISE_KEY):
    """Encode and decode with both and compare; the plain path's body and scales."""
    entries = Entries(tuple(map(str, range(len(arrays)))), tuple(arrays))
    body, clipped, overloaded, scales = plain_body(scheme, entries, noise_key)
    there = DeviceEntries(entries.names, tuple(tensor.to(device) for tensor in tensors))
    assert there.measure(scheme.codec.scaling, scheme.dimension) == scales
    private = PrivateStream.reproducible(noise_key)
    found = encode_body(scheme.codec.recipe, there, scales, SEED, private)
    assert found == (body, clipped, overloaded)
    sizes = entries.sizes
    back = decode_body(scheme.codec.recipe, body, sizes, scales, SEED, torch.device(device))
    expected = scheme.codec.from_body(memoryview(body), sizes, scales, SEED)
    assert back.dtype == torch.float32
    assert back.device.type == device
    assert back.cpu().numpy().tobytes() == expected.tobytes()
    return body, scales


@on_devices
@named
def test_same_bytes_same_entries(scheme, device):
    for count in COUNTS:
        array = numbers(count)
        same(scheme, [array], [torch.from_numpy(array)], device)


@on_devices
@pytest.mark.parametrize("kind", ["bfloat16", "float64"] + ["float16"] * (not IS_INTERPRETED))
def test_other_floats(kind, device):
    scheme = jopeq.scheme("sdq", rate=2)
    tensor = torch.from_numpy(numbers(1061)).to(getattr(torch, kind))
    array = tensor.float().numpy() if kind == "bfloat16" else tensor.numpy()
    same(scheme, [array], [tensor], device)


@on_devices
@pytest.mark.parametrize(
    ("lattice", "per"),
    [("Z", "update"), ("A2", "tensor")]
    + [("Z", "tensor"), ("A2", "update")] * (not IS_INTERPRETED),
)
def test_several_tensors(per, lattice, device):
    scheme = jopeq.scheme("sdq", rate=1.5, lattice=lattice, per=per, center=True)
    arrays = [numbers(size, size) * size for size in (5, 1, 777, 1300)]
    arrays[2] = arrays[2].astype(np.float64)
    same(scheme, arrays, [torch.from_numpy(array) for array in arrays], device)


@not_interpreted
@on_devices
def test_views_that_are_not_aligned(device):
    whole = torch.from_numpy(numbers(5000)).to(device)
    view = whole[1:4200]
    scheme = jopeq.scheme("sdq", rate=2)
    same(scheme, [view.cpu().numpy()], [view], device)
    columns = whole.reshape(50, 100).T
    same(scheme, [columns.cpu().numpy()], [columns], device)
    negated = torch.view_as_complex(whole.reshape(-1, 2)).conj().imag  # a view that flips the sign
    same(scheme, [negated.cpu().resolve_neg().numpy()], [negated], device)


@on_devices
@pytest.mark.parametrize("lattice", ["Z", "A2"])
def test_deep_tails(lattice, device):
    """Draws that begin with twelve zeros go on in another lane of the stream."""
    count = 512
    for first in range(256):
        key = bytes((first,)) * 32
        words = PrivateStream.reproducible(key).words64(lane=0, start=0, count=2 * count)
        rare = np.flatnonzero((words >> np.uint64(51)) & np.uint64(0xFFF) == 0)
        if any(place < count and place % 2 == 0 for place in rare):
            break
    else:
        raise AssertionError("no key has a deep tail")
    array = numbers(count)
    scheme = jopeq.scheme("jopeq", epsilon=0.5, rate=4, lattice=lattice)
    same(scheme, [array], [torch.from_numpy(array)], device, key)


@on_devices
@pytest.mark.parametrize("is_square", [False, True])
def test_sums_are_added_in_one_order(is_square, device):
    """Of numbers whose sum depends on the order in its last bits."""
    array = numbers(READ_CHUNK + 700).astype(np.float64) ** 3
    mean = 0.1 if is_square else 0.0
    terms = np.square(array - mean) if is_square else array
    found = gpu_entries.chunk_sums(torch.from_numpy(array).to(device), mean, is_square)
    assert found.tolist() == [lane_sum(terms[:READ_CHUNK]), lane_sum(terms[READ_CHUNK:])]


@on_devices
def test_bodies_that_are_not_what_encode_makes(device):
    where = torch.device(device)
    scheme = jopeq.scheme("sdq", rate=2)
    scales = [Scale(1.0)]
    body = bytes(range(25))
    with pytest.raises(PayloadError, match="26 bytes"):
        decode_body(scheme.codec.recipe, body, [101], scales, SEED, where)
    with pytest.raises(PayloadError, match="padding is not zero"):
        decode_body(scheme.codec.recipe, b"\xff" * 25, [99], scales, SEED, where)
    five = jopeq.scheme("response", epsilon=4, rate=3, levels=5)
    size = 63  # 216 letters are 8 numbers of 63 bits
    for bad in (b"\xff" * size, bytes(size - 1) + b"\xff"):
        with pytest.raises(PayloadError, match="outside the codebook"):
            decode_body(five.codec.recipe, bad, [216], scales, SEED, where)
    with pytest.raises(PayloadError, match="outside the codebook"):
        # a digit beyond the last of 215 letters
        decode_body(five.codec.recipe, _body_of(five, 216, device)[:63], [215], scales, SEED, where)
    wide = jopeq.scheme("sdq", rate=2, gamma=1e6)
    with pytest.raises(PayloadError, match="too large for float32"):
        decode_body(wide.codec.recipe, b"\xff" * 4, [16], [Scale(9e33)], SEED, where)


def _body_of(scheme, count, device):
    ones = DeviceEntries(("",), (torch.ones(count, device=device),))
    private = PrivateStream.reproducible(NOISE_KEY)
    return encode_body(scheme.codec.recipe, ones, [Scale(1.0)], SEED, private)[0]


@on_devices
@pytest.mark.parametrize("dtype", ["float64"] + ["float32"] * (not IS_INTERPRETED))
def test_sum_of_payloads(dtype, device):
    scheme = jopeq.scheme("sdq", rate=2)
    weights, sizes = [0.25, 1 / 3], [1000, 97]
    bodies, expected = [], np.zeros(sum(sizes), dtype=dtype)
    for client, weight in enumerate(weights):
        arrays = [numbers(size, client + size) for size in sizes]
        body, _, _, scales = plain_body(scheme, Entries(("a", "b"), tuple(arrays)))
        bodies.append((body, scales))
        flat = scheme.codec.from_body(memoryview(body), tuple(sizes), scales, SEED)
        expected = (expected + flat.astype(np.float64) * weight).astype(dtype)
    found = torch.zeros(sum(sizes), dtype=getattr(torch, dtype), device=device)
    for (body, scales), weight in zip(bodies, weights, strict=True):
        decode_into(found, scheme.codec.recipe, body, sizes, scales, SEED, weight)
    assert found.cpu().numpy().tobytes() == expected.tobytes()
    before = found.clone()
    with pytest.raises(PayloadError):
        decode_into(found, scheme.codec.recipe, b"", sizes, [Scale(1.0)], SEED, 1.0)
    assert torch.equal(found, before)
