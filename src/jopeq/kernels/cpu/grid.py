"""Encode and decode one chunk of samples on a fine grid: additive noise, sent as 32-bit words."""

from __future__ import annotations

import numpy as np
from numba import types

from jopeq.kernels.cpu.native import F32, F64, I64, U8, U64, kernel, part, read, write
from jopeq.kernels.cpu.samples import (
    GAVE_UP,
    INFINITE,
    NOISE,
    SOURCE,
    add_noise,
    finish,
    into_ball,
    scaled,
    words_per_sample,
)

_BLOCK = 512  # entries
_WORDS = 1024  # decoded together, which need fewer buffers
_WORD_LIMIT = 2.0**31 - 1.0
_RESULT = types.UniTuple(I64, 2)  # clipped, and 0 or GAVE_UP


@part
def _round_inside(samples, size, grid, finer):
    """To the nearest point of the grid, towards 0 where that leaves the ball."""
    if size == 1:  # the ends of [−1, 1] lie on the grid
        for i in range(len(samples)):
            samples[i] = np.rint(samples[i] * finer) * grid
        return
    for first in range(0, len(samples), size):
        total = 0.0
        for i in range(first, first + size):
            rounded = np.rint(samples[i] * finer) * grid
            total += rounded * rounded
        for i in range(first, first + size):
            level = samples[i] * finer
            samples[i] = (np.trunc(level) if total > 1.0 else np.rint(level)) * grid


@kernel(*SOURCE, *NOISE, read(U64), I64, F64, write(U8), returns=_RESULT)
def encode_grid(
    narrow, wide, mean, inverse,
    law, scale, nu, limit, words, extra, key, place,
    more, size, grid, out,
):  # fmt: skip
    """Ball, round to the grid inside it, noise, round, 32-bit words."""
    finer = 1.0 / grid  # exact, as the grid is a power of two
    samples_buffer, buffers = np.empty(_BLOCK), np.empty((3, _BLOCK))
    clipped = 0
    count, per_block = len(out) // (4 * size), _BLOCK // size
    per, per_more = words_per_sample(law, size), 4 if len(more) else 0
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_buffer[: here * size]
        scaled(narrow, wide, first * size, mean, inverse, samples)
        clipped += into_ball(samples, size)
        _round_inside(samples, size, grid, finer)
        mine = slice(per * first, per * (first + here))
        others = more[per_more * first : per_more * (first + here)]
        if not add_noise(
            law, scale, nu, limit, words[mine], extra[mine], others, key, place + first, size,
            samples, buffers,
        ):  # fmt: skip
            return clipped, np.int64(GAVE_UP)
        into = out[4 * first * size : 4 * (first + here) * size]
        for i in range(here * size):
            level = min(max(np.rint(samples[i] * finer), -_WORD_LIMIT), _WORD_LIMIT)
            word = np.uint32(np.int32(level))
            into[4 * i] = np.uint8(word)
            into[4 * i + 1] = np.uint8(word >> np.uint32(8))
            into[4 * i + 2] = np.uint8(word >> np.uint32(16))
            into[4 * i + 3] = np.uint8(word >> np.uint32(24))
    return clipped, np.int64(0)


@kernel(read(U8), F64, F64, F64, write(F64), write(F32), returns=I64)
def decode_grid(body, grid, unit, mean, wide, narrow):
    """32-bit words to entries; codes as ``line.decode_letters``."""
    count = len(body) // 4
    buffer = np.empty(_WORDS)
    largest = np.int32(0)
    for first in range(0, count, _WORDS):
        size = min(_WORDS, count - first)
        mine, samples = body[4 * first : 4 * (first + size)], buffer[:size]
        for i in range(size):
            word = np.uint32(mine[4 * i]) | (np.uint32(mine[4 * i + 1]) << np.uint32(8))
            word |= np.uint32(mine[4 * i + 2]) << np.uint32(16)
            word |= np.uint32(mine[4 * i + 3]) << np.uint32(24)
            samples[i] = np.float64(np.int32(word)) * grid
        largest = max(largest, finish(samples, first, unit, mean, wide, narrow))
    return 0 if largest < INFINITE else 2
