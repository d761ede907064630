"""How the letters of samples become the body of a payload, a chunk at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PayloadError
from jopeq.wire import entropy
from jopeq.wire.packing import Packing

_CHUNK_SAMPLES = 1 << 16


class Coder(Protocol):
    """Letters of samples ↔ bytes. Every chunk but the last has ``chunk`` samples."""

    @property
    def chunk(self) -> int: ...

    def check(self, body_bytes: int, samples: int) -> None:
        """Raise ``PayloadError`` when that many samples cannot be in that many bytes."""

    def encode(self, letters: NDArray[Any]) -> bytes: ...

    def decode(self, body: memoryview, position: int, samples: int) -> tuple[NDArray[Any], int]: ...


@dataclass(frozen=True)
class LetterCoder:
    """One letter of a finite alphabet a sample, packed at a fixed rate."""

    letters: int

    @cached_property
    def packing(self) -> Packing:
        return Packing(self.letters)

    @cached_property
    def chunk(self) -> int:
        block = self.packing.block
        return block * -(-_CHUNK_SAMPLES // block)

    def check(self, body_bytes: int, samples: int) -> None:
        expected = self.packing.size(samples)
        if body_bytes != expected:
            raise PayloadError(
                f"the header claims {samples} samples, which take {expected} bytes; "
                f"the body has {body_bytes}"
            )

    def encode(self, letters: NDArray[Any]) -> bytes:
        return self.packing.pack(letters)

    def decode(self, body: memoryview, position: int, samples: int) -> tuple[NDArray[Any], int]:
        end = position + self.packing.size(samples)
        return self.packing.unpack(body[position:end], samples), end


@dataclass(frozen=True)
class IntegerCoder:
    """``dimension`` unbounded integers a sample, entropy-coded."""

    dimension: int

    @property
    def chunk(self) -> int:
        return _CHUNK_SAMPLES

    def check(self, body_bytes: int, samples: int) -> None:
        if samples * self.dimension > entropy.MAX_ENTRIES_PER_BYTE * body_bytes:
            raise PayloadError(f"the header claims {samples} samples in {body_bytes} bytes")

    def encode(self, letters: NDArray[Any]) -> bytes:
        return entropy.encode(letters)

    def decode(self, body: memoryview, position: int, samples: int) -> tuple[NDArray[Any], int]:
        letters, used = entropy.decode(body[position:], samples, self.dimension)
        return letters, position + used


@dataclass(frozen=True)
class WordCoder:
    """``dimension`` little-endian 32-bit words a sample: floats or integers as they are."""

    dimension: int
    dtype: str  # "<f4" or "<i4"

    @property
    def chunk(self) -> int:
        return max(1, _CHUNK_SAMPLES // self.dimension)

    def check(self, body_bytes: int, samples: int) -> None:
        if body_bytes != 4 * samples * self.dimension:
            raise PayloadError(f"the header claims {samples} samples in {body_bytes} bytes")

    def encode(self, letters: NDArray[Any]) -> bytes:
        return letters.astype(self.dtype).tobytes()

    def decode(self, body: memoryview, position: int, samples: int) -> tuple[NDArray[Any], int]:
        end = position + 4 * samples * self.dimension
        words = np.frombuffer(body[position:end], dtype=self.dtype)
        if words.dtype.kind == "f" and not np.isfinite(words).all():
            raise PayloadError("the body holds an entry that is not finite")
        return words.reshape(samples, self.dimension), end
