"""``Packing`` in compiled loops: letters ↔ bits, for one chunk that starts on a byte."""

from __future__ import annotations

import numpy as np

from jopeq.kernels.cpu.native import I64, part

PACKING = (I64, I64, I64, I64)  # letters, width, digits, bits


@part
def _store(word, out, place, size):
    for i in range(size):
        out[place + i] = np.uint8(word >> np.uint64(8 * i))


@part
def _halve(letters, width, count, out):
    """Two neighbours side by side in one number, ``count`` times."""
    for i in range(count):
        out[i] = letters[2 * i] | (letters[2 * i + 1] << np.uint16(width))


@part
def _pack_dividing(letters, width, out):
    """Widths that divide 8: neighbours are joined until they make bytes, all in vectors."""
    per_byte = 8 // width
    whole = len(letters) // per_byte
    joined, other = np.empty(4 * whole, dtype=np.uint16), np.empty(2 * whole, dtype=np.uint16)
    if width == 1:
        _halve(letters, 1, 4 * whole, joined)
        _halve(joined, 2, 2 * whole, other)
        _halve(other, 4, whole, joined)
    elif width == 2:
        _halve(letters, 2, 2 * whole, other)
        _halve(other, 4, whole, joined)
    else:
        _halve(letters, 4, whole, joined)
    for i in range(whole):
        out[i] = np.uint8(joined[i])
    last = np.uint16(0)
    for i in range(whole * per_byte, len(letters)):
        last |= letters[i] << np.uint16(width * (i - whole * per_byte))
    if whole * per_byte < len(letters):
        out[whole] = np.uint8(last)


@part
def _append(numbers_bits, held, filled, number, out, place):
    """Add the bits of a number to the word being filled; write the word when it is full."""
    held |= number << np.uint64(filled)
    filled += numbers_bits
    if filled >= 64:
        if place + 8 <= len(out):
            _store(held, out, place, 8)
        else:  # the last number has fewer digits: its upper bytes are left out
            _store(held, out, place, len(out) - place)
        place += 8
        filled -= 64
        used = numbers_bits - filled
        held = number >> np.uint64(used) if used < 64 else np.uint64(0)
    return held, filled, place


@part
def _four(letters, first, width):
    word = np.uint64(letters[first])
    for i in range(1, 4):
        word |= np.uint64(letters[first + i]) << np.uint64(i * width)
    return word


@part
def _pack_eights(letters, width, out):
    """Widths below 8 bits: eight letters make ``width`` bytes."""
    whole = len(letters) // 8
    for number in range(whole):
        low, high = _four(letters, 8 * number, width), _four(letters, 8 * number + 4, width)
        word = low | (high << np.uint64(4 * width))
        into = out[number * width : (number + 1) * width]
        for i in range(width):
            into[i] = np.uint8(word >> np.uint64(8 * i))
    held, filled, place = np.uint64(0), 0, whole * width
    for i in range(8 * whole, len(letters)):
        held, filled, place = _append(width, held, filled, np.uint64(letters[i]), out, place)
    _store(held, out, place, max(0, len(out) - place))


@part
def _pack_radix(letters, base, digits, bits, out):
    """``digits`` letters make a number of ``bits`` bits; 64 numbers are formed side by side."""
    held, filled, place = np.uint64(0), 0, 0
    numbers = np.empty(64, dtype=np.uint64)
    whole = len(letters) // (64 * digits)
    for block in range(whole):
        mine = letters[block * 64 * digits : (block + 1) * 64 * digits]
        for g in range(64):
            numbers[g] = 0
        for column in range(digits - 1, -1, -1):
            for g in range(64):
                numbers[g] = numbers[g] * base + np.uint64(mine[g * digits + column])
        for g in range(64):
            held, filled, place = _append(bits, held, filled, numbers[g], out, place)
    first = whole * 64 * digits
    while first < len(letters):
        last = min(first + digits, len(letters))
        number = np.uint64(0)
        for i in range(last - 1, first - 1, -1):
            number = number * base + np.uint64(letters[i])
        held, filled, place = _append(bits, held, filled, number, out, place)
        first = last
    _store(held, out, place, max(0, len(out) - place))


@part
def pack(letters, alphabet, width, digits, bits, out):
    """Letters as bytes: ``width`` bits each unless that is 0, else ``digits`` in ``bits`` bits."""
    if width == 1:
        _pack_dividing(letters, 1, out)
    elif width == 2:
        _pack_dividing(letters, 2, out)
    elif width == 4:
        _pack_dividing(letters, 4, out)
    elif width == 8:
        for i in range(len(letters)):
            out[i] = np.uint8(letters[i])
    elif width:
        _pack_eights(letters, width, out)
    else:
        _pack_radix(letters, np.uint64(alphabet), digits, bits, out)


@part
def _load(body, place):
    """Eight bytes, or as many as there are."""
    word = np.uint64(0)
    for i in range(min(8, len(body) - place)):
        word |= np.uint64(body[place + i]) << np.uint64(8 * i)
    return word


@part
def _take(body, bit, size):
    """``size`` ≤ 64 bits from a bit on."""
    place = bit // 8
    shift = bit % 8
    word = _load(body, place) >> np.uint64(shift)
    if shift and place + 8 < len(body):
        word |= np.uint64(body[place + 8]) << np.uint64(64 - shift)
    return word if size == 64 else word & ((np.uint64(1) << np.uint64(size)) - np.uint64(1))


@part
def _unpack_bits(body, width, letters):
    """Letters of any width, each from the eight bytes it begins in."""
    count = len(letters)
    mask = np.uint64((1 << width) - 1)
    whole = min(count, max(0, (8 * (len(body) - 8)) // width))  # those with eight bytes to read
    for i in range(whole):
        bit = i * width
        here = body[bit // 8 : bit // 8 + 8]
        word = np.uint64(0)
        for j in range(8):
            word |= np.uint64(here[j]) << np.uint64(8 * j)
        letters[i] = np.uint16((word >> np.uint64(bit % 8)) & mask)
    for i in range(whole, count):
        letters[i] = np.uint16(_take(body, i * width, width))
    bit = count * width
    return bit == 8 * len(body) or _take(body, bit, 8 * len(body) - bit) == 0


@part
def _unpack_radix(body, base, digits, bits, letters):
    bit, first = 0, 0
    while first < len(letters):
        last = min(first + digits, len(letters))
        here = min(bits, 8 * len(body) - bit)
        number = _take(body, bit, here)
        bit += here
        for i in range(first, last):
            quotient = number // base
            letters[i] = np.uint16(number - quotient * base)
            number = quotient
        if number != 0:
            return False
        first = last
    return bit == 8 * len(body) or _take(body, bit, 8 * len(body) - bit) == 0


@part
def unpack(body, alphabet, width, digits, bits, letters):
    """The letters in these bytes; False when no packer writes such bytes."""
    if width == 8:
        for i in range(len(letters)):
            letters[i] = body[i]
        return True
    if width:
        return _unpack_bits(body, width, letters)
    return _unpack_radix(body, np.uint64(alphabet), digits, bits, letters)
