"""The payload: golden bytes, header, seal and open, keys."""

import hashlib
import hmac
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jopeq
from jopeq.errors import MissingSecretError, PayloadError
from jopeq.wire.payload import MAGIC, VERSION, Header, open_payload, seal
from jopeq.wire.scaling import Scale
from tests.golden import make
from tests.schemes.every import SCHEMES

KEY = bytes(range(200, 232))


# Golden payloads


@pytest.mark.parametrize("name", make.KEPT)
def test_golden_bytes_are_written_and_read(name):
    make.check(make.KEPT[name])


def test_every_scheme_has_golden_payloads():
    """But mvu, whose channel SciPy solves, each version in its own way."""
    found = {entry["case"][0] for entry in make.KEPT.values()}
    assert found == {*jopeq.registry.SCHEMES} - {"mvu"}


# Header, seal and open


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
FLOATS = st.floats(0, 2.0**100, width=32)


@st.composite
def headers(draw):
    tensors = draw(st.lists(st.tuples(TEXT, st.lists(st.integers(0, 40), max_size=6)), max_size=5))
    is_keyed, mean = draw(st.booleans()), draw(st.none() | FLOATS | FLOATS.map(lambda x: -x))
    units = draw(st.lists(FLOATS, min_size=1, max_size=4))
    return Header(
        scheme=draw(TEXT),
        names=tuple(name for name, _ in tensors),
        shapes=tuple(tuple(shape) for _, shape in tensors),
        seed=draw(st.binary(min_size=32, max_size=32))[: 16 if is_keyed else 32],
        is_keyed=is_keyed,
        scales=tuple(Scale(unit, mean or 0.0) for unit in units),
        is_centered=mean is not None,
    )


@given(headers(), st.binary(max_size=20))
def test_a_header_reads_back_as_it_was_written(header, body):
    key = KEY if header.is_keyed else None
    payload = seal(header.to_bytes(), [body], key)
    again, rest = open_payload(payload, key)
    assert again == header
    assert bytes(rest) == body
    assert payload[:6] == MAGIC + bytes((VERSION, payload[5]))


@given(headers(), headers())
def test_an_opening_that_was_read_before_says_the_same(header, other):
    """Read last, and now whole, cut short, of more tensors than allowed; then behind another."""
    key = KEY if header.is_keyed else None
    payload = seal(header.to_bytes(), [b"body"], key)
    for _ in range(2):
        assert open_payload(payload, key)[0] == header
    opening = Header(header.scheme, header.names, header.shapes).to_bytes()
    with pytest.raises(PayloadError):
        open_payload(seal(payload[: len(opening) - 1], [], key), key)
    if header.names:
        open_payload(payload, key)
        with pytest.raises(PayloadError, match="tensors, at most"):
            open_payload(payload, key, most_tensors=len(header.names) - 1)
    other_key = KEY if other.is_keyed else None
    assert open_payload(seal(other.to_bytes(), [], other_key), other_key)[0] == other
    assert open_payload(payload, key)[0] == header


@pytest.mark.parametrize("layout", ["b", "c", "i", "rows", "apart", "big-endian"])
def test_views_of_other_items_are_read_as_the_bytes_they_are(layout):
    scheme = jopeq.scheme("none")
    state = {"w" * 203: np.ones((200, 3), np.float32)}  # lengths that take two bytes
    payload = scheme.encode(state)
    assert len(payload) % 4 == 0
    views = {
        "rows": memoryview(payload).cast("B", shape=[len(payload) // 4, 4]),
        "apart": memoryview(np.repeat(np.frombuffer(payload, np.uint8), 2))[::2],
        "big-endian": memoryview(np.frombuffer(payload, ">i4")),
    }
    view = views[layout] if layout in views else memoryview(payload).cast(layout)
    for given_bytes in (view, memoryview(payload), bytearray(payload)):
        decoded = scheme.decode(given_bytes, like=state)
        assert all(np.array_equal(decoded[name], state[name]) for name in state)


@pytest.mark.parametrize("wrong", ["text", 5, None, np.zeros(60, np.uint8), [1, 2]])
def test_other_things_are_not_payloads(wrong):
    with pytest.raises(PayloadError, match="a payload is bytes, got"):
        jopeq.scheme("none").decode(wrong)
    with pytest.raises(PayloadError, match="too short"):
        jopeq.scheme("none").decode(memoryview(b""))


# Keys

SEEDED = [scheme for scheme in SCHEMES if scheme.codec.has_dither]
UPDATE = np.sin(np.arange(64.0))


@pytest.mark.parametrize("scheme", SEEDED, ids=lambda s: s.spec)
def test_a_keyed_payload_needs_its_key_and_has_a_fresh_nonce(scheme):
    payload = scheme.encode(UPDATE, secret=KEY)
    assert scheme.decode(payload, secret=KEY).shape == UPDATE.shape
    with pytest.raises(MissingSecretError, match="give secret"):
        scheme.decode(payload)
    with pytest.raises(PayloadError, match="another secret, or altered"):
        scheme.decode(payload, secret=KEY[::-1])
    with pytest.raises(PayloadError, match="made without a secret"):
        scheme.decode(scheme.encode(UPDATE), secret=KEY)
    altered = bytearray(payload)
    altered[-25] ^= 1
    altered[-4:] = struct.pack("<I", zlib.crc32(altered[:-4]))
    with pytest.raises(PayloadError, match="another secret, or altered"):
        scheme.decode(bytes(altered), secret=KEY)
    for key, length in ((None, 32), (KEY, 16)):
        opened = [open_payload(scheme.encode(UPDATE, secret=key), key) for _ in range(4)]
        assert len({header.seed for header, _ in opened}) == 4
        assert {len(header.seed) for header, _ in opened} == {length}
        assert len({bytes(body) for _, body in opened}) == 4


def test_the_key_makes_the_dither_and_is_nowhere_in_the_payload():
    payload = SEEDED[0].encode(UPDATE, secret=KEY)
    header = open_payload(payload)[0]
    derived = hmac.new(KEY, b"jopeq dither\0" + header.seed, hashlib.sha256).digest()
    for at in range(len(payload) - 3):
        assert payload[at : at + 4] not in KEY + derived
    found = SEEDED[0].decode(payload, secret=KEY)
    assert np.array_equal(found, SEEDED[0].decode(SEEDED[0].encode(UPDATE, seed=derived)))


@pytest.mark.parametrize("argument", [{"seed": bytes(32)}, {"secret": KEY}])
def test_schemes_that_share_nothing_refuse_seed_and_key(argument):
    given = {"none": {}, "laplace": {"epsilon": 1.0}, "mvu": {"epsilon": 4.0, "rate": 1.0}}
    for name, parameters in given.items():
        with pytest.raises(ValueError, match="drop seed and secret"):
            jopeq.scheme(name, **parameters).encode(UPDATE, **argument)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": bytes(31)}, "seed must be 32 bytes, got bytes of length 31"),
        ({"seed": "x" * 32}, "seed must be 32 bytes, got str of length 32"),
        ({"seed": bytes(32), "secret": KEY}, "nonce .* must be 16 bytes"),
        ({"secret": b"short"}, "secret must be 32 bytes, got bytes of length 5"),
        ({"secret": bytearray(32)}, "secret must be 32 bytes, got bytearray of length 32"),
    ],
)
def test_wrong_secrets_are_described_not_printed(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        SEEDED[0].encode(UPDATE, **arguments)
    assert "short" not in str(caught.value)
    assert "xxx" not in str(caught.value)
