"""Replies that would spoil a round for everyone, found before the inner strategy sees them.

Flower's strategies stop the whole run when one reply's metrics have other keys than the rest, and
average with whatever weight a client claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from flwr.app import Message

_MOST = 1 << 63  # beyond, a sum of a few weights may be infinite, and every mean is 0 then


def bad_metrics(replies: list[Message], inner: Any) -> dict[int, str]:
    """Position of each reply whose metrics do not fit the others', and why."""
    weight_key = getattr(inner, "weighted_by_key", None)
    layouts = [_layout(reply, weight_key) for reply in replies]
    usual = Counter(layouts).most_common(1)[0][0] if layouts else None
    bad = {}
    for index, (reply, layout) in enumerate(zip(replies, layouts, strict=True)):
        if layout != usual:
            bad[index] = "its metrics have other keys or lengths than those of most clients"
        elif weight_key is not None:
            for record in reply.content.metric_records.values():
                if not _is_weight(record, weight_key):
                    bad[index] = (
                        f"its weight {weight_key!r} must be a number of at least 0 (at most 2⁶³), "
                        f"got {record.get(weight_key)!r:.50}"
                    )
    return bad


def _layout(reply: Message, weight_key: str | None) -> frozenset[tuple[str, str, int]]:
    """Record, key and length of each metric; a weight is looked at by itself."""
    return frozenset(
        (key, name, len(value) if isinstance(value, list) and name != weight_key else -1)
        for key, record in reply.content.metric_records.items()
        for name, value in (record or {"": -1}).items()
    )


def _is_weight(record: Mapping[str, Any], key: str) -> bool:
    value = record.get(key)
    return isinstance(value, (int, float)) and 0 <= value <= _MOST
