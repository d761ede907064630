"""Entries scaled to samples, into the unit ball, behind noise; samples back to entries."""

from __future__ import annotations

import numpy as np

from jopeq.kernels.cpu import noise
from jopeq.kernels.cpu.native import F32, F64, I64, U32, U64, as_bits32, part, read

SOURCE = (read(F32), read(F64), F64, F64)  # narrow, wide, mean, inverse
INFINITE = np.int32(0x7F800000)  # the least magnitude that is no number of float32


@part
def _scale(entries, mean, inverse, samples):
    for i in range(len(samples)):
        samples[i] = (np.float64(entries[i]) - mean) * inverse


@part
def scale_samples(narrow, wide, first, mean, inverse, samples):
    """Entries ``first``… in scaled units, from whichever of the two arrays holds them."""
    last = first + len(samples)
    if len(narrow):
        _scale(narrow[first:last], mean, inverse, samples)
    else:
        _scale(wide[first:last], mean, inverse, samples)


@part
def _scale_and_clip(entries, mean, inverse, samples):
    clipped = 0
    for i in range(len(samples)):
        value = (np.float64(entries[i]) - mean) * inverse
        inside = min(max(value, -1.0), 1.0)
        clipped += inside != value
        samples[i] = inside
    return clipped


@part
def scale_and_clip(narrow, wide, first, mean, inverse, samples):
    """``scale_samples``, moved into [−1, 1]; how many had to be."""
    last = first + len(samples)
    if len(narrow):
        return _scale_and_clip(narrow[first:last], mean, inverse, samples)
    return _scale_and_clip(wide[first:last], mean, inverse, samples)


@part
def _magnitude(value):
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
        into[i] = np.float32(samples[i] * unit + mean)
    for i in range(size):  # on their own, eight magnitudes make a vector
        largest = max(largest, _magnitude(into[i]))
    return largest


# law, scale, nu, limit, words, key, place
NOISE = (I64, F64, F64, F64, read(U64), read(U32), I64)
NO_NOISE, LAPLACE, STUDENT = 0, 1, 2
_SHRINK = 1.0 - 1e-12


@part
def into_ball(samples):
    """Move pairs radially into the unit disc; how many had to be."""
    moved = 0
    for first in range(0, len(samples), 2):
        x, y = samples[first], samples[first + 1]
        norm = np.sqrt(x * x + y * y)
        if norm > 1.0:
            moved += 1
            factor = _SHRINK / norm
            samples[first] = x * factor
            samples[first + 1] = y * factor
    return moved


@part
def _cut(value, limit):
    return min(max(value, -limit), limit)


@part
def add_noise(law, scale, nu, limit, words, key, place, size, samples, buffers):
    """Noise for samples ``place``… of one entry or two."""
    count, at = len(samples) // size, place * words_per_sample(law, size)
    if law == LAPLACE:
        draws = buffers[0, : len(samples)]
        noise.laplace(words, key, at, draws)
        for i in range(len(samples)):
            samples[i] = _cut(samples[i] + scale * draws[i], limit)
    else:
        radius, cosine, sine = buffers[0, :count], buffers[1, :count], buffers[2, :count]
        noise.planar_t(words, key, at, nu, scale, radius, cosine, sine)
        for i in range(count):
            samples[size * i] = _cut(samples[size * i] + cosine[i] * radius[i], limit)
            if size == 2:
                samples[2 * i + 1] = _cut(samples[2 * i + 1] + sine[i] * radius[i], limit)


@part
def words_per_sample(law, size):
    """64-bit words of lane 0."""
    return 2 if law == STUDENT and size == 1 else size
