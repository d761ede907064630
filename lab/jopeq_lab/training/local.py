"""The local training of a round, all clients at once.

Parameters and momenta are stacked on a client axis, so that a step of all K clients is one step of
a K times larger problem, by ``torch.func.vmap``. Models that ``vmap`` cannot do, or whose buffers
training changes, are trained one client after another; both see the same batches.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from jopeq.files import own_folder, user_cache
from jopeq_lab.training.models import ModelVector, changing_buffers
from jopeq_lab.training.seeding import generator, place_seed, seeded

# Which clients take part in a round, and which samples they see at which step


def batch_order(count: int, needed: int, source: torch.Generator) -> torch.Tensor:
    """``needed`` positions below ``count``: random permutations, one after another.

    A client sees all its samples before it sees one again. A new permutation may begin in the
    middle of a batch.

    >>> order = batch_order(4, 6, torch.Generator().manual_seed(0))
    >>> sorted(order[:4].tolist()), len(order)
    ([0, 1, 2, 3], 6)
    """
    if count < 1:
        raise ValueError("a client needs at least one sample, got none: use fewer clients")
    epochs = -(-needed // count)
    orders = [torch.randperm(count, generator=source) for _ in range(epochs)]  # noqa: TID251
    return torch.cat(orders)[:needed] if epochs else torch.empty(0, dtype=torch.int64)


def batches(
    parts: Sequence[Any],
    clients: Sequence[int],
    *,
    steps: int,
    batch_size: int,
    seed: int,
    round_number: int,
) -> torch.Tensor:
    """Sample indices (steps, clients, batch_size) of one round."""
    rows = []
    for client in clients:
        part = torch.as_tensor(parts[client])
        source = generator(seed, "batches", round_number, client)
        order = batch_order(len(part), steps * batch_size, source)
        rows.append(part[order].view(steps, batch_size))
    return torch.stack(rows, dim=1)


def participants(clients: int, fraction: float, seed: int, round_number: int) -> list[int]:
    """The clients of a round, ⌈fraction · clients⌋ and at least one, in ascending order.

    >>> len(participants(10, 0.3, seed=0, round_number=5))
    3
    """
    count = min(clients, max(1, round(fraction * clients)))
    if count == clients:
        return list(range(clients))
    order = torch.randperm(clients, generator=generator(seed, "participants", round_number))  # noqa: TID251
    return sorted(order[:count].tolist())


# A step of SGD with momentum at all clients: v ← μv + g, w ← w − ηv, η of each client (K,)


Tensors = dict[str, torch.Tensor]
Losses = Callable[[Tensors, torch.Tensor, torch.Tensor], torch.Tensor]
"""(parameters (K, …), inputs (K, B, …), labels (K, B)) → mean cross-entropy of each client (K,)"""
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs, labels
Stepped = tuple[Tensors, Tensors, torch.Tensor]  # parameters, momenta, losses


def stacked_losses(
    model: nn.Module, layout: ModelVector, inputs: torch.Tensor, labels: torch.Tensor
) -> Losses | None:
    """The losses of all clients by ``vmap``; None for models that ``vmap`` cannot do."""

    def loss(mine: Tensors, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional_call(model, mine, (inputs,)), labels)

    def losses(parameters: Tensors, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = vmap(loss, randomness="different")(parameters, inputs, labels)
        return result

    parameters = layout.stacked(layout.read(model).to(inputs), 2)
    values = [value.requires_grad_() for value in parameters.values()]
    try:
        with seeded(0, inputs.device):
            pair = losses(parameters, inputs.expand(2, *inputs.shape), labels.expand(2, -1))
            torch.autograd.grad(pair.sum(), values, materialize_grads=True)
    except Exception:  # whatever vmap cannot do, a loop can
        return None
    return losses


class Step:
    """One step of all clients, through ``torch.compile`` if requested.

    Compiling takes seconds at the first call. Without a working compiler the step warns once and
    continues without.
    """

    def __init__(self, losses: Losses, momentum: float, *, is_compiled: bool = False) -> None:
        self._losses, self._momentum = losses, momentum
        self._compiled: Any = None
        if not is_compiled:
            return
        try:
            # PyTorch's default lies in a shared folder under a name that others can take first
            if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own_folder(user_cache() / "inductor"))
            self._compiled = torch.compile(self._step, dynamic=False)
        except OSError as error:
            warnings.warn(f"no torch.compile: {error}", RuntimeWarning, stacklevel=2)

    @property
    def is_compiled(self) -> bool:
        """True while there is a compiler that has not failed."""
        return self._compiled is not None

    def __call__(
        self, parameters: Tensors, momenta: Tensors, batch: Batch, rate: torch.Tensor
    ) -> Stepped:
        if self._compiled is not None:
            try:
                result: Stepped = self._compiled(parameters, momenta, batch, rate)
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
        return self._step(parameters, momenta, batch, rate)

    def _step(
        self, parameters: Tensors, momenta: Tensors, batch: Batch, rate: torch.Tensor
    ) -> Stepped:
        def total(mine: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
            losses = self._losses(mine, *batch)
            return losses.sum(), losses

        gradients, losses = grad(total, has_aux=True)(parameters)
        moved = {name: self._momentum * v + gradients[name] for name, v in momenta.items()}
        return {n: w - _spread(rate, w) * moved[n] for n, w in parameters.items()}, moved, losses


def _spread(rate: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The rate of each client, shaped to multiply its values (K, …)."""
    return rate.view(-1, *[1] * (values.ndim - 1))


# The local training of a round, all clients at once


COMPILE = ("auto", "on", "off")
# steps: on two cores measured at K = 10, on an H200 with cifar-cnn at K = 30
_WORTH_COMPILING = {"cpu": 50_000, "cuda": 15_000}


@dataclass(frozen=True, eq=False)
class LocalUpdates:
    """The updates of some clients of a round."""

    clients: tuple[int, ...]
    updates: NDArray[np.float32]  # (clients, size): trained minus global
    losses: NDArray[np.float64]  # mean training loss of each client over its steps


class LocalTrainer:
    """SGD with momentum at every client, starting from the global model.

    Parameters
    ----------
    model
        The architecture, and the values of all entries that are not trained. It is copied.
    inputs, labels
        All training samples; indices say which of them a client holds.
    steps, batch_size, momentum
        τ, B and μ of each round. A client with fewer than τ·B samples sees some again
        (``batch_order``).
    compile
        ``torch.compile`` for the step: "on", "off", or "auto", which weighs ``total_steps``
        (rounds · τ) against the compiler's own time.
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
        compile: str = "auto",  # noqa: A002 (the name of what it switches)
        total_steps: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        if compile not in COMPILE:
            raise ValueError(f"compile must be one of {', '.join(COMPILE)}, got {compile!r}")
        self.device = torch.device(device)
        self.steps, self.batch_size, self.momentum = steps, batch_size, momentum
        self._model = copy.deepcopy(model).to(self.device).train()
        dtype = next((p.dtype for p in model.parameters() if p.requires_grad), torch.float32)
        self._inputs = inputs.to(self.device, dtype).contiguous()
        self._labels = labels.to(self.device)
        some = self._inputs[:4], self._labels[:4]
        with seeded(0, self.device):
            changing = changing_buffers(self._model, some[0])
        self.layout = ModelVector(self._model, changing)
        losses = None if changing else stacked_losses(self._model, self.layout, *some)
        self.kind = "loop" if losses is None else "vmap"
        self._step: Step | None = None
        if losses is not None:
            is_long = total_steps >= _WORTH_COMPILING.get(self.device.type, 15_000)
            is_compiled = compile == "on" or (compile == "auto" and is_long)
            self._step = Step(losses, momentum, is_compiled=is_compiled)

    @property
    def is_compiled(self) -> bool:
        """True if steps go through ``torch.compile``."""
        return self._step is not None and self._step.is_compiled

    def zero_momenta(self, clients: int) -> torch.Tensor:
        """Momenta for ``train`` to keep from one round to the next."""
        return torch.zeros(clients, self.layout.size, dtype=self._inputs.dtype, device=self.device)

    def copy_model(self) -> nn.Module:
        """A copy of the initial model, on the device."""
        return copy.deepcopy(self._model)

    def train(
        self,
        start: torch.Tensor,
        parts: Sequence[Any],
        clients: Sequence[int],
        *,
        learning_rate: float,
        seed: int,
        round_number: int,
        rate_factors: Sequence[float] | None = None,
        momenta: torch.Tensor | None = None,
    ) -> LocalUpdates:
        """The updates of ``clients``.

        ``rate_factors`` multiply the learning rate, one factor for each of ``clients``. ``momenta``
        (of all clients, size) hold the momenta to start from, and in the end those of now; without
        them every client starts from zero.
        """
        chosen = list(clients)
        order = batches(
            parts,
            chosen,
            steps=self.steps,
            batch_size=self.batch_size,
            seed=seed,
            round_number=round_number,
        ).to(self.device)
        rates = [learning_rate * f for f in rate_factors or [1.0] * len(chosen)]
        pushed = None if momenta is None else momenta[chosen]
        with seeded(place_seed(seed, "dropout", round_number, 0), self.device):
            train = self._one_by_one if self._step is None else self._together
            trained, losses = train(start, order, rates, pushed)
        if momenta is not None and pushed is not None:
            momenta[chosen] = pushed
        updates = (trained.float().cpu() - start.cpu()).numpy()
        return LocalUpdates(tuple(chosen), updates, losses.double().cpu().numpy())

    def _together(
        self,
        start: torch.Tensor,
        order: torch.Tensor,
        rates: Sequence[float],
        pushed: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The clients' vectors and mean losses; ``order`` holds (steps, clients, batch) indices.

        The clients' momenta ``pushed`` (clients, size) are replaced by those after the last step.
        """
        if self._step is None:
            raise TypeError("the model is trained one client after another")
        steps, clients, size = order.shape
        parameters = self.layout.stacked(start.to(self._inputs), clients)
        if pushed is None:
            momenta = {name: torch.zeros_like(p) for name, p in parameters.items()}
        else:
            momenta = self.layout.stacked(pushed, clients)
        rate = self._inputs.new_tensor(rates)
        total = torch.zeros(clients, dtype=torch.float64, device=self.device)
        shape = (clients, size, *self._inputs.shape[1:])
        for chosen in order.reshape(steps, -1):
            inputs = self._inputs.index_select(0, chosen).view(shape)
            batch = inputs, self._labels.index_select(0, chosen).view(clients, size)
            parameters, momenta, losses = self._step(parameters, momenta, batch, rate)
            total += losses
        if pushed is not None:
            pushed.copy_(self.layout.joined(momenta, clients))
        return self.layout.joined(parameters, clients), total / max(1, steps)

    def _one_by_one(
        self,
        start: torch.Tensor,
        order: torch.Tensor,
        rates: Sequence[float],
        pushed: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        trained, losses = [], []
        for place, indices in enumerate(order.unbind(1)):
            model = copy.deepcopy(self._model)
            self.layout.write(model, start)
            chosen = [p for p in model.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD(chosen, lr=rates[place], momentum=self.momentum)
            if pushed is not None and self.momentum:
                pieces = torch.split(pushed[place], list(self.layout.sizes))
                for parameter, piece in zip(chosen, pieces, strict=False):  # buffers have none
                    # a view: the optimizer changes ``pushed`` itself
                    optimizer.state[parameter]["momentum_buffer"] = piece.view(parameter.shape)
            total = torch.zeros((), dtype=torch.float64, device=self.device)
            for batch in indices:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(self._inputs[batch]), self._labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach()
            trained.append(self.layout.read(model))
            losses.append(total / max(1, self.steps))
        return torch.stack(trained), torch.stack(losses)
