"""Turning an update and drawing its share of a secure sum, in threads; the plain path's bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.cpu.chacha import KeyStream
from jopeq.kernels.cpu.native import F64, FLAG, I64, U8, U16, U64, kernel, part, read, write
from jopeq.kernels.threads import in_threads
from jopeq.noise.gaussian_rounding import DRAW_LANE, ROUND_LANE, GaussianRounding
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.samples import SIGN_LANE

Array = NDArray[np.float64]

_NEAR = 1 << 12  # entries that fit the first-level cache
_LOCAL = 1 << 15  # and the second
_COLUMNS = 1 << 12  # of a stage across blocks, at once
_CHUNK = 1 << 14  # entries drawn at once
_NONE8 = np.empty(0, dtype=np.uint8)
_NONE16 = np.empty(0, dtype=np.uint16)


# The Hadamard transform: stages of width 1, 2, 4, …, as ``wire.samples`` adds and subtracts


@part
def _quads(values, width, low, high):
    """Two stages, of ``width`` and its double, over columns low…high."""
    for start in range(0, len(values), 4 * width):
        a = values[start : start + width]
        b = values[start + width : start + 2 * width]
        c = values[start + 2 * width : start + 3 * width]
        d = values[start + 3 * width : start + 4 * width]
        for j in range(low, high):
            x, y, z, w = a[j] + b[j], a[j] - b[j], c[j] + d[j], c[j] - d[j]
            a[j], b[j], c[j], d[j] = x + z, y + w, x - z, y - w


@part
def _pairs(values, width, low, high):
    """The stage of ``width``, over columns low…high."""
    for start in range(0, len(values), 2 * width):
        a = values[start : start + width]
        b = values[start + width : start + 2 * width]
        for j in range(low, high):
            a[j], b[j] = a[j] + b[j], a[j] - b[j]


@part
def _first_quads(values):
    """The stages of width 1 and 2."""
    for start in range(0, len(values), 4):
        a, b, c, d = values[start], values[start + 1], values[start + 2], values[start + 3]
        x, y, z, w = a + b, a - b, c + d, c - d
        values[start], values[start + 1] = x + z, y + w
        values[start + 2], values[start + 3] = x - z, y - w


@part
def _stages(values, width, stop):
    """All stages from ``width`` to below ``stop``."""
    while 4 * width <= stop:
        if width == 1:
            _first_quads(values)
        else:
            _quads(values, width, 0, width)
        width *= 4
    if width < stop:
        _pairs(values, width, 0, width)


@part
def _flip(values, signs, first):
    """Multiply by −1 where bit ``first`` + i of ``signs`` is set."""
    for i in range(len(values)):
        place = first + i
        bit = (signs[place >> 3] >> (place & 7)) & 1
        values[i] = -values[i] if bit else values[i]


@kernel(write(F64), read(U8), I64, FLAG)
def _transform_local(values, signs, first, is_flipped):
    """All stages within a block of at most ``_LOCAL`` entries, after the signs."""
    near = min(len(values), _NEAR)
    for start in range(0, len(values), near):
        here = values[start : start + near]
        if is_flipped:
            _flip(here, signs, first + start)
        _stages(here, 1, near)
    _stages(values, near, len(values))


@kernel(write(F64), I64, I64, I64)
def _transform_across(values, width, low, high):
    """The stages of ``width`` and, where there is one, of its double."""
    if 4 * width <= len(values):
        _quads(values, width, low, high)
    else:
        _pairs(values, width, low, high)


@kernel(write(F64), F64, read(U8), I64, FLAG)
def _finish(values, root, signs, first, is_flipped):
    for i in range(len(values)):
        values[i] /= root
    if is_flipped:
        _flip(values, signs, first)


def _transform(values: Array, start: int, shared: SharedStream, is_back: bool) -> None:
    size, byte = len(values), start // 8
    last = -(-(start + size) // 8)
    signs = shared.read(lane=SIGN_LANE, start=byte, count=last - byte)
    first, local, root = start - 8 * byte, min(size, _LOCAL), math.sqrt(size)

    def near(begin: int, end: int) -> None:
        for block in range(begin, end, local):
            _transform_local(values[block : block + local], signs, first + block, not is_back)

    def finish(begin: int, end: int) -> None:
        _finish(values[begin:end], root, signs, first + begin, is_back)

    def across(begin: int, end: int) -> None:
        for low in range(begin, end, _COLUMNS):
            _transform_across(values, width, low, min(low + _COLUMNS, end))

    in_threads(near, size, local, 1)
    width = local
    while width < size:
        in_threads(across, width, _COLUMNS, size // width)
        width *= 4
    in_threads(finish, size, local, 1)


def turn(values: Array, start: int, shared: SharedStream) -> None:
    """``rotate_block``, in place."""
    _transform(values, start, shared, False)


def turn_back(values: Array, start: int, shared: SharedStream) -> None:
    """``unrotate_block``, in place."""
    _transform(values, start, shared, True)


# The share


@kernel(
    read(F64), read(U8), read(U64), read(U64), read(U8), I64, I64, I64, I64,
    write(U8), write(U16), returns=U64,
)  # fmt: skip
def _draw(values, bytes_, words, table, guide, columns, reach, bound, mask, narrow, wide):
    """Shares of a chunk; Σ Y² is returned."""
    squares = np.uint64(0)
    most = np.float64(bound)
    for i in range(len(values)):
        place = np.floor(values[i] + (np.float64(bytes_[i]) + 0.5) * (1.0 / 256.0))
        y = np.int64(min(max(place, -most), most))
        squares += np.uint64(y * y)
        row, word = y & 255, words[i]
        count = np.int64(guide[row * 256 + np.int64(word >> np.uint64(56))])
        at = row * columns
        while count < columns and word >= table[at + count]:
            count += 1
        letter = ((y >> 8) - reach + count) & mask
        if len(narrow):
            narrow[i] = letter
        else:
            wide[i] = letter
    return squares


def draw_share(
    values: Array, law: GaussianRounding, bound: int, bits: int, private: PrivateStream
) -> NDArray[Any] | None:
    """The share of turned coordinates; None where their norm must be lowered first."""
    share = np.empty(len(values), dtype=np.uint8 if bits <= 8 else np.uint16)
    table, guide = law.thresholds.reshape(-1), law.guide.reshape(-1)
    numbers = (law.thresholds.shape[1], law.reach, bound, (1 << bits) - 1)

    def work(begin: int, end: int) -> int:
        most = min(_CHUNK, end - begin)
        words = KeyStream(private, DRAW_LANE, 8 * begin, 8 * most)
        bytes_ = KeyStream(private, ROUND_LANE, begin, most)
        squares = 0
        for first in range(begin, end, _CHUNK):
            last = min(first + _CHUNK, end)
            out = share[first:last]
            squares += _draw(
                values[first:last],
                bytes_.next(last - first),
                words.next(8 * (last - first)).view("<u8"),
                table,
                guide,
                *numbers,
                *((out, _NONE16) if bits <= 8 else (_NONE8, out)),
            )
        return squares

    squares = sum(in_threads(work, len(values), _CHUNK, 1))
    return share if squares <= bound**2 else None
