"""Between entries and samples: scaling, rotation, and the cut into sub-vectors of L entries."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from jopeq.entries import Entries, overlaps
from jopeq.randomness import SharedStream
from jopeq.rotation import blocks, rotate_block, unrotate_block
from jopeq.scaling import Scale

Array = NDArray[np.float64]


class SampleReader:
    """Reads an update as scaled (and rotated) samples, chunk by chunk, from first to last."""

    def __init__(
        self, entries: Entries, scales: list[Scale], rotation: SharedStream | None
    ) -> None:
        self._entries = entries
        self._scales = scales
        self._rotation = rotation
        self._blocks = blocks(entries.count)
        self._block = (0, 0)
        self._rotated = np.empty(0)

    def read(self, first: int, last: int, dimension: int) -> Array:
        """Samples first…last; the very last one is filled up with zeros."""
        start, stop = first * dimension, min(last * dimension, self._entries.count)
        flat = np.zeros((last - first) * dimension)
        filled = self._scaled if self._rotation is None else self._turned
        flat[: stop - start] = filled(start, stop)
        return flat.reshape(-1, dimension)

    def _scaled(self, start: int, stop: int) -> Array:
        pieces = [
            self._scales[tensor if len(self._scales) > 1 else 0].apply(piece)
            if self._scales
            else piece
            for tensor, piece in self._entries.read(start, stop)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def _turned(self, start: int, stop: int) -> Array:
        pieces = []
        while start < stop:
            if start >= self._block[1]:
                self._block = next(self._blocks)
                low, high = self._block
                if self._rotation is not None:
                    self._rotated = rotate_block(self._scaled(low, high), low, self._rotation)
                continue
            low, high = self._block
            end = min(stop, high)
            pieces.append(self._rotated[start - low : end - low])
            start = end
        return np.concatenate(pieces)


class SampleWriter:
    """Takes decoded samples, chunk by chunk, and gives the update back."""

    def __init__(
        self, sizes: tuple[int, ...], scales: list[Scale], rotation: SharedStream | None
    ) -> None:
        self._ends = list(accumulate(sizes))
        self._scales = scales
        self._rotation = rotation
        self._flat = np.empty(sum(sizes), dtype=np.float32)

    def write(self, first: int, samples: Array) -> None:
        """Samples from ``first`` on; zeros that filled up the last one are dropped."""
        start = first * samples.shape[1]
        values = samples.reshape(-1)[: len(self._flat) - start]
        if self._rotation is None:
            unscale(values, start, self._ends, self._scales)
        self._flat[start : start + len(values)] = values

    def finish(self) -> NDArray[np.float32]:
        """All entries, in the update's own units."""
        if self._rotation is not None:
            for start, stop in blocks(len(self._flat)):
                turned = self._flat[start:stop].astype(np.float64)
                values = unrotate_block(turned, start, self._rotation)
                unscale(values, start, self._ends, self._scales)
                self._flat[start:stop] = values
        return self._flat


def unscale(values: Array, start: int, ends: list[int], scales: list[Scale]) -> None:
    """Bring scaled entries ``start``… of tensors with these ends into the update's units."""
    if not scales:
        return
    if len(scales) == 1:
        values[:] = scales[0].undo(values)
        return
    done = 0
    for tensor, low, high in overlaps(ends, start, start + len(values)):
        piece = slice(done, done + high - low)
        values[piece] = scales[tensor].undo(values[piece])
        done = piece.stop
