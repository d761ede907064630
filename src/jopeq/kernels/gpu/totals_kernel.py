# mypy: ignore-errors
# ruff: noqa: N803 (Triton spells compile-time numbers so)
"""The Triton kernels of exact totals: squares in the order of ``lane_sum``, integers added up."""

from __future__ import annotations

from jopeq.kernels.gpu.jit import jit, tl


@jit
def _energy(at, stop, LANES: tl.constexpr):
    """Σ x² of one chunk of a row: lanes side by side, then halving."""
    lane = tl.arange(0, LANES)
    lanes = tl.zeros((LANES,), tl.float64)
    for first in tl.range(0, stop, LANES, loop_unroll_factor=8):  # loads ahead of the sums
        x = tl.load(at + first + lane, mask=first + lane < stop, other=0.0).to(tl.float64)
        lanes += x * x
    tl.static_assert(LANES == 512)
    lanes = tl.sum(tl.reshape(lanes, (2, 256)), axis=0)  # two terms: no order to choose
    lanes = tl.sum(tl.reshape(lanes, (2, 128)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 64)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 32)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 16)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 8)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 4)), axis=0)
    lanes = tl.sum(tl.reshape(lanes, (2, 2)), axis=0)
    return tl.sum(lanes, axis=0)


@jit
def _factor(energy, clip, shrunk):
    """f of a row, 0 where its energy is not finite."""
    is_finite = energy < float("inf")
    norm = tl.sqrt(tl.where(is_finite, energy, 0.0))
    return tl.where(is_finite, shrunk / tl.maximum(norm, clip), 0.0)


@jit
def _integers(x, factor):
    return tl.where(factor > 0.0, x.to(tl.float64) * factor, 0.0).to(tl.int32).to(tl.int64)


@jit
def _squares(at, stop, factor, LANES: tl.constexpr):
    """Σn² of one chunk, which may wrap, and the sum of upper halves, which shows whether it has."""
    lane = tl.arange(0, LANES)
    exactly = tl.zeros((LANES,), tl.int64)
    upper = tl.zeros((LANES,), tl.int64)
    for first in tl.range(0, stop, LANES, loop_unroll_factor=8):
        n = _integers(tl.load(at + first + lane, mask=first + lane < stop, other=0.0), factor)
        exactly += n * n
        upper += (n * n) >> 32
    return tl.sum(exactly, axis=0), tl.sum(upper, axis=0)


@jit
def _fitting(factor, exactly, upper):
    """The factor, 0 unless Σn² ≤ 2⁶²."""
    return tl.where((upper <= 3 << 29) & (exactly <= 1 << 62), factor, 0.0)


@jit(do_not_specialize=["clip", "shrunk"])
def find_factors(
    x_ptr, factors_ptr, dimension, stride: tl.int64, clip: tl.float64, shrunk: tl.float64,
    LANES: tl.constexpr,
):  # fmt: skip
    """The factor of every row of at most one chunk; the second look is into a cache."""
    row = tl.program_id(0).to(tl.int64)
    at = x_ptr + row * stride
    factor = _factor(_energy(at, dimension, LANES), clip, shrunk)
    exactly, upper = _squares(at, dimension, factor, LANES)
    tl.store(factors_ptr + row, _fitting(factor, exactly, upper))


@jit
def measure_chunks(
    x_ptr, energies_ptr, dimension, stride: tl.int64, CHUNK: tl.constexpr, LANES: tl.constexpr
):
    """Σ x² of every chunk of every longer row."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    stop = tl.minimum(CHUNK, dimension - chunk * CHUNK)
    energy = _energy(x_ptr + row * stride + chunk * CHUNK, stop, LANES)
    tl.store(energies_ptr + row * tl.num_programs(1) + chunk, energy)


@jit(do_not_specialize=["clip", "shrunk"])
def check_chunks(
    x_ptr, energies_ptr, factors_ptr, squares_ptr, dimension, stride: tl.int64, clip: tl.float64,
    shrunk: tl.float64, CHUNK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The factor of every longer row, and Σn² and its upper halves as in ``_squares``."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    energy = tl.load(energies_ptr + row * tl.num_programs(1))
    for other in tl.range(1, tl.num_programs(1)):
        energy += tl.load(energies_ptr + row * tl.num_programs(1) + other)
    factor = _factor(energy, clip, shrunk)
    stop = tl.minimum(CHUNK, dimension - chunk * CHUNK)
    exactly, upper = _squares(x_ptr + row * stride + chunk * CHUNK, stop, factor, LANES)
    tl.atomic_add(squares_ptr + 2 * row, exactly, sem="relaxed")
    tl.atomic_add(squares_ptr + 2 * row + 1, upper, sem="relaxed")
    if chunk == 0:
        tl.store(factors_ptr + row, factor)


@jit(do_not_specialize=["count"])
def add_columns(
    x_ptr, total_ptr, factors_ptr, squares_ptr, count, dimension, stride: tl.int64,
    IS_CHECKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the integers of some rows in some columns to the total."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_there = column < dimension
    added = tl.zeros((COLUMNS,), tl.int64)
    begin = tl.program_id(1) * ROWS
    for step in tl.range(0, ROWS, loop_unroll_factor=4):
        row = begin + step
        factor = tl.load(factors_ptr + row, mask=row < count, other=0.0)
        if not IS_CHECKED:
            exactly = tl.load(squares_ptr + 2 * row, mask=row < count, other=0)
            upper = tl.load(squares_ptr + 2 * row + 1, mask=row < count, other=0)
            factor = _fitting(factor, exactly, upper)
        at = x_ptr + row.to(tl.int64) * stride + column
        added += _integers(tl.load(at, mask=is_there & (row < count), other=0.0), factor)
    tl.atomic_add(total_ptr + column, added, mask=is_there, sem="relaxed")
