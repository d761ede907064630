"""Which clients take part in a round, and which samples they see at which step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from jopeq.federated.seeding import generator


def batch_order(count: int, needed: int, source: torch.Generator) -> torch.Tensor:
    """``needed`` positions below ``count``: one random order of all after another.

    No sample comes back before all have been seen. When more are needed than there are, the order
    wraps around with a new permutation, also in the middle of a batch.

    >>> order = batch_order(4, 6, torch.Generator().manual_seed(0))
    >>> sorted(order[:4].tolist()), len(order)
    ([0, 1, 2, 3], 6)
    """
    if count < 1:
        raise ValueError("a client needs at least one sample, got none: use fewer clients")
    epochs = -(-needed // count)
    orders = [torch.randperm(count, generator=source) for _ in range(epochs)]
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
    order = torch.randperm(clients, generator=generator(seed, "participants", round_number))
    return sorted(order[:count].tolist())
