"""Many bodies decoded and added up, chunk by chunk of the sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PayloadError
from jopeq.kernels.cpu.codec import ChunkDecoder, chunks
from jopeq.kernels.cpu.native import F32, F64, kernel, read, write
from jopeq.kernels.cpu.steps import prepared
from jopeq.kernels.recipe import Recipe
from jopeq.kernels.threads import in_threads
from jopeq.random.streams import SharedStream
from jopeq.wire.scaling import Scale

Body = tuple[memoryview, list[Scale], SharedStream]


@kernel(read(F32), F64, write(F64))
def _add_weighted(entries, weight, total):
    for i in range(len(entries)):
        total[i] += weight * np.float64(entries[i])


def add_bodies(
    recipe: Recipe,
    bodies: list[Body],
    weights: list[float],
    sizes: tuple[int, ...],
    total: NDArray[np.float64],
) -> tuple[int, PayloadError] | None:
    """total += Σ weight·update; or the first body that is bad, and what is wrong with it."""
    step = prepared(recipe)
    samples = -(-len(total) // step.size)

    def work(begin: int, end: int) -> tuple[int, PayloadError] | None:
        entries = np.empty(min(step.chunk, end - begin) * step.size, dtype=np.float32)
        failed = None
        for first, last in chunks(begin, end, step.chunk):
            start, stop = first * step.size, min(last * step.size, len(total))
            here = entries[: stop - start]
            # what precedes a bad one is looked at to its end: it may be bad further on
            looked_at = bodies if failed is None else bodies[: failed[0]]
            for index, (body, scales, shared) in enumerate(looked_at):
                decoder = ChunkDecoder(step, body, sizes, scales, shared, first, last)
                try:
                    decoder.next(first, last, here)
                except PayloadError as error:
                    failed = index, error
                    break
                _add_weighted(here, weights[index], total[start:stop])
        return failed

    failures = [failed for failed in in_threads(work, samples, step.chunk, step.size) if failed]
    return min(failures, key=lambda failed: failed[0], default=None)
