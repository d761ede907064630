# mypy: ignore-errors
# ruff: noqa: N803, N806, RUF005 (Triton's spelling of compile-time numbers; its tuples only add)
"""The Triton kernel from packed words to entries, or onto a weighted sum of them."""

from __future__ import annotations

from jopeq.kernels.gpu import chacha, rows
from jopeq.kernels.gpu.jit import jit, tl
from jopeq.kernels.gpu.portable import dither


@jit
def _load_words(in_ptr, at, COUNT: tl.constexpr):
    """``COUNT`` consecutive 32-bit words of each lane, unsigned, two at a time."""
    words = ()
    if COUNT % 2 == 0:
        wide_ptr = in_ptr.to(tl.pointer_type(tl.int64), bitcast=True)
        for k in tl.static_range(COUNT // 2):
            pair = tl.load(wide_ptr + at // 2 + k)
            words = words + (pair.to(tl.uint32), (pair >> 32).to(tl.uint32))
    else:
        for k in tl.static_range(COUNT):
            words = words + (tl.load(in_ptr + at + k).to(tl.uint32, bitcast=True),)
    return words


@jit
def _load_halves(in_ptr, at, COUNT: tl.constexpr):
    """An odd number of consecutive 16-bit halves of each lane, as 32-bit words."""
    narrow_ptr = in_ptr.to(tl.pointer_type(tl.int16), bitcast=True)
    words = ()
    for k in tl.static_range((COUNT + 1) // 2):
        word = tl.load(narrow_ptr + at + 2 * k).to(tl.uint16, bitcast=True).to(tl.uint32)
        if 2 * k + 1 < COUNT:
            word = word | (tl.load(narrow_ptr + at + 2 * k + 1).to(tl.uint32) << 16)
        words = words + (word,)
    return words


@jit
def _letter(words, K: tl.constexpr, WIDTH: tl.constexpr):
    """Letter K of a row's words."""
    word: tl.constexpr = K * WIDTH // 32
    shift: tl.constexpr = K * WIDTH % 32
    letter = words[word] >> shift
    if shift + WIDTH > 32:
        letter = letter | (words[word + 1] << (32 - shift))
    if WIDTH < 32:
        letter = letter & ((1 << WIDTH) - 1)
    return letter.to(tl.int32, bitcast=True)


@jit
def _join(values):
    """32 values a lane as one row of a matrix."""
    v4 = ()
    for k in tl.static_range(16):
        v4 = v4 + (tl.join(values[k], values[k + 16]),)
    v3 = ()
    for k in tl.static_range(8):
        v3 = v3 + (tl.join(v4[k], v4[k + 8]),)
    v2 = ()
    for k in tl.static_range(4):
        v2 = v2 + (tl.join(v3[k], v3[k + 4]),)
    v1 = (tl.join(v2[0], v2[2]), tl.join(v2[1], v2[3]))
    return tl.join(v1[0], v1[1])


@jit(do_not_specialize=["first_row", "skip", "count", *(f"s{k}" for k in range(8))])
def decode_rows(
    in_ptr, out_ptr, points_ptr, first_row: tl.int32, skip: tl.int32, count: tl.int64,
    s0: tl.int32, s1: tl.int32, s2: tl.int32, s3: tl.int32, s4: tl.int32, s5: tl.int32,
    s6: tl.int32, s7: tl.int32,
    mean: tl.float64, unit: tl.float64, weight: tl.float64, step: tl.float64, f0: tl.float64,
    f1: tl.float64,
    STEP: tl.constexpr, DIMENSION: tl.constexpr, IS_SUBTRACTIVE: tl.constexpr, WIDTH: tl.constexpr,
    IS_MASKED: tl.constexpr, IS_SUMMED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Rows first_row + program·ROWS… of a body; ``out_ptr`` begins at first_row.

    Entries before ``skip`` and from ``count`` on are left alone (where ``IS_MASKED``).
    ``IS_SUMMED`` adds weight·entry (the entry as the float32 it decodes to) to what is in ``out``.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    HAS_DITHER: tl.constexpr = IS_SUBTRACTIVE and STEP != "grid"
    if HAS_DITHER:
        shared = rows.key_of(s0, s1, s2, s3, s4, s5, s6, s7)
        words = chacha.block(shared, (first_row + row).to(tl.uint32), 0)
    PER_ROW: tl.constexpr = 32 if STEP == "grid" else 32 // DIMENSION
    ROW_BITS: tl.constexpr = PER_ROW * WIDTH
    place = (first_row + row).to(tl.int64)
    if ROW_BITS % 32 == 16:
        packed = _load_halves(in_ptr, place * (ROW_BITS // 16), ROW_BITS // 16)
    else:
        packed = _load_words(in_ptr, place * (ROW_BITS // 32), ROW_BITS // 32)
    values = ()
    for k in tl.static_range(PER_ROW):
        letter = _letter(packed, k, WIDTH)
        if STEP == "cells":
            x = tl.load(points_ptr + 2 * letter)
            y = tl.load(points_ptr + 2 * letter + 1)
            if HAS_DITHER:
                dither_x, dither_y = rows.hexagonal_dither(words[k], step)
                x -= dither_x
                y -= dither_y
            values = values + ((x * unit + mean).to(tl.float32), (y * unit + mean).to(tl.float32))
        else:
            if HAS_DITHER:
                first, second = dither(words[k // 2])
                moved = first
                if k % 2 == 1:
                    moved = second
            if STEP == "line":
                x = (letter.to(tl.float64) - f0) * step
                if HAS_DITHER:
                    x -= moved * step
            elif STEP == "chances":
                x = tl.load(points_ptr + letter) - moved * f0
            elif STEP == "stairs":
                x = ((letter.to(tl.float64) - f1) - moved) * f0
            else:
                x = letter.to(tl.float64) * step
            values = values + ((x * unit + mean).to(tl.float32),)
    entries = tl.reshape(_join(values), (ROWS, 32))
    at = row.to(tl.int64)[:, None] * 32 + tl.arange(0, 32)[None, :]
    is_there = (at >= skip) & (at < count)
    out = out_ptr + at
    if IS_SUMMED:
        if IS_MASKED:
            before = tl.load(out, mask=is_there, other=0.0).to(tl.float64)
        else:
            before = tl.load(out).to(tl.float64)
        total = before + entries.to(tl.float64) * weight
        entries = total.to(out_ptr.dtype.element_ty)
    if IS_MASKED:
        tl.store(out, entries, mask=is_there)
    else:
        tl.store(out, entries)
