"""A model as the one vector of floats that clients train and send."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn


class ModelVector:
    """Where the numbers of a model lie in a vector of ``size`` entries.

    In it are the parameters that are trained, then the float buffers that training changes (the
    running statistics of batch normalisation). Frozen parameters, constant buffers and integer
    buffers are the same for all and never sent.

    >>> layout = ModelVector(nn.Linear(3, 2))
    >>> layout.names, layout.size
    (('weight', 'bias'), 8)
    """

    def __init__(self, model: nn.Module, changing: frozenset[str] = frozenset()) -> None:
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError(
                "the model has no parameter that requires a gradient: nothing to train"
            )
        kept = {n: b for n, b in model.named_buffers() if n in changing and b.is_floating_point()}
        tensors = {**trained, **kept}
        self.trained = tuple(trained)
        self.names = tuple(tensors)
        self.shapes = tuple(tuple(tensor.shape) for tensor in tensors.values())
        self.sizes = tuple(math.prod(shape) for shape in self.shapes)
        self.size = sum(self.sizes)

    def read(self, model: nn.Module) -> torch.Tensor:
        """The model's numbers, as float32 on the CPU."""
        tensors = self._tensors(model)
        return torch.cat([tensor.detach().reshape(-1).float().cpu() for tensor in tensors])

    def write(self, model: nn.Module, vector: torch.Tensor) -> None:
        """Set the model's numbers. Noise may not leave a running variance below zero."""
        pieces = torch.split(vector, list(self.sizes))
        for name, tensor, piece in zip(self.names, self._tensors(model), pieces, strict=True):
            tensor.detach().copy_(piece.view(tensor.shape))
            if name.rpartition(".")[2] == "running_var":
                tensor.detach().clamp_(min=0.0)

    def stacked(self, vector: torch.Tensor, clients: int) -> dict[str, torch.Tensor]:
        """Every client's own copy, by name, of shape (clients, *shape)."""
        pieces = torch.split(vector, list(self.sizes))
        return {
            name: piece.view(shape).expand(clients, *shape).clone()
            for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
        }

    def joined(self, stacked: dict[str, torch.Tensor], clients: int) -> torch.Tensor:
        """The inverse of ``stacked``: (clients, size)."""
        return torch.cat([stacked[name].detach().reshape(clients, -1) for name in self.names], 1)

    def _tensors(self, model: nn.Module) -> list[torch.Tensor]:
        found = dict(model.named_parameters()) | dict(model.named_buffers())
        return [found[name] for name in self.names]


def changing_buffers(model: nn.Module, inputs: torch.Tensor) -> frozenset[str]:
    """The buffers that a pass over ``inputs`` in training mode changes."""
    trial = copy.deepcopy(model).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    with torch.no_grad():
        trial(inputs)
    after = dict(trial.named_buffers())
    return frozenset(
        name for name, buffer in before.items() if not torch.equal(buffer, after[name])
    )
