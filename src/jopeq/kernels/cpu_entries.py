"""Entries on their way into a kernel, scaled, and out of it, in the update's units."""

from __future__ import annotations

import numpy as np

from jopeq.kernels.native import F32, F64, as_bits32, part, read

SOURCE = (read(F32), read(F64), F64, F64)  # narrow, wide, mean, inverse
INFINITE = np.int32(0x7F800000)  # the least magnitude that is no number of float32


@part
def scaled(narrow, wide, first, mean, inverse, samples):
    """Entries ``first``… in scaled units, from whichever of the two arrays holds them."""
    count = len(samples)
    if len(narrow):
        source = narrow[first : first + count]
        for i in range(count):
            samples[i] = (np.float64(source[i]) - mean) * inverse
    else:
        wider = wide[first : first + count]
        for i in range(count):
            samples[i] = (wider[i] - mean) * inverse


@part
def scaled_and_clipped(narrow, wide, first, mean, inverse, samples):
    """The same, moved into [−1, 1]; how many had to be."""
    count, clipped = len(samples), 0
    if len(narrow):
        source = narrow[first : first + count]
        for i in range(count):
            value = (np.float64(source[i]) - mean) * inverse
            inside = min(max(value, -1.0), 1.0)
            clipped += inside != value
            samples[i] = inside
    else:
        wider = wide[first : first + count]
        for i in range(count):
            value = (wider[i] - mean) * inverse
            inside = min(max(value, -1.0), 1.0)
            clipped += inside != value
            samples[i] = inside
    return clipped


@part
def magnitude(value):
    """An integer that grows with |value|; those of inf and NaN are beyond all others.

    The largest of integers is found in vectors, the largest of floats one by one.
    """
    return as_bits32(value) & np.int32(0x7FFFFFFF)


@part
def finish(samples, first, unit, mean, wide, narrow):
    """Write samples in the update's units, or as they are into ``wide``; the largest magnitude."""
    size = len(samples)
    largest = np.int32(0)
    if len(wide):
        wider = wide[first : first + size]
        for i in range(size):
            wider[i] = samples[i]
        return largest
    into = narrow[first : first + size]
    for i in range(size):
        value = np.float32(samples[i] * unit + mean)
        into[i] = value
        largest = max(largest, magnitude(value))
    return largest
