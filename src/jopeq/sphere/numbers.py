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
        is_new = np.empty(len(numbers), dtype=np.bool_)
        first = np.empty(1 << 16, dtype=np.int64)
        for chunk, places in _by_chunk(numbers):
            own = numbers[places] & 0xFFFF
            first[own[::-1]] = places[::-1]  # the last that is written stays
            bits = np.unpackbits(self._chunks.get(chunk, _NO_BITS), bitorder="little")
            is_new[places] = (bits[own] == 0) & (first[own] == places)
        return is_new

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add numbers that are new."""
        for chunk, places in _by_chunk(numbers):
            bits = np.unpackbits(self._chunk(chunk), bitorder="little")
            bits[numbers[places] & 0xFFFF] = 1
            self._chunks[chunk] = np.packbits(bits, bitorder="little")
        self.count += len(numbers)

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


def _by_chunk(numbers: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(chunk, where in ``numbers`` its numbers are, in their order)."""
    chunks = (numbers >> 16).astype(np.uint16)  # sorted by radix, in linear time
    order = np.argsort(chunks, kind="stable")
    counts = np.bincount(chunks)
    there = np.flatnonzero(counts)
    yield from zip(there.tolist(), np.split(order, np.cumsum(counts[there])[:-1]), strict=False)
