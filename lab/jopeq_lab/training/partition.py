"""Split samples among clients: equal and random, or label-skewed by Dirichlet's law.

The seed alone determines a partition, so every machine draws the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_count
from jopeq.random import portable
from jopeq_lab.training.seeding import Indices, permutation, seeded_stream

Array = NDArray[np.float64]

KINDS = ("iid", "dirichlet")
_LEAST_ALPHA, _MOST_ALPHA = 1e-6, 1e6


def partition(
    labels: Any, clients: int, how: str = "iid", alpha: float = 0.5, seed: int = 0
) -> list[Indices]:
    """The samples of each client as sorted indices; every sample belongs to exactly one.

    - ``iid``: a random partition into parts of equal size (±1).
    - ``dirichlet``: for each label, the clients' shares of its samples are drawn from a symmetric
      Dirichlet law of concentration ``alpha`` (Hsu et al. 2019): the smaller, the more skewed.
      Sizes differ; a client left with nothing gets one sample of the then largest.

    >>> sorted(np.concatenate(partition([0, 0, 0, 1, 1, 1], 2)).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(
            "labels must be a vector of integers, "
            f"got shape {values.shape} of {values.dtype}: one class number per sample"
        )
    clients = check_count("clients", clients, 1)
    if clients > values.size:
        raise ValueError(
            f"clients must be at most the number of samples, {values.size}, got {clients}: "
            "use fewer clients"
        )
    order = permutation(values.size, seed, "partition order")
    if how == "iid":
        parts = np.array_split(order, clients)
    elif how == "dirichlet":
        parts = _dirichlet(values, clients, alpha, order, seed)
    else:
        raise ValueError(f"how must be one of {', '.join(KINDS)}, got {how!r}")
    return [np.sort(part) for part in parts]


def weights(parts: Sequence[Any]) -> Array:
    """|D_k|/|D|, the weight of each client in federated averaging.

    >>> weights([[0, 3, 4], [1]]).tolist()
    [0.75, 0.25]
    """
    sizes = np.array([len(part) for part in parts], dtype=np.float64)
    return np.asarray(sizes / sizes.sum())


def _dirichlet(
    labels: NDArray[Any], clients: int, alpha: float, order: Indices, seed: int
) -> list[Indices]:
    if not _LEAST_ALPHA <= alpha <= _MOST_ALPHA:
        raise ValueError(
            f"alpha must be positive, from {_LEAST_ALPHA:g} (each label at one client) "
            f"to {_MOST_ALPHA:g} (all clients alike), got {alpha!r}"
        )
    kinds = np.unique(labels)
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for kind, shares in zip(kinds, _shares(kinds.size, clients, alpha, seed), strict=True):
        mine = order[labels[order] == kind]
        cuts = np.rint(np.cumsum(shares)[:-1] * mine.size).astype(np.int64)
        for pile, piece in zip(pieces, np.split(mine, cuts), strict=True):
            pile.append(piece)
    parts = [np.concatenate(pile) for pile in pieces]
    for client in range(clients):
        if not parts[client].size:
            largest = int(np.argmax([part.size for part in parts]))
            parts[client], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def _shares(rows: int, clients: int, alpha: float, seed: int) -> Array:
    """Rows of Dirichlet(alpha, …, alpha): normalised gammas.

    Gamma(a) is Gamma(a + 1)·U^{1/a}, taken as a logarithm because U^{1/a} underflows for small a.
    """
    count = rows * clients
    gammas = portable.gamma(alpha + 1.0, seeded_stream(seed, "partition gammas"), 0, count)
    powers = portable.uniform(seeded_stream(seed, "partition powers"), 0, count)
    logs = (np.log(gammas) + np.log(powers) / alpha).reshape(rows, clients)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


# People: few samples each, few rounds each


def give_out(people: int, examples: int, samples: int, seed: int) -> Indices:
    """Give samples to people: indices (people, examples).

    If there are too few samples, all are given out again in a new order.

    >>> sorted(give_out(2, 3, 6, seed=0).ravel().tolist())
    [0, 1, 2, 3, 4, 5]
    """
    times = -(-people * examples // samples)
    orders = [permutation(samples, seed, f"owned, pass {number}") for number in range(times)]
    return np.concatenate(orders)[: people * examples].reshape(people, examples)


def cohorts(people: int, sizes: Sequence[int], seed: int) -> Iterator[Indices]:
    """The people of rounds of these sizes.

    Everybody takes part once before anybody does so again, and nobody twice in a round.

    >>> [len(set(some.tolist())) for some in cohorts(5, [0, 3, 3, 3], seed=0)]
    [0, 3, 3, 3]
    """
    if max(sizes, default=0) > people:
        raise ValueError(f"a round of {max(sizes)} people needs as many, there are {people}")
    rest = np.empty(0, dtype=np.int64)
    passes = 0
    for size in sizes:
        if len(rest) < size:
            order = permutation(people, seed, f"people, pass {passes}")
            passes += 1
            is_waiting = np.isin(order, rest)  # they come last, so that no round has them twice
            rest = np.concatenate((rest, order[~is_waiting], order[is_waiting]))
        yield rest[:size]
        rest = rest[size:]
