"""Keys of a round, and the masks that they make.

X25519 agreement, HKDF bound to the transcript, sealed shares, Ed25519 signatures. A mask is a key
stream added to a vector of integers mod 2^bits: an entry takes the low bits of one little-endian
word of 1, 2 or 4 bytes. A word of the stream is uniform, and 2^bits divides the number of words, so
the masked entry is uniform over the ring. AES-256 in counter mode makes the stream: with the
processor's AES instructions it is twice as fast as ChaCha20 (``benchmarks/secure.py``), and every
key makes one stream only.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from jopeq.errors import ProtocolError
from jopeq.wire.coders import Packing

TAG_BYTES = 16
CONFIRMATION_BYTES = 16


def public(private: bytes) -> bytes:
    """The public key of a private X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def check_public(key: bytes) -> None:
    """``ProtocolError`` for a point of small order, with which nobody can agree on a secret."""
    _agree(bytes(range(32)), key)


PAIR, CIRCLE = b"jopeq sum pair mask\0", b"jopeq circle mask\0"


def mask_key(
    private: bytes, other: bytes, transcript: bytes, one: int, two: int, label: bytes = PAIR
) -> bytes:
    """The key of the mask that the clients of two positions share.

    Different public keys can agree on one secret: without the positions, whoever sends such a twin
    of a client's key would make masks of other pairs cancel.
    """
    return _derive(_agree(private, other), transcript, label, min(one, two), max(one, two))


def self_mask_key(seed: bytes, transcript: bytes) -> bytes:
    """The key of the mask that a client adds for itself."""
    return _derive(seed, transcript, b"jopeq sum self mask")


def commitment(seed: bytes, transcript: bytes) -> bytes:
    """Shows whether a reconstructed seed is right; reveals nothing about an unknown seed."""
    return hashlib.sha256(b"jopeq sum commitment\0" + transcript + seed).digest()


def confirmation(private: bytes, other: bytes, bound: bytes, sender: int, receiver: int) -> bytes:
    """Shows the receiver that the sender was told the same clients; the server cannot make it."""
    secret, label = _agree(private, other), b"jopeq sum confirmation\0"
    return _derive(secret, bound, label, sender, receiver)[:CONFIRMATION_BYTES]


def _cipher(
    private: bytes, other: bytes, transcript: bytes, sender: int, receiver: int
) -> ChaCha20Poly1305:
    """One message has one key."""
    secret, label = _agree(private, other), b"jopeq sum share\0"
    return ChaCha20Poly1305(_derive(secret, transcript, label, sender, receiver))


def seal(content: bytes, private: bytes, other: bytes, transcript: bytes, *way: int) -> bytes:
    """``content`` for one other client, through the server."""
    return _cipher(private, other, transcript, *way).encrypt(bytes(12), content, None)


def unseal(sealed: bytes, private: bytes, other: bytes, transcript: bytes, *way: int) -> bytes:
    """The content of a sealed message."""
    try:
        return _cipher(private, other, transcript, *way).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise ProtocolError(
            "a sealed share cannot be opened: it was changed, or told other terms or another roster"
        ) from None


def is_signed(identity: bytes, signature: bytes, statement: bytes) -> bool:
    """True if this Ed25519 key signed the statement."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _agree(private: bytes, other: bytes) -> bytes:
    try:
        ours = X25519PrivateKey.from_private_bytes(private)
        return ours.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:  # a point of small order, which would fix the secret
        raise ProtocolError(f"a public key cannot be used: {error}") from error


def _derive(secret: bytes, transcript: bytes, label: bytes, *positions: int) -> bytes:
    info = label + struct.pack(f"<{len(positions)}I", *positions)
    return HKDF(SHA256(), 32, salt=transcript, info=info).derive(secret)


# Masks

Ring = NDArray[Any]
"""Entries of Z_{2^bits}: words of the smallest type that holds ``bits``; higher bits are noise."""

LEAST_BITS, MOST_BITS = 1, 32
_CHUNK = 1 << 18  # bytes that stay in the processor's cache between cipher and addition
_ZEROS = memoryview(bytes(_CHUNK))


def zeros(length: int, bits: int) -> Ring:
    """A sum to start from."""
    return np.zeros(length, dtype=_word(bits))


def to_ring(vector: Any, bits: int) -> Ring:
    """A copy of these integers; ``ValueError`` unless all are in 0 … 2^bits − 1."""
    given = np.asarray(vector)
    if given.ndim != 1 or given.dtype.kind not in "ui":
        raise ValueError(f"a vector of integers is needed, got {given.dtype} in {given.ndim} axes")
    if given.size and (given.min() < 0 or int(given.max()) >> bits):
        raise ValueError(f"entries must be in 0 … 2^{bits} − 1: encode with the bits of the terms")
    return given.astype(_word(bits))


def _word(bits: int) -> np.dtype[Any]:
    return np.dtype("u1" if bits <= 8 else "<u2" if bits <= 16 else "<u4")


def add_mask(total: Ring, key: bytes, sign: int) -> None:
    """Add the mask of a 32-byte key to ``total`` in place, or subtract it if ``sign`` is −1."""
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    step = _CHUNK // total.itemsize
    moving = np.empty(min(_CHUNK, total.nbytes) + 15, dtype=np.uint8)  # the cipher asks for 15
    combine = np.add if sign > 0 else np.subtract
    for start in range(0, len(total), step):
        part = total[start : start + step]
        stream.update_into(_ZEROS[: part.nbytes], moving.data)
        combine(part, moving[: part.nbytes].view(total.dtype), out=part)


@lru_cache(maxsize=MOST_BITS)
def _packing(bits: int) -> Packing:
    return Packing(1 << bits)


def pack(total: Ring, bits: int) -> bytes:
    """``bits`` bits an entry, least significant first."""
    return _packing(bits).encode(total & total.dtype.type((1 << bits) - 1))


def unpack(packed: bytes, length: int, bits: int) -> Ring:
    """The entries that ``pack`` wrote; ``PayloadError`` for other lengths or padding."""
    return _packing(bits).unpack(packed, length).astype(_word(bits))
