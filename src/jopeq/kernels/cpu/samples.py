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
    """As ``scale_samples``, moved into [−1, 1]; how many had to be."""
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


# law, scale, nu, limit, words, key, place, more words
NOISE = (I64, F64, F64, F64, read(U64), read(U32), I64, read(U64))
NO_NOISE, LAPLACE, STUDENT = 0, 1, 2
TOO_FAR, GAVE_UP = -1, -2  # what a kernel returns in place of a count: ``steps`` raises
_SHRINK = 1.0 - 1e-12


@part
def into_ball(samples, size):
    """Move samples radially into the unit ball; how many had to be."""
    moved = 0
    if size == 1:
        for i in range(len(samples)):
            inside = min(max(samples[i], -1.0), 1.0)
            moved += inside != samples[i]
            samples[i] = inside
        return moved
    for first in range(0, len(samples), size):
        total = 0.0
        for i in range(first, first + size):
            total += samples[i] * samples[i]
        norm = np.sqrt(total)
        if norm > 1.0:
            moved += 1
            factor = _SHRINK / norm
            for i in range(first, first + size):
                samples[i] *= factor
    return moved


@part
def _cut(value, limit):
    return min(max(value, -limit), limit)


@part
def add_noise(law, scale, nu, limit, words, more, key, place, size, samples, buffers):
    """Noise for samples ``place``…; False when its sampler gives up."""
    count, at = len(samples) // size, place * words_per_sample(law, size)
    if law == LAPLACE:
        draws = buffers[0, : len(samples)]
        noise.laplace(words, key, at, draws)
        for i in range(len(samples)):
            samples[i] = _cut(samples[i] + scale * draws[i], limit)
    elif size <= 2:
        radius, cosine, sine = buffers[0, :count], buffers[1, :count], buffers[2, :count]
        noise.planar_t(words, key, at, nu, scale, radius, cosine, sine)
        for i in range(count):
            samples[size * i] = _cut(samples[size * i] + cosine[i] * radius[i], limit)
            if size == 2:
                samples[2 * i + 1] = _cut(samples[2 * i + 1] + sine[i] * radius[i], limit)
    else:
        draws = buffers[0, : len(samples)]
        radius = buffers[1, : len(samples) // 2]
        noise.normal(words, key, at, radius, draws)
        gammas = buffers[1, :count]
        if not noise.gamma(0.5 * nu, more, key, place, gammas):
            return False
        for i in range(count):
            factor = np.sqrt(nu / (2.0 * gammas[i])) * scale
            for j in range(size * i, size * (i + 1)):
                samples[j] = _cut(samples[j] + draws[j] * factor, limit)
    return True


@part
def words_per_sample(law, size):
    """64-bit words of lane 0."""
    return 2 if law == STUDENT and size == 1 else size
