"""The share of a secure sum, in threads: key stream, rounding and draws in one compiled loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from jopeq.kernels.cpu.chacha import SIDE, next_blocks, next_words, side_start
from jopeq.kernels.cpu.native import (
    F64,
    I64,
    U8,
    U16,
    U32,
    U64,
    kernel,
    leading_zeros,
    part,
    read,
    vector_at,
    write,
)
from jopeq.kernels.threads import in_threads
from jopeq.noise.gaussian_rounding import DRAW_LANE, ROUND_LANE, GaussianRounding
from jopeq.random.streams import PrivateStream, check_range

_PIECE = 1 << 10  # entries placed, then drawn, in the first-level cache
_MOST_BOUND = 1 << 31  # places are 32-bit numbers
_MOST_FINE = 2.0**56  # of places of records, in 1/256
_UNSURE = 255  # no row has as many thresholds
_NONE8 = np.empty(0, dtype=np.uint8)
_NONE16 = np.empty(0, dtype=np.uint16)


@part
def _place(values, bytes_, most, places):
    """Round to the grid by private bytes, within ±most; Σ Y²."""
    for i in range(len(values)):
        moved = values[i] + (np.float64(np.int32(bytes_[i])) + 0.5) * (1.0 / 256.0)
        places[i] = np.int32(min(max(np.floor(moved), -most), most))
    squares = np.int64(0)
    for i in range(len(values)):
        squares += np.int64(places[i]) * np.int64(places[i])
    return np.uint64(squares)


@intrinsic
def _upper_bytes(typing: Any, words: Any, out: Any, start: Any) -> Any:
    """The upper bytes of the 64 words of 64 bits in ``SIDE`` blocks side by side, in their order.

    Words p of all blocks are two rows; their upper bytes become bytes p of 64-bit numbers.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found, target, place = arguments
        row, both = (ir.VectorType(ir.IntType(32), count) for count in (SIDE, 2 * SIDE))
        data = context.make_array(signature.args[0])(context, builder, found).data
        rows = builder.bitcast(data, row.as_pointer())
        halves = []
        for half in range(2):
            joined = row([0] * SIDE)
            for p in range(4):
                here = builder.gep(rows, [ir.IntType(32)(8 * half + 2 * p + 1)])
                upper = builder.lshr(builder.load(here, align=4), row([24] * SIDE))
                joined = builder.or_(joined, builder.shl(upper, row([8 * p] * SIDE)))
            halves.append(joined)
        order = both([i // 2 + i % 2 * SIDE for i in range(2 * SIDE)])
        into = vector_at(context, builder, signature.args[1], target, place, both)
        builder.store(builder.shuffle_vector(*halves, order), into, align=1)
        return context.get_dummy_value()

    return types.void(words, out, start), generate


@intrinsic
def _unsure(typing: Any, found: Any, start: Any) -> Any:
    """Which of 64 bytes are ``_UNSURE``: bit i for the i-th."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, first = arguments
        kind = ir.VectorType(ir.IntType(8), 64)
        place = vector_at(context, builder, signature.args[0], array, first, kind)
        is_so = builder.icmp_unsigned("==", builder.load(place, align=1), kind([_UNSURE] * 64))
        return builder.bitcast(is_so, ir.IntType(64))

    return U64(found, start), generate


@part
def _look_up(cells, words, table, guide, sure, columns, found):
    """How many thresholds of its row each word has reached.

    ``sure`` says so where the word's upper byte tells; else the thresholds are looked at, from as
    many on as ``guide`` says. Nearly always, one threshold decides.
    """
    for i in range(len(cells)):
        found[i] = sure[cells[i]]
    for i in range(len(cells), -(-len(cells) // 64) * 64):
        found[i] = 0
    for group in range(-(-len(cells) // 64)):
        left = _unsure(found, 64 * group)
        while left:
            last = 63 - leading_zeros(left)
            left = left ^ (np.uint64(1) << np.uint64(last))
            block, low = last // 8, 2 * (last % 8)
            word = np.uint64(words[group, low, block])
            word |= np.uint64(words[group, low + 1, block]) << np.uint64(32)
            cell = cells[64 * group + last]
            at = (np.uint64(cell) >> np.uint64(8)) * np.uint64(columns)
            count = np.uint64(guide[cell])
            count += np.uint64(word >= table[at + count])
            while count < np.uint64(columns) and word >= table[at + count]:
                count += np.uint64(1)
            found[64 * group + last] = np.uint8(count)


@part
def _place_fine(values, bytes_, places):
    """Places of a total, to 1/256 of a place and then up or down by private bytes."""
    for i in range(len(values)):
        fine = np.rint(min(max(values[i] * 256.0, -_MOST_FINE), _MOST_FINE))
        places[i] = (np.int64(fine) + np.int64(bytes_[i])) >> np.int64(8)


@part
def _write(places, found, reach, mask, out):
    """⌊Y/256⌋ − reach + found, mod 2^bits."""
    less, ones = np.int32(reach), np.int32(mask)
    for i in range(len(out)):
        base = np.int32(places[i] >> np.int32(8))
        out[i] = np.int32(np.int32(base + np.int32(found[i])) - less) & ones


@kernel(
    read(F64), read(U32), I64, I64, read(U64), read(U8), read(U8), I64, I64, I64, write(U8),
    write(U16), returns=U64,
)  # fmt: skip
def _draw(values, key, begin, bound, table, guide, sure, columns, reach, mask, narrow, wide):
    """The share of values ``begin``…, a multiple of 64; Σ Y² is returned.

    ``columns`` thresholds make a row of the table.
    """
    squares, most = np.uint64(0), np.float64(bound)
    places, found = np.empty(_PIECE, dtype=np.int32), np.empty(_PIECE, dtype=np.uint8)
    bytes_, uppers = np.empty(_PIECE, dtype=np.uint8), np.empty(_PIECE, dtype=np.uint8)
    cells_buffer = np.empty(_PIECE, dtype=np.uint16)
    draws, rounds = side_start(key, DRAW_LANE), side_start(key, ROUND_LANE)
    words = np.empty((_PIECE // 64, 16, SIDE), dtype=np.uint32)
    for start in range(0, len(values), _PIECE):
        stop = min(start + _PIECE, len(values))
        count, groups = stop - start, -(-(stop - start) // 64)
        next_words(rounds, (begin + start) // 64, words[0], bytes_[: 64 * groups].view(np.uint32))
        squares += _place(values[start:stop], bytes_[:count], most, places)
        for group in range(groups):
            next_blocks(draws, (begin + start) // 8 + 8 * group, words[group])
            _upper_bytes(words[group], uppers, 64 * group)
        cells = cells_buffer[:count]
        for i in range(count):
            row = np.uint16(np.uint16(places[i]) << np.uint16(8))
            cells[i] = row | np.uint16(uppers[i])
        _look_up(cells, words, table, guide, sure, columns, found)
        if len(narrow):
            _write(places, found, reach, mask, narrow[start:stop])
        else:
            _write(places, found, reach, mask, wide[start:stop])
    return squares


@kernel(
    read(F64), read(U32), I64, I64, read(U64), read(U8), read(U8), I64, I64, I64, write(U8),
    write(U16), write(U32),
)  # fmt: skip
def _draw_fine(
    values, key, begin, shift, table, guide, sure, columns, reach, mask, narrow, wide, widest
):
    """As ``_draw`` for totals of records: a grid of 2^shift places, no bound, up to 32 bits."""
    places, found = np.empty(_PIECE, dtype=np.int64), np.empty(_PIECE, dtype=np.uint8)
    bytes_, uppers = np.empty(_PIECE, dtype=np.uint8), np.empty(_PIECE, dtype=np.uint8)
    cells_buffer, letters = np.empty(_PIECE, dtype=np.uint32), np.empty(_PIECE, dtype=np.int64)
    draws, rounds = side_start(key, DRAW_LANE), side_start(key, ROUND_LANE)
    words = np.empty((_PIECE // 64, 16, SIDE), dtype=np.uint32)
    last = np.int64((1 << shift) - 1)
    for start in range(0, len(values), _PIECE):
        stop = min(start + _PIECE, len(values))
        count, groups = stop - start, -(-(stop - start) // 64)
        next_words(rounds, (begin + start) // 64, words[0], bytes_[: 64 * groups].view(np.uint32))
        _place_fine(values[start:stop], bytes_[:count], places)
        for group in range(groups):
            next_blocks(draws, (begin + start) // 8 + 8 * group, words[group])
            _upper_bytes(words[group], uppers, 64 * group)
        cells = cells_buffer[:count]
        for i in range(count):
            cells[i] = np.uint32((places[i] & last) << np.int64(8)) | np.uint32(uppers[i])
        _look_up(cells, words, table, guide, sure, columns, found)
        for i in range(count):
            letters[i] = ((places[i] >> np.int64(shift)) + np.int64(found[i]) - reach) & mask
        if len(narrow):
            for i in range(count):
                narrow[start + i] = np.uint8(letters[i])
        elif len(wide):
            for i in range(count):
                wide[start + i] = np.uint16(letters[i])
        else:
            for i in range(count):
                widest[start + i] = np.uint32(letters[i])


def draw_record_share(
    values: NDArray[np.float64], law: GaussianRounding, bits: int, private: PrivateStream
) -> NDArray[Any]:
    """The share of a turned total in places."""
    check_range(0, 8 * len(values))
    kinds = (np.uint8, np.uint16, np.uint32)
    chosen = 0 if bits <= 8 else 1 if bits <= 16 else 2
    share = np.empty(len(values), dtype=kinds[chosen])
    empty = [np.empty(0, dtype=kind) for kind in kinds]
    tables = (law.thresholds.reshape(-1), law.guide.reshape(-1), _sure(law), law.columns)
    key, numbers = private.key_words, (law.reach, (1 << bits) - 1)

    def work(begin: int, end: int) -> None:
        into = [*empty]
        into[chosen] = share[begin:end]
        _draw_fine(values[begin:end], key, begin, law.shift, *tables, *numbers, *into)

    in_threads(work, len(values), _PIECE, 1)
    return share


def draw_share(
    values: NDArray[np.float64],
    law: GaussianRounding,
    bound: int,
    bits: int,
    private: PrivateStream,
) -> NDArray[Any] | None:
    """The share of turned coordinates; None where the plain path must lower their norm first."""
    if bound >= _MOST_BOUND:
        return None
    check_range(0, 8 * len(values))
    share = np.empty(len(values), dtype=np.uint8 if bits <= 8 else np.uint16)
    tables = (law.thresholds.reshape(-1), law.guide.reshape(-1), _sure(law), law.columns)
    key = private.key_words

    def work(begin: int, end: int) -> int:
        out = share[begin:end]
        into = (out, _NONE16) if bits <= 8 else (_NONE8, out)
        numbers = (law.reach, (1 << bits) - 1)
        return _draw(values[begin:end], key, begin, bound, *tables, *numbers, *into)

    squares = sum(in_threads(work, len(values), _PIECE, 1))
    return share if squares <= bound**2 else None


@lru_cache(maxsize=16)
def _sure(law: GaussianRounding) -> NDArray[np.uint8]:
    """``law.guide`` where no threshold lies among the words of a cell, else ``_UNSURE``."""
    lasts = np.arange(256, dtype=np.uint64) << np.uint64(56) | np.uint64((1 << 56) - 1)
    found = np.array([np.searchsorted(row, lasts, side="right") for row in law.thresholds])
    sure = np.where(found == law.guide, found, _UNSURE)
    return sure.astype(np.uint8).reshape(-1)
