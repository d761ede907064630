# mypy: ignore-errors
# ruff: noqa: N803, RUF005 (Triton spells compile-time numbers so, and unpacks no tuples)
"""The Triton kernels of exact totals: squares in the order of ``lane_sum``, integers added up."""

from __future__ import annotations

from jopeq.kernels.gpu.jit import constant, jit, tl
from jopeq.kernels.gpu.rows import halve

_UNITS = constant(1 << 31)
_TOO_MANY = constant((1 << 62) + 1)  # squared units in a row


@jit
def _factor(energy, clip, shrunk):
    """f of a row, 0 where its energy is not finite or its integers' squares could wrap.

    Σn² is at most (f‖x‖)²(1 + 2⁻³⁰): below 2⁶³ if f‖x‖ ≤ 1.2·2³¹.
    """
    is_finite = energy < float("inf")
    norm = tl.sqrt(tl.where(is_finite, energy, 0.0))
    factor = shrunk / tl.maximum(norm, clip)
    return tl.where(is_finite & (factor * norm <= 1.2 * _UNITS), factor, 0.0)


@jit
def _integers(x, factor):
    """trunc(f·x), which is below 2³¹; anything where the factor is 0."""
    return (x.to(tl.float64) * factor).to(tl.int32)


@jit
def _load(at, first, dimension, LANES: tl.constexpr, IS_LAST: tl.constexpr):
    column = first + tl.arange(0, LANES)
    if IS_LAST:
        return tl.load(at + column, mask=column < dimension, other=0.0)
    return tl.load(at + column)


@jit(do_not_specialize=["count", "clip", "shrunk"])
def add_rows(
    x_ptr, total_ptr, count, dimension, stride: tl.int64, clip: tl.float64, shrunk: tl.float64,
    TILES: tl.constexpr, LANES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add the integers of every so many-th row to the total: row and sums stay in registers."""
    added = ()
    for _ in tl.static_range(TILES):
        added = added + (tl.zeros((LANES,), tl.int64),)
    for row in tl.range(tl.program_id(0), count, tl.num_programs(0), num_stages=STAGES):
        at = x_ptr + row * stride
        x = ()
        lanes = tl.zeros((LANES,), tl.float64)
        for tile in tl.static_range(TILES):
            x = x + (_load(at, tile * LANES, dimension, LANES, tile == TILES - 1),)
            lanes += x[tile].to(tl.float64) * x[tile].to(tl.float64)
        factor = _factor(halve(lanes, LANES), clip, shrunk)
        n = ()
        squares = tl.zeros((LANES,), tl.int64)
        for tile in tl.static_range(TILES):
            n = n + (_integers(x[tile], factor),)
            squares += n[tile].to(tl.int64) * n[tile].to(tl.int64)
        fits = tl.where(factor > 0.0, tl.sum(squares, axis=0), _TOO_MANY) < _TOO_MANY
        more = ()
        for tile in tl.static_range(TILES):
            more = more + (added[tile] + tl.where(fits, n[tile], 0).to(tl.int64),)
        added = more
    for tile in tl.static_range(TILES):
        column = tile * LANES + tl.arange(0, LANES)
        tl.atomic_add(total_ptr + column, added[tile], mask=column < dimension, sem="relaxed")


@jit
def measure_chunks(
    x_ptr, energies_ptr, dimension, stride: tl.int64, CHUNK: tl.constexpr, LANES: tl.constexpr
):
    """Σ x² of every chunk of every longer row."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at, stop = x_ptr + row * stride + chunk * CHUNK, tl.minimum(CHUNK, dimension - chunk * CHUNK)
    lane = tl.arange(0, LANES)
    lanes = tl.zeros((LANES,), tl.float64)
    for first in tl.range(0, stop, LANES, loop_unroll_factor=8):  # loads ahead of the sums
        x = tl.load(at + first + lane, mask=first + lane < stop, other=0.0).to(tl.float64)
        lanes += x * x
    tl.store(energies_ptr + row * tl.num_programs(1) + chunk, halve(lanes, LANES))


@jit(do_not_specialize=["count", "chunks", "clip", "shrunk"])
def find_factors(
    energies_ptr, factors_ptr, count, chunks, clip: tl.float64, shrunk: tl.float64,
    ROWS: tl.constexpr,
):  # fmt: skip
    """The factor of every longer row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    energy = tl.zeros((ROWS,), tl.float64)
    for chunk in range(chunks):
        energy += tl.load(energies_ptr + row * chunks + chunk, mask=row < count, other=0.0)
    tl.store(factors_ptr + row, _factor(energy, clip, shrunk), mask=row < count)


@jit(do_not_specialize=["count"])
def add_columns(
    x_ptr, total_ptr, factors_ptr, squares_ptr, count, dimension, stride: tl.int64,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the integers of some rows in some columns to the total, their squares to each row's."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    added = tl.zeros((COLUMNS,), tl.int64)
    begin = tl.program_id(1) * ROWS
    for row in tl.range(begin, tl.minimum(begin + ROWS, count), loop_unroll_factor=4):
        at = x_ptr + row * stride + column
        factor = tl.load(factors_ptr + row)
        n = _integers(tl.load(at, mask=column < dimension, other=0.0), factor)
        n = tl.where(factor > 0.0, n, 0).to(tl.int64)
        added += n
        tl.atomic_add(squares_ptr + row, tl.sum(n * n, axis=0), sem="relaxed")
    tl.atomic_add(total_ptr + column, added, mask=column < dimension, sem="relaxed")


@jit
def take_back(
    x_ptr, total_ptr, factors_ptr, squares_ptr, dimension, stride: tl.int64, LANES: tl.constexpr
):
    """Subtract the integers of a row again, unless Σn² ≤ 2⁶²."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(squares_ptr + row) >= _TOO_MANY:
        factor = tl.load(factors_ptr + row)
        for first in range(0, dimension, LANES):
            column = first + tl.arange(0, LANES)
            x = tl.load(x_ptr + row * stride + column, mask=column < dimension, other=0.0)
            n = -_integers(x, factor).to(tl.int64)
            tl.atomic_add(total_ptr + column, n, mask=column < dimension, sem="relaxed")
