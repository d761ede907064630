"""Scales and checks of updates on a GPU: the numbers of ``scaling`` and ``entries``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from jopeq.errors import UpdateError
from jopeq.kernels.gpu.arguments import flattened, on_device
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.triton_path import sum_chunks
from jopeq.wire.entries import LANES, LARGEST, READ_CHUNK, Limits, Sums, label
from jopeq.wire.scaling import Scale, Scaling, group_tensors

_SEGMENT = 1 << 24  # of whole chunks
_LARGEST_SUM = 1e300  # of squares within float32 that fit any memory; beyond, ``fsum`` overflows


def measure(
    scaling: Scaling,
    tensors: Sequence[torch.Tensor],
    dimension: int,
    names: Sequence[str] | None = None,
) -> list[Scale]:
    """``Scaling.measure`` for tensors on a device; refuses what is not finite while at it."""
    entries: Any = SimpleNamespace(
        names=tuple(names or ("",) * len(tensors)),
        tensors=tensors,
        sizes=[tensor.numel() for tensor in tensors],
    )
    sums, energies = _DeviceSums(), [[0.0]] * len(tensors)
    try:
        if scaling.clip is None and not scaling.center:
            for tensor in chain(*group_tensors(entries.names, scaling.per)):
                energies[tensor] = sums.add_up(entries, tensor, 0.0)
        return scaling.measure(entries, dimension, energies, sums)
    except UpdateError:
        check_finite(tensors, names)  # where a single entry is to blame, that is named
        raise


class _DeviceSums(Sums):
    """``Sums`` where the tensors lie."""

    def add_up(self, entries: Any, tensor: int, mean: float | None = None) -> list[float]:
        found = chunk_sums(entries.tensors[tensor], mean or 0.0, mean is not None).tolist()
        if not sum(map(abs, found)) < _LARGEST_SUM:
            raise UpdateError("the update is too large to be scaled")
        return found


def is_within(limits: Limits, scaling: Scaling, scales: Sequence[Scale], count: int) -> bool:
    """True if the scales of ``count`` entries show that none of them is beyond the limits.

    unit ≥ spread·√(energy/M) and M ≤ count bound every |entry − mean|; half is left for rounding.
    A clip shows nothing and is not asked: ``encode_body`` looks at the entries then.
    """
    if scaling.clip is not None:
        return True
    norms = [abs(s.mean) + s.unit / scaling.spread * math.sqrt(count) for s in scales]
    return max(norms, default=0.0) <= 0.5 * limits.largest


def replaced(tensor: torch.Tensor, limits: Limits) -> tuple[torch.Tensor, int]:
    """``Limits.apply`` on the device, in a copy where an entry is invalid, and how many are."""
    wide = tensor.detach()
    wide = wide if wide.dtype == torch.float64 else wide.float()
    is_bad = ~(wide.abs() <= limits.largest)
    bad = int(is_bad.sum())
    if not bad:
        return tensor, 0
    instead = torch.copysign(torch.full_like(wide, limits.instead), wide)
    return torch.where(is_bad, instead.masked_fill(wide.isnan(), 0.0), wide), bad


def chunk_sums(tensor: torch.Tensor, mean: float, is_square: bool) -> torch.Tensor:
    """``lane_sum`` of every chunk of a tensor, or of its squares about the mean."""
    flat = flattened(tensor)
    chunks = -(-flat.numel() // READ_CHUNK)
    sums = torch.empty(chunks, dtype=torch.float64, device=flat.device)
    if chunks:
        with on_device(flat.device):
            sum_chunks[(chunks,)](
                flat, sums, flat.numel(), mean, IS_SQUARE=is_square, ROWS=READ_CHUNK // LANES,
                WIDTH=LANES, **options(4),
            )  # fmt: skip
    return sums


def check_finite(tensors: Sequence[torch.Tensor], names: Sequence[str] | None = None) -> None:
    """Refuse NaN, inf and what float32 cannot hold, by name and position."""
    for index, tensor in enumerate(tensors):
        flat = flattened(tensor)
        for start in range(0, flat.numel(), _SEGMENT):
            piece = flat[start : start + _SEGMENT]
            wide = piece if piece.dtype == torch.float64 else piece.float()
            is_bad = ~(wide.abs() <= LARGEST)
            if not bool(is_bad.any()):
                continue
            first = int(is_bad.to(torch.uint8).argmax())
            place = tuple(int(k) for k in np.unravel_index(start + first, tensor.shape))
            raise UpdateError(
                f"{label(names[index] if names else '')} holds {float(wide[first])} at position "
                f"{place}: only finite entries within float32 can be encoded; nothing was sent"
            )
