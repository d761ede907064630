"""Encode and decode one chunk of samples on A2, D4 or E8; letters are packed apart.

Noise on the lattice repeats ``noise.on_lattice`` rounding by rounding.
"""

from __future__ import annotations

import numpy as np
from numba import types

from jopeq.kernels.cpu import cells, pack, portable
from jopeq.kernels.cpu.chacha import block, start_state
from jopeq.kernels.cpu.native import (
    F32,
    F64,
    FLAG,
    I64,
    U8,
    U16,
    U32,
    U64,
    kernel,
    part,
    read,
    write,
)
from jopeq.kernels.cpu.noise import far_zeros
from jopeq.kernels.cpu.pack import PACKING
from jopeq.kernels.cpu.samples import (
    GAVE_UP,
    INFINITE,
    NO_NOISE,
    NOISE,
    SOURCE,
    TOO_FAR,
    add_noise,
    finish,
    into_ball,
    scaled,
    words_per_sample,
)
from jopeq.noise.on_lattice import LANES_PER_ATTEMPT, MAX_ATTEMPTS
from jopeq.random.samplers import EXTRA_LANE

_BLOCK = 512  # entries
_TABLE = (read(F64), read(F64), read(F64), read(F64), F64)  # shift, codewords, basis, inverse, step
_LETTERS = (read(F64), read(F64), read(I64), read(I64), read(I64))  # box, keys, indices
_RESULT = types.UniTuple(I64, 3)  # clipped, overloaded, missed (or TOO_FAR, or GAVE_UP)


@part
def _enter(state, lane, counter):
    state[31] = np.uint32(lane)
    block(state, counter)


@part
def _word(state, place):
    low = 2 * (place % 8)
    return np.uint64(state[low]) | (np.uint64(state[low + 1]) << np.uint64(32))


@part
def _exponential(word, extra, lane, place):
    zeros = portable.zeros_of(word)
    if portable.exponent_bits(word) == 0:
        _enter(extra, EXTRA_LANE | lane, place // 8)
        more = _word(extra, place)
        zeros = portable.zeros_beyond(more) if more else far_zeros(extra, lane, place)
    return -portable.log_uniform(word, zeros)


@part
def draw_point(
    decay, covering, turns, lengths, chances, sample, at, basis, unbasis, states, k, buffers, rows
):
    """Basis coordinates of one point of exponential noise on the lattice; False to give up.

    A sample's words of one lane lie in one block. Those of the first attempt are in the three
    buffers, at ``at``; later ones are computed.
    """
    size = len(k)
    y, frame, near, spare = buffers[0], buffers[1], buffers[2], buffers[3]
    for attempt in range(MAX_ATTEMPTS):
        lane = LANES_PER_ATTEMPT * attempt
        if attempt:
            _enter(states[0], lane, sample * size // 8)
            _enter(states[1], lane + 1, sample * size // 8)
            _enter(states[2], lane + 2, sample // 8)
        radius, root = 0.0, 0.0
        for j in range(size):
            place = sample * size + j
            turn = _word(states[0], place) if attempt else turns[at * size + j]
            length = _word(states[1], place) if attempt else lengths[at * size + j]
            step = _exponential(length, states[3], lane + 1, place)
            radius = radius + step if j else step
            if j % 2 == 0:
                root = np.sqrt(2.0 * _exponential(turn, states[3], lane, place))
            else:
                cosine, sine = portable.circle(turn)
                y[j - 1, 0], y[j, 0] = root * cosine, root * sine
        total = 0.0
        for j in range(size):
            total += y[j, 0] * y[j, 0]
        factor = radius / decay / np.sqrt(total)
        for j in range(size):
            y[j, 0] *= factor
        if not cells.coordinates(y, 1.0, unbasis, k, frame, near, spare, rows):
            continue
        cells.points(k, basis, 1.0, spare)
        long, short = 0.0, 0.0
        for j in range(size):
            long += spare[j, 0] * spare[j, 0]
            short += y[j, 0] * y[j, 0]
        excess = np.sqrt(long) - np.sqrt(short)
        chance = portable.exp(-decay * (excess + covering))
        word = _word(states[2], sample) if attempt else chances[at]
        if portable.unit(word) <= chance:
            return True
    return False


@part
def draw_listed(words, at, high, low, guide):
    """The place in the list of points that the 128-bit word at ``at`` draws."""
    upper, lower = words[2 * at], words[2 * at + 1]
    place = np.int64(guide[upper >> np.uint64(48)])
    while place < len(high):
        end = high[place]
        if end > upper or (end == upper and low[place] > lower):
            break
        place += 1
    return place


@part
def _buffers(size, width):
    """Room for so many samples; whole arrays, since loops over slices do not vectorise."""
    found = np.empty(width, dtype=np.int64)
    return np.empty((size, width)), np.empty((6, size, width)), np.empty((5, width)), found


@part
def _to_letters(
    x, shift, codewords, unbasis, step,
    low, extent, strides, keys, indices, is_searched,
    first, letters, missed, missed_points, misses, buffers, rows, found,
):  # fmt: skip
    """The letters of a block of points: (overloaded, misses), or TOO_FAR in place of misses."""
    size, count = x.shape
    moved, steps = buffers[0], buffers[1]
    for i in range(size):
        for b in range(count):
            moved[i, b] = x[i, b] - shift[i]
    if not cells.coordinates(moved, step, unbasis, steps, buffers[2], buffers[3], buffers[4], rows):
        return 0, np.int64(TOO_FAR)
    cells.find(steps, low, extent, strides, keys, indices, found, rows)
    overloaded = 0
    for b in range(count):
        letter = found[b]
        if letter < 0:
            overloaded += 1
            if is_searched:
                letter = cells.nearest_letter(x, b, codewords)
            else:
                letter = 0
                missed[misses] = first + b
                for i in range(size):
                    missed_points[misses * size + i] = x[i, b]
                misses += 1
        letters[first + b] = np.uint16(letter)
    return overloaded, misses


@kernel(
    *SOURCE, FLAG, *NOISE, read(U64), I64, read(U16), *_TABLE, *_LETTERS, FLAG,
    write(U16), write(I64), write(F64), returns=_RESULT,
)  # fmt: skip
def encode_cells(
    narrow, wide, mean, inverse, is_clipped,
    law, scale, nu, limit, words, extra, key, place,
    more, size, dither, shift, codewords, basis, unbasis, step,
    low, extent, strides, keys, indices, is_searched,
    letters, missed, missed_points,
):  # fmt: skip
    """Ball, noise, dither, letter. Overloaded samples that only a tree can place are listed."""
    count, per_block = len(letters), _BLOCK // size
    samples_buffer, draws = np.empty(_BLOCK), np.empty((3, _BLOCK))
    x, buffers, rows, found = _buffers(size, min(per_block, count))
    clipped, overloaded, misses = 0, 0, np.int64(0)
    per, per_more = words_per_sample(law, size), 4 if len(more) else 0
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_buffer[: here * size]
        scaled(narrow, wide, first * size, mean, inverse, samples)
        if is_clipped:
            clipped += into_ball(samples, size)
        if law != NO_NOISE:
            mine = slice(per * first, per * (first + here))
            others = more[per_more * first : per_more * (first + here)]
            if not add_noise(
                law, scale, nu, limit, words[mine], extra[mine], others, key, place + first, size,
                samples, draws,
            ):  # fmt: skip
                return clipped, overloaded, np.int64(GAVE_UP)
        if here != len(found):
            x, buffers, rows, found = _buffers(size, here)
        mine16 = dither[first * size : (first + here) * size]
        cells.dither(mine16, basis, step, x, buffers[2], buffers[3], buffers[4], rows)
        for i in range(size):
            row = x[i]
            for b in range(here):
                row[b] = samples[b * size + i] + row[b]
        over, misses = _to_letters(
            x, shift, codewords, unbasis, step, low, extent, strides, keys, indices, is_searched,
            first, letters, missed, missed_points, misses, buffers, rows, found,
        )  # fmt: skip
        overloaded += over
        if misses < 0:
            break
    return clipped, overloaded, misses


@kernel(
    *SOURCE, read(U64), read(U64), read(U64), read(U32), I64, F64, F64, F64,
    read(U64), read(U64), read(U32), read(F64), I64, read(U16),
    read(F64), *_TABLE, *_LETTERS, FLAG, write(U16), write(I64), write(F64), returns=_RESULT,
)  # fmt: skip
def encode_cell_stairs(
    narrow, wide, mean, inverse,
    turns, lengths, chances, key, place, decay, covering, tie,
    high, low_ends, guide, points, size, dither, half, shift, codewords, basis, unbasis, step,
    low, extent, strides, keys, indices, is_searched,
    letters, missed, missed_points,
):  # fmt: skip
    """Ball, dither, nearest point, noise on the lattice, letter. ``half`` is the shift in basis.

    Noise is drawn from the list ``points`` by ``turns``, or by rejection where there is no list.
    """
    count, per_block = len(letters), _BLOCK // size
    samples_buffer = np.empty(_BLOCK)
    x, buffers, rows, found = _buffers(size, min(per_block, count))
    k, singles, single_rows = np.empty((size, 1)), np.empty((4, size, 1)), np.empty((5, 1))
    states = np.empty((4, 32), dtype=np.uint32)
    for number in range(4):
        states[number] = start_state(key, 0)
    clipped, overloaded, misses = 0, 0, np.int64(0)
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_buffer[: here * size]
        scaled(narrow, wide, first * size, mean, inverse, samples)
        clipped += into_ball(samples, size)
        if here != len(found):
            x, buffers, rows, found = _buffers(size, here)
        steps, frame, near, spare, d = buffers[1], buffers[2], buffers[3], buffers[4], buffers[5]
        mine16 = dither[first * size : (first + here) * size]
        cells.dither(mine16, basis, step, d, frame, near, spare, rows)
        for i in range(size):
            for b in range(here):
                x[i, b] = (samples[b * size + i] + d[i, b]) - shift[i]
        if not cells.coordinates(x, step, unbasis, steps, frame, near, spare, rows):
            return clipped, overloaded, np.int64(TOO_FAR)
        for b in range(here):
            if len(points):
                drawn = draw_listed(turns, first + b, high, low_ends, guide)
                for i in range(size):
                    k[i, 0] = points[drawn * size + i]
            elif not draw_point(
                decay, covering, turns, lengths, chances, place + first + b, first + b,
                basis, unbasis, states, k, singles, single_rows,
            ):  # fmt: skip
                return clipped, overloaded, np.int64(GAVE_UP)
            for i in range(size):
                steps[i, b] = (steps[i, b] + k[i, 0]) + half[i]
        cells.points(steps, basis, step, x)
        for i in range(size):
            for b in range(here):
                x[i, b] = x[i, b] + tie * d[i, b]
        over, misses = _to_letters(
            x, shift, codewords, unbasis, step, low, extent, strides, keys, indices, is_searched,
            first, letters, missed, missed_points, misses, buffers, rows, found,
        )  # fmt: skip
        overloaded += over
        if misses < 0:
            break
    return clipped, overloaded, misses


@kernel(read(U16), *PACKING, write(U8))
def pack_letters(letters, alphabet, width, digits, bits, out):
    """Letters as bytes."""
    pack.pack(letters, alphabet, width, digits, bits, out)


@kernel(
    read(U8), *PACKING, I64, read(U16), read(F64), read(F64), F64, F64, F64, write(U16),
    write(F64), write(F32), returns=I64,
)  # fmt: skip
def decode_cells(
    body, alphabet, width, digits, bits,
    size, dither, codewords, basis, step, unit, mean,
    letters, wide, narrow,
):  # fmt: skip
    """Letters to entries; codes as ``line.decode_letters``."""
    if not pack.unpack(body, alphabet, width, digits, bits, letters):
        return 1
    is_dithered = len(dither) > 0
    count, per_block = len(letters), _BLOCK // size
    buffer = np.empty(_BLOCK)
    d, buffers, rows, found = _buffers(size, min(per_block, count))
    largest = np.int32(0)
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = buffer[: here * size]
        for b in range(here):
            letter = np.int64(letters[first + b])
            if letter >= alphabet:
                return 1
            for i in range(size):
                samples[b * size + i] = codewords[letter * size + i]
        if is_dithered:
            if here != len(found):
                d, buffers, rows, found = _buffers(size, here)
            mine16 = dither[first * size : (first + here) * size]
            cells.dither(mine16, basis, step, d, buffers[0], buffers[1], buffers[2], rows)
            for i in range(size):
                row = d[i]
                for b in range(here):
                    samples[b * size + i] -= row[b]
        largest = max(largest, finish(samples, first * size, unit, mean, wide, narrow))
    return 0 if largest < INFINITE else 2
