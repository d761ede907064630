"""A recipe as the arguments of the GPU kernels: numbers, tables on the device, choices.

Rows of 32 entries are worked through in groups of as many entries as one block of noise serves.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from jopeq.kernels.gpu.jit import HAS_TRITON, IS_INTERPRETED
from jopeq.kernels.recipe import Cells, Chances, Line, Recipe
from jopeq.random.streams import ChaChaStream
from jopeq.wire.coders import Packing

ROW = 32
LANES = 32  # rows of a program: one warp, which takes rare branches alone and never waits
TILE = ROW * LANES
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NUMBERS = (  # in the order of the kernels' arguments; what f0…f6 are depends on the step
    *("step", "inverse_step", "centre", "letters", "noise_scale", "noise_limit", "nu"),
    *("two_over_nu", "f0", "f1", "f2", "f3", "f4", "f5", "f6"),
)
_STEPS = {Line: "line", Cells: "cells", Chances: "chances"}


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """The entries of a tensor as the kernels read them; copied only when they lie apart."""
    flat = tensor.detach().resolve_neg().reshape(-1)
    return flat if flat.dtype in FLOATS else flat.float()


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels are launched on the current GPU: make it this one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def key_words(stream: ChaChaStream) -> list[int]:
    """The eight words of a stream's key, signed, as kernels take them."""
    return [int(word) for word in stream.key_words.view(np.int32)]


def uses_triton(device: torch.device) -> bool:
    """True if kernels run there: Triton on GPUs, its interpreter on request."""
    return HAS_TRITON and (device.type == "cuda" or IS_INTERPRETED)


@dataclass(frozen=True, eq=False)
class Plan:
    """The arguments of the kernels, for one recipe on one device."""

    step: str
    noise: str  # "none", "laplace", "t", or "words": raw ones
    dimension: int
    is_clipped: bool
    letters: int
    width: int  # bits a letter takes in the kernels
    columns: int  # thresholds of a level, or points to search
    group: int
    numbers: dict[str, float]
    table: torch.Tensor  # thresholds, or the letters of cells
    points: torch.Tensor  # values of letters

    @property
    def packing(self) -> Packing | None:
        """Mixed radix, where letters are not written bit by bit."""
        return None if self.letters == 1 << self.width else Packing(self.letters)

    def letters_in(self, count: int) -> int:
        """Letters that so many entries make."""
        return -(-count // self.dimension)

    def size(self, count: int) -> int:
        """Bytes that so many entries take."""
        return Packing(self.letters).size(self.letters_in(count))

    @property
    def row_bits(self) -> int:
        return self.letters_in(ROW) * self.width

    @property
    def is_loop(self) -> bool:
        """True if every group fills whole words, or a whole number of groups fills one."""
        bits = self.letters_in(self.group) * self.width
        return self.group < ROW and (bits % 32 == 0 or 32 % bits == 0)


@lru_cache(maxsize=128)
def plan_of(recipe: Recipe, device: torch.device) -> Plan:
    """The plan of a recipe."""
    step, noise, letters = recipe.step, recipe.noise, recipe.step.letters
    numbers = dict.fromkeys(_NUMBERS, 0.0)
    if noise is not None:
        numbers |= {"noise_scale": noise.scale, "noise_limit": noise.limit, "nu": noise.nu}
        numbers["two_over_nu"] = 2.0 / noise.nu if noise.nu else 0.0
    kind, columns = "none" if noise is None else noise.law, 0
    table: np.ndarray[Any, Any] = np.zeros(1, dtype=np.int32)
    if isinstance(step, Line):
        numbers |= {"step": step.step, "inverse_step": 1.0 / step.step}
        numbers |= {"centre": 0.5 * letters, "letters": float(letters), "f0": 0.5 * (letters - 1)}
    elif isinstance(step, Cells):
        table, columns = np.asarray(step.codebook.table, dtype=np.int32), letters
        across, up = map(float, 1.0 / (step.codebook.lattice.geometry.axes * step.step))
        numbers |= {"step": step.step, "inverse_step": across}
        extras = (*step.box[:2], up, *step.box[2:])
        numbers |= {f"f{k}": value for k, value in enumerate(extras)}
    else:
        kind, columns = "words", letters - 1
        table = (step.thresholds - np.uint64(1)).astype(np.uint32).view(np.int32).reshape(-1)
        numbers |= {"step": 0.5 * (letters - 1), "centre": 0.5 * letters, "f0": step.step}
    bits = letters.bit_length() - 1
    return Plan(
        step=_STEPS[type(step)],
        noise=kind,
        dimension=recipe.dimension,
        is_clipped=recipe.is_clipped,
        letters=letters,
        width=bits if letters == 1 << bits else 8,  # others are written as bytes at first
        columns=columns,
        group=_group(kind, recipe.dimension),
        numbers=numbers,
        table=torch.from_numpy(np.ascontiguousarray(table)).to(device),
        points=torch.from_numpy(step.points).to(device),
    )


def _group(noise: str, dimension: int) -> int:
    """Entries that one block of noise serves: 32 or 64 bits each."""
    if noise == "words":
        return 16
    return 8 if noise != "none" or dimension == 2 else ROW
