"""ChaCha20: key stream read forwards from OpenSSL, and short pieces in a compiled loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from jopeq.kernels.cpu.native import I64, U32, kernel, part, read, write
from jopeq.random.streams import WORD32, ChaChaStream, check_range

_BLOCK = 64  # bytes
_SHORT = 1 << 15  # bytes: for fewer, OpenSSL takes longer to begin than the compiled loop to end


SIDE = 8  # blocks side by side
_ROUNDS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)


@intrinsic
def side_by_side(typing: Any, start: Any, words: Any) -> Any:
    """Column j of ``words`` becomes the block that column j of ``start`` begins.

    Both have 16 rows of ``SIDE`` words. A row is one vector, and all rows stay in registers for two
    double rounds: three times as fast as a loop that the compiler makes vectors of.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = ir.VectorType(ir.IntType(32), SIDE)
        source, target = (
            builder.bitcast(
                context.make_array(kind)(context, builder, array).data, row.as_pointer()
            )
            for array, kind in zip(arguments, signature.args, strict=True)
        )

        def at(pointer: Any, i: int) -> Any:
            return builder.gep(pointer, [ir.Constant(ir.IntType(32), i)])

        def turned(value: Any, left: int) -> Any:
            high = builder.shl(value, ir.Constant(row, [left] * SIDE))
            return builder.or_(high, builder.lshr(value, ir.Constant(row, [32 - left] * SIDE)))

        first = [builder.load(at(source, i), align=4) for i in range(16)]
        kept = [cgutils.alloca_once_value(builder, value) for value in first]
        with cgutils.for_range(builder, ir.Constant(ir.IntType(64), 5)):
            x = [builder.load(place) for place in kept]
            for a, b, c, d in 2 * _ROUNDS:
                for to, by, mixed, left in (
                    (a, b, d, 16),
                    (c, d, b, 12),
                    (a, b, d, 8),
                    (c, d, b, 7),
                ):
                    x[to] = builder.add(x[to], x[by])
                    x[mixed] = turned(builder.xor(x[mixed], x[to]), left)
            for value, place in zip(x, kept, strict=True):
                builder.store(value, place)
        for i, place in enumerate(kept):
            builder.store(builder.add(builder.load(place), first[i]), at(target, i), align=4)
        return context.get_dummy_value()

    return types.void(start, words), generate


@part
def side_start(key, lane):
    """The initial state of ``SIDE`` blocks of a lane, without their counters (row 12)."""
    start = np.zeros((16, SIDE), dtype=np.uint32)
    start[0, :] = 0x61707865
    start[1, :] = 0x3320646E
    start[2, :] = 0x79622D32
    start[3, :] = 0x6B206574
    for i in range(8):
        start[4 + i, :] = key[i]
    start[15, :] = lane
    return start


@part
def next_blocks(start, first, words):
    """Leave ``SIDE`` blocks from ``first`` on in ``words``: word i of block j is words[i, j]."""
    for j in range(SIDE):
        start[12, j] = np.uint32(first + j)
    side_by_side(start, words)


@part
def next_words(start, first, found, words):
    """The words of the blocks from ``first`` on, one after the other; ``found`` is scratch."""
    count = len(words) // 16
    for number in range(0, count, SIDE):
        next_blocks(start, first + number, found)
        for j in range(min(SIDE, count - number)):
            for i in range(16):
                words[16 * (number + j) + i] = found[i, j]


@kernel(read(U32), I64, write(U32))
def fill(key, first, words):
    """The key stream of lane 0 from block ``first`` on, where that is short."""
    next_words(side_start(key, 0), first, np.empty((16, SIDE), dtype=np.uint32), words)


@lru_cache(maxsize=32)
def _zeros(bits: int) -> memoryview:
    """2^bits of zeros, which the cipher turns into key stream; only ever read."""
    return memoryview(bytes(1 << bits))


def key_buffer(most: int) -> NDArray[np.uint8]:
    """Room for so many bytes of key stream: whole blocks."""
    return np.empty(-(-most // _BLOCK) * _BLOCK, dtype=np.uint8)


class KeyStream:
    """The bytes of lane 0 from ``start`` (the start of a block) on, at most ``most`` at a time.

    Several may share one ``buffer``: then only the bytes read last are there.
    """

    def __init__(
        self,
        stream: ChaChaStream,
        start: int,
        most: int,
        buffer: NDArray[np.uint8] | None = None,
    ) -> None:
        check_range(start, 1)
        self._key, self._position = stream.key_words, start
        self._buffer = key_buffer(most) if buffer is None else buffer
        self._cipher = stream.cipher(0, start // _BLOCK) if most > _SHORT else None

    def next(self, count: int) -> NDArray[np.uint8]:
        """The next ``count`` bytes; every call but the last asks for whole blocks."""
        start, buffer = self._position, self._buffer
        check_range(start, count)
        self._position = start + -(-count // _BLOCK) * _BLOCK
        if self._cipher is not None:
            self._cipher.update_into(_zeros(count.bit_length())[:count], buffer)
        else:
            words = buffer[: self._position - start].view(WORD32)
            fill(self._key, start // _BLOCK, words)
        return buffer[:count]
