"""A payload as the one array of a Flower record, and the arrays of a message: the model.

Flower reads arrays by their ``stype``. A server without ``PayloadStrategy`` does not know ours and
stops with a TypeError. Plain bytes it would average as if they were weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.logger import log
from numpy.typing import NDArray

from jopeq.errors import PayloadError, UpdateError
from jopeq.schemes.model import moves, updated_state, variance_of, wide
from jopeq.wire.scaling import is_statistic

Values = NDArray[Any]

STYPE = "jopeq.payload"


def to_record(payload: bytes) -> ArrayRecord:
    """A record of the payload alone."""
    return ArrayRecord({"payload": Array("uint8", (len(payload),), STYPE, payload)})


def from_content(content: RecordDict) -> bytes:
    """The payload of a reply; ``PayloadError`` unless the payload is the only array."""
    arrays = [array for record in content.array_records.values() for array in record.values()]
    if any(array.stype != STYPE for array in arrays):
        raise PayloadError(
            "the reply holds plain arrays: put PayloadMod among the ClientApp's mods"
        )
    if len(arrays) != 1:
        raise PayloadError(f"the reply holds {len(arrays)} payloads, expected one")
    return bytes(arrays[0].data)


# The arrays of a message, and which of them are sent


class ReplyError(UpdateError):
    """The reply's arrays are not those of the server's model; the message tells no values."""


class Model:
    """The one array record of a message, copied: an app may empty the message."""

    def __init__(self, content: RecordDict) -> None:
        records = content.array_records
        if len(records) != 1:
            raise ReplyError(f"a model is one ArrayRecord, and this message holds {len(records)}")
        ((self.key, record),) = records.items()
        self.names = tuple(record)
        self._arrays = {
            name: Array(array.dtype, tuple(array.shape), array.stype, array.data)
            for name, array in record.items()
        }

    @cached_property
    def floats(self) -> dict[str, Values]:
        """The arrays that may be sent as updates: all but integers and booleans."""
        values = {name: array.numpy() for name, array in self._arrays.items()}
        return {name: value for name, value in values.items() if is_float(value)}

    def record(self, values: Mapping[str, Values]) -> ArrayRecord:
        """The model with these values. An array that has none did not change."""
        changed = {name: Array(value) for name, value in values.items()}
        return ArrayRecord(self._arrays | changed)


def check_frozen(frozen: Iterable[str]) -> tuple[str, ...]:
    """Patterns of arrays that are never sent."""
    if isinstance(frozen, str):
        raise ValueError(f"frozen must be a list of names, got {frozen!r}: use ['{frozen}']")
    return tuple(frozen)


def sent_names(model: Model, frozen: Iterable[str]) -> list[str]:
    """The float arrays whose updates are sent, in the message's order."""
    return [n for n in model.floats if not any(fnmatchcase(n, pattern) for pattern in frozen)]


def warn_unused(model: Model, frozen: Iterable[str]) -> None:
    """Name the patterns that match nothing: what they were to keep at home is sent."""
    for pattern in frozen:
        if not any(fnmatchcase(name, pattern) for name in model.names):
            log(WARNING, "JoPEQ: frozen: %r matches no array, so it keeps nothing at home", pattern)


def own_content(msg: Message) -> RecordDict:
    """Records of the message's own: within one process, messages to all nodes may share theirs."""
    content = RecordDict()
    for key, record in msg.content.items():
        is_arrays = isinstance(record, ArrayRecord)
        content[key] = ArrayRecord(dict(record)) if is_arrays else record.copy()
    return content


def array_bytes(content: RecordDict) -> int:
    """Bytes of all arrays of a message."""
    return sum(len(a.data) for record in content.array_records.values() for a in record.values())


def is_float(value: Values) -> bool:
    """True if training moves this array: neither integers nor booleans."""
    return value.dtype.kind not in "iub"


def widen(value: Values) -> Values:
    """An array in the type that updates are added in: float32 at least."""
    return value.astype(np.result_type(value.dtype, np.float32), copy=False)


def split(flat: Values, model: Model, names: Iterable[str]) -> dict[str, Values]:
    """A flat update as arrays of these names and the model's shapes."""
    shapes, end, update = {name: model.floats[name].shape for name in names}, 0, {}
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape)
        update[name] = flat[start:end].reshape(shape)
    return update


def move(model: Model, update: Mapping[str, Values]) -> dict[str, Values]:
    """The updated arrays, in their own types: the same bits on every machine."""
    with np.errstate(all="ignore"):
        moved = updated_state(model.floats, update)
    return {name: moved[name] for name in update}


def update_of(
    before: Model, after: RecordDict, names: Iterable[str], *, is_private: bool
) -> dict[str, Values]:
    """Returned minus received, for these float arrays in this order.

    Where the update is private, an array that the reply lacks, or holds in another shape or kind,
    counts as unchanged, and only the client's log tells which. Otherwise the reply must hold the
    model's own arrays: ``ReplyError``.
    """
    returned = dict[str, Array]()
    for record in after.array_records.values():
        returned.update(record)
    if extra := [repr(name) for name in returned if name not in before.names]:
        told = f"arrays {', '.join(extra)} of the reply: no part of the model that the server sent"
        if not is_private:
            raise ReplyError(told)
        log(WARNING, "JoPEQ: %s, and stay here", told)
    update = {}
    for name in names:
        try:
            if name not in returned:
                raise ReplyError(f"array {name!r}: the reply lacks it; freeze what is not sent")
            update[name] = _change(name, before.floats, returned[name].numpy())
        except Exception as error:  # an app may return any bytes as an array
            if not is_private:
                raise
            log(WARNING, "JoPEQ: array %r counts as unchanged: %s", name, error)
            update[name] = np.zeros(before.floats[name].shape, np.float32)
    return update


def _change(name: str, model: Mapping[str, Values], after: Values) -> Values:
    """The update of one array (see ``jopeq.schemes.model``)."""
    before = model[name]
    if after.dtype.kind not in "fV" or before.shape != after.shape:  # V: an extension's bfloat16
        raise ReplyError(
            f"array {name!r} is {before.dtype} {before.shape} in the server's model and "
            f"{after.dtype} {after.shape} in the reply: return it with the type it came with"
        )
    if is_statistic(name):
        return moves(name, wide(before), wide(after), variance_of(name, model))
    wider = np.result_type(before.dtype, after.dtype, np.float32)
    with np.errstate(all="ignore"):  # the encoder knows what to do with what is not finite
        return np.asarray(np.subtract(after, before, dtype=wider))
