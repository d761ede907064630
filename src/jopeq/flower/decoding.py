"""Every client's model, for strategies that do not average: decoded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array
from flwr.common.constant import SType

from jopeq.errors import PayloadError
from jopeq.flower.payload import Model, Values, moved, widened
from jopeq.schemes.base import Scheme
from jopeq.schemes.opened import Opened


def opened_update(scheme: Scheme, payload: bytes, model: Model) -> Opened:
    """A payload whose layout fits the model, not decoded yet; ``PayloadError`` if it is bad."""
    opened = scheme.open(payload, most_tensors=len(model.floats))
    opened.check_fits({name: value.shape for name, value in _named(opened, model).items()})
    opened.check_size()
    return opened


def decoded_floats(opened: Opened, model: Model) -> tuple[dict[str, Values], float]:
    """Server's model + update, of the arrays the payload names, and the norm of the update."""
    update = decoded_update(opened, model)
    squares = (np.square(value, dtype=np.float64).sum() for value in update.values())
    return moved_floats(model, update), math.sqrt(math.fsum(map(float, squares)))


def decoded_update(opened: Opened, model: Model) -> dict[str, Values]:
    """The update alone."""
    return opened.decode_like(widened(_named(opened, model)))


def _named(opened: Opened, model: Model) -> dict[str, Values]:
    """The server's arrays of those that a payload names, as far as the scheme sends them."""
    named = (name for name in opened.header.names if opened.codec.scheme.sends(name))
    return {name: model.floats[name] for name in named if name in model.floats}


def moved_floats(model: Model, update: Mapping[str, Values]) -> dict[str, Values]:
    """The server's arrays plus an update; ``PayloadError`` where their types cannot hold that."""
    result = moved(model.floats, update)
    for name, value in result.items():
        if not np.isfinite((value.min(initial=0), value.max(initial=0))).all() and (
            (~np.isfinite(value) & np.isfinite(model.floats[name])).any()
        ):
            raise PayloadError(f"array {name!r} would hold entries too large for {value.dtype}")
    return result


class DecodedArray(Array):
    """An array whose values are made when ``numpy`` or ``data`` is read."""

    def __init__(self, read: Callable[[], Values], example: Values) -> None:
        self.__dict__["_read"] = read
        self.dtype, self.shape, self.stype = str(example.dtype), example.shape, SType.NUMPY

    def numpy(self) -> Values:
        value: Values = np.asarray(self.__dict__["_read"]())
        return value

    @property
    def data(self) -> bytes:
        """The array as Flower serializes arrays."""
        buffer = BytesIO()
        np.save(buffer, self.numpy(), allow_pickle=False)
        return buffer.getvalue()

    @data.setter
    def data(self, value: Any) -> None:
        raise AttributeError("the data of a decoded array come from its payload")
