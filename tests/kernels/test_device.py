"""Updates on a device: here the CPU stands in for one, through the same code."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import jopeq
from jopeq.kernels import gpu as gpu_kernels
from jopeq.kernels.device import can_code, common_device
from jopeq.random.streams import PrivateStream
from jopeq.wire.payload import open_payload, seal
from tests.kernels import gpu_in_numpy

KEY, SEED = bytes(range(32)), bytes(range(1, 33))
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SCHEMES = [
    jopeq.scheme("sdq", rate=1),
    jopeq.scheme("sdq", rate=2, lattice="A2"),
    jopeq.scheme("sdq", rate=2, center=True),
    jopeq.scheme("jopeq", epsilon=4, rate=1),
    jopeq.scheme("jopeq", epsilon=4, rate=2, clip=2.0),
    jopeq.scheme("response", epsilon=4, rate=2),
]
UNKNOWN = [
    jopeq.scheme("none"),
    jopeq.scheme("sdq", rate=1, lattice="E8"),
    jopeq.scheme("laplace", epsilon=4),
]


@pytest.fixture
def gpu(monkeypatch):
    """Take every tensor for one on a GPU; the tensors that were encoded there are listed."""
    seen = []

    def pretended(values):
        values = list(values)
        return values[0].device if values and all(map(torch.is_tensor, values)) else None

    def encode(recipe, entries, *arguments):
        seen.append(entries.tensors)
        return original(recipe, entries, *arguments)

    gpu_in_numpy.stand_in(monkeypatch)
    original = gpu_kernels.encode_body
    monkeypatch.setattr(gpu_kernels, "encode_body", encode)
    monkeypatch.setattr("jopeq.schemes.codec.common_device", pretended)
    return seen


def update(dtype=torch.float32, shape=(41, 7)):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(shape, generator=generator).to(dtype)


def encoded(scheme, value):
    seed = {"seed": SEED} if scheme.codec.has_dither else {}
    noise = PrivateStream.reproducible(KEY)
    return scheme.encode(value, noise=noise, counts=True, **seed)


@pytest.mark.parametrize("scheme", SCHEMES + UNKNOWN, ids=lambda scheme: scheme.spec)
def test_tensors_go_both_ways_where_they_lie_if_kernels_know_the_scheme(scheme, gpu):
    is_known = scheme in SCHEMES
    assert can_code(scheme.codec.recipe, "cpu") == is_known
    for dtype in DTYPES:
        gpu.clear()
        tensor = update(dtype)
        found = encoded(scheme, tensor)
        assert len(gpu) == is_known
        assert not is_known or gpu[0][0] is tensor
        assert found == encoded(scheme, tensor.double().numpy())
    for tensor in (update(), torch.empty(0, 3), torch.tensor(0.5)):
        payload = scheme.encode(tensor.numpy())
        there = scheme.decode(payload, device="cpu")
        assert isinstance(there, torch.Tensor)
        assert there.shape == tensor.shape == scheme.decode(scheme.encode(tensor)).shape
        assert np.array_equal(there.numpy(), scheme.decode(payload))
    with pytest.raises(jopeq.UpdateError, match=r"dtype torch.int64"):
        scheme.encode(torch.arange(4))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.spec)
def test_states_go_both_ways(scheme, gpu):
    state = {"w": update(), "steps": torch.tensor(4), "b": update(torch.float16, (5,))}
    plain = {name: value.numpy() for name, value in state.items()}
    payload, _ = encoded(scheme, state)
    assert len(gpu) == 1
    assert payload == encoded(scheme, plain)[0]
    decoded = scheme.decode(payload, like=state)
    expected = scheme.decode(payload, like=plain)
    assert decoded["steps"] == 0  # no update changes it
    for name in ("w", "b"):
        assert decoded[name].dtype == state[name].dtype
        assert np.array_equal(decoded[name].numpy(), expected[name])


def test_a_ledger_counts_entries_where_they_lie(gpu, monkeypatch):
    def refused(*_):
        raise AssertionError("copied to the host")

    for module in ("wire.entries", "schemes.codec"):
        monkeypatch.setattr(f"jopeq.{module}.as_float_array", refused)
    scheme = jopeq.scheme("response", epsilon=4, rate=2, clip=1.0)
    ledger = jopeq.Ledger(budget=1e9)
    ledger.encode(scheme, update())
    ledger.encode(scheme, {"w": update(), "b": update(shape=(3,))})
    assert len(gpu) == 2
    entries = 2 * 41 * 7 + 3
    assert ledger.spent.epsilon == pytest.approx(scheme.guarantee.for_update(entries).epsilon)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e39])
@pytest.mark.parametrize("clip", [None, 2.0])
def test_what_is_no_float32_is_named(gpu, bad, clip):
    tensor = update(torch.float64)
    tensor[2, 3] = bad
    scheme = jopeq.scheme("jopeq", epsilon=4, rate=1, clip=clip)
    with pytest.raises(jopeq.UpdateError, match=r"tensor 'b' holds (nan|inf|1e\+39) at .* \(2, 3"):
        scheme.encode({"a": update(), "b": tensor}, on_invalid="raise")
    assert len(gpu) == (clip is not None)  # a norm is measured first


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s.is_private], ids=lambda s: s.spec)
@pytest.mark.parametrize("scaling", [{}, {"clip": 0.3, "per": "tensor"}], ids=str)
def test_invalid_entries_are_replaced_to_the_bytes_of_the_host(scheme, scaling, gpu):
    scheme = replace(scheme, **scaling)
    for dtype in (torch.bfloat16, torch.float64):
        tensor = update(dtype)
        tensor[2, 3], tensor[4, 4], tensor[5, 5] = math.nan, math.inf, -math.inf
        found = encoded(scheme, tensor)
        assert found == encoded(scheme, tensor.double().numpy())
        assert found[1].invalid == 3
        assert tensor[2, 3].isnan()
    assert len(gpu) == 2
    for large in (1e300, -1.7e308, 1e39, 1e154, 2e33, 5e32):
        tensor[7], tensor[8] = large, -large
        assert encoded(scheme, tensor) == encoded(scheme, tensor.numpy())


def test_a_header_that_claims_too_much_is_refused_before_anything_is_allocated(gpu):
    scheme = jopeq.scheme("response", epsilon=4.0, rate=2.0)
    header, body = open_payload(scheme.encode(np.ones(100)))
    claimed = header._replace(shapes=((1 << 47,),))
    with pytest.raises(jopeq.PayloadError, match="140737488355328 samples, as the header claims"):
        scheme.decode(seal(claimed.to_bytes(), [bytes(body)], None), device="cpu")


def test_only_tensors_on_one_gpu_have_a_common_device():
    class Fake:
        __module__ = "torch"

        def __init__(self, name):
            self.device = torch.device(name)

        def detach(self):
            raise NotImplementedError

    assert common_device([Fake("cuda:0"), Fake("cuda:0")]) == torch.device("cuda:0")
    assert common_device([Fake("cuda:0"), Fake("cuda:1")]) is None
    assert common_device([Fake("cuda:0"), np.ones(3)]) is None
    assert common_device([Fake("cpu")]) is None
    assert common_device([]) is None
