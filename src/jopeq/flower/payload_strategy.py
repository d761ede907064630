"""``PayloadStrategy``: the server's side of payloads, for any of Flower's strategies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from jopeq.entries.layer_clips import LayerClips
from jopeq.errors import PayloadError
from jopeq.flower.arrays import (
    Model,
    Values,
    check_frozen,
    from_content,
    move,
    own_content,
    sent_names,
    split,
    widen,
)
from jopeq.flower.payload_mod import RECORD, check_scheme, offer
from jopeq.flower.server import RoundReport
from jopeq.flower.wrapper import (
    Wrapper,
    averages,
    bad_metrics,
    drop_uneven_lists,
    one_reply,
    too_far,
    weigh,
    weights_of,
    with_types,
)
from jopeq.privacy.accounting import Composition, Mechanism
from jopeq.random.streams import fresh_seed
from jopeq.schemes.aggregate import weighted_sum
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Opened
from jopeq.sphere.sphere import Round, Sphere

_CLIENTS = 8  # whose updates move the clips of tensors


class PayloadStrategy(Wrapper):
    """Wraps FedAvg, FedAdam, FedProx, FedMedian or any other strategy.

    Where ``inner`` averages (FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad, FedYogi), updates are
    added up in one pass and ``inner`` reads one reply with the mean model; its
    ``train_metrics_aggr_fn`` still gets the replies of all. Any other ``inner`` reads every
    client's model (the server's arrays plus the update; integer arrays are the server's).

    A reply that is no payload of this scheme, or whose metrics do not fit, is rejected; if none is
    left, the round raises ``RoundFailedError``. If replies carry no weight, all weigh the same. A
    client whose budget is spent is not sampled again. ``reports`` holds a ``RoundReport`` for each
    round; its numbers are also in the round's metrics.

    A ``Sphere`` goes with strategies that average: replies are reports of one to three bytes, and
    all clients weigh the same.

    Parameters
    ----------
    inner : Strategy
        Samples the clients and aggregates.
    scheme, frozen
        As for ``PayloadMod``: the clients' own scheme, or they refuse.
    delta : float (default: 0.0)
        The δ at which ``jopeq-epsilon`` is stated.
    max_weight_ratio, max_norm_ratio : float (default: 10.0)
        The largest weight, and the largest norm of an update, as multiples of the cohort's median.
        A larger weight counts as this much, a longer update is rejected. They bound how far one
        client can move the model, and are no defence against poisoning.
    """

    def __init__(
        self,
        inner: Strategy,
        scheme: Scheme | Sphere,
        *,
        frozen: Iterable[str] = (),
        delta: float = 0.0,
        max_weight_ratio: float = 10.0,
        max_norm_ratio: float = 10.0,
    ) -> None:
        super().__init__(inner, check_scheme(scheme))
        if isinstance(scheme, Sphere) and not averages(inner):
            raise ValueError("inner must average: reports of a Sphere tell the mean alone")
        ratios = {"max_weight_ratio": max_weight_ratio, "max_norm_ratio": max_norm_ratio}
        for name, ratio in ratios.items():
            if not (isinstance(ratio, int | float) and ratio >= 1):
                raise ValueError(
                    f"{name} must be a number of at least 1, got {ratio!r}: math.inf sets no bound"
                )
        self._scheme = scheme  # with this round's clips of all tensors
        self._delta = delta
        self._max_weight_ratio, self._max_norm_ratio = max_weight_ratio, max_norm_ratio
        self._spent: dict[int, Composition] = {}
        self._frozen = check_frozen(frozen)
        self._arrays: ArrayRecord | None = None
        self._model = Model(RecordDict({"arrays": ArrayRecord()}))  # that the round began with
        self._sizes: dict[str, int] = {}  # of its arrays that clients send
        self._numbers: dict[int, int] = {}  # of the round's clients
        self._round: Round | None = None  # of a Sphere

    def list_sent(self, model: Model) -> list[str]:
        """Names of the arrays whose updates clients send."""
        return sent_names(model, self._frozen)

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let ``inner`` choose the clients, then tell each the scheme of this round."""
        given = self._before + server_round, arrays, config, self.available(grid)
        messages = list(self.inner.configure_train(*given))
        self._arrays, self._numbers, scheme = arrays, {}, self._scheme
        for message in messages:
            if message.content.array_records != messages[0].content.array_records:
                raise ValueError("inner must send all clients of a round one model")
            self._numbers[message.metadata.dst_node_id] = len(self._numbers)
        if messages:
            self._model = model = Model(messages[0].content)
            self._sizes = {name: model.floats[name].size for name in self.list_sent(model)}
        if isinstance(scheme, Sphere) and messages:
            dimension, people = sum(self._sizes.values()), len(self._numbers)
            self._round = scheme.round(dimension=dimension, seed=fresh_seed(), people=people)
        for message in messages:
            if self._round is not None:  # each has a number of its own
                message.content = own_content(message)
            number = self._numbers[message.metadata.dst_node_id]
            message.content[RECORD] = record = offer(scheme, self._round, number)
            if isinstance(scheme, Scheme) and scheme.per == "layers":
                scales = scheme.codec.scaling.public(tuple(self._model.floats))
                record["clips"] = [scale.unit for scale in scales]
        self.prepare(sum(self._sizes.values()) * len(messages), arrays)
        self.reports.append(RoundReport(self._before + server_round, scheme.spec))
        return self.count_bytes(messages)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the replies, reject bad ones, and let ``inner`` aggregate the rest."""
        received, report = list(replies), self._rounds.report
        answered = {reply.metadata.src_node_id for reply in received}
        self._rounds.note_missing(self._numbers.keys() - answered)
        errors = [reply for reply in received if not self._rounds.read(reply)]
        opened = self._open_replies([reply for reply in received if not reply.has_error()])
        for index, reason in bad_metrics([one.reply for one in opened], self.inner).items():
            self._reject(opened[index].node, reason)
        opened = self._accept(opened)
        averaged = self._average(opened)
        is_mean = averaged is not None
        opened = self._decode_replies(self._accept(opened)) if averaged is None else averaged
        usable = [one.reply for one in opened]
        refusals = [failure for failure in report.failed if failure.is_refusal]
        if not usable and (report.rejected or refusals):
            rejected = (f"node {node}: {reason}" for node, reason in report.rejected.items())
            listed = "; ".join((*map(str, report.failed), *rejected))
            raise self._rounds.failure(f"no reply of round {server_round} could be used: {listed}")
        self._move_clips(opened)
        drop_uneven_lists(usable, self.inner)
        weigh(usable, self.inner, weights_of(usable, self.inner, self._max_weight_ratio))
        with one_reply(self.inner, usable, is_mean=is_mean) as given:
            arrays, metrics = self.inner.aggregate_train(report.server_round, [*given, *errors])
        metrics = MetricRecord() if metrics is None else metrics
        metrics.update(report.metrics())
        return self.keep(with_types(arrays, self._arrays), metrics, server_round)

    def _open_replies(self, replies: list[Message]) -> list[_Opened]:
        """The replies whose payloads fit the model, as far as their headers tell."""
        result: list[_Opened] = []
        seen: set[int] = set()
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in seen:
                self._rounds.warn("left out a second reply of node %d", node)
                continue
            seen.add(node)
            try:
                payload = from_content(reply.content)
                if node not in self._numbers:
                    raise PayloadError("no train message was sent to this node in this round")
                others = _others(reply.content, self._model)
                opened: Opened | bytes = payload
                if self._round is None:
                    names = list(self._sizes)
                    opened = open_update(cast(Scheme, self._scheme), payload, self._model, names)
                else:  # a report, as far as its form tells that it is of the round
                    self._round.open_report(payload, self._numbers[node], None)
            except PayloadError as error:
                self._reject(node, str(error))
                continue
            self._count(node, len(payload))
            result.append(_Opened(reply, opened, others))
        return result

    def _accept(self, opened: list[_Opened]) -> list[_Opened]:
        return [one for one in opened if one.node not in self._rounds.report.rejected]

    def _average(self, opened: list[_Opened]) -> list[_Opened] | None:
        """Give every reply the mean model; None where ``inner`` needs every client's.

        The norms of the updates come from the sum. What is rejected was added, so the others are
        added up anew.
        """
        if not (opened and averages(self.inner)):
            return None
        if self._round is not None:
            return self._add_reports(self._round, opened)
        update, norms, failed = self._mean(opened)
        good = [index for index in range(len(opened)) if index not in failed]
        far = too_far([norms[index] for index in good], self._max_norm_ratio)
        bad = {index: str(error) for index, error in failed.items()}
        bad |= {good[place]: reason for place, reason in far.items()}
        for index, reason in bad.items():
            self._reject(opened[index].node, reason)
        opened = self._accept(opened)
        if not opened:
            return []
        if bad:
            update = self._mean(opened)[0]
        try:
            return self._give_mean(opened, update)
        except PayloadError:  # some client's entries are too large for the model: find out whose
            return None

    def _add_reports(self, terms: Round, opened: list[_Opened]) -> list[_Opened]:
        """The mean of the reports of a ``Sphere``, each of which counts once."""
        total = terms.aggregator()
        for one in opened:
            total.add(one.opened, client=self._numbers[one.node])
        return self._give_mean(opened, split(total.mean(), self._model, self._sizes))

    def _mean(
        self, opened: list[_Opened]
    ) -> tuple[dict[str, Values], list[float], dict[int, PayloadError]]:
        """The weighted mean of the updates, the norm of each, and the bad ones by position.

        These may be in the mean in part.
        """
        replies = [one.reply for one in opened]
        weights = weights_of(replies, self.inner, self._max_weight_ratio)
        whole = math.fsum(weights)
        shares = [weight / whole for weight in weights]
        updates, scheme = [one.opened for one in opened], cast(Scheme, self._scheme)
        flat, norms, failed = weighted_sum(updates, shares, scheme)
        return split(flat, self._model, self._sizes), norms, failed

    def _give_mean(self, opened: list[_Opened], update: Mapping[str, Values]) -> list[_Opened]:
        """Let every reply hold the mean model."""
        record = self._model.record(move_floats(self._model, update))
        for one in opened:
            given = {self._model.key: ArrayRecord(dict(record)), **one.others}
            one.reply.content = RecordDict(given)
        return opened

    def _decode_replies(self, opened: list[_Opened]) -> list[_Opened]:
        norms = []
        for one in opened:
            try:
                floats, norm = decode_floats(one.opened, self._model)
            except PayloadError as error:
                self._reject(one.node, str(error))
                continue
            record = self._model.record(floats)
            one.reply.content = RecordDict({self._model.key: record, **one.others})
            norms.append(norm)
        accepted = self._accept(opened)
        for index, reason in too_far(norms, self._max_norm_ratio).items():
            self._reject(accepted[index].node, reason)
        return self._accept(accepted)

    def _move_clips(self, accepted: list[_Opened]) -> None:
        """Set the next round's clips of layers by a few updates."""
        if not isinstance(self._scheme, Scheme) or self._scheme.per != "layers":
            return
        updates = [decode_update(one.opened, self._model) for one in accepted[:_CLIENTS]]
        self._scheme = LayerClips().update(self._scheme, updates)

    def _count(self, node: int, size: int) -> None:
        """Count bytes and ε of a well-formed payload, whether or not the round can use it."""
        report, cost = self._rounds.report, self._scheme.cost(self._sizes)
        self._spent[node] = spent = self._spent.get(node, Composition()) + cost.mechanisms
        report.bytes_up[node] = size
        report.entries[node] = sum(self._sizes.values())
        report.epsilon[node] = spent.epsilon_at(self._delta)[0]

    def _reject(self, node: int, reason: str) -> None:
        self._rounds.warn("rejected the reply of node %d: %s", node, reason)
        report = self._rounds.report
        report.rejected[node] = reason
        report.bytes_up.pop(node, None)
        report.entries.pop(node, None)

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """The wrapper's state, with the ε that each node has spent and the clips of layers."""
        return {
            **super().state_dict(),
            "spent": {n: [(*m, t) for m, t in c.counts] for n, c in self._spent.items()},
            "clips": getattr(self._scheme, "clips", ()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._spent = {
            node: Composition(tuple((Mechanism(*m), times) for *m, times in counts))
            for node, counts in state["spent"].items()
        }
        if state["clips"]:
            self._scheme = cast(Scheme, self._scheme).with_clips(dict(state["clips"]))


class _Opened(NamedTuple):
    """A reply whose payload is well formed."""

    reply: Message
    opened: Any  # a payload that is not decoded yet, or the bytes of a report
    others: dict[str, Any]  # its other records

    @property
    def node(self) -> int:
        return int(self.reply.metadata.src_node_id)


# Every client's model, for strategies that do not average: decoded once


def open_update(scheme: Scheme, payload: bytes, model: Model, names: Sequence[str]) -> Opened:
    """A payload of these arrays of the model, not decoded yet; ``PayloadError`` if it is bad."""
    opened = scheme.open(payload, most_tensors=len(names))
    opened.check_fits({name: model.floats[name].shape for name in names})
    if opened.header.names != tuple(names):
        raise PayloadError("it names the arrays of the model in another order")
    opened.check_size()
    return opened


def decode_floats(opened: Opened, model: Model) -> tuple[dict[str, Values], float]:
    """Server's model + update, and the norm of the update."""
    update = decode_update(opened, model)
    squares = (np.square(value, dtype=np.float64).sum() for value in update.values())
    return move_floats(model, update), math.sqrt(math.fsum(map(float, squares)))


def decode_update(opened: Opened, model: Model) -> dict[str, Values]:
    """The update alone."""
    return opened.decode_like({name: widen(model.floats[name]) for name in opened.header.names})


def move_floats(model: Model, update: Mapping[str, Values]) -> dict[str, Values]:
    """The server's arrays plus an update; ``PayloadError`` where their types cannot hold that."""
    result = move(model, update)
    for name, value in result.items():
        if not np.isfinite((value.min(initial=0), value.max(initial=0))).all() and (
            (~np.isfinite(value) & np.isfinite(model.floats[name])).any()
        ):
            raise PayloadError(f"array {name!r} would hold entries too large for {value.dtype}")
    return result


def _others(content: RecordDict, model: Model) -> dict[str, Any]:
    """The records of a reply except its arrays and our own record."""
    ours = {RECORD, *content.array_records}
    others = {key: record for key, record in content.items() if key not in ours}
    if model.key in others:
        raise PayloadError(f"its record {model.key!r:.80} has the name of the model's")
    return others
