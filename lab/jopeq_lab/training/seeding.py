"""Every draw that a run's seed determines.

A draw depends on the seed, its purpose and its place (round, client) alone. No generator lives from
one round to the next, so a run resumed in any round continues as if it had never stopped. These
draws are as public as the seed: they design experiments and are never noise.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.checks import check_count
from jopeq.random import portable
from jopeq.random.streams import SEED_BYTES, PrivateStream, derive

Indices = NDArray[np.int64]


def seeded_stream(seed: int, purpose: str) -> PrivateStream:
    """A stream for one purpose of an experiment; streams of other purposes are independent."""
    key = check_count("seed", seed).to_bytes(SEED_BYTES, "little")
    return PrivateStream.reproducible(derive(key, b"jopeq experiment", purpose.encode()))


def permutation(count: int, seed: int, purpose: str) -> Indices:
    """A uniformly random order of 0 … count − 1: the ranks of ``count`` uniforms.

    >>> sorted(permutation(5, seed=0, purpose="example").tolist())
    [0, 1, 2, 3, 4]
    """
    keys = portable.uniform(seeded_stream(seed, purpose), 0, count)
    return np.argsort(keys, kind="stable").astype(np.int64)


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
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed PyTorch's own generators (dropout and initialisation take no other), then restore them.

    Seeds those of the CPU and of ``device``; without ``device``, of every GPU in use.
    ``torch.manual_seed`` would also seed GPUs not in use yet, which cannot be restored.
    """
    gpus: list[int] = []
    if device is not None and device.type == "cuda":
        gpus = [torch.cuda.current_device() if device.index is None else device.index]
    elif device is None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gpus = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield
