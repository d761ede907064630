"""Standard noise from key stream words, one block of samples at a time, so that loops vectorise.

``extra`` are the words of the extra lane at the same places. They are always read, so that reading
them does not tell which draws need them.
"""

from __future__ import annotations

import numpy as np

from jopeq.kernels.cpu import portable
from jopeq.kernels.cpu.chacha import start_state, word64
from jopeq.kernels.cpu.native import as_bits, as_float, leading_zeros, part
from jopeq.random.samplers import DEEP, EXTRA_LANE, FAR_WORDS, GAMMA_LANE, MAX_ATTEMPTS, NEXT_LANE

_TOP_BIT = np.uint64(1 << 63)
_MOST_ZEROS = 12 + 64 * FAR_WORDS - 1


@part
def laplace(words, extra, draws):
    """Standard Laplace draws."""
    for i in range(len(draws)):
        word = words[i]
        bits = as_bits(portable.log_uniform(word, _zeros(word, extra[i])))
        draws[i] = as_float(bits ^ (~word & _TOP_BIT))  # ln u, or its opposite


@part
def _zeros(word, extra):
    """How many zeros the fine uniform of a word starts with."""
    bits = portable.exponent_bits(word)
    goes_on = bits == 0
    counted = extra if goes_on else bits << np.uint64(52)  # chosen first, since counting is slow
    return min(leading_zeros(counted) + (12 if goes_on else 0), 75)


@part
def far_zeros(state, lane, place):
    """The extra word being zero as well, the count goes on in up to three more."""
    zeros = 76
    for number in range(1, FAR_WORDS):
        state[31] = np.uint32((EXTRA_LANE | lane) + number * NEXT_LANE)
        word = word64(state, place)
        zeros += leading_zeros(word)
        if word != 0:
            break
    return min(zeros, _MOST_ZEROS)


@part
def exponential(words, extra, stride, draws):
    """Standard exponential draws from every ``stride``-th word."""
    for i in range(len(draws)):
        word = words[stride * i]
        draws[i] = -portable.log_uniform(word, _zeros(word, extra[stride * i]))


@part
def planar_t(words, extra, nu, scale, radius, cosine, sine):
    """Points of the plane under the t law: one a pair of words, as radius·(cosine, sine)."""
    exponential(words, extra, 2, radius)
    slope = 2.0 / nu
    for i in range(len(radius)):
        radius[i] = np.sqrt(nu * portable.expm1(radius[i] * slope)) * scale
    for i in range(len(radius)):
        cosine[i], sine[i] = portable.circle(words[2 * i + 1])


@part
def normal(words, extra, key, place, radius, draws):
    """As many normals as words, by Box–Muller; ``radius`` is a buffer of half as many.

    Word i is word ``place + i`` of lane 0.
    """
    exponential(words, extra, 2, radius)
    for i in range(len(radius)):
        word = words[2 * i]
        if extra[2 * i] == 0 and portable.exponent_bits(word) == 0:  # one draw in 2⁷⁶
            zeros = far_zeros(start_state(key, 0), 0, place + 2 * i)
            radius[i] = -portable.log_uniform(word, zeros)
        root = np.sqrt(2.0 * radius[i])
        cosine, sine = portable.circle(words[2 * i + 1])
        draws[2 * i] = root * cosine
        draws[2 * i + 1] = root * sine


@part
def _try_gamma(d, c, first, second, third, key, lane, place):
    """Marsaglia and Tsang's step: a gamma, or −1 when it is rejected."""
    uniform = portable.unit(first)
    if first < DEEP:  # one draw in 2⁵⁴
        more = portable.unit(word64(start_state(key, EXTRA_LANE | lane), place))
        uniform = (np.float64(first) + more) * 2.0**-64
    radius = np.sqrt(-2.0 * portable.log(uniform))
    z = radius * portable.circle(second)[0]
    root = 1.0 + c * z
    v = root * root * root
    if not v > 0.0:
        return -1.0
    limit = 0.5 * z * z + d - d * v + d * portable.log(v)
    return d * v if portable.log(portable.unit(third)) < limit else -1.0


@part
def gamma(shape, words, key, place, draws):
    """Gamma(shape) for samples ``place``…, from the four words each has in lane 1; else lane 2…

    False when a sample is rejected ever again: then the stream is not random.
    """
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    for i in range(len(draws)):
        at = 4 * (place + i)
        draw = _try_gamma(
            d, c, words[4 * i], words[4 * i + 1], words[4 * i + 2], key, GAMMA_LANE, at
        )
        attempt = 1
        while draw < 0.0:
            if attempt == MAX_ATTEMPTS:
                return False
            lane = GAMMA_LANE + attempt
            state = start_state(key, lane)
            first, second, third = word64(state, at), word64(state, at + 1), word64(state, at + 2)
            draw = _try_gamma(d, c, first, second, third, key, lane, at)
            attempt += 1
        draws[i] = draw
    return True
