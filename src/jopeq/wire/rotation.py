"""A random orthogonal rotation known to all ends of a sum: signs from the seed, then Hadamard."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jopeq.random.streams import SharedStream

Array = NDArray[np.float64]

MAX_BLOCK = 1 << 16
SIGN_LANE = 1


def hadamard(values: Array) -> Array:
    """The orthonormal Walsh–Hadamard transform of a power-of-two number of entries.

    >>> hadamard(np.array([1.0, 1.0, 1.0, 1.0])).tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    return _transform(values.astype(np.float64, copy=True))


def _transform(values: Array) -> Array:
    """In place, with at most a block of extra memory."""
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


def signs(shared: SharedStream, start: int, count: int, lane: int = SIGN_LANE) -> Array:
    """±1 for the entries from ``start`` on: bit i mod 8 of byte i // 8 of a lane."""
    first, last = start // 8, -(-(start + count) // 8)
    read = shared.read(lane=lane, start=first, count=last - first)
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
