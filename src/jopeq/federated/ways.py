"""The losses of all clients as one function of stacked parameters, or the news that there is none.

- ``stacked``: models made of the layers that ``layers`` knows, with batched products;
- ``vmap``: any other module, by ``torch.func.functional_call`` under ``torch.func.vmap``;
- ``loop``: modules that change their buffers while training (batch normalisation) or that ``vmap``
  cannot run. Clients are then trained one after another, each with its own buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional

from jopeq.federated.layers import StackedForward, stacked_forward
from jopeq.federated.seeding import seeded
from jopeq.federated.vector import ModelVector

Tensors = dict[str, torch.Tensor]
Losses = Callable[[Tensors, torch.Tensor, torch.Tensor], torch.Tensor]
"""(parameters (K, …), inputs (K, B, …), labels (K, B)) → mean cross-entropy of each client (K,)"""


@dataclass(frozen=True, eq=False)
class Way:
    """How the clients of a round are trained."""

    kind: str
    losses: Losses | None = None  # None: one by one
    compilable: Losses | None = None  # the form that a compiler makes most of
    gains_from_compiler: bool = False


def choose(
    model: nn.Module,
    layout: ModelVector,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    changes_buffers: bool,
) -> Way:
    """The fastest way that computes the model, tried on a few samples."""
    if changes_buffers:
        return Way("loop")
    forward = stacked_forward(model)
    if forward is not None and _agrees(model, forward, inputs):
        return Way(
            "stacked",
            _stacked_losses(model, forward),
            _stacked_losses(model, forward, for_compiler=True),
            # on a CPU our convolutions are faster than what the compiler makes of them
            gains_from_compiler=inputs.is_cuda or not forward.has_convolutions,
        )
    by_vmap = _vmap_losses(model)
    parameters = layout.stacked(layout.read(model).to(inputs), 2)
    values = [value.requires_grad_() for value in parameters.values()]
    try:
        with seeded(0, inputs.device):
            pair = by_vmap(parameters, inputs.expand(2, *inputs.shape), labels.expand(2, -1))
            torch.autograd.grad(pair.sum(), values, materialize_grads=True)
    except Exception:  # whatever vmap cannot do, a loop can
        return Way("loop")
    return Way("vmap", by_vmap, by_vmap, gains_from_compiler=True)


def _stacked_losses(
    model: nn.Module, forward: StackedForward, for_compiler: bool = False
) -> Losses:
    frozen = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}

    def losses(parameters: Tensors, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        clients = inputs.shape[0]
        constants = {name: value.expand(clients, *value.shape) for name, value in frozen.items()}
        held = {**constants, **parameters}
        logits = forward(held, inputs.movedim(1, -1), True, for_compiler)
        return functional.cross_entropy(logits, labels, reduction="none").mean(1)

    return losses


def _vmap_losses(model: nn.Module) -> Losses:
    def loss(mine: Tensors, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional_call(model, mine, (inputs,)), labels)

    def losses(parameters: Tensors, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = vmap(loss, randomness="different")(parameters, inputs, labels)
        return result

    return losses


def _agrees(model: nn.Module, forward: StackedForward, inputs: torch.Tensor) -> bool:
    """Whether the batch-last form really computes the model."""
    parameters = {name: p.detach().unsqueeze(0) for name, p in model.named_parameters()}
    was_training = model.training
    try:
        with torch.no_grad():
            expected = model.eval()(inputs)
            found = forward(parameters, inputs.movedim(0, -1).unsqueeze(0), False)[0]
        return expected.ndim == 2 and torch.allclose(found.T, expected, rtol=1e-3, atol=1e-4)
    except (RuntimeError, ValueError, IndexError):
        return False
    finally:
        model.train(was_training)
