"""A random orthogonal rotation that both sides know: signs from the seed, then Hadamard.

Rotated entries of any update look Gaussian, so that figures computed for Gaussian updates hold
whatever the data. The row of entries is cut into blocks of at most 2¹⁶ whose sizes are powers of
two (the binary digits of the remainder make the last ones), so that nothing is padded and the
number of entries stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jopeq.randomness import SharedStream

Array = NDArray[np.float64]

MAX_BLOCK = 1 << 16
_SIGN_LANE = 1


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
    size = len(values)
    if size & (size - 1):
        raise ValueError(f"a Hadamard transform needs a power of two entries, got {size}")
    result = values.astype(np.float64, copy=True)
    width = 1
    while width < size:
        pairs = result.reshape(-1, 2, width)
        left, right = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0] = left + right
        pairs[:, 1] = left - right
        width *= 2
    result /= math.sqrt(size)
    return result


def signs(shared: SharedStream, start: int, count: int) -> Array:
    """±1 for the entries from ``start`` on: bit i mod 8 of byte i // 8 of the sign lane."""
    first, last = start // 8, -(-(start + count) // 8)
    read = shared.read(lane=_SIGN_LANE, start=first, count=last - first)
    bits = np.unpackbits(read, bitorder="little")[start - 8 * first :][:count]
    return 1.0 - 2.0 * bits.astype(np.float64)


def rotate_block(values: Array, start: int, shared: SharedStream) -> Array:
    """Rotate the block that begins at entry ``start``."""
    return hadamard(values * signs(shared, start, len(values)))


def unrotate_block(values: Array, start: int, shared: SharedStream) -> Array:
    """Undo ``rotate_block``."""
    return hadamard(values) * signs(shared, start, len(values))
