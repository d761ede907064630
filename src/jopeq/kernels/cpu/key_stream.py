"""One lane of a ChaCha20 stream, read forwards into the same small buffer again and again."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq.random.streams import ChaChaStream, check_range

_BLOCK = 64


@lru_cache(maxsize=32)
def _zeros(bits: int) -> memoryview:
    """2^bits of what the cipher turns into key stream; only ever read."""
    return memoryview(bytes(1 << bits))


class KeyStream:
    """The bytes of a lane from ``start`` (the start of a block) on, ``room`` at a time at most."""

    def __init__(self, stream: ChaChaStream, lane: int, start: int, room: int) -> None:
        check_range(start, 1)
        self._stream, self._lane = stream, lane
        self._position = start
        self._buffer = np.empty(-(-room // _BLOCK) * _BLOCK, dtype=np.uint8)
        self._cipher = stream.cipher(lane, start // _BLOCK)

    def next(self, count: int) -> NDArray[np.uint8]:
        """The next ``count`` bytes; every call but the last asks for whole blocks."""
        start, buffer = self._position, self._buffer
        check_range(start, count)
        self._position = start + -(-count // _BLOCK) * _BLOCK
        if self._cipher is not None:
            self._cipher.update_into(_zeros(count.bit_length())[:count], buffer)
        else:
            from jopeq.kernels.cpu.chacha import fill

            words = buffer[: self._position - start].view("<u4")
            fill(self._stream.key_words, self._lane, start // _BLOCK, words)
        return buffer[:count]
