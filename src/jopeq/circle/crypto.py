"""Keys of a round: X25519 agreement, HKDF bound to the transcript, sealed shares, signatures."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jopeq.errors import ProtocolError

TAG_BYTES = 16
CONFIRMATION_BYTES = 16


def public(private: bytes) -> bytes:
    """The public key of a private X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def check_public(key: bytes) -> None:
    """``ProtocolError`` for a point of small order, with which nobody can agree on a secret."""
    _agree(bytes(range(32)), key)


def mask_key(
    private: bytes,
    other: bytes,
    transcript: bytes,
    one: int,
    two: int,
    *,
    label: bytes = b"jopeq sum pair mask\0",
) -> bytes:
    """The key of the mask that the clients of two positions share.

    Different public keys can agree on the same secret: without the positions, whoever sends such a
    twin of a client's key would make masks of other pairs cancel each other.
    """
    info = label + _positions(min(one, two), max(one, two))
    return _derive(_agree(private, other), transcript, info)


def self_mask_key(seed: bytes, transcript: bytes) -> bytes:
    """The key of the mask that a client adds for itself."""
    return _derive(seed, transcript, b"jopeq sum self mask")


def commitment(seed: bytes, transcript: bytes) -> bytes:
    """Shows whether a reconstructed seed is right; reveals nothing about an unknown seed."""
    return hashlib.sha256(b"jopeq sum commitment\0" + transcript + seed).digest()


def confirmation(private: bytes, other: bytes, bound: bytes, sender: int, receiver: int) -> bytes:
    """Shows the receiver that the sender was told the same clients; the server cannot make it."""
    info = b"jopeq sum confirmation\0" + _positions(sender, receiver)
    return _derive(_agree(private, other), bound, info)[:CONFIRMATION_BYTES]


class Box:
    """Seals what one client sends another through the server: one message, one key."""

    def __init__(
        self, private: bytes, other: bytes, transcript: bytes, sender: int, receiver: int
    ) -> None:
        info = b"jopeq sum share\0" + _positions(sender, receiver)
        self._cipher = ChaCha20Poly1305(_derive(_agree(private, other), transcript, info))

    def seal(self, content: bytes) -> bytes:
        return self._cipher.encrypt(bytes(12), content, None)

    def open(self, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(bytes(12), sealed, None)
        except InvalidTag:
            raise ProtocolError(
                "a sealed share cannot be opened: it was changed, or its sender was told other "
                "terms or another roster; nothing was sent"
            ) from None


def is_signed(identity: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether this Ed25519 key signed the statement."""
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


def _positions(first: int, second: int) -> bytes:
    return first.to_bytes(4, "little") + second.to_bytes(4, "little")


def _derive(secret: bytes, transcript: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=transcript, info=info).derive(secret)
