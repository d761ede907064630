"""The exact total of clipped rows on a GPU: the integers of ``sums.clipped_total``, in Triton.

Factors first, then columns: rows are read twice (three times if longer than ``READ_CHUNK``), as
adding every row to the total at once would wait for atomic additions.
"""

from __future__ import annotations

import torch

from jopeq.kernels.gpu.jit import options, triton
from jopeq.kernels.gpu.plan import on_device, uses_triton
from jopeq.kernels.gpu.totals_kernel import (
    add_columns,
    check_chunks,
    find_factors,
    measure_chunks,
)
from jopeq.wire.entries import LANES, READ_CHUNK

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ROWS, _COLUMNS = 128, 256  # of a program of ``add_columns``; no number here changes an integer
_MOST_ROWS = _ROWS * 65535  # in one launch


def can_add(rows: torch.Tensor) -> bool:
    """Whether the kernels run here and read such rows."""
    return uses_triton(rows.device) and rows.dtype in _FLOATS and rows.stride(1) == 1


def add_clipped(rows: torch.Tensor, clip: float, shrunk: float, total: torch.Tensor) -> None:
    """Add the integers of the rows to an int64 ``total`` on their device."""
    with on_device(rows.device):
        for first in range(0, len(rows), _MOST_ROWS):
            _add(rows[first : first + _MOST_ROWS], clip, shrunk, total)


def _add(rows: torch.Tensor, clip: float, shrunk: float, total: torch.Tensor) -> None:
    (count, dimension), stride = rows.shape, rows.stride(0)
    factors = rows.new_empty(count, dtype=torch.float64)
    squares = rows.new_zeros((count, 2), dtype=torch.int64)
    is_short = dimension <= READ_CHUNK
    if is_short:
        find_factors[(count,)](
            rows, factors, dimension, stride, clip, shrunk, LANES=LANES, **options(4)
        )
    else:
        chunks = triton.cdiv(dimension, READ_CHUNK)
        energies = rows.new_empty((count, chunks), dtype=torch.float64)
        size = {"CHUNK": READ_CHUNK, "LANES": LANES, **options(4)}
        measure_chunks[(count, chunks)](rows, energies, dimension, stride, **size)
        check_chunks[(count, chunks)](
            rows, energies, factors, squares, dimension, stride, clip, shrunk, **size
        )
    add_columns[(triton.cdiv(dimension, _COLUMNS), triton.cdiv(count, _ROWS))](
        rows, total, factors, squares, count, dimension, stride, IS_CHECKED=is_short, ROWS=_ROWS,
        COLUMNS=_COLUMNS, **options(2),
    )  # fmt: skip
