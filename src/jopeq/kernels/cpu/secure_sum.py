"""Turning an update and drawing its share of a secure sum, in threads; the plain path's bytes."""

from __future__ import annotations

import math
from functools import lru_cache
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
_CHUNK = 1 << 14  # entries drawn at once
_PIECE = 1 << 10  # entries placed before they are drawn
_MOST_BOUND = 1 << 31  # places are 32-bit numbers
_UNSURE = 255  # no row has as many thresholds
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
    near = min(len(values), NEAR)
    for start in range(0, len(values), near):
        here = values[start : start + near]
        if is_flipped:
            _flip(here, signs[start // 8 : (start + near) // 8])
        first_stages(here)
        stages(here, 16)
    stages(values, near)


@kernel(write(F64), I64, I64, I64, F64)
def _transform_across(values, local, low, high, root):
    """All stages from width ``local`` on and the division, for columns low…high of every block."""
    width = local
    while width < len(values):
        is_wide = 8 * width <= len(values)
        for start in range(0, width, local):
            if is_wide:
                eights(values, width, start + low, start + high)
            else:
                pairs(values, width, start + low, start + high)
        width *= 8 if is_wide else 2
    for start in range(0, len(values), local):
        here = values[start + low : start + high]
        for j in range(len(here)):
            here[j] /= root


@kernel(write(F64), read(U8))
def _flip_all(values, signs):
    _flip(values, signs)


def _transform(values: Array, start: int, shared: SharedStream, is_back: bool) -> None:
    size = len(values)
    signs = shared.read(lane=SIGN_LANE, start=start // 8, count=size // 8)
    local, root = min(size, _LOCAL), math.sqrt(size)
    columns = max(8, _LOCAL * local // size)  # as many entries as fit the cache

    def near(begin: int, end: int) -> None:
        for first in range(begin, end, local):
            here = signs[first // 8 : (first + local) // 8]
            _transform_local(values[first : first + local], here, not is_back)

    def across(begin: int, end: int) -> None:
        for low in range(begin, end, columns):
            _transform_across(values, local, low, min(low + columns, end), root)

    def flip(begin: int, end: int) -> None:
        _flip_all(values[begin:end], signs[begin // 8 : end // 8])

    in_threads(near, size, local, 1)
    in_threads(across, local, columns, size // local)
    if is_back:
        in_threads(flip, size, local, 1)


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


@kernel(
    read(F64), read(U8), read(U64), I64, read(U64), read(U8), read(U8), I64, I64, I64, write(U8),
    write(U16), returns=U64,
)  # fmt: skip
def _draw(values, bytes_, words, bound, table, guide, sure, columns, reach, mask, narrow, wide):
    """The share of a chunk; Σ Y² is returned. ``columns`` thresholds make a row of the table.

    ``sure`` says how many thresholds of its row a word has reached, where its upper byte tells;
    else the thresholds are looked at, from as many on as ``guide`` says.
    """
    squares, most = np.uint64(0), np.float64(bound)
    rows, bases = np.empty(_PIECE, dtype=np.int32), np.empty(_PIECE, dtype=np.int32)
    unsure = np.empty(_PIECE, dtype=np.int32)
    for start in range(0, len(values), _PIECE):
        count = min(_PIECE, len(values) - start)
        here, byte = values[start : start + count], bytes_[start : start + count]
        for i in range(count):
            place = np.floor(here[i] + (np.float64(byte[i]) + 0.5) * (1.0 / 256.0))
            y = np.int32(min(max(place, -most), most))
            rows[i] = (y & np.int32(255)) << np.int32(8)
            bases[i] = (y >> np.int32(8)) - np.int32(reach)
            squares += np.uint64(np.int64(y) * np.int64(y))
        left = 0
        for i in range(count):  # without a branch, those that are not sure are put aside
            cell = np.int64(rows[i]) | np.int64(words[start + i] >> np.uint64(56))
            reached = np.int32(sure[cell])
            bases[i] += reached
            unsure[left] = i
            left += reached == _UNSURE
        for k in range(left):
            i = unsure[k]
            word = words[start + i]
            at = (np.int64(rows[i]) >> 8) * columns
            found = np.int64(guide[np.int64(rows[i]) | np.int64(word >> np.uint64(56))])
            while found < columns and word >= table[at + found]:
                found += 1
            bases[i] += np.int32(found - _UNSURE)
        if len(narrow):
            for i in range(count):
                narrow[start + i] = bases[i] & mask
        else:
            for i in range(count):
                wide[start + i] = bases[i] & mask
    return squares


def draw_share(
    values: Array, law: GaussianRounding, bound: int, bits: int, private: PrivateStream
) -> NDArray[Any] | None:
    """The share of turned coordinates; None where the plain path must lower their norm first."""
    if bound >= _MOST_BOUND:
        return None
    share = np.empty(len(values), dtype=np.uint8 if bits <= 8 else np.uint16)
    tables = (law.thresholds.reshape(-1), law.guide.reshape(-1), _sure(law), law.columns)

    def work(begin: int, end: int) -> int:
        most = min(_CHUNK, end - begin)
        words = KeyStream(private, DRAW_LANE, 8 * begin, 8 * most)
        bytes_ = KeyStream(private, ROUND_LANE, begin, most)
        squares = 0
        for first in range(begin, end, _CHUNK):
            last = min(first + _CHUNK, end)
            count, out = last - first, share[first:last]
            drawn = words.next(8 * count).view("<u8")
            into = (out, _NONE16) if bits <= 8 else (_NONE8, out)
            squares += _draw(
                values[first:last], bytes_.next(count), drawn, bound, *tables, law.reach,
                (1 << bits) - 1, *into,
            )  # fmt: skip
        return squares

    squares = sum(in_threads(work, len(values), _CHUNK, 1))
    return share if squares <= bound**2 else None


@lru_cache(maxsize=16)
def _sure(law: GaussianRounding) -> NDArray[np.uint8]:
    """``law.guide`` where no threshold lies among the words of a cell, else ``_UNSURE``."""
    lasts = np.arange(256, dtype=np.uint64) << np.uint64(56) | np.uint64((1 << 56) - 1)
    found = np.array([np.searchsorted(row, lasts, side="right") for row in law.thresholds])
    sure = np.where(found == law.guide, found, _UNSURE)
    return sure.astype(np.uint8).reshape(-1)
