"""What is left to the plain path, and letters drawn at thresholds."""

import numpy as np
import pytest

import jopeq

pytest.importorskip("numba")

from jopeq.kernels.cpu.codec import Draws, prepare

SKEW = ((1.0, 0.3), (0.0, 1.2))  # its dither is not round, and so neither is the matched noise
PLAIN = [
    *(("none", {}), ("sdq", {"rate": 8.01})),
    *(("dq", {"rate": 2.0}), ("mvu", {"epsilon": 4.0, "rate": 2.0}), ("laplace", {"epsilon": 4.0})),
    *(("sdq", {"rate": rate, "lattice": name}) for rate, name in ((1, "D4"), (1, "E8"), (5, "A2"))),
    *((f"{law}+sdq", {"epsilon": 4.0, "rate": 2.0}) for law in ("laplace", "t")),
    ("sdq", {"rate": 2.0, "lattice": SKEW}),
    ("jopeq", {"epsilon": 1.0, "rate": 2.0, "lattice": SKEW}),
    ("jopeq", {"epsilon": 4.0, "rate": 2.0, "law": "t"}),
    ("jopeq", {"epsilon": 4.0, "rate": 2.0, "lattice": "A2", "law": "laplace"}),
]


@pytest.mark.parametrize(("name", "parameters"), PLAIN)
def test_left_to_the_plain_path(name, parameters, compiled):
    scheme = jopeq.scheme(name, **parameters)
    assert scheme.codec.choose(1) is None
    assert scheme.decode(scheme.encode(np.linspace(-1, 1, 66))).shape == (66,)


# Words that no stream is long enough to hold: those on a threshold, and beside it


def letters_of(scheme, x, dither, words):
    """Letters the kernel draws for scaled samples, straight from these words."""
    step, count = prepare(scheme.codec.recipe), len(words)
    assert count <= step.chunk
    out, letters = np.zeros(step.packing.size(count), np.uint8), np.empty(count, np.uint16)
    source = np.full(count, x, np.float32), np.empty(0), 0.0, 1.0
    streams = np.full(count, dither, "<i2").view(np.uint8), words.view(np.uint8)
    step.encode(source, Draws(*streams, np.zeros(8, np.uint32), 0), letters, out)
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
        {"epsilon": 4.0, "rate": 3.0},
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
    slope, middle = 0.5 * (channel.levels - 1), 0.5 * channel.levels
    for dither in (-(2**15), -1, 0, 2**15 - 1):
        level = np.floor(np.float32(x) * slope + ((dither + 0.5) * 2.0**-16 + middle))
        expected = channel.sample(np.full(len(words), int(level)), words)
        assert (letters_of(scheme, x, dither, words) == expected).all()
