"""Stages of the Hadamard transform, of width 1, 2, 4, …, as ``wire.rotation`` adds them up."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from jopeq.kernels.cpu.native import part, vector_at

NEAR = 1 << 10  # entries that fit the first-level cache


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
def first_stages(values):
    """The stages of width 1 to 8."""
    for start in range(0, len(values), 16):
        _sixteen(values, start)


@part
def pairs(values, width, low, high):
    """The stage of ``width``, over columns low…high."""
    for start in range(0, len(values), 2 * width):
        a, b = values[start : start + width], values[start + width : start + 2 * width]
        for j in range(low, high):
            a[j], b[j] = a[j] + b[j], a[j] - b[j]


@part
def fours(values, width, low, high):
    """Two stages, from ``width`` on."""
    for start in range(0, len(values), 4 * width):
        here = values[start : start + 4 * width]
        a, b = here[:width], here[width : 2 * width]
        c, d = here[2 * width : 3 * width], here[3 * width :]
        for j in range(low, high):
            p, q, r, s = a[j] + b[j], a[j] - b[j], c[j] + d[j], c[j] - d[j]
            a[j], b[j], c[j], d[j] = p + r, q + s, p - r, q - s


@part
def eights(values, width, low, high):
    """Three stages, from ``width`` on, over columns low…high, which are multiples of 4."""
    for start in range(0, len(values), 8 * width):
        for j in range(start + low, start + high, 4):
            _eight_rows(values, j, width)


@part
def stages(values, width):
    """The stages from ``width`` on."""
    while 8 * width <= len(values):
        eights(values, width, 0, width)
        width *= 8
    if 4 * width == len(values):
        fours(values, width, 0, width)
    elif 2 * width == len(values):
        pairs(values, width, 0, width)


@part
def transform(values):
    """All stages of at least 16 entries, near ones first piece by piece; divided by the root."""
    near = min(len(values), NEAR)
    for start in range(0, len(values), near):
        here = values[start : start + near]
        first_stages(here)
        stages(here, 16)
    stages(values, near)
    root = np.sqrt(np.float64(len(values)))
    for i in range(len(values)):
        values[i] /= root
