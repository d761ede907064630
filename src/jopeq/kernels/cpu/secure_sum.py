"""Turning an update and drawing its share of a secure sum, in threads; the plain path's bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.cpu.chacha import KeyStream
from jopeq.kernels.cpu.hadamard import NEAR, eights, first_stages, pairs, stages
from jopeq.kernels.cpu.native import F64, FLAG, I64, U8, U16, U64, kernel, part, read, write
from jopeq.kernels.threads import in_threads
from jopeq.noise.gaussian_rounding import DRAW_LANE, ROUND_LANE, GaussianRounding
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.samples import SIGN_LANE, rotate_block, unrotate_block

Array = NDArray[np.float64]

_LEAST = 16  # entries that are worth a kernel
_LOCAL = 1 << 15  # entries that fit the second-level cache
_COLUMNS = 1 << 12  # of a stage across blocks, at once
_CHUNK = 1 << 14  # entries drawn at once
_NONE8 = np.empty(0, dtype=np.uint8)
_NONE16 = np.empty(0, dtype=np.uint16)


@part
def _flip(values, signs):
    """Multiply by −1 where a bit is set."""
    for group in range(len(values) // 8):
        here, bits = values[8 * group : 8 * group + 8], np.int64(signs[group])
        for j in range(8):
            here[j] *= 1.0 - 2.0 * np.float64((bits >> j) & 1)


@kernel(write(F64), read(U8), FLAG)
def _transform_local(values, signs, is_flipped):
    """All stages within a block of at most ``_LOCAL`` entries, after the signs."""
    work = np.empty(16)
    near = min(len(values), NEAR)
    for start in range(0, len(values), near):
        here = values[start : start + near]
        if is_flipped:
            _flip(here, signs[start // 8 : (start + near) // 8])
        first_stages(here, work)
        stages(here, 16)
    stages(values, near)


@kernel(write(F64), I64, I64, I64)
def _transform_across(values, width, low, high):
    """Three stages from ``width`` on where there are as many, else one."""
    if 8 * width <= len(values):
        eights(values, width, low, high)
    else:
        pairs(values, width, low, high)


@kernel(write(F64), F64, read(U8), FLAG)
def _finish(values, root, signs, is_flipped):
    for i in range(len(values)):
        values[i] /= root
    if is_flipped:
        _flip(values, signs)


def _transform(values: Array, start: int, shared: SharedStream, is_back: bool) -> None:
    size = len(values)
    signs = shared.read(lane=SIGN_LANE, start=start // 8, count=size // 8)
    local, root = min(size, _LOCAL), math.sqrt(size)

    def near(begin: int, end: int) -> None:
        for first in range(begin, end, local):
            here = signs[first // 8 : (first + local) // 8]
            _transform_local(values[first : first + local], here, not is_back)

    def across(begin: int, end: int) -> None:
        for low in range(begin, end, _COLUMNS):
            _transform_across(values, width, low, min(low + _COLUMNS, end))

    def finish(begin: int, end: int) -> None:
        _finish(values[begin:end], root, signs[begin // 8 : end // 8], is_back)

    in_threads(near, size, local, 1)
    width = local
    while width < size:
        in_threads(across, width, _COLUMNS, size // width)
        width *= 8 if 8 * width <= size else 2
    in_threads(finish, size, local, 1)


def turn(values: Array, start: int, shared: SharedStream) -> None:
    """``rotate_block``, in place."""
    if len(values) < _LEAST:
        values[:] = rotate_block(values, start, shared)
    else:
        _transform(values, start, shared, is_back=False)


def turn_back(values: Array, start: int, shared: SharedStream) -> None:
    """``unrotate_block``, in place."""
    if len(values) < _LEAST:
        unrotate_block(values, start, shared)
    else:
        _transform(values, start, shared, is_back=True)


# The share


@kernel(read(F64), read(U8), I64, write(I64), returns=U64)
def _place(values, bytes_, bound, places):
    """Places on the grid; Σ Y² is returned."""
    squares, most = np.uint64(0), np.float64(bound)
    for i in range(len(values)):
        place = np.floor(values[i] + (np.float64(bytes_[i]) + 0.5) * (1.0 / 256.0))
        y = np.int64(min(max(place, -most), most))
        places[i] = y
        squares += np.uint64(y * y)
    return squares


@kernel(
    read(I64), read(U64), read(U64), read(U8), I64, I64, I64, write(U8), write(U16)
)  # fmt: skip
def _draw(places, words, table, guide, width, reach, mask, narrow, wide):
    """The share of a chunk; ``width`` is one more than the thresholds of a row."""
    for i in range(len(places)):
        row, word = places[i] & 255, words[i]
        count = np.int64(guide[(row << 8) | np.int64(word >> np.uint64(56))])
        at = row * width
        count += np.int64(word >= table[at + count])  # mostly enough, and no branch
        while count < width - 1 and word >= table[at + count]:
            count += 1
        letter = ((places[i] >> 8) - reach + min(count, width - 1)) & mask
        if len(narrow):
            narrow[i] = letter
        else:
            wide[i] = letter


def draw_share(
    values: Array, law: GaussianRounding, bound: int, bits: int, private: PrivateStream
) -> NDArray[Any] | None:
    """The share of turned coordinates; None where their norm must be lowered first."""
    share = np.empty(len(values), dtype=np.uint8 if bits <= 8 else np.uint16)
    tables = (law.guided_table.reshape(-1), law.guide.reshape(-1), law.guided_table.shape[1])

    def work(begin: int, end: int) -> int:
        most = min(_CHUNK, end - begin)
        words = KeyStream(private, DRAW_LANE, 8 * begin, 8 * most)
        bytes_ = KeyStream(private, ROUND_LANE, begin, most)
        places, squares = np.empty(most, dtype=np.int64), 0
        for first in range(begin, end, _CHUNK):
            last = min(first + _CHUNK, end)
            count, out = last - first, share[first:last]
            squares += _place(values[first:last], bytes_.next(count), bound, places[:count])
            drawn = words.next(8 * count).view("<u8")
            into = (out, _NONE16) if bits <= 8 else (_NONE8, out)
            _draw(places[:count], drawn, *tables, law.reach, (1 << bits) - 1, *into)
        return squares

    squares = sum(in_threads(work, len(values), _CHUNK, 1))
    return share if squares <= bound**2 else None
