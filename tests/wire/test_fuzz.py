"""Hostile payloads: whatever the bytes, a decoder raises PayloadError or gives finite numbers."""

import contextlib
import hashlib
import hmac
import itertools
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jopeq
from jopeq.errors import PayloadError
from jopeq.random.streams import PrivateStream
from jopeq.wire.payload import Header, open_payload, varint

KEY = bytes(range(200, 232))
NOISE = bytes(range(100, 132))
UPDATE = np.sin(np.arange(13.0)).astype(np.float32)

SCHEMES = {
    "none": jopeq.scheme("none"),
    "sdq": jopeq.scheme("sdq", rate=1.6),
    "dq-A2": jopeq.scheme("dq", rate=1.5, lattice="A2", gamma=2.0),
    "centered": jopeq.scheme("sdq", rate=3.0, center=True, per="tensor"),
    "clip": jopeq.scheme("jopeq", epsilon=2.0, rate=2.0, clip=0.5),
    "laplace": jopeq.scheme("laplace", epsilon=2.0),
    "t": jopeq.scheme("t", epsilon=2.0, size=3),
    "t+sdq-E8": jopeq.scheme("t+sdq", epsilon=3.0, rate=1.0, lattice="E8"),
}


def reseal(content):
    """Any content with the checksum that fits it."""
    return content + struct.pack("<I", zlib.crc32(content))


def retag(content):
    """Any content with the tag and the checksum that fit it: a client gone bad."""
    tag_key = hmac.new(KEY, b"jopeq tag\0", hashlib.sha256).digest()
    return reseal(content + hmac.new(tag_key, content, hashlib.sha256).digest()[:16])


def payload_of(name, **arguments):
    scheme = SCHEMES[name]
    if scheme.codec.has_dither and not arguments:
        arguments = {"seed": bytes(range(32))}
    return scheme.encode(UPDATE, noise=PrivateStream.reproducible(NOISE), **arguments)


def is_accepted(scheme, payload, key=None):
    """Whether it decodes; anything but PayloadError and finite float32 fails the test."""
    try:
        decoded = scheme.decode(payload, secret=key)
    except PayloadError:
        return False
    assert decoded.dtype == np.float32
    assert np.isfinite(decoded).all()
    return True


def traced(work):
    """What the work gives, and the most memory that it took."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def mutated(content, masks=(0x01, 0x10, 0x80, 0xFF)):
    """Every byte changed by every mask, with its place."""
    for at, mask in itertools.product(range(len(content)), masks):
        yield at, content[:at] + bytes((content[at] ^ mask,)) + content[at + 1 :]


def header_bytes(scheme, **changes):
    fields = {"scheme": scheme.spec, "names": ("",), "shapes": ((13,),), "seed": bytes(32)}
    return Header(**(fields | changes)).to_bytes()


# Damage on the way: the checksum does not fit


@pytest.mark.parametrize("name", SCHEMES)
def test_damage_is_refused(name):
    """Every truncation, every flipped byte, bytes before and behind."""
    scheme, payload = SCHEMES[name], payload_of(name)
    assert is_accepted(scheme, payload)
    for length in range(len(payload)):
        assert not is_accepted(scheme, payload[:length])
    for _, changed in mutated(payload):
        assert not is_accepted(scheme, changed)
    for extra in (b"\0", b"\0" * 4, b"JoPQ"):
        assert not is_accepted(scheme, payload + extra)
        assert not is_accepted(scheme, reseal(payload[:-4] + extra))
        assert not is_accepted(scheme, extra + payload)


def test_garbage_is_refused():
    source = random.Random(5)
    for length in range(200):
        garbage = source.randbytes(length)
        for scheme in SCHEMES.values():
            assert not is_accepted(scheme, garbage)
            assert not is_accepted(scheme, reseal(b"JoPQ" + garbage))


# Malice: the checksum fits


@pytest.mark.parametrize("name", SCHEMES)
def test_any_change_under_a_right_checksum(name):
    """One byte, any length, and many random changes; magic, flags and scheme admit none."""
    scheme, content = SCHEMES[name], payload_of(name)[:-4]
    front = 7 + len(scheme.spec)
    starts = ((at, start + content[7:]) for at, start in mutated(content[:7], range(1, 256)))
    for at, changed in itertools.chain(starts, mutated(content, (1, 8, 0x40, 0x80, 0xFF))):
        accepted = is_accepted(scheme, reseal(changed))
        assert not (accepted and at < front)
    for length in range(len(content)):
        assert not is_accepted(scheme, reseal(content[:length]))
        assert not is_accepted(scheme, reseal(content[:length] + content[length + 1 :]))
        is_accepted(scheme, reseal(content[:length] + b"\0" + content[length:]))
    source = random.Random(name)
    for _ in range(500):
        changed = bytearray(content)
        for _ in range(source.randint(1, 6)):
            changed[source.randrange(front, len(changed))] = source.choice((0, 1, 127, 128, 255))
        is_accepted(scheme, reseal(bytes(changed)))


@pytest.mark.parametrize("name", [n for n, s in SCHEMES.items() if s.codec.has_dither])
def test_a_client_with_the_key_gets_no_further(name):
    content = payload_of(name, secret=KEY, seed=bytes(16))[:-20]
    assert is_accepted(SCHEMES[name], retag(content), KEY)
    for _, changed in mutated(content):
        is_accepted(SCHEMES[name], retag(changed), KEY)
        assert not is_accepted(SCHEMES[name], reseal(changed), KEY)


@settings(max_examples=300)
@given(name=st.sampled_from(list(SCHEMES)), rest=st.binary(max_size=120))
def test_any_bytes_after_the_scheme(name, rest):
    content = payload_of(name)[: 7 + len(SCHEMES[name].spec)]
    is_accepted(SCHEMES[name], reseal(content + rest))


# Claims


@pytest.mark.parametrize("version", [0, 2, 255])
def test_other_versions_are_refused_by_name(version):
    content = bytearray(payload_of("sdq")[:-4])
    content[4] = version
    with pytest.raises(PayloadError, match=f"version {version} is not supported"):
        SCHEMES["sdq"].decode(reseal(bytes(content)))


def claims(scheme):
    """Headers that claim what is not there, each before a short body."""
    front = header_bytes(scheme)[: 7 + len(scheme.spec)]
    seeded = bytes(32) if scheme.codec.has_dither else b""
    flags = 2 * scheme.codec.has_dither + 4 * (scheme.codec.is_scaled and scheme.clip is None)
    front = front[:5] + bytes((flags + 8 * scheme.center,)) + front[6:]
    unit = struct.pack("<f", 1.0) + (struct.pack("<f", 0.0) if scheme.center else b"")
    scales = b"\1" + unit if flags & 4 else b""
    huge = varint(1 << 60)
    for size in (1 << 20, 1 << 31, (1 << 48) - 1, 1 << 48, 1 << 60, (1 << 63) - 1):
        yield f"size {size}", front + b"\1\0\1" + varint(size) + seeded + scales + bytes(40)
    axes = b"".join((b"\1\0\x20", varint(2) * 32))
    yield "32 axes of 2", front + axes + seeded + scales + bytes(40)
    yield "33 axes", front + b"\1\0\x21" + b"\1" * 33 + seeded + scales + bytes(40)
    yield "2⁶⁰ axes", front + b"\1\0" + huge + bytes(100)
    yield "32 axes of 2⁶⁰", front + b"\1\0\x20" + huge * 32 + seeded + scales + bytes(40)
    yield "zero and huge", front + b"\1\0\3\0" + varint(1 << 40) * 2 + seeded + scales
    yield "2⁶⁰ tensors", front + huge + b"\0\0" * 500
    yield "many empty tensors", front + varint(3000) + b"\0\1\0" * 3000 + seeded + scales
    many = varint(99) + (b"\0\1" + varint(1 << 47)) * 99
    yield "many huge tensors", front + many + seeded + scales + bytes(99)
    yield "name of 2⁶⁰", front + b"\1" + huge + bytes(100)
    yield "name of all that is left", front + b"\1\x7f" + bytes(100)
    yield "name not UTF-8", front + b"\1\1\xff\1\x0d" + seeded + scales + bytes(40)
    yield "2⁶⁰ scales", front + b"\1\0\1\x0d" + seeded + huge + bytes(100)
    yield "50 scales", front + b"\1\0\1\x0d" + seeded + b"\x32" + unit * 50 + bytes(20)
    yield "oversized varint", front + b"\x80" * 9 + b"\1"
    yield "endless varint", front + b"\xff" * 200
    yield "scheme of 2⁶⁰", front[:6] + huge + bytes(100)


@pytest.mark.parametrize("name", SCHEMES)
def test_claims_are_refused_before_anything_is_allocated(name):
    scheme = SCHEMES[name]
    is_accepted(scheme, payload_of(name))  # imports and caches are not the payload's doing
    for label, content in claims(scheme):
        payload = reseal(content)
        accepted, peak = traced(lambda payload=payload: is_accepted(scheme, payload))
        assert not accepted, label
        assert peak < 200_000 + 100 * len(payload), (label, peak)


@pytest.mark.parametrize(
    ("what", "count"), [("tensors", 500_000), ("tensors", 100), ("scales", 100_000)]
)
def test_a_header_of_many_tiny_things_is_refused_before_it_is_read(what, count):
    """Two bytes a tensor took 32 times the memory, and 2 µs each, to be refused afterwards."""
    scheme, state = SCHEMES["centered"], {"w": UPDATE}
    spec = scheme.spec.encode()
    front = b"JoPQ\1\x0e" + varint(len(spec)) + spec
    content = {
        "tensors": front + varint(count) + b"\0\0" * count,
        "scales": front + b"\1\0\1\x0d" + bytes(32) + varint(count) + bytes(8 * count),
    }[what]
    payload, fine = reseal(content), scheme.encode(state)
    scheme.decode(fine, like=state)
    works = [
        lambda: scheme.decode(payload, like=state),
        lambda: jopeq.aggregate([payload], scheme=scheme, like=state),
        lambda: jopeq.aggregate([fine, payload], scheme=scheme),
        lambda: scheme.decode(payload),
        lambda: jopeq.aggregate([payload], scheme=scheme),
    ]
    for work in works if count > 100 else works[:3]:  # the others expect any state of 65,536

        def refused(work=work):
            with pytest.raises(PayloadError, match=rf"claims {count} {what}, at most"):
                work()

        assert traced(refused)[1] < 20_000


def test_nothing_of_a_keyed_payload_is_read_before_its_tag():
    payload = payload_of("sdq", secret=KEY, seed=bytes(16))
    altered = [reseal(payload[:-4][:at] + b"\xff" + payload[:-4][at + 1 :]) for at in range(6, 60)]
    short = [reseal(payload[:end]) for end in range(6, 40)]
    with pytest.MonkeyPatch.context() as unread:
        unread.setattr("jopeq.wire.payload._Reader.header", None)
        for bad in altered + short:
            with pytest.raises(PayloadError, match="another secret, or altered"):
                SCHEMES["sdq"].decode(bad, secret=KEY)
    assert SCHEMES["sdq"].decode(payload, secret=KEY).shape == UPDATE.shape
    for bad in short:  # without the key the tag is cut off unread, and the header ends before it
        with pytest.raises(PayloadError, match="ends inside its header"):
            SCHEMES["sdq"].decode(bad)


@pytest.mark.parametrize("name", ["sdq", "dq-A2", "laplace", "t", "t+sdq-E8", "centered"])
def test_scales_and_means_are_checked(name):
    payload, scheme = payload_of(name), SCHEMES[name]
    header, _ = open_payload(payload)
    end = len(header.to_bytes())

    def accepts(place, value):
        content = payload[:place] + struct.pack("<f", value) + payload[place + 4 : -4]
        return is_accepted(scheme, reseal(content))

    unit = end - (8 if header.is_centered else 4)
    for value in (float("nan"), float("inf"), -float("inf"), -1.0, 1e38, 2e34):
        assert not accepts(unit, value)
    for value in (1e-45, -0.0, 9.99e33):
        assert accepts(unit, value)
    if header.is_centered:
        for value in (float("nan"), float("inf"), 1e38, -2e34):
            assert not accepts(end - 4, value)


def test_axes_beyond_the_limit_are_refused_though_all_else_fits():
    scheme = SCHEMES["none"]
    for axes in (32, 33, 64):
        header = Header(scheme.spec, ("",), ((1,) * axes,)).to_bytes()
        payload = reseal(header + struct.pack("<f", 2.0))
        if axes <= 32:
            assert scheme.decode(payload).shape == (1,) * axes
        else:
            with pytest.raises(PayloadError, match=f"an array of {axes} axes"):
                scheme.decode(payload)


def test_a_letter_outside_the_codebook_is_refused():
    scheme = jopeq.scheme("sdq", rate=1.6)  # 3 letters, 5 of them in 8 bits: 243 and up are none
    content = scheme.encode(np.ones(5))[:-4]
    for byte in range(256):
        assert is_accepted(scheme, reseal(content[:-1] + bytes((byte,)))) == (byte < 243)


# States


def test_mutated_states_name_the_key_or_are_refused():
    scheme = jopeq.scheme("sdq", rate=2.0, per="tensor", center=True)
    state = {"weight": np.ones((2, 3), np.float32), "bias": np.ones(2, np.float16)}
    for _, changed in mutated(scheme.encode(state, seed=bytes(32))[:-4]):
        with contextlib.suppress(PayloadError):
            decoded = scheme.decode(reseal(changed), like=state)
            assert all(np.isfinite(value).all() for value in decoded.values())
            assert decoded["bias"].dtype == np.float16
