"""Models that are decoded when a strategy reads them, so that a round needs little memory.

Flower's averaging strategies read one reply after the other. Each array of a reply knows its
client's payload and decodes the payload when the strategy reads the array, so a round of many
clients needs the memory of one. Every payload is decoded once beforehand, to find the bad ones. Up
to ``keep_bytes`` of these results are kept, the others are decoded again. A reply that a strategy
reads a second time is kept too.
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array
from flwr.common.constant import SType

from jopeq.errors import PayloadError
from jopeq.flower.payload import Model, Values, moved, widened
from jopeq.schemes import Scheme

KEEP_BYTES = 1 << 28


def decoded_floats(scheme: Scheme, payload: bytes, model: Model) -> tuple[dict[str, Values], float]:
    """Server's model + update, of the arrays the payload names, and the norm of the update.

    ``PayloadError`` if the payload is bad.
    """
    opened = scheme.open(payload, most_tensors=len(model.floats))
    before = {name: model.floats[name] for name in opened.header.names if name in model.floats}
    update = opened.decode_like(widened(before))
    result = moved(before, update)
    for name, value in result.items():
        if (~np.isfinite(value) & np.isfinite(before[name])).any():
            raise PayloadError(f"array {name!r} would hold entries too large for {value.dtype}")
    squares = (np.square(value, dtype=np.float64).sum() for value in update.values())
    return result, math.sqrt(math.fsum(map(float, squares)))


class DecodedReplies:
    """The decoded models of one round."""

    def __init__(self, scheme: Scheme, keep_bytes: int = KEEP_BYTES) -> None:
        self._scheme = scheme
        self._room = keep_bytes
        self._sources: list[tuple[bytes, Model]] = []
        self._kept: dict[int, dict[str, Values]] = {}
        self._last: tuple[int, dict[str, Values]] | None = None
        self._was_read: set[int] = set()
        self.norms: list[float] = []
        """Of the updates, in the order they were added."""

    def add(self, payload: bytes, model: Model) -> dict[str, Array]:
        """Check a payload by decoding it; the arrays that stand for the result."""
        floats, norm = decoded_floats(self._scheme, payload, model)
        index = len(self._sources)
        self._sources.append((payload, model))
        self.norms.append(norm)
        size = sum(value.nbytes for value in floats.values())
        if size <= self._room:
            self._room -= size
            self._kept[index] = floats
        return {name: DecodedArray(self, index, name, floats[name]) for name in floats}

    def read(self, index: int, name: str) -> Values:
        """One array of one reply."""
        if index in self._kept:
            return self._kept[index][name]
        if self._last is not None and self._last[0] == index:
            return self._last[1][name]
        floats, _ = decoded_floats(self._scheme, *self._sources[index])
        if index in self._was_read:  # the strategy comes back: it needs all at once anyway
            self._kept[index] = floats
        self._was_read.add(index)
        self._last = (index, floats)
        return floats[name]


class DecodedArray(Array):
    """An array of a decoded reply; the values are made when ``numpy`` or ``data`` is read."""

    def __init__(self, replies: DecodedReplies, index: int, name: str, example: Values) -> None:
        self.__dict__["_source"] = (replies, index, name)
        self.dtype, self.shape, self.stype = str(example.dtype), example.shape, SType.NUMPY

    def numpy(self) -> Values:
        replies, index, name = self.__dict__["_source"]
        value: Values = replies.read(index, name).copy()  # a strategy may change it in place
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
