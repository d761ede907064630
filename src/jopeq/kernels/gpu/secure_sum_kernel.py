# mypy: ignore-errors
# ruff: noqa: N803, N806, RUF005 (Triton spells compile-time numbers so; its tuples add)
"""The Triton kernels of a secure sum: key stream, stages of the Hadamard transform, draws."""

from __future__ import annotations

from jopeq.kernels.gpu import chacha
from jopeq.kernels.gpu.jit import jit, tl


@jit(do_not_specialize=["first", "blocks", *(f"k{i}" for i in range(8))])
def fill(
    out_ptr, first: tl.int64, blocks: tl.int64,
    k0: tl.int32, k1: tl.int32, k2: tl.int32, k3: tl.int32, k4: tl.int32, k5: tl.int32,
    k6: tl.int32, k7: tl.int32, LANE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Blocks of key stream as 32-bit words."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = (
        k0.to(tl.uint32, bitcast=True), k1.to(tl.uint32, bitcast=True),
        k2.to(tl.uint32, bitcast=True), k3.to(tl.uint32, bitcast=True),
        k4.to(tl.uint32, bitcast=True), k5.to(tl.uint32, bitcast=True),
        k6.to(tl.uint32, bitcast=True), k7.to(tl.uint32, bitcast=True),
    )  # fmt: skip
    words = chacha.block(key, (first + at).to(tl.uint32), LANE)
    for k in tl.static_range(16):
        tl.store(out_ptr + at * 16 + k, words[k].to(tl.int32, bitcast=True), mask=at < blocks)


@jit(do_not_specialize=["count", "width", "root"])
def stages(
    x_ptr, signs_ptr, count: tl.int64, width: tl.int64, root: tl.float64, LOG: tl.constexpr,
    IS_FIRST: tl.constexpr, IS_LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``LOG`` stages from ``width`` on; signs before the first, division by ``root`` at the end."""
    WAYS: tl.constexpr = 1 << LOG
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_there = lane < count // WAYS
    start = lane // width * (WAYS * width) + lane % width
    values = ()
    for j in tl.static_range(WAYS):
        at = start + j * width
        x = tl.load(x_ptr + at, mask=is_there, other=0.0)
        if IS_FIRST:
            byte = tl.load(signs_ptr + at // 8, mask=is_there, other=0).to(tl.int64)
            x = tl.where((byte >> (at % 8)) & 1 == 1, -x, x)
        values = values + (x,)
    for s in tl.static_range(LOG):
        mixed = ()
        for j in tl.static_range(WAYS):
            if (j >> s) % 2 == 1:
                mixed = mixed + (values[j - (1 << s)] - values[j],)
            else:
                mixed = mixed + (values[j] + values[j + (1 << s)],)
        values = mixed
    for j in tl.static_range(WAYS):
        x = values[j]
        if IS_LAST:
            x = x / root
        tl.store(x_ptr + start + j * width, x, mask=is_there)


@jit(do_not_specialize=["count", "bound", "columns", "reach", "mask"])
def draw(
    x_ptr, bytes_ptr, words_ptr, table_ptr, out_ptr, squares_ptr, count: tl.int64,
    bound: tl.float64, columns: tl.int32, reach: tl.int64, mask: tl.int64,
    DEPTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Places on the grid and the share; Σ Y² of each program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_there = at < count
    x = tl.load(x_ptr + at, mask=is_there, other=0.0)
    byte = tl.load(bytes_ptr + at, mask=is_there, other=0).to(tl.float64)
    place = tl.floor(x + (byte + 0.5) * 0.00390625)
    y = tl.minimum(tl.maximum(place, -bound), bound).to(tl.int64)
    y = tl.where(is_there, y, 0)
    word = tl.load(words_ptr + at, mask=is_there, other=0).to(tl.uint64, bitcast=True)
    row = (y & 255) << DEPTH
    found = (y & 0).to(tl.int32)
    for k in tl.static_range(DEPTH):
        tried = found + (1 << (DEPTH - 1 - k))
        threshold = tl.load(table_ptr + row + tried - 1).to(tl.uint64, bitcast=True)
        found = tl.where(threshold <= word, tried, found)
    letter = (y >> 8) - reach + tl.minimum(found, columns)
    tl.store(out_ptr + at, (letter & mask).to(out_ptr.dtype.element_ty), mask=is_there)
    tl.store(squares_ptr + tl.program_id(0), tl.sum(y * y, axis=0))
