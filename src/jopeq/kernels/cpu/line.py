"""Encode and decode one chunk of single entries: quantizer, or channel.

Work goes block by block (a few thousand entries stay in the first-level cache), in loops simple
enough to be vectorised; letters are packed at the end of the chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from jopeq.kernels.cpu import pack
from jopeq.kernels.cpu.native import (
    F32,
    F64,
    FLAG,
    I64,
    U8,
    U16,
    U32,
    kernel,
    part,
    read,
    vector_at,
    write,
)
from jopeq.kernels.cpu.pack import PACKING
from jopeq.kernels.cpu.samples import (
    INFINITE,
    NO_NOISE,
    NOISE,
    SOURCE,
    add_noise,
    finish,
    scale_and_clip,
    scale_samples,
    words_per_sample,
)

_BLOCK = 1024
_COUNTS = types.UniTuple(I64, 2)  # clipped, overloaded
LINE, TABLE = 0, 1


@part
def _unit_dither(word):
    """In units of a step: the signed word plus a half, over 65536."""
    return (np.float64(np.int16(word)) + 0.5) * 2.0**-16


@kernel(*SOURCE, FLAG, *NOISE, read(U16), F64, *PACKING, write(U16), write(U8), returns=_COUNTS)
def encode_line(
    narrow, wide, mean, inverse, is_clipped,
    law, scale, nu, limit, words, key, place, dither, step,
    alphabet, width, digits, bits, letters, out,
):  # fmt: skip
    """Clip, add noise and dither, quantize, pack: (clipped, overloaded)."""
    count = len(letters)
    samples_buffer, buffers = np.empty(_BLOCK), np.empty((3, _BLOCK))
    clipped, overloaded = 0, 0
    inverse_step, middle, last = 1.0 / step, 0.5 * alphabet, np.float64(alphabet - 1)
    per = words_per_sample(law, 1)
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        samples = samples_buffer[:size]
        if is_clipped:
            clipped += scale_and_clip(narrow, wide, first, mean, inverse, samples)
        else:
            scale_samples(narrow, wide, first, mean, inverse, samples)
        if law != NO_NOISE:
            mine = words[per * first : per * (first + size)]
            add_noise(law, scale, nu, limit, mine, key, place + first, 1, samples, buffers)
        here, into = dither[first : first + size], letters[first : first + size]
        for i in range(size):
            cell = np.floor((samples[i] + _unit_dither(here[i]) * step) * inverse_step + middle)
            inside = min(max(cell, 0.0), last)
            overloaded += inside != cell
            into[i] = np.uint16(np.int32(inside))
    pack.pack(letters, alphabet, width, digits, bits, out)
    return clipped, overloaded


@part
def _draw(rows, words, below, above, letters):
    """Letter l ends at ``above[l]`` from levels up to l and at ``below[l]`` from higher ones."""
    for i in range(len(rows)):
        letters[i] = 0
    for letter in range(len(below)):
        low, high = below[letter], above[letter]
        for i in range(len(rows)):
            end = high if rows[i] <= letter else low
            letters[i] += np.uint16(end <= words[i])


@kernel(
    *SOURCE, read(U16), read(U32), read(U32), read(U32), I64,
    *PACKING, write(U16), write(U8), returns=_COUNTS,
)  # fmt: skip
def encode_chances(
    narrow, wide, mean, inverse,
    dither, words, below, above, levels,
    alphabet, width, digits, bits, letters, out,
):  # fmt: skip
    """Clip, dither, quantize to levels, draw letters by randomized response, pack."""
    count = len(letters)
    samples_buffer, rows_buffer = np.empty(_BLOCK), np.empty(_BLOCK, dtype=np.int32)
    clipped = 0
    slope, middle = 0.5 * (levels - 1), 0.5 * levels
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        samples, rows = samples_buffer[:size], rows_buffer[:size]
        clipped += scale_and_clip(narrow, wide, first, mean, inverse, samples)
        here, into = dither[first : first + size], letters[first : first + size]
        mine = words[first : first + size]
        for i in range(size):
            level = np.floor(samples[i] * slope + (_unit_dither(here[i]) + middle))
            rows[i] = np.int32(level)
        _draw(rows, mine, below, above, into)
    pack.pack(letters, alphabet, width, digits, bits, out)
    return clipped, 0


# Letters back to entries


def _vector_copy(count: int) -> Any:
    """A copy of ``count`` entries as one vector: a compiled loop would move them one by one."""
    kind = ir.VectorType(ir.DoubleType(), count)

    @intrinsic
    def copy(typing: Any, source: Any, start: Any, target: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            origin, first, to, last = arguments
            begin = vector_at(context, builder, signature.args[0], origin, first, kind)
            end = vector_at(context, builder, signature.args[2], to, last, kind)
            builder.store(builder.load(begin, align=8), end, align=8)
            return context.get_dummy_value()

        return types.void(source, start, target, place), generate

    return copy


_copy_two, _copy_four, _copy_eight = map(_vector_copy, (2, 4, 8))


@part
def _look_up(body, rows, points):
    """Points of the letters of whole bytes: a byte has a row of them."""
    if len(rows) == 512:
        for i in range(len(body)):
            _copy_two(rows, 2 * np.int64(body[i]), points, 2 * i)
    elif len(rows) == 1024:
        for i in range(len(body)):
            _copy_four(rows, 4 * np.int64(body[i]), points, 4 * i)
    else:
        for i in range(len(body)):
            _copy_eight(rows, 8 * np.int64(body[i]), points, 8 * i)


@part
def _find(letters, kind, step, middle, values, points):
    """Points of letters."""
    if kind == TABLE:
        for i in range(len(letters)):
            points[i] = values[letters[i]]
        return
    for i in range(len(letters)):
        points[i] = (np.float64(np.int32(letters[i])) - middle) * step


@part
def _subtract(points, dither, step):
    fine = step * 2.0**-16  # step·dither with one product less, and the same rounding
    for i in range(len(dither)):
        points[i] -= fine * (np.float64(np.int16(dither[i])) + 0.5)


@kernel(
    read(U8), *PACKING, read(U16), I64, F64, F64, read(F64), read(F64), F64, F64, write(U16),
    write(F64), write(F32), returns=I64,
)  # fmt: skip
def decode_letters(
    body, alphabet, width, digits, bits,
    dither, kind, step, middle, values, rows, unit, mean,
    letters, wide, narrow,
):  # fmt: skip
    """Letters to entries, float32 in the update's units, or float64 where ``wide`` is not empty.

    ``rows`` holds the points of every byte, where bytes hold whole letters. Returns 1 for bytes
    that no encoder writes, 2 when an entry leaves float32, else 0.
    """
    count, per_byte = len(letters), len(rows) // 256
    if per_byte:
        rest = count % per_byte
        if rest and body[len(body) - 1] >> np.uint8(width * rest):
            return 1
    elif not pack.unpack(body, alphabet, width, digits, bits, letters):
        return 1
    buffer = np.empty(_BLOCK)
    largest = np.int32(0)
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        points = buffer[: last - first]
        if per_byte:
            _look_up(body[first // per_byte : -(-last // per_byte)], rows, buffer)
        else:
            _find(letters[first:last], kind, step, middle, values, points)
        _subtract(points, dither[first:last], step)
        largest = max(largest, finish(points, first, unit, mean, wide, narrow))
    return 0 if largest < INFINITE else 2
