"""One lane of a ChaCha20 stream, read forwards into the same small buffer again and again."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq.randomness import ChaChaStream, check_range

_BLOCK = 64


@lru_cache(maxsize=16)
def _zeros(size: int) -> NDArray[np.uint8]:
    """What the cipher turns into key stream; only ever read."""
    zeros = np.zeros(size, dtype=np.uint8)
    zeros.flags.writeable = False
    return zeros


class KeyStream:
    """The bytes of a lane from ``start`` (the start of a block) on, ``room`` at a time at most."""

    def __init__(self, stream: ChaChaStream, lane: int, start: int, room: int) -> None:
        check_range(start, 1)
        self._stream, self._lane = stream, lane
        self._block = start // _BLOCK
        self._buffer = np.empty(-(-room // _BLOCK) * _BLOCK, dtype=np.uint8)
        self._zeros = _zeros(room)
        self._cipher = stream.cipher(lane, self._block)

    def next(self, count: int) -> NDArray[np.uint8]:
        """The next ``count`` bytes; every call but the last asks for whole blocks."""
        check_range(self._block * _BLOCK, count)
        blocks = -(-count // _BLOCK)
        if self._cipher is not None:
            self._cipher.update_into(self._zeros[:count].data, self._buffer.data)
        else:
            from jopeq.kernels.cpu_chacha import fill

            words = self._buffer[: blocks * _BLOCK].view("<u4")
            fill(self._stream.key_words, self._lane, self._block, words)
        self._block += blocks
        return self._buffer[:count]
