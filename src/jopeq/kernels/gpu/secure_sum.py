"""A share of a secure sum from tensors on a GPU: the plain path's integers, in Triton or torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from jopeq.kernels.gpu.chacha import key_words
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.measure import chunk_sums, replaced
from jopeq.kernels.gpu.plan import flattened, on_device, uses_triton
from jopeq.kernels.gpu.secure_sum_kernel import draw, fill, stages
from jopeq.kernels.recipe import Share
from jopeq.noise.gaussian_rounding import DRAW_LANE, ROUND_LANE, GaussianRounding
from jopeq.wire.entries import LARGEST, Limits
from jopeq.wire.samples import SIGN_LANE

Tensor = torch.Tensor

_BLOCK = 256
_MOST_STAGES = 5  # of a way through memory: 32 numbers in registers
_SIGN_BIT = -(1 << 63)


def encode_share(
    share: Share, tensors: Sequence[Tensor], shared: bytes, private: bytes
) -> tuple[Tensor, bool, int]:
    """The share, whether its places keep the bound, and how many entries were replaced.

    Where the bound is not kept, the turned coordinates come instead of the share.
    """
    limits = Limits(LARGEST, share.clip)
    kept, counts = zip(*[replaced(tensor, limits) for tensor in tensors], strict=True)
    device = kept[0].device
    with on_device(device):
        values = torch.cat([flattened(tensor).double() for tensor in kept])
        values *= share.factor(_energy(values))
        for first, last, start in share.layers:
            turn(values[first:last], start, _words(shared))
        if share.chosen is not None:
            values = values[torch.from_numpy(share.chosen).to(device)]
            values *= share.second_factor(_energy(values))
        out, squares = draw_share(values, share.law, share.bound, share.bits, _words(private))
    is_within = squares <= share.bound**2
    return out if is_within else values, is_within, sum(counts)


def _energy(values: Tensor) -> float:
    return math.fsum(chunk_sums(values, 0.0, True).tolist())


def key_stream(key: list[int], lane: int, first: int, count: int, device: torch.device) -> Tensor:
    """``count`` bytes of a lane from byte ``first`` on, which starts a block."""
    blocks = -(-count // 64)
    if uses_triton(device):
        words = torch.empty(16 * blocks, dtype=torch.int32, device=device)
        fill[(-(-blocks // _BLOCK),)](
            words, first // 64, blocks, *key, LANE=lane, BLOCK=_BLOCK, **options(4)
        )
    else:
        numbers = torch.arange(first // 64, first // 64 + blocks, device=device)
        words = key_words(key, numbers, lane).reshape(-1)
    return words.view(torch.uint8)[:count]


def turn(values: Tensor, start: int, key: list[int]) -> None:
    """``rotate_block``, in place."""
    size, skip = values.numel(), start % 512
    stream = key_stream(key, SIGN_LANE, (start - skip) // 8, -(-(skip + size) // 8), values.device)
    signs, width, root = stream[skip // 8 :], 1, math.sqrt(size)
    if size < 8 or not uses_triton(values.device):
        bits = (stream[:, None] >> torch.arange(8, device=values.device)) & 1
        values *= 1.0 - 2.0 * bits.reshape(-1)[skip : skip + size].double()
        while width < size:
            pairs = values.view(-1, 2, width)
            left, right = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
            pairs[:, 0], pairs[:, 1] = left, right
            width *= 2
        values /= root
        return
    while width < size:
        log = min(_MOST_STAGES, (size // width).bit_length() - 1)
        stages[(-(-(size >> log) // _BLOCK),)](
            values, signs, size, width, root, LOG=log, IS_FIRST=width == 1,
            IS_LAST=width << log == size, BLOCK=_BLOCK, **options(8),
        )  # fmt: skip
        width <<= log


def draw_share(
    values: Tensor, law: GaussianRounding, bound: int, bits: int, key: list[int]
) -> tuple[Tensor, int]:
    """The integers as int8 or int16 (the same bits), and Σ Y²."""
    count, device = values.numel(), values.device
    bytes_ = key_stream(key, ROUND_LANE, 0, count, device)
    words = key_stream(key, DRAW_LANE, 0, 8 * count, device).view(torch.int64)
    table, depth = _table(law, device)
    kind, mask, columns = torch.int8 if bits <= 8 else torch.int16, (1 << bits) - 1, law.columns
    if uses_triton(device):
        out = torch.empty(count, dtype=kind, device=device)
        programs = -(-count // _BLOCK)
        squares = torch.empty(programs, dtype=torch.int64, device=device)
        draw[(programs,)](
            values, bytes_, words, table, out, squares, count, float(bound), columns, law.reach,
            mask, DEPTH=depth, BLOCK=_BLOCK, **options(4),
        )  # fmt: skip
    else:
        places = torch.floor(values + (bytes_.double() + 0.5) * (1.0 / 256.0))
        places = places.clamp(-float(bound), float(bound)).to(torch.int64)
        first, found = (places & 255) << depth, torch.zeros_like(places)
        for k in range(depth - 1, -1, -1):  # signed words compare as unsigned without the top bit
            threshold = table[first + found + ((1 << k) - 1)]
            found += ((threshold ^ _SIGN_BIT) <= (words ^ _SIGN_BIT)).to(torch.int64) << k
        out = ((places >> 8) - law.reach + found.clamp(max=columns)) & mask
        out, squares = out.to(kind), places * places
    low = int((squares & 0x7FFFFFFF).sum())  # in halves: no sum leaves 64 bits
    return out, (int((squares >> 31).sum()) << 31) + low


@lru_cache(maxsize=16)
def _table(law: GaussianRounding, device: torch.device) -> tuple[Tensor, int]:
    table = law.search_table
    return torch.from_numpy(table.view(np.int64).reshape(-1)).to(device), (
        table.shape[1].bit_length() - 1
    )


def _words(key: bytes) -> list[int]:
    return [int(word) for word in np.frombuffer(key, dtype="<i4")]
