"""The steps of a recipe ready for their kernels: constant arrays, one call a chunk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import UpdateError
from jopeq.kernels.cpu import lattice, line
from jopeq.kernels.cpu.samples import LAPLACE, NO_NOISE, STUDENT
from jopeq.kernels.recipe import Cells, Chances, Line, Recipe
from jopeq.random.streams import WORD16, WORD32, WORD64
from jopeq.wire.coders import Packing

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Words16 = NDArray[np.uint16]
Counts = tuple[int, int]

# Of entries, letters and key stream. More than a second-level cache: what is worked on at a time is
# far smaller, and longer chunks pay less for the calls around a kernel (5 to 15%, measured).
_CHUNK_BYTES = 1 << 21
# Of the sum, of decoded entries and of dither. Shorter chunks would fit a second-level cache and
# take a tenth longer, because of the calls.
_SUM_CHUNK_BYTES = 3 << 19
WIDE: Array = np.empty(0)
_NO_WORDS = np.empty(0, dtype=np.uint64)
_LAWS = {"laplace": LAPLACE, "t": STUDENT}


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


class Draws(NamedTuple):
    """Random words of one chunk, lane by lane; the private key, and which sample is the first."""

    words: list[Bytes]
    key: NDArray[np.uint32]
    first: int


class Target(NamedTuple):
    """Where decoded entries go: float32 in the update's units, or scaled samples into ``wide``."""

    unit: float
    mean: float
    wide: Array
    narrow: NDArray[np.float32]


class Step(ABC):
    """Encode and decode one chunk. Chunks start at whole blocks of key stream and whole bytes."""

    def __init__(self, recipe: Recipe) -> None:
        self.size = recipe.dimension
        self.dither = Lane(True, 0, 2 * self.size)  # what encoder and decoder share
        self.packing = Packing(recipe.step.letters)
        numbers = (self.packing.width, self.packing.digits, self.packing.bits)
        self.packing_numbers = (self.packing.letters, *numbers)
        self.lanes, self._noise = [self.dither], (NO_NOISE, 0.0, 0.0, np.inf)
        if (noise := recipe.noise) is not None:
            law = _LAWS[noise.law]
            self._noise = (law, noise.scale, noise.nu, noise.limit)
            self.lanes.append(Lane(False, 0, 16 if law == STUDENT else 8 * self.size))
        self._is_clipped = recipe.is_clipped

    @cached_property
    def chunk(self) -> int:
        """Samples of a chunk."""
        each = 6 * self.size + sum(lane.bytes_per_sample for lane in self.lanes)
        return self._whole_blocks(_CHUNK_BYTES / each)

    @cached_property
    def sum_chunk(self) -> int:
        """Samples of a chunk of a sum."""
        return self._whole_blocks(_SUM_CHUNK_BYTES / (14 * self.size))

    def _whole_blocks(self, samples: float) -> int:
        block = self.packing.block
        return block * max(1, round(samples / block))

    def place(self, first: int, last: int) -> slice:
        """The bytes of samples first…last, where first begins a chunk."""
        start = self.packing.size(first)
        return slice(start, start + self.packing.size(last - first))

    def samples(self, source: Source, draws: Draws) -> tuple[Any, ...]:
        """A kernel's first arguments: entries, clip, noise and dither."""
        words = draws.words[1].view(WORD64) if len(self.lanes) > 1 else _NO_WORDS
        noise = (*self._noise, words, draws.key, draws.first)
        return (*source, self._is_clipped, *noise, draws.words[0].view(WORD16))

    @abstractmethod
    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> Counts:
        """One chunk of samples into ``out``: (clipped, overloaded); ``letters`` is scratch."""

    @abstractmethod
    def decode(self, body: Bytes, dither: Words16, letters: Words16, target: Target) -> int:
        """One chunk; 1 for bytes that no encoder writes, 2 when an entry leaves float32, else 0."""


class _OnLine(Step):
    """Letters of single entries."""

    _kind: tuple[Any, ...]  # how ``line.decode_letters`` reads a letter

    def decode(self, body: Bytes, dither: Words16, letters: Words16, target: Target) -> int:
        out = (target.unit, target.mean, letters, target.wide, target.narrow)
        return line.decode_letters(
            body, *self.packing_numbers, dither, *self._kind, self._rows, *out
        )

    @cached_property
    def _rows(self) -> Array:
        """The points of the letters of every byte, where bytes hold several whole letters."""
        alphabet, width, *_ = self.packing_numbers
        if width not in (1, 2, 4):
            return WIDE
        kind, step, middle, values = self._kind
        letters = np.arange(256)[:, None] >> np.arange(0, 8, width) & alphabet - 1
        if kind == line.TABLE:
            return values[letters].reshape(-1)
        return ((letters - middle) * step).reshape(-1)


class _Line(_OnLine):
    def __init__(self, recipe: Recipe, step: Line) -> None:
        super().__init__(recipe)
        self._step = step.step
        self._kind = (line.LINE, step.step, 0.5 * (step.letters - 1), WIDE)

    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> Counts:
        samples = self.samples(source, draws)
        return line.encode_line(*samples, self._step, *self.packing_numbers, letters, out)


class _Chances(_OnLine):
    def __init__(self, recipe: Recipe, step: Chances) -> None:
        super().__init__(recipe)
        below, above = step.thresholds[[-1, 0]].astype(np.uint32)
        self._arguments = (below, above, step.levels)
        self._kind = (line.TABLE, step.spacing, 0.0, step.values)
        self.lanes = [self.dither, Lane(False, 0, 4)]

    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> Counts:
        words = draws.words[0].view(WORD16), draws.words[1].view(WORD32)
        return line.encode_chances(
            *source, *words, *self._arguments, *self.packing_numbers, letters, out
        )


class _Cells(Step):
    """Letters that name points of A2."""

    def __init__(self, recipe: Recipe, step: Cells) -> None:
        super().__init__(recipe)
        self._table = lattice.LetterTable(step.codebook)

    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> Counts:
        samples, table = self.samples(source, draws), self._table.arguments
        clipped, overloaded, is_far = lattice.encode_cells(
            *samples, *table, *self.packing_numbers, letters, out
        )
        if is_far:
            raise UpdateError(
                "x is too far from the origin to be quantized exactly: raise clip or spread"
            )
        return clipped, overloaded

    def decode(self, body: Bytes, dither: Words16, letters: Words16, target: Target) -> int:
        points = (self._table.codewords, self._table.step)
        out = (target.unit, target.mean, letters, target.wide, target.narrow)
        return lattice.decode_cells(body, *self.packing_numbers, dither, *points, *out)


@lru_cache(maxsize=128)
def prepare(recipe: Recipe) -> Step:
    """The step of a recipe, ready."""
    kinds: dict[type, Any] = {Line: _Line, Chances: _Chances, Cells: _Cells}
    step: Step = kinds[type(recipe.step)](recipe, recipe.step)
    return step
