"""Codewords of ``sphere``: scores of updates, sums of many reports, the rotation.

Draws and products are whole numbers, so that every order of adding gives the same result. A client
is a lane of the shared stream; its first words choose the blocks of its vectors, the draws follow.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from jopeq.kernels.cpu.chacha import SIDE, next_blocks, side_by_side, side_start
from jopeq.kernels.cpu.native import F64, FLAG, I64, U32, kernel, read, write
from jopeq.kernels.cpu.rotation import transform
from jopeq.kernels.threads import in_threads
from jopeq.random import normal
from jopeq.random.streams import SharedStream

_I16, _I32 = types.int16, types.int32
_LOW = np.uint32(0xFFFF)
_HIGH = np.uint32(16)
_ONE = float(1 << 30)
_REPORTS = 64  # a thread takes at a time


@kernel(read(F64), read(F64), read(F64), I64, I64, write(F64), write(_I32))
def _turn(rows, first, second, begin, end, values, whole):
    """Whole multiples of 2⁻³⁰; where ``whole`` is empty, the last row stays in ``values``."""
    size = len(values)
    count = len(rows) // max(1, len(whole) // size)
    for row in range(begin, end):
        for i in range(count):
            values[i] = first[i] * rows[row * count + i]
        values[count:] = 0.0
        transform(values)
        for i in range(size):
            values[i] *= second[i]
        transform(values)
        if len(whole) > 0:
            for i in range(size):
                nearest = math.floor(values[i] * _ONE + 0.5)
                whole[row * size + i] = np.int32(min(max(nearest, -_ONE), _ONE))


def rotate_rows(
    rows: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.int32]:
    """H·D₂·H·D₁ of every row, filled up with zeros; ``first`` and ``second`` hold the signs."""
    whole = np.empty((len(rows), len(first)), dtype=np.int32)
    flat = np.ascontiguousarray(rows).reshape(-1)

    def work(begin: int, end: int) -> None:
        _turn(flat, first, second, begin, end, np.empty(len(first)), whole.reshape(-1))

    in_threads(work, len(rows), 1, 8 * len(first))
    return whole


def unrotate_row(total: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """H·D₂·H of a sum."""
    values = np.empty(len(total))
    _turn(total, np.ones(len(total)), second, 0, 1, values, np.empty(0, dtype=np.int32))
    return values


@kernel(
    read(U32), read(U32), read(_I16), read(_I32), I64, I64, I64, I64, I64, I64,
    write(I64), write(I64), write(I64),
)  # fmt: skip
def _score(key, clients, draws, turned, padded, vectors, size, offset, begin, end,
           products, firsts, blocks):  # fmt: skip
    last = padded // size - 1
    start = side_start(key, 0)
    chosen = np.empty((16, SIDE), dtype=np.uint32)
    words = np.empty((16, SIDE), dtype=np.uint32)
    for item in range(begin, end):
        row, vector = item // vectors, item % vectors
        if vector % (16 * SIDE) == 0 or item == begin:
            start[15, :] = clients[row]
            next_blocks(start, vector // (16 * SIDE) * SIDE, chosen)
        blocks[item] = np.int64(chosen[vector % 16, vector // 16 % SIDE]) & last
        base = row * padded + blocks[item] * size
        counter = offset + vector * (size // 32)
        total = np.int64(0)
        for done in range(0, size, 32 * SIDE):
            next_blocks(start, counter + done // 32, words)
            if done == 0:
                firsts[item] = draws[words[0, 0] & _LOW]
            for j in range(min(SIDE, (size - done) // 32)):
                place = base + done + 32 * j
                for i in range(16):
                    word = words[i, j]
                    total += np.int64(draws[word & _LOW]) * turned[place + 2 * i]
                    total += np.int64(draws[word >> _HIGH]) * turned[place + 2 * i + 1]
        products[item] = total


def codeword_scores(
    turned: NDArray[np.int32],
    clients: NDArray[np.uint32],
    vectors: int,
    size: int,
    offset: int,
    shared: SharedStream,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(⟨u, x_b⟩, the first draw, the block) of every vector of every client, a row each.

    ``turned`` has a row for every client; the draws begin at byte ``offset``.
    """
    found = np.empty((3, len(clients), vectors), dtype=np.int64)
    products, firsts, blocks = found
    key, flat = shared.key_words, np.ascontiguousarray(turned).reshape(-1)

    def work(begin: int, end: int) -> None:
        _score(
            key, clients, normal.draws(), flat, turned.shape[1], vectors, size, offset // 64,
            begin, end, products.reshape(-1), firsts.reshape(-1), blocks.reshape(-1),
        )  # fmt: skip

    in_threads(work, len(clients) * vectors, 1, size)
    return products, firsts, blocks


@kernel(read(U32), read(_I16), read(U32), read(I64), read(FLAG), I64, I64, I64, I64, write(I64))
def _add(key, draws, clients, vectors, signs, size, offset, begin, end, total):
    last = len(total) // size - 1
    start = side_start(key, 0)
    several = side_start(key, 0)  # the words that choose blocks, of one report a column
    chosen = np.empty((16, SIDE), dtype=np.uint32)
    words = np.empty((16, SIDE), dtype=np.uint32)
    for report in range(begin, end):
        column = (report - begin) % SIDE
        if column == 0:
            for j in range(min(SIDE, end - report)):
                several[12, j] = np.uint32(vectors[report + j] // 16)
                several[15, j] = clients[report + j]
            side_by_side(several, chosen)
        vector = vectors[report]
        base = (np.int64(chosen[vector % 16, column]) & last) * size
        counter = offset + vector * (size // 32)
        sign = np.int64(-1) if signs[report] else np.int64(1)
        start[15, :] = clients[report]
        for done in range(0, size, 32 * SIDE):
            next_blocks(start, counter + done // 32, words)
            for j in range(min(SIDE, (size - done) // 32)):
                place = base + done + 32 * j
                for i in range(16):
                    word = words[i, j]
                    total[place + 2 * i] += sign * draws[word & _LOW]
                    total[place + 2 * i + 1] += sign * draws[word >> _HIGH]


def add_codewords(
    clients: NDArray[np.uint32],
    vectors: NDArray[np.int64],
    signs: NDArray[np.bool_],
    size: int,
    offset: int,
    shared: SharedStream,
    total: NDArray[np.int64],
) -> None:
    """total += ±draws of each client's vector, on the vector's block."""
    key = shared.key_words

    def work(begin: int, end: int) -> NDArray[np.int64]:
        own = np.zeros_like(total)
        _add(key, normal.draws(), clients, vectors, signs, size, offset // 64, begin, end, own)
        return own

    for part_of_sum in in_threads(work, len(vectors), _REPORTS, size):
        total += part_of_sum
