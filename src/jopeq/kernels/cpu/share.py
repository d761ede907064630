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
_MOST_FINE = 2.0**56  # of places, in 1/256
_ROW_BITS = 6  # of a place, beside the word's upper 10 bits: a cell, of which a few hold thresholds
_UNSURE = 255  # no row has as many thresholds
_NONE = [np.empty(0, dtype=kind) for kind in (np.uint8, np.uint16, np.uint32)]


@part
def _place(values, bytes_, shift, rows, bases):
    """Places of a total: to 1/256 of a place, then up or down by private bytes."""
    last, most = np.int64((1 << shift) - 1), np.float64(_MOST_FINE)
    for i in range(len(values)):
        fine = np.rint(min(max(values[i] * 256.0, -most), most))
        place = (np.int64(fine) + np.int64(bytes_[i])) >> np.int64(8)
        rows[i] = place & last
        bases[i] = np.int32(place >> np.int64(shift))


@intrinsic
def _upper_parts(typing: Any, words: Any, out: Any, start: Any) -> Any:
    """The upper 16 bits of the 64 words of 64 bits in ``SIDE`` blocks side by side, in their order.

    Words p of all blocks are two rows; the upper parts of words p and p + 1 become one number.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found, target, place = arguments
        row, two, all_ = (ir.VectorType(ir.IntType(32), n * SIDE) for n in (1, 2, 4))
        data = context.make_array(signature.args[0])(context, builder, found).data
        rows = builder.bitcast(data, row.as_pointer())

        def upper(word: int) -> Any:
            return builder.load(builder.gep(rows, [ir.IntType(32)(2 * word + 1)]), align=4)

        def interleave(one: Any, other: Any, size: int, kind: Any) -> Any:
            """``size`` numbers of one, as many of the other, and so on."""
            places = [i // size // 2 * size + i % size for i in range(kind.count)]
            others = [i // size % 2 * (kind.count // 2) for i in range(kind.count)]
            order = kind([sum(both) for both in zip(places, others, strict=True)])
            return builder.shuffle_vector(one, other, order)

        pairs = []
        for word in range(0, 8, 2):
            low = builder.lshr(upper(word), row([16] * SIDE))
            high = builder.and_(upper(word + 1), row([0xFFFF0000] * SIDE))
            pairs.append(builder.or_(low, high))
        first, second = (interleave(pairs[i], pairs[i + 1], 1, two) for i in (0, 2))
        into = vector_at(context, builder, signature.args[1], target, place, all_)
        builder.store(interleave(first, second, 2, all_), into, align=2)
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
def _look_up(cells, rows, words, table, guide, sure, columns, found):
    """How many thresholds of its row each word has reached.

    ``sure`` says so where a cell tells; else the thresholds are looked at, from as many on as
    ``guide`` says. Nearly always, one threshold decides.
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
            at = np.uint64(rows[64 * group + last]) * np.uint64(columns)
            count = np.uint64(guide[cells[64 * group + last]])
            count += np.uint64(word >= table[at + count])
            while count < np.uint64(columns) and word >= table[at + count]:
                count += np.uint64(1)
            found[64 * group + last] = np.uint8(count)


@part
def _write(bases, found, reach, mask, out):
    """⌊y⌋ − reach + found, mod 2^bits."""
    less, ones = np.int32(reach), np.int32(mask)
    for i in range(len(out)):
        out[i] = np.int32(np.int32(bases[i] + np.int32(found[i])) - less) & ones


@kernel(
    read(F64), read(U32), I64, I64, read(U64), read(U8), read(U8), I64, I64, I64, write(U8),
    write(U16), write(U32),
)  # fmt: skip
def _draw(
    values, key, begin, shift, table, guide, sure, columns, reach, mask, narrow, wide, widest
):
    """The share of values ``begin``…, a multiple of 64.

    2^shift places lie in a step, ``columns`` thresholds in a row of the table.
    """
    rows, bases = np.empty(_PIECE, dtype=np.uint16), np.empty(_PIECE, dtype=np.int32)
    bytes_, found = np.empty(_PIECE, dtype=np.uint8), np.empty(_PIECE, dtype=np.uint8)
    cells_buffer = np.empty(_PIECE, dtype=np.uint16)
    draws, rounds = side_start(key, DRAW_LANE), side_start(key, ROUND_LANE)
    words = np.empty((_PIECE // 64, 16, SIDE), dtype=np.uint32)
    for start in range(0, len(values), _PIECE):
        stop = min(start + _PIECE, len(values))
        count, groups = stop - start, -(-(stop - start) // 64)
        next_words(rounds, (begin + start) // 64, words[0], bytes_[: 64 * groups].view(np.uint32))
        _place(values[start:stop], bytes_[:count], shift, rows, bases)
        for group in range(groups):
            next_blocks(draws, (begin + start) // 8 + 8 * group, words[group])
            _upper_parts(words[group], cells_buffer, 64 * group)
        cells, coarse = cells_buffer[:count], np.uint16(shift - _ROW_BITS)
        for i in range(count):
            row = np.uint16(np.uint16(rows[i] >> coarse) << np.uint16(16 - _ROW_BITS))
            cells[i] = row | np.uint16(cells[i] >> np.uint16(_ROW_BITS))
        _look_up(cells, rows, words, table, guide, sure, columns, found)
        if len(narrow):
            _write(bases, found, reach, mask, narrow[start:stop])
        elif len(wide):
            _write(bases, found, reach, mask, wide[start:stop])
        else:
            _write(bases, found, reach, mask, widest[start:stop])


def draw_share(
    values: NDArray[np.float64], law: GaussianRounding, bits: int, private: PrivateStream
) -> NDArray[Any]:
    """The share of turned coordinates in places."""
    check_range(0, 8 * len(values))
    chosen = 0 if bits <= 8 else 1 if bits <= 16 else 2
    share = np.empty(len(values), dtype=_NONE[chosen].dtype)
    tables = (law.shift, law.thresholds.reshape(-1), *_cells(law), law.columns)
    numbers = (law.reach, (1 << bits) - 1)

    def work(begin: int, end: int) -> None:
        into = [*_NONE]
        into[chosen] = share[begin:end]
        _draw(values[begin:end], private.key_words, begin, *tables, *numbers, *into)

    in_threads(work, len(values), _PIECE, 1)
    return share


@lru_cache(maxsize=16)
def _cells(law: GaussianRounding) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """For 1/64 of a step and each upper 10 bits: how many thresholds all words have reached.

    The second time with ``_UNSURE`` where some words have reached more than others.
    """
    left = np.uint64(48 + _ROW_BITS)
    firsts = np.arange(1 << (16 - _ROW_BITS), dtype=np.uint64) << left
    lasts = firsts | ((np.uint64(1) << left) - np.uint64(1))
    low, high = (
        np.array([np.searchsorted(row, words, side="right") for row in law.thresholds])
        for words in (firsts, lasts)
    )
    shape = (1 << _ROW_BITS, -1, len(firsts))
    least, most = low.reshape(shape).min(1), high.reshape(shape).max(1)
    sure = np.where(least == most, least, _UNSURE)
    return least.astype(np.uint8).reshape(-1), sure.astype(np.uint8).reshape(-1)
