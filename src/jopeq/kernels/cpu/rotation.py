"""Hadamard transforms and the rotation of private sums, in threads: the plain path's floats.

Stages of width 1, 2, 4, … go block by block in the second-level cache, then column by column.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from jopeq.kernels.cpu.native import F32, F64, I64, U8, kernel, part, read, splat, vector_at, write
from jopeq.kernels.recipe import Layers
from jopeq.kernels.threads import in_threads
from jopeq.random.streams import SharedStream
from jopeq.wire.entries import READ_CHUNK
from jopeq.wire.rotation import SIGN_LANE, rotate_block, unrotate_block

Array = NDArray[np.float64]

_LEAST = 16  # entries that are worth a kernel
_NEAR = 1 << 10  # entries that fit the first-level cache
_LOCAL = 1 << 15  # entries that fit the second-level cache
_COLUMNS = 1 << 11  # entries of columns that fit the first-level cache
_SOURCE = (read(F32), read(F64), read(I64))
_NONE = np.empty(0)
_FOUR = ir.VectorType(ir.DoubleType(), 4)


def _mix(builder: Any, vectors: list[Any]) -> list[Any]:
    """All stages between vectors."""
    width = 1
    while width < len(vectors):
        vectors = [
            builder.fsub(vectors[i - width], x)
            if i & width
            else builder.fadd(x, vectors[i + width])
            for i, x in enumerate(vectors)
        ]
        width *= 2
    return vectors


@intrinsic
def _sixteen(typing: Any, values: Any, start: Any) -> Any:
    """The stages of width 1 to 8 of sixteen entries, in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, first = arguments
        base = vector_at(context, builder, signature.args[0], array, first, _FOUR)
        places = [builder.gep(base, [ir.Constant(ir.IntType(64), i)]) for i in range(4)]
        found = [builder.load(place, align=8) for place in places]
        for order, signs in (((1, 0, 3, 2), (1, -1, 1, -1)), ((2, 3, 0, 1), (1, 1, -1, -1))):
            turn = ir.Constant(ir.VectorType(ir.IntType(32), 4), order)
            sign = ir.Constant(_FOUR, [float(one) for one in signs])
            found = [
                builder.fadd(builder.shuffle_vector(x, x, turn), builder.fmul(x, sign))
                for x in found
            ]
        for x, place in zip(_mix(builder, found), places, strict=True):
            builder.store(x, place, align=8)
        return context.get_dummy_value()

    return types.void(values, start), generate


@intrinsic
def _eight_rows(typing: Any, values: Any, start: Any, width: Any) -> Any:
    """Three stages of eight times four entries, ``width`` apart, in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, first, apart = arguments
        starts = [
            builder.add(first, builder.mul(apart, ir.Constant(apart.type, i))) for i in range(8)
        ]
        kind = signature.args[0]
        places = [vector_at(context, builder, kind, array, place, _FOUR) for place in starts]
        found = [builder.load(place, align=8) for place in places]
        for x, place in zip(_mix(builder, found), places, strict=True):
            builder.store(x, place, align=8)
        return context.get_dummy_value()

    return types.void(values, start, width), generate


@part
def _first_stages(values):
    """The stages of width 1 to 8."""
    for start in range(0, len(values), 16):
        _sixteen(values, start)


@part
def _pairs(values, width):
    """The stage of ``width``."""
    for start in range(0, len(values), 2 * width):
        a, b = values[start : start + width], values[start + width : start + 2 * width]
        for j in range(width):
            a[j], b[j] = a[j] + b[j], a[j] - b[j]


@part
def _fours(values, width):
    """Two stages, from ``width`` on."""
    for start in range(0, len(values), 4 * width):
        here = values[start : start + 4 * width]
        a, b = here[:width], here[width : 2 * width]
        c, d = here[2 * width : 3 * width], here[3 * width :]
        for j in range(width):
            p, q, r, s = a[j] + b[j], a[j] - b[j], c[j] + d[j], c[j] - d[j]
            a[j], b[j], c[j], d[j] = p + r, q + s, p - r, q - s


@part
def _stages(values, width):
    """The stages from ``width`` on, a multiple of 4."""
    while 8 * width <= len(values):
        for start in range(0, len(values), 8 * width):
            for j in range(start, start + width, 4):
                _eight_rows(values, j, width)
        width *= 8
    if 4 * width == len(values):
        _fours(values, width)
    elif 2 * width == len(values):
        _pairs(values, width)


@part
def transform(values):
    """All stages of at least 16 entries, near ones first piece by piece; divided by the root."""
    near = min(len(values), _NEAR)
    for start in range(0, len(values), near):
        here = values[start : start + near]
        _first_stages(here)
        _stages(here, 16)
    _stages(values, near)
    root = np.sqrt(np.float64(len(values)))
    for i in range(len(values)):
        values[i] /= root


# The rotation


@intrinsic
def _eight_signed(
    typing: Any, source: Any, factor: Any, signs: Any, target: Any, place: Any
) -> Any:
    """factor·source with the sign of eight bits, of eight entries from ``place`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        origin, by, bits, to, start = arguments
        kind = signature.args[0].dtype
        eight, whole = ir.VectorType(ir.DoubleType(), 8), ir.VectorType(ir.IntType(64), 8)
        found = {F32: ir.VectorType(ir.FloatType(), 8), F64: eight, I64: whole}[kind]
        begin = vector_at(context, builder, signature.args[0], origin, start, found)
        entries = builder.load(begin, align=kind.bitwidth // 8)
        if kind == F32:
            entries = builder.fpext(entries, eight)
        elif kind == I64:
            entries = builder.sitofp(entries, eight)
        values = builder.bitcast(builder.fmul(entries, splat(builder, by, eight)), whole)
        upper = builder.shl(splat(builder, bits, whole), whole(list(range(63, 55, -1))))
        flipped = builder.xor(values, builder.and_(upper, whole([1 << 63] * 8)))
        end = vector_at(context, builder, signature.args[3], to, start, eight)
        builder.store(builder.bitcast(flipped, eight), end, align=8)
        return context.get_dummy_value()

    return types.void(source, factor, signs, target, place), generate


@part
def _sign(source, factor, signs, values):
    """factor·source, times −1 where a bit is set."""
    for i in range(len(signs)):
        _eight_signed(source, factor, np.uint64(signs[i]), values, 8 * i)


@kernel(_SOURCE, F64, read(U8), I64, write(F64))
def _transform_local(source, factor, signs, local, values):
    """The stages within blocks of ``local`` entries, of factor·source with its signs.

    Without a source, of ``values`` as they are.
    """
    near = min(local, _NEAR)
    for block in range(0, len(values), local):
        for first in range(block, block + local, near):
            here, bits = values[first : first + near], signs[first // 8 : (first + near) // 8]
            if len(source):
                _sign(source[first : first + near], factor, bits, here)
            _first_stages(here)
            _stages(here, 16)
        _stages(values[block : block + local], near)


@kernel(write(F64), I64, I64, I64, I64, F64)
def _transform_across(values, local, columns, low, high, root):
    """All stages from width ``local`` on and the division, for columns low…high of every block.

    Some columns at a time are copied: rows whose distance is a power of two share few places of a
    cache.
    """
    rows = len(values) // local
    buffer = np.empty(rows * columns)
    for first in range(low, high, columns):
        for row in range(rows):
            start = row * local + first
            mine, theirs = buffer[row * columns : (row + 1) * columns], values[start:]
            for j in range(columns):
                mine[j] = theirs[j]
        _stages(buffer, columns)
        for row in range(rows):
            start = row * local + first
            mine, theirs = buffer[row * columns : (row + 1) * columns], values[start:]
            for j in range(columns):
                theirs[j] = mine[j] / root


@kernel(read(U8), write(F64))
def _flip(signs, values):
    _sign(values, 1.0, signs, values)


@kernel(_SOURCE, F64, write(F64))
def _scale(source, factor, values):
    for i in range(len(values)):
        values[i] = np.float64(source[i]) * factor


def _transform(
    source: NDArray[Any], factor: float, signs: NDArray[np.uint8], values: Array
) -> None:
    """The Hadamard transform of factor·source with its signs; of ``values`` without a source."""
    size = len(values)
    local, root = min(size, _LOCAL), math.sqrt(size)
    columns = min(local, max(8, _COLUMNS * local // size))

    def near(begin: int, end: int) -> None:
        here = signs[begin // 8 : end // 8]
        _transform_local(source[begin:end], factor, here, local, values[begin:end])

    def across(begin: int, end: int) -> None:
        _transform_across(values, local, columns, begin, end, root)

    in_threads(near, size, local, 1)
    in_threads(across, local, columns, size // local)


def _signs(shared: SharedStream, start: int, size: int) -> NDArray[np.uint8]:
    return shared.read(lane=SIGN_LANE, start=start // 8, count=size // 8)


def rotate(
    source: NDArray[Any], factor: float, layers: Layers, shared: SharedStream, turned: Array
) -> None:
    """factor·source into ``turned``, each layer by ``rotate_block``; both may be one array."""
    (_, size, _), *_ = layers
    rest = size if size >= _LEAST else 0  # the first layer reads the source itself

    def scale(begin: int, end: int) -> None:
        _scale(source[rest:][begin:end], factor, turned[rest:][begin:end])

    in_threads(scale, len(turned) - rest, READ_CHUNK, 1)
    for first, last, start in layers:
        here = turned[first:last]
        if not rest:
            here[:] = rotate_block(here, start, shared)
        elif first == 0:
            _transform(source[:size], factor, _signs(shared, start, size), here)
        else:
            _transform(here, 1.0, _signs(shared, start, size), here)


def unrotate(values: Array, start: int, shared: SharedStream) -> None:
    """``unrotate_block``, in place."""
    if len(values) < _LEAST:
        unrotate_block(values, start, shared)
        return
    signs = _signs(shared, start, len(values))
    _transform(_NONE, 1.0, signs, values)

    def flip(begin: int, end: int) -> None:
        _flip(signs[begin // 8 : end // 8], values[begin:end])

    in_threads(flip, len(values), _LOCAL, 1)
