"""The walk over chunks on the CPU: key stream, one kernel call, the next; threads over ranges.

Every thread keeps a few buffers of a chunk, however large the update is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PayloadError, UpdateError
from jopeq.kernels.cpu import letters as loops
from jopeq.kernels.cpu.chacha import KeyStream, key_buffer
from jopeq.kernels.cpu.native import F32, F64, kernel, part, read, write
from jopeq.kernels.recipe import Array, Cells, Chances, Line, Recipe
from jopeq.kernels.threads import in_threads
from jopeq.random.streams import WORD16, WORD32, WORD64, PrivateStream, SharedStream
from jopeq.wire.entries import Entries
from jopeq.wire.scaling import Scale, read_scaled, unscale

Bytes = NDArray[np.uint8]
Words16 = NDArray[np.uint16]
Update = NDArray[np.float32]
Source = tuple[Update, Array, float, float]  # entries in one of two arrays, mean, inverse scale
Body = tuple[memoryview, list[Scale], SharedStream]

# Of entries, letters and key stream. More than a second-level cache: what is worked on at a time is
# far smaller, and longer chunks pay less for the calls around a kernel (5 to 15%, measured).
_CHUNK_BYTES = 1 << 21
# Of the sum, of decoded entries and of dither. Shorter chunks would fit a second-level cache and
# take a tenth longer, because of the calls.
_SUM_CHUNK_BYTES = 3 << 19
_WIDE: Array = np.empty(0)
_NARROW: Update = np.empty(0, dtype=np.float32)
_OUTSIDE = "an index lies outside the codebook, or padding is not zero"
_TOO_LARGE = "the payload holds numbers too large for float32"


class Draws(NamedTuple):
    """Random bytes of one chunk; the private key, and which sample is the first."""

    dither: Bytes
    noise: Bytes
    key: NDArray[np.uint32]
    first: int


class Step(ABC):
    """Constant arrays of a recipe, and the kernels that take them."""

    noise_bytes = 0  # of private key stream, per sample

    def __init__(self, recipe: Recipe) -> None:
        step, self.packing, self.size = recipe.step, recipe.packing, recipe.dimension
        self.dither_bytes = 2 * self.size
        packing = self.packing
        self._packing = (packing.letters, packing.width, packing.digits, packing.bits)
        self._step, self._points, self._is_clipped = step.step, step.points, recipe.is_clipped
        self._listed = _WIDE if isinstance(step, Line) else self._points  # others are computed

    @cached_property
    def chunk(self) -> int:
        """Samples of a chunk, which starts at a whole block of key stream and at a whole byte."""
        each = 6 * self.size + self.dither_bytes + self.noise_bytes
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

    @abstractmethod
    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> tuple[int, int]:
        """One chunk of samples into ``out``: (clipped, overloaded); ``letters`` is scratch."""

    def decode(
        self, body: Bytes, dither: Bytes, letters: Words16, scale: Scale, wide: Array, out: Update
    ) -> None:
        """One chunk of entries into ``out``, or of scaled samples into ``wide`` if it has room."""
        table = (dither.view(WORD16), self._step, self._listed, self._rows)
        into = (scale.unit, scale.mean, letters, wide, out)
        code = loops.decode(body, *self._packing, *table, *into)
        if code:
            raise PayloadError(_OUTSIDE if code == 1 else _TOO_LARGE)

    @cached_property
    def _rows(self) -> Array:
        """The points of the letters of every byte, where these are two, four or eight numbers."""
        alphabet, width, *_ = self._packing
        if width not in (1, 2, 4, 8) or 8 * self.size // width not in (2, 4, 8):
            return _WIDE
        letters = np.arange(256)[:, None] >> np.arange(0, 8, width) & alphabet - 1
        return self._points.reshape(alphabet, -1)[letters].reshape(-1)


class _Noisy(Step):
    """A step behind noise, if there is any."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._noise, self._nu = (0.0, np.inf), 0.0
        if (noise := recipe.noise) is not None:
            self._noise, self._nu = (noise.scale, noise.limit), noise.nu
            self.noise_bytes = 8 * self.size

    def _samples(self, source: Source, draws: Draws) -> tuple[object, ...]:
        """A kernel's first arguments."""
        words = (draws.noise.view(WORD64), draws.key, draws.first)
        return (*source, self._is_clipped, *self._noise, *words)


class _Line(_Noisy):
    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> tuple[int, int]:
        dither = (draws.dither.view(WORD16), self._step)
        return loops.encode_line(
            *self._samples(source, draws), *dither, *self._packing, letters, out
        )


class _Cells(_Noisy):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        step: Any = recipe.step
        self._table = (step.box, step.codebook.table, self._points)

    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> tuple[int, int]:
        more = (self._nu, draws.dither.view(WORD16), self._step, *self._table, *self._packing)
        clipped, overloaded, is_far = loops.encode_cells(
            *self._samples(source, draws), *more, letters, out
        )
        if is_far:
            raise UpdateError(
                "x is too far from the origin to be quantized exactly: raise clip or spread"
            )
        return clipped, overloaded


class _Chances(Step):
    noise_bytes = 4

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        step: Any = recipe.step
        self._ends = step.thresholds[[-1, 0]].astype(np.uint32)

    def encode(self, source: Source, draws: Draws, letters: Words16, out: Bytes) -> tuple[int, int]:
        words = (draws.dither.view(WORD16), draws.noise.view(WORD32))
        clipped = loops.encode_chances(*source, *words, *self._ends, *self._packing, letters, out)
        return clipped, 0


@lru_cache(maxsize=128)
def prepare(recipe: Recipe) -> Step:
    """The step of a recipe, ready."""
    kinds: dict[type, type[Step]] = {Line: _Line, Chances: _Chances, Cells: _Cells}
    return kinds[type(recipe.step)](recipe)


def encode_body(
    recipe: Recipe,
    entries: Entries,
    scales: list[Scale],
    shared: SharedStream,
    private: PrivateStream,
    out: Bytes,
) -> tuple[int, int]:
    """The body of an update into ``out``: (clipped, overloaded)."""
    step, key = prepare(recipe), private.key_words
    each, noise_each = step.dither_bytes, step.noise_bytes

    def work(begin: int, end: int) -> tuple[int, int]:
        most = min(step.chunk, end - begin)
        letters = np.empty(most, dtype=np.uint16)
        dither = KeyStream(shared, each * begin, each * most)
        noise = KeyStream(private, noise_each * begin, noise_each * most)
        clipped, overloaded = 0, 0
        for first in range(begin, end, step.chunk):
            last = min(first + step.chunk, end)
            count = last - first
            draws = Draws(dither.next(each * count), noise.next(noise_each * count), key, first)
            source = _source(entries, scales, first, last, step.size)
            more = step.encode(source, draws, letters[:count], out[step.place(first, last)])
            clipped, overloaded = clipped + more[0], overloaded + more[1]
        return clipped, overloaded

    counts = in_threads(work, -(-entries.count // step.size), step.chunk, step.size)
    clipped, overloaded = map(sum, zip(*counts, strict=True))
    return clipped, overloaded


def decode_body(
    recipe: Recipe,
    body: memoryview,
    sizes: tuple[int, ...],
    scales: list[Scale],
    shared: SharedStream,
) -> Update:
    """All entries of a body."""
    step, ends = prepare(recipe), list(accumulate(sizes))
    flat = np.empty(sum(sizes), dtype=np.float32)

    def work(begin: int, end: int) -> None:
        letters = np.empty(min(step.chunk, end - begin), dtype=np.uint16)
        decoder = _ChunkDecoder(step, (body, scales, shared), ends, begin, letters)
        for first in range(begin, end, step.chunk):
            last = min(first + step.chunk, end)
            decoder.next(first, last, flat[first * step.size : last * step.size])

    in_threads(work, -(-len(flat) // step.size), step.chunk, step.size)
    return flat


_ABREAST = 64  # sums of squares side by side: one alone would wait for itself


@part
def _add_some(entries, weight, total, squares):
    for i in range(len(entries)):
        entry = np.float64(entries[i])
        total[i] += weight * entry
        squares[i] += entry * entry


@kernel(read(F32), F64, write(F64), returns=F64)
def _add_weighted(entries, weight, total):
    """total += weight·entries; the sum of the entries' squares."""
    squares = np.zeros(_ABREAST)
    for first in range(0, len(entries), _ABREAST):
        last = min(first + _ABREAST, len(entries))
        _add_some(entries[first:last], weight, total[first:last], squares)
    return squares.sum()


def add_bodies(
    recipe: Recipe,
    bodies: list[Body],
    weights: list[float],
    sizes: tuple[int, ...],
    total: NDArray[np.float64],
) -> tuple[list[float], dict[int, PayloadError]]:
    """total += Σ weight·update; the energy Σ entry² of each update, and what is wrong with which.

    All bodies are added to a chunk of the total, then to the next: it stays in the cache. Where a
    body is bad, parts of it may be in the total.
    """
    step, ends = prepare(recipe), list(accumulate(sizes))
    chunk, samples = step.sum_chunk, -(-len(total) // step.size)
    energies = np.zeros((len(bodies), -(-samples // chunk)))

    def work(begin: int, end: int) -> dict[int, PayloadError]:
        most = min(chunk, end - begin)
        letters, room = np.empty(most, np.uint16), key_buffer(step.dither_bytes * most)
        entries = np.empty(most * step.size, dtype=np.float32)
        decoders = [_ChunkDecoder(step, body, ends, begin, letters, room) for body in bodies]
        failed: dict[int, PayloadError] = {}
        for first in range(begin, end, chunk):
            last = min(first + chunk, end)
            here = total[first * step.size : last * step.size]
            for index, decoder in enumerate(decoders):
                if index in failed:
                    continue
                try:
                    decoder.next(first, last, entries[: len(here)])
                except PayloadError as error:
                    failed[index] = error
                    continue
                energy = _add_weighted(entries[: len(here)], weights[index], here)
                energies[index, first // chunk] = energy
        return failed

    failures: dict[int, PayloadError] = {}
    for failed in in_threads(work, samples, chunk, step.size):
        failures = {**failed, **failures}  # of one body, what is wrong first
    return [math.fsum(row) for row in energies], failures


class _ChunkDecoder:
    """The samples of one body from ``begin`` on, chunk after chunk.

    Several may share the memory for ``letters`` and, in ``room``, for the dither.
    """

    def __init__(
        self,
        step: Step,
        body: Body,
        ends: list[int],
        begin: int,
        letters: NDArray[np.uint16],
        room: Bytes | None = None,
    ) -> None:
        packed, self._scales, shared = body
        self._step, self._ends, self._letters = step, ends, letters
        self._packed = np.frombuffer(packed, dtype=np.uint8)
        each = step.dither_bytes
        self._dither = KeyStream(shared, each * begin, each * len(letters), room)

    def next(self, first: int, last: int, out: Update) -> None:
        """The entries of samples first…last, which follow those of the call before."""
        step, count = self._step, last - first
        size = step.size
        scale = self._scale(first * size, last * size)
        chunk = self._packed[step.place(first, last)], self._dither.next(step.dither_bytes * count)
        letters = self._letters[:count]
        if scale is not None and len(out) == count * size:
            step.decode(*chunk, letters, scale, _WIDE, out)
            return
        samples = np.empty(count * size)  # several scales, or a last sample that is not full
        step.decode(*chunk, letters, Scale(1.0), samples, _NARROW)
        entries = samples[: len(out)]
        with np.errstate(all="ignore"):
            unscale(entries, first * size, self._ends, self._scales)
            out[:] = entries
        if not np.isfinite(out).all():
            raise PayloadError(_TOO_LARGE)

    def _scale(self, start: int, stop: int) -> Scale | None:
        """The scale of entries start…stop; None where they lie in tensors of several scales."""
        if len(self._scales) == 1:
            return self._scales[0]
        tensor = bisect_right(self._ends, start)
        return self._scales[tensor] if stop <= self._ends[tensor] else None


def _source(entries: Entries, scales: list[Scale], first: int, last: int, size: int) -> Source:
    """The entries of a chunk where they lie, or scaled copies when they lie apart."""
    found = entries.row(first * size, last * size)
    if found is None:
        copies = np.zeros((last - first) * size)
        with np.errstate(all="ignore"):  # a thread starts with NumPy's defaults
            scaled = read_scaled(entries, scales, first * size, min(last * size, entries.count))
        copies[: len(scaled)] = scaled
        return _NARROW, copies, 0.0, 1.0
    tensor, row = found
    scale = scales[tensor if len(scales) > 1 else 0]
    narrow, wide = (row, _WIDE) if row.dtype.char == "f" else (_NARROW, row)
    return narrow, wide, scale.mean, scale.inverse
