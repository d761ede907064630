"""From the bytes of a payload's body to a tensor on a GPU, or onto a weighted sum there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from jopeq.errors import PayloadError
from jopeq.kernels.gpu.decode_kernel import decode_rows
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.plan import LANES, ROW, TILE, Plan, on_device, plan_of, uses_triton
from jopeq.kernels.gpu.radix import unpacked_numbers
from jopeq.kernels.gpu.torch_path import dither_words, hexagonal_dither, unit_dither, unpack_letters
from jopeq.kernels.recipe import Cells, Chances, Grid, Line, Recipe, Stairs
from jopeq.random.streams import SEED_BYTES
from jopeq.wire.entries import overlaps
from jopeq.wire.scaling import Scale

Tensor = torch.Tensor

_SEGMENT = 1 << 20  # entries that plain torch works on together
_LARGEST = float(np.finfo(np.float32).max)


def decode_body(
    recipe: Recipe,
    body: bytes | memoryview,
    sizes: Sequence[int],
    scales: Sequence[Scale],
    shared_key: bytes | None,
    device: torch.device,
) -> Tensor:
    """All entries of a body that ``encode_body`` or the plain path wrote, as flat float32."""
    _check_length(plan_of(recipe, device), body, sum(sizes))  # before so much is allocated
    out = torch.empty(sum(sizes), dtype=torch.float32, device=device)
    decode_into(out, recipe, body, sizes, scales, shared_key)
    if not is_safe(recipe, scales) and not bool(torch.isfinite(out).all()):
        raise PayloadError("the payload holds numbers too large for float32")
    return out


def decode_into(
    out: Tensor,
    recipe: Recipe,
    body: bytes | memoryview,
    sizes: Sequence[int],
    scales: Sequence[Scale],
    shared_key: bytes | None,
    weight: float | None = None,
) -> None:
    """Write the entries of a body, or (given ``weight``) add weight·entry to what is there.

    Each entry counts as the float32 that ``decode_body`` gives; the product and the sum are
    float64, rounded once to the type of ``out``.
    """
    count = sum(sizes)
    plan = plan_of(recipe, out.device)
    _check_length(plan, body, count)
    if count == 0:
        return
    key = shared_key if shared_key is not None else bytes(SEED_BYTES)
    words = [int(word) for word in np.frombuffer(key, dtype="<i4")]
    decode = _with_triton if uses_triton(out.device) else _with_torch
    with on_device(out.device):
        packed = _uploaded(plan, body, count, out.device)
        decode(plan, out, packed, list(sizes), scales, words, weight)


def _check_length(plan: Plan, body: bytes | memoryview, count: int) -> None:
    """Raise unless so many entries take this many bytes, and the bits that fill up are zero."""
    size = plan.size(count)
    if len(body) != size:
        raise PayloadError(
            f"the header claims {count} entries, which take {size} bytes; the body has {len(body)}"
        )
    unused = 8 * size - plan.symbols(count) * plan.width if plan.packing is None else 0
    if unused and body[-1] >> (8 - unused):
        raise PayloadError("an index lies outside the codebook, or padding is not zero")


def _uploaded(plan: Plan, body: bytes | memoryview, count: int, device: torch.device) -> Tensor:
    """The letters as the kernels read them, filled up with zeros to whole programs."""
    view = np.frombuffer(body, dtype=np.uint8)
    # one program more: a tensor may begin within a row of the one before
    filled = plan.symbols((-(-count // TILE) + 1) * TILE)
    if plan.packing is not None:
        there = _copied(view, len(view), device)
        return unpacked_numbers(there, plan.symbols(count), plan.packing, plan.width, filled)
    return _copied(view, filled * plan.width // 8, device)


def _copied(view: np.ndarray[Any, Any], size: int, device: torch.device) -> Tensor:
    host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    host.numpy()[: len(view)] = view
    return host.to(device, non_blocking=True)


def _with_triton(
    plan: Plan,
    out: Tensor,
    packed: Tensor,
    sizes: list[int],
    scales: Sequence[Scale],
    key: list[int],
    weight: float | None,
) -> None:
    numbers = plan.numbers
    for start, stop, is_masked, scale in _spans(sizes, scales):
        row, skip = divmod(start, ROW)
        decode_rows[(-(-(stop - row * ROW) // TILE),)](
            packed.view(torch.int32), out[row * ROW :], plan.points, row, skip, stop - row * ROW,
            *key, scale.mean, scale.unit, 0.0 if weight is None else weight, numbers["step"],
            numbers["f0"], numbers["f1"], STEP=plan.step, DIMENSION=plan.dimension,
            IS_SUBTRACTIVE=plan.is_subtractive, WIDTH=plan.width, IS_MASKED=is_masked,
            IS_SUMMED=weight is not None, ROWS=LANES, **options(1),
        )  # fmt: skip


def _spans(sizes: list[int], scales: Sequence[Scale]) -> Iterator[tuple[int, int, bool, Scale]]:
    """(start, stop, is_masked, scale): whole programs, and what does not fill one."""
    ends = list(accumulate(sizes)) if len(scales) > 1 else [sum(sizes)]
    for start, stop, scale in zip([0, *ends], ends, scales, strict=False):
        whole = start + ((stop - start) // TILE * TILE if start % ROW == 0 else 0)
        if whole > start:
            yield start, whole, False, scale
        if stop > whole:
            yield whole, stop, True, scale


def _with_torch(
    plan: Plan,
    out: Tensor,
    packed: Tensor,
    sizes: list[int],
    scales: Sequence[Scale],
    key: list[int],
    weight: float | None,
) -> None:
    """The same without Triton, a segment at a time."""
    ends = list(accumulate(sizes))
    for start in range(0, out.numel(), _SEGMENT):
        stop = min(start + _SEGMENT, out.numel())
        scaled = _scaled(plan, packed, start, stop, key)
        done = start
        for tensor, low, high in overlaps(ends, start, stop):
            scale = scales[tensor if len(scales) > 1 else 0]
            piece = scaled[done - start : done - start + high - low]
            entries = (piece * scale.unit + scale.mean).float()
            there = out[done : done + high - low]
            if weight is None:
                there.copy_(entries)
            else:
                there.copy_(there.double() + entries.double() * weight)
            done += high - low


def _scaled(plan: Plan, packed: Tensor, start: int, stop: int, key: list[int]) -> Tensor:
    """Entries start…stop in scaled units, start at the beginning of a row."""
    numbers = plan.numbers
    row, rows = start // ROW, -(-(stop - start) // ROW)
    low, high = row * plan.row_bits // 8, (row + rows) * plan.row_bits // 8
    there = packed.view(torch.uint8)[low:high]
    letters = unpack_letters(there, plan.symbols(rows * ROW), plan.width)
    if plan.step == "grid":
        return (letters.double() * numbers["step"])[: stop - start]
    words = dither_words(key, row, rows, packed.device)
    if plan.step == "cells":
        points = plan.points.reshape(-1, 2)[letters]
        if plan.is_subtractive:
            points = points - hexagonal_dither(words, numbers["step"])
        return points.reshape(-1)[: stop - start]
    unit = unit_dither(words)
    if plan.step == "line":
        x = (letters.double() - numbers["f0"]) * numbers["step"]
        if plan.is_subtractive:
            x = x - unit * numbers["step"]
    elif plan.step == "chances":
        x = plan.points[letters] - unit * numbers["f0"]
    else:
        x = ((letters.double() - numbers["f1"]) - unit) * numbers["f0"]
    return x[: stop - start]


def is_safe(recipe: Recipe, scales: Sequence[Scale]) -> bool:
    """Whether no letter at all can decode to a number that float32 cannot hold."""
    step = recipe.step
    if isinstance(step, Grid):
        largest = 2.0**31 * step.grid
    elif isinstance(step, Chances):
        largest = float(np.abs(step.values).max()) + step.spacing
    elif isinstance(step, Cells):
        largest = float(np.abs(step.codebook.codewords).max()) + 2.0 * step.codebook.lattice.step
    elif isinstance(step, Stairs):
        largest = 2.0 * (step.letters + 1.0) / step.moves
    elif isinstance(step, Line):
        largest = (step.letters + 1.0) * step.step
    else:
        return False
    return all(largest * scale.unit + abs(scale.mean) < 0.5 * _LARGEST for scale in scales)
