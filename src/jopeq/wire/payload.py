"""The payload: header, body, checks. docs/wire-format.md describes it byte by byte.

    magic | version | flags | scheme | tensors | seed or nonce | scales | body | tag | CRC32

The reader trusts nothing. It verifies checksum and tag before it reads the header, checks every
length against the available bytes before it allocates, and reads no more tensors than it expects.
Any fault raises ``PayloadError``.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from jopeq.errors import MissingSecretError, PayloadError
from jopeq.random.streams import NONCE_BYTES, SEED_BYTES, SharedStream, derive
from jopeq.wire.entries import MAX_AXES
from jopeq.wire.scaling import LARGEST_SCALE, Scale

MAGIC = b"JoPQ"
VERSION = 1
TAG_BYTES = 16
CRC_BYTES = 4
_FLAGS_AT = len(MAGIC) + 1
_KEYED, _DITHERED, _SCALED, _CENTERED, _STATISTICS = 1, 2, 4, 8, 16
_FLAGS = _KEYED | _DITHERED | _SCALED | _CENTERED | _STATISTICS
_MAX_ENTRIES = 1 << 48
MAX_TENSORS = 1 << 16  # that a header may name where the reader expects no number
_NOTHING_SHARED = SharedStream(bytes(SEED_BYTES))  # stands in where no shared bit is read
_UNIT = itemgetter(0)  # of a scale
_ENDS_EARLY = "the payload ends inside its header"

_Opening = tuple[str, tuple[str, ...], tuple[tuple[int, ...], ...]]  # scheme, names, shapes
_MOST_KEPT = 1 << 16  # bytes
_last: tuple[bytes, _Opening] = (b"", ("", (), ()))  # read last, and what the bytes say


class Header(NamedTuple):
    """Everything before a payload's body."""

    scheme: str  # the JSON of Scheme.spec
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    seed: bytes = b""  # 32-byte seed, 16-byte nonce when keyed, empty without dither
    is_keyed: bool = False
    scales: tuple[Scale, ...] = ()
    is_centered: bool = False
    has_statistics: bool = False  # running statistics, whose scale is 1

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(math.prod, self.shapes))

    def shared_stream(self, secret: bytes | None) -> SharedStream:
        """The dither's stream."""
        if not self.is_keyed:
            return SharedStream(self.seed) if self.seed else _NOTHING_SHARED
        if secret is None:
            raise MissingSecretError("this payload's dither needs its secret: give secret")
        return SharedStream.from_secret(secret, self.seed)

    def arrange(self, flat: Any) -> Any:
        """Shape one row of all entries into the update or state."""
        if self.names == ("",):
            return flat.reshape(self.shapes[0])
        sizes = self.sizes
        named = zip(self.names, self.shapes, sizes, accumulate(sizes), strict=True)
        state = {name: flat[end - size : end].reshape(shape) for name, shape, size, end in named}
        if len(state) != len(self.names):
            raise PayloadError("the payload names a tensor twice")
        return state

    def to_bytes(self) -> bytes:
        flags = (
            _KEYED * self.is_keyed
            | _DITHERED * bool(self.seed)
            | _SCALED * bool(self.scales)
            | _CENTERED * self.is_centered
            | _STATISTICS * self.has_statistics
        )
        parts = [_opening(flags, self.scheme, self.names, self.shapes), self.seed]
        if self.scales:
            numbers = chain(*self.scales) if self.is_centered else map(_UNIT, self.scales)
            values = list(numbers)
            parts += [varint(len(self.scales)), struct.pack(f"<{len(values)}f", *values)]
        return b"".join(parts)


@lru_cache(maxsize=16)
def _opening(
    flags: int, scheme: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
) -> bytes:
    """The part of the header that all updates of a model share."""
    encoded = scheme.encode()
    parts = [MAGIC, bytes((VERSION, flags)), varint(len(encoded)), encoded]
    parts.append(varint(len(shapes)))
    for name, shape in zip(names, shapes, strict=True):
        encoded = name.encode()
        parts += [varint(len(encoded)), encoded, varint(len(shape)), *map(varint, shape)]
    return b"".join(parts)


def seal(header: bytes, body: list[Any], secret: bytes | None) -> bytes:
    """Append the tag (if keyed) and the checksum to header and body."""
    parts = [header, *body]
    if secret is not None:
        parts.append(_tag(secret, parts))
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join((*parts, struct.pack("<I", crc)))


def open_payload(
    payload: bytes | bytearray | memoryview,
    secret: bytes | None = None,
    *,
    most_tensors: int = MAX_TENSORS,
) -> tuple[Header, memoryview]:
    """Verify a payload and split it into header and body; without ``secret`` no tag is checked.

    A tensor takes two bytes of a header and a hundred in memory, so a header that names more than
    ``most_tensors`` is refused before they are read.
    """
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise PayloadError(f"a payload is bytes, got {type(payload).__name__}")
    view = memoryview(payload)
    if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
        payload = bytes(view)
        view = memoryview(payload)
    if len(view) < _FLAGS_AT + 1 + CRC_BYTES or view[: len(MAGIC)] != MAGIC:
        raise PayloadError("these bytes are not a jopeq payload (wrong magic or too short)")
    content = view[:-CRC_BYTES]
    if zlib.crc32(content) != int.from_bytes(view[-CRC_BYTES:], "little"):
        raise PayloadError("the payload is corrupted or truncated: its checksum does not match")
    version, flags = view[_FLAGS_AT - 1], view[_FLAGS_AT]
    if version != VERSION:
        raise PayloadError(f"payload version {version} is not supported (this is {VERSION})")
    if flags & ~_FLAGS or (flags & _KEYED and not flags & _DITHERED):
        raise PayloadError(f"the header holds impossible flags ({flags:#04x})")
    if flags & _KEYED:
        content, tag = content[:-TAG_BYTES], content[-TAG_BYTES:]
        if secret is not None and not hmac.compare_digest(_tag(secret, [content]), tag):
            raise PayloadError("the payload was made with another secret, or altered")
    elif secret is not None:
        raise PayloadError("the payload was made without a secret: drop secret, or do not trust it")
    reader = _Reader(payload, len(content))
    header = reader.header(flags, most_tensors)
    return header, content[reader.position :]


@lru_cache(maxsize=256)
def varint(value: int) -> bytes:
    """Unsigned LEB128: seven bits per byte, lowest first, high bit on all but the last byte."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """Walks over untrusted bytes."""

    def __init__(self, data: bytes | bytearray | memoryview, end: int) -> None:
        self.data, self.end = data, end
        self.position = _FLAGS_AT + 1

    def take(self, count: int) -> bytes:
        start = self.position
        if count > self.end - start:
            raise PayloadError(_ENDS_EARLY)
        self.position = start + count
        return bytes(self.data[start : start + count])

    def varint(self) -> int:
        value = shift = 0
        while self.position < self.end and shift < 63:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise PayloadError(_ENDS_EARLY if shift < 63 else "the header holds an oversized number")

    def text(self) -> str:
        try:
            return self.take(self.varint()).decode()
        except UnicodeDecodeError as error:
            raise PayloadError("the header holds text that is not UTF-8") from error

    def shape(self) -> tuple[int, ...]:
        axes = self.varint()
        if axes > MAX_AXES:
            raise PayloadError(f"the header claims an array of {axes} axes")
        shape = tuple([self.varint() for _ in range(axes)])
        if math.prod(filter(None, shape)) > _MAX_ENTRIES:
            raise PayloadError(f"the header claims an array of shape {shape}")
        return shape

    def opening(self, most_tensors: int) -> _Opening:
        """The part that a model's payloads share, read once while they follow each other."""
        global _last
        start, (known, said) = self.position, _last
        end = start + len(known)
        is_known = known and end <= self.end and self.data[start:end] == known
        if is_known and len(said[1]) <= most_tensors:
            self.position = end
            return said
        scheme, tensors = self.text(), self.varint()
        if tensors > most_tensors:
            raise PayloadError(
                f"the header claims {tensors} tensors, at most {most_tensors} expected"
            )
        named = [(self.text(), self.shape()) for _ in range(tensors)]
        said = scheme, tuple(name for name, _ in named), tuple(shape for _, shape in named)
        if self.position - start <= _MOST_KEPT:
            _last = bytes(self.data[start : self.position]), said
        return said

    def header(self, flags: int, most_tensors: int) -> Header:
        opening = self.opening(most_tensors)
        is_keyed, is_centered = bool(flags & _KEYED), bool(flags & _CENTERED)
        seed = b""
        if flags & _DITHERED:
            seed = self.take(NONCE_BYTES if is_keyed else SEED_BYTES)
        scales = self.scales(is_centered, max(1, most_tensors)) if flags & _SCALED else ()
        kinds = is_centered, bool(flags & _STATISTICS)
        return Header(*opening, seed, is_keyed, scales, *kinds)

    def scales(self, is_centered: bool, most: int) -> tuple[Scale, ...]:
        width = 2 if is_centered else 1
        count = self.varint()
        if count > most:
            raise PayloadError(f"the header claims {count} scales, at most {most} expected")
        values = struct.unpack(f"<{width * count}f", self.take(4 * width * count))
        means = values[1::2] if is_centered else repeat(0.0)
        scales = tuple(map(Scale, values[::width], means))
        for unit, mean in scales:
            if not (0 <= unit <= LARGEST_SCALE and abs(mean) <= LARGEST_SCALE):
                raise PayloadError(
                    "the header holds a scale that is negative, not finite or too large"
                )
        return scales


def _tag(secret: bytes, parts: Iterable[bytes | memoryview]) -> bytes:
    mac = hmac.new(derive(secret, b"jopeq tag", b""), digestmod=hashlib.sha256)
    for part in parts:
        mac.update(part)
    return mac.digest()[:TAG_BYTES]
