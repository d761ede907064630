"""The obvious PyTorch version of each scheme: one whole-tensor operation after another.

They do what the paper's equations say, in float32 and with PyTorch's own generator, and stop at
the quantized point: no codebook index, no bits, no bytes, no shared seed. So they do less than an
encoder must, and are no way to privacy (their generator can be predicted).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Chi2, Laplace

from jopeq import noise as laws

Version = Callable[[Tensor], Tensor]


def eager(scheme: Any) -> Version:
    """The version of a scheme."""
    return _response(scheme) if scheme.name == "response" else _quantized(scheme)


def _scaled(scheme: Any, update: Tensor) -> Tensor:
    """In units of ``spread`` root-mean-squares."""
    return update / (scheme.spread * update.norm() / math.sqrt(update.numel()))


def _into_ball(rows: Tensor) -> Tensor:
    if rows.shape[1] == 1:
        return rows.clamp(-1, 1)
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1)


def _samples(scheme: Any, update: Tensor) -> Tensor:
    """Scaled rows of L entries, the last filled up with zeros."""
    flat = _scaled(scheme, update)
    size = scheme.dimension
    if len(flat) % size:
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % size))
    rows = flat.view(-1, size)
    return _into_ball(rows) if scheme.name != "sdq" else rows


def _add_noise(law: Any, rows: Tensor) -> Tensor:
    if isinstance(law, laws.Laplace):
        return rows + Laplace(0.0, law.scale).sample(rows.shape)
    scale = math.sqrt(law.squared_scale)
    chi_square = Chi2(law.nu).sample((len(rows), 1))
    return rows + scale * torch.randn_like(rows) * (law.nu / chi_square).sqrt()


def _quantized(scheme: Any) -> Version:
    step, name = scheme.cells.step, scheme.lattice.name
    letters = scheme.codebook.letters

    def line(update: Tensor) -> Tensor:
        x = _samples(scheme, update)
        if scheme.noise is not None:
            x = _add_noise(scheme.noise, x)
        dithered = x + (torch.rand_like(x) - 0.5) * step
        return torch.floor(dithered / step + letters / 2).clamp(0, letters - 1)

    def cells(update: Tensor) -> Tensor:
        x = _samples(scheme, update)
        if scheme.noise is not None:
            x = _add_noise(scheme.noise, x)
        somewhere = torch.rand_like(x) @ torch.tensor(scheme.lattice.basis, dtype=torch.float32)
        dither = somewhere - _hexagonal(somewhere)
        return _hexagonal(x / step + dither)

    return line if name == "Z" else cells


def _response(scheme: Any) -> Version:
    channel = scheme.finite_channel
    levels = channel.levels
    if levels != channel.letters:
        raise ValueError("the eager version knows randomized response alone")
    moved = float(channel.probabilities[0, -1]) * levels  # P(the letter is drawn anew, from all)

    def version(update: Tensor) -> Tensor:
        x = _samples(scheme, update)
        shifted = x * ((levels - 1) / 2) + torch.rand_like(x) + (levels - 1) / 2
        level = torch.floor(shifted).clamp(0, levels - 1)
        is_moved = torch.rand_like(x) < moved
        return torch.where(is_moved, torch.randint_like(x, levels), level)

    return version


def _hexagonal(x: Tensor) -> Tensor:
    """A2: the nearer of two rectangular grids."""
    sides = torch.tensor([1.0, math.sqrt(3.0)])
    first = torch.round(x / sides) * sides
    second = (torch.floor(x / sides) + 0.5) * sides
    is_first = (x - first).square().sum(1) <= (x - second).square().sum(1)
    return torch.where(is_first[:, None], first, second)
