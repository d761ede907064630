"""Threads over ranges of samples, for large updates."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from jopeq.checks import check_count

Result = TypeVar("Result")

_LEAST_ENTRIES = 1 << 17  # a thread with less to do costs more than it saves
_limit: int | None = None


def set_threads(count: int | None) -> None:
    """At most so many threads for one update; None for as many as this process may use.

    >>> set_threads(1); threads()
    1
    >>> set_threads(None)
    """
    global _limit
    _limit = None if count is None else check_count("count", count, 1)


def threads() -> int:
    """The number of threads that one update may use."""
    if _limit is not None:
        return _limit
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    work: Callable[[int, int], Result], samples: int, chunk: int, size: int
) -> list[Result]:
    """``work(begin, end)`` over ranges of whole chunks that together make all samples."""
    chunks = -(-samples // chunk)
    worth = min(chunks, samples * size // _LEAST_ENTRIES)
    count = min(threads(), worth) if worth > 1 else 1
    if count == 1:
        return [work(0, samples)]
    edges = [min(samples, chunk * (chunks * i // count)) for i in range(count)] + [samples]
    others = [_pool(count).submit(work, *edge) for edge in pairwise(edges[1:])]
    try:
        first = work(*edges[:2])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    """Threads beside the one that asks."""
    return ThreadPoolExecutor(count - 1, thread_name_prefix="jopeq")


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads to wait for
    os.register_at_fork(after_in_child=_pool.cache_clear)
