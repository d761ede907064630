"""A payload as the one array of a Flower record, and a message's arrays under flat names.

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
from jopeq.schemes.model import apply_move, moves, variance_of, wide
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


# The arrays of a message under one flat set of names, and which of them are sent


class ReplyError(UpdateError):
    """The reply's arrays are not those of the server's model; the message tells no values."""


class Model:
    """All array records of a message, copied: an app may empty the message.

    Array "w" of record "a" is called "w" if "a" is the only record, else "a/w".
    """

    def __init__(self, content: RecordDict) -> None:
        records = content.array_records
        self.places: dict[str, tuple[str, str]] = {}
        self._arrays: dict[str, Array] = {}
        for key, record in records.items():
            for name, array in record.items():
                flat = name if len(records) == 1 else f"{key}/{name}"
                if flat in self.places:
                    raise ReplyError(f"two arrays are called {flat!r}: rename one of the records")
                self.places[flat] = (key, name)
                self._arrays[flat] = Array(array.dtype, tuple(array.shape), array.stype, array.data)

    @cached_property
    def values(self) -> dict[str, Values]:
        return {name: array.numpy() for name, array in self._arrays.items()}

    @cached_property
    def floats(self) -> dict[str, Values]:
        """The arrays that may be sent as updates: all but integers and booleans."""
        return {name: value for name, value in self.values.items() if is_float(value)}

    def array(self, name: str) -> Array:
        return self._arrays[name]

    def records(self, arrays: Mapping[str, Array]) -> dict[str, ArrayRecord]:
        result: dict[str, ArrayRecord] = {}
        for flat, (key, name) in self.places.items():
            result.setdefault(key, ArrayRecord())[name] = arrays.get(flat, self._arrays[flat])
        return result


def matches(record: str, name: str, patterns: Iterable[str]) -> bool:
    """True if a pattern fits the array's name, with or without its record's."""
    names = (name, f"{record}/{name}")
    return any(fnmatchcase(one, pattern) for one in names for pattern in patterns)


def check_frozen(frozen: Iterable[str]) -> tuple[str, ...]:
    """Patterns of arrays that are never sent."""
    if isinstance(frozen, str):
        raise ValueError(f"frozen must be a list of names, got {frozen!r}: use ['{frozen}']")
    return tuple(frozen)


def sent_names(model: Model, frozen: Iterable[str]) -> list[str]:
    """The float arrays whose updates are sent, in the message's order."""
    return [name for name in model.floats if not matches(*model.places[name], frozen)]


def warn_unused(model: Model, frozen: Iterable[str]) -> None:
    """Name the patterns that match nothing: what they were to keep at home is sent."""
    for pattern in frozen:
        if not any(matches(*place, (pattern,)) for place in model.places.values()):
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


def move(before: Mapping[str, Values], update: Mapping[str, Values]) -> dict[str, Values]:
    """The updated arrays, in their own types: the same bits on every machine.

    ``before`` is the whole model: the update of a running mean is in units of its variance.
    """
    result = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for name, change in update.items():
            value = before[name]
            if is_statistic(name):
                new = apply_move(name, wide(value), wide(change), variance_of(name, before))
            else:
                new = np.asarray(widen(value) + change)
            result[name] = new.astype(value.dtype)
    return result


def update_of(
    before: Model, after: RecordDict, names: Iterable[str], *, is_private: bool
) -> dict[str, Values]:
    """Returned minus received, for these float arrays in this order.

    Where the update is private, an array that the reply lacks, or holds in another shape or kind,
    counts as unchanged, and only the client's log tells which. Otherwise arrays that the reply
    leaves out are no part of the update, and those that do not fit raise ``ReplyError``.
    """
    sent = {place: flat for flat, place in before.places.items()}
    records, only = after.array_records, {key for key, _ in sent}
    renamed = next(iter(only)) if len(only) == 1 == len(records) else None
    places = {
        (key, name): sent.get((renamed or key, name)) for key, r in records.items() for name in r
    }
    extra = [f"array {n!r} of record {key!r}" for (key, n), flat in places.items() if flat is None]
    told = f"{', '.join(extra)} of the reply: no part of the model that the server sent"
    if not is_private and (extra or not records):
        raise ReplyError(told if extra else "the reply holds no ArrayRecord, so it has no update")
    if extra:
        log(WARNING, "JoPEQ: %s, and stays here", told)
    returned = {flat: records[key][name] for (key, name), flat in places.items()}
    update = {}
    for name in names:
        try:
            if is_private or name in returned:
                update[name] = _change(name, before.floats, returned[name].numpy())
        except Exception as error:  # an app may return any bytes as an array
            if not is_private:
                raise
            why = "the reply lacks it" if name not in returned else error
            log(WARNING, "JoPEQ: array %r counts as unchanged: %s", name, why)
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
