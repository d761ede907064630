"""The exact total of clipped rows: integers, so that order and neighbours cannot matter.

A row x becomes n = trunc(f·x) with f = U(1 − 2⁻²⁰)/max(‖x‖, C), in units of C/U, U = 2³¹. Every
product is float64, and ‖x‖² is added up in one order (``lane_sum`` of ``READ_CHUNK`` squares at a
time), so n depends on its own row alone: not on other rows, their order, the block or the backend.
Σn² ≤ 2⁶² is checked in integers; a row that fails, or whose squares have no finite sum (NaN, inf),
counts as a row of zeros, and nobody learns of it. Integers of fewer than 2³² rows fit int64: one
row more or less changes the total by that row's integers, of norm at most C, and by nothing else
(float sums do not have this property: Casacuberta et al. 2022).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.checks import check_count, check_real
from jopeq.errors import UpdateError
from jopeq.wire.entries import BFLOAT16, LANES, READ_CHUNK, as_float_array, is_tensor

UNITS = 1 << 31  # in one clip
MOST_ROWS = (1 << 32) - 1  # |entry| < UNITS: the total of more rows could leave int64
_SHRUNK = UNITS * (1.0 - 2.0**-20)  # the norm of a clipped row, before it is rounded
_LARGEST_ENERGY = 1 << 62  # of a row: UNITS²
_BLOCK, _LARGE_BLOCK = 1 << 17, 1 << 20  # entries worked on at a time: in a cache, in memory

Integers = NDArray[np.int64]


class ClippedTotal:
    """The exact total of rows clipped to the norm ``clip``, built up a chunk at a time.

    ``rows``, ``values`` and ``to_numpy`` are private: what leaves is a share of a private sum.

    Parameters
    ----------
    dimension : int
        Entries of a row.
    clip : float
        Largest norm of a row, or of the summed rows of a group. Longer ones are scaled down.

    >>> total = ClippedTotal(dimension=2, clip=1.0)
    >>> _ = total.add(np.array([[3.0, 4.0], [0.0, -0.5], [np.nan, 0.0]]))
    >>> total.to_numpy().round(3)
    array([0.6, 0.3])
    """

    def __init__(self, dimension: int, clip: float) -> None:
        self.dimension = check_count("dimension", dimension, 1)
        self.clip = check_clip(clip)
        self._values: Integers = np.zeros(self.dimension, dtype=np.int64)
        self._on_devices: dict[Any, Any] = {}  # added on GPUs, not yet in _values
        self._rows = 0
        self._groups: set[int] = set()

    @classmethod
    def restore(cls, values: Any, clip: float) -> ClippedTotal:
        """The total of these ``values``, which another total had; its rows are not counted."""
        total = cls(len(values), clip)
        total._values[:] = values
        return total

    @property
    def rows(self) -> int:
        """Rows, or groups of rows, added so far. Private."""
        return self._rows

    @property
    def values(self) -> Integers:
        """The total in units of clip / 2³¹. Private."""
        for total in self._on_devices.values():
            self._values += total.cpu().numpy()
        self._on_devices.clear()
        view = self._values.view()
        view.flags.writeable = False
        return view

    def to_numpy(self) -> NDArray[np.float64]:
        """The total in the rows' own units. Private."""
        return np.multiply(self.values, self.clip / UNITS, dtype=np.float64)

    def add(self, rows: Any, group: Any = None) -> ClippedTotal:
        """Clip every row, or with ``group`` the sum of every group's rows, and add it.

        Parameters
        ----------
        rows : array or tensor, (m, dimension)
            Floats of any precision, on the CPU or a GPU.
        group : integers, (m,), optional
            Whose row each is. The rows of a group are added up in float64, in their order, and
            clipped as one: pass all of them in one call.
        """
        found, xp = _as_rows(rows, self.dimension)
        blocks: Iterable[Any] = (found,)
        if group is None:
            self._count(len(found))
        else:
            ids, places = np.unique(as_group(group, len(found)), return_inverse=True)
            if not self._groups.isdisjoint(ids.tolist()):
                told = "group names a group of an earlier call"
                raise ValueError(f"{told}: pass all of its rows in one")
            self._groups.update(ids.tolist())
            self._count(len(ids))
            blocks = _group_sums(found, places, xp)
        total = self._values if xp is np else self._on_devices.get(found.device)
        if total is None:
            total = self._on_devices[found.device] = found.new_zeros(self.dimension, dtype=xp.int64)
        for block in blocks:
            add_up(block, self.clip, total, xp)
        return self

    def add_products(self, slopes: Any, features: Any, bias: Any) -> ClippedTotal:
        """Add the rows of a linear layer, slopes ⊗ features and then the bias, without making them.

        Arrays of float32, one row a record; only where ``kernels.are_loaded``.
        """
        shapes = [np.shape(one) for one in (slopes, features, bias)]
        counts, sizes = zip(*shapes, strict=True) if {2} == set(map(len, shapes)) else ((), ())
        fits = sizes and sizes[0] * sizes[1] + sizes[2] == self.dimension and len(set(counts)) == 1
        if not fits or any(one.dtype != np.float32 for one in (slopes, features, bias)):
            wanted = f"float32 (m, k), (m, w), (m, e) with k·w + e = {self.dimension}"
            raise UpdateError(f"slopes, features and bias must be {wanted}, got shapes {shapes}")
        self._count(len(slopes))
        if len(slopes):
            kernels.cpu.add_products((slopes, features, bias), self.clip, _SHRUNK, self._values)
        return self

    def _count(self, rows: int) -> None:
        if self._rows + rows > MOST_ROWS:
            raise ValueError(f"rows: a total holds at most {MOST_ROWS}: start another total")
        self._rows += rows

    def __repr__(self) -> str:
        return f"ClippedTotal(dimension={self.dimension}, clip={self.clip})"


def to_integers(rows: Any, clip: float) -> Integers:
    """The integers of every row, in units of clip / 2³¹; a total is their sum.

    >>> (to_integers(np.array([[3.0, 4.0], [0.0, -0.5]]), clip=1.0) / UNITS).round(3)
    array([[ 0.6,  0.8],
           [ 0. , -0.5]])
    """
    found, xp = _as_rows(rows, None)
    integers: Integers = np.zeros(tuple(found.shape), dtype=np.int64)
    for some, columns, tile in _tiles(found, check_clip(clip), xp):
        integers[some, columns] = tile if xp is np else tile.cpu().numpy()
    return integers


def check_clip(clip: float) -> float:
    """A clip whose rows' squares neither vanish nor overflow."""
    found = check_real("clip", clip)
    if not 1e-30 < found <= 1e30:
        raise ValueError(f"clip must be between 1e-30 and 1e30, got {clip}")
    return found


def _as_rows(rows: Any, dimension: int | None) -> tuple[Any, Any]:
    """A NumPy array, or a tensor where it lies if that is a GPU, and the module for it."""
    is_there = is_tensor(rows) and rows.device.type == "cuda" and rows.is_floating_point()
    found = rows.detach() if is_there else as_float_array(rows, "rows")
    shape = tuple(found.shape)
    if len(shape) != 2 or shape[1] != (shape[1] if dimension is None else dimension):
        wanted = "dimension" if dimension is None else dimension
        raise UpdateError(f"rows must have shape (m, {wanted}), got {shape}: one row a record")
    return found, sys.modules["torch"] if is_there else np


def as_group(group: Any, count: int) -> Integers:
    """Whose row each of ``count`` rows is."""
    found = np.asarray(group.detach().cpu() if is_tensor(group) else group)
    if found.shape != (count,) or (found.dtype.kind not in "iu" and count):
        told = f"group must hold one whole number for each of the {count} rows"
        raise ValueError(f"{told}, got shape {found.shape} of {found.dtype}: number the patients")
    return found.astype(np.int64)


def _group_sums(rows: Any, places: Integers, xp: Any) -> Iterator[Any]:
    """The sums of the rows that share a place, in blocks, ascending; rows are added in order."""
    sizes = np.bincount(places)
    order, starts = np.argsort(places, kind="stable"), np.cumsum(sizes) - sizes
    step = max(1, _LARGE_BLOCK // rows.shape[1])
    for first in range(0, len(sizes), step):
        part = slice(first, first + step)
        sums = _zeros(rows, (len(sizes[part]), rows.shape[1]), xp)
        for rank in range(sizes[part].max()):
            has_one = np.flatnonzero(sizes[part] > rank)
            chosen = order[starts[part][has_one] + rank]
            with np.errstate(all="ignore"):
                sums[has_one] += _widen(rows[chosen], xp)
        yield sums


def add_up(rows: Any, clip: float, total: Any, xp: Any = np) -> None:
    """Add the integers of rows to an int64 ``total``; both are ``xp``'s, NumPy's or torch's."""
    kernels.note(math.prod(rows.shape))
    if xp is not np:
        from jopeq.kernels.gpu import add_clipped

        if add_clipped(rows, clip, _SHRUNK, total):
            return
    elif rows.size and kernels.are_loaded():
        for block in _plain_blocks(rows):
            kernels.cpu.add_clipped(block, clip, _SHRUNK, total)
        return
    for _, columns, tile in _tiles(rows, clip, xp):
        total[columns] += tile.sum(0)


def _plain_blocks(rows: Any) -> Iterator[Any]:
    """The rows as compiled loops read them: where they lie, or copied block by block."""
    flags, is_plain = rows.flags, rows.dtype in (np.float32, np.float64)
    if is_plain and flags.c_contiguous and flags.aligned:
        yield rows
        return
    step = max(1, _LARGE_BLOCK // rows.shape[1])
    for first in range(0, len(rows), step):
        with np.errstate(all="ignore"):
            yield np.ascontiguousarray(_widen(rows[first : first + step], np))


def _tiles(rows: Any, clip: float, xp: Any) -> Iterator[tuple[slice, slice, Any]]:
    """The integers of the rows, tile by tile: (which rows, which columns, integers)."""
    dimension = rows.shape[1]
    step = max(1, (_BLOCK if xp is np else _LARGE_BLOCK) // max(1, dimension))
    starts = range(0, dimension, READ_CHUNK)
    chunks = list(map(slice, starts, (*starts[1:], dimension)))
    for first in range(0, len(rows), step):
        some = slice(first, first + step)
        with np.errstate(all="ignore"):
            factors = _factors(rows[some], chunks, clip, xp)
            for columns in chunks:
                yield some, columns, _round(rows[some, columns], factors, xp)


def _factors(rows: Any, chunks: list[slice], clip: float, xp: Any) -> Any:
    """f of every row, 0 where the row counts as zeros."""
    energy = _zeros(rows, (len(rows),), xp)
    for columns in chunks:
        energy += _lane_sums(_widen(rows[:, columns], xp), xp)
    is_finite = xp.isfinite(energy)
    norms = xp.sqrt(xp.where(is_finite, energy, 0.0))
    factors = xp.where(is_finite, _SHRUNK / xp.clip(norms, clip, None), 0.0)
    # the sum of floats tells whether that of integers can be trusted not to have wrapped
    nearly, exactly = 0, 0
    for columns in chunks:
        integers = _round(rows[:, columns], factors, xp)
        nearly = nearly + (_widen(integers, xp) ** 2).sum(1)
        exactly = exactly + (integers * integers).sum(1)
    fits = (nearly <= 1.5 * _LARGEST_ENERGY) & (exactly <= _LARGEST_ENERGY)
    return xp.where(fits, factors, 0.0)


def _lane_sums(tile: Any, xp: Any) -> Any:
    """``lane_sum`` of the squares of every row."""
    lanes = _zeros(tile, (len(tile), LANES), xp)
    for first in range(0, tile.shape[1], LANES):
        piece = tile[:, first : first + LANES]
        lanes[:, : piece.shape[1]] += piece * piece
    half = LANES // 2
    while half:
        lanes = lanes[:, :half] + lanes[:, half:]
        half //= 2
    return lanes[:, 0]


def _round(tile: Any, factors: Any, xp: Any) -> Any:
    """trunc(f·x) as int64."""
    column = factors[:, None]
    product = xp.where(column > 0.0, _widen(tile, xp) * column, 0.0)
    return product.astype(np.int64) if xp is np else product.long()


def _widen(values: Any, xp: Any) -> Any:
    """Float64 of NumPy's or torch's."""
    if xp is not np:
        return values.double()
    if values.dtype == BFLOAT16:
        values = (values["bits"].astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float64, copy=False)


def _zeros(like: Any, shape: tuple[int, ...], xp: Any) -> Any:
    return np.zeros(shape) if xp is np else like.new_zeros(shape, dtype=xp.float64)
