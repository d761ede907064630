"""Every draw that a run's seed determines.

Draws depend on nothing but the seed and their place (round, client): no generator lives from one
round to the next, so that a run resumed in any round goes on as if it had never stopped.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def place_seed(seed: int, purpose: str, *place: int) -> int:
    """An independent 63-bit seed for each purpose and place.

    >>> place_seed(0, "batches", 3, 1) == place_seed(0, "batches", 3, 1)
    True
    >>> place_seed(0, "batches", 3, 1) == place_seed(0, "batches", 1, 3)
    False
    """
    text = repr((operator.index(seed), purpose, *map(operator.index, place)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, purpose: str, *place: int) -> torch.Generator:
    """A generator on the CPU, whatever the device: every machine draws the same batches."""
    return torch.Generator().manual_seed(place_seed(seed, purpose, *place))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """PyTorch's own generators (dropout takes no other) seeded within, as they were afterwards."""
    is_cuda = device.type == "cuda"
    index = torch.cuda.current_device() if is_cuda and device.index is None else device.index
    with torch.random.fork_rng(devices=[index] if is_cuda else []):
        torch.default_generator.manual_seed(seed)
        if is_cuda:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(seed)
        yield
