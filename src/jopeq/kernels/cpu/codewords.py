"""Codewords of ``sphere``: scores of an update, sums of many reports, the Hadamard transform.

Draws and products are whole numbers, so that every order of adding gives the same result.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from jopeq.kernels.cpu.chacha import block, sixteen_blocks, start_state
from jopeq.kernels.cpu.native import F64, FLAG, I64, U32, kernel, read, write
from jopeq.kernels.threads import in_threads
from jopeq.random import normal
from jopeq.random.streams import SharedStream

_I16, _I32 = types.int16, types.int32
_REPORTS = 64  # a thread takes at a time


@kernel(write(F64))
def _transform(values):
    """Butterflies in the plain path's order: (a, b) becomes (a + b, a − b), width 1, 2, 4, …"""
    size = len(values)
    width = 1
    while 4 * width <= size:
        for start in range(0, size, 4 * width):
            for i in range(start, start + width):
                a, b = values[i], values[i + width]
                c, d = values[i + 2 * width], values[i + 3 * width]
                e, f, g, h = a + b, a - b, c + d, c - d
                values[i], values[i + width] = e + g, f + h
                values[i + 2 * width], values[i + 3 * width] = e - g, f - h
        width *= 4
    if width < size:
        for i in range(width):
            a, b = values[i], values[i + width]
            values[i], values[i + width] = a + b, a - b
    root = math.sqrt(size)
    for i in range(size):
        values[i] /= root


def hadamard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The orthonormal Walsh–Hadamard transform, as ``jopeq.wire.samples.hadamard`` has it."""
    turned = values.astype(np.float64, copy=True)
    _transform(turned)
    return turned


@kernel(
    read(U32), I64, read(_I16), read(_I32), read(I64), I64, I64, I64, I64, write(I64), write(I64)
)
def _score(key, client, draws, turned, blocks, size, offset, begin, end, products, firsts):
    start = start_state(key, client)[16:]
    state = np.empty((16, 16), dtype=np.uint32)
    for vector in range(begin, end):
        base = blocks[vector] * size
        counter = offset + vector * (size // 32)
        total = np.int64(0)
        for done in range(0, size, 512):
            sixteen_blocks(start, counter + done // 32, state)
            if done == 0:
                firsts[vector] = draws[state[0, 0] & np.uint32(0xFFFF)]
            for j in range(min(16, (size - done) // 32)):
                place = base + done + 32 * j
                for i in range(16):
                    word = state[i, j]
                    total += np.int64(draws[word & np.uint32(0xFFFF)]) * turned[place + 2 * i]
                    total += np.int64(draws[word >> np.uint32(16)]) * turned[place + 2 * i + 1]
        products[vector] = total


def codeword_scores(
    turned: NDArray[np.int32],
    blocks: NDArray[np.int64],
    size: int,
    offset: int,
    shared: SharedStream,
    client: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """⟨u, x_b⟩ and the first draw of every vector; the draws begin at byte ``offset``."""
    products, firsts = np.empty((2, len(blocks)), dtype=np.int64)
    key = shared.key_words

    def work(begin: int, end: int) -> None:
        _score(
            key, client, normal.draws(), turned, blocks, size, offset // 64,
            begin, end, products, firsts,
        )  # fmt: skip

    in_threads(work, len(blocks), 1, size)
    return products, firsts


@kernel(read(U32), read(_I16), read(U32), read(I64), read(FLAG), I64, I64, I64, I64, write(I64))
def _add(key, draws, clients, vectors, signs, size, offset, begin, end, total):
    state = np.empty((16, 16), dtype=np.uint32)
    last = len(total) // size - 1
    for report in range(begin, end):
        whole = start_state(key, clients[report])
        start = whole[16:]
        vector = vectors[report]
        base = np.int64(0)
        if last > 0:
            block(whole, vector // 16)
            base = (np.int64(whole[vector % 16]) & last) * size
        counter = offset + vector * (size // 32)
        sign = np.int64(-1) if signs[report] else np.int64(1)
        for done in range(0, size, 512):
            sixteen_blocks(start, counter + done // 32, state)
            for j in range(min(16, (size - done) // 32)):
                place = base + done + 32 * j
                for i in range(16):
                    word = state[i, j]
                    total[place + 2 * i] += sign * draws[word & np.uint32(0xFFFF)]
                    total[place + 2 * i + 1] += sign * draws[word >> np.uint32(16)]


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
