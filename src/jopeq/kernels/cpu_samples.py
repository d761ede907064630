"""Samples in scaled units: into the unit ball, then behind additive noise."""

from __future__ import annotations

import numpy as np

from jopeq.kernels import cpu_noise
from jopeq.kernels.native import F64, I64, U32, U64, part, read

# law, scale, nu, limit, words, extra words, key, place
NOISE = (I64, F64, F64, F64, read(U64), read(U64), read(U32), I64)
NO_NOISE, LAPLACE, STUDENT = 0, 1, 2
TOO_FAR, GAVE_UP = -1, -2  # what a kernel returns in place of a count: ``cpu_steps`` raises
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
def add_noise_to_entries(law, scale, nu, limit, words, extra, samples, rooms):
    """Noise for samples of one entry each."""
    count = len(samples)
    draws = rooms[0, :count]
    if law == LAPLACE:
        cpu_noise.laplace(words, extra, draws)
        for i in range(count):
            samples[i] = min(max(samples[i] + scale * draws[i], -limit), limit)
    else:
        cosine, sine = rooms[1, :count], rooms[2, :count]
        cpu_noise.planar_t(words, extra, nu, scale, draws, cosine, sine)
        for i in range(count):
            samples[i] = min(max(samples[i] + cosine[i] * draws[i], -limit), limit)


@part
def add_noise(law, scale, nu, limit, words, extra, more, key, place, size, samples, rooms):
    """Noise for samples ``place``…; False when its sampler gives up."""
    count = len(samples) // size
    if law == LAPLACE:
        draws = rooms[0, : len(samples)]
        cpu_noise.laplace(words, extra, draws)
        for i in range(len(samples)):
            samples[i] += scale * draws[i]
    elif size <= 2:
        radius, cosine, sine = rooms[0, :count], rooms[1, :count], rooms[2, :count]
        cpu_noise.planar_t(words, extra, nu, scale, radius, cosine, sine)
        for i in range(count):
            samples[size * i] += cosine[i] * radius[i]
            if size == 2:
                samples[2 * i + 1] += sine[i] * radius[i]
    else:
        draws = rooms[0, : len(samples)]
        radius = rooms[1, : len(samples) // 2]
        cpu_noise.normal(words, extra, key, place * size, radius, draws)
        gammas = rooms[1, :count]
        if not cpu_noise.gamma(0.5 * nu, more, key, place, gammas):
            return False
        for i in range(count):
            factor = np.sqrt(nu / (2.0 * gammas[i])) * scale
            for j in range(size * i, size * (i + 1)):
                samples[j] += draws[j] * factor
    for i in range(len(samples)):
        samples[i] = min(max(samples[i], -limit), limit)
    return True


@part
def words_per_sample(law, size):
    """64-bit words of lane 0."""
    return 2 if law == STUDENT and size == 1 else size
