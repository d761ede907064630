"""Replies that would spoil the round for all clients, found before the inner strategy sees them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import WARNING
from statistics import median_high, median_low
from typing import Any, Literal, cast

from flwr.app import Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
)

Task = Literal["train", "evaluate"]

_LARGEST_WEIGHT = 1 << 63  # a sum of a few larger weights may be infinite, and every mean 0


def chain(inner: Any) -> Iterator[Any]:
    """A strategy and the strategies that it wraps, as Flower's wrappers for privacy do."""
    while inner is not None:
        yield inner
        inner = getattr(inner, "strategy", None)


_MEANS = [kind.aggregate_train for kind in (FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi)]


def averages(inner: Any) -> bool:
    """Whether a strategy reads the clients' arrays for their weighted mean alone.

    Only Flower's own code is known to: a strategy that replaces ``aggregate_train`` is not.
    """
    while type(inner) is DifferentialPrivacyClientSideFixedClipping:
        inner = inner.strategy
    return getattr(inner.aggregate_train, "__func__", None) in _MEANS


@contextmanager
def one_reply(inner: Any, replies: list[Message], *, is_mean: bool) -> Iterator[list[Message]]:
    """The replies that an averaging strategy needs where all of them hold the mean: one.

    Its function for metrics, meanwhile, gets the contents of all. Flower's wrappers for privacy
    count the replies, and get all.
    """
    if not (is_mean and replies) or [*chain(inner)] != [inner]:
        yield replies
        return
    own, contents = inner.train_metrics_aggr_fn, [reply.content for reply in replies]
    inner.train_metrics_aggr_fn = lambda _, key: own(contents, key)
    try:
        yield replies[:1]
    finally:
        inner.train_metrics_aggr_fn = own


def weight_key(inner: Any) -> str | None:
    """The metric by which a strategy, or the strategy that it wraps, weighs its clients."""
    keys = (getattr(one, "weighted_by_key", None) for one in chain(inner))
    return next((str(key) for key in keys if key is not None), None)


def bad_metrics(replies: list[Message], inner: Any, task: Task = "train") -> dict[int, str]:
    """Position of each reply whose metrics do not fit the others', and why."""
    key = weight_key(inner)
    layouts = [_layout(reply, key) for reply in replies]
    kinds = (type(one) for one in chain(inner) if isinstance(one, FedAvg))
    own = (getattr(kind, f"aggregate_{task}").__module__ for kind in kinds)
    bad = {}
    if any(module.startswith("flwr.") for module in own):  # which raises if a reply has two
        for index, reply in enumerate(replies):
            if (count := len(reply.content.metric_records)) > 1:
                bad[index] = f"it has {count} metric records, and Flower's strategies accept one"
    good = [index for index in range(len(replies)) if index not in bad]
    # of layouts that are as common, that of the lowest node id: no client chooses its own
    by_node = sorted(good, key=lambda index: replies[index].metadata.src_node_id)
    counted = Counter(layouts[index] for index in by_node).most_common(1)
    for index in good:
        if layouts[index] != counted[0][0]:
            bad[index] = "its metrics have other keys or kinds than those of most clients"
        elif key is not None:
            for record in replies[index].content.metric_records.values():
                weight = record.get(key, 0)
                if isinstance(weight, list) or not 0 <= weight <= _LARGEST_WEIGHT:
                    bad[index] = (
                        f"its weight {key!r} must be a number of at least 0 (at most 2⁶³), "
                        f"got {weight!r:.50}"
                    )
    return bad


def drop_uneven_lists(replies: list[Message], inner: Any, task: Task = "train") -> None:
    """Leave out metrics whose lists differ in length: Flower's mean of metrics would raise.

    A ``train_metrics_aggr_fn`` of the user's gets all lists as they are.
    """
    usual = FedAvg().train_metrics_aggr_fn  # the same for evaluation
    own = (getattr(one, f"{task}_metrics_aggr_fn", None) for one in chain(inner))
    if next((function for function in own if function is not None), usual) is not usual:
        return
    lengths: dict[tuple[str, str], set[int]] = {}
    for reply in replies:
        for group, record in reply.content.metric_records.items():
            for name, value in record.items():
                if isinstance(value, list):
                    lengths.setdefault((group, name), set()).add(len(value))
    for (group, name), found in lengths.items():
        if len(found) > 1:
            log(
                WARNING,
                "JoPEQ: metric %r is left out, its lists have different lengths: give the "
                "inner strategy a %s_metrics_aggr_fn that can put them together",
                name,
                task,
            )
            for reply in replies:
                reply.content.metric_records[group].pop(name, None)


def too_far(norms: Sequence[float], ratio: float) -> dict[int, str]:
    """Position of each update that is longer than ``ratio`` times the usual, and why.

    The usual norm is the upper median of those above 0, an honest one's or less if most of them are
    honest. Of fewer than three such updates, none is called unusual: nobody can tell which.
    """
    positive = [norm for norm in norms if norm > 0]
    most = ratio * median_high(positive) if len(positive) >= 3 else math.inf
    return {
        index: f"its update has norm {norm:.3g}, more than {ratio:g} times the cohort's median"
        for index, norm in enumerate(norms)
        if norm > most
    }


def weights_of(replies: list[Message], inner: Any, ratio: float = math.inf) -> list[float]:
    """The weight of every reply: the client's own up to ``ratio`` times the usual one, or 1.

    ``replies`` have passed ``bad_metrics``, so that all of them carry a weight or none does.
    """
    key = weight_key(inner)
    weights = [1.0] * len(replies)
    for index, reply in enumerate(replies):
        record = next(iter(reply.content.metric_records.values()), None)  # which Flower reads
        if key is not None and record is not None:
            weights[index] = float(cast(float, record.get(key, 1)))
    if not any(weights):  # Flower would divide by their sum
        if weights:
            log(WARNING, "JoPEQ: all weights of the round are 0, so each counts as 1")
        return [1.0] * len(replies)
    # the lower median: a low bound on weights shuts nobody out
    most = ratio * median_low([weight for weight in weights if weight > 0])
    return [min(weight, most) for weight in weights]


def weigh(replies: list[Message], inner: Any, weights: Sequence[float]) -> None:
    """Write the weights where the inner strategy reads them."""
    key = weight_key(inner)
    if key is None:
        return
    for reply, weight in zip(replies, weights, strict=True):
        content = reply.content
        if not content.metric_records:
            content["metrics" if "metrics" not in content else "jopeq-metrics"] = MetricRecord()
        record = next(iter(content.metric_records.values()))
        claimed = cast(float, record.setdefault(key, weight))
        if weight < claimed:
            told = "JoPEQ: the weight %g of node %d counts as %g, the most that is allowed"
            log(WARNING, told, claimed, reply.metadata.src_node_id, weight)
        if weight != claimed:
            record[key] = weight


def _layout(reply: Message, key: str | None) -> frozenset[tuple[str, str, bool]]:
    """Record, key and kind of each metric; weights are checked on their own."""
    return frozenset(
        (group, name, isinstance(value, list) and name != key)
        for group, record in reply.content.metric_records.items()
        for name, value in (record or {"": -1}).items()
    )
