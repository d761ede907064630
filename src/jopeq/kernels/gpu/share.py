"""A share of a secure sum from tensors on a GPU: the plain path's integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from jopeq.kernels.gpu.arguments import flattened, key_words, on_device
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.measure import chunk_sums, replaced
from jopeq.kernels.gpu.share_kernel import draw, fill, stages
from jopeq.kernels.recipe import Share
from jopeq.noise.gaussian_rounding import DRAW_LANE, ROUND_LANE, GaussianRounding
from jopeq.wire.entries import LARGEST, Limits
from jopeq.wire.rotation import SIGN_LANE

Tensor = torch.Tensor

_BLOCK = 256
_FILLED = 128  # blocks of key stream by a program, one a thread


@dataclass(frozen=True)
class Tuning:
    """How the kernels cut their work: no number here changes a byte.

    With one warp a tile is mixed by registers and shuffles alone; more need shared memory.
    """

    columns: int = 4  # log2 of the entries of a piece
    rows: int = 6  # log2 of the pieces of a tile, at most
    warps: int = 1
    block: int = 1024  # entries drawn by a program
    draw_warps: int = 4
    guide: int = 7  # bits of a word that the guide looks at


TUNING = Tuning()


def encode_share(
    share: Share, tensors: Sequence[Tensor], shared: bytes, private: bytes
) -> tuple[Tensor, bool, int]:
    """The share, whether its places keep the bound, and how many entries were replaced.

    Where the bound is not kept, the turned coordinates come instead of the share.
    """
    device, invalid = tensors[0].device, 0
    with on_device(device):
        flat = _joined(tensors)
        count = flat.numel() if share.chosen is None else len(share.chosen)
        rounding = _beside(
            lambda: key_stream(key_words(private), ROUND_LANE, 0, count, device), device
        )
        energy = _energy(flat)
        if not energy < LARGEST**2:  # else no entry is NaN or beyond float32
            limits = Limits(LARGEST, share.clip)
            kept, counts = zip(*[replaced(tensor, limits) for tensor in tensors], strict=True)
            flat, invalid = _joined(kept), sum(counts)
            energy = _energy(flat)
        factor, end = share.factor(energy), share.layers[0][1]
        values = torch.empty(flat.numel(), dtype=torch.float64, device=device)
        values[end:] = flat[end:].double() * factor
        for first, last, start in share.layers:
            part = values[first:last]
            turn(part if first else flat[:end], part, start, key_words(shared), factor)
            factor = 1.0
        if share.chosen is not None:
            values = values[torch.from_numpy(share.chosen).to(device)]
            values *= share.second_factor(_energy(values))
        given = values, share.law, share.bound, share.bits, key_words(private)
        out, squares = draw_share(*given, rounding())
    is_within = squares <= share.bound**2
    return out if is_within else values, is_within, invalid


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """All entries in a row: float32, or float64 where a tensor has that."""
    flat = [flattened(tensor) for tensor in tensors]
    kind = torch.float64 if any(one.dtype == torch.float64 for one in flat) else torch.float32
    wide = [one.to(kind) for one in flat]
    return wide[0] if len(wide) == 1 else torch.cat(wide)


def _energy(values: Tensor) -> float:
    return math.fsum(chunk_sums(values, 0.0, True).tolist())


def key_stream(key: list[int], lane: int, first: int, count: int, device: torch.device) -> Tensor:
    """``count`` bytes of a lane from byte ``first`` on, which starts a block."""
    blocks = -(-count // 64)
    words = torch.empty(8 * blocks, dtype=torch.int64, device=device)
    fill[(-(-blocks // _FILLED),)](
        words, first // 64, blocks, *key, LANE=lane, BLOCK=_FILLED, **options(4)
    )
    return words.view(torch.uint8)[:count]


def _beside(work: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Start work in a queue of its own: a key stream computes while a rotation waits for memory."""
    if device.type != "cuda":
        return work
    own = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    main = torch.cuda.current_stream(device)
    with torch.cuda.stream(own):
        made = work()

    def ready() -> Tensor:
        main.wait_stream(own)
        made.record_stream(main)  # else its memory may be given away while it is read
        return made

    return ready


def turn(source: Tensor, values: Tensor, start: int, key: list[int], factor: float = 1.0) -> None:
    """``rotate_block`` of factor·source into values, which may be the same tensor."""
    size, skip, device = values.numel(), start % 512, values.device
    stream = key_stream(key, SIGN_LANE, (start - skip) // 8, -(-(skip + size) // 8), device)
    signs, root = stream[skip // 8 :], math.sqrt(size)
    if size < _BLOCK:
        bits = (stream[:, None] >> torch.arange(8, device=device)) & 1
        turned = source.double() * factor
        turned *= 1.0 - 2.0 * bits.reshape(-1)[skip : skip + size].double()
        width = 1
        while width < size:
            pairs = turned.view(-1, 2, width)
            left, right = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
            pairs[:, 0], pairs[:, 1] = left, right
            width *= 2
        values.copy_(turned / root)
        return
    columns = TUNING.columns
    width = 1 << columns
    while width < size:
        is_first, rest = width == 1 << columns, (size // width).bit_length() - 1
        rows = -(-rest // -(-rest // TUNING.rows))  # as few passes as can be, of one size
        stages[(size >> (rows + columns),)](
            source if is_first else values, values, signs, width, factor, root, ROWS=rows,
            COLUMNS=columns, IS_FIRST=is_first, IS_LAST=width << rows == size,
            **options(TUNING.warps),
        )  # fmt: skip
        width <<= rows


def draw_share(
    values: Tensor, law: GaussianRounding, bound: int, bits: int, key: list[int], bytes_: Tensor
) -> tuple[Tensor, int]:
    """The integers as int8 or int16 (the same bits), and Σ Y²; ``bytes_`` are of the rounding."""
    count, device = values.numel(), values.device
    kind, mask, columns = torch.int8 if bits <= 8 else torch.int16, (1 << bits) - 1, law.columns
    guide, table, steps = _guided(law, TUNING.guide, device)
    out = torch.empty(count, dtype=kind, device=device)
    programs = -(-count // TUNING.block)
    squares = torch.empty(programs, dtype=torch.int64, device=device)
    draw[(programs,)](
        values, bytes_, guide, table, out, squares, count, float(bound), columns, law.reach,
        mask, *key, LANE=DRAW_LANE, GUIDE=TUNING.guide, STEPS=steps, BLOCK=TUNING.block,
        **options(TUNING.draw_warps),
    )  # fmt: skip
    # in halves: no sum leaves 64 bits
    low, high = torch.stack(((squares & 0x7FFFFFFF).sum(), (squares >> 31).sum())).tolist()
    return out, (high << 31) + low


@lru_cache(maxsize=16)
def _guided(law: GaussianRounding, bits: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """(fewest and most thresholds that words with these upper bits reach, thresholds, steps)."""
    firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    lasts = firsts | np.uint64((1 << (64 - bits)) - 1)
    fewest, most = (
        np.array([np.searchsorted(row, words, side="right") for row in law.thresholds])
        for words in (firsts, lasts)
    )
    guide = (fewest | most << 8).astype(np.uint16).view(np.int16).reshape(-1)
    table = law.thresholds.view(np.int64).reshape(-1)
    steps = int((most - fewest).max()).bit_length()
    return torch.from_numpy(guide).to(device), torch.from_numpy(table).to(device), steps
