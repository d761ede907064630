"""What every step of a recipe does: encode one chunk in one kernel call, and decode it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.kernels.recipe import Recipe
from jopeq.packing import Packing

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Words16 = NDArray[np.uint16]

# Of entries, letters and key stream. More than a second-level cache: what is worked on at a time is
# far smaller, and longer chunks pay less for the calls around a kernel (5 to 15%, measured).
_CHUNK_BYTES = 1 << 21
WIDE: Array = np.empty(0)
_NO_MISSES = (np.empty(0, dtype=np.int64), WIDE)


class Lane(NamedTuple):
    """Key stream that every sample needs, of the shared or the private stream."""

    is_shared: bool
    number: int
    bytes_per_sample: int


class Source(NamedTuple):
    """Entries of one chunk, in one of two arrays, and how they are scaled."""

    narrow: NDArray[np.float32]
    wide: Array
    mean: float
    inverse: float


class Target(NamedTuple):
    """Where decoded entries go: float32 in the update's units, or scaled samples into ``wide``."""

    unit: float
    mean: float
    wide: Array
    narrow: NDArray[np.float32]


class Rooms:
    """Buffers of one thread."""

    def __init__(self, step: Step, samples: int) -> None:
        self.letters = np.empty(samples, dtype=np.uint16)
        room = samples if step.lists_misses else 0
        self.misses = (
            (np.empty(room, dtype=np.int64), np.empty(room * step.size)) if room else _NO_MISSES
        )


class Step(ABC):
    """Encode and decode one chunk. Chunks start at whole blocks of key stream and whole bytes."""

    is_dithered = True
    lists_misses = False

    def __init__(self, recipe: Recipe) -> None:
        self.size = recipe.dimension
        letters = getattr(recipe.step, "letters", None)
        self.packing = None if letters is None else Packing(letters)
        if self.packing is not None:
            numbers = (self.packing.width, self.packing.digits, self.packing.bits)
            self.packing_numbers = (self.packing.letters, *numbers)

    @cached_property
    def chunk(self) -> int:
        """Samples of a chunk."""
        block = 64 if self.packing is None else self.packing.block
        each = 6 * self.size + sum(lane.bytes_per_sample for lane in self.lanes)
        return block * max(1, round(_CHUNK_BYTES / each / block))

    def place(self, first: int, last: int) -> slice:
        """The bytes of samples first…last, where first begins a chunk."""
        start = first // self.chunk * self._chunk_bytes
        is_whole = last - first == self.chunk
        return slice(
            start, start + (self._chunk_bytes if is_whole else self.body_size(last - first))
        )

    @cached_property
    def _chunk_bytes(self) -> int:
        return self.body_size(self.chunk)

    def body_size(self, samples: int) -> int:
        """Bytes of that many samples."""
        return 4 * self.size * samples if self.packing is None else self.packing.size(samples)

    @cached_property
    def dither(self) -> Lane:
        """What encoder and decoder share."""
        return Lane(True, 0, 2 * self.size)

    @property
    @abstractmethod
    def lanes(self) -> list[Lane]:
        """What ``encode`` reads, in its order."""

    @abstractmethod
    def encode(
        self, source: Source, words: list[Bytes], key: Any, first: int, rooms: Rooms, out: Bytes
    ) -> tuple[int, int]:
        """One chunk of samples from ``first`` on into ``out``: (clipped, overloaded)."""

    @abstractmethod
    def decode(self, body: Bytes, dither: Words16, letters: Words16, target: Target) -> int:
        """One chunk; 1 for bytes that no encoder writes, 2 when a number leaves float32, else 0."""
