"""Exponential noise on a lattice, one point at a time: drawn from a list, or by rejection.

``listed_noise`` and ``lattice_noise`` are repeated here rounding by rounding.
"""

from __future__ import annotations

import numpy as np

from jopeq.kernels.cpu import cells as cpu_cells
from jopeq.kernels.cpu import math as cpu_math
from jopeq.kernels.cpu.chacha import block
from jopeq.kernels.cpu.native import part
from jopeq.kernels.cpu.noise import far_zeros
from jopeq.noise.on_lattice import _LANES_PER_ATTEMPT, _MAX_ATTEMPTS
from jopeq.random.samplers import _EXTRA_LANE


@part
def _enter(state, lane, counter):
    state[31] = np.uint32(lane)
    block(state, counter)


@part
def _word(state, place):
    low = 2 * (place % 8)
    return np.uint64(state[low]) | (np.uint64(state[low + 1]) << np.uint64(32))


@part
def _exponential(word, extra, lane, place):
    zeros = cpu_math.zeros_of(word)
    if cpu_math.exponent_bits(word) == 0:
        _enter(extra, _EXTRA_LANE | lane, place // 8)
        more = _word(extra, place)
        zeros = cpu_math.zeros_beyond(more) if more else far_zeros(extra, lane, place)
    return -cpu_math.log_uniform(word, zeros)


@part
def draw(
    decay, covering, turns, lengths, chances, sample, at, basis, unbasis, states, k, rooms, rows
):
    """Basis coordinates of one point of exponential noise on the lattice; False to give up.

    A sample's words of one lane lie in one block. Those of the first attempt are in the three
    buffers, at ``at``; later ones are computed.
    """
    size = len(k)
    y, frame, near, room = rooms[0], rooms[1], rooms[2], rooms[3]
    for attempt in range(_MAX_ATTEMPTS):
        lane = _LANES_PER_ATTEMPT * attempt
        if attempt:
            _enter(states[0], lane, sample * size // 8)
            _enter(states[1], lane + 1, sample * size // 8)
            _enter(states[2], lane + 2, sample // 8)
        radius, root = 0.0, 0.0
        for j in range(size):
            place = sample * size + j
            turn = _word(states[0], place) if attempt else turns[at * size + j]
            length = _word(states[1], place) if attempt else lengths[at * size + j]
            step = _exponential(length, states[3], lane + 1, place)
            radius = radius + step if j else step
            if j % 2 == 0:
                root = np.sqrt(2.0 * _exponential(turn, states[3], lane, place))
            else:
                cosine, sine = cpu_math.circle(turn)
                y[j - 1, 0], y[j, 0] = root * cosine, root * sine
        total = 0.0
        for j in range(size):
            total += y[j, 0] * y[j, 0]
        factor = radius / decay / np.sqrt(total)
        for j in range(size):
            y[j, 0] *= factor
        if not cpu_cells.coordinates(y, 1.0, unbasis, k, frame, near, room, rows):
            continue
        cpu_cells.points(k, basis, 1.0, room)
        long, short = 0.0, 0.0
        for j in range(size):
            long += room[j, 0] * room[j, 0]
            short += y[j, 0] * y[j, 0]
        excess = np.sqrt(long) - np.sqrt(short)
        chance = cpu_math.exp(-decay * (excess + covering))
        word = _word(states[2], sample) if attempt else chances[at]
        if cpu_math.unit(word) <= chance:
            return True
    return False


@part
def listed(words, at, high, low, guide):
    """The place in the list of points that the 128-bit word at ``at`` draws."""
    upper, lower = words[2 * at], words[2 * at + 1]
    place = np.int64(guide[upper >> np.uint64(48)])
    while place < len(high):
        end = high[place]
        if end > upper or (end == upper and low[place] > lower):
            break
        place += 1
    return place
