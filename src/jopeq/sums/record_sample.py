"""From a sample of records to an exact total, without a trace of the sample's size.

Every chunk of rows that is asked for has one shape, and their number is public. The drawn sit in
random slots of these chunks: a record that is absent leaves its slot empty, and nobody else moves
to another place, where a library might round differently. In an empty slot a row is computed too,
and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import UpdateError
from jopeq.random.streams import PrivateStream
from jopeq.schemes.parameters import as_annotated
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.wire.entries import is_tensor

Indices = NDArray[np.int64]
RowsOf = Callable[[Indices], Any]

_EXACT = 2.0**53  # floats below it hold every whole number
_SAMPLE_LANE, _CUT_LANE, _SLOT_LANE = 0, 1, 2  # of a private stream


def records_of_patients(count: int, group: Any, most_rows: int) -> Indices:
    """(patients, most_rows): which records each patient has; −1 where there is none.

    Records without a patient's number are left out.
    """
    records: int = as_annotated("count", "int", count)
    if group is None:
        if most_rows != 1:
            raise ValueError(f"most_rows={most_rows} belongs to group: give both or neither")
        return np.arange(records)[:, None]
    known = read_patients(group, records)
    numbered = np.flatnonzero(known >= 0)
    owners = np.unique(known[numbered], return_inverse=True)[1]
    order = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners)
    ranks = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.full((len(sizes), most_rows), -1, dtype=np.int64)
    is_kept = ranks < most_rows
    places[owners[order][is_kept], ranks[is_kept]] = numbered[order[is_kept]]
    return places


def read_patients(group: Any, count: int) -> Indices:
    """Whose each record is: equal numbers for one patient, −1 where nobody's.

    Each entry is read alone, as a whole number or else as text, so that a missing or strange one
    changes what no other says.

    >>> read_patients([7, "7", 7.0, "P-7", None, float("nan")], 6)
    array([ 0,  0,  0,  1, -1, -1])
    """
    found = group.tolist() if hasattr(group, "tolist") else list(group)
    if getattr(group, "ndim", 1) != 1 or len(found) != count:
        raise ValueError(
            f"group must hold one patient's number for each of the {count} records, got shape "
            f"{getattr(group, 'shape', len(found))}: number the patients"
        )
    numbers: dict[int | str, int] = {}
    names = map(_read_patient, found)
    return np.array(
        [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names],
        dtype=np.int64,
    )


def _read_patient(entry: Any) -> int | str | None:
    text = entry.strip() if isinstance(entry, str) else None
    try:
        return int(text or entry) if text or float(entry).is_integer() else None
    except Exception:  # of this entry alone
        if not text:
            return None
    try:
        return int(float(text)) if abs(float(text)) < _EXACT else None
    except ValueError:
        return text


def draw_records(count: int, sampling: float, private: PrivateStream) -> NDArray[np.bool_]:
    """Each of ``count`` with chance ⌊sampling·2⁶⁴⌋/2⁶⁴."""
    if sampling == 1.0:
        return np.ones(count, dtype=np.bool_)
    words = private.words64(lane=_SAMPLE_LANE, start=0, count=count)
    return words < np.uint64(int(Decimal(sampling) * (1 << 64)))


def cut(drawn: Indices, most: int) -> Indices:
    """At most so many of the drawn, chosen at random."""
    words = PrivateStream().words64(lane=_CUT_LANE, start=0, count=len(drawn))
    return drawn[np.sort(np.argsort(words, kind="stable")[:most])]


def draw_slots(count: int, slots: int) -> Indices:
    """Distinct slots for ``count`` patients: every arrangement is equally likely.

    Without one of them the others' arrangement has the same law as before.
    """
    while True:
        words = PrivateStream().words64(lane=_SLOT_LANE, start=0, count=slots)
        order = np.argsort(words)
        if (np.diff(words[order]) > 0).all():  # of equal words no order would be random
            return order[:count]


def total_of(
    rows_of: RowsOf, records: Indices, drawn: Indices, chunks: int, size: int, clip: float
) -> ClippedTotal:
    """The total of the drawn patients, whose records are rows of ``records``.

    ``rows_of`` is asked ``chunks`` times, for ``size`` patients each.
    """
    slots = np.full(chunks * size, -1, dtype=np.int64)
    slots[draw_slots(len(drawn), len(slots))] = drawn
    most_rows, totals = records.shape[1], list[ClippedTotal]()
    for first in range(0, len(slots), size):
        here = slots[first : first + size, None]
        indices = np.where(here >= 0, records[here[:, 0]], -1).reshape(-1)
        is_there = indices >= 0
        rows = _keep(rows_of(np.where(is_there, indices, 0)), is_there)
        if not totals:
            totals.append(ClippedTotal(int(rows.shape[1]), clip))
        patients = np.repeat(np.arange(first, first + size), most_rows)
        totals[0].add(rows, group=None if most_rows == 1 else patients)
    return totals[0]


def _keep(rows: Any, is_there: NDArray[np.bool_]) -> Any:
    """The rows, with zeros where nobody was drawn."""
    found: Any = rows.detach() if is_tensor(rows) else np.asarray(rows)
    if found.ndim != 2 or len(found) != len(is_there):
        raise UpdateError(
            f"rows_of must give {len(is_there)} rows, one for each index, got shape "
            f"{tuple(found.shape)}"
        )
    if is_tensor(found):
        import torch

        mask = torch.from_numpy(is_there).to(found.device)
        return torch.where(mask[:, None], found, torch.zeros_like(found))
    return np.where(is_there[:, None], found, np.zeros((), dtype=found.dtype))
