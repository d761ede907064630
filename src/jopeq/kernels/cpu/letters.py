"""Entries to letters and letters to entries: one chunk of samples on Z or A2, block by block.

A block of entries stays in the first-level cache, in loops simple enough to be vectorised; letters
are packed at the end of the chunk. All is rounded as on the plain path.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from jopeq.kernels.cpu import noise, pack
from jopeq.kernels.cpu.native import (
    F32,
    F64,
    FLAG,
    I64,
    U8,
    U16,
    U32,
    U64,
    as_bits,
    as_bits32,
    kernel,
    part,
    read,
    vector_at,
    write,
)
from jopeq.kernels.cpu.pack import PACKING

_SOURCE = (read(F32), read(F64), F64, F64)  # narrow, wide, mean, inverse
_NOISE = (F64, F64, read(U64), read(U32), I64)  # scale, limit, words (none: no noise), key, place
_BLOCK = 1024  # samples on Z
_PAIRS = 256  # samples on A2
_SHRINK = 1.0 - 1e-12
_ROOT3 = math.sqrt(3)
_FAR = (1023 + 50) << 52  # the bits of 2⁵⁰
_INFINITE = np.int32(0x7F800000)  # the least magnitude that is no number of float32


# Entries to letters


@part
def _scale(entries, mean, inverse, samples):
    for i in range(len(samples)):
        samples[i] = (np.float64(entries[i]) - mean) * inverse


@part
def _scale_samples(narrow, wide, first, mean, inverse, samples):
    """Entries ``first``… in scaled units, from whichever of the two arrays holds them."""
    last = first + len(samples)
    if len(narrow):
        _scale(narrow[first:last], mean, inverse, samples)
    else:
        _scale(wide[first:last], mean, inverse, samples)


@part
def _scale_and_clip(entries, mean, inverse, samples):
    clipped = 0
    for i in range(len(samples)):
        value = (np.float64(entries[i]) - mean) * inverse
        inside = min(max(value, -1.0), 1.0)
        clipped += inside != value
        samples[i] = inside
    return clipped


@part
def _clip_samples(narrow, wide, first, mean, inverse, samples):
    """``_scale_samples``, moved into [−1, 1]; how many had to be."""
    last = first + len(samples)
    if len(narrow):
        return _scale_and_clip(narrow[first:last], mean, inverse, samples)
    return _scale_and_clip(wide[first:last], mean, inverse, samples)


@part
def _cut(value, limit):
    return min(max(value, -limit), limit)


@part
def _unit_dither(word):
    """In units of a step: the signed word plus a half, over 65536."""
    return (np.float64(np.int16(word)) + 0.5) * 2.0**-16


@kernel(
    *_SOURCE, FLAG, *_NOISE, read(U16), F64, *PACKING, write(U16), write(U8),
    returns=types.UniTuple(I64, 2),
)  # fmt: skip
def encode_line(
    narrow, wide, mean, inverse, is_clipped,
    scale, limit, words, key, place, dither, step,
    alphabet, width, digits, bits, letters, out,
):  # fmt: skip
    """Clip, add Laplace noise and dither, quantize, pack: (clipped, overloaded)."""
    count = len(letters)
    samples_buffer, draws = np.empty(_BLOCK), np.empty(_BLOCK)
    clipped, overloaded = 0, 0
    inverse_step, middle, last = 1.0 / step, 0.5 * alphabet, np.float64(alphabet - 1)
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        samples = samples_buffer[:size]
        if is_clipped:
            clipped += _clip_samples(narrow, wide, first, mean, inverse, samples)
        else:
            _scale_samples(narrow, wide, first, mean, inverse, samples)
        if len(words):
            noise.laplace(words[first : first + size], key, place + first, draws[:size])
            for i in range(size):
                samples[i] = _cut(samples[i] + scale * draws[i], limit)
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
    *_SOURCE, read(U16), read(U32), read(U32), read(U32), *PACKING, write(U16), write(U8),
    returns=I64,
)  # fmt: skip
def encode_chances(
    narrow, wide, mean, inverse, dither, words, below, above,
    alphabet, width, digits, bits, letters, out,
):  # fmt: skip
    """Clip, dither, quantize to levels, draw letters by randomized response, pack: clipped."""
    count, clipped = len(letters), 0
    samples_buffer, rows_buffer = np.empty(_BLOCK), np.empty(_BLOCK, dtype=np.int32)
    slope, middle = 0.5 * (alphabet - 1), 0.5 * alphabet
    for first in range(0, count, _BLOCK):
        size = min(_BLOCK, count - first)
        samples, rows = samples_buffer[:size], rows_buffer[:size]
        clipped += _clip_samples(narrow, wide, first, mean, inverse, samples)
        here, into = dither[first : first + size], letters[first : first + size]
        mine = words[first : first + size]
        for i in range(size):
            level = np.floor(samples[i] * slope + (_unit_dither(here[i]) + middle))
            rows[i] = np.int32(level)
        _draw(rows, mine, below, above, into)
    pack.pack(letters, alphabet, width, digits, bits, out)
    return clipped


# On A2


@part
def _into_ball(samples):
    """Move pairs radially into the unit disc; how many had to be."""
    moved = 0
    for first in range(0, len(samples), 2):
        x, y = samples[first], samples[first + 1]
        norm = np.sqrt(x * x + y * y)
        if norm > 1.0:
            moved += 1
            factor = _SHRINK / norm
            samples[first] = x * factor
            samples[first + 1] = y * factor
    return moved


@part
def _nearest(x, y):
    """``Geometry.nearest`` of one point, in the frame."""
    first_x, first_y = np.floor(x + 0.5), np.floor(y + 0.5)
    across, up = x - first_x, y - first_y
    half = 0.5 if abs(up) * 3.0 + abs(across) > 1.0 else 0.0
    return first_x + (-half if across < 0.0 else half), first_y + (-half if up < 0.0 else half)


@part
def _cell_dither(words, step, across, up):
    """The dither in space, from pairs of words one sample after the other."""
    for b in range(len(across)):
        u = (np.float64(np.int32(words[2 * b])) + 0.5) * 2.0**-16
        v = (np.float64(np.int32(words[2 * b + 1])) + 0.5) * 2.0**-16
        x, y = u + v * 0.5, v * 0.5
        x_near, y_near = _nearest(x, y)
        across[b] = (x - x_near) * step
        up[b] = (y - y_near) * _ROOT3 * step


@part
def _magnitude(value):
    """An integer that grows with |value|, since the largest of integers is found in vectors."""
    return np.int64(as_bits(value) & np.uint64(0x7FFFFFFFFFFFFFFF))


@part
def _find_keys(x, y, step, box, keys):
    """The place of each point's lattice point in the box, −1 outside; whether all are near enough.

    ``box``: shift of the codebook, low corner, extent (two numbers each).
    """
    across, up = 1.0 / step, 1.0 / (_ROOT3 * step)
    shift_x, shift_y, low_a, low_b, extent_a, extent_b = box
    farthest = np.int64(0)
    for i in range(len(x)):
        u, v = (x[i] - shift_x) * across, (y[i] - shift_y) * up
        farthest = max(farthest, max(_magnitude(u), _magnitude(v)))
        u_near, v_near = _nearest(u, v)
        a, b = (u_near - v_near) - low_a, v_near * 2.0 - low_b
        is_inside = (a >= 0.0) & (a < extent_a) & (b >= 0.0) & (b < extent_b)
        keys[i] = np.int32(a + b * extent_a if is_inside else -1.0)
    return farthest < _FAR


@part
def _nearest_letter(x, y, points):
    """The letter nearest to a point, by search; the first of equals."""
    best, least = 0, np.inf
    for letter in range(len(points) // 2):
        across, up = x - points[2 * letter], y - points[2 * letter + 1]
        distance = across * across + up * up
        if distance < least:
            best, least = letter, distance
    return best


@kernel(
    *_SOURCE, FLAG, *_NOISE, F64, read(U16), F64, types.UniTuple(F64, 6), read(I64), read(F64),
    *PACKING, write(U16), write(U8), returns=types.UniTuple(I64, 3),
)  # fmt: skip
def encode_cells(
    narrow, wide, mean, inverse, is_clipped,
    scale, limit, words, key, place, nu, dither, step, box, table, points,
    alphabet, width, digits, bits, letters, out,
):  # fmt: skip
    """Move into the ball, add t noise and dither, find letters, pack: (clipped, overloaded, far).

    ``table`` has the letter at each place of the box. ``far`` is 1 where a sample is too far.
    """
    count, clipped, overloaded = len(letters), 0, 0
    samples_buffer, across, up = np.empty(2 * _PAIRS), np.empty(_PAIRS), np.empty(_PAIRS)
    keys, draws = np.empty(_PAIRS, dtype=np.int32), np.empty((3, _PAIRS))
    for first in range(0, count, _PAIRS):
        here = min(_PAIRS, count - first)
        samples = samples_buffer[: 2 * here]
        _scale_samples(narrow, wide, 2 * first, mean, inverse, samples)
        if is_clipped:
            clipped += _into_ball(samples)
        if len(words):
            mine = words[2 * first : 2 * (first + here)]
            radius, cosine, sine = draws[0, :here], draws[1, :here], draws[2, :here]
            noise.planar_t(mine, key, 2 * (place + first), nu, scale, radius, cosine, sine)
            for b in range(here):
                samples[2 * b] = _cut(samples[2 * b] + cosine[b] * radius[b], limit)
                samples[2 * b + 1] = _cut(samples[2 * b + 1] + sine[b] * radius[b], limit)
        x, y = across[:here], up[:here]
        _cell_dither(dither[2 * first : 2 * (first + here)], step, x, y)
        for b in range(here):
            x[b] += samples[2 * b]
            y[b] += samples[2 * b + 1]
        if not _find_keys(x, y, step, box, keys):
            return clipped, overloaded, 1
        for b in range(here):
            letter = table[keys[b]] if keys[b] >= 0 else np.int64(-1)
            if letter < 0:
                overloaded += 1
                letter = _nearest_letter(x[b], y[b], points)
            letters[first + b] = np.uint16(letter)
    pack.pack(letters, alphabet, width, digits, bits, out)
    return clipped, overloaded, 0


# Letters to entries


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
def _look_up(body, rows, samples):
    """Points of the letters of whole bytes: a byte has a row of them."""
    if len(rows) == 512:
        for i in range(len(body)):
            _copy_two(rows, 2 * np.int64(body[i]), samples, 2 * i)
    elif len(rows) == 1024:
        for i in range(len(body)):
            _copy_four(rows, 4 * np.int64(body[i]), samples, 4 * i)
    else:
        for i in range(len(body)):
            _copy_eight(rows, 8 * np.int64(body[i]), samples, 8 * i)


@part
def _find(letters, points, step, middle, samples):
    """Points of letters."""
    if not len(points):
        for i in range(len(letters)):
            samples[i] = (np.float64(np.int32(letters[i])) - middle) * step
    elif len(samples) == len(letters):
        for i in range(len(letters)):
            samples[i] = points[letters[i]]
    else:
        for b in range(len(letters)):
            letter = np.int64(letters[b])
            samples[2 * b], samples[2 * b + 1] = points[2 * letter], points[2 * letter + 1]


@part
def _subtract(samples, dither, step):
    fine = step * 2.0**-16  # step·dither with one product less, and the same rounding
    for i in range(len(dither)):
        samples[i] -= fine * (np.float64(np.int16(dither[i])) + 0.5)


@part
def _magnitude32(value):
    """``_magnitude`` of a float32; those of inf and NaN are beyond all others."""
    return as_bits32(value) & np.int32(0x7FFFFFFF)


@part
def _finish(samples, first, unit, mean, wide, narrow):
    """Write samples in the update's units, or as they are into ``wide``; the largest magnitude."""
    size = len(samples)
    largest = np.int32(0)
    if len(wide):
        wider = wide[first : first + size]
        for i in range(size):
            wider[i] = samples[i]
        return largest
    into = narrow[first : first + size]
    for i in range(size):
        into[i] = np.float32(samples[i] * unit + mean)
    for i in range(size):  # on their own, eight magnitudes make a vector
        largest = max(largest, _magnitude32(into[i]))
    return largest


@kernel(
    read(U8), *PACKING, read(U16), F64, read(F64), read(F64), F64, F64, write(U16), write(F64),
    write(F32), returns=I64,
)  # fmt: skip
def decode(
    body, alphabet, width, digits, bits, dither, step, points, rows, unit, mean, letters,
    wide, narrow,
):  # fmt: skip
    """Letters to entries, float32 in the update's units, or float64 where ``wide`` is not empty.

    ``points`` is empty for ``Line``, whose points are quickly computed. ``rows`` holds the points
    of every byte, where bytes hold several numbers. Returns 1 for bytes that no encoder writes, 2
    when an entry leaves float32, else 0.
    """
    count, size, middle = len(letters), len(dither) // len(letters), 0.5 * (alphabet - 1)
    per_byte = 8 // width if len(rows) else 0
    if per_byte:
        rest = count % per_byte
        if rest and body[len(body) - 1] >> np.uint8(width * rest):
            return 1
    elif not pack.unpack(body, alphabet, width, digits, bits, letters):
        return 1
    buffer, across, up = np.empty(_BLOCK), np.empty(_BLOCK // 2), np.empty(_BLOCK // 2)
    largest, together = np.int32(0), _BLOCK // size
    for first in range(0, count, together):
        last = min(first + together, count)
        samples, here = buffer[: size * (last - first)], dither[size * first : size * last]
        if per_byte:
            _look_up(body[first // per_byte : -(-last // per_byte)], rows, buffer)
        else:
            _find(letters[first:last], points, step, middle, samples)
        if size == 1:
            _subtract(samples, here, step)
        else:
            x, y = across[: last - first], up[: last - first]
            _cell_dither(here, step, x, y)
            for b in range(last - first):
                samples[2 * b] -= x[b]
                samples[2 * b + 1] -= y[b]
        largest = max(largest, _finish(samples, size * first, unit, mean, wide, narrow))
    return 0 if largest < _INFINITE else 2
