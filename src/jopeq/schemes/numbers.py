"""The set of client numbers that a sum has counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NO_BITS = np.zeros(1 << 13, dtype=np.uint8)
_NO_BITS.flags.writeable = False


class Numbers:
    """A set of numbers below 2³², a bit each, in chunks of 2¹⁶."""

    def __init__(self) -> None:
        self._chunks: dict[int, NDArray[np.uint8]] = {}
        self.count = 0

    def add_one(self, number: int) -> bool:
        """Whether it is new."""
        bits, byte, bit = self._chunk(number >> 16), (number & 0xFFFF) >> 3, 1 << (number & 7)
        if bits[byte] & bit:
            return False
        bits[byte] |= bit
        self.count += 1
        return True

    def are_new(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are not in the set; of the same number twice the first is."""
        different, places = np.unique(numbers, return_index=True)
        is_new = np.zeros(len(numbers), dtype=np.bool_)
        for chunk, own, here in self._by_chunk(different):
            bits = np.unpackbits(self._chunks.get(chunk, _NO_BITS), bitorder="little")
            is_new[places[here]] = bits[own] == 0
        return is_new

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add numbers that are new."""
        for chunk, own, _ in self._by_chunk(np.sort(numbers)):
            bits = np.unpackbits(self._chunk(chunk), bitorder="little")
            bits[own] = 1
            self._chunks[chunk] = np.packbits(bits, bitorder="little")
        self.count += len(numbers)

    def _by_chunk(
        self, numbers: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], slice]]:
        """(chunk, places in it, where in ``numbers``, which are sorted)."""
        chunks, starts = np.unique(numbers >> 16, return_index=True)
        ends = [*starts[1:].tolist(), len(numbers)]
        for chunk, start, end in zip(chunks.tolist(), starts.tolist(), ends, strict=False):
            yield chunk, numbers[start:end] & 0xFFFF, slice(start, end)

    def _chunk(self, chunk: int) -> NDArray[np.uint8]:
        return self._chunks.setdefault(chunk, np.zeros(1 << 13, dtype=np.uint8))

    def common(self, other: Numbers) -> int:
        shared = self._chunks.keys() & other._chunks.keys()
        return sum(
            int(np.unpackbits(self._chunks[chunk] & other._chunks[chunk]).sum()) for chunk in shared
        )

    def joined(self, other: Numbers) -> Numbers:
        """Both sets, which share no number."""
        result = Numbers()
        for chunk in self._chunks.keys() | other._chunks.keys():
            own, more = (numbers._chunks.get(chunk, _NO_BITS) for numbers in (self, other))
            result._chunks[chunk] = own | more
        result.count = self.count + other.count
        return result

    def as_arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        chunks = sorted(self._chunks)
        bits = [self._chunks[chunk] for chunk in chunks]
        return np.array(chunks, dtype=np.int64), np.array(bits, dtype=np.uint8)

    @classmethod
    def from_arrays(cls, chunks: NDArray[Any], bits: NDArray[Any]) -> Numbers:
        result = cls()
        result._chunks = {int(chunk): own.copy() for chunk, own in zip(chunks, bits, strict=True)}
        result.count = int(np.unpackbits(bits).sum(dtype=np.int64))
        return result
