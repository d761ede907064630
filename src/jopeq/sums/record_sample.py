"""Fresh samples of records, or of patients with all their records, by private words.

The drawn sit in random slots of padded batches: a record that is absent leaves its slot empty, and
nobody else moves to another place, where a library might round differently.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.random.streams import PrivateStream

Indices = NDArray[np.int64]

_EXACT = 2.0**53  # floats below it hold every whole number
_SAMPLE_LANE, _CUT_LANE, _SLOT_LANE = 0, 1, 2  # of a private stream


def read_patients(group: Any, count: int) -> Indices:
    """Whose each record is: equal numbers for one patient, −1 where nobody's.

    Each entry is read alone, as a whole number or else as text, so that a missing or strange one
    changes what no other says.

    >>> read_patients([7, "7", 7.0, "P-7", None, float("nan")], 6)
    array([ 0,  0,  0,  1, -1, -1])
    """
    found = group.tolist() if hasattr(group, "tolist") else list(group)
    if getattr(group, "ndim", 1) != 1 or len(found) != count:
        told = f"group must hold one patient's number for each of the {count} records"
        raise ValueError(f"{told}, got shape {getattr(group, 'shape', len(found))}")
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


def draw_sample(count: int, sampling: float, most: int, private: PrivateStream) -> Indices:
    """Numbers of a fresh sample out of ``count``, ascending; ``most`` of them if it is larger.

    >>> len(draw_sample(50, 1.0, 20, PrivateStream()))
    20
    """
    drawn = np.flatnonzero(draw_records(count, sampling, private))
    words = private.words64(lane=_CUT_LANE, start=0, count=len(drawn))
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
