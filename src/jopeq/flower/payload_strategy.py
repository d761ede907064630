"""``PayloadStrategy``: the server's side of payloads, for any of Flower's strategies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

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
from jopeq.sphere.round import Round
from jopeq.sphere.sphere import Sphere

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
        self._models: dict[int, Model] = {}
        self._arrays: ArrayRecord | None = None
        self._frozen = check_frozen(frozen)
        self._round: Round | None = None  # of a Sphere
        self._numbers: dict[int, int] = {}  # of the clients in it

    def list_sent(self, model: Model) -> list[str]:
        """Names of the arrays whose updates clients send."""
        return sent_names(model, self._frozen)

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let ``inner`` choose the clients, then tell each the scheme of this round."""
        number = self._before + server_round
        messages = list(self.inner.configure_train(number, arrays, config, self.available(grid)))
        self._arrays = arrays
        scheme, self._models, shared = self._scheme, {}, dict[int, Model]()
        for message in messages:
            content = message.content
            if id(content) not in shared:
                shared[id(content)] = Model(content)
            self._models[message.metadata.dst_node_id] = shared[id(content)]
        models = [*shared.values()]
        if isinstance(scheme, Sphere) and models:
            if len(models) > 1:
                raise ValueError("inner must send all clients one model: a Sphere has one round")
            dimension = sum(models[0].floats[name].size for name in self.list_sent(models[0]))
            seed, people = fresh_seed(), len(self._models)
            self._round = scheme.round(dimension=dimension, seed=seed, people=people)
            self._numbers = {node: number for number, node in enumerate(self._models)}
        for message in messages:
            node = message.metadata.dst_node_id
            model, own = self._models[node], self._numbers.get(node, 0)
            if self._round is not None:  # each has a number of its own
                message.content = own_content(message)
            message.content[RECORD] = record = offer(scheme, self._round, own)
            if isinstance(scheme, Scheme) and scheme.per == "layers":
                scales = scheme.codec.scaling.public(tuple(model.floats))
                record["clips"] = [scale.unit for scale in scales]
        entries = sum(v.size for model in self._models.values() for v in model.floats.values())
        self.prepare(entries, arrays)
        self.reports.append(RoundReport(number, scheme.spec))
        return self.count_bytes(messages)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the replies, reject bad ones, and let ``inner`` aggregate the rest."""
        received, report = list(replies), self._rounds.report
        answered = {reply.metadata.src_node_id for reply in received}
        self._rounds.note_missing(self._models.keys() - answered)
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
                if node not in self._models:
                    raise PayloadError("no train message was sent to this node in this round")
                model = self._models[node]
                others = _others(reply.content, model)
                opened: Opened | bytes = payload
                if self._round is None:
                    opened = open_update(cast(Scheme, self._scheme), payload, model)
                else:  # a report, as far as its form tells that it is of the round
                    self._round.open_report(payload, self._numbers[node], None)
            except PayloadError as error:
                self._reject(node, str(error))
                continue
            sizes = {name: model.floats[name].size for name in self.list_sent(model)}
            if isinstance(opened, Opened):
                sizes = dict(zip(opened.header.names, opened.sizes, strict=True))
            self._count(node, len(payload), sizes)
            result.append(_Opened(reply, opened, model, others))
        return result

    def _accept(self, opened: list[_Opened]) -> list[_Opened]:
        return [one for one in opened if one.node not in self._rounds.report.rejected]

    def _average(self, opened: list[_Opened]) -> list[_Opened] | None:
        """Give every reply the mean model; None where ``inner`` needs every client's.

        The norms of the updates come from the sum. What is rejected was added, so the others are
        added up anew.
        """
        if not averages(self.inner) or len({id(one.model) for one in opened}) != 1:
            return None
        if self._round is not None:
            return self._add_reports(self._round, opened)
        mean = self._mean(opened)
        good = [index for index in range(len(opened)) if index not in mean.failed]
        far = too_far([mean.norms[index] for index in good], self._max_norm_ratio)
        bad = {index: str(error) for index, error in mean.failed.items()}
        bad |= {good[place]: reason for place, reason in far.items()}
        for index, reason in bad.items():
            self._reject(opened[index].node, reason)
        opened = self._accept(opened)
        if not opened:
            return []
        if bad:
            mean = self._mean(opened)
        try:
            floats = move_floats(opened[0].model, mean.update)
        except PayloadError:  # some client's entries are too large for the model: find out whose
            return None
        return _with_mean(opened, floats)

    def _add_reports(self, terms: Round, opened: list[_Opened]) -> list[_Opened]:
        """The mean of the reports of a ``Sphere``, each of which counts once."""
        if not opened:
            return []
        total, model = terms.aggregator(), opened[0].model
        reports = [cast(bytes, one.opened) for one in opened]
        total.add_many(reports, clients=[self._numbers[one.node] for one in opened])
        update = split(total.mean(), model, self.list_sent(model))
        return _with_mean(opened, move_floats(model, update))

    def _mean(self, opened: list[_Opened]) -> Mean:
        replies = [one.reply for one in opened]
        weights = weights_of(replies, self.inner, self._max_weight_ratio)
        return mean_of([one.opened for one in opened], weights, cast(Scheme, self._scheme))

    def _decode_replies(self, opened: list[_Opened]) -> list[_Opened]:
        norms = []
        for one in opened:
            try:
                floats, norm = decode_floats(one.opened, one.model)
            except PayloadError as error:
                self._reject(one.node, str(error))
                continue
            arrays = {name: Array(value) for name, value in floats.items()}
            one.reply.content = one.with_arrays(arrays)
            norms.append(norm)
        accepted = self._accept(opened)
        for index, reason in too_far(norms, self._max_norm_ratio).items():
            self._reject(accepted[index].node, reason)
        return self._accept(accepted)

    def _move_clips(self, accepted: list[_Opened]) -> None:
        """Set the next round's clips of layers by a few updates of the most common layout."""
        if not isinstance(self._scheme, Scheme) or self._scheme.per != "layers":
            return
        names = Counter(one.opened.header.names for one in accepted).most_common(1)
        some = [one for one in accepted if one.opened.header.names == names[0][0]][:_CLIENTS]
        updates = [decode_update(one.opened, one.model) for one in some]
        self._scheme = LayerClips().update(self._scheme, updates)

    def _count(self, node: int, size: int, sizes: Mapping[str, int]) -> None:
        """Count bytes and ε of a well-formed payload, whether or not the round can use it."""
        report = self._rounds.report
        entries = sum(sizes.values())
        cost = self._scheme.cost(sizes)
        self._spent[node] = spent = self._spent.get(node, Composition()) + cost.mechanisms
        report.bytes_up[node] = size
        report.entries[node] = entries
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
    model: Model
    others: dict[str, Any]  # its other records

    @property
    def node(self) -> int:
        return int(self.reply.metadata.src_node_id)

    def with_arrays(self, arrays: Mapping[str, Array]) -> RecordDict:
        """The reply as ``inner`` reads it. An array that was not sent did not change."""
        return RecordDict({**self.model.records(arrays), **self.others})


def _with_mean(opened: list[_Opened], floats: Mapping[str, Values]) -> list[_Opened]:
    """Give every reply the mean model."""
    arrays = {name: Array(value) for name, value in floats.items()}
    for one in opened:
        one.reply.content = one.with_arrays(arrays)
    return opened


# Every client's model, for strategies that do not average: decoded once


def open_update(scheme: Scheme, payload: bytes, model: Model) -> Opened:
    """A payload whose layout fits the model, not decoded yet; ``PayloadError`` if it is bad."""
    opened = scheme.open(payload, most_tensors=len(model.floats))
    opened.check_fits({name: value.shape for name, value in _select_named(opened, model).items()})
    opened.check_size()
    return opened


def decode_floats(opened: Opened, model: Model) -> tuple[dict[str, Values], float]:
    """Server's model + update, of the arrays the payload names, and the norm of the update."""
    update = decode_update(opened, model)
    squares = (np.square(value, dtype=np.float64).sum() for value in update.values())
    return move_floats(model, update), math.sqrt(math.fsum(map(float, squares)))


def decode_update(opened: Opened, model: Model) -> dict[str, Values]:
    """The update alone."""
    return opened.decode_like({n: widen(v) for n, v in _select_named(opened, model).items()})


def _select_named(opened: Opened, model: Model) -> dict[str, Values]:
    """The server's arrays of those that a payload names."""
    return {name: model.floats[name] for name in opened.header.names if name in model.floats}


def move_floats(model: Model, update: Mapping[str, Values]) -> dict[str, Values]:
    """The server's arrays plus an update; ``PayloadError`` where their types cannot hold that."""
    result = move(model.floats, update)
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
    for key, _ in model.places.values():
        if key in others:
            raise PayloadError(f"its record {key!r:.80} has the name of one of the model's")
    return others


# The mean of a round, for strategies that average: added up without decoding any update whole


class Mean(NamedTuple):
    """Σ share·update of a round, by name. An array that a client does not name did not change."""

    update: dict[str, NDArray[np.float64]]
    norms: list[float]  # of the updates
    failed: dict[int, PayloadError]  # position of each bad payload; it may be in the sum in part


def mean_of(opened: Sequence[Opened], weights: Sequence[float], scheme: Scheme) -> Mean:
    """The weighted mean of payloads that fit one model.

    Payloads that name the same arrays in the same order are added up in one pass. Any other layout
    costs a pass of its own and no more memory, so that no client can make the server decode all
    models.
    """
    whole = math.fsum(weights)
    shares = [weight / whole for weight in weights]
    found = Mean({}, [0.0] * len(opened), {})
    layouts: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(opened):
        layouts.setdefault(one.header.names, []).append(index)
    for names, places in layouts.items():
        parts = [opened[index] for index in places], [shares[index] for index in places]
        flat, norms, failed = weighted_sum(*parts, scheme)
        for index, norm in zip(places, norms, strict=True):
            found.norms[index] = norm
        found.failed.update({places[place]: error for place, error in failed.items()})
        first, end = opened[places[0]], 0
        for name, shape, size in zip(names, first.header.shapes, first.sizes, strict=True):
            start, end = end, end + size
            piece = flat[start:end].reshape(shape)
            found.update[name] = found.update[name] + piece if name in found.update else piece
    return found
