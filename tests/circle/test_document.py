"""A round as docs/wire-format.md, section 13, describes it, without the library's code."""

import hashlib
import json
import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HEADER, PRIME = 22, 2**256 + 297


def hashed(data):
    return hashlib.sha256(data).digest()


def at_zero(points):
    """Lagrange's formula."""
    total = 0
    for x, y in points.items():
        for other in points:
            if other != x:
                y = y * other * pow(other - x, -1, PRIME) % PRIME
        total += y
    return (total % PRIME).to_bytes(33, "little")[:32]


@pytest.mark.parametrize("bits", [8, 11, 20])
def test_a_round_from_the_page_alone(round_of, bits):
    one, secrets = round_of(5, 3, bits=bits, length=50), {}

    def change(step, number, message):
        if step == "masked" and number == 101:
            secrets["hex"] = json.loads(one.clients[101].to_bytes())["secrets"]
        return message

    one.run({"masked": {102}}, change)
    terms, roster = one.got["keys"][100], one.got["shares"][100]
    assert terms[:6] == b"JoPS\2\1"
    assert struct.unpack("<BQIIIB", terms[22:44]) == (bits, 50, 5, 3, 0, 0)
    assert terms[76:] == b"test"
    transcript = hashed(hashed(terms) + hashed(roster))
    entries = [roster[place : place + 72] for place in range(26, len(roster), 72)]
    mask_private, share_private, seed = map(bytes.fromhex, secrets["hex"])

    bound = hashed(b"jopeq sum senders\0" + transcript + bytes([0b11111]))

    def key(secret, info, salt=bound):
        return HKDF(SHA256(), 32, salt=salt, info=info).derive(secret)

    def agreed(private, public):
        ours = X25519PrivateKey.from_private_bytes(private)
        return ours.exchange(X25519PublicKey.from_public_bytes(public))

    def mask(of):
        size = 1 if bits <= 8 else 2 if bits <= 16 else 4
        stream = Cipher(AES(of), CTR(bytes(16))).encryptor().update(bytes(50 * size))
        return np.frombuffer(stream, f"<u{size}").astype(int)

    total = one.vectors[101] + mask(key(seed, b"jopeq sum self mask"))
    sealed, shares = one.sent["shares"][101], {}
    assert sealed[HEADER : HEADER + 32] == hashed(b"jopeq sum commitment\0" + transcript + seed)
    confirmed = []
    for box, place in enumerate((0, 2, 3, 4)):
        positions = b"".join(i.to_bytes(4, "little") for i in sorted((1, place)))
        secret = agreed(mask_private, entries[place][8:40])
        pair = key(secret, b"jopeq sum pair mask\0" + positions)
        total = total + mask(pair) if place > 1 else total - mask(pair)
        info = b"jopeq sum share\0" + struct.pack("<II", 1, place)
        secret = agreed(share_private, entries[place][40:])
        cipher = ChaCha20Poly1305(key(secret, info, transcript))
        info = b"jopeq sum confirmation\0" + struct.pack("<II", 1, place)
        confirmed.append(key(secret, info)[:16])
        start = HEADER + 32 + 82 * box
        shares[place + 1] = cipher.decrypt(bytes(12), sealed[start : start + 82], None)
    number = sum(int(value) << bits * place for place, value in enumerate(total % (1 << bits)))
    masked = b"".join(confirmed) + number.to_bytes((50 * bits + 7) // 8, "little")
    assert one.sent["masked"][101][HEADER:] == masked
    some = [1, 4, 5]
    for part, secret in ((slice(0, 33), seed), (slice(33, 66), mask_private)):
        points = {x: int.from_bytes(shares[x][part], "little") for x in some}
        assert at_zero(points) == secret
    told = one.got["open"][100][HEADER:]
    assert told[:1] == bytes([0b11011])
    assert told[1:17] == confirmed[0]
    assert len(told) == 1 + 3 * 16
    opened = one.sent["open"][100][HEADER:]
    assert opened[:1] == bytes([0b11011])
    assert opened[34:67] == shares[1][:33]  # client 1 survived
    assert len(opened) == 1 + 5 * 33


def test_statements_that_identities_sign(round_of):
    one = round_of(4, 3, is_signed=True)
    one.run()
    terms, keys = one.got["keys"][100], one.sent["keys"][101][HEADER:]
    identity = Ed25519PublicKey.from_public_bytes(keys[64:96])
    about = hashed(terms) + (101).to_bytes(8, "little")
    signed = b"jopeq sum keys\0" + about + keys[:64] + keys[96:104]  # the serial
    identity.verify(keys[104:], signed)
    transcript = hashed(hashed(terms) + hashed(one.got["shares"][100]))
    bound = hashed(b"jopeq sum senders\0" + transcript + bytes([0b1111]))
    statement = b"jopeq sum survivors\0" + bound + bytes([0b1111])
    identity.verify(one.sent["sign"][101][HEADER:], statement)
