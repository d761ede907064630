"""Encode and decode one chunk of samples on A2.

Loops run along samples of a block and vectorise. Geometry repeats ``lattices`` and ``codebook``,
rounding by rounding.
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
    kernel,
    part,
    read,
    write,
)
from jopeq.kernels.cpu.samples import (
    INFINITE,
    NO_NOISE,
    NOISE,
    SOURCE,
    add_noise,
    finish,
    into_ball,
    scale_samples,
    words_per_sample,
)
from jopeq.lattice.codebook import LatticeCodebook

_BLOCK = 512  # entries
_RESULT = types.UniTuple(I64, 3)  # clipped, overloaded, and 1 where a sample is too far
_ROOT3 = math.sqrt(3)
_FAR = (1023 + 50) << 52  # the bits of 2⁵⁰


@part
def _nearest(x, y):
    """``Geometry.nearest`` of one point, in the frame."""
    first_x, first_y = np.floor(x + 0.5), np.floor(y + 0.5)
    across, up = x - first_x, y - first_y
    half = 0.5 if abs(up) * 3.0 + abs(across) > 1.0 else 0.0
    return first_x + (-half if across < 0.0 else half), first_y + (-half if up < 0.0 else half)


@part
def cell_dither(words, step, across, up):
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
def _nearest_letter(x, y, codewords):
    """The letter nearest to a point, by search; the first of equals."""
    best, least = 0, np.inf
    for letter in range(len(codewords) // 2):
        across, up = x - codewords[2 * letter], y - codewords[2 * letter + 1]
        distance = across * across + up * up
        if distance < least:
            best, least = letter, distance
    return best


class LetterTable:
    """A codebook as arrays: its points, and which letter lies at each place of their box."""

    def __init__(self, codebook: LatticeCodebook) -> None:
        low, extent, strides = codebook.box
        letters = np.full(int(extent.prod()), -1, dtype=np.int64)
        letters[(codebook.coordinates - low) @ strides] = np.arange(codebook.letters)
        shift = codebook.lattice.points(codebook.shift)
        self.codewords: NDArray[np.float64] = np.ascontiguousarray(codebook.codewords).reshape(-1)
        self.step = codebook.lattice.step
        self.arguments = (*map(float, (*shift, *low, *extent)), letters, self.codewords, self.step)


@kernel(
    *SOURCE, FLAG, *NOISE, read(U16), F64, F64, F64, F64, F64, F64, read(I64), read(F64), F64,
    *pack.PACKING, write(U16), write(U8), returns=_RESULT,
)  # fmt: skip
def encode_cells(
    narrow, wide, mean, inverse, is_clipped,
    law, scale, nu, limit, words, key, place, dither,
    shift_x, shift_y, low_a, low_b, extent_a, extent_b, table, codewords, step,
    alphabet, width, digits, bits, letters, out,
):  # fmt: skip
    """Move into the ball, add noise and dither, find letters, pack: (clipped, overloaded, far)."""
    count, per_block = len(letters), _BLOCK // 2
    samples_buffer, draws = np.empty(_BLOCK), np.empty((3, _BLOCK))
    across, up, keys = np.empty(per_block), np.empty(per_block), np.empty(per_block, np.int32)
    box = (shift_x, shift_y, low_a, low_b, extent_a, extent_b)
    clipped, overloaded = 0, 0
    per = words_per_sample(law, 2)
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples = samples_buffer[: 2 * here]
        scale_samples(narrow, wide, 2 * first, mean, inverse, samples)
        if is_clipped:
            clipped += into_ball(samples)
        if law != NO_NOISE:
            mine = words[per * first : per * (first + here)]
            add_noise(law, scale, nu, limit, mine, key, place + first, 2, samples, draws)
        x, y = across[:here], up[:here]
        cell_dither(dither[2 * first : 2 * (first + here)], step, x, y)
        for b in range(here):
            x[b] += samples[2 * b]
            y[b] += samples[2 * b + 1]
        if not _find_keys(x, y, step, box, keys):
            return clipped, overloaded, 1
        for b in range(here):
            letter = table[keys[b]] if keys[b] >= 0 else np.int64(-1)
            if letter < 0:
                overloaded += 1
                letter = _nearest_letter(x[b], y[b], codewords)
            letters[first + b] = np.uint16(letter)
    pack.pack(letters, alphabet, width, digits, bits, out)
    return clipped, overloaded, 0


@kernel(
    read(U8), *pack.PACKING, read(U16), read(F64), F64, F64, F64, write(U16), write(F64),
    write(F32), returns=I64,
)  # fmt: skip
def decode_cells(
    body, alphabet, width, digits, bits,
    dither, codewords, step, unit, mean, letters, wide, narrow,
):  # fmt: skip
    """Letters to entries; codes as ``line.decode_letters``."""
    if not pack.unpack(body, alphabet, width, digits, bits, letters):
        return 1
    count, per_block = len(letters), _BLOCK // 2
    buffer, across, up = np.empty(_BLOCK), np.empty(per_block), np.empty(per_block)
    largest = np.int32(0)
    for first in range(0, count, per_block):
        here = min(per_block, count - first)
        samples, x, y = buffer[: 2 * here], across[:here], up[:here]
        cell_dither(dither[2 * first : 2 * (first + here)], step, x, y)
        for b in range(here):
            letter = np.int64(letters[first + b])
            if letter >= alphabet:
                return 1
            samples[2 * b] = codewords[2 * letter] - x[b]
            samples[2 * b + 1] = codewords[2 * letter + 1] - y[b]
        largest = max(largest, finish(samples, 2 * first, unit, mean, wide, narrow))
    return 0 if largest < INFINITE else 2
