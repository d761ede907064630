"""ChaCha20 key streams (RFC 8439): one type for the dither, another for the noise.

A stream is a random-access array of bytes in each of 2³² *lanes*. Byte ``i`` of lane ``n`` is byte
``i mod 64`` of the ChaCha20 block with counter ``i // 64`` and the 12-byte nonce ``00…00 ‖ n`` (n
little-endian in the last four bytes), for any chunk, thread or device.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

WORD16, WORD32, WORD64 = map(np.dtype, ("<u2", "<u4", "<u8"))  # NumPy reads names slowly
SEED_BYTES = 32
NONCE_BYTES = 16
_BLOCK = 64
_MAX_BYTES = _BLOCK << 32  # the block counter has 32 bits
_COUNTED = struct.Struct("<I8xI").pack  # counter and nonce, as OpenSSL takes them


class ChaChaStream:
    """The key stream of one 32-byte key.

    >>> ChaChaStream(bytes(32)).read(lane=0, start=0, count=4).tobytes().hex()
    '76b8e0ad'
    """

    __slots__ = ("_key",)
    _name = "key"

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != SEED_BYTES:
            raise ValueError(f"{self._name} must be {SEED_BYTES} bytes, got {describe_secret(key)}")
        self._key = key

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def read(self, *, lane: int, start: int, count: int) -> NDArray[np.uint8]:
        """``count`` bytes of ``lane`` from byte ``start`` on."""
        check_range(start, count)
        block, skip = divmod(start, _BLOCK)
        stream = np.zeros(skip + count, dtype=np.uint8)
        self.cipher(lane, block).update_into(stream.data, stream.data)  # zeros become key stream
        return stream[skip:]

    def cipher(self, lane: int, block: int) -> Any:
        """OpenSSL's cipher before that block of the lane."""
        cipher, chacha = openssl()
        return cipher(chacha(self._key, _COUNTED(block, lane)), None).encryptor()

    @property
    def key_words(self) -> NDArray[np.uint32]:
        """The key as kernels take it: a secret."""
        return np.frombuffer(self._key, dtype=WORD32)

    def words16(self, *, lane: int, start: int, count: int) -> NDArray[np.uint16]:
        """``count`` little-endian 16-bit words from word ``start`` on."""
        return self.read(lane=lane, start=2 * start, count=2 * count).view(WORD16)

    def words32(self, *, lane: int, start: int, count: int) -> NDArray[np.uint32]:
        """``count`` little-endian 32-bit words from word ``start`` on."""
        return self.read(lane=lane, start=4 * start, count=4 * count).view(WORD32)

    def words64(self, *, lane: int, start: int, count: int) -> NDArray[np.uint64]:
        """``count`` little-endian 64-bit words from word ``start`` on."""
        return self.read(lane=lane, start=8 * start, count=8 * count).view(WORD64)


class SharedStream(ChaChaStream):
    """The dither, known to encoder and decoder. Keyed by the seed in the payload."""

    __slots__ = ()
    _name = "seed"

    @classmethod
    def from_secret(cls, secret: bytes, nonce: bytes) -> SharedStream:
        """The stream of one payload under a long-lived secret, derived from its nonce."""
        return cls(derive(secret, b"jopeq dither", nonce))


class PrivateStream(ChaChaStream):
    """The noise, known to the client alone. Keyed from the operating system's entropy.

    Every payload has a fresh instance, which can be neither copied nor pickled: two payloads with
    the same noise reveal the difference of their updates, and a pickle would take the key away.

    >>> PrivateStream()
    PrivateStream(<secret>)
    """

    __slots__ = ("_may_repeat", "_process")

    def __init__(self) -> None:
        super().__init__(os.urandom(SEED_BYTES))
        self._process: int | None = os.getpid()  # that may draw one payload's noise; None: drawn
        self._may_repeat = False

    def take(self) -> None:
        """Use the stream for a payload. A second one is refused, and so is a forked process."""
        if self._process != os.getpid() and not self._may_repeat:
            raise ValueError(
                "this PrivateStream has drawn the noise of a payload, or belongs to another "
                "process: payloads with the same noise reveal the difference of their updates; "
                "leave noise out"
            )
        self._process = None

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a PrivateStream is the key of one payload's noise and cannot be copied or pickled: "
            "make a fresh PrivateStream() where it is needed"
        )

    @classmethod
    def reproducible(cls, key: bytes) -> PrivateStream:
        """A stream whose noise anyone with ``key`` can recreate: for tests and audits only."""
        stream = cls()
        ChaChaStream.__init__(stream, key)
        stream._may_repeat = True
        return stream


def private_stream(noise: PrivateStream | None) -> PrivateStream:
    """``noise`` where one is given, else a fresh stream; a stream that others know is refused."""
    if noise is None:
        return PrivateStream()
    if not isinstance(noise, PrivateStream):
        raise ValueError(
            f"noise must be a PrivateStream, got {type(noise).__name__}: leave it out, or, for a "
            "test, give PrivateStream.reproducible(key)"
        )
    noise.take()
    return noise


@lru_cache(maxsize=1)
def openssl() -> tuple[Any, Any]:
    """(Cipher, ChaCha20), looked up once and used once."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    # The first use takes OpenSSL a millisecond, which no update should wait for.
    Cipher(ChaCha20(bytes(32), bytes(16)), None).encryptor().update(bytes(64))
    return Cipher, ChaCha20


def check_range(start: int, count: int) -> None:
    """Refuse bytes beyond the last block, where a lane would start over or run into another."""
    if start < 0 or count < 0 or start + count > _MAX_BYTES:
        raise ValueError(
            f"bytes {start}..{start + count} leave the stream of {_MAX_BYTES} bytes: "
            "split the update into several payloads"
        )


def fresh_seed(length: int = SEED_BYTES) -> bytes:
    """Fresh random bytes for a seed or nonce."""
    return os.urandom(length)


def derive(secret: bytes | None, label: bytes, context: bytes) -> bytes:
    """HMAC-SHA256(secret, label ‖ 0 ‖ context), the only way keys and report tags are derived."""
    if not isinstance(secret, bytes) or len(secret) != SEED_BYTES:
        raise ValueError(f"secret must be {SEED_BYTES} bytes, got {describe_secret(secret)}")
    return hmac.new(secret, label + b"\0" + context, hashlib.sha256).digest()


def describe_secret(value: object) -> str:
    """Type and length of something that may be a secret: never its content."""
    length = f" of length {len(value)}" if isinstance(value, (bytes, bytearray, str)) else ""
    return f"{type(value).__name__}{length}"
