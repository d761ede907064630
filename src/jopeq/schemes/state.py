"""A model's state in one payload: thin names for ``Scheme.encode`` and ``Scheme.decode``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

from jopeq.schemes.base import Scheme, Statistics
from jopeq.schemes.opened import Opened
from jopeq.sums.secure_sum import SecureSum


@overload
def encode_state(
    scheme: Scheme, state: Mapping[str, Any], *, statistics: Literal[True], **keywords: Any
) -> tuple[bytes, Statistics]: ...


@overload
def encode_state(
    scheme: Scheme, state: Mapping[str, Any], *, statistics: Literal[False] = False, **keywords: Any
) -> bytes: ...


def encode_state(
    scheme: Scheme, state: Mapping[str, Any], **keywords: Any
) -> bytes | tuple[bytes, Statistics]:
    """The payload of a mapping of arrays or tensors, such as ``state_update`` makes of two states.

    The same as ``scheme.encode(state, …)``, which explains the keywords ``seed``, ``key``,
    ``noise``, ``on_invalid`` and ``statistics``. Integer and boolean arrays are never sent.

    >>> import numpy as np
    >>> from jopeq import scheme, encode_state, decode_state
    >>> update = {"weight": np.ones((2, 3), np.float32), "steps": np.array(7)}
    >>> decode_state(scheme("none"), encode_state(scheme("none"), update), like=update)["steps"]
    array(0)
    """
    _refuse_sums("encode_state", scheme)
    if not isinstance(scheme, Scheme):
        raise TypeError(
            f"encode_state takes the scheme first, got {type(scheme).__name__}: "
            "call encode_state(scheme, state)"
        )
    if not isinstance(state, Mapping):
        raise TypeError(
            f"encode_state takes a mapping of arrays, got {type(state).__name__}: "
            "for one array call scheme.encode(array)"
        )
    result: bytes | tuple[bytes, Statistics] = scheme.encode(state, **keywords)
    return result


def decode_state(
    scheme: Scheme, payload: bytes, like: Mapping[str, Any], *, key: bytes | None = None
) -> dict[str, Any]:
    """The mapping in a payload, with the names, shapes, types and devices of ``like``.

    The same as ``scheme.decode(payload, like=like)``. Integer and boolean arrays are 0: no update
    changes them. ``updated_state`` applies the result to the received state.
    """
    _refuse_sums("decode_state", scheme)
    if not isinstance(scheme, Scheme):
        raise TypeError(
            f"decode_state takes the scheme first, got {type(scheme).__name__}: "
            "call decode_state(scheme, payload, like=state)"
        )
    state: dict[str, Any] = scheme.decode(payload, like=like, key=key)
    return state


def _refuse_sums(caller: str, scheme: Any) -> None:
    if isinstance(scheme, SecureSum):
        raise TypeError(
            f"{caller} is for payloads, and scheme 'sum' makes shares that only a secure sum "
            "opens: use jopeq.secure.Client and Server, or JoPEQSumMod and JoPEQSumStrategy in "
            "Flower"
        )


def opened_state(opened: Opened, like: Mapping[str, Any]) -> dict[str, Any]:
    """``decode_state`` of a payload that ``Scheme.open`` has read: ``opened.decode_like(like)``.

    >>> import numpy as np
    >>> from jopeq import encode_state, scheme
    >>> state = {"weight": np.ones((2, 3), np.float32)}
    >>> opened = scheme("none").open(encode_state(scheme("none"), state), most_tensors=1)
    >>> opened.header.names, opened_state(opened, like=state)["weight"].shape
    (('weight',), (2, 3))
    """
    return opened.decode_like(like)
