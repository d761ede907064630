# mypy: ignore-errors
# ruff: noqa: N803 (Triton's spelling of compile-time numbers; its tuples only add)
"""The Triton kernel that adds up chunks in the order of ``entries.lane_sum``."""

from __future__ import annotations

from jopeq.kernels.gpu.jit import jit, tl


@jit(do_not_specialize=["count"])
def sum_chunks(
    x_ptr, sums_ptr, count: tl.int64, mean: tl.float64, IS_SQUARE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The sum of each chunk, or of its squares about the mean, in the order of ``lane_sum``."""
    start = tl.program_id(0).to(tl.int64) * (ROWS * WIDTH)
    lane = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float64)
    for row in tl.range(0, ROWS, loop_unroll_factor=8):  # loads ahead of the sums
        at = start + row * WIDTH + lane
        x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float64)
        if IS_SQUARE:
            x = x - mean
            x = tl.where(at < count, x * x, 0.0)
        total += x
    half: tl.constexpr = WIDTH // 2
    folded = tl.sum(tl.reshape(total, (2, half)), axis=0)  # two terms: no order to choose
    folded = tl.sum(tl.reshape(folded, (2, half // 2)), axis=0)
    folded = tl.sum(tl.reshape(folded, (2, half // 4)), axis=0)
    folded = tl.sum(tl.reshape(folded, (2, half // 8)), axis=0)
    folded = tl.sum(tl.reshape(folded, (2, half // 16)), axis=0)
    folded = tl.sum(tl.reshape(folded, (2, half // 32)), axis=0)
    folded = tl.sum(tl.reshape(folded, (2, half // 64)), axis=0)
    folded = tl.sum(tl.reshape(folded, (2, half // 128)), axis=0)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(folded, axis=0))
