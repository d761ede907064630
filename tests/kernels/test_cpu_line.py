"""Kernels of single entries give the plain path's bytes: every scheme, alphabet and ε."""

from __future__ import annotations

import math

import numpy as np
import pytest

import jopeq

RATES = [1, math.log2(3), 1.5, 2, 2.33, math.log2(5), 3, 5, 7, 8, 12, math.log2(65535), 16]
EPSILONS = [0.1, 0.5, 4.0, 20.0]
EXTRA_LANE = 1 << 31  # read when twelve exponent bits are zero


def staircase(epsilon, rate):
    moves = max(1, min(6, math.floor(2**rate) - 1))
    return jopeq.scheme("staircase", epsilon=epsilon, rate=rate, moves=moves)


def response(epsilon, rate):
    return jopeq.scheme("response", epsilon=epsilon, rate=rate, channel="randomized")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["sdq", "dq"])
def test_quantized(name, rate, agree, gaussian):
    _, counted, _ = agree(jopeq.scheme(name, rate=rate, spread=1.0), gaussian(5003))
    assert counted.overloaded > 0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["laplace+sdq", "t+sdq", "jopeq"])
def test_noisy_and_quantized(name, rate, epsilon, agree, gaussian):
    scheme = jopeq.scheme(name, epsilon=epsilon, rate=rate, spread=1.0)
    _, counted, _ = agree(scheme, gaussian(5003))
    assert counted.clipped > 0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rate", [1, math.log2(3), 2, 2.33, math.log2(5), 3, 5, 7, 8, 12])
def test_staircase(rate, epsilon, agree, gaussian):
    scheme = staircase(epsilon, rate)
    _, counted, _ = agree(scheme, gaussian(5003))
    assert counted.clipped > 0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rate", [1, math.log2(3), 2, 2.33, math.log2(5), 3, 5, 8])
def test_response(rate, epsilon, agree, gaussian):
    _, counted, _ = agree(response(epsilon, rate), gaussian(5003))
    assert counted.clipped > 0


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 4.0, "rate": 2.0, "channel": "optimal"},
        {"epsilon": 4.0, "rate": 3.0},
        {"epsilon": 1.0, "rate": 3.0, "levels": 5},
        {"epsilon": 8.0, "rate": 8.0, "levels": 200},
    ],
)
def test_response_of_other_channels(parameters, agree, gaussian):
    agree(jopeq.scheme("response", **parameters), gaussian(5003))


@pytest.mark.parametrize(
    "scheme",
    [
        jopeq.scheme("jopeq", epsilon=4.0, rate=12.0),
        jopeq.scheme("t+sdq", epsilon=4.0, rate=12.0),
    ],
    ids=lambda scheme: scheme.name,
)
def test_the_rare_branch_of_the_logarithm(scheme, agree, gaussian):
    _, _, lanes = agree(scheme, gaussian(120_000))
    assert EXTRA_LANE in lanes


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 1 + 2**-23, 1e-38, 3e38, -3e38])
@pytest.mark.parametrize(
    "scheme",
    [
        jopeq.scheme("sdq", rate=math.log2(3), clip=1.0),
        jopeq.scheme("dq", rate=2.0, clip=1e-30),
        jopeq.scheme("jopeq", epsilon=4.0, rate=1.0, clip=1.0),
        staircase(4.0, 3.0),
        response(4.0, 3.0),
    ],
    ids=lambda scheme: scheme.name,
)
def test_constant_updates(scheme, value, agree):
    update = np.full(300, value, dtype=np.float32)
    if scheme.clip is None and abs(value) > 1e30:
        update *= 1e-6  # norm scaling refuses larger ones, see test_cpu.py
    agree(scheme, update)


# Words that no stream is long enough to hold: those on a threshold, and beside it


def letters_of(scheme, x, dither, words):
    """Letters the kernel draws for scaled samples, straight from these words."""
    pytest.importorskip("numba")
    from jopeq.kernels.cpu.steps import WIDE, Rooms, Source, prepared

    step, count = prepared(scheme.recipe), len(words)
    assert count <= step.chunk
    out, rooms = np.zeros(step.body_size(count), np.uint8), Rooms(step, step.chunk)
    source = Source(np.full(count, x, np.float32), WIDE, 0.0, 1.0)
    streams = [np.full(count, dither, "<i2").view(np.uint8), words.view(np.uint8)]
    step.encode(source, streams, np.zeros(8, np.uint32), 0, rooms, out)
    return step.packing.unpack(out.tobytes(), count)


def around(thresholds, bits):
    """Every word at most one from a threshold, and both ends."""
    near = {int(end) + i for end in np.ravel(thresholds) for i in (-1, 0, 1)}
    words = sorted(word for word in near | {0, (1 << bits) - 1} if 0 <= word < 1 << bits)
    return np.array(words, dtype=f"<u{bits // 8}")


@pytest.mark.parametrize("x", [-1.0, -0.3, 0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 4.0, "rate": 3.0},  # a designed channel
        {"epsilon": 4.0, "rate": 1.0, "levels": 2},
        {"epsilon": 0.1, "rate": 3.0, "levels": 7},
        {"epsilon": 20.0, "rate": 3.0, "levels": 8},
        {"epsilon": 30.0, "rate": 1.0, "levels": 2},
    ],
    ids=str,
)
def test_response_at_its_thresholds(parameters, x):
    scheme = jopeq.scheme("response", **parameters)
    channel = scheme.finite_channel
    words = around(channel.thresholds, 32)
    for dither in (-(2**15), -1, 0, 2**15 - 1):
        unit = (dither + 0.5) * 2.0**-16
        level = np.floor(
            np.float32(x) * (0.5 * (channel.levels - 1)) + (unit + 0.5 * channel.levels)
        )
        expected = channel.sample(np.full(len(words), int(level)), words)
        assert (letters_of(scheme, x, dither, words) == expected).all()


@pytest.mark.parametrize("x", [-1.0, 0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    ("epsilon", "rate", "moves"), [(4.0, 2.0, 2), (0.5, 5.0, 6), (20.0, 3.0, 3)]
)
def test_staircase_at_its_thresholds(epsilon, rate, moves, x):
    scheme = jopeq.scheme("staircase", epsilon=epsilon, rate=rate, moves=moves)
    core = scheme.core
    words = around(core.noise.thresholds, 64)
    _, _, first, last = core.window
    for dither in (-(2**15), 0, 2**15 - 1):
        unit = (dither + 0.5) * 2.0**-16
        cell = np.floor(np.float32(x) * (0.5 * moves) + (unit + core.centre))
        expected = np.clip(cell + core.noise.sample(words), first, last)
        assert (letters_of(scheme, x, dither, words) == expected).all()
