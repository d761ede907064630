"""ChaCha20 against RFC 8439 and a second implementation; access, ends, and secrecy of keys."""

import copy
import hashlib
import hmac
import pickle
import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import jopeq
from jopeq.random import streams
from jopeq.random.streams import ChaChaStream, PrivateStream, SharedStream

KEY = bytes(range(32))
END = 64 << 32

# RFC 8439, appendix A.1: (key, block counter, last nonce word as our lane, key stream)
RFC_VECTORS = [
    (bytes(31) + b"\x01", 1, 0,
     ("3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
     "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0")),
    (b"\x00\xff" + bytes(30), 2, 0,
     ("72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
     "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096")),
    # nonce 00…00 02: the last byte is the top of a little-endian word
    (bytes(32), 0, 0x02000000,
     ("c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
     "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d")),
]  # fmt: skip


@pytest.mark.parametrize(("key", "block", "lane", "expected"), RFC_VECTORS)
def test_rfc_8439_vectors(key, block, lane, expected):
    for stream in (SharedStream(key), PrivateStream.reproducible(key)):
        found = stream.read(lane=lane, start=64 * block, count=64)
        assert found.tobytes().hex() == chacha20_block(key, block, lane).hex() == expected


def chacha20_block(key, counter, lane):
    """RFC 8439, section 2.3, in plain Python."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key)]
    start += [counter, 0, 0, lane]
    state = list(start)

    def quarter(a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            mixed = state[z] ^ state[x]
            state[z] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)))


KEYS = st.binary(min_size=32, max_size=32)
LANES = st.integers(0, 2**32 - 1)


@settings(max_examples=60)
@given(key=KEYS, block=st.integers(0, 2**32 - 2), lane=LANES)
@example(key=KEY, block=2**32 - 2, lane=2**32 - 1)
@example(key=KEY, block=2**31 - 1, lane=1 << 31)
def test_any_block_agrees_with_a_second_implementation(key, block, lane):
    found = ChaChaStream(key).read(lane=lane, start=64 * block + 58, count=70)
    both = chacha20_block(key, block, lane) + chacha20_block(key, block + 1, lane)
    assert found.tobytes() == both[58:]


LONG = ChaChaStream(KEY).read(lane=7, start=0, count=9600)


@settings(max_examples=200)
@given(start=st.integers(0, 600), count=st.integers(0, 600))
def test_any_slice_is_the_slice_of_a_long_read(start, count):
    """Of bytes and of little-endian words; without a slice's memory being another's."""
    stream = ChaChaStream(KEY)
    found = stream.read(lane=7, start=start, count=count)
    assert np.array_equal(found, LONG[start : start + count])
    found[:] = 0
    for read, size in ((stream.words16, 2), (stream.words32, 4), (stream.words64, 8)):
        words = read(lane=7, start=start, count=count)
        assert words.dtype.itemsize == size
        chunk = LONG[start * size : (start + count) * size]
        assert np.array_equal(words, chunk.view(f"<u{size}"))


def test_the_end_of_a_lane_raises():
    stream = SharedStream(KEY)
    assert len(stream.read(lane=0, start=END - 3, count=3)) == 3
    for start, count in ((END, 1), (END - 3, 4), (END + 5, 0), (-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="stream"):
            stream.read(lane=0, start=start, count=count)
    for read, size in ((stream.words16, 2), (stream.words32, 4), (stream.words64, 8)):
        with pytest.raises(ValueError, match="stream"):
            read(lane=0, start=END // size - 1, count=2)
    with pytest.raises(struct.error):
        stream.read(lane=1 << 32, start=0, count=1)


SECRET = b"correct horse battery staple"


@pytest.mark.parametrize("make", [ChaChaStream, SharedStream, PrivateStream.reproducible])
def test_keys_are_not_shown(make):
    for key in (SECRET, SECRET * 2, bytearray(SECRET), SECRET.decode(), b"", None, 2**255):
        name = "seed" if make is SharedStream else "key"
        with pytest.raises(ValueError, match=f"{name} must be 32 bytes") as caught:
            make(key)
        assert type(key).__name__ in str(caught.value)
        assert_hidden(str(caught.value) + repr(caught.value))
    stream = make(SECRET + b"good")
    for text in (repr(stream), str(stream), f"{stream}", repr([stream]), repr(dir(stream))):
        assert_hidden(text)
    assert "<secret>" in repr(stream)
    assert not hasattr(stream, "__dict__")


def assert_hidden(shown):
    for secret in ("horse", SECRET.hex()[:8], str(2**255)):
        assert secret not in shown


def test_derive_is_hmac_sha256_and_hides_bad_keys():
    expected = hmac.new(KEY, b"label\0context", hashlib.sha256).digest()
    assert streams.derive(KEY, b"label", b"context") == expected
    assert streams.derive(KEY, b"label", b"other") != expected
    assert streams.derive(KEY, b"other", b"context") != expected
    with pytest.raises(
        ValueError, match="secret must be 32 bytes, got bytes of length 28"
    ) as caught:
        streams.derive(SECRET, b"label", b"context")
    assert_hidden(str(caught.value))
    assert streams.describe_secret(12345) == "int"


def test_shared_streams_of_a_key_depend_on_key_and_nonce():
    nonce = b"n" * 16
    flipped = nonce[:-1] + bytes((nonce[-1] ^ 1,))
    made = [SharedStream(KEY), SharedStream.from_secret(KEY[::-1], nonce)]
    made += [SharedStream.from_secret(KEY, other) for other in (nonce, flipped, b"m" * 16, nonce)]
    heads = [stream.read(lane=0, start=0, count=32).tobytes() for stream in made]
    assert heads[2] == heads[-1]
    assert len(set(heads)) == len(heads) - 1


def test_private_streams_are_fresh_and_cannot_be_given_a_key_by_accident():
    heads = {PrivateStream().read(lane=0, start=0, count=16).tobytes() for _ in range(50)}
    assert len(heads) == 50
    with pytest.raises(TypeError):
        PrivateStream(KEY)
    assert len({streams.fresh_seed() for _ in range(50)}) == 50
    assert (len(streams.fresh_seed()), len(streams.fresh_seed(16))) == (32, 16)


@pytest.mark.parametrize(
    "take", [copy.copy, copy.deepcopy, *(partial(pickle.dumps, protocol=p) for p in range(6))]
)
def test_private_streams_can_be_neither_copied_nor_pickled(take):
    """A copy would give two payloads the same noise; a pickle would carry the key away."""
    for stream in (PrivateStream(), PrivateStream.reproducible(KEY)):
        with pytest.raises(TypeError, match="copied or pickled") as caught:
            take([stream] if take is not copy.copy else stream)
        assert KEY.hex() not in str(caught.value)


def test_a_private_stream_draws_the_noise_of_one_payload(monkeypatch):
    coder, update = jopeq.scheme("laplace", epsilon=1.0, clip=1.0), np.zeros(3)
    stream = PrivateStream()
    coder.encode(update, noise=stream)
    with pytest.raises(ValueError, match="leave noise out"):
        coder.encode(update, noise=stream)
    forked = PrivateStream()
    monkeypatch.setattr("os.getpid", lambda: 0)  # as after a fork
    with pytest.raises(ValueError, match="another process"):
        coder.encode(update, noise=forked)


def test_private_streams_ask_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(streams.os, "urandom", lambda n: asked.append(n) or KEY)
    assert PrivateStream().read(lane=0, start=0, count=64).tobytes() == chacha20_block(KEY, 0, 0)
    assert asked == [32]
