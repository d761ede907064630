"""``JoPEQStrategy``: the server's side. Any Flower strategy aggregates the decoded payloads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from statistics import median_high, median_low
from typing import Any, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from jopeq.errors import JoPEQError, PayloadError
from jopeq.flower.decoding import KEEP_BYTES, DecodedReplies
from jopeq.flower.downlink import Downlink, coder_of
from jopeq.flower.payload import RECORD, Model, from_content, is_float
from jopeq.flower.settings import Settings, offer, read
from jopeq.privacy import AdaptiveClip
from jopeq.privacy.accounting import Composition
from jopeq.schemes import Scheme


@dataclass
class RoundReport:
    """One round as the server saw it. Keys are node ids."""

    server_round: int
    scheme: str
    bytes_up: dict[int, int] = field(default_factory=dict)  # payloads that were accepted
    bytes_down: dict[int, int] = field(default_factory=dict)  # arrays sent for training
    entries: dict[int, int] = field(default_factory=dict)  # entries in each payload
    rejected: dict[int, str] = field(default_factory=dict)  # why each unusable reply was rejected
    failed: dict[int, str] = field(default_factory=dict)  # error replies
    epsilon: dict[int, float] = field(default_factory=dict)  # spent towards the server so far
    clip: float | None = None

    @property
    def bits_per_parameter(self) -> float:
        """Payload bits, header and checksum included, per entry of the update."""
        entries = sum(self.entries.values())
        return 8.0 * sum(self.bytes_up.values()) / entries if entries else 0.0

    def metrics(self) -> MetricRecord:
        """For the run's history; lists are in the order of node ids."""
        record = MetricRecord(
            {
                "jopeq-clients": len(self.bytes_up),
                "jopeq-rejected": len(self.rejected),
                "jopeq-failed": len(self.failed),
                "jopeq-bytes-up": [size for _, size in sorted(self.bytes_up.items())],
                "jopeq-bytes-down": [size for _, size in sorted(self.bytes_down.items())],
                "jopeq-bits-per-parameter": self.bits_per_parameter,
                "jopeq-epsilon": [epsilon for _, epsilon in sorted(self.epsilon.items())],
            }
        )
        if self.clip is not None:
            record["jopeq-clip"] = self.clip
        return record


class RoundFailedError(JoPEQError):
    """No client's reply could be used. ``arrays`` is the model the round started from."""

    def __init__(self, message: str, arrays: ArrayRecord | None) -> None:
        super().__init__(message)
        self.arrays = arrays


class JoPEQStrategy(Strategy):
    """Wraps FedAvg, FedAdam, FedProx, FedMedian or any other strategy.

    Clients learn the scheme with each train message. Their replies are decoded to whole models
    (the server's arrays plus the update; integer arrays are the server's) before ``inner`` sees
    them. The strategy rejects a reply that is no payload of this scheme, or whose metrics do not
    fit, logs the node id, and goes on with the other replies; if none is left, it raises
    ``RoundFailedError``. If ``inner`` weighs clients and replies carry no weight, all weigh the
    same.

    ``reports`` holds a ``RoundReport`` for each round; its sums are also in the metrics that
    ``aggregate_train`` returns (``jopeq-bytes-up``, ``jopeq-epsilon``…).

    Parameters
    ----------
    inner : Strategy
        Samples the clients and aggregates.
    scheme : Optional[Scheme] (default: None)
        From ``jopeq.scheme``. If None, ``run_config`` decides.
    run_config : Optional[Mapping] (default: None)
        ``context.run_config`` of the ServerApp, for the ``jopeq-…`` keys.
    adaptive_clip : Optional[AdaptiveClip] (default: None)
        Moves the scheme's clip by one private bit of each client; with ``scheme`` only.
    downlink : Optional[bool or Scheme] (default: None)
        Whether to send the model as a coded difference; True codes with ``sdq`` at 4 bits. If
        None, ``jopeq-downlink`` of ``run_config`` decides, and without it the model goes raw.
    delta : float (default: 0.0)
        The δ at which ``jopeq-epsilon`` is stated.
    keep_bytes : int (default: 256 MiB)
        Decoded updates that may be held at once; see ``jopeq.flower.decoding``.
    max_weight_ratio : float (default: 10.0)
        The largest weight, as a multiple of the cohort's median; a larger weight counts as this
        much. ``math.inf`` lets every weight stand.
    max_norm_ratio : float (default: 10.0)
        The largest norm of an update, as a multiple of the cohort's median; a longer update is
        rejected. ``math.inf`` accepts every update. Both ratios bound how far one client can move
        the model; neither is a defence against poisoning.
    """

    def __init__(
        self,
        inner: Strategy,
        scheme: Scheme | None = None,
        *,
        run_config: Mapping[str, Any] | None = None,
        adaptive_clip: AdaptiveClip | None = None,
        downlink: bool | Scheme | None = None,
        delta: float = 0.0,
        keep_bytes: int = KEEP_BYTES,
        max_weight_ratio: float = 10.0,
        max_norm_ratio: float = 10.0,
    ) -> None:
        ratios = {"max_weight_ratio": max_weight_ratio, "max_norm_ratio": max_norm_ratio}
        for name, ratio in ratios.items():
            if not (isinstance(ratio, int | float) and ratio >= 1):
                raise ValueError(
                    f"{name} must be a number of at least 1, got {ratio!r}: math.inf sets no bound"
                )
        if scheme is None and adaptive_clip is not None:
            raise ValueError("adaptive_clip needs scheme: give it too, or set both by key")
        if scheme is None and run_config is None:
            raise ValueError("give scheme, or run_config=context.run_config that names one")
        self.inner = inner
        self.reports: list[RoundReport] = []
        self._settings = (
            Settings.from_config(run_config or {})
            if scheme is None
            else Settings(scheme=scheme, adaptive_clip=adaptive_clip)
        )
        self._clip = None if self._settings is None else self._settings.scheme.clip
        coder = coder_of(downlink, read(run_config or {}))
        self._downlink = None if coder is None else Downlink(coder)
        self._delta = delta
        self._keep_bytes = keep_bytes
        self._max_weight_ratio = max_weight_ratio
        self._max_norm_ratio = max_norm_ratio
        self._spent: dict[int, Composition] = {}
        self._models: dict[int, Model] = {}
        self._arrays: ArrayRecord | None = None

    def summary(self) -> None:
        """Log the scheme and its guarantee, then the summary of ``inner``."""
        if self._settings is not None:
            log(INFO, "\t├──> JoPEQ settings:")
            log(INFO, "\t│\t├── Scheme: %s", self._settings.scheme.spec)
            log(INFO, "\t│\t├── %s", self._settings.scheme.guarantee)
            log(INFO, "\t│\t└── Downlink: %s", "coded" if self._downlink else "raw")
        self.inner.summary()

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let ``inner`` choose the clients, then tell each the scheme of this round."""
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        if self._settings is None:
            return messages
        self._arrays = arrays
        scheme = self._scheme(self._settings)
        self._models = {}
        shared: dict[int, Model] = {}
        for message in messages:
            content = message.content
            content[RECORD] = offer(scheme, self._settings.adaptive_clip)
            if id(content) not in shared:
                shared[id(content)] = Model(content)
            self._models[message.metadata.dst_node_id] = shared[id(content)]
        report = RoundReport(server_round, scheme.spec, clip=scheme.clip)
        self.reports.append(report)
        if self._downlink is not None:
            messages = self._downlink.send(messages)
        report.bytes_down = {m.metadata.dst_node_id: array_bytes(m.content) for m in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode the replies, reject bad ones, and let ``inner`` aggregate the rest."""
        if self._settings is None:
            return self.inner.aggregate_train(server_round, replies)
        received = list(replies)
        if self._downlink is not None:
            self._downlink.heard(received)
        report = self.reports[-1]
        usable = self._decoded(received, self._settings)
        errors = [reply for reply in received if reply.has_error()]
        refused = any(e.error.code == ErrorCode.MOD_FAILED_PRECONDITION for e in errors)
        if not usable and (report.rejected or refused):
            reasons = {**report.failed, **report.rejected}
            listed = "; ".join(f"node {node}: {reason}" for node, reason in reasons.items())
            said = f"no reply of round {server_round} could be used: {listed}"
            raise RoundFailedError(said, self._arrays)
        arrays, metrics = self.inner.aggregate_train(server_round, [*usable, *errors])
        metrics = MetricRecord() if metrics is None else metrics
        metrics.update(report.metrics())
        return (None if arrays is None else with_types(arrays, self._arrays)), metrics

    def _scheme(self, settings: Settings) -> Scheme:
        if settings.adaptive_clip is None or self._clip is None:
            return settings.scheme
        return settings.with_clip(self._clip)

    def _decoded(self, replies: list[Message], settings: Settings) -> list[Message]:
        """The accepted replies, each with a whole model in place of its payload."""
        decoded = DecodedReplies(self._scheme(settings), self._keep_bytes)
        usable: list[Message] = []
        seen: set[int] = set()
        bits: list[int | None] = []
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in seen:
                log(WARNING, "JoPEQStrategy: left out a second reply of node %d", node)
                continue
            seen.add(node)
            if reply.has_error():
                reason = reply.error.reason or f"error {reply.error.code}"
                self.reports[-1].failed[node] = repr(reason[:200])[1:-1]  # on one line
                continue
            try:
                bit = _clip_bit(reply, settings.adaptive_clip)
                payload = from_content(reply.content)
                if node not in self._models:
                    raise PayloadError("no train message was sent to this node in this round")
                model = self._models[node]
                others = _others(reply.content, model)
                arrays = decoded.add(payload, model)
            except PayloadError as error:
                self._reject(node, str(error))
                continue
            self._count(node, len(payload), arrays, settings)
            reply.content = RecordDict({**model.records(arrays), **others})
            usable.append(reply)
            bits.append(bit)
        bad = {**too_far(decoded.norms, self._max_norm_ratio), **bad_metrics(usable, self.inner)}
        for index, reason in bad.items():
            self._reject(usable[index].metadata.src_node_id, reason)
        good = [index for index in range(len(usable)) if index not in bad]
        if settings.adaptive_clip is not None and self._clip is not None:
            votes = [bit for index in good if (bit := bits[index]) is not None]
            self._clip = settings.adaptive_clip.updated(self._clip, votes)
        result = [usable[index] for index in good]
        weigh(result, self.inner, self._max_weight_ratio)
        return result

    def _count(self, node: int, size: int, arrays: Mapping[str, Array], settings: Settings) -> None:
        """Count bytes and ε of a decoded update, whether or not the round can use it."""
        report, cost = self.reports[-1], self._scheme(settings).guarantee
        entries = sum(math.prod(array.shape) for array in arrays.values())
        if cost.unit == "sample":
            cost = cost.for_update(entries)
        spent = self._spent.get(node, Composition()) + cost.mechanisms
        if settings.adaptive_clip is not None:
            spent += settings.adaptive_clip.guarantee.mechanisms
        self._spent[node] = spent
        report.bytes_up[node] = size
        report.entries[node] = entries
        report.epsilon[node] = spent.epsilon_at(self._delta)[0]

    def _reject(self, node: int, reason: str) -> None:
        log(WARNING, "JoPEQStrategy: rejected the reply of node %d: %s", node, reason)
        report = self.reports[-1]
        report.rejected[node] = reason
        report.bytes_up.pop(node, None)
        report.entries.pop(node, None)

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As ``inner`` does it; the model goes through the downlink, if there is one."""
        messages = self.inner.configure_evaluate(server_round, arrays, config, grid)
        if self._settings is None or self._downlink is None:
            return messages
        return self._downlink.send(messages)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """As ``inner`` does it."""
        received = list(replies)
        if self._settings is not None and self._downlink is not None:
            self._downlink.heard(received)
        return self.inner.aggregate_evaluate(server_round, received)


def with_types(arrays: ArrayRecord, before: ArrayRecord | None) -> ArrayRecord:
    """The aggregate with the server's integers, and floats in their former types.

    Averaging turns int64 into float64, which would grow the model and confuse its clients.
    """
    before = before or ArrayRecord()
    for name in [name for name in arrays if name in before]:
        old = before[name].numpy()
        if not is_float(old):
            arrays[name] = before[name]
        elif arrays[name].dtype != str(old.dtype):
            arrays[name] = Array(arrays[name].numpy().astype(old.dtype))
    return arrays


def _clip_bit(reply: Message, rule: AdaptiveClip | None) -> int | None:
    if rule is None:
        return None
    bit = reply.content.config_records.get(RECORD, ConfigRecord()).get("clip-bit")
    if type(bit) is not int or bit not in (0, 1):
        raise PayloadError(f"the clip bit must be 0 or 1, got {bit!r:.50}")
    return bit


def _others(content: RecordDict, model: Model) -> dict[str, Any]:
    """The records of a reply beside its arrays and our own record."""
    ours = {RECORD, *content.array_records}
    others = {key: record for key, record in content.items() if key not in ours}
    for key, _ in model.places.values():
        if key in others:
            raise PayloadError(f"its record {key!r:.80} has the name of one of the model's")
    return others


def array_bytes(content: RecordDict) -> int:
    """Bytes of all arrays of a message."""
    return sum(len(a.data) for record in content.array_records.values() for a in record.values())


# Replies that would spoil the round for all clients, found before the inner strategy sees them

_LARGEST_WEIGHT = 1 << 63  # a sum of a few larger weights may be infinite, and every mean 0


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
    # of layouts that are as common, that of the lowest node id: no client chooses its own
    by_node = sorted(range(len(replies)), key=lambda i: replies[i].metadata.src_node_id)
    counted = Counter(layouts[index] for index in by_node).most_common(1)
    usual = counted[0][0] if counted else None
    bad = {}
    for index, (reply, layout) in enumerate(zip(replies, layouts, strict=True)):
        if layout != usual:
            bad[index] = "its metrics have other keys or lengths than those of most clients"
        elif key is not None:
            for record in reply.content.metric_records.values():
                if key in record and not _is_weight(record[key]):
                    bad[index] = (
                        f"its weight {key!r} must be a number of at least 0 (at most 2⁶³), "
                        f"got {record.get(key)!r:.50}"
                    )
    return bad


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


def weigh(replies: list[Message], inner: Any, ratio: float) -> None:
    """Give every reply a weight: the client's own up to ``ratio`` times the usual one, or 1.

    ``replies`` have passed ``bad_metrics``, so that all of them carry a weight or none does.
    """
    key = weight_key(inner)
    if key is None:
        return
    records = []
    for content in (reply.content for reply in replies):
        if not content.metric_records:
            content["metrics" if "metrics" not in content else "jopeq-metrics"] = MetricRecord()
        records.append(next(iter(content.metric_records.values())))  # the one that Flower reads
    weights = [float(cast(float, record.setdefault(key, 1))) for record in records]
    if not any(weights):  # Flower would divide by their sum
        log(WARNING, "JoPEQStrategy: all weights of the round are 0, so each counts as 1")
        for record in records:
            record[key] = 1
    # the lower median: a low bound on weights shuts nobody out
    most = ratio * median_low([weight for weight in weights if weight > 0] or [1])
    for reply, record, weight in zip(replies, records, weights, strict=True):
        if weight > most:
            told = "JoPEQStrategy: the weight %g of node %d counts as %g, the most that is allowed"
            log(WARNING, told, weight, reply.metadata.src_node_id, most)
            record[key] = most


def _layout(reply: Message, key: str | None) -> frozenset[tuple[str, str, int]]:
    """Record, key and length of each metric; weights are checked on their own."""
    return frozenset(
        (group, name, len(value) if isinstance(value, list) and name != key else -1)
        for group, record in reply.content.metric_records.items()
        for name, value in (record or {"": -1}).items()
    )


def _is_weight(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= _LARGEST_WEIGHT
