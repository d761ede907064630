"""Bodies that no encoder writes: both paths refuse the same ones, in the same words."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jopeq
from jopeq.wire.coders import Packing
from jopeq.wire.payload import open_payload, seal
from jopeq.wire.scaling import Scale

SCHEMES = [
    *(jopeq.scheme("sdq", rate=math.log2(n)) for n in (2, 3, 4, 5, 8, 32, 64, 255, 256)),
    jopeq.scheme("sdq", rate=1.41, lattice="A2", gamma=1.5),
    jopeq.scheme("jopeq", epsilon=4.0, rate=math.log2(7), per="tensor"),
    jopeq.scheme("response", epsilon=4.0, rate=math.log2(6), levels=6),
]
COUNTS = [1, 5, 27, 40, 41, 64, 300]


def parts(scheme, count):
    header, body = open_payload(scheme.encode(np.linspace(-1, 1, count)))
    return header, np.frombuffer(body, np.uint8).copy()


def read(scheme, header, body, key=None):
    payload = seal(header.to_bytes(), [bytes(body)], key)
    return lambda: scheme.decode(payload).tobytes()


@settings(max_examples=250)
@given(data=st.data())
def test_any_body(data, same_outcome):
    scheme = data.draw(st.sampled_from(SCHEMES), label="scheme")
    header, body = parts(scheme, data.draw(st.sampled_from(COUNTS), label="count"))
    way = data.draw(st.sampled_from(["bytes", "flip", "cut", "more", "ones"]), label="way")
    if way == "bytes":
        body = data.draw(st.binary(min_size=len(body), max_size=len(body)))
    elif way == "flip":
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif way == "cut":
        body = body[: data.draw(st.integers(0, len(body) - 1))]
    elif way == "more":
        body = bytes(body) + data.draw(st.binary(min_size=1, max_size=9))
    else:
        body[:] = 255
    same_outcome(read(scheme, header, body))


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.spec)
def test_last_bytes_and_chunks(scheme, same_outcome, chunk_of):
    """Last bytes of all kinds, bodies too short or too long, and a bad chunk after good ones."""
    for count in (1, 41, 64):
        header, body = parts(scheme, count)
        outcomes = set()
        for value in (0, *(1 << bit for bit in range(8)), *range(3, 255, 7), 255):
            body[-1] = value
            outcomes.add(same_outcome(read(scheme, header, body))[0])
        assert {"done"} <= outcomes <= {"done", jopeq.PayloadError}
        for wrong in (body[:-1], bytes(body) + b"\0"):
            assert same_outcome(read(scheme, header, wrong))[0] is jopeq.PayloadError
    header, body = parts(scheme, 2 * chunk_of(scheme) * scheme.dimension + 3)
    body[-1] = 255
    same_outcome(read(scheme, header, body))
    body[: len(body) // 2] = 255
    same_outcome(read(scheme, header, body))


def beyond_float32(scheme, count, bodies, same_outcome):
    """Both paths refuse these bodies under a header that claims a large scale."""
    state = {"a": np.linspace(-1, 1, count), "b": np.ones(8)}
    header, _ = open_payload(scheme.encode(state))
    header = header._replace(scales=tuple(Scale(1e34) for _ in header.scales))
    for body in bodies(scheme, count + 8):
        payload = seal(header.to_bytes(), [body], None)
        kind, message = same_outcome(lambda payload=payload: scheme.open(payload).decode())
        assert kind is jopeq.PayloadError
        assert "too large for float32" in message


@pytest.mark.parametrize("per", ["update", "tensor"])
def test_letters_that_mean_numbers_beyond_float32(per, same_outcome):
    def bodies(scheme, entries):
        letters = scheme.codec.coder.letters
        yield Packing(letters).encode(np.full(-(-entries // scheme.dimension), letters - 1))

    for rate, lattice in ((3, "Z"), (math.log2(5), "Z"), (2, "A2")):
        scheme = jopeq.scheme("sdq", gamma=1e6, per=per, rate=rate, lattice=lattice)
        beyond_float32(scheme, 80, bodies, same_outcome)
