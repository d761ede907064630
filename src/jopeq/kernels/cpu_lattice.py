"""Encode and decode one chunk of samples on A2, D4 or E8 (letters packed apart), and t words."""

from __future__ import annotations

import numpy as np
from numba import types

from jopeq.kernels import cpu_cells, cpu_math, cpu_noise, cpu_pack
from jopeq.kernels.cpu_chacha import block, start_state
from jopeq.kernels.cpu_line import (
    _NOISE,
    _PACKING,
    _SOURCE,
    _WORD_LIMIT,
    INFINITE,
    finish,
    scaled,
)
from jopeq.kernels.native import F32, F64, FLAG, I64, U8, U16, U32, U64, kernel, part, read, write
from jopeq.samplers import _EXTRA_LANE

_BLOCK = 512  # entries
_SHRINK = 1.0 - 1e-12
_TABLE = (read(F64), read(F64), read(F64), read(F64), F64)  # shift, codewords, basis, inverse, step
_LETTERS = (read(F64), read(F64), read(I64), read(I64), read(I64))  # box, keys, indices
_RESULT = types.UniTuple(I64, 3)  # clipped, overloaded, missed; −1 missed when too far

_MAX_ATTEMPTS = 4096
_LANES_PER_ATTEMPT = 4


@part
def _into_ball(samples, size):
    """Move samples radially into the unit ball; how many had to be."""
    moved = 0
    if size == 1:
        for i in range(len(samples)):
            inside = min(max(samples[i], -1.0), 1.0)
            moved += inside != samples[i]
            samples[i] = inside
        return moved
    for first in range(0, len(samples), size):
        total = 0.0
        for i in range(first, first + size):
            total += samples[i] * samples[i]
        norm = np.sqrt(total)
        if norm > 1.0:
            moved += 1
            factor = _SHRINK / norm
            for i in range(first, first + size):
                samples[i] *= factor
    return moved


@part
def _add_noise(law, scale, nu, limit, words, more, key, place, size, samples, rooms):
    """Noise for samples ``place``…; False when its sampler gives up."""
    count = len(samples) // size
    if law == 1:
        draws = rooms[0, : len(samples)]
        cpu_noise.laplace(words, key, 0, place * size, draws)
        for i in range(len(samples)):
            samples[i] += scale * draws[i]
    elif size <= 2:
        radius, cosine, sine = rooms[0, :count], rooms[1, :count], rooms[2, :count]
        cpu_noise.planar_t(words, key, 2 * place, nu, scale, radius, cosine, sine)
        for i in range(count):
            samples[size * i] += cosine[i] * radius[i]
            if size == 2:
                samples[2 * i + 1] += sine[i] * radius[i]
    else:
        draws = rooms[0, : len(samples)]
        cpu_noise.normal(words, key, place * size, rooms[1, : len(samples) // 2], draws)
        gammas = rooms[1, :count]
        if not cpu_noise.gamma(0.5 * nu, more, key, place, gammas):
            return False
        for i in range(count):
            factor = np.sqrt(nu / (2.0 * gammas[i])) * scale
            for j in range(size * i, size * (i + 1)):
                samples[j] += draws[j] * factor
    for i in range(len(samples)):
        samples[i] = min(max(samples[i], -limit), limit)
    return True


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


@part
def words_per_sample(law, size):
    """64-bit words of lane 0."""
    return 2 if law == 2 and size == 1 else size


@part
def _rooms(size, width):
    """Room for so many samples; whole arrays, since loops over slices do not vectorise."""
    found = np.empty(width, dtype=np.int64)
    return np.empty((size, width)), np.empty((6, size, width)), np.empty((5, width)), found


@part
def _to_letters(
    x, shift, codewords, unbasis, step,
    low, extent, strides, keys, indices, is_searched,
    first, letters, missed, missed_points, misses, rooms, rows, found,
):  # fmt: skip
    """The letters of a block of points: (overloaded, misses), −1 misses when one is too far."""
    size, count = x.shape
    moved, steps = rooms[0], rooms[1]
    for i in range(size):
        for b in range(count):
            moved[i, b] = x[i, b] - shift[i]
    if not cpu_cells.coordinates(moved, step, unbasis, steps, rooms[2], rooms[3], rooms[4], rows):
        return 0, np.int64(-1)
    cpu_cells.find(steps, low, extent, strides, keys, indices, found, rows)
    overloaded = 0
    for b in range(count):
        letter = found[b]
        if letter < 0:
            overloaded += 1
            if is_searched:
                letter = cpu_cells.nearest_letter(x, b, codewords)
            else:
                letter = 0
                missed[misses] = first + b
                for i in range(size):
                    missed_points[misses * size + i] = x[i, b]
                misses += 1
        letters[first + b] = np.uint16(letter)
    return overloaded, misses


@kernel(
    *_SOURCE, *_NOISE, read(U64), I64, read(U16), *_TABLE, *_LETTERS, FLAG,
    write(U16), write(I64), write(F64), returns=_RESULT,
)  # fmt: skip
def encode_cells(
    narrow, wide, mean, inverse, is_clipped,
    law, scale, nu, limit, words, key, place,
    more, size, dither, shift, codewords, basis, unbasis, step,
    low, extent, strides, keys, indices, is_searched,
    letters, missed, missed_points,
):  # fmt: skip
    """Ball, noise, dither, letter. Overloaded samples that only a tree can place are listed."""
    count, per_block = len(letters), _BLOCK // size
    samples_room, draws = np.empty(_BLOCK), np.empty((3, _BLOCK))
    x, rooms, rows, found = _rooms(size, min(per_block, count))
    clipped, overloaded, misses = 0, 0, np.int64(0)
    per, per_more = words_per_sample(law, size), 4 if len(more) else 0
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_room[: here * size]
        scaled(narrow, wide, first * size, mean, inverse, samples)
        if is_clipped:
            clipped += _into_ball(samples, size)
        if law:
            mine = words[per * first : per * (first + here)]
            others = more[per_more * first : per_more * (first + here)]
            if not _add_noise(
                law, scale, nu, limit, mine, others, key, place + first, size, samples, draws
            ):
                return clipped, overloaded, np.int64(-2)
        if here != len(found):
            x, rooms, rows, found = _rooms(size, here)
        mine16 = dither[first * size : (first + here) * size]
        cpu_cells.dither(mine16, basis, step, x, rooms[2], rooms[3], rooms[4], rows)
        for i in range(size):
            row = x[i]
            for b in range(here):
                row[b] = samples[b * size + i] + row[b]
        over, misses = _to_letters(
            x, shift, codewords, unbasis, step, low, extent, strides, keys, indices, is_searched,
            first, letters, missed, missed_points, misses, rooms, rows, found,
        )  # fmt: skip
        overloaded += over
        if misses < 0:
            break
    return clipped, overloaded, misses


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
    zeros = cpu_math.zeros_of(word)
    if cpu_math.exponent_bits(word) == 0:
        _enter(extra, _EXTRA_LANE | lane, place // 8)
        zeros = cpu_math.zeros_beyond(_word(extra, place))
    return -cpu_math.log_uniform(word, zeros)


@part
def _draw(
    decay, covering, turns, lengths, chances, sample, at, basis, unbasis, states, k, rooms, rows
):
    """Basis coordinates of one point of exponential noise on the lattice; False to give up.

    A sample's words of one lane lie in one block. Those of the first attempt are in the three
    buffers, at ``at``; later ones are computed.
    """
    size = len(k)
    y, frame, near, room = rooms[0], rooms[1], rooms[2], rooms[3]
    for attempt in range(_MAX_ATTEMPTS):
        lane = _LANES_PER_ATTEMPT * attempt
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
                cosine, sine = cpu_math.circle(turn)
                y[j - 1, 0], y[j, 0] = root * cosine, root * sine
        total = 0.0
        for j in range(size):
            total += y[j, 0] * y[j, 0]
        factor = radius / decay / np.sqrt(total)
        for j in range(size):
            y[j, 0] *= factor
        if not cpu_cells.coordinates(y, 1.0, unbasis, k, frame, near, room, rows):
            continue
        cpu_cells.points(k, basis, 1.0, room)
        long, short = 0.0, 0.0
        for j in range(size):
            long += room[j, 0] * room[j, 0]
            short += y[j, 0] * y[j, 0]
        excess = np.sqrt(long) - np.sqrt(short)
        chance = cpu_math.exp(-decay * (excess + covering))
        word = _word(states[2], sample) if attempt else chances[at]
        if cpu_math.unit(word) <= chance:
            return True
    return False


@part
def _listed(words, at, high, low, guide):
    """The place in the list of points that the 128-bit word at ``at`` draws."""
    upper, lower = words[2 * at], words[2 * at + 1]
    place = np.int64(guide[upper >> np.uint64(48)])
    while place < len(high):
        end = high[place]
        if end > upper or (end == upper and low[place] > lower):
            break
        place += 1
    return place


@kernel(
    *_SOURCE, read(U64), read(U64), read(U64), read(U32), I64, F64, F64, F64,
    read(U64), read(U64), read(U32), read(F64), I64, read(U16),
    read(F64), *_TABLE, *_LETTERS, FLAG, write(U16), write(I64), write(F64), returns=_RESULT,
)  # fmt: skip
def encode_cell_stairs(
    narrow, wide, mean, inverse, is_clipped,
    turns, lengths, chances, key, place, decay, covering, tie,
    high, low_ends, guide, points, size, dither, half, shift, codewords, basis, unbasis, step,
    low, extent, strides, keys, indices, is_searched,
    letters, missed, missed_points,
):  # fmt: skip
    """Ball, dither, nearest point, noise on the lattice, letter. ``half`` is the shift in basis.

    Noise is drawn from the list ``points`` by ``turns``, or by rejection where there is no list.
    """
    count, per_block = len(letters), _BLOCK // size
    samples_room = np.empty(_BLOCK)
    x, rooms, rows, found = _rooms(size, min(per_block, count))
    k, singles, single_rows = np.empty((size, 1)), np.empty((4, size, 1)), np.empty((5, 1))
    states = np.empty((4, 32), dtype=np.uint32)
    for number in range(4):
        states[number] = start_state(key, 0)
    clipped, overloaded, misses = 0, 0, np.int64(0)
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_room[: here * size]
        scaled(narrow, wide, first * size, mean, inverse, samples)
        clipped += _into_ball(samples, size)
        if here != len(found):
            x, rooms, rows, found = _rooms(size, here)
        steps, frame, near, room, d = rooms[1], rooms[2], rooms[3], rooms[4], rooms[5]
        mine16 = dither[first * size : (first + here) * size]
        cpu_cells.dither(mine16, basis, step, d, frame, near, room, rows)
        for i in range(size):
            for b in range(here):
                x[i, b] = (samples[b * size + i] + d[i, b]) - shift[i]
        if not cpu_cells.coordinates(x, step, unbasis, steps, frame, near, room, rows):
            return clipped, overloaded, np.int64(-1)
        for b in range(here):
            if len(points):
                drawn = _listed(turns, first + b, high, low_ends, guide)
                for i in range(size):
                    k[i, 0] = points[drawn * size + i]
            elif not _draw(
                decay, covering, turns, lengths, chances, place + first + b, first + b,
                basis, unbasis, states, k, singles, single_rows,
            ):  # fmt: skip
                return clipped, overloaded, np.int64(-2)
            for i in range(size):
                steps[i, b] = (steps[i, b] + k[i, 0]) + half[i]
        cpu_cells.points(steps, basis, step, x)
        for i in range(size):
            for b in range(here):
                x[i, b] = x[i, b] + tie * d[i, b]
        over, misses = _to_letters(
            x, shift, codewords, unbasis, step, low, extent, strides, keys, indices, is_searched,
            first, letters, missed, missed_points, misses, rooms, rows, found,
        )  # fmt: skip
        overloaded += over
        if misses < 0:
            break
    return clipped, overloaded, misses


@kernel(read(U16), *_PACKING, write(U8))
def pack_letters(letters, alphabet, width, digits, bits, out):
    """Letters as bytes."""
    cpu_pack.pack(letters, alphabet, width, digits, bits, out)


@kernel(
    read(U8), *_PACKING, I64, read(U16), read(F64), read(F64), F64, F64, F64, write(U16),
    write(F64), write(F32), returns=I64,
)  # fmt: skip
def decode_cells(
    body, alphabet, width, digits, bits,
    size, dither, codewords, basis, step, unit, mean,
    letters, wide, narrow,
):  # fmt: skip
    """Letters to entries; codes as ``cpu_line.decode_letters``."""
    if not cpu_pack.unpack(body, alphabet, width, digits, bits, letters):
        return 1
    is_dithered = len(dither) > 0
    count, per_block = len(letters), _BLOCK // size
    room = np.empty(_BLOCK)
    d, rooms, rows, found = _rooms(size, min(per_block, count))
    largest = np.int32(0)
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = room[: here * size]
        for b in range(here):
            letter = np.int64(letters[first + b])
            if letter >= alphabet:
                return 1
            for i in range(size):
                samples[b * size + i] = codewords[letter * size + i]
        if is_dithered:
            if here != len(found):
                d, rooms, rows, found = _rooms(size, here)
            mine16 = dither[first * size : (first + here) * size]
            cpu_cells.dither(mine16, basis, step, d, rooms[0], rooms[1], rooms[2], rows)
            for i in range(size):
                row = d[i]
                for b in range(here):
                    samples[b * size + i] -= row[b]
        largest = max(largest, finish(samples, first * size, unit, mean, wide, narrow))
    return 0 if largest < INFINITE else 2


@kernel(*_SOURCE, *_NOISE, read(U64), I64, F64, write(U8), returns=_RESULT)
def encode_grid(
    narrow, wide, mean, inverse, is_clipped,
    law, scale, nu, limit, words, key, place,
    more, size, grid, out,
):  # fmt: skip
    """Ball, round to the grid inside it, noise, round, 32-bit words."""
    finer = 1.0 / grid  # exact, as the grid is a power of two
    samples_room, rooms = np.empty(_BLOCK), np.empty((3, _BLOCK))
    clipped = 0
    count, per_block = len(out) // (4 * size), _BLOCK // size
    per, per_more = words_per_sample(law, size), 4 if len(more) else 0
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_room[: here * size]
        scaled(narrow, wide, first * size, mean, inverse, samples)
        clipped += _into_ball(samples, size)
        _round_inside(samples, size, grid, finer)
        mine = words[per * first : per * (first + here)]
        others = more[per_more * first : per_more * (first + here)]
        if not _add_noise(
            law, scale, nu, limit, mine, others, key, place + first, size, samples, rooms
        ):
            return clipped, np.int64(0), np.int64(-2)
        into = out[4 * first * size : 4 * (first + here) * size]
        for i in range(here * size):
            level = min(max(np.rint(samples[i] * finer), -_WORD_LIMIT), _WORD_LIMIT)
            word = np.uint32(np.int32(level))
            into[4 * i] = np.uint8(word)
            into[4 * i + 1] = np.uint8(word >> np.uint32(8))
            into[4 * i + 2] = np.uint8(word >> np.uint32(16))
            into[4 * i + 3] = np.uint8(word >> np.uint32(24))
    return clipped, np.int64(0), np.int64(0)
