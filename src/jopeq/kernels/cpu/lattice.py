"""Encode and decode one chunk of samples on A2, D4 or E8; letters are packed apart.

Blocks of samples are (L, B) arrays, one row a coordinate: every loop runs along samples and
vectorises. L tells the lattice: 2 is A2, 4 is D4, 8 is E8. Geometry repeats ``lattices`` and
``codebook``, rounding by rounding.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from jopeq.kernels.cpu import pack
from jopeq.kernels.cpu.native import (
    F32,
    F64,
    FLAG,
    I64,
    U8,
    U16,
    as_bits,
    as_float,
    kernel,
    part,
    read,
    write,
)
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
    scale_samples,
    words_per_sample,
)
from jopeq.lattice.codebook import LatticeCodebook

_BLOCK = 512  # entries
_TABLE = (read(F64), read(F64), read(F64), read(F64), F64)  # shift, codewords, basis, inverse, step
_LETTERS = (read(F64), read(F64), read(I64), read(I64), read(I64))  # box, keys, indices
_RESULT = types.UniTuple(I64, 3)  # clipped, overloaded, missed (or TOO_FAR, or GAVE_UP)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROOT3 = math.sqrt(3)
_FAR = (1023 + 50) << 52  # the bits of 2⁵⁰


@part
def _checkerboard(x, shift, out, distances, rows):
    """The nearest points of D_n + shift and their squared distances; ``rows`` holds three buffers.

    Conditions would become branches, which do not vectorise: integer max and min replace them.
    """
    whole = rows.view(np.int64)
    worst, place, total = whole[0], whole[1], rows[2]
    size, count = x.shape
    for b in range(count):
        worst[b], place[b], total[b], distances[b] = 0, size, 0.0, 0.0
    for i in range(size):
        row, into = x[i], out[i]
        for b in range(count):
            moved = row[b] - shift
            rounded = np.floor(moved + 0.5)
            worst[b] = max(worst[b], _magnitude(moved - rounded))
            total[b] += rounded
            into[b] = rounded
    for i in range(size):
        row, into = x[i], out[i]
        for b in range(count):
            error = _magnitude((row[b] - shift) - into[b])
            place[b] = min(place[b], i if error == worst[b] else size)
    for b in range(count):  # an odd sum moves the worst-rounded coordinate the other way
        half = 0.5 * total[b]
        place[b] |= -np.int64(np.floor(half) == half)
    for i in range(size):
        row, into = x[i], out[i]
        for b in range(count):
            way = 1.0 if (row[b] - shift) - into[b] >= 0.0 else -1.0
            point = (into[b] + (way if place[b] == i else 0.0)) + shift
            into[b] = point
            error = row[b] - point
            distances[b] += error * error


@part
def _nearest(x, out, spare, rows):
    """The nearest points of D4 or E8, all in the frame."""
    size, count = x.shape
    first, second = rows[3], rows[4]
    _checkerboard(x, 0.0, out, first, rows)
    if size == 4:
        return
    _checkerboard(x, 0.5, spare, second, rows)
    for i in range(size):
        into, other = out[i], spare[i]
        for b in range(count):
            kept = np.uint64(-np.int64(first[b] <= second[b]))
            into[b] = as_float((as_bits(into[b]) & kept) | (as_bits(other[b]) & ~kept))


@part
def _axis(size, i):
    """Length of a frame axis."""
    return _ROOT3 if size == 2 and i == 1 else 1.0


@part
def _times(x, matrix, out):
    """Rows times a matrix: exact here, so that the order of the sums does not matter."""
    size, count = x.shape
    for j in range(size):
        into = out[j]
        for b in range(count):
            into[b] = 0.0
        for i in range(size):
            factor = matrix[i * size + j]
            if factor != 0.0:
                row = x[i]
                for b in range(count):
                    into[b] += row[b] * factor


@part
def _magnitude(value):
    """An integer that grows with |value|, since the largest of integers is found in vectors."""
    return np.int64(as_bits(value) & np.uint64(0x7FFFFFFFFFFFFFFF))


@part
def _nearest_planar(x, y):
    """``nearest`` on A2, for one point."""
    x1, y1 = np.floor(x + 0.5), np.floor(y + 0.5)
    x2, y2 = np.floor(x) + 0.5, np.floor(y) + 0.5
    first = (x - x1) * (x - x1) + (y - y1) * (y - y1) * 3.0
    second = (x - x2) * (x - x2) + (y - y2) * (y - y2) * 3.0
    is_first = first <= second
    return x1 if is_first else x2, y1 if is_first else y2


@part
def _planar_dither(words, step, across, up):
    """``cell_dither`` on A2, without leaving the registers."""
    for b in range(len(across)):
        u = (np.float64(np.int32(words[2 * b])) + 0.5) * 2.0**-16
        v = (np.float64(np.int32(words[2 * b + 1])) + 0.5) * 2.0**-16
        x, y = u + v * 0.5, v * 0.5
        x_near, y_near = _nearest_planar(x, y)
        across[b] = (x - x_near) * step
        up[b] = (y - y_near) * _ROOT3 * step


@part
def _planar_coordinates(x, y, step, first, second):
    """``coordinates`` on A2; a magnitude that tells whether all are near enough."""
    across, up = 1.0 / step, 1.0 / (_ROOT3 * step)
    farthest = np.int64(0)
    for b in range(len(x)):
        u, v = x[b] * across, y[b] * up
        farthest = max(farthest, max(_magnitude(u), _magnitude(v)))
        u_near, v_near = _nearest_planar(u, v)
        first[b] = u_near - v_near
        second[b] = v_near * 2.0
    return farthest


@part
def cell_dither(words, basis, step, out, frame, near, spare, rows):
    """The dither in space, from rows of words one sample after the other."""
    size, count = out.shape
    if size == 2:
        _planar_dither(words, step, out[0], out[1])
        return
    for i in range(size):
        into = spare[i]
        for b in range(count):
            into[b] = (np.float64(np.int32(words[b * size + i])) + 0.5) * 2.0**-16
    _times(spare, basis, frame)
    _nearest(frame, near, spare, rows)
    for i in range(size):
        into, row, point, axis = out[i], frame[i], near[i], _axis(size, i)
        for b in range(count):
            into[b] = (row[b] - point[b]) * axis * step


@part
def coordinates(x, step, inverse, out, frame, near, spare, rows):
    """Basis coordinates of the nearest lattice points; False when one is too far to be exact."""
    size, count = x.shape
    if size == 2:
        return _planar_coordinates(x[0], x[1], step, out[0], out[1]) < _FAR
    farthest = np.int64(0)
    for i in range(size):
        row, into, factor = x[i], frame[i], 1.0 / (_axis(size, i) * step)
        for b in range(count):
            into[b] = row[b] * factor
            farthest = max(farthest, _magnitude(into[b]))
    if not farthest < _FAR:
        return False
    _nearest(frame, near, spare, rows)
    _times(near, inverse, out)
    for i in range(size):
        into = out[i]
        for b in range(count):
            into[b] = np.rint(into[b])
    return True


@part
def _slot(key, mask):
    return np.int64((np.uint64(key) * _GOLDEN) >> np.uint64(32)) & mask


@part
def find_letters(steps, low, extent, strides, keys, indices, found, rows):
    """The letters with these basis coordinates, −1 where there is none."""
    size, count = steps.shape
    places, inside = rows[0], rows.view(np.int64)[1]
    for b in range(count):
        places[b], inside[b] = 0.0, 1
    for i in range(size):
        row, least, most, stride = steps[i], low[i], extent[i], np.float64(strides[i])
        for b in range(count):
            offset = row[b] - least
            inside[b] &= np.int64((offset >= 0.0) & (offset < most))
            places[b] += offset * stride  # below 2⁵³ wherever it is used
    mask = len(keys) - 1
    for b in range(count):
        letter = np.int64(-1)
        if inside[b]:
            key = np.int64(places[b])
            slot = _slot(key, mask)
            while keys[slot] >= 0:
                if keys[slot] == key:
                    letter = indices[slot]
                    break
                slot = (slot + 1) & mask
        found[b] = letter


@part
def nearest_letter(x, b, codewords):
    """The letter nearest to sample b, by search; the first of equals."""
    size = len(x)
    best, least = 0, np.inf
    for letter in range(len(codewords) // size):
        distance = 0.0
        for i in range(size):
            error = x[i, b] - codewords[letter * size + i]
            distance += error * error
        if distance < least:
            best, least = letter, distance
    return best


@kernel(read(I64), write(I64), write(I64))
def _insert(wanted, keys, indices):
    mask = len(keys) - 1
    for index in range(len(wanted)):
        slot = _slot(wanted[index], mask)
        while keys[slot] >= 0:
            slot = (slot + 1) & mask
        keys[slot] = wanted[index]
        indices[slot] = index


class LetterTable:
    """A codebook as arrays: a hash table from coordinates to letters, and the points."""

    def __init__(self, codebook: LatticeCodebook) -> None:
        lattice, geometry = codebook.lattice, codebook.lattice.geometry
        low, extent, strides = codebook.box
        keys = np.full(1 << (2 * codebook.letters - 1).bit_length(), -1, dtype=np.int64)
        indices = np.zeros_like(keys)
        _insert((codebook.coordinates - low) @ strides, keys, indices)
        self.codebook = codebook
        self.codewords = _flat(codebook.codewords)
        self.basis = _flat(geometry.basis)
        self._space = (_flat(lattice.points(codebook.shift)), self.codewords, self.basis)
        self._inverse = _flat(geometry.inverse)
        self._box = (low.astype(np.float64), extent.astype(np.float64), strides.astype(np.int64))
        self._letters = (keys, indices)

    @property
    def arguments(self) -> tuple[object, ...]:
        """What an encoding kernel takes."""
        step = self.codebook.lattice.step
        found = (*self._box, *self._letters, self.codebook.is_searched)
        return (*self._space, self._inverse, step, *found)


def _flat(array: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(array, dtype=np.float64).reshape(-1)


# Chunks


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
    if not coordinates(moved, step, unbasis, steps, buffers[2], buffers[3], buffers[4], rows):
        return 0, np.int64(TOO_FAR)
    find_letters(steps, low, extent, strides, keys, indices, found, rows)
    overloaded = 0
    for b in range(count):
        letter = found[b]
        if letter < 0:
            overloaded += 1
            if is_searched:
                letter = nearest_letter(x, b, codewords)
            else:
                letter = 0
                missed[misses] = first + b
                for i in range(size):
                    missed_points[misses * size + i] = x[i, b]
                misses += 1
        letters[first + b] = np.uint16(letter)
    return overloaded, misses


@kernel(
    *SOURCE, FLAG, *NOISE, I64, read(U16), *_TABLE, *_LETTERS, FLAG,
    write(U16), write(I64), write(F64), returns=_RESULT,
)  # fmt: skip
def encode_cells(
    narrow, wide, mean, inverse, is_clipped,
    law, scale, nu, limit, words, key, place, more,
    size, dither, shift, codewords, basis, unbasis, step,
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
        scale_samples(narrow, wide, first * size, mean, inverse, samples)
        if is_clipped:
            clipped += into_ball(samples, size)
        if law != NO_NOISE:
            mine = slice(per * first, per * (first + here))
            others = more[per_more * first : per_more * (first + here)]
            if not add_noise(
                law, scale, nu, limit, words[mine], others, key, place + first, size,
                samples, draws,
            ):  # fmt: skip
                return clipped, overloaded, np.int64(GAVE_UP)
        if here != len(found):
            x, buffers, rows, found = _buffers(size, here)
        mine16 = dither[first * size : (first + here) * size]
        cell_dither(mine16, basis, step, x, buffers[2], buffers[3], buffers[4], rows)
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


@kernel(read(U16), *pack.PACKING, write(U8))
def pack_letters(letters, alphabet, width, digits, bits, out):
    """Letters as bytes."""
    pack.pack(letters, alphabet, width, digits, bits, out)


@kernel(
    read(U8), *pack.PACKING, I64, read(U16), read(F64), read(F64), F64, F64, F64, write(U16),
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
            cell_dither(mine16, basis, step, d, buffers[0], buffers[1], buffers[2], rows)
            for i in range(size):
                row = d[i]
                for b in range(here):
                    samples[b * size + i] -= row[b]
        largest = max(largest, finish(samples, first * size, unit, mean, wide, narrow))
    return 0 if largest < INFINITE else 2
