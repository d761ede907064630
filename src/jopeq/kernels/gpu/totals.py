"""The exact total of clipped rows on a GPU: the integers of ``sums.clipped_total``, in Triton.

A row that fits into registers is read once. Longer rows are read twice: for their norms, then for
their integers.
"""

from __future__ import annotations

from functools import cache

import torch

from jopeq.kernels.gpu.arguments import FLOATS, on_device, uses_triton
from jopeq.kernels.gpu.jit import options, triton
from jopeq.kernels.gpu.totals_kernel import (
    add_columns,
    add_rows,
    find_factors,
    measure_chunks,
    take_back,
)
from jopeq.wire.entries import LANES, READ_CHUNK

_MOST_TILES = 26  # of ``LANES`` entries, in a row that fits into registers
_ROWS, _COLUMNS = 64, 1024  # of a program of ``add_columns``; no number here changes an integer
_MOST_ROWS = _ROWS * 65535  # in one launch


def can_add(rows: torch.Tensor) -> bool:
    """True if the kernels run here and read such rows."""
    return uses_triton(rows.device) and rows.dtype in FLOATS and rows.stride(1) == 1


def add_clipped(rows: torch.Tensor, clip: float, shrunk: float, total: torch.Tensor) -> bool:
    """Add the integers of the rows to an int64 ``total`` on their device; False where it cannot."""
    if not can_add(rows):
        return False
    add = _add_short if rows.shape[1] <= _MOST_TILES * LANES else _add_long
    with on_device(rows.device):
        for first in range(0, len(rows), _MOST_ROWS):
            add(rows[first : first + _MOST_ROWS], clip, shrunk, total)
    return True


def _add_short(rows: torch.Tensor, clip: float, shrunk: float, total: torch.Tensor) -> None:
    (count, dimension), stride = rows.shape, rows.stride(0)
    tiles = triton.cdiv(dimension, LANES)
    warps, stages = (1, 3) if tiles <= 2 else (4, 3) if tiles <= 12 else (8, 1)
    resident = max(16 // tiles, 2 if tiles <= 12 else 1)  # programs that registers have room for
    programs = min(count, _processors(rows.device) * resident)
    add_rows[(programs,)](
        rows, total, count, dimension, stride, clip, shrunk, TILES=tiles, LANES=LANES,
        STAGES=stages, **options(warps),
    )  # fmt: skip


def _add_long(rows: torch.Tensor, clip: float, shrunk: float, total: torch.Tensor) -> None:
    (count, dimension), stride = rows.shape, rows.stride(0)
    chunks = triton.cdiv(dimension, READ_CHUNK)
    energies = rows.new_empty((count, chunks), dtype=torch.float64)
    factors = rows.new_empty(count, dtype=torch.float64)
    squares = rows.new_zeros(count, dtype=torch.int64)
    size = {"LANES": LANES, **options(4)}
    measure_chunks[(count, chunks)](rows, energies, dimension, stride, CHUNK=READ_CHUNK, **size)
    blocks = triton.cdiv(count, _ROWS)
    find_factors[(blocks,)](
        energies, factors, count, chunks, clip, shrunk, ROWS=_ROWS, **options(4)
    )
    add_columns[(triton.cdiv(dimension, _COLUMNS), blocks)](
        rows, total, factors, squares, count, dimension, stride, ROWS=_ROWS, COLUMNS=_COLUMNS,
        **options(4),
    )  # fmt: skip
    take_back[(count,)](rows, total, factors, squares, dimension, stride, **size)


@cache
def _processors(device: torch.device) -> int:
    if device.type == "cpu":  # the interpreter
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
