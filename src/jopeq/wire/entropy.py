"""Unbounded integers as bytes: a range coder with its frequency tables in front.

A chunk of integers (rows of L basis coordinates) is coded column by column. Each column has a table
of integer frequencies over a window of 2…256 values, summing to 2¹⁶, whose last letter is
an escape: values outside the window follow as 64-bit integers. Tables are integers, so that every
platform decodes alike. No letter is more likely than 1 − 2⁻⁶, so that a short payload cannot claim
a long array.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PayloadError

Integers = NDArray[np.int64]

_TOTAL = 1 << 16
_MOST = _TOTAL - (_TOTAL >> 6)
_WINDOW = 255  # values; with the escape, 256 letters
_COLUMN = struct.Struct("<qBII")  # lowest value, window − 1, escaped values, 32-bit words
_LARGEST = 1 << 62  # no honest coordinate comes near; sums below it cannot wrap
MAX_ENTRIES_PER_BYTE = 360  # 8 bits / −log2(1 − 2⁻⁶) = 352, rounded up


def encode(rows: Integers) -> bytes:
    """The bytes of a chunk of integer rows."""
    return b"".join(_encode_column(np.ascontiguousarray(column)) for column in rows.T)


def decode(data: memoryview, count: int, dimension: int) -> tuple[Integers, int]:
    """``count`` rows from the front of ``data``, and how many bytes they took."""
    rows = np.empty((count, dimension), dtype=np.int64)
    used = 0
    for column in range(dimension):
        rows[:, column], length = _decode_column(data[used:], count)
        used += length
    return rows, used


def _frequencies(counts: Integers) -> Integers:
    """Counts rounded to integers of sum 2¹⁶, none zero and none above 1 − 2⁻⁶ of it."""
    scaled = np.maximum(1, counts * (_TOTAL - len(counts)) // max(int(counts.sum()), 1))
    top = int(np.argmax(scaled))
    scaled[top] += _TOTAL - int(scaled.sum())
    excess = int(scaled[top]) - _MOST
    if excess > 0:
        other = (top + 1) % len(scaled)
        scaled[top] -= excess
        scaled[other] += excess
    return scaled


def _encode_column(values: Integers) -> bytes:
    import constriction

    low = _window_start(values)
    offsets = values - low
    top = int(min(offsets.max(), _WINDOW - 1))
    window = top + 1
    escaped = (offsets < 0) | (offsets > top)
    letters = np.where(escaped, window, offsets).astype(np.int32)
    frequencies = _frequencies(np.bincount(letters, minlength=window + 1).astype(np.int64))
    encoder = constriction.stream.queue.RangeEncoder()
    encoder.encode(letters, _model(frequencies))
    words = encoder.get_compressed().astype("<u4")
    outside = values[escaped].astype("<i8")
    head = _COLUMN.pack(low, window - 1, len(outside), len(words))
    table = frequencies[:-1].astype("<u2").tobytes()  # the last follows from the sum
    return b"".join((head, table, outside.tobytes(), words.tobytes()))


def _window_start(values: Integers) -> int:
    """The lowest value, unless the window would then miss the bulk of the values."""
    low, high = int(values.min()), int(values.max())
    if high - low < _WINDOW:
        return low
    return int(np.median(values)) - _WINDOW // 2


def _decode_column(data: memoryview, count: int) -> tuple[Integers, int]:
    import constriction

    if len(data) < _COLUMN.size:
        raise PayloadError("an entropy-coded chunk ends inside its header")
    low, top, escapes, words = _COLUMN.unpack_from(data)
    window = top + 1
    sizes = (_COLUMN.size, 2 * window, 8 * escapes, 4 * words)
    end = sum(sizes)
    if end > len(data) or escapes > count or window > _WINDOW:
        raise PayloadError("an entropy-coded chunk claims more bytes than there are")
    table_at, outside_at, words_at = np.cumsum(sizes[:3]).tolist()
    table = np.frombuffer(data[table_at:outside_at], dtype="<u2").astype(np.int64)
    last = _TOTAL - int(table.sum())
    frequencies = np.append(table, last)
    if frequencies.min() < 1 or frequencies.max() > _MOST:
        raise PayloadError("an entropy-coded chunk has an impossible frequency table")
    outside = np.frombuffer(data[outside_at:words_at], dtype="<i8")
    if max(abs(low), *(abs(int(v)) for v in (outside.min(initial=0), outside.max(initial=0)))) > (
        _LARGEST
    ):
        raise PayloadError("an entropy-coded chunk holds an impossible coordinate")
    compressed = np.frombuffer(data[words_at:end], dtype="<u4").astype(np.uint32)
    decoder = constriction.stream.queue.RangeDecoder(compressed)
    try:
        letters = decoder.decode(_model(frequencies), count)
    except (AssertionError, ValueError, RuntimeError) as error:
        raise PayloadError(f"an entropy-coded chunk does not decode: {error}") from error
    if not decoder.maybe_exhausted():
        raise PayloadError("an entropy-coded chunk has bytes left over")
    values = letters.astype(np.int64) + low
    escaped = letters == window
    if int(escaped.sum()) != escapes:
        raise PayloadError("an entropy-coded chunk escapes another number of values than it holds")
    values[escaped] = outside
    return values, end


def _model(frequencies: Integers) -> object:
    import constriction

    probabilities = (frequencies / _TOTAL).astype(np.float32)  # exact: 16 bits each
    return constriction.stream.model.Categorical(probabilities, perfect=False)
