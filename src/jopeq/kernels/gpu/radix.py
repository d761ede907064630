"""Mixed radix on a device, for alphabets that are no power of two.

Letters come and go as bytes or 16-bit words; ``packing`` says how numbers are made of them.
"""

from __future__ import annotations

import torch

from jopeq.errors import PayloadError
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.plan import uses_triton
from jopeq.kernels.gpu.radix_kernel import join_numbers, letters_of_numbers, numbers_of_letters
from jopeq.wire.packing import Packing

_NUMBERS = 128  # a program's


def packed_numbers(words: torch.Tensor, count: int, packing: Packing, width: int) -> torch.Tensor:
    """The bytes of ``count`` letters, ``width`` bits each in ``words``, as 64-bit words."""
    digits, bits = packing.digits, packing.bits
    letters = words.view(torch.uint8 if width == 8 else torch.int16)
    numbers = -(-count // digits)
    padded = -(-numbers // 64) * 64
    if uses_triton(words.device):
        programs = -(-padded // _NUMBERS) + 2  # what is read beyond the end is written too
        made = torch.empty(programs * _NUMBERS, dtype=torch.int64, device=words.device)
        numbers_of_letters[(programs,)](
            letters, made, count, BASE=packing.letters, DIGITS=digits, SIZE=_NUMBERS, **options(4),
        )  # fmt: skip
        joined = -(-padded * bits // 64 // _NUMBERS)
        packed = torch.empty(joined * _NUMBERS, dtype=torch.int64, device=words.device)
        join_numbers[(joined,)](made, packed, BITS=bits, SIZE=_NUMBERS, **options(4))
        return packed
    rows = torch.zeros(padded * digits, dtype=torch.int64, device=words.device)
    rows[:count] = letters[:count].long() & 0xFFFF
    made = torch.zeros(padded, dtype=torch.int64, device=words.device)
    for column in reversed(rows.reshape(padded, digits).unbind(1)):
        made = made * packing.letters + column
    return _joined(made, bits)


def _joined(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Numbers of ``bits`` bits without gaps; 64 of them fill ``bits`` words."""
    rows = numbers.reshape(-1, 64)
    words = torch.zeros((len(rows), bits), dtype=torch.int64, device=numbers.device)
    for slot in range(64):
        word, shift = divmod(slot * bits, 64)
        words[:, word] |= rows[:, slot] << shift
        if shift + bits > 64:
            mask = (1 << (bits + shift - 64)) - 1
            words[:, word + 1] |= (rows[:, slot] >> (64 - shift)) & mask
    return words.reshape(-1)


def unpacked_numbers(
    body: torch.Tensor, count: int, packing: Packing, width: int, filled: int
) -> torch.Tensor:
    """The letters of a body (both bytes on the device), ``width`` bits each, filled with zeros."""
    digits, bits = packing.digits, packing.bits
    numbers = -(-count // digits)
    padded = -(-numbers // _NUMBERS) * _NUMBERS
    words = torch.zeros(padded * bits // 64 + 2, dtype=torch.int64, device=body.device)
    words.view(torch.uint8)[: len(body)] = body
    kind = torch.uint8 if width == 8 else torch.int16
    letters = torch.zeros(max(filled, count), dtype=kind, device=body.device)
    bad = torch.zeros(1, dtype=torch.int32, device=body.device)
    if uses_triton(body.device):
        letters_of_numbers[(padded // _NUMBERS,)](
            words, letters, bad, count, BASE=packing.letters, DIGITS=digits, BITS=bits,
            SIZE=_NUMBERS, **options(4),
        )  # fmt: skip
        is_bad = bool(bad.item())
    else:
        found, rest = _digits(words, padded, digits, bits, packing.letters)
        letters[:count] = found[:count].to(kind)
        is_bad = bool(rest.any()) or bool(found[count:].any())
    if is_bad:
        raise PayloadError("an index lies outside the codebook, or padding is not zero")
    return letters.view(torch.uint8)


def _digits(
    words: torch.Tensor, numbers: int, digits: int, bits: int, base: int
) -> tuple[torch.Tensor, torch.Tensor]:
    place = torch.arange(numbers, device=words.device) * bits
    word, shift = place // 64, place % 64
    low = _shifted_right(words[word], shift)
    high = torch.where(shift == 0, 0, words[word + 1] << ((64 - shift) % 64))
    number = low | high
    if bits < 64:
        number = number & ((1 << bits) - 1)
    columns = []
    for _ in range(digits):
        quotient = _divided(number, base)
        columns.append(number - quotient * base)
        number = quotient
    return torch.stack(columns, dim=1).reshape(-1), number


def _shifted_right(words: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Logical, not arithmetic."""
    halved = (words >> 1) & ((1 << 63) - 1)
    return torch.where(shift == 0, words, halved >> (shift - 1).clamp(min=0))


def _divided(number: torch.Tensor, base: int) -> torch.Tensor:
    """Unsigned division of 64-bit words by a small base."""
    half = ((number >> 1) & ((1 << 63) - 1)) // base * 2
    rest = number - half * base
    is_over = (rest < 0) | (rest >= base)  # below 2·base, unless the top bit is set
    return torch.where(is_over, half + 1, half)
