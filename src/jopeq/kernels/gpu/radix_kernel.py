# mypy: ignore-errors
# ruff: noqa: N803 (Triton spells compile-time numbers so)
"""The Triton kernels of mixed radix: letters to the numbers they are the digits of, and back."""

from __future__ import annotations

from jopeq.kernels.gpu.jit import jit, tl


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
