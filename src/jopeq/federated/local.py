"""The local training of a round, all clients at once.

Parameters and momenta are stacked on a client axis, so that a step of all K clients is one step of
a K times larger problem. ``ways`` says how; all ways see the same batches and give, up to rounding,
the same result as a loop over the clients.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from jopeq.federated.batches import batches
from jopeq.federated.seeding import place_seed, seeded
from jopeq.federated.steps import CompiledStep, EagerStep
from jopeq.federated.vector import ModelVector, changing_buffers
from jopeq.federated.ways import Way, choose

COMPILE = ("auto", "on", "off")
# steps: on two cores measured at K = 10, on an H200 with cifar-cnn at K = 30
_WORTH_COMPILING = {"cpu": {"stacked": 200_000, "vmap": 50_000}}
_WORTH_COMPILING_ELSEWHERE = 15_000


@dataclass(frozen=True, eq=False)
class LocalUpdates:
    """What some clients of a round want to send."""

    clients: tuple[int, ...]
    updates: NDArray[np.float32]  # (clients, size): trained minus global
    losses: NDArray[np.float64]  # mean training loss of each client over its steps


class LocalTrainer:
    """SGD with momentum at every client, starting from the global model and momentum zero.

    Parameters
    ----------
    model
        Architecture, and the values of whatever is neither trained nor sent. It is copied.
    inputs, labels
        All training samples; a client's are named by their indices.
    steps, batch_size, momentum
        τ, B and μ of each round. A client with fewer than τ·B samples sees them again
        (``batches.batch_order``).
    client_chunk
        How many clients are trained at once: memory is proportional to it. None: all. Dropout
        masks depend on it, nothing else does.
    compile
        ``torch.compile`` for the step: "on", "off", or "auto", which weighs ``planned_steps``
        (rounds · τ) against the time a compiler takes, and leaves alone what would not gain.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        *,
        steps: int = 100,
        batch_size: int = 16,
        momentum: float = 0.5,
        client_chunk: int | None = None,
        compile: str = "auto",  # noqa: A002 (the name of what it switches)
        planned_steps: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        if compile not in COMPILE:
            raise ValueError(f"compile must be one of {', '.join(COMPILE)}, got {compile!r}")
        if client_chunk is not None and client_chunk < 1:
            raise ValueError(f"client_chunk must be at least 1, got {client_chunk}")
        self.device = torch.device(device)
        self.steps, self.batch_size, self.momentum = steps, batch_size, momentum
        self.client_chunk = client_chunk
        self._model = copy.deepcopy(model).to(self.device).train()
        dtype = next((p.dtype for p in model.parameters() if p.requires_grad), torch.float32)
        self._inputs = inputs.to(self.device, dtype).contiguous()
        self._labels = labels.to(self.device)
        some = slice(0, 4)
        with seeded(0, self.device):
            changing = changing_buffers(self._model, self._inputs[some])
        self.layout = ModelVector(self._model, changing)
        way = choose(
            self._model, self.layout, self._inputs[some], self._labels[some], bool(changing)
        )
        self.kind = way.kind
        self._step = self._make_step(way, compile, planned_steps)

    @property
    def is_compiled(self) -> bool:
        """Whether steps go through ``torch.compile``."""
        return isinstance(self._step, CompiledStep) and self._step.is_compiled

    def copy_model(self) -> nn.Module:
        """A copy of the model as it was given, on the device."""
        return copy.deepcopy(self._model)

    def _make_step(
        self,
        way: Way,
        compile: str,  # noqa: A002
        planned_steps: int,
    ) -> EagerStep | CompiledStep | None:
        if way.losses is None or way.compilable is None:
            return None
        eager = EagerStep(way.losses, self.momentum)
        known = _WORTH_COMPILING.get(self.device.type, {})
        is_long = planned_steps >= known.get(way.kind, _WORTH_COMPILING_ELSEWHERE)
        if compile == "on" or (compile == "auto" and way.gains_from_compiler and is_long):
            return CompiledStep(way.compilable, self.momentum, eager)
        return eager

    def train(
        self,
        start: torch.Tensor,
        parts: Sequence[Any],
        clients: Sequence[int],
        *,
        learning_rates: Sequence[float],
        seed: int,
        round_number: int,
    ) -> Iterator[LocalUpdates]:
        """The updates of ``clients``, a chunk at a time; ``learning_rates`` has one η per step."""
        if len(learning_rates) != self.steps:
            raise ValueError(
                f"learning_rates must have one entry for each of {self.steps} steps, "
                f"got {len(learning_rates)}"
            )
        chunk = self.client_chunk or max(1, len(clients))
        for first in range(0, len(clients), chunk):
            some = tuple(clients[first : first + chunk])
            order = batches(
                parts,
                some,
                steps=self.steps,
                batch_size=self.batch_size,
                seed=seed,
                round_number=round_number,
            ).to(self.device)
            with seeded(place_seed(seed, "dropout", round_number, first), self.device):
                trained, losses = self._trained(start, order, learning_rates)
            yield LocalUpdates(
                some,
                (trained.float().cpu() - start.cpu()).numpy(),
                losses.double().cpu().numpy(),
            )

    def _trained(
        self, start: torch.Tensor, order: torch.Tensor, learning_rates: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The clients' vectors and mean losses; ``order`` holds (steps, clients, batch) indices."""
        if self._step is None:
            return self._one_by_one(start, order, learning_rates)
        steps, clients, size = order.shape
        parameters = self.layout.stacked(start.to(self._inputs), clients)
        momenta = {name: torch.zeros_like(p) for name, p in parameters.items()}
        total = torch.zeros(clients, dtype=torch.float64, device=self.device)
        shape = (clients, size, *self._inputs.shape[1:])
        for chosen, rate in zip(order.reshape(steps, -1), learning_rates, strict=True):
            inputs = self._inputs.index_select(0, chosen).view(shape)
            labels = self._labels.index_select(0, chosen).view(clients, size)
            parameters, momenta, losses = self._step(parameters, momenta, inputs, labels, rate)
            total += losses
        return self.layout.joined(parameters, clients), total / max(1, steps)

    def _one_by_one(
        self, start: torch.Tensor, order: torch.Tensor, learning_rates: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        trained, losses = [], []
        for indices in order.unbind(1):
            model = copy.deepcopy(self._model)
            self.layout.write(model, start)
            chosen = [p for p in model.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD(chosen, lr=0.1, momentum=self.momentum)
            total = torch.zeros((), dtype=torch.float64, device=self.device)
            for batch, rate in zip(indices, learning_rates, strict=True):
                optimizer.param_groups[0]["lr"] = rate
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(self._inputs[batch]), self._labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach()
            trained.append(self.layout.read(model))
            losses.append(total / max(1, self.steps))
        return torch.stack(trained), torch.stack(losses)
