# mypy: ignore-errors
# ruff: noqa: N803, N806, RUF005, SIM102 (Triton spells compile-time numbers so; its tuples add)
"""The Triton kernels: entries to packed words and back, sums of chunks."""

from __future__ import annotations

from jopeq.kernels.gpu import rows
from jopeq.kernels.gpu.jit import jit, tl

# From entries to packed words


@jit
def _letters_of_group(
    entries, words, block, group, private, table_ptr, points_ptr, numbers, last, left,
    STEP: tl.constexpr, NOISE: tl.constexpr, DIMENSION: tl.constexpr, IS_CLIPPED: tl.constexpr,
    COLUMNS: tl.constexpr, GROUP: tl.constexpr, IS_MASKED: tl.constexpr,
):  # fmt: skip
    """Letters of one group of entries a lane; counts of clipped, overloaded and far samples.

    ``left`` is how many entries of the lane's group are there; those beyond make letters 0.
    """
    mean, inverse, step, inverse_step, centre, letters = numbers[:6]
    noise_scale, noise_limit, nu, two_over_nu = numbers[6:10]
    clipped = block.to(tl.int32) & 0
    overloaded = clipped
    far = clipped
    counter = block * (32 // GROUP) + group
    if NOISE == "laplace":
        drawn = rows.block(private, counter, 0)
        noise = rows.laplace(drawn, private, counter)
    elif NOISE == "t":
        drawn = rows.block(private, counter, 0)
        noise = rows.student(drawn, private, counter, noise_scale, nu, two_over_nu)
    elif NOISE == "words":
        drawn = rows.block(private, counter, 0)

    found = ()
    samples = ()
    for i in tl.static_range(GROUP // DIMENSION):
        x = (entries[i * DIMENSION].to(tl.float64) - mean) * inverse
        is_there = True
        if IS_MASKED:
            is_there = i * DIMENSION < left
            x = tl.where(is_there, x, 0.0)
        if DIMENSION == 2:
            y = (entries[2 * i + 1].to(tl.float64) - mean) * inverse
            if IS_MASKED:
                y = tl.where(2 * i + 1 < left, y, 0.0)
        if IS_CLIPPED:
            if DIMENSION == 2:
                x, y, is_outside = rows.into_ball(x, y)
            else:
                x, is_outside = rows.clip(x)
            clipped += is_outside.to(tl.int32)
        if NOISE == "laplace":
            x = rows.limited(x + noise[i] * noise_scale, noise_limit)
        elif NOISE == "t":
            x = rows.limited(x + noise[2 * i], noise_limit)
            y = rows.limited(y + noise[2 * i + 1], noise_limit)

        if STEP == "cells":
            dither_x, dither_y = rows.hexagonal_dither(words[i], step)
            x += dither_x
            y += dither_y
            letter, is_near = rows.in_cells(x, y, table_ptr, inverse_step, numbers[10:])
            if IS_MASKED:
                letter = tl.where(is_there, letter, 0)
                is_near = is_near | ~is_there
            overloaded += (letter < 0).to(tl.int32)
            far += (~is_near).to(tl.int32)
            found = found + (letter,)
            samples = samples + (x, y)
        else:
            first, second = rows.unit_dithers(words[i // 2])
            unit = first
            if i % 2 == 1:
                unit = second
            if STEP == "line":
                letter, is_moved = rows.on_line(
                    x + unit * step, inverse_step, centre, letters, last
                )
            else:
                j = rows.level(x, unit, step, centre)
                letter = rows.channel_letter(j, drawn[i], table_ptr, COLUMNS)
            if IS_MASKED:
                letter = tl.where(is_there, letter, 0)
            if STEP == "line":
                if IS_MASKED:
                    is_moved = is_moved & is_there
                overloaded += is_moved.to(tl.int32)
            found = found + (letter,)

    if STEP == "cells":
        if tl.max(overloaded, axis=0) != 0:
            found = _nearest_letters(found, samples, points_ptr, COLUMNS, GROUP // 2)
    return found, clipped, overloaded, far


@jit
def _nearest_letters(found, samples, points_ptr, LETTERS: tl.constexpr, COUNT: tl.constexpr):
    """The first of the letters nearest to each sample that lies in no letter's cell."""
    best = ()
    least = ()
    for i in tl.static_range(COUNT):
        best = best + (found[i] & 0,)
        least = least + (tl.full(found[i].shape, float("inf"), tl.float64),)
    for c in range(LETTERS):
        point_x = tl.load(points_ptr + 2 * c)
        point_y = tl.load(points_ptr + 2 * c + 1)
        nearer = ()
        lesser = ()
        for i in tl.static_range(COUNT):
            dx = samples[2 * i] - point_x
            dy = samples[2 * i + 1] - point_y
            distance = dx * dx + dy * dy
            is_nearer = distance < least[i]
            nearer = nearer + (tl.where(is_nearer, c, best[i]),)
            lesser = lesser + (tl.where(is_nearer, distance, least[i]),)
        best = nearer
        least = lesser
    chosen = ()
    for i in tl.static_range(COUNT):
        chosen = chosen + (tl.where(found[i] < 0, best[i], found[i]),)
    return chosen


@jit
def _packed(letters, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Letters as 32-bit words, least significant bit first; the last may be partial."""
    WORDS: tl.constexpr = (COUNT * WIDTH + 31) // 32
    words = ()
    for w in tl.static_range(WORDS):
        word = letters[0] & 0
        for k in tl.static_range(COUNT):
            if (k * WIDTH < 32 * w + 32) and (k * WIDTH + WIDTH > 32 * w):
                if k * WIDTH >= 32 * w:
                    word = word | (letters[k] << (k * WIDTH - 32 * w))
                else:
                    word = word | (letters[k] >> (32 * w - k * WIDTH))
        words = words + (word,)
    return words


@jit
def _store_words(out_ptr, at, words, COUNT: tl.constexpr):
    """``COUNT`` consecutive 32-bit words of each lane, two at a time."""
    if COUNT % 2 == 0:
        wide_ptr = out_ptr.to(tl.pointer_type(tl.int64), bitcast=True)
        for k in tl.static_range(COUNT // 2):
            low = words[2 * k].to(tl.uint32, bitcast=True).to(tl.int64)
            tl.store(wide_ptr + at // 2 + k, low | (words[2 * k + 1].to(tl.int64) << 32))
    else:
        for k in tl.static_range(COUNT):
            tl.store(out_ptr + at + k, words[k])


@jit
def _store_halves(out_ptr, at, words, COUNT: tl.constexpr):
    """An odd number of consecutive 16-bit halves of each lane."""
    narrow_ptr = out_ptr.to(tl.pointer_type(tl.int16), bitcast=True)
    for k in tl.static_range(COUNT):
        tl.store(narrow_ptr + at + k, (words[k // 2] >> (16 * (k % 2))).to(tl.int16))


_KEYS = [f"{stream}{k}" for stream in "sp" for k in range(8)]


@jit(do_not_specialize=["first_row", "count", "last", *_KEYS])
def encode_rows(
    x_ptr, out_ptr, counts_ptr, table_ptr, points_ptr, first_row: tl.int32, count: tl.int64,
    s0: tl.int32, s1: tl.int32, s2: tl.int32, s3: tl.int32, s4: tl.int32, s5: tl.int32,
    s6: tl.int32, s7: tl.int32,
    p0: tl.int32, p1: tl.int32, p2: tl.int32, p3: tl.int32, p4: tl.int32, p5: tl.int32,
    p6: tl.int32, p7: tl.int32,
    mean: tl.float64, inverse: tl.float64, step: tl.float64, inverse_step: tl.float64,
    centre: tl.float64, letters: tl.float64, noise_scale: tl.float64, noise_limit: tl.float64,
    nu: tl.float64, two_over_nu: tl.float64,
    f0: tl.float64, f1: tl.float64, f2: tl.float64, f3: tl.float64, f4: tl.float64, f5: tl.float64,
    f6: tl.float64, last: tl.int32,
    STEP: tl.constexpr, NOISE: tl.constexpr, DIMENSION: tl.constexpr, IS_CLIPPED: tl.constexpr,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, IS_LOOP: tl.constexpr,
    IS_MASKED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Rows first_row + program·ROWS… of the update; ``x_ptr`` and ``out_ptr`` begin at first_row.

    ``counts_ptr``: clipped, overloaded, entries float32 cannot hold, samples too far to quantize.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    block = (first_row + row).to(tl.uint32)
    offset = row.to(tl.int64) * 32
    private = rows.key_of(p0, p1, p2, p3, p4, p5, p6, p7)
    shared = rows.key_of(s0, s1, s2, s3, s4, s5, s6, s7)
    words = rows.block(shared, block, 0)
    GROUPS: tl.constexpr = 32 // GROUP
    PER_GROUP: tl.constexpr = GROUP // DIMENSION
    BITS: tl.constexpr = PER_GROUP * WIDTH
    ROW_BITS: tl.constexpr = BITS * GROUPS
    numbers = (
        (mean, inverse, step, inverse_step, centre, letters)
        + (noise_scale, noise_limit, nu, two_over_nu)
        + (f0, f1, f2, f3, f4, f5, f6)
    )
    clipped = row & 0
    overloaded = row & 0
    refused = row & 0
    far = row & 0
    if IS_LOOP:
        partial = row & 0
        for group in range(GROUPS):
            at = offset + group * GROUP
            entries, is_fine = rows.load_entries(x_ptr, at, count, GROUP, IS_MASKED)
            found, a, b, c = _letters_of_group(
                entries, words, block, group, private, table_ptr, points_ptr, numbers, last, count
                - at, STEP, NOISE, DIMENSION, IS_CLIPPED, COLUMNS, GROUP, IS_MASKED,
            )  # fmt: skip
            packed = _packed(found, PER_GROUP, WIDTH)
            if BITS % 32 == 0:
                place = (row.to(tl.int64) * GROUPS + group) * (BITS // 32)
                _store_words(out_ptr, place, packed, BITS // 32)
            else:
                partial = (partial.to(tl.uint32) >> BITS).to(tl.int32) | (packed[0] << (32 - BITS))
                if ROW_BITS > 16 and (group + 1) * BITS % 32 == 0:
                    place = row.to(tl.int64) * (ROW_BITS // 32) + group * BITS // 32
                    tl.store(out_ptr + place, partial)
            clipped += a
            overloaded += b
            far += c
            refused += (~is_fine).to(tl.int32)
            words = words[GROUP // 2 :] + words[: GROUP // 2]
        if ROW_BITS == 16:
            _store_halves(out_ptr, row, (partial >> 16,), 1)
    else:
        all_found = ()
        for group in tl.static_range(GROUPS):
            at = offset + group * GROUP
            entries, is_fine = rows.load_entries(x_ptr, at, count, GROUP, IS_MASKED)
            found, a, b, c = _letters_of_group(
                entries, words, block, group, private, table_ptr, points_ptr, numbers, last, count
                - at, STEP, NOISE, DIMENSION, IS_CLIPPED, COLUMNS, GROUP, IS_MASKED,
            )  # fmt: skip
            all_found = all_found + found
            clipped += a
            overloaded += b
            far += c
            refused += (~is_fine).to(tl.int32)
            words = words[GROUP // 2 :] + words[: GROUP // 2]
        packed = _packed(all_found, PER_GROUP * GROUPS, WIDTH)
        if ROW_BITS % 32 == 16:
            HALVES: tl.constexpr = ROW_BITS // 16
            _store_halves(out_ptr, row.to(tl.int64) * HALVES, packed, HALVES)
        else:
            _store_words(out_ptr, row.to(tl.int64) * (ROW_BITS // 32), packed, ROW_BITS // 32)
    _count(counts_ptr, clipped)
    _count(counts_ptr + 1, overloaded)
    _count(counts_ptr + 2, refused)
    _count(counts_ptr + 3, far)


@jit
def _count(count_ptr, found):
    total = tl.sum(found, axis=0)
    if total != 0:
        tl.atomic_add(count_ptr, total.to(tl.int64))


# From packed words to entries, or onto a weighted sum of them


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
    STEP: tl.constexpr, DIMENSION: tl.constexpr, WIDTH: tl.constexpr, IS_MASKED: tl.constexpr,
    IS_SUMMED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Rows first_row + program·ROWS… of a body; ``out_ptr`` begins at first_row.

    Entries before ``skip`` and from ``count`` on are left alone (where ``IS_MASKED``).
    ``IS_SUMMED`` adds weight·entry (the entry as the float32 it decodes to) to what is in ``out``.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    shared = rows.key_of(s0, s1, s2, s3, s4, s5, s6, s7)
    words = rows.block(shared, (first_row + row).to(tl.uint32), 0)
    PER_ROW: tl.constexpr = 32 // DIMENSION
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
            dither_x, dither_y = rows.hexagonal_dither(words[k], step)
            x -= dither_x
            y -= dither_y
            values = values + ((x * unit + mean).to(tl.float32), (y * unit + mean).to(tl.float32))
        else:
            first, second = rows.unit_dithers(words[k // 2])
            moved = first
            if k % 2 == 1:
                moved = second
            if STEP == "line":
                x = (letter.to(tl.float64) - f0) * step - moved * step
            else:
                x = tl.load(points_ptr + letter) - moved * f0
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


# Sums


@jit(do_not_specialize=["count"])
def sum_chunks(
    x_ptr, sums_ptr, count: tl.int64, mean: tl.float64, IS_SQUARE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The sum of each chunk, or of its squares about the mean, in the order of ``lane_sum``."""
    start = tl.program_id(0).to(tl.int64) * (ROWS * WIDTH)
    lane = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float64)
    for row in tl.range(0, ROWS, loop_unroll_factor=8):  # loads ahead of the sums
        at = start + row * WIDTH + lane
        x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float64)
        if IS_SQUARE:
            x = x - mean
            x = tl.where(at < count, x * x, 0.0)
        total += x
    tl.store(sums_ptr + tl.program_id(0), rows.halve(total, WIDTH))


# Mixed radix: letters to the numbers they are the digits of, and back


@jit(do_not_specialize=["count"])
def numbers_of_letters(
    letters_ptr, numbers_ptr, count: tl.int64, BASE: tl.constexpr, DIGITS: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Number i is made of letters i·DIGITS…, the first least significant."""
    index = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    number = index & 0
    for k in range(DIGITS):
        at = index * DIGITS + (DIGITS - 1 - k)
        letter = tl.load(letters_ptr + at, mask=at < count, other=0).to(tl.int64)
        number = number * BASE + (letter & 0xFFFF)
    tl.store(numbers_ptr + index, number)


@jit(do_not_specialize=["count"])
def letters_of_numbers(
    words_ptr, letters_ptr, bad_ptr, count: tl.int64, BASE: tl.constexpr, DIGITS: tl.constexpr,
    BITS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The digits of number i, read from the stream of words; what is left over is reported."""
    index = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    place = index * BITS
    shift = (place % 64).to(tl.uint64)
    low = tl.load(words_ptr + place // 64).to(tl.uint64, bitcast=True) >> shift
    high = tl.load(words_ptr + place // 64 + 1).to(tl.uint64, bitcast=True)
    number = low | ((high << 1) << (63 - shift))
    if BITS < 64:
        number = number & ((1 << BITS) - 1)
    bad = (index & 0).to(tl.int32)
    for k in range(DIGITS):
        at = index * DIGITS + k
        rest = number // BASE
        letter = (number - rest * BASE).to(tl.int32)
        is_there = at < count
        bad += ((letter != 0) & (at >= count)).to(tl.int32)
        tl.store(letters_ptr + at, letter.to(letters_ptr.dtype.element_ty), mask=is_there)
        number = rest
    bad += (number != 0).to(tl.int32)
    total = tl.sum(bad, axis=0)
    if total != 0:
        tl.atomic_add(bad_ptr, total)


@jit
def join_numbers(
    numbers_ptr, words_ptr, BITS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Word i of the stream of numbers, BITS bits each without gaps."""
    index = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    first = index * 64 // BITS
    skipped = index * 64 - first * BITS
    word = tl.load(numbers_ptr + first).to(tl.uint64, bitcast=True) >> skipped.to(tl.uint64)
    for k in tl.static_range(1, 64 // BITS + 2):
        place = k * BITS - skipped
        more = tl.load(numbers_ptr + first + k, mask=place < 64, other=0).to(
            tl.uint64, bitcast=True
        )
        word = word | (more << tl.minimum(place, 63).to(tl.uint64))
    tl.store(words_ptr + index, word.to(tl.int64, bitcast=True))
