"""From a tensor on a GPU to the bytes of a payload's body; the update never leaves the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import torch

from jopeq.errors import UpdateError
from jopeq.kernels.gpu.encode_kernel import encode_rows
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.measure import check_finite
from jopeq.kernels.gpu.plan import (
    LANES,
    ROW,
    TILE,
    Plan,
    flattened,
    on_device,
    plan_of,
    uses_triton,
)
from jopeq.kernels.gpu.radix import packed_numbers
from jopeq.kernels.gpu.torch_path import letters_of
from jopeq.kernels.recipe import Recipe
from jopeq.random.streams import SEED_BYTES
from jopeq.wire.entries import overlaps
from jopeq.wire.scaling import Scale

SEGMENT = 1 << 24  # entries that are copied together where an update is in several pieces
_TORCH_SEGMENT = 1 << 20
_MAX_ROWS = 1 << 31


def encode_body(
    recipe: Recipe,
    tensors: Sequence[torch.Tensor],
    scales: Sequence[Scale],
    shared_key: bytes | None,
    private_key: bytes,
    names: Sequence[str] | None = None,
) -> tuple[bytes, int, int]:
    """The packed samples of these tensors, and how many were clipped and overloaded.

    ``tensors`` are float tensors on one device, read as one flat row of entries; one scale, or one
    each. What float32 cannot hold is found on the way and raises ``UpdateError``.
    """
    flat = [flattened(tensor) for tensor in tensors]
    device = flat[0].device if flat else torch.device("cpu")
    count = sum(tensor.numel() for tensor in flat)
    plan = plan_of(recipe, device)
    if count == 0:
        return b"", 0, 0
    if -(-count // ROW) * (ROW // plan.group) >= 1 << 32 or count >= ROW * _MAX_ROWS:
        raise ValueError(
            f"{count} entries leave the noise stream: split the update into several payloads"
        )
    shared = _words(shared_key if shared_key is not None else bytes(SEED_BYTES))
    private = _words(private_key)
    with on_device(device):
        if len(scales) > 1 and any(tensor.dtype == torch.float64 for tensor in flat):
            check_finite(tensors, names)  # kernels then see them scaled, which may fit float32
        counts = torch.zeros(4, dtype=torch.int64, device=device)
        if uses_triton(device):
            words = _with_triton(plan, flat, scales, shared, private, counts)
        else:
            segments = _segments(flat, scales, _TORCH_SEGMENT)
            words = letters_of(plan, segments, shared, private, counts)
        clipped, overloaded, refused, far = counts.tolist()
        if refused:
            check_finite(tensors, names)
        if far:
            raise UpdateError(
                "x is too far from the origin to be quantized exactly: raise clip, spread or step"
            )
        if plan.packing is not None:
            words = packed_numbers(words, plan.symbols(count), plan.packing, plan.width)
        return _to_bytes(words, plan.size(count)), clipped, overloaded


def _with_triton(
    plan: Plan,
    tensors: list[torch.Tensor],
    scales: Sequence[Scale],
    shared: list[int],
    private: list[int],
    counts: torch.Tensor,
) -> torch.Tensor:
    """The letters as words of 32 bits."""
    count = sum(tensor.numel() for tensor in tensors)
    filled = -(-count // TILE) * TILE
    out = torch.empty(filled // ROW * plan.row_bits // 32, dtype=torch.int32, device=counts.device)
    for start, entries, scale in _segments(tensors, scales, None):
        size = entries.numel()
        whole = size // TILE * TILE
        for first, programs, is_masked in ((0, whole // TILE, False), (whole, 1, True)):
            if not programs or first == size:
                continue
            row = (start + first) // ROW
            encode_rows[(programs,)](
                entries[first:], out[row * plan.row_bits // 32 :], counts, plan.table, plan.points,
                row, size - first, *shared, *private, scale.mean, scale.inverse,
                *plan.numbers.values(), *plan.whole, STEP=plan.step, NOISE=plan.noise,
                DIMENSION=plan.dimension, IS_CLIPPED=plan.is_clipped, COLUMNS=plan.columns,
                WIDTH=plan.width, GROUP=plan.group, IS_LOOP=plan.is_loop, IS_MASKED=is_masked,
                ROWS=LANES, **options(1),
            )  # fmt: skip
    return out


def _segments(
    tensors: list[torch.Tensor], scales: Sequence[Scale], size: int | None
) -> Iterator[tuple[int, torch.Tensor, Scale]]:
    """(start, entries, scale) of pieces of ``size`` entries: an aligned tensor alone as it is.

    Several tensors are copied side by side, a segment at a time, and scaled there when each has a
    scale of its own.
    """
    if size is None and len(tensors) == 1 and tensors[0].data_ptr() % 8 == 0:
        yield 0, tensors[0], scales[0]
        return
    ends = list(accumulate(tensor.numel() for tensor in tensors))
    size = SEGMENT if size is None else size
    for start in range(0, ends[-1], size):
        parts = overlaps(ends, start, min(start + size, ends[-1]))
        pieces = [(index, tensors[index][low:high]) for index, low, high in parts]
        if len(scales) == 1:
            is_double = any(piece.dtype == torch.float64 for _, piece in pieces)
            kind = torch.float64 if is_double else torch.float32
            yield start, torch.cat([piece.to(kind) for _, piece in pieces]), scales[0]
        else:
            scaled = [(x.double() - scales[i].mean) * scales[i].inverse for i, x in pieces]
            yield start, torch.cat(scaled), Scale(1.0)


def _words(key: bytes) -> list[int]:
    return [int(word) for word in np.frombuffer(key, dtype="<i4")]


def _to_bytes(words: torch.Tensor, size: int) -> bytes:
    packed = words.view(torch.uint8)[:size]
    if packed.device.type != "cuda":
        return packed.numpy().tobytes()
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    host.copy_(packed, non_blocking=True)
    torch.cuda.current_stream(packed.device).synchronize()
    return host.numpy().tobytes()
