"""A model's state in one payload: the float tensors of a mapping, coded together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from jopeq.errors import PayloadError, StateMismatchError
from jopeq.kernels.device import common_device
from jopeq.random.streams import PrivateStream
from jopeq.schemes.base import OnInvalid, Opened, Scheme
from jopeq.wire.entries import is_left_out, is_tensor, sent
from jopeq.wire.payload import Header

NAMED = 16  # tensors more than expected that are still read, so that the error can name one


def encode_state(
    scheme: Scheme,
    state: Mapping[str, Any],
    *,
    seed: bytes | None = None,
    key: bytes | None = None,
    noise: PrivateStream | None = None,
    on_invalid: OnInvalid | None = None,
) -> bytes:
    """The payload of a mapping of arrays or tensors, such as a ``state_dict`` difference.

    Integer and boolean entries are never sent. See ``Scheme.encode`` for the keywords.

    >>> from jopeq import scheme, encode_state, decode_state
    >>> state = {"weight": np.ones((2, 3), np.float32), "steps": np.array(7)}
    >>> decode_state(scheme("none"), encode_state(scheme("none"), state), like=state)["steps"]
    array(7)
    """
    entries = scheme._entries(*sent(state))
    return scheme._encode(entries, seed, key, noise, scheme._limits(on_invalid))[0]


def decode_state(
    scheme: Scheme, payload: bytes, like: Mapping[str, Any], *, key: bytes | None = None
) -> dict[str, Any]:
    """The mapping in a payload, with the keys, shapes, types and devices of ``like``.

    Integer and boolean entries are taken from ``like`` as they are.
    """
    opened = scheme.open(payload, key=key, most_tensors=len(like) + NAMED)
    return opened_state(opened, like)


def opened_state(opened: Opened, like: Mapping[str, Any]) -> dict[str, Any]:
    """``decode_state`` of a payload that ``Scheme.open`` has read already.

    >>> from jopeq import encode_state, scheme
    >>> state = {"weight": np.ones((2, 3), np.float32)}
    >>> opened = scheme("none").open(encode_state(scheme("none"), state), most_tensors=1)
    >>> opened.header.names, opened_state(opened, like=state)["weight"].shape
    (('weight',), (2, 3))
    """
    device = common_device(value for value in like.values() if not is_left_out(value))
    expected = _sent_shapes(like)
    _check_fits(opened.header, expected)
    flat = opened.decode(device)
    ends = np.cumsum(opened.sizes).tolist()
    pieces = {
        name: flat[end - size : end].reshape(expected[name])
        for name, size, end in zip(opened.header.names, opened.sizes, ends, strict=True)
    }
    return {
        name: _like(pieces[name], value, name) if name in pieces else value
        for name, value in like.items()
    }


def _sent_shapes(like: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(np.shape(value)) for name, value in like.items() if not is_left_out(value)}


def _check_fits(header: Header, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ``StateMismatchError`` unless the header names these tensors, each once."""
    received = dict(zip(header.names, header.shapes, strict=True))
    if len(received) != len(header.names):
        raise StateMismatchError("the payload names a tensor twice")
    for name in expected:
        if name not in received:
            raise StateMismatchError(f"the payload lacks tensor {name!r}")
    for name, shape in received.items():
        if name not in expected:
            raise StateMismatchError(
                f"the payload holds tensor {name!r:.80}, which is not expected"
            )
        if shape != expected[name]:
            raise StateMismatchError(
                f"tensor {name!r} has shape {shape} in the payload, expected {expected[name]}"
            )


def _like(values: Any, example: Any, name: str) -> Any:
    """``values``, an array or a tensor, as the kind of array ``example`` is."""
    result: Any
    if is_tensor(example):
        torch = sys.modules["torch"]
        copied = values.clone() if is_tensor(values) else torch.from_numpy(values.copy())
        result = copied.to(dtype=example.dtype)
        is_finite = bool(torch.isfinite(result).all())
        result = result.to(device=example.device)
    else:
        with np.errstate(over="ignore"):
            result = values.astype(np.asarray(example).dtype)
        is_finite = bool(np.isfinite(result).all())
    if not is_finite:
        raise PayloadError(f"tensor {name!r} holds numbers too large for {result.dtype}")
    return result
