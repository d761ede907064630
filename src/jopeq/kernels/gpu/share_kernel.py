# mypy: ignore-errors
# ruff: noqa: N803, N806 (Triton spells compile-time numbers so)
"""The Triton kernels of a secure sum: key stream, stages of the Hadamard transform, draws."""

from __future__ import annotations

from jopeq.kernels.gpu import rows
from jopeq.kernels.gpu.jit import jit, tl


@jit(do_not_specialize=["first", "blocks", *(f"k{i}" for i in range(8))])
def fill(
    out_ptr, first: tl.int64, blocks: tl.int64,
    k0: tl.int32, k1: tl.int32, k2: tl.int32, k3: tl.int32, k4: tl.int32, k5: tl.int32,
    k6: tl.int32, k7: tl.int32, LANE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Blocks of key stream as 64-bit words, side by side so that stores fill whole lines."""
    program = tl.program_id(0).to(tl.int64)
    at = program * (8 * BLOCK) + tl.arange(0, 8 * BLOCK)
    counter = first + program * BLOCK + tl.arange(0, BLOCK)
    key = rows.key_of(k0, k1, k2, k3, k4, k5, k6, k7)
    word = _words(rows.block(key, counter.to(tl.uint32), LANE), 8 * BLOCK)
    tl.store(out_ptr + at, word.to(tl.int64, bitcast=True), mask=at < 8 * blocks)


@jit
def _mixed(cube, N: tl.constexpr, AXIS: tl.constexpr):
    """One stage along an axis of a cube: a + b on the left of it, a − b on the right."""
    bits = cube.to(tl.int64, bitcast=True)
    other = (bits ^ tl.xor_sum(bits, AXIS, keep_dims=True)).to(tl.float64, bitcast=True)
    is_right = tl.reshape(tl.arange(0, 2), [1] * AXIS + [2] + [1] * (N - 1 - AXIS)) == 1
    return tl.where(is_right, other - cube, cube + other)


@jit(do_not_specialize=["factor", "root"])
def stages(
    x_ptr, out_ptr, signs_ptr, width, factor: tl.float64, root: tl.float64, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, IS_FIRST: tl.constexpr, IS_LAST: tl.constexpr,
):  # fmt: skip
    """Stages over a tile of 2^ROWS pieces, ``width`` apart, of 2^COLUMNS entries each.

    They are those of the rows, from ``width`` on. The first call (width = 2^COLUMNS) does those of
    the columns before them, after factor and signs; the last divides by ``root``.
    """
    N: tl.constexpr = ROWS + COLUMNS
    tile = tl.program_id(0).to(tl.int64)
    beside = width >> COLUMNS
    base = tile // beside * (width.to(tl.int64) << ROWS) + (tile % beside << COLUMNS)
    rows = tl.arange(0, 1 << ROWS).to(tl.int64)[:, None] * width
    at = base + rows + tl.arange(0, 1 << COLUMNS)[None, :]
    x = tl.load(x_ptr + at).to(tl.float64)
    if IS_FIRST:
        byte = tl.load(signs_ptr + at // 8).to(tl.int32)
        x = x * factor
        x = tl.where((byte >> (at % 8).to(tl.int32)) & 1 == 1, -x, x)
    cube = tl.reshape(x, [2] * N)
    for i in tl.static_range(0 if IS_FIRST else COLUMNS, N):
        cube = _mixed(cube, N, N - 1 - i)
    x = tl.reshape(cube, (1 << ROWS, 1 << COLUMNS))
    if IS_LAST:
        x = x / root
    tl.store(out_ptr + at, x)


@jit
def _words(words, BLOCK: tl.constexpr):
    """The 64-bit words of blocks of key stream, one after the other."""
    w0, w1 = _wide(words[0], words[1]), _wide(words[2], words[3])
    w2, w3 = _wide(words[4], words[5]), _wide(words[6], words[7])
    w4, w5 = _wide(words[8], words[9]), _wide(words[10], words[11])
    w6, w7 = _wide(words[12], words[13]), _wide(words[14], words[15])
    even = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    odd = tl.join(tl.join(w1, w5), tl.join(w3, w7))
    return tl.reshape(tl.join(even, odd), (BLOCK,))


@jit
def _wide(low, high):
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@jit(do_not_specialize=["bound", "columns", "reach", "mask", *(f"k{i}" for i in range(8))])
def draw(
    x_ptr, bytes_ptr, guide_ptr, table_ptr, out_ptr, squares_ptr, count: tl.int64,
    bound: tl.float64, columns: tl.int32, reach: tl.int32, mask: tl.int32,
    k0: tl.int32, k1: tl.int32, k2: tl.int32, k3: tl.int32, k4: tl.int32, k5: tl.int32,
    k6: tl.int32, k7: tl.int32,
    LANE: tl.constexpr, GUIDE: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Places on the grid and the share; Σ Y² of each program.

    ``guide`` knows from the upper bits of a word how many thresholds of its row it has reached at
    least (lower byte) and at most (upper byte). Most words need no look at the table.
    """
    program = tl.program_id(0).to(tl.int64)
    at = program * BLOCK + tl.arange(0, BLOCK)
    is_there = at < count
    key = rows.key_of(k0, k1, k2, k3, k4, k5, k6, k7)
    counter = program * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    word = _words(rows.block(key, counter.to(tl.uint32), LANE), BLOCK)
    x = tl.load(x_ptr + at, mask=is_there, other=0.0)
    byte = tl.load(bytes_ptr + at, mask=is_there, other=0).to(tl.float64)
    place = tl.floor(x + (byte + 0.5) * 0.00390625)
    y = tl.minimum(tl.maximum(place, -bound), bound).to(tl.int64)
    y = tl.where(is_there, y, 0)
    row = y.to(tl.int32) & 255
    pair = tl.load(guide_ptr + ((row << GUIDE) | (word >> (64 - GUIDE)).to(tl.int32))).to(tl.int32)
    low, high = pair & 255, (pair >> 8) & 255
    for _ in tl.static_range(STEPS):
        middle = (low + high) >> 1
        is_open = low < high
        threshold = tl.load(table_ptr + row * columns + middle, mask=is_open, other=0)
        is_reached = threshold.to(tl.uint64, bitcast=True) <= word
        low = tl.where(is_open & is_reached, middle + 1, low)
        high = tl.where(is_open & ~is_reached, middle, high)
    letter = ((y >> 8).to(tl.int32) - reach + low) & mask
    tl.store(out_ptr + at, letter.to(out_ptr.dtype.element_ty), mask=is_there)
    tl.store(squares_ptr + program, tl.sum(y * y, axis=0))
