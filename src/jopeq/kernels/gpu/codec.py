"""Between tensors on a GPU and the bytes of a payload's body; updates never leave the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from jopeq.errors import PayloadError, UpdateError
from jopeq.kernels.gpu import triton_path
from jopeq.kernels.gpu.arguments import (
    LANES,
    ROW,
    TILE,
    Plan,
    flattened,
    key_words,
    on_device,
    plan_of,
)
from jopeq.kernels.gpu.entries import DeviceEntries
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.recipe import Recipe
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.coders import Packing
from jopeq.wire.entries import LARGEST, Limits, overlaps
from jopeq.wire.scaling import Scale

Tensor = torch.Tensor
Scales = Sequence[Scale]
Spans = list[tuple[int, int, Scale]]  # start, stop and scale of entries

SEGMENT = 1 << 24  # entries that are copied together where an update is in several pieces
_MAX_ROWS = 1 << 31
_NUMBERS = 128  # of mixed radix, that a program makes


def encode_body(
    recipe: Recipe,
    entries: DeviceEntries,
    scales: Scales,
    shared: SharedStream,
    private: PrivateStream,
    limits: Limits | None = None,
) -> tuple[bytes, int, int]:
    """The packed samples of an update, and how many were clipped and overloaded.

    What float32 cannot hold is found on the way: it is replaced by ``limits``, or refused.
    """
    keys = key_words(shared), key_words(private)
    try:
        return _encode(recipe, entries, scales, *keys)
    except UpdateError:
        if limits is None:
            raise
    entries.replace_invalid(limits)  # nothing of the first attempt left, so the keys serve again
    return _encode(recipe, entries, scales, *keys)


def _encode(
    recipe: Recipe, entries: DeviceEntries, scales: Scales, shared: list[int], private: list[int]
) -> tuple[bytes, int, int]:
    flat, count = [flattened(tensor) for tensor in entries.tensors], entries.count
    if count == 0:
        return b"", 0, 0
    device = flat[0].device
    plan = plan_of(recipe, device)
    if -(-count // ROW) * (ROW // plan.group) >= 1 << 32 or count >= ROW * _MAX_ROWS:
        raise ValueError(
            f"{count} entries leave the noise stream: split the update into several payloads"
        )
    with on_device(device):
        if len(scales) > 1 and any(tensor.dtype == torch.float64 for tensor in flat):
            entries.check_finite()  # kernels then see them scaled, which may fit float32
        counts = torch.zeros(4, dtype=torch.int64, device=device)
        words = encode_with_triton(plan, flat, scales, shared, private, counts)
        clipped, overloaded, refused, far = counts.tolist()
        if refused:
            entries.check_finite()
        if far:
            raise UpdateError(
                "x is too far from the origin to be quantized exactly: raise clip or spread"
            )
        if plan.packing is not None:
            words = join_with_triton(words.view(torch.uint8), plan.letters_in(count), plan.packing)
        return _to_bytes(words, plan.size(count)), clipped, overloaded


def encode_with_triton(
    plan: Plan,
    tensors: list[Tensor],
    scales: Scales,
    shared: list[int],
    private: list[int],
    counts: Tensor,
) -> Tensor:
    """The letters as words of 32 bits."""
    count = sum(tensor.numel() for tensor in tensors)
    filled = -(-count // TILE) * TILE
    out = torch.empty(filled // ROW * plan.row_bits // 32, dtype=torch.int32, device=counts.device)
    for start, entries, scale in segments(tensors, scales):
        size = entries.numel()
        whole = size // TILE * TILE
        for first, programs, is_masked in ((0, whole // TILE, False), (whole, 1, True)):
            if not programs or first == size:
                continue
            row = (start + first) // ROW
            triton_path.encode_rows[(programs,)](
                entries[first:], out[row * plan.row_bits // 32 :], counts, plan.table, plan.points,
                row, size - first, *shared, *private, scale.mean, scale.inverse,
                *plan.numbers.values(), plan.letters - 1, STEP=plan.step, NOISE=plan.noise,
                DIMENSION=plan.dimension, IS_CLIPPED=plan.is_clipped, COLUMNS=plan.columns,
                WIDTH=plan.width, GROUP=plan.group, IS_LOOP=plan.is_loop, IS_MASKED=is_masked,
                ROWS=LANES, **options(1),
            )  # fmt: skip
    return out


def segments(tensors: list[Tensor], scales: Scales) -> Iterator[tuple[int, Tensor, Scale]]:
    """(start, entries, scale) of pieces: an aligned tensor alone as it is.

    Several tensors are copied side by side, a segment at a time, and scaled there when each has a
    scale of its own.
    """
    if len(tensors) == 1 and tensors[0].data_ptr() % 8 == 0:
        yield 0, tensors[0], scales[0]
        return
    ends = list(accumulate(tensor.numel() for tensor in tensors))
    for start in range(0, ends[-1], SEGMENT):
        parts = overlaps(ends, start, min(start + SEGMENT, ends[-1]))
        pieces = [(index, tensors[index][low:high]) for index, low, high in parts]
        if len(scales) == 1:
            is_double = any(piece.dtype == torch.float64 for _, piece in pieces)
            kind = torch.float64 if is_double else torch.float32
            yield start, torch.cat([piece.to(kind) for _, piece in pieces]), scales[0]
        else:
            scaled = [(x.double() - scales[i].mean) * scales[i].inverse for i, x in pieces]
            yield start, torch.cat(scaled), Scale(1.0)


def _to_bytes(words: Tensor, size: int) -> bytes:
    packed = words.view(torch.uint8)[:size]
    if packed.device.type != "cuda":
        return packed.numpy().tobytes()
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    host.copy_(packed, non_blocking=True)
    torch.cuda.current_stream(packed.device).synchronize()
    return host.numpy().tobytes()


def decode_body(
    recipe: Recipe,
    body: memoryview,
    sizes: Sequence[int],
    scales: Scales,
    shared: SharedStream,
    device: Any,
) -> Tensor:
    """All entries of a body as a flat float32 tensor on the device."""
    count, where = sum(sizes), torch.device(device)
    _check_length(plan_of(recipe, where), body, count)  # before so much is allocated
    out = torch.empty(count, dtype=torch.float32, device=where)
    decode_into(out, recipe, body, sizes, scales, shared)
    if not is_safe(recipe, scales) and not bool(torch.isfinite(out).all()):
        raise PayloadError("the payload holds numbers too large for float32")
    return out


def add_body(
    total: Tensor,
    recipe: Recipe,
    body: memoryview,
    sizes: Sequence[int],
    scales: Scales,
    shared: SharedStream,
    weight: float,
) -> None:
    """Add weight·update to a flat float64 sum on a device; a bad body adds nothing."""
    if is_safe(recipe, scales):
        decode_into(total, recipe, body, sizes, scales, shared, weight)
    else:  # a letter could leave float32: ``decode_body`` checks
        found = decode_body(recipe, body, sizes, scales, shared, total.device)
        total += weight * found.double()


def decode_into(
    out: Tensor,
    recipe: Recipe,
    body: memoryview,
    sizes: Sequence[int],
    scales: Scales,
    shared: SharedStream,
    weight: float | None = None,
) -> None:
    """Write the entries of a body, or (given ``weight``) add weight·entry to what is there.

    Each entry counts as the float32 that ``decode_body`` gives; the product and the sum are
    float64, rounded once to the type of ``out``.
    """
    count, plan = sum(sizes), plan_of(recipe, out.device)
    _check_length(plan, body, count)
    if count == 0:
        return
    ends = list(accumulate(sizes)) if len(scales) > 1 else [count]
    spans = list(zip([0, *ends], ends, scales, strict=False))
    with on_device(out.device):
        packed = _uploaded(plan, body, count, out.device)
        decode_with_triton(plan, out, packed, spans, key_words(shared), weight)


def _check_length(plan: Plan, body: memoryview, count: int) -> None:
    """Raise unless so many entries take this many bytes, and the bits that fill up are zero."""
    letters = plan.letters_in(count)
    Packing(plan.letters).check(len(body), letters)
    unused = 8 * len(body) - letters * plan.width if plan.packing is None else 0
    if unused and body[-1] >> (8 - unused):
        raise PayloadError("an index lies outside the codebook, or padding is not zero")


def _uploaded(plan: Plan, body: memoryview, count: int, device: torch.device) -> Tensor:
    """The letters as the kernels read them, filled up with zeros to whole programs."""
    view = np.frombuffer(body, dtype=np.uint8)
    # one program more: a tensor may begin within a row of the one before
    filled = plan.letters_in((-(-count // TILE) + 1) * TILE)
    if plan.packing is not None:
        there = _copied(view, len(view), device)
        return _unpack_numbers(there, plan.letters_in(count), plan.packing, filled)
    return _copied(view, filled * plan.width // 8, device)


def _copied(view: np.ndarray[Any, Any], size: int, device: torch.device) -> Tensor:
    host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    host.numpy()[: len(view)] = view
    return host.to(device, non_blocking=True)


def decode_with_triton(
    plan: Plan, out: Tensor, packed: Tensor, spans: Spans, key: list[int], weight: float | None
) -> None:
    """Whole programs of a span, then the entries that do not fill one."""
    numbers = plan.numbers
    for start, stop, scale in spans:
        whole = start + ((stop - start) // TILE * TILE if start % ROW == 0 else 0)
        for first, last, is_masked in ((start, whole, False), (whole, stop, True)):
            if first == last:
                continue
            row, skip = divmod(first, ROW)
            there = last - row * ROW
            triton_path.decode_rows[(-(-there // TILE),)](
                packed.view(torch.int32), out[row * ROW :], plan.points, row, skip, there, *key,
                scale.mean, scale.unit, 0.0 if weight is None else weight, numbers["step"],
                numbers["f0"], STEP=plan.step, DIMENSION=plan.dimension, WIDTH=plan.width,
                IS_MASKED=is_masked, IS_SUMMED=weight is not None, ROWS=LANES, **options(1),
            )  # fmt: skip


def is_safe(recipe: Recipe, scales: Scales) -> bool:
    """True if no letter at all can decode to a number that float32 cannot hold."""
    largest = float(np.abs(recipe.step.points).max()) + 2.0 * recipe.step.step
    return all(largest * scale.unit + abs(scale.mean) < 0.5 * LARGEST for scale in scales)


# Mixed radix, for alphabets that are no power of two: letters come and go as bytes


def join_with_triton(letters: Tensor, count: int, packing: Packing) -> Tensor:
    """Letters to numbers of ``packing.digits`` letters, numbers to 64-bit words without gaps."""
    padded = -(-count // (64 * packing.digits)) * 64
    programs = -(-padded // _NUMBERS) + 2  # what is read beyond the end is written too
    made = torch.empty(programs * _NUMBERS, dtype=torch.int64, device=letters.device)
    triton_path.numbers_of_letters[(programs,)](
        letters, made, count, BASE=packing.letters, DIGITS=packing.digits, SIZE=_NUMBERS,
        **options(4),
    )  # fmt: skip
    joined = -(-padded * packing.bits // 64 // _NUMBERS)
    packed = torch.empty(joined * _NUMBERS, dtype=torch.int64, device=letters.device)
    triton_path.join_numbers[(joined,)](
        made, packed, BITS=packing.bits, SIZE=_NUMBERS, **options(4)
    )
    return packed


def _unpack_numbers(body: Tensor, count: int, packing: Packing, filled: int) -> Tensor:
    """The letters of a body (bytes, both on the device), filled up with zeros."""
    padded = -(-count // (packing.digits * _NUMBERS)) * _NUMBERS
    words = torch.zeros(padded * packing.bits // 64 + 2, dtype=torch.int64, device=body.device)
    words.view(torch.uint8)[: len(body)] = body
    letters = torch.zeros(filled, dtype=torch.uint8, device=body.device)
    if split_with_triton(words, letters, count, padded, packing):
        raise PayloadError("an index lies outside the codebook, or padding is not zero")
    return letters


def split_with_triton(
    words: Tensor, letters: Tensor, count: int, numbers: int, packing: Packing
) -> bool:
    """Fill in the letters of so many numbers; whether any is outside the codebook."""
    bad = torch.zeros(1, dtype=torch.int32, device=words.device)
    triton_path.letters_of_numbers[(numbers // _NUMBERS,)](
        words, letters, bad, count, BASE=packing.letters, DIGITS=packing.digits,
        BITS=packing.bits, SIZE=_NUMBERS, **options(4),
    )  # fmt: skip
    return bool(bad.item())
