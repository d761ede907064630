"""Fresh samples of records, or of patients with all their records, by private words."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.random.streams import PrivateStream
from jopeq.schemes.parameters import as_annotated
from jopeq.sums.clipped_total import as_group

Indices = NDArray[np.int64]

_SAMPLE_LANE, _CUT_LANE = 0, 1  # of a private stream


def records_of_patients(count: int, group: Any, most_rows: int) -> Indices:
    """(patients, most_rows): which records each patient has; −1 where there is none."""
    records: int = as_annotated("count", "int", count)
    if group is None:
        if most_rows != 1:
            raise ValueError(f"most_rows={most_rows} belongs to group: give both or neither")
        return np.arange(records)[:, None]
    owners = np.unique(as_group(group, records), return_inverse=True)[1]
    order = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners)
    ranks = np.arange(records) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.full((len(sizes), most_rows), -1, dtype=np.int64)
    is_kept = ranks < most_rows
    places[owners[order][is_kept], ranks[is_kept]] = order[is_kept]
    return places


def draw_records(count: int, sampling: float, private: PrivateStream) -> NDArray[np.bool_]:
    """Each of ``count`` with chance ⌊sampling·2⁶⁴⌋/2⁶⁴."""
    if sampling == 1.0:
        return np.ones(count, dtype=np.bool_)
    words = private.words64(lane=_SAMPLE_LANE, start=0, count=count)
    return words < np.uint64(int(Decimal(sampling) * (1 << 64)))


def draw_sample(count: int, sampling: float, most: int, private: PrivateStream) -> Indices:
    """Who of ``count`` is in a fresh sample, ascending; ``most`` of them at random if it is larger.

    >>> len(draw_sample(50, 1.0, 20, PrivateStream()))
    20
    """
    drawn = np.flatnonzero(draw_records(count, sampling, private))
    words = private.words64(lane=_CUT_LANE, start=0, count=len(drawn))
    return drawn[np.sort(np.argsort(words, kind="stable")[:most])]
