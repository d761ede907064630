"""Exact totals on a GPU, or in Triton's interpreter: the integers of the plain path."""

import numpy as np
import pytest
import torch

from jopeq import kernels
from jopeq.kernels.gpu import totals
from jopeq.sums.clipped_total import UNITS, add_up
from jopeq.wire.entries import READ_CHUNK, as_float_array

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = ((0, 3), (1, 1), (9, 5210), (40, 512), (9, 5120), (6, READ_CHUNK + 700), (5, 1 << 14))
SHRUNK = UNITS * (1 - 2**-20)

pytestmark = pytest.mark.skipif(
    not totals.can_add(torch.zeros(1, 1, device=DEVICE)), reason="needs Triton"
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_gpu_totals_equal_the_plain_path(shape, dtype):
    generator = np.random.default_rng(1)
    rows = torch.from_numpy(generator.standard_normal(shape)).to(dtype)
    if len(rows) > 4:
        rows[1, 0], rows[2, -1], rows[3] = torch.nan, torch.inf, 0.0
    if dtype == torch.float64:
        rows[4:5] *= 1e200
    kernels.use("off")
    exact = np.zeros(shape[1], dtype=np.int64)
    add_up(as_float_array(rows, "rows"), 0.3, exact)
    kernels.use(None)
    total = torch.zeros(shape[1], dtype=torch.int64, device=DEVICE)
    padded = torch.cat([rows, rows[:, :1]], dim=1).to(DEVICE)[:, : shape[1]]  # rows lie apart
    with np.errstate(all="ignore"):  # of the interpreter
        totals.add_clipped(padded, 0.3, SHRUNK, total)
        totals.add_clipped(rows.to(DEVICE), 0.3, SHRUNK, total)
    assert (total.cpu().numpy() == 2 * exact).all()


@pytest.mark.parametrize("times", [1.0001, 4.0])  # Σn² of 16·2⁶² would wrap to 0
@pytest.mark.parametrize("dimension", [600, READ_CHUNK + 700])
def test_gpu_rows_that_are_too_long_count_as_zeros(dimension, times):
    rows = torch.ones(3, dimension, device=DEVICE)
    total = torch.zeros(dimension, dtype=torch.int64, device=DEVICE)
    totals.add_clipped(rows, 0.3, times * UNITS, total)
    assert not total.any()
