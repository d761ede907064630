"""``jopeq.aggregate``: the weighted sum of payloads, however it is computed."""

import numpy as np
import pytest
import torch

import jopeq
from jopeq import kernels
from jopeq.schemes.aggregate import weighted_sum
from jopeq.wire.payload import Header, open_payload, seal
from tests.schemes.every import SCHEMES

each_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.spec)


def updates(count, shape=(37, 3)):
    rng = np.random.default_rng(5)
    return [rng.normal(size=shape).astype(np.float32) for _ in range(count)]


def one_by_one(scheme, payloads, weights, key=None):
    total = np.zeros(scheme.decode(payloads[0], secret=key).shape)
    for payload, weight in zip(payloads, weights, strict=True):
        total += weight * scheme.decode(payload, secret=key).astype(np.float64)
    return total


@pytest.fixture(params=["off", "on"])
def way(request):
    if request.param == "on":
        pytest.importorskip("numba")
    kernels.use(request.param)
    yield
    kernels.use(None)
    kernels.set_threads(None)


def sealed(payload, body=None, **changes):
    """The payload with another body or header, and the checksum that fits it."""
    header, own = open_payload(payload)
    return seal(header._replace(**changes).to_bytes(), [bytes(own if body is None else body)], None)


@each_scheme
def test_it_is_the_sum_of_the_decoded_updates(scheme, way):
    payloads = [scheme.encode(update) for update in updates(5)]
    weights = [0.5, -1.0, 2.0, 0.0, 0.25]
    expected = one_by_one(scheme, payloads, weights)
    assert np.array_equal(jopeq.aggregate(payloads, weights, scheme=scheme), expected)
    tensor = jopeq.aggregate(payloads, weights, device="cpu", scheme=scheme)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float64
    assert np.array_equal(tensor.numpy(), expected)
    mean = one_by_one(scheme, payloads, [1.0] * 5) / 5
    assert np.array_equal(jopeq.aggregate(payloads, scheme=scheme), mean)
    nothing = [scheme.encode(np.empty((0, 4), np.float32))] * 2
    assert jopeq.aggregate(nothing, scheme=scheme).shape == (0, 4)


def test_more_payloads_than_are_opened_together_and_from_an_iterator(way):
    scheme = jopeq.scheme("sdq", rate=1)
    payloads = [scheme.encode(update) for update in updates(300, (5,))]
    weights = np.linspace(-1, 1, 300)
    found = jopeq.aggregate((payload for payload in payloads), weights, scheme=scheme)
    assert np.array_equal(found, one_by_one(scheme, payloads, weights))
    mean = jopeq.aggregate(iter(payloads), scheme=scheme)
    assert np.allclose(mean, one_by_one(scheme, payloads, np.ones(300)) / 300, rtol=1e-12)


def test_states_give_a_dict(way):
    scheme = jopeq.scheme("sdq", rate=4, per="tensor")
    like = {"w": np.ones((2, 3), np.float32), "steps": np.array(3), "b": np.ones(2, np.float32)}
    payloads = [scheme.encode(like | {"w": x * like["w"]}) for x in (1.0, -2.0)]
    one, two = (scheme.decode(payload, like=like) for payload in payloads)
    found = jopeq.aggregate(payloads, [2.0, 3.0], scheme=scheme)
    assert list(found) == ["w", "b"]
    for name in found:
        expected = 2.0 * one[name].astype(float) + 3.0 * two[name].astype(float)
        assert np.array_equal(found[name], expected)
    empty = [scheme.encode({})] * 2
    for device in (None, "cpu"):
        assert jopeq.aggregate(empty, device=device, scheme=scheme) == {}


def test_keyed_payloads_need_their_key(way):
    scheme, key = jopeq.scheme("jopeq", epsilon=4, rate=1), bytes(range(32))
    payloads = [scheme.encode(update, secret=key) for update in updates(2)]
    found = jopeq.aggregate(payloads, secret=key, scheme=scheme)
    assert np.array_equal(found, one_by_one(scheme, payloads, [1.0, 1.0], key) / 2)
    with pytest.raises(jopeq.MissingSecretError, match="payload 0"):
        jopeq.aggregate(payloads, scheme=scheme)
    with pytest.raises(ValueError, match=r"^secret must be 32 bytes") as mistake:
        jopeq.aggregate(payloads, secret=key[1:], scheme=scheme)
    assert not isinstance(mistake.value, jopeq.PayloadError)  # no client is to blame


def test_huge_scales_are_decoded_before_they_are_added_on_a_device():
    scheme = jopeq.scheme("sdq", rate=8)
    payload = scheme.encode(np.full(100, 3e33, np.float32))
    found = jopeq.aggregate([payload], [1.0], device="cpu", scheme=scheme)
    assert np.array_equal(found.numpy(), scheme.decode(payload).astype(np.float64))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_bad_payload_is_named_and_nothing_comes_back(way, device):
    scheme = jopeq.scheme("sdq", rate=np.log2(3))
    payloads = [scheme.encode(update) for update in updates(3)]
    broken = [payloads[0], payloads[1][:-1], payloads[2]]
    with pytest.raises(jopeq.PayloadError, match="payload 1"):
        jopeq.aggregate(broken, device=device, scheme=scheme)
    other = jopeq.scheme("sdq", rate=2).encode(updates(1)[0])
    with pytest.raises(jopeq.PayloadError, match=r"payload 2.*made by scheme"):
        jopeq.aggregate([*payloads[:2], other], device=device, scheme=scheme)
    longer = scheme.encode(np.ones((38, 3), np.float32))
    with pytest.raises(jopeq.PayloadError, match=r"payload 1.*\(38, 3\)"):
        jopeq.aggregate([payloads[0], longer], device=device, scheme=scheme)


@each_scheme
def test_a_body_of_another_length_is_refused_before_it_is_read(scheme, way):
    good = scheme.encode(updates(1)[0])
    body = open_payload(good)[1]
    for wrong in (b"", body[: len(body) // 2], bytes(body) + bytes(9)):
        with pytest.raises(jopeq.PayloadError, match="payload 1"):
            jopeq.aggregate([good, sealed(good, wrong)], scheme=scheme)


@pytest.mark.parametrize("device", [None, "cpu"])
@each_scheme
def test_a_header_that_claims_too_much_is_refused_before_anything_is_allocated(scheme, device):
    claimed = sealed(scheme.encode(updates(1)[0]), shapes=((1 << 47,),))
    with pytest.raises(jopeq.PayloadError, match="payload 0"):
        jopeq.aggregate([claimed], device=device, scheme=scheme)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_bad_payload_is_named_wherever_it_is_bad(way, threads):
    scheme = jopeq.scheme("sdq", rate=np.log2(3))
    good = scheme.encode(np.ones(600_001, np.float32))
    body = bytes(open_payload(good)[1])
    ends = len(body) - 80, 0
    late, early = (sealed(good, body[:at] + b"\xff" * 8 + body[at + 8 :]) for at in ends)
    kernels.set_threads(threads)
    with pytest.raises(jopeq.PayloadError, match=r"payload 1.*outside the codebook"):
        jopeq.aggregate([good, late, early], scheme=scheme)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sum_tells_the_norms_and_all_bad_payloads(way, threads):
    """Those of the updates as they decode; 300,001 entries: a chunk that is not full."""
    scheme, count = jopeq.scheme("response", epsilon=1.0, rate=2.0, clip=0.1), 300_001
    update = np.random.default_rng(0).normal(0, 0.05, count).astype(np.float32)
    payloads = [scheme.encode(share * update) for share in (1.0, 0.5, 0.2, 0.1)]
    norms = [np.linalg.norm(scheme.decode(payload).astype(float)) for payload in payloads]
    for index in (1, 3):  # three letters: not every byte names some
        body = open_payload(payloads[index])[1]
        payloads[index] = sealed(payloads[index], bytes(body[:-9]) + b"\xff" * 9)
    kernels.set_threads(threads)
    opened = [scheme.open(payload) for payload in payloads]
    _, found, failed = weighted_sum(opened, [1.0, 1.0, 2.0, 1.0], scheme)
    assert sorted(failed) == [1, 3]
    assert (found[0], found[2]) == pytest.approx((norms[0], norms[2]), rel=1e-12)
    total, _, failed = weighted_sum(opened[::2], [1.0, 2.0], scheme)
    expected = scheme.decode(payloads[0]).astype(float) + 2.0 * scheme.decode(payloads[2])
    assert failed == {}
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize(
    ("payloads", "weights", "message"),
    [
        (0, None, "payloads is empty"),
        (2, [1.0], "weights has 1 numbers for 2 payloads"),
        (2, [1.0, 2.0, 3.0], "weights has 3 numbers for 2 payloads"),
        (2, [1.0, float("nan")], r"weights\[1\] is nan"),
    ],
)
def test_bad_arguments(payloads, weights, message):
    scheme = jopeq.scheme("none")
    coded = [scheme.encode(np.ones(3, np.float32)) for _ in range(payloads)]
    with pytest.raises(ValueError, match=message):
        jopeq.aggregate(coded, weights, scheme=scheme)
    for wrong in (None, "none", '["none",{}]'):
        with pytest.raises(TypeError, match="must be the Scheme that the clients encode with"):
            jopeq.aggregate(coded, scheme=wrong)


@pytest.mark.parametrize(
    "spec",
    ['["sdq",{"lattice":[[1.0,0.0],[0.0,1.1e-08]],"rate":2.0}]', '["none",' + "[" * 100_000,
     '["sdq",{"lattice":"E8","rate":2.5}]',
     '["mvu",{"epsilon":3.3,"fingerprint":"0123456789abcdef","rate":5.0}]'],
    ids=lambda spec: spec[:30],
)  # fmt: skip
def test_a_payload_cannot_have_a_scheme_built(spec, monkeypatch):
    """126 bytes of a client, for which gigabytes and minutes were spent."""
    scheme = jopeq.scheme("none")
    built = []
    monkeypatch.setattr(jopeq.Scheme, "__post_init__", built.append)
    payload = seal(Header(spec, ("",), ((8,),), bytes(32)).to_bytes(), [b"0"], None)
    with pytest.raises(jopeq.PayloadError, match=r"payload 0: .*made by scheme"):
        jopeq.aggregate([payload], scheme=scheme)
    assert not built


def test_the_first_payload_does_not_choose_the_layout_where_like_is_given(monkeypatch):
    scheme = jopeq.scheme("sdq", rate=2.0)
    payload = scheme.encode(np.ones((2, 5)))
    like = np.empty((2, 5))
    assert jopeq.aggregate([payload], scheme=scheme, like=like).shape == (2, 5)
    claimed = sealed(payload, shapes=((1 << 22,),))
    monkeypatch.setattr(jopeq.schemes.Opened, "decode", None)  # not even begun
    monkeypatch.setattr(jopeq.schemes.Opened, "check_size", None)
    with pytest.raises(jopeq.PayloadError, match=r"payload 0: it holds \(4194304,\), expected"):
        jopeq.aggregate([claimed, payload], scheme=scheme, like=like)


def test_what_a_client_wrote_is_quoted_briefly_and_without_control_characters():
    scheme = jopeq.scheme("none")
    fine = scheme.encode(np.ones(2))
    hostile = "\x1b[31m\n" * 10_000
    states = [{hostile: np.ones(2)}, {f"{place}{hostile}": np.ones(2) for place in range(50)}]
    payloads = [scheme.encode(state) for state in states]
    payloads.append(seal(Header(hostile, ("",), ((2,),)).to_bytes(), [bytes(8)], None))
    for payload in payloads:
        with pytest.raises(jopeq.PayloadError) as caught:
            jopeq.aggregate([fine, payload], scheme=scheme)
        assert len(str(caught.value)) < 2000
        assert str(caught.value).isprintable()
