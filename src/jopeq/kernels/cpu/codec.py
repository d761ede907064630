"""The walk over chunks on the CPU: key stream, one kernel call, the next; threads over ranges.

Blocks within a chunk fit the first-level cache. Every thread keeps a few such buffers, however
large the update is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PayloadError
from jopeq.kernels.cpu.chacha import KeyStream, key_buffer
from jopeq.kernels.cpu.native import F32, F64, kernel, part, read, write
from jopeq.kernels.cpu.steps import WIDE, Bytes, Draws, Lane, Source, Step, Target, prepare
from jopeq.kernels.recipe import Recipe
from jopeq.kernels.threads import in_threads
from jopeq.random.streams import WORD16, ChaChaStream, PrivateStream, SharedStream
from jopeq.wire.entries import Entries
from jopeq.wire.scaling import Scale, read_scaled, unscale

Update = NDArray[np.float32]
Body = tuple[memoryview, list[Scale], SharedStream]

_NARROW: Update = np.empty(0, dtype=np.float32)
_OUTSIDE = "an index lies outside the codebook, or padding is not zero"
_TOO_LARGE = "the payload holds numbers too large for float32"


def body_bytes(recipe: Recipe, samples: int) -> int:
    """Bytes of a body of so many samples."""
    return prepare(recipe).packing.size(samples)


def encode_body(
    recipe: Recipe,
    entries: Entries,
    scales: list[Scale],
    shared: SharedStream,
    private: PrivateStream,
    out: Bytes,
) -> tuple[int, int]:
    """The body of an update into ``out``: (clipped, overloaded)."""
    step = prepare(recipe)
    key = private.key_words

    def work(begin: int, end: int) -> tuple[int, int]:
        most = min(step.chunk, end - begin)
        letters = np.empty(most, dtype=np.uint16)
        lanes = [
            (_open(shared if lane.is_shared else private, lane, begin, most), lane.bytes_per_sample)
            for lane in step.lanes
        ]
        clipped, overloaded = 0, 0
        for first in range(begin, end, step.chunk):
            last = min(first + step.chunk, end)
            words = [keys.next(each * (last - first)) for keys, each in lanes]
            source = _source(entries, scales, first, last, step.size)
            place = step.place(first, last)
            here = letters[: last - first]
            more = step.encode(source, Draws(words, key, first), here, out[place])
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
        letters, room = np.empty(most, np.uint16), key_buffer(step.dither.bytes_per_sample * most)
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
        self._dither = _open(shared, step.dither, begin, len(letters), room)

    def next(self, first: int, last: int, out: Update) -> None:
        """The entries of samples first…last, which follow those of the call before."""
        count, size = last - first, self._step.size
        scale = self._scale(first * size, last * size)
        if scale is not None and len(out) == count * size:
            self._decode(first, last, Target(scale.unit, scale.mean, WIDE, out))
            return
        samples = np.empty(count * size)  # several scales, or a last sample that is not full
        self._decode(first, last, Target(1.0, 0.0, samples, _NARROW))
        entries = samples[: len(out)]
        with np.errstate(over="ignore", invalid="ignore"):
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

    def _decode(self, first: int, last: int, target: Target) -> None:
        step, count = self._step, last - first
        dither = self._dither.next(step.dither.bytes_per_sample * count).view(WORD16)
        here = self._packed[step.place(first, last)]
        code = step.decode(here, dither, self._letters[:count], target)
        if code:
            raise PayloadError(_OUTSIDE if code == 1 else _TOO_LARGE)


def _source(entries: Entries, scales: list[Scale], first: int, last: int, size: int) -> Source:
    """The entries of a chunk where they lie, or scaled copies when they lie apart."""
    found = entries.row(first * size, last * size)
    if found is None:
        copies = np.zeros((last - first) * size)
        with np.errstate(all="ignore"):  # a thread starts with NumPy's defaults
            scaled = read_scaled(entries, scales, first * size, min(last * size, entries.count))
        copies[: len(scaled)] = scaled
        return Source(_NARROW, copies, 0.0, 1.0)
    tensor, row = found
    scale = scales[tensor if len(scales) > 1 else 0]
    narrow, wide = (row, WIDE) if row.dtype.char == "f" else (_NARROW, row)
    return Source(narrow, wide, scale.mean, scale.inverse)


def _open(
    stream: ChaChaStream, lane: Lane, first: int, most: int, buffer: Bytes | None = None
) -> KeyStream:
    """The lane from sample ``first`` on, ``most`` samples at a time at most."""
    each = lane.bytes_per_sample
    return KeyStream(stream, lane.number, first * each, most * each, buffer)
