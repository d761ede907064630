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
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.measure import check_finite
from jopeq.kernels.recipe import Recipe
from jopeq.wire.coders import Packing
from jopeq.wire.entries import LARGEST, overlaps
from jopeq.wire.scaling import Scale

Tensor = torch.Tensor
Scales = Sequence[Scale]
Spans = list[tuple[int, int, Scale]]  # start, stop and scale of entries

SEGMENT = 1 << 24  # entries that are copied together where an update is in several pieces
_MAX_ROWS = 1 << 31
_NUMBERS = 128  # of mixed radix, that a program makes


def encode_body(
    recipe: Recipe,
    tensors: Sequence[Tensor],
    scales: Scales,
    shared_key: bytes,
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
    shared, private = key_words(shared_key), key_words(private_key)
    with on_device(device):
        if len(scales) > 1 and any(tensor.dtype == torch.float64 for tensor in flat):
            check_finite(tensors, names)  # kernels then see them scaled, which may fit float32
        counts = torch.zeros(4, dtype=torch.int64, device=device)
        words = encode_with_triton(plan, flat, scales, shared, private, counts)
        clipped, overloaded, refused, far = counts.tolist()
        if refused:
            check_finite(tensors, names)
        if far:
            raise UpdateError(
                "x is too far from the origin to be quantized exactly: raise clip or spread"
            )
        if plan.packing is not None:
            words = packed_numbers(words, plan.letters_in(count), plan.packing, plan.width)
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
    body: bytes | memoryview,
    sizes: Sequence[int],
    scales: Scales,
    shared_key: bytes,
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
    scales: Scales,
    shared_key: bytes,
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
    ends = list(accumulate(sizes)) if len(scales) > 1 else [count]
    spans = list(zip([0, *ends], ends, scales, strict=False))
    with on_device(out.device):
        packed = _uploaded(plan, body, count, out.device)
        decode_with_triton(plan, out, packed, spans, key_words(shared_key), weight)


def _check_length(plan: Plan, body: bytes | memoryview, count: int) -> None:
    """Raise unless so many entries take this many bytes, and the bits that fill up are zero."""
    size = plan.size(count)
    if len(body) != size:
        raise PayloadError(
            f"the header claims {count} entries, which take {size} bytes; the body has {len(body)}"
        )
    unused = 8 * size - plan.letters_in(count) * plan.width if plan.packing is None else 0
    if unused and body[-1] >> (8 - unused):
        raise PayloadError("an index lies outside the codebook, or padding is not zero")


def _uploaded(plan: Plan, body: bytes | memoryview, count: int, device: torch.device) -> Tensor:
    """The letters as the kernels read them, filled up with zeros to whole programs."""
    view = np.frombuffer(body, dtype=np.uint8)
    # one program more: a tensor may begin within a row of the one before
    filled = plan.letters_in((-(-count // TILE) + 1) * TILE)
    if plan.packing is not None:
        there = _copied(view, len(view), device)
        return unpacked_numbers(there, plan.letters_in(count), plan.packing, plan.width, filled)
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


# Mixed radix, for alphabets that are no power of two: letters come and go as bytes or 16-bit words


def packed_numbers(words: Tensor, count: int, packing: Packing, width: int) -> Tensor:
    """The bytes of ``count`` letters, ``width`` bits each in ``words``, as 64-bit words."""
    return join_with_triton(words.view(_kind(width)), count, packing)


def join_with_triton(letters: Tensor, count: int, packing: Packing) -> Tensor:
    """Letters to numbers of ``packing.digits`` letters, numbers to words without gaps."""
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


def unpacked_numbers(body: Tensor, count: int, packing: Packing, width: int, filled: int) -> Tensor:
    """The letters of a body (both bytes on the device), ``width`` bits each, filled with zeros."""
    numbers = -(-count // packing.digits)
    padded = -(-numbers // _NUMBERS) * _NUMBERS
    words = torch.zeros(padded * packing.bits // 64 + 2, dtype=torch.int64, device=body.device)
    words.view(torch.uint8)[: len(body)] = body
    letters = torch.zeros(max(filled, count), dtype=_kind(width), device=body.device)
    if split_with_triton(words, letters, count, padded, packing):
        raise PayloadError("an index lies outside the codebook, or padding is not zero")
    return letters.view(torch.uint8)


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


def _kind(width: int) -> torch.dtype:
    return torch.uint8 if width == 8 else torch.int16
