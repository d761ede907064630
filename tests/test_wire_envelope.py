"""A payload whose body is written in place is the payload that ``seal`` makes of its parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jopeq.wire.payload import Envelope, open_payload, seal

KEY = bytes(range(32))


@given(
    header=st.binary(max_size=80),
    body=st.binary(max_size=300),
    key=st.sampled_from([None, KEY]),
)
def test_the_same_bytes_as_seal(header, body, key):
    envelope = Envelope(header, len(body), key)
    assert envelope.body.shape == (len(body),)
    envelope.body[:] = np.frombuffer(body, np.uint8)
    payload = envelope.seal()
    assert type(payload) is bytes
    assert payload == seal(header, [body], key)


def test_what_is_not_written_is_zero():
    assert Envelope(b"head", 5, None).seal() == seal(b"head", [bytes(5)], None)


@pytest.mark.parametrize("key", [None, KEY])
def test_it_opens(key):
    from jopeq.wire.payload import Header

    seed = bytes(32) if key is None else bytes(16)
    header = Header('["sdq",{}]', ("",), ((3,),), seed, key is not None)
    envelope = Envelope(header.to_bytes(), 4, key)
    envelope.body[:] = [1, 2, 3, 4]
    opened, body = open_payload(envelope.seal(), key)
    assert opened == header
    assert bytes(body) == bytes([1, 2, 3, 4])


def test_somebody_who_still_looks_at_the_body_cannot_change_the_payload():
    envelope = Envelope(b"head", 3, None)
    body = envelope.body
    payload = envelope.seal()
    before = bytes(bytearray(payload))
    body[:] = 7
    assert payload == before
