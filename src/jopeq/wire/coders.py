"""Coders turn the letters of samples into the body of a payload, a chunk at a time.

``Packing`` writes letters of a K-letter alphabet as numbers in mixed radix: n letters are the
digits, least significant first, of a number below Kⁿ, in b = ⌈n·log₂K⌉ ≤ 64 bits. n minimises the
bits per letter: K = 2ᵏ costs exactly k bits, K = 5 costs 63/27 = 2.33 bits instead of 3. Numbers
follow each other without gaps, least significant bit first; the last, partial one takes only the
bits that its digits need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count, takewhile
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PayloadError

Integers = NDArray[np.integer[Any]]

_CHUNK_SAMPLES = 1 << 16  # more would leave the second-level cache, fewer pay for the calls


class Coder(Protocol):
    """Letters of samples ↔ bytes. Every chunk except the last has ``chunk`` samples."""

    @property
    def chunk(self) -> int: ...

    @property
    def bits_per_letter(self) -> float: ...

    def check(self, body_bytes: int, samples: int) -> None:
        """Raise ``PayloadError`` unless so many bytes can hold so many samples."""

    def encode(self, letters: NDArray[Any]) -> bytes: ...

    def decode(self, body: memoryview, first: int, samples: int) -> NDArray[Any]:
        """The letters of samples ``first``…; first begins a chunk of ``encode``."""


@lru_cache(maxsize=256)
def _group(letters: int) -> tuple[int, int]:
    """(n, b): digits per number and bits per number."""
    sizes = ((digits, (letters**digits - 1).bit_length()) for digits in count(1))
    options = takewhile(lambda size: size[1] <= 64, sizes)
    return min(options, key=lambda size: (size[1] / size[0], -size[0]))


@lru_cache(maxsize=1024)
def _size(letters: int, count: int) -> int:
    digits, bits = _group(letters)
    whole, rest = divmod(count, digits)
    last = int(letters**rest - 1).bit_length()
    return (whole * bits + last + 7) // 8


@dataclass(frozen=True)
class Packing:
    """One letter of an alphabet 0…K−1 per sample, at a fixed rate.

    >>> Packing(5).bits_per_letter
    2.3333333333333335
    >>> packed = Packing(3).encode(np.array([0, 1, 2, 2, 1]))
    >>> len(packed), Packing(3).unpack(packed, 5).tolist()
    (1, [0, 1, 2, 2, 1])
    """

    letters: int

    def __post_init__(self) -> None:
        if not 2 <= self.letters <= 1 << 63:
            raise ValueError(f"letters must be between 2 and 2⁶³, got {self.letters}")

    @cached_property
    def digits(self) -> int:
        """Letters in one number."""
        return _group(self.letters)[0]

    @property
    def bits(self) -> int:
        """Bits of one number."""
        return _group(self.letters)[1]

    @property
    def bits_per_letter(self) -> float:
        return self.bits / self.digits

    @cached_property
    def block(self) -> int:
        """Letters that fill a whole number of 64-bit words."""
        return 64 * self.digits

    def size(self, count: int) -> int:
        """Bytes that ``count`` letters take."""
        return _size(self.letters, count)

    @cached_property
    def chunk(self) -> int:
        return self.block * -(-_CHUNK_SAMPLES // self.block)

    def check(self, body_bytes: int, samples: int) -> None:
        if body_bytes != (expected := self.size(samples)):
            raise PayloadError(
                f"{samples} samples, as the header claims, take {expected} bytes; "
                f"the body has {body_bytes}"
            )

    def encode(self, letters: Integers) -> bytes:
        """The bytes of these letters."""
        if self.width in (8, 16):
            return letters.astype(f"<u{self.width // 8}").tobytes()
        if 0 < self.width < 8:
            return self._encode_bits(letters)
        digits, bits = _group(self.letters)
        count = -(-len(letters) // self.block) * self.block
        padded = np.zeros(count, dtype=np.uint64)
        padded[: len(letters)] = letters
        rows = padded.reshape(-1, digits)
        numbers = rows[:, -1].copy()
        for column in reversed(range(digits - 1)):
            numbers *= np.uint64(self.letters % (1 << 64))
            numbers += rows[:, column]
        words = np.zeros((len(numbers) // 64, bits), dtype="<u8")
        for slot, numbers_there in enumerate(numbers.reshape(-1, 64).T):
            word, shift = divmod(slot * bits, 64)
            words[:, word] |= numbers_there << np.uint64(shift)
            if shift + bits > 64:
                words[:, word + 1] |= numbers_there >> np.uint64(64 - shift)
        return words.tobytes()[: self.size(len(letters))]

    def unpack(self, packed: bytes | memoryview, count: int) -> Integers:
        """The ``count`` letters in these bytes; raises if ``encode`` cannot have made them."""
        self.check(len(packed), count)
        return self.decode(memoryview(packed), 0, count)

    def decode(self, body: memoryview, first: int, samples: int) -> Integers:
        start = self.size(first)
        packed = body[start : start + self.size(samples)]
        decode = self._decode_bits if self.width else self._decode_numbers
        return decode(packed, samples)

    def _decode_numbers(self, packed: memoryview, count: int) -> Integers:
        digits, bits = _group(self.letters)
        blocks = -(-count // self.block)
        padded = np.zeros(8 * blocks * bits, dtype=np.uint8)
        padded[: len(packed)] = np.frombuffer(packed, dtype=np.uint8)
        words = padded.view("<u8").reshape(blocks, bits)
        numbers = np.empty((blocks, 64), dtype=np.uint64)
        mask = np.uint64((1 << bits) - 1)
        for slot in range(64):
            word, shift = divmod(slot * bits, 64)
            value = words[:, word] >> np.uint64(shift)
            if shift + bits > 64:
                value = value | (words[:, word + 1] << np.uint64(64 - shift))
            numbers[:, slot] = value & mask
        rest = numbers.reshape(-1)
        indices = np.empty((len(rest), digits), dtype=np.min_scalar_type(self.letters - 1))
        base = np.uint64(self.letters % (1 << 64))
        for column in range(digits):
            quotient = rest // base
            indices[:, column] = rest - quotient * base
            rest = quotient
        flat = indices.reshape(-1)
        if rest.any() or flat[count:].any():
            raise PayloadError("an index lies outside the codebook, or padding is not zero")
        return flat[:count]

    # A power of two needs no radix: its numbers are the letters' bits, one letter after the other

    @cached_property
    def width(self) -> int:
        """Bits of a letter when K is a power of two of at most 16 bits, else 0."""
        width = self.letters.bit_length() - 1
        return width if self.letters == 1 << width and width <= 16 else 0

    @cached_property
    def _together(self) -> int:
        """Letters of less than a byte that fill whole bytes together."""
        return 8 // math.gcd(8, self.width)

    def _encode_bits(self, indices: Integers) -> bytes:
        group = self._together
        letters = np.zeros(-(-len(indices) // group) * group, dtype=np.uint8)
        letters[: len(indices)] = indices
        words = letters.view(f"<u{group}")  # letters side by side, moved together by halving
        for low, high, gap in self._moves:
            words = (words & low) | ((words >> gap) & high)
        if group * self.width == 8:
            return words.astype(np.uint8).tobytes()
        packed = words.view(np.uint8).reshape(-1, group)[:, : group * self.width // 8]
        return packed.tobytes()[: self.size(len(indices))]

    @cached_property
    def _moves(self) -> list[tuple[Any, ...]]:
        """Masks of the first and second 2ᵈ letters of 2ᵈ⁺¹ after the move, and its length."""
        moves, word = [], np.dtype(f"<u{self._together}").type
        for doubling in range(self._together.bit_length() - 1):
            size, place = self.width << doubling, 8 << doubling
            low = sum(((1 << size) - 1) << at for at in range(0, 8 * self._together, 2 * place))
            moves.append((word(low), word(low << size), word(place - size)))
        return moves

    def _decode_bits(self, packed: memoryview, count: int) -> Integers:
        read = np.frombuffer(packed, dtype=np.uint8)
        if self.width in (8, 16):
            return read.view(f"<u{self.width // 8}")
        unused = 8 * len(packed) - count * self.width
        if unused and packed[-1] >> (8 - unused):
            raise PayloadError("an index lies outside the codebook, or padding is not zero")
        if self.width > 8:
            bits = np.unpackbits(read, bitorder="little", count=count * self.width)
            rows = bits.reshape(count, self.width)
            letters = rows[:, 0].astype(np.uint16)
            for place in range(1, self.width):
                letters |= rows[:, place].astype(np.uint16) << np.uint16(place)
            return letters
        group = self._together
        if group * self.width == 8:
            words = read.astype(f"<u{group}")
        else:
            spread = np.zeros((-(-count // group), group), dtype=np.uint8)
            size = group * self.width // 8
            whole = len(read) // size
            spread[:whole, :size] = read[: whole * size].reshape(-1, size)
            if whole < len(spread):
                rest = read[whole * size :]
                spread[whole, : len(rest)] = rest
            words = spread.view(f"<u{group}")[:, 0]
        for low, high, gap in reversed(self._moves):
            words = (words & low) | ((words & high) << gap)
        return words.view(np.uint8)[:count]


@dataclass(frozen=True)
class WordCoder:
    """``dimension`` little-endian 32-bit words per sample: floats or integers as they are."""

    dimension: int
    dtype: str  # "<f4" or "<i4"

    @property
    def bits_per_letter(self) -> float:
        return 32.0 * self.dimension

    @property
    def chunk(self) -> int:
        return max(1, _CHUNK_SAMPLES // self.dimension)

    def check(self, body_bytes: int, samples: int) -> None:
        if body_bytes != 4 * samples * self.dimension:
            raise PayloadError(f"the header claims {samples} samples in {body_bytes} bytes")

    def encode(self, letters: NDArray[Any]) -> bytes:
        return letters.astype(self.dtype).tobytes()

    def decode(self, body: memoryview, first: int, samples: int) -> NDArray[Any]:
        start, stop = (4 * self.dimension * place for place in (first, first + samples))
        words = np.frombuffer(body[start:stop], dtype=self.dtype)
        if words.dtype.kind == "f" and not np.isfinite(words).all():
            raise PayloadError("the body holds an entry that is not finite")
        return words.reshape(samples, self.dimension)
