"""Updates on a GPU, measured and checked there: the numbers of ``scaling`` and ``entries``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from jopeq.errors import UpdateError
from jopeq.kernels.gpu.arguments import flattened, on_device
from jopeq.kernels.gpu.jit import options
from jopeq.kernels.gpu.triton_path import sum_chunks
from jopeq.wire.entries import LANES, LARGEST, READ_CHUNK, Limits, label
from jopeq.wire.scaling import Scale, Scaling, group_tensors

_SEGMENT = 1 << 24  # of whole chunks
_LARGEST_SUM = 1e300  # of squares within float32 that fit any memory; beyond, ``fsum`` overflows


@dataclass
class DeviceEntries:
    """The ``Entries`` of float tensors on one GPU."""

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    invalid: int = 0  # entries that were replaced

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(tensor.shape) for tensor in self.tensors)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(tensor.numel() for tensor in self.tensors)

    @property
    def count(self) -> int:
        return sum(self.sizes)

    def measure(
        self, scaling: Scaling | None, dimension: int, limits: Limits | None = None
    ) -> list[Scale]:
        """One scale for each group; with a clip, ``encode_body`` looks for bad entries."""
        if scaling is None:
            return []
        try:
            scales = self._measure(scaling, dimension)
            if limits is None or self._is_within(limits, scaling, scales):
                return scales
        except UpdateError:
            if limits is None:
                self.check_finite()  # where a single entry is to blame, that is named
                raise
        self.replace_invalid(limits)
        return self._measure(scaling, dimension)

    def _measure(self, scaling: Scaling, dimension: int) -> list[Scale]:
        entries: Any = self
        energies = [[0.0]] * len(self.tensors)
        if scaling.clip is None and not scaling.center:
            for group in group_tensors(self.names, scaling.per):
                for tensor in group:
                    energies[tensor] = self.add_up(tensor, 0.0)
        return scaling.measure(entries, dimension, energies)

    def add_up(self, tensor: int, mean: float | None = None) -> list[float]:
        """``Entries.add_up``."""
        found = chunk_sums(self.tensors[tensor], mean or 0.0, mean is not None).tolist()
        if not sum(map(abs, found)) < _LARGEST_SUM:
            raise UpdateError("the update is too large to be scaled")
        return found

    def _is_within(self, limits: Limits, scaling: Scaling, scales: list[Scale]) -> bool:
        """True if the scales show that no entry is beyond the limits.

        unit ≥ spread·√(energy/M) and M ≤ count bound every |entry − mean|; half is left for
        rounding. A clip shows nothing: ``encode_body`` looks at the entries then.
        """
        if scaling.clip is not None:
            return True
        root = math.sqrt(self.count)
        norms = [abs(s.mean) + s.unit / scaling.spread * root for s in scales]
        return max(norms, default=0.0) <= 0.5 * limits.largest

    def replace_invalid(self, limits: Limits) -> None:
        """``Limits.apply``, in copies of the tensors that have an invalid entry."""
        tensors = list(self.tensors)
        for index, tensor in enumerate(tensors):
            wide = tensor.detach()
            wide = wide if wide.dtype == torch.float64 else wide.float()
            is_bad = ~(wide.abs() <= limits.largest)
            if bad := int(is_bad.sum()):
                instead = torch.copysign(torch.full_like(wide, limits.instead), wide)
                instead.masked_fill_(wide.isnan(), 0.0)
                tensors[index] = torch.where(is_bad, instead, wide)
                self.invalid += bad
        self.tensors = tuple(tensors)

    def check_finite(self) -> None:
        """Refuse NaN, inf and what float32 cannot hold, by name and position."""
        for name, tensor in zip(self.names, self.tensors, strict=True):
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
                    f"{label(name)} holds {float(wide[first])} at position {place}: only finite "
                    "entries within float32 can be encoded; nothing was sent"
                )


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
