"""A payload as the one array of a Flower record, under a serialization type of its own.

Flower reads arrays by their ``stype``. A server without ``JoPEQStrategy`` does not know ours and
stops with a TypeError, where plain bytes would have been averaged as if they were weights.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict

from jopeq.errors import PayloadError

STYPE = "jopeq.payload"
RECORD = "jopeq"
"""Key of our config records: settings on the way down, the clip bit on the way up."""


def to_array(payload: bytes) -> Array:
    """The payload as Flower carries it."""
    return Array(dtype="uint8", shape=(len(payload),), stype=STYPE, data=payload)


def to_record(payload: bytes) -> ArrayRecord:
    """A record that holds nothing but the payload."""
    return ArrayRecord({"payload": to_array(payload)})


def from_content(content: RecordDict) -> bytes:
    """The payload of a reply; ``PayloadError`` unless it is the only array there is."""
    arrays = [array for record in content.array_records.values() for array in record.values()]
    if any(array.stype != STYPE for array in arrays):
        raise PayloadError(
            "the reply holds plain arrays, not a jopeq payload: put JoPEQMod among the mods of "
            "the ClientApp"
        )
    if len(arrays) != 1:
        raise PayloadError(f"the reply holds {len(arrays)} payloads, expected one")
    return bytes(arrays[0].data)
