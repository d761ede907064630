"""One step of SGD with momentum at all clients: v ← μv + g, w ← w − ηv.

The gradient of the sum of the clients' losses holds every client's own gradient, since no loss
depends on another client's parameters.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.func import grad

from jopeq.federated.ways import Losses, Tensors

Stepped = tuple[Tensors, Tensors, torch.Tensor]  # parameters, momenta, losses


class EagerStep:
    """In place."""

    def __init__(self, losses: Losses, momentum: float) -> None:
        self._losses, self._momentum = losses, momentum

    def __call__(
        self,
        parameters: Tensors,
        momenta: Tensors,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> Stepped:
        values, velocities = list(parameters.values()), list(momenta.values())
        for value in values:
            value.requires_grad_()
        losses = self._losses(parameters, inputs, labels)
        gradients = torch.autograd.grad(losses.sum(), values, materialize_grads=True)
        with torch.no_grad():
            torch._foreach_mul_(velocities, self._momentum)
            torch._foreach_add_(velocities, gradients)
            torch._foreach_add_(values, velocities, alpha=-rate)
        return parameters, momenta, losses.detach()


class CompiledStep:
    """By ``torch.compile``, which takes seconds at the first call.

    Where there is no working compiler it warns once and goes on with ``eager``.
    """

    def __init__(self, losses: Losses, momentum: float, eager: EagerStep) -> None:
        self._losses, self._momentum, self._eager = losses, momentum, eager
        self._compiled: Any = torch.compile(self._step, dynamic=False)

    @property
    def is_compiled(self) -> bool:
        """Whether the compiler has not failed so far."""
        return self._compiled is not None

    def __call__(
        self,
        parameters: Tensors,
        momenta: Tensors,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> Stepped:
        if self._compiled is not None:
            eta = torch.tensor(rate, dtype=inputs.dtype, device=inputs.device)
            try:
                result: Stepped = self._compiled(parameters, momenta, inputs, labels, eta)
                return result
            except Exception as error:  # compilers fail in many ways
                self._compiled = None
                reason = (str(error).strip().splitlines() or [""])[0]
                warnings.warn(
                    f"torch.compile failed ({type(error).__name__}: {reason}): going on without "
                    "it; compile='off' avoids the try",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return self._eager(parameters, momenta, inputs, labels, rate)

    def _step(
        self,
        parameters: Tensors,
        momenta: Tensors,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: torch.Tensor,
    ) -> Stepped:
        def summed(mine: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
            losses = self._losses(mine, inputs, labels)
            return losses.sum(), losses

        gradients, losses = grad(summed, has_aux=True)(parameters)
        moved = {name: self._momentum * v + gradients[name] for name, v in momenta.items()}
        return {n: w - rate * moved[n] for n, w in parameters.items()}, moved, losses
