"""Whole models in one payload: what is sent, what is kept, what does not fit."""

import tracemalloc

import numpy as np
import pytest

import jopeq
from jopeq.errors import PayloadError, StateMismatchError
from jopeq.wire.payload import Header, open_payload, seal

torch = pytest.importorskip("torch")

NONE = jopeq.scheme("none")
FINE = {
    "none": NONE,
    "sdq": jopeq.scheme("sdq", rate=12.0),
    "per tensor": jopeq.scheme("sdq", rate=12.0, per="tensor", center=True),
    "A2": jopeq.scheme("sdq", rate=9.0, lattice="A2", gamma=2.0),
    # 12 > √128: no rotation of the states below, whose signs are drawn anew, clips an entry
}


def mixed_state():
    source = np.random.default_rng(0)
    return {
        "conv.weight": source.standard_normal((3, 2, 2)).astype(np.float32),
        "conv.bias": source.standard_normal(3),
        "half": source.standard_normal(5).astype(np.float16),
        "scale": np.float32(0.25),
        "steps": np.array(7),
        "mask": np.array([True, False]),
        "empty": np.zeros((0, 4), np.float32),
    }


def torch_state():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Linear(4, 2)
    )
    state = dict(layers.state_dict())
    state["bfloat16"] = torch.linspace(-1, 1, 5, dtype=torch.bfloat16)
    state["float16"] = torch.linspace(-1, 1, 5, dtype=torch.float16)
    state["double"] = torch.linspace(-1, 1, 5, dtype=torch.float64)
    state["learned"] = torch.linspace(-1, 1, 3, requires_grad=True)
    state["flags"] = torch.tensor([True, False])
    return state


@pytest.mark.parametrize("build", [mixed_state, torch_state])
@pytest.mark.parametrize("scheme", FINE.values(), ids=FINE)
def test_states_come_back_with_shape_type_and_device(scheme, build):
    state = build()
    payload, counted = scheme.encode(state, counts=True)
    assert counted.payload_bytes == len(payload)
    decoded = scheme.decode(payload, like=state)
    assert list(decoded) == list(state)
    for name, value in state.items():
        assert torch.is_tensor(decoded[name]) == torch.is_tensor(value)
        assert (decoded[name].shape, decoded[name].dtype) == (value.shape, value.dtype)
        if torch.is_tensor(value):
            assert decoded[name].device == value.device
        if torch.as_tensor(value).is_floating_point():
            found, sent = (torch.as_tensor(x).detach().double() for x in (decoded[name], value))
        else:
            found, sent = torch.as_tensor(decoded[name]), torch.zeros_like(torch.as_tensor(value))
        torch.testing.assert_close(found, sent, atol=0.02, rtol=0.0)


def test_an_update_too_has_the_layout_it_is_like():
    payload = NONE.encode(np.ones((2, 3)))
    assert NONE.decode(payload, like=torch.zeros(2, 3)).dtype == torch.float32
    with pytest.raises(StateMismatchError, match=r"shape \(2, 3\) in the payload, expected \(6,\)"):
        NONE.decode(payload, like=np.ones(6))
    with pytest.raises(ValueError, match="drop device"):
        NONE.decode(payload, like=np.ones((2, 3)), device="cpu")


def test_counters_are_never_sent_and_their_update_is_0():
    state = torch_state()
    payload = NONE.encode(state)
    names = open_payload(payload)[0].names
    assert not [n for n in names if "num_batches_tracked" in n or n == "flags"]
    like = state | {"1.num_batches_tracked": torch.tensor(41)}
    order = sorted(like)  # which does not matter
    decoded = NONE.decode(payload, like={name: like[name] for name in order})
    assert list(decoded) == order
    assert decoded["1.num_batches_tracked"] == 0  # so that adding the update keeps the counter
    assert torch.equal(decoded["double"], state["double"].float().double())
    decoded["double"][:] = 7  # the caller's own
    assert state["double"].max() == 1


def test_nested_states_name_the_part_to_pass():
    checkpoint = {"opt": {"lr": 0.1}, "epoch": 3, "model": STATE}
    with pytest.raises(jopeq.JoPEQError, match=r"nested, 'model' .*pass state\['model'\]"):
        NONE.encode(checkpoint)


@pytest.mark.parametrize("per", ["update", "tensor"])
@pytest.mark.parametrize("center", [False, True])
def test_an_empty_state_is_a_state(per, center):
    scheme = jopeq.scheme("sdq", rate=2.0, per=per, center=center)
    assert scheme.decode(scheme.encode({}), like={}) == scheme.decode(scheme.encode({})) == {}
    like = {"steps": np.array(3)}
    assert scheme.decode(scheme.encode({}), like=like) == {"steps": 0}


STATE = {"a": np.ones(3), "b": np.ones((2, 2))}


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": np.ones(3)}, "holds tensor 'b', not expected"),
        (STATE | {"c": np.ones(1)}, "lacks tensor 'c'"),
        ({"a": np.ones(3), "B": np.ones((2, 2))}, "lacks tensor 'B'"),
        ({"a": np.ones(4), "b": np.ones((2, 2))}, r"'a' has shape \(3,\) .* expected \(4,\)"),
        ({"a": np.ones(3), "b": np.ones(4)}, r"'b' has shape \(2, 2\) .* expected \(4,\)"),
        ({"a": np.ones(3, int), "b": np.ones((2, 2))}, "holds tensor 'a', not expected"),
        (STATE | {"c": np.ones(2, complex)}, "lacks tensor 'c'"),
    ],
)
def test_states_that_do_not_fit_are_refused_by_key(like, message):
    with pytest.raises(StateMismatchError, match=message):
        NONE.decode(NONE.encode(STATE), like=like)


def test_a_name_may_not_come_twice():
    header = Header(NONE.spec, ("a", "a"), ((1,), (1,)))
    payload = seal(header.to_bytes(), [bytes(8)], None)
    for like in ({"a": np.ones(1)}, None):
        with pytest.raises(PayloadError, match="twice"):
            NONE.decode(payload, like=like)


@pytest.mark.parametrize("scheme", FINE.values(), ids=FINE)
def test_states_and_updates_are_not_taken_for_each_other(scheme):
    for state in (STATE, {"a": np.ones(3)}):
        payload = scheme.encode(state)
        found, expected = scheme.decode(payload), scheme.decode(payload, like=state)
        assert list(found) == list(state)
        for name in state:
            assert found[name].dtype == np.float32
            np.testing.assert_array_equal(found[name], expected[name].astype(np.float32))
    with pytest.raises(StateMismatchError, match="lacks tensor 'a'"):
        scheme.decode(scheme.encode(np.ones(3)), like={"a": np.ones(3)})
    with pytest.raises(StateMismatchError, match="holds tensor ''"):
        scheme.decode(scheme.encode(np.ones(3)), like={})


def test_numbers_too_large_for_the_dtype_are_refused_by_key():
    payload = NONE.encode({"a": np.full(2, 1e6)})
    for like in (np.zeros(2, np.float16), torch.zeros(2, dtype=torch.float16)):
        with pytest.raises(PayloadError, match=r"tensor 'a' holds numbers too large for .*float16"):
            NONE.decode(payload, like={"a": like})


def test_a_state_that_does_not_fit_is_refused_before_it_is_decoded():
    """A body of a bit an entry makes 32 times as many bytes: nobody should make room for them."""
    scheme = jopeq.scheme("sdq", rate=1.0)
    payload = scheme.encode({"w": np.zeros(1 << 20, np.float32)})
    tracemalloc.start()
    try:
        with pytest.raises(StateMismatchError, match="has shape"):
            scheme.decode(payload, like={"w": np.zeros(10, np.float32)})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(payload) + 100_000


def test_clips_that_both_ends_did_not_agree_on_are_refused():
    ours = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip="layers").with_clips({"a": 0.1})
    theirs = ours.with_clips({"a": 0.2})
    payload = theirs.encode({"a": np.ones(3)})
    assert theirs.decode(payload).keys() == {"a"}
    with pytest.raises(PayloadError, match="agreed on"):
        ours.decode(payload)
