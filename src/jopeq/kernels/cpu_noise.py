"""Standard noise from key stream words, one block of samples at a time, so that loops vectorise."""

from __future__ import annotations

import numpy as np

from jopeq.kernels import cpu_math
from jopeq.kernels.cpu_chacha import start_state, word64
from jopeq.kernels.native import as_bits, as_float, part
from jopeq.samplers import _EXTRA_LANE, _GAMMA_LANE, _MAX_ATTEMPTS

_TOP_BIT = np.uint64(1 << 63)
_PIECE = 256  # draws after which a look is worth it whether a rare one is among them


@part
def laplace(words, key, lane, place, draws):
    """Standard Laplace draws; word i is word ``place + i`` of the lane."""
    for first in range(0, len(draws), _PIECE):
        last = min(first + _PIECE, len(draws))
        _laplace(words[first:last], key, lane, place + first, draws[first:last])


@part
def _laplace(words, key, lane, place, draws):
    rare = 0
    for i in range(len(draws)):
        word = words[i]
        rare += cpu_math.exponent_bits(word) == np.uint64(0)
        draws[i] = _signed(word, cpu_math.zeros_of(word))
    if rare:  # one in 4096 draws
        state = start_state(key, _EXTRA_LANE | lane)
        for i in range(len(draws)):
            if cpu_math.exponent_bits(words[i]) == 0:
                zeros = cpu_math.zeros_beyond(word64(state, place + i))
                draws[i] = _signed(words[i], zeros)


@part
def _signed(word, zeros):
    """ln u, or its opposite when the top bit of the word is not set."""
    bits = as_bits(cpu_math.log_uniform(word, zeros))
    return as_float(bits ^ (~word & _TOP_BIT))


@part
def exponential(words, stride, key, lane, place, draws):
    """Standard exponential draws from every ``stride``-th word."""
    rare = 0
    for i in range(len(draws)):
        word = words[stride * i]
        rare += cpu_math.exponent_bits(word) == np.uint64(0)
        draws[i] = -cpu_math.log_uniform(word, cpu_math.zeros_of(word))
    if rare:
        state = start_state(key, _EXTRA_LANE | lane)
        for i in range(len(draws)):
            word = words[stride * i]
            if cpu_math.exponent_bits(word) == 0:
                extra = word64(state, place + stride * i)
                draws[i] = -cpu_math.log_uniform(word, cpu_math.zeros_beyond(extra))


@part
def planar_t(words, key, place, nu, scale, radius, cosine, sine):
    """Points of the plane under the t law: one a pair of words, as radius·(cosine, sine)."""
    exponential(words, 2, key, 0, place, radius)
    slope = 2.0 / nu
    for i in range(len(radius)):
        radius[i] = np.sqrt(nu * cpu_math.expm1(radius[i] * slope)) * scale
    for i in range(len(radius)):
        cosine[i], sine[i] = cpu_math.circle(words[2 * i + 1])


@part
def normal(words, key, place, radius, draws):
    """As many normals as words, by Box–Muller; ``radius`` is room for half as many."""
    exponential(words, 2, key, 0, place, radius)
    for i in range(len(radius)):
        root = np.sqrt(2.0 * radius[i])
        cosine, sine = cpu_math.circle(words[2 * i + 1])
        draws[2 * i] = root * cosine
        draws[2 * i + 1] = root * sine


@part
def _try_gamma(d, c, first, second, third):
    """Marsaglia and Tsang's step: a gamma, or −1 when it is rejected."""
    radius = np.sqrt(-2.0 * cpu_math.log(cpu_math.unit(first)))
    z = radius * cpu_math.circle(second)[0]
    root = 1.0 + c * z
    v = root * root * root
    if not v > 0.0:
        return -1.0
    limit = 0.5 * z * z + d - d * v + d * cpu_math.log(v)
    return d * v if cpu_math.log(cpu_math.unit(third)) < limit else -1.0


@part
def gamma(shape, words, key, place, draws):
    """Gamma(shape) for samples ``place``…, from the four words each has in lane 1; else lane 2…

    False when a sample is rejected ever again: then the stream is not random.
    """
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    for i in range(len(draws)):
        draw = _try_gamma(d, c, words[4 * i], words[4 * i + 1], words[4 * i + 2])
        attempt = 1
        while draw < 0.0:
            if attempt == _MAX_ATTEMPTS:
                return False
            state = start_state(key, _GAMMA_LANE + attempt)
            first = 4 * (place + i)
            draw = _try_gamma(
                d, c, word64(state, first), word64(state, first + 1), word64(state, first + 2)
            )
            attempt += 1
        draws[i] = draw
    return True
