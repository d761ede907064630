"""Masks: key streams added to vectors of integers mod 2^bits, and the vectors as bytes.

An entry takes the low bits of one little-endian word of 1, 2 or 4 bytes. A word of the key stream
is uniform, and 2^bits divides the number of words, so the masked entry is uniform over the ring.
AES-256 in counter mode makes the stream: with the processor's AES instructions it is twice as fast
as ChaCha20 (``benchmarks/secure.py``), and every key makes one stream only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from jopeq.wire.coders import Packing

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


def pack(total: Ring, bits: int) -> bytes:
    """``bits`` bits an entry, least significant first."""
    return Packing(1 << bits).encode(total & total.dtype.type((1 << bits) - 1))


def unpack(packed: bytes, length: int, bits: int) -> Ring:
    """The entries that ``pack`` wrote; ``PayloadError`` for other lengths or padding."""
    return Packing(1 << bits).unpack(packed, length).astype(_word(bits))
