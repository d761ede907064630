"""The set of client numbers that a sum has counted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Numbers:
    """A set of whole numbers from 0 to ``most`` − 1, a bit each."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self._bits = np.zeros(-(-most // 8), dtype=np.uint8)

    def add_one(self, number: int) -> bool:
        """Whether it is new."""
        byte, bit = number >> 3, 1 << (number & 7)
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        self.count += 1
        return True

    def are_new(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are not in the set; of the same number twice the first is."""
        is_new: NDArray[np.bool_] = (self._bits[numbers >> 3] & _bit_of(numbers)) == 0
        ordered = np.sort(numbers)
        if (ordered[1:] == ordered[:-1]).any():
            is_first = np.zeros_like(is_new)
            is_first[np.unique(numbers, return_index=True)[1]] = True
            is_new &= is_first
        return is_new

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add numbers that are new."""
        np.bitwise_or.at(self._bits, numbers >> 3, _bit_of(numbers))
        self.count += len(numbers)

    def common(self, other: Numbers) -> int:
        """How many numbers are in both sets, which have the same ``most``."""
        return int(np.unpackbits(self._bits & other._bits).sum(dtype=np.int64))

    def joined(self, other: Numbers) -> Numbers:
        """Both sets, which share no number."""
        result = Numbers(self.most)
        result._bits, result.count = self._bits | other._bits, self.count + other.count
        return result

    def to_bytes(self) -> bytes:
        """The bits up to the last number, the first in the lowest bit."""
        return self._bits.tobytes().rstrip(b"\0")

    @classmethod
    def from_bytes(cls, kept: bytes | memoryview, most: int) -> Numbers:
        result = cls(most)
        bits = np.unpackbits(np.frombuffer(kept, np.uint8), bitorder="little")
        if bits[most:].any():
            raise ValueError(f"it counts a client beyond {most}")
        result.add(np.flatnonzero(bits))
        return result


def _bit_of(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    return (1 << (numbers & 7)).astype(np.uint8)
