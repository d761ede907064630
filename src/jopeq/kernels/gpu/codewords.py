"""Codewords of ``sphere`` on a GPU: scores of many clients' updates, sums of many reports.

The same whole numbers as ``jopeq.kernels.cpu.codewords``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from jopeq.kernels.gpu.arguments import key_words, on_device, uses_triton
from jopeq.kernels.gpu.codewords_kernel import add_reports, choose_blocks, score_vectors
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.measure import check_finite, replaced
from jopeq.random import normal
from jopeq.random.streams import SharedStream
from jopeq.wire.entries import Limits
from jopeq.wire.scaling import Scale

_LANES = 128  # of a program
_ITEMS = 1 << 22  # vectors that are added at once
_ONE = float(1 << 30)


def zeros(count: int, device: Any) -> torch.Tensor:
    """An empty sum of whole numbers on the device."""
    return torch.zeros(count, dtype=torch.int64, device=_checked(torch.device(device)))


def add_codewords(
    clients: Any, vectors: Any, signs: Any, size: int, offset: int, shared: SharedStream,
    total: torch.Tensor,
) -> None:  # fmt: skip
    """``kernels.cpu.add_codewords`` into a tensor on a device."""
    device = _checked(total.device)
    words = key_words(shared.key_words.tobytes())
    for first in range(0, len(clients), _ITEMS):
        here = slice(first, first + _ITEMS)
        who = _int32(clients[here], device)
        which = _int32(vectors[here], device)
        sign = torch.from_numpy((1 - 2 * signs[here].astype(np.int8)).astype(np.int8)).to(device)
        blocks = _blocks(who, which, total.numel() // size, words)
        lanes = who.numel() * (size // 32)
        with on_device(device):
            add_reports[(-(-lanes // _LANES),)](
                total, _draws(device), who, which, sign, blocks, who.numel(), offset // 64, *words,
                SIZE=size, LANES=_LANES, **options(4),
            )  # fmt: skip


def codeword_scores(
    rows: torch.Tensor,
    scale: Scale,
    limits: Limits | None,
    signs: tuple[Any, Any],
    clients: Any,
    vectors: int,
    size: int,
    offset: int,
    shared: SharedStream,
) -> tuple[Any, Any, Any, Any]:
    """(⟨u, x_b⟩, first draws, blocks) of many clients' updates on a device, and Σx² of each block.

    ``rows`` holds an update for each client; the results lie on the host.
    """
    if limits is None:
        check_finite([rows])
    else:
        rows, _ = replaced(rows, limits)
    inside = _into_ball((rows.double() - scale.mean) * scale.inverse)
    turned = _turned_rows(inside, *signs)
    found = _scores(turned, clients, vectors, size, offset, shared)
    wide = turned.view(len(turned), -1, size).to(torch.int64)
    squares = torch.sum(wide * wide, dim=2)  # whole numbers below 2⁶²
    products, firsts, blocks, lengths = (part.cpu().numpy() for part in (*found, squares))
    return products, firsts, blocks.astype("int64"), lengths


def _scores(
    turned: torch.Tensor, clients: Any, vectors: int, size: int, offset: int, shared: SharedStream
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(⟨u, x_b⟩, the first draw, the block) of every vector of every client, a row each."""
    device = _checked(turned.device)
    words, who = key_words(shared.key_words.tobytes()), _int32(clients, device)
    count, padded = turned.shape
    own = torch.arange(vectors, dtype=torch.int32, device=device).repeat(count)
    blocks = _blocks(who.repeat_interleave(vectors), own, padded // size, words)
    products, firsts = torch.empty(2, count * vectors, dtype=torch.int64, device=device)
    lanes = min(size // 32, _LANES)
    together = _LANES // lanes
    with on_device(device):
        score_vectors[(-(-count * vectors // together),)](
            turned, _draws(device), who, blocks, products, firsts, count * vectors, vectors, padded,
            offset // 64, *words, SIZE=size, VECTORS=together, LANES=lanes, **options(4),
        )  # fmt: skip
    shape = (count, vectors)
    return products.view(shape), firsts.view(shape), blocks.view(shape)


def _into_ball(rows: torch.Tensor) -> torch.Tensor:
    """Updates in units of clip, those longer than 1 shortened to 1."""
    rows = rows.nan_to_num(nan=0.0).clamp(-1e150, 1e150)
    norms = rows.square().sum(dim=1, keepdim=True).sqrt()
    return torch.where(norms > 1.0, rows / norms, rows)


def _turned_rows(rows: torch.Tensor, first: Any, second: Any) -> torch.Tensor:
    """H·D₂·H·D₁ of every row, filled up with zeros, in whole multiples of 2⁻³⁰."""
    device = rows.device
    signs = [torch.from_numpy(values).to(device) for values in (first, second)]
    padded = torch.nn.functional.pad(rows.double(), (0, len(first) - rows.shape[1]))
    turned = _hadamard(signs[1] * _hadamard(signs[0] * padded))
    return torch.floor(turned * _ONE + 0.5).clamp(-_ONE, _ONE).to(torch.int32)


def _hadamard(rows: torch.Tensor) -> torch.Tensor:
    """The plain path's butterflies in the plain path's order."""
    count, size = rows.shape
    width = 1
    while width < size:
        pairs = rows.view(count, -1, 2, width)
        rows = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), 2)
        rows = rows.view(count, size)
        width *= 2
    return rows / math.sqrt(size)


def _blocks(
    clients: torch.Tensor, vectors: torch.Tensor, count: int, words: list[int]
) -> torch.Tensor:
    found = torch.empty_like(clients)
    with on_device(clients.device):
        choose_blocks[(-(-clients.numel() // _LANES),)](
            clients, vectors, found, clients.numel(), count - 1, *words, ITEMS=_LANES, **options(4)
        )
    return found


def _checked(device: torch.device) -> torch.device:
    """The device, if Triton runs there."""
    if not uses_triton(device):
        raise ValueError(
            f"device {device} has no Triton kernels: pip install triton, or leave device out"
        )
    return device


def _int32(values: Any, device: torch.device) -> torch.Tensor:
    """Numbers below 2³² in 32 bits."""
    return torch.from_numpy(np.asarray(values).astype(np.uint32).view(np.int32)).to(device)


@lru_cache(maxsize=8)
def _draws(device: torch.device) -> torch.Tensor:
    return torch.from_numpy(normal.draws()).to(device)
