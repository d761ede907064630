"""Between entries and samples: scaling, rotation, and the cut into sub-vectors of L entries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from jopeq.random.streams import SharedStream
from jopeq.wire.entries import Entries, overlaps
from jopeq.wire.scaling import Scale

Array = NDArray[np.float64]

MAX_BLOCK = 1 << 16
SIGN_LANE = 1


# A random orthogonal rotation that both sides know: signs from the seed, then Hadamard


def blocks(count: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of each block of a row of ``count`` entries.

    >>> list(blocks(11))
    [(0, 8), (8, 10), (10, 11)]
    """
    start = 0
    while start < count:
        size = min(MAX_BLOCK, 1 << ((count - start).bit_length() - 1))
        yield start, start + size
        start += size


def hadamard(values: Array) -> Array:
    """The orthonormal Walsh–Hadamard transform of a power-of-two number of entries.

    >>> hadamard(np.array([1.0, 1.0, 1.0, 1.0])).tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    return _transform(values.astype(np.float64, copy=True))


def _transform(values: Array) -> Array:
    """The same in place: beside the values, no more than a block is in memory."""
    size = len(values)
    if size & (size - 1):
        raise ValueError(f"a Hadamard transform needs a power of two entries, got {size}")
    for start in range(0, size, MAX_BLOCK):
        block, width = values[start : start + MAX_BLOCK], 1
        while width < len(block):
            pairs = block.reshape(-1, 2, width)
            _butterfly(pairs[:, 0], pairs[:, 1])
            width *= 2
    width = MAX_BLOCK
    while width < size:
        for start in range(0, size, 2 * width):
            for left in range(start, start + width, MAX_BLOCK):
                right = left + width
                _butterfly(values[left : left + MAX_BLOCK], values[right : right + MAX_BLOCK])
        width *= 2
    values /= math.sqrt(size)
    return values


def _butterfly(left: Array, right: Array) -> None:
    """(a, b) becomes (a + b, a − b)."""
    difference = left - right
    left += right
    right[:] = difference


def signs(shared: SharedStream, start: int, count: int) -> Array:
    """±1 for the entries from ``start`` on: bit i mod 8 of byte i // 8 of the sign lane."""
    first, last = start // 8, -(-(start + count) // 8)
    read = shared.read(lane=SIGN_LANE, start=first, count=last - first)
    bits = np.unpackbits(read, bitorder="little")[start - 8 * first :][:count]
    return 1.0 - 2.0 * bits.astype(np.float64)


def _flip(values: Array, start: int, shared: SharedStream) -> Array:
    """Multiply by the signs, in place, a block at a time."""
    for first in range(0, len(values), MAX_BLOCK):
        block = values[first : first + MAX_BLOCK]
        block *= signs(shared, start + first, len(block))
    return values


def rotate_block(values: Array, start: int, shared: SharedStream) -> Array:
    """Rotate the block that begins at entry ``start``."""
    return _transform(_flip(values.astype(np.float64, copy=True), start, shared))


def unrotate_block(values: Array, start: int, shared: SharedStream) -> Array:
    """Undo ``rotate_block``, in place: the result is ``values`` itself."""
    return _flip(_transform(values), start, shared)


# Between entries and samples: scaling, rotation, and the cut into sub-vectors of L entries


class SampleReader:
    """Reads an update as scaled (and rotated) samples, chunk by chunk, from first to last."""

    def __init__(
        self, entries: Entries, scales: list[Scale], rotation: SharedStream | None
    ) -> None:
        self._entries = entries
        self._scales = scales
        self._rotation = rotation
        self._blocks = blocks(entries.count)
        self._block = (0, 0)
        self._rotated = np.empty(0)

    def read(self, first: int, last: int, dimension: int) -> Array:
        """Samples first…last; the very last one is filled up with zeros."""
        start, stop = first * dimension, min(last * dimension, self._entries.count)
        flat = np.zeros((last - first) * dimension)
        filled = self._scaled if self._rotation is None else self._turned
        flat[: stop - start] = filled(start, stop)
        return flat.reshape(-1, dimension)

    def _scaled(self, start: int, stop: int) -> Array:
        pieces, scales = list(self._entries.read(start, stop)), self._scales
        if len(scales) > 1:
            pieces = [(tensor, scales[tensor].apply(piece)) for tensor, piece in pieces]
        joined = np.concatenate([np.empty(0), *(piece for _, piece in pieces)])
        return scales[0].apply(joined) if len(scales) == 1 else joined

    def _turned(self, start: int, stop: int) -> Array:
        pieces = []
        while start < stop:
            if start >= self._block[1]:
                self._block = next(self._blocks)
                low, high = self._block
                if self._rotation is not None:
                    self._rotated = rotate_block(self._scaled(low, high), low, self._rotation)
                continue
            low, high = self._block
            end = min(stop, high)
            pieces.append(self._rotated[start - low : end - low])
            start = end
        return np.concatenate(pieces)


class SampleWriter:
    """Takes decoded samples, chunk by chunk, and gives the update back."""

    def __init__(
        self, sizes: tuple[int, ...], scales: list[Scale], rotation: SharedStream | None
    ) -> None:
        self._ends = list(accumulate(sizes))
        self._scales = scales
        self._rotation = rotation
        self._flat = np.empty(sum(sizes), dtype=np.float32)

    def write(self, first: int, samples: Array) -> None:
        """Samples from ``first`` on; zeros that filled up the last one are dropped."""
        start = first * samples.shape[1]
        values = samples.reshape(-1)[: len(self._flat) - start]
        if self._rotation is None:
            unscale(values, start, self._ends, self._scales)
        self._flat[start : start + len(values)] = values

    def finish(self) -> NDArray[np.float32]:
        """All entries, in the update's own units."""
        if self._rotation is not None:
            for start, stop in blocks(len(self._flat)):
                turned = self._flat[start:stop].astype(np.float64)
                values = unrotate_block(turned, start, self._rotation)
                unscale(values, start, self._ends, self._scales)
                self._flat[start:stop] = values
        return self._flat


def unscale(values: Array, start: int, ends: list[int], scales: list[Scale]) -> None:
    """Bring scaled entries ``start``… of tensors with these ends into the update's units."""
    if not scales:
        return
    if len(scales) == 1:
        values[:] = scales[0].undo(values)
        return
    done = 0
    for tensor, low, high in overlaps(ends, start, start + len(values)):
        piece = slice(done, done + high - low)
        values[piece] = scales[tensor].undo(values[piece])
        done = piece.stop
