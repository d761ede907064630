"""The ChaCha20 block function (RFC 8439, section 2.3) in NumPy, many blocks at a time.

OpenSSL does this an order of magnitude faster; this stands in where the ``cryptography`` package
is missing, and says what a kernel on another device must compute.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SIGMA = np.frombuffer(b"expand 32-byte k", dtype="<u4")
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))

Words = NDArray[np.uint32]


def _rotated(x: Words, bits: int) -> Words:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _quarter_round(state: list[Words], a: int, b: int, c: int, d: int) -> None:
    for target, source, mixed, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[target] = state[target] + state[source]
        state[mixed] = _rotated(state[mixed] ^ state[target], bits)


def key_stream(key: bytes, nonce: bytes, block: int, blocks: int) -> NDArray[np.uint8]:
    """The bytes of ``blocks`` blocks from counter ``block`` on, for a 12-byte nonce.

    >>> key_stream(bytes(32), bytes(12), 0, 1)[:4].tobytes().hex()
    '76b8e0ad'
    """
    counters = (block + np.arange(blocks, dtype=np.uint64)).astype(np.uint32)
    constants = np.concatenate((_SIGMA, np.frombuffer(key, dtype="<u4")))
    tail = np.frombuffer(nonce, dtype="<u4")
    initial = [np.full(blocks, word, dtype=np.uint32) for word in constants]
    initial += [counters, *(np.full(blocks, word, dtype=np.uint32) for word in tail)]
    state = list(initial)
    for _ in range(10):
        for quarter in (*_COLUMNS, *_DIAGONALS):
            _quarter_round(state, *quarter)
    words = np.stack([x + y for x, y in zip(state, initial, strict=True)], axis=1)
    return words.astype("<u4").reshape(-1).view(np.uint8)
