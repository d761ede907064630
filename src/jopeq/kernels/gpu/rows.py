# mypy: ignore-errors
# ruff: noqa: N803, N806, RUF005 (Triton's spelling of compile-time numbers; its tuples only add)
"""Pieces of the Triton kernels that walk over rows: ChaCha20, ``portable``, ``samplers``, steps.

A row is 32 consecutive entries: one ChaCha block of dither, 16 bits each. One lane of a tensor
holds one row and works through it in groups. So no lane needs another's random words, and the
letters of a row become whole words of the payload within the lane. All rounds as on the CPU.
"""

from __future__ import annotations

import math

import numpy as np

from jopeq.kernels.gpu.jit import constant, jit, tl
from jopeq.random import portable

_S0, _S1, _S2, _S3 = map(constant, (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))
_ATANH, _EXPM1 = constant(portable.ATANH_TERMS), constant(portable.EXPM1_TERMS)
_SIN, _COS = constant(portable.SIN_TERMS), constant(portable.COS_TERMS)
_LN2_HIGH, _LN2_LOW = constant(portable.LN2_HIGH), constant(portable.LN2_LOW)
_INVERSE_LN2 = constant(1.0 / math.log(2.0))
_ROOT_HALF = constant(math.sqrt(0.5))
_QUADRANT = constant(math.pi / 2)
_LARGEST = constant(float(np.finfo(np.float32).max))
_ROOT3 = constant(math.sqrt(3.0))
_INSIDE = constant(1.0 - 1e-12)
_EXTRA_LANE = constant(1 << 31)
_MAX_COORDINATE = constant(2.0**50)


@jit
def _turned(x, BITS: tl.constexpr):
    return (x << BITS) | (x >> (32 - BITS))


@jit
def _quarter(a, b, c, d):
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@jit
def block(key, counter, LANE: tl.constexpr):
    """The sixteen 32-bit words of each block; ``key`` is eight uint32, ``counter`` uint32."""
    zero = counter ^ counter
    lane = zero + LANE
    s0, s1, s2, s3 = zero + _S0, zero + _S1, zero + _S2, zero + _S3
    x0, x1, x2, x3 = s0, s1, s2, s3
    x4, x5, x6, x7 = zero + key[0], zero + key[1], zero + key[2], zero + key[3]
    x8, x9, x10, x11 = zero + key[4], zero + key[5], zero + key[6], zero + key[7]
    x12, x13, x14, x15 = counter, zero, zero, lane
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    return (
        x0 + s0, x1 + s1, x2 + s2, x3 + s3, x4 + key[0], x5 + key[1], x6 + key[2], x7 + key[3], x8 +
        key[4], x9 + key[5], x10 + key[6], x11 + key[7], x12 + counter, x13, x14, x15 + lane,
    )  # fmt: skip


@jit
def _horner(TERMS: tl.constexpr, COUNT: tl.constexpr, x):
    total = x * TERMS[0] + TERMS[1]
    for i in tl.static_range(2, COUNT):
        total = total * x + TERMS[i]
    return total


@jit
def as_float(high, low):
    """The float64 with these halves."""
    bits = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
    return bits.to(tl.float64, bitcast=True)


@jit
def _bit_length(x):
    """The length of 32-bit words; without the bit below the first, float32 keeps the exponent."""
    power = (x ^ (x & (x >> 1))).to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.where(x == 0, 0, power - 126)


@jit
def exponent_bits(high):
    """The twelve bits that choose the binade of a fine uniform; 0 asks for more of them."""
    return (high >> 19) & 0xFFF


@jit
def zeros_of(bits):
    """Leading zeros of twelve bits, not all zero."""
    return 138 - (bits.to(tl.float32).to(tl.int32, bitcast=True) >> 23)


@jit
def zeros_beyond(high, low):
    """All twelve being zero, the count goes on in another word."""
    length = tl.where(high == 0, _bit_length(low), 32 + _bit_length(high))
    return tl.minimum(76 - length, 75)


@jit
def exponential(high, low, zeros):
    """−ln u of the fine uniform of a 64-bit word that starts with so many zeros."""
    mantissa = as_float(
        ((high & 0x7FFFF) << 1) | (low >> 31) | 0x3FE00000, (low << 1) | 1
    )  # in (½, 1)
    is_small = mantissa < _ROOT_HALF
    m = tl.where(is_small, mantissa + mantissa, mantissa)
    power = (-zeros - is_small.to(tl.int32)).to(tl.float64)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    tail = (s * q * _horner(_ATANH, 11, q) * 2.0 + power * _LN2_LOW) + s * 2.0
    return -(power * _LN2_HIGH + tail)


@jit
def expm1(x):
    """eˣ − 1 for 0 ≤ x < 700."""
    power = tl.floor(x * _INVERSE_LN2 + 0.5)
    r = (x - power * _LN2_HIGH) - power * _LN2_LOW
    factor = as_float((power.to(tl.int32) + 1023) << 20, power.to(tl.int32) & 0)
    return factor * (r * _horner(_EXPM1, 14, r)) + (factor - 1.0)


@jit
def circle(high, low):
    """(cos, sin) of a uniform angle."""
    place = (((high & 0x3FFFFFFF).to(tl.int64) << 22) | (low >> 10).to(tl.int64)).to(tl.float64)
    angle = ((place + 0.5) * 2.0**-52 - 0.5) * _QUADRANT
    q = angle * angle
    sine = angle * _horner(_SIN, 9, q)
    cosine = _horner(_COS, 10, q)
    is_odd = (high & 0x40000000) != 0
    x = tl.where(is_odd, -sine, cosine)
    y = tl.where(is_odd, cosine, sine)
    is_flipped = (high >> 31) != 0
    return tl.where(is_flipped, -x, x), tl.where(is_flipped, -y, y)


@jit
def unit_dithers(word):
    """The two dithers of a 32-bit word, in units of the step: (signed half + ½)/65536."""
    signed = word.to(tl.int32, bitcast=True)
    first = (((signed << 16) >> 16).to(tl.float64) + 0.5) * 2.0**-16
    return first, ((signed >> 16).to(tl.float64) + 0.5) * 2.0**-16


@jit
def key_of(k0, k1, k2, k3, k4, k5, k6, k7):
    """A key from its eight little-endian words, as signed numbers."""
    return (
        k0.to(tl.uint32), k1.to(tl.uint32), k2.to(tl.uint32), k3.to(tl.uint32), k4.to(tl.uint32),
        k5.to(tl.uint32), k6.to(tl.uint32), k7.to(tl.uint32),
    )  # fmt: skip


@jit
def load_entries(x_ptr, offset, count, GROUP: tl.constexpr, IS_MASKED: tl.constexpr):
    """``GROUP`` consecutive entries of each lane, eight bytes a load where all are there.

    Returns them as float32 (float64 from float64) and whether float32 can hold them all.
    """
    kind: tl.constexpr = x_ptr.dtype.element_ty
    PER: tl.constexpr = 64 // kind.primitive_bitwidth
    entries = ()
    is_fine = offset >= 0
    for i in tl.static_range(GROUP // PER):
        if not IS_MASKED and PER > 1:
            pair = tl.load((x_ptr + offset + i * PER).to(tl.pointer_type(tl.int64), bitcast=True))
        for k in tl.static_range(PER):
            if IS_MASKED or PER == 1:
                at = offset + (i * PER + k)
                entry = tl.load(x_ptr + at, mask=at < count, other=0.0)
            elif kind.primitive_bitwidth == 32:
                entry = (pair >> (32 * k)).to(tl.int32).to(kind, bitcast=True)
            else:
                entry = (pair >> (16 * k)).to(tl.int16).to(kind, bitcast=True)
            if kind.primitive_bitwidth == 16:
                entry = entry.to(tl.float32)
            is_fine = is_fine & (tl.abs(entry) <= _LARGEST)
            entries = entries + (entry,)
    return entries, is_fine


@jit
def clip(x):
    """[−1, 1], and whether x lay outside. NaN, which is refused later, must not reach a table."""
    is_inside = tl.abs(x) <= 1.0
    return tl.where(is_inside, x, tl.where(x < 0.0, -1.0, 1.0)), ~is_inside


@jit
def into_ball(x, y):
    """A pair moved radially into the unit disc, and whether it had to be."""
    norm = tl.sqrt(x * x + y * y)
    is_outside = norm > 1.0
    factor = tl.where(is_outside, _INSIDE / tl.where(is_outside, norm, 1.0), 1.0)
    return x * factor, y * factor, is_outside


@jit
def limited(x, limit):
    """Cut to ±limit; NaN stays what it is."""
    return tl.where(x > limit, limit, tl.where(x < -limit, -limit, x))


@jit
def _zeros(words, private, counter, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    """How many zeros each fine uniform starts with; draw k is made of word STRIDE·k of 64 bits.

    One in 4,096 goes on in another lane of the stream, in the block of the same number. All read
    it, so that none is seen to need it.
    """
    more = block(private, counter, _EXTRA_LANE)
    zeros = ()
    for k in tl.static_range(COUNT):
        bits = exponent_bits(words[2 * STRIDE * k + 1])
        beyond = zeros_beyond(more[2 * STRIDE * k + 1], more[2 * STRIDE * k])
        zeros = zeros + (tl.where(bits == 0, beyond, zeros_of(bits)),)
    return zeros


@jit
def laplace(words, private, counter):
    """Eight standard Laplace draws from a block of noise."""
    zeros = _zeros(words, private, counter, 8, 1)
    draws = ()
    for k in tl.static_range(8):
        high = words[2 * k + 1]
        draw = exponential(high, words[2 * k], zeros[k])
        draws = draws + (tl.where((high >> 31) != 0, -draw, draw),)
    return draws


@jit
def student(words, private, counter, scale, nu, two_over_nu):
    """Four pairs under the t law from a block of noise: P(R² > νz) = (1 + z)^{−ν/2}."""
    zeros = _zeros(words, private, counter, 4, 2)
    draws = ()
    for k in tl.static_range(4):
        drawn = exponential(words[4 * k + 1], words[4 * k], zeros[k])
        radius = tl.sqrt(expm1(drawn * two_over_nu) * nu) * scale
        cosine, sine = circle(words[4 * k + 3], words[4 * k + 2])
        draws = draws + (cosine * radius, sine * radius)
    return draws


@jit
def on_line(x, inverse_step, centre, letters, last):
    """⌊x/step + N/2⌋ in 0…N−1, and whether it had to be moved there."""
    place = x * inverse_step + centre
    is_below = place < 0.0
    is_above = place >= letters
    # only a place inside is cut to an integer that counts, and there truncation is the floor
    index = tl.where(is_above, last, tl.where(is_below, 0, place.to(tl.int32)))
    return index, is_below | is_above


@jit
def nearest_hexagonal(x, y):
    """The point of A2 nearest to (x, y) in the frame."""
    first_x, first_y = tl.floor(x + 0.5), tl.floor(y + 0.5)
    across, up = x - first_x, y - first_y
    half = tl.where(tl.abs(up) * 3.0 + tl.abs(across) > 1.0, 0.5, 0.0)
    near_x = first_x + tl.where(across < 0.0, -half, half)
    return near_x, first_y + tl.where(up < 0.0, -half, half)


@jit
def hexagonal_dither(word, step):
    """A uniform point of the cell of A2 from the two halves of a word."""
    first = ((word & 0xFFFF).to(tl.float64) + 0.5) * 2.0**-16
    second = ((word >> 16).to(tl.float64) + 0.5) * 2.0**-16
    y = second * 0.5
    x = first + y
    near_x, near_y = nearest_hexagonal(x, y)
    return (x - near_x) * step, (y - near_y) * _ROOT3 * step


@jit
def in_cells(x, y, table_ptr, inverse_x, box):
    """The letter of the cell a point lies in (or −1), and whether that could be told exactly."""
    shift_x, shift_y, inverse_y, low_x, low_y, extent_x, extent_y = box
    frame_x = (x - shift_x) * inverse_x
    frame_y = (y - shift_y) * inverse_y
    is_near = (tl.abs(frame_x) < _MAX_COORDINATE) & (tl.abs(frame_y) < _MAX_COORDINATE)
    near_x, near_y = nearest_hexagonal(frame_x, frame_y)
    a = (near_x - near_y) - low_x
    b = near_y * 2.0 - low_y
    is_boxed = (a >= 0.0) & (b >= 0.0) & (a < extent_x) & (b < extent_y)
    key = tl.where(is_boxed, a + b * extent_x, 0.0).to(tl.int32)
    return tl.where(is_boxed, tl.load(table_ptr + key), -1), is_near


@jit
def level(x, dither, slope, centre):
    """⌊x·slope + (d + c)⌋, for x in [−1, 1]."""
    return tl.floor(x * slope + (dither + centre)).to(tl.int32)


@jit
def channel_letter(row, word, table_ptr, COLUMNS: tl.constexpr):
    """How many of the row's thresholds, stored less one, lie below the word."""
    letter = row & 0
    for k in tl.static_range(COLUMNS):
        threshold = tl.load(table_ptr + row * COLUMNS + k).to(tl.uint32, bitcast=True)
        letter += (threshold < word).to(tl.int32)
    return letter


@jit
def halve(lanes, LANES: tl.constexpr):
    """The sum of all lanes: the upper half on the lower, until one is left."""
    tl.static_assert(LANES == 512)
    lanes = tl.sum(tl.reshape(lanes, (2, 256)), axis=0)  # two terms: no order to choose
    lanes = tl.sum(tl.reshape(lanes, (2, 128)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 64)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 32)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 16)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 8)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 4)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 2)), axis=0)
    return tl.sum(lanes, axis=0)
