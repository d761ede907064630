"""Replies that would spoil a round for everyone, found before the inner strategy sees them.

Flower's strategies stop the whole run when one reply's metrics have other keys than the rest, and
average with whatever weight a client claims. Here nobody weighs or moves more than a multiple of
what is usual in the cohort. That bounds what one client can do, and is no defence against several,
or against one that stays within the bounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from logging import WARNING
from statistics import median_low
from typing import Any, cast

from flwr.app import Message, MetricRecord
from flwr.common.logger import log

_MOST = 1 << 63  # beyond, a sum of a few weights may be infinite, and every mean is 0 then


def weight_key(inner: Any) -> str | None:
    """The metric by which a strategy, or the strategy that it wraps, weighs its clients."""
    while inner is not None:
        key = getattr(inner, "weighted_by_key", None)
        if key is not None:
            return str(key)
        inner = getattr(inner, "strategy", None)
    return None


def bad_metrics(replies: list[Message], inner: Any) -> dict[int, str]:
    """Position of each reply whose metrics do not fit the others', and why."""
    key = weight_key(inner)
    layouts = [_layout(reply, key) for reply in replies]
    usual = Counter(layouts).most_common(1)[0][0] if layouts else None
    bad = {}
    for index, (reply, layout) in enumerate(zip(replies, layouts, strict=True)):
        if layout != usual:
            bad[index] = "its metrics have other keys or lengths than those of most clients"
        elif key is not None:
            for record in reply.content.metric_records.values():
                if key in record and not _is_weight(record, key):
                    bad[index] = (
                        f"its weight {key!r} must be a number of at least 0 (at most 2⁶³), "
                        f"got {record.get(key)!r:.50}"
                    )
    return bad


def too_far(norms: Sequence[float], ratio: float) -> dict[int, str]:
    """Position of each update that is longer than ``ratio`` times the usual, and why."""
    most = ratio * _usual(norms)
    return {
        index: f"its update has norm {norm:.3g}, more than {ratio:g} times the cohort's median"
        for index, norm in enumerate(norms)
        if norm > most
    }


def weigh(replies: list[Message], inner: Any, ratio: float) -> None:
    """Give every reply a weight: the client's own up to ``ratio`` times the usual one, or 1.

    ``replies`` have passed ``bad_metrics``, so that all of them carry a weight or none does.
    """
    key = weight_key(inner)
    if key is None:
        return
    weights: list[float] = []
    for reply in replies:
        records = reply.content.metric_records
        if not records:
            name = "metrics" if "metrics" not in reply.content else "jopeq-metrics"
            reply.content[name] = MetricRecord()
        record = next(iter(reply.content.metric_records.values()))  # the one that Flower reads
        weights.append(float(cast(float, record.setdefault(key, 1))))
    most = ratio * _usual(weights)
    for reply, weight in zip(replies, weights, strict=True):
        if weight > most:
            log(
                WARNING,
                "JoPEQStrategy: the weight %g of node %d counts as %g, the most that is allowed",
                weight,
                reply.metadata.src_node_id,
                most,
            )
            next(iter(reply.content.metric_records.values()))[key] = most


def _usual(values: Iterable[float]) -> float:
    """The lower median of what is above 0: between honest values unless most are dishonest."""
    positive = [value for value in values if value > 0]
    return median_low(positive) if positive else math.inf


def _layout(reply: Message, key: str | None) -> frozenset[tuple[str, str, int]]:
    """Record, key and length of each metric; a weight is looked at by itself."""
    return frozenset(
        (group, name, len(value) if isinstance(value, list) and name != key else -1)
        for group, record in reply.content.metric_records.items()
        for name, value in (record or {"": -1}).items()
    )


def _is_weight(record: Mapping[str, Any], key: str) -> bool:
    value = record.get(key)
    return isinstance(value, (int, float)) and 0 <= value <= _MOST
