"""Replies that would spoil a round for everyone, found before the inner strategy sees them.

Flower's strategies stop the whole run when one reply's metrics have other keys than the rest, and
average with whatever weight a client claims.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from flwr.app import Message


def bad_metrics(replies: list[Message], inner: Any) -> dict[int, str]:
    """Position of each reply whose metrics do not fit the others', and why."""
    weight_key = getattr(inner, "weighted_by_key", None)
    layouts = [_layout(reply) for reply in replies]
    usual = Counter(layouts).most_common(1)[0][0] if layouts else ()
    bad = {}
    for index, (reply, layout) in enumerate(zip(replies, layouts, strict=True)):
        if layout != usual:
            bad[index] = "its metrics have other keys than those of most clients"
        elif weight_key is not None:
            for record in reply.content.metric_records.values():
                if not _is_weight(record, weight_key):
                    bad[index] = (
                        f"its weight {weight_key!r} must be a number of at least 0, got "
                        f"{record.get(weight_key)!r:.50}"
                    )
    return bad


def _layout(reply: Message) -> tuple[tuple[str, frozenset[str]], ...]:
    records = reply.content.metric_records
    return tuple(sorted((key, frozenset(record)) for key, record in records.items()))


def _is_weight(record: Mapping[str, Any], key: str) -> bool:
    value = record.get(key)
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0
