"""Every client's model, for strategies that do not average: decoded once.

The first ``keep_bytes`` stay in memory, the others lie in a temporary file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from io import BytesIO
from logging import WARNING
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from flwr.app import Array
from flwr.common.constant import SType
from flwr.common.logger import log

from jopeq.errors import PayloadError
from jopeq.flower.payload import Model, Values, moved, widened
from jopeq.schemes.base import Scheme
from jopeq.schemes.opened import Opened

KEEP_BYTES = 1 << 28


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


class DecodedReplies:
    """The decoded models of one round."""

    def __init__(self, keep_bytes: int = KEEP_BYTES) -> None:
        self._room = keep_bytes
        self.norms: list[float] = []
        """Of the updates, in the order they were added."""

    def add(self, opened: Opened, model: Model) -> dict[str, Array]:
        """Decode a payload; the arrays that stand for the client's model."""
        floats, norm = decoded_floats(opened, model)
        self.norms.append(norm)
        size = sum(value.nbytes for value in floats.values())
        if size <= self._room:
            self._room -= size
        else:
            floats = _on_disk(floats)
        return {name: DecodedArray(value.copy, value) for name, value in floats.items()}


def _on_disk(arrays: dict[str, Values]) -> dict[str, Values]:
    """The same values, mapped from a file that is gone with them."""
    places: dict[str, int] = {}
    try:
        with TemporaryFile(prefix="jopeq-") as file:
            for name, value in arrays.items():
                places[name] = file.tell()
                file.write(np.ascontiguousarray(value).tobytes().ljust(-(-value.nbytes // 16) * 16))
            file.flush()
            mapped = np.memmap(file, np.uint8, "r")
    except OSError as error:
        log(WARNING, "JoPEQStrategy: a model stays in memory, no file can hold it: %s", error)
        return arrays
    return {
        name: mapped[start : start + arrays[name].nbytes]
        .view(arrays[name].dtype)
        .reshape(arrays[name].shape)
        for name, start in places.items()
    }


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
