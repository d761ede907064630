"""Shares of private sums: the public rotation, integers mod 2^bits, their totals.

**Rotation.** p = 2^⌊log2 d⌋. Signs and Hadamard over the first p entries, then over the last p.
Each turned coordinate is a sum of terms ±a_i with independent signs and Σa_i² ≤ ‖h‖²/p.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.checks import check_count
from jopeq.kernels.recipe import Layers
from jopeq.noise.gaussian_rounding import DRAW_LANE
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.entries import READ_CHUNK
from jopeq.wire.rotation import rotate_block, unrotate_block

Array = NDArray[np.float64]

MAX_ENTRIES = 1 << 31


# Terms


def check_clients(scheme: Any, clients: int | None) -> int:
    """The number of clients in a sum, by default all of the scheme's."""
    count = scheme.clients if clients is None else clients
    return check_count("clients", count, scheme.threshold, scheme.clients)


def check_dimension(dimension: int) -> int:
    """``dimension`` as an int that a share can have."""
    return check_count("dimension", dimension, 1, MAX_ENTRIES - 1)


# Rotation


def layers(dimension: int) -> Layers:
    """Each block that is turned."""
    size = 1 << (dimension.bit_length() - 1)
    first, second = (0, size, 0), (dimension - size, dimension, size)
    return (first, second) if size < dimension else (first,)


def rotate(values: NDArray[Any], factor: float, shared: SharedStream) -> Array:
    """factor·values, turned: a row of any length, of floats or integers."""
    kernels.note(len(values))
    turned, blocks = np.empty(len(values)), layers(len(values))
    if kernels.are_loaded():
        kernels.cpu.rotate(values, factor, blocks, shared, turned)
        return turned
    np.multiply(values, factor, out=turned, dtype=np.float64)  # of float32 too
    for first, last, start in blocks:
        turned[first:last] = rotate_block(turned[first:last], start, shared)
    return turned


def rotate_back(values: Array, shared: SharedStream) -> None:
    """Undo ``rotate``, in place."""
    kernels.note(len(values))
    is_compiled = kernels.are_loaded()
    for first, last, start in reversed(layers(len(values))):
        turn = kernels.cpu.unrotate if is_compiled else unrotate_block
        turn(values[first:last], start, shared)


# Shares and totals


def draw_share(plan: Any, places: NDArray[np.int64], private: PrivateStream) -> NDArray[Any]:
    """The share: an integer about each place, mod 2^bits."""
    share = np.empty(len(places), dtype=plan.dtype)
    for start in range(0, len(places), READ_CHUNK):
        here = places[start : start + READ_CHUNK]
        words = private.words64(lane=DRAW_LANE, start=start, count=len(here))
        share[start : start + len(here)] = plan.law.draw(here, words) & ((1 << plan.bits) - 1)
    return share


def is_uniform(values: Array, bits: int) -> bool:
    """True if centred integers mod 2^bits fill the ring evenly: one missing mask makes them.

    A quarter of uniform integers lies in the outer quarter of the ring, within six deviations. Up
    to 108 integers are too few to say.
    """
    outer, count = int(np.count_nonzero(8 * np.abs(values) >= 3 << bits)), len(values)
    slack = 6.0 * math.sqrt(3.0 * count) / 4.0
    return slack < count / 4.0 <= outer + slack


def centre(total: Any, bits: int, length: int) -> Array:
    """A total of ``length`` integers mod 2^bits, each as the number nearest to 0."""
    sums = np.asarray(total)
    if sums.dtype.kind not in "iu" or sums.shape != (length,):
        raise ValueError(f"total must be {length} integers, got {sums.dtype} of shape {sums.shape}")
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    found = ((sums.astype(np.int64) + half) & mask) - half
    return found.astype(np.float64)
