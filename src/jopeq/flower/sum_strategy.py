"""``JoPEQSumStrategy``: the server's side. Any averaging strategy gets the mean of a secure sum."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from logging import ERROR, INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import Strategy

from jopeq.circle import Server
from jopeq.errors import ProtocolError
from jopeq.flower.arrays import Model, move
from jopeq.flower.screening import chain, weigh
from jopeq.flower.settings import frozen_names, warn_unused
from jopeq.flower.sum_mod import RECORD, check_scheme, read_trusted, sent_names, terms_of
from jopeq.flower.wrapper import (
    RoundReport,
    Wrapper,
    array_bytes,
    prepare_kernels,
    with_types,
)
from jopeq.sums.secure_sum import SecureSum

_NAMES = (
    *("FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan", "QFedAvg", "FedXgbBagging"),
    *("FedXgbCyclic", "DifferentialPrivacyServerSideFixedClipping"),
    "DifferentialPrivacyServerSideAdaptiveClipping",
)
SELECTING = tuple(getattr(strategies, name) for name in _NAMES if hasattr(strategies, name))
"""Flower's strategies that read every client's model, of which a sum shows none."""


class JoPEQSumStrategy(Wrapper):
    """Wraps FedAvg, FedAvgM, FedAdam, FedYogi or another strategy that averages.

    ``inner`` samples the clients, at most ``scheme.clients`` of them. In ``configure_train`` they
    exchange keys and shares; in ``aggregate_train`` the survivors open the sum. ``inner`` then sees
    one reply: the server's arrays plus the mean update, all clients weighing the same.

    A client that does not answer in time, answers with an error or sends something that cannot be
    used has dropped out; a warning names it. If fewer than ``scheme.threshold`` are left, nothing
    is opened, the model stays as it is and the next round begins, without the clients that spoiled
    this one. If so many clients are set up differently that no round can succeed, the round raises
    ``RoundFailedError``; if so many have spent their rounds, ``start`` returns the model.

    ``reports`` holds a ``RoundReport`` for each round: ``bytes_up`` and ``bytes_down`` are all
    messages of the protocol and the model, ``rejected`` are replies that could not be used.

    Parameters
    ----------
    inner : Strategy
        Samples the clients, and turns the mean into the next model.
    scheme : SecureSum
        The clients' own, or they refuse.
    timeout : float (default: 3600.0)
        Seconds that each step but training waits for replies; training waits as long as ``start``
        is told.
    frozen : Iterable[str] or "auto" (default: ())
        Patterns of array names that are never sent; the mods' must be the same. "auto" sends what
        ``model`` trains.
    model : Optional[Module or callable] (default: None)
        For "auto": the app's PyTorch module, or what makes it.
    trusted : Optional[path] (default: None)
        For signed rounds: the file with the public keys of all clients.
    is_server_trusted : bool (default: False)
        Allows cohorts of more than 100 clients without identities, as the mods' argument does.
    """

    def __init__(
        self,
        inner: Strategy,
        scheme: SecureSum,
        *,
        timeout: float = 3600.0,
        frozen: Iterable[str] = (),
        model: Any = None,
        trusted: str | os.PathLike[str] | None = None,
        is_server_trusted: bool = False,
    ) -> None:
        check_scheme(scheme)
        super().__init__(inner, scheme, scheme.threshold)
        for one in chain(inner):
            if isinstance(one, SELECTING):
                raise ValueError(
                    f"inner must average: {type(one).__name__} compares or clips the clients' "
                    "models, and a secure sum shows their mean alone; use FedAvg, FedProx, "
                    "FedAvgM, FedAdam, FedAdagrad or FedYogi"
                )
        if not isinstance(timeout, (int, float)) or not 0.0 < timeout < math.inf:
            raise ValueError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        self._scheme, self.timeout = scheme, timeout
        self._frozen = frozen_names(frozen, model)
        self._trusted, self._is_server_trusted = read_trusted(trusted), is_server_trusted
        self._round: _Round | None = None

    def list_sent(self, model: Model) -> list[str]:
        """Names of the arrays whose updates are summed."""
        return sent_names(model, self._frozen)

    def announce(self, arrays: ArrayRecord, clients: int, rounds: int) -> None:
        """Compare clients and rounds with the scheme, then log what to expect."""
        scheme = self._scheme
        if clients < scheme.threshold:
            raise ValueError(
                f"{clients} clients would be sampled in a round, and a sum needs "
                f"threshold={scheme.threshold}: give FedAvg(min_train_nodes={scheme.threshold}), "
                "which waits for nodes, or lower threshold"
            )
        done = sum(bool(report.entries) for report in self.reports)
        if done + rounds > scheme.participations:
            log(
                WARNING,
                "JoPEQSumStrategy: %d rounds are asked for%s and participations=%d: a client takes "
                "part in no more, and the run ends when fewer than %d clients are left. For more "
                "rounds give both ends a scheme with more participations",
                rounds,
                f" after {done}" if done else "",
                scheme.participations,
                scheme.threshold,
            )
        warn_unused(Model(RecordDict({"arrays": arrays})), self._frozen)
        super().announce(arrays, clients, rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let ``inner`` choose the clients, exchange keys and shares, then send the model."""
        available, number = self._available(grid, arrays), self._before + server_round
        messages = list(self.inner.configure_train(number, arrays, config, available))
        self._round = None
        if not messages:
            return messages
        if len(messages) > self._scheme.clients:
            raise ValueError(
                f"{len(messages)} clients were sampled and the scheme is for at most "
                f"{self._scheme.clients}: lower fraction_train, or raise clients of the scheme"
            )
        if any(m.content.array_records != messages[0].content.array_records for m in messages[1:]):
            raise ValueError("a secure sum needs a strategy that sends all clients the same model")
        report = RoundReport(number, self._scheme.spec)
        self.reports.append(report)
        model = Model(messages[0].content)
        names = self.list_sent(model)
        dimension = sum(model.floats[name].size for name in names)
        prepare_kernels(dimension * self._rounds)
        self._rounds = 1  # announced
        terms = terms_of(self._scheme, dimension, is_signed=bool(self._trusted))
        server = Server(terms, trusted=self._trusted, is_server_trusted=self._is_server_trusted)
        found = self._round = _Round(server, grid, messages, self)
        try:
            offers = dict.fromkeys(found.messages, server.offer)
            roster = server.roster(found.ask("keys", offers, dimension=dimension))
            inboxes = server.inboxes(found.ask("shares", roster))
        except ProtocolError as error:
            self._give_up(found, error, arrays)
            return []
        found.start = (model, names, dimension, arrays)
        log(INFO, "JoPEQSumStrategy: round %d, sum: %d clients train", number, len(inboxes))
        return [found.message(node, inbox, is_train=True) for node, inbox in inboxes.items()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the sum of the clients that answered, and give ``inner`` their mean."""
        received = list(replies)
        found, self._round = self._round, None
        if found is None or found.start is None:
            metrics = None if found is None else found.report.metrics()
            return self._keep(None, metrics, server_round)
        model, names, dimension, before = found.start
        server = found.server
        try:
            last = server.survivors(found.read(received))
            if server.terms.is_signed:
                last = server.signatures(found.ask("signatures", last))
            total = server.total(found.ask("opening", last))
        except ProtocolError as error:
            self._give_up(found, error, before)
            return self._keep(None, found.report.metrics(), server_round)
        count, seed = len(server.alive), server.terms.seed
        mean = self._scheme.decode(total, seed=seed, dimension=dimension, clients=count)
        good = next(r for r in received if r.metadata.src_node_id in server.alive)
        good.content = RecordDict(dict(model.records(_move(model, names, mean))))
        weigh([good], self.inner, [1])
        errors = [reply for reply in received if reply.has_error()]
        number = found.report.server_round
        arrays, metrics = self.inner.aggregate_train(number, [good, *errors])
        found.close(dimension, self._scheme.guarantee.epsilon)
        self._left_out = set(found.report.rejected)
        metrics = MetricRecord() if metrics is None else metrics
        metrics.update(found.report.metrics())
        arrays = None if arrays is None else with_types(arrays, before)
        return self._keep(arrays, metrics, server_round)

    def _give_up(self, found: _Round, error: ProtocolError, arrays: ArrayRecord) -> None:
        """End a round without a sum; raise if no later round could do better."""
        found.start = None
        found.close(0, 0.0)
        report, threshold = found.report, self._scheme.threshold
        self._left_out = {*getattr(error, "clients", ()), *report.rejected}
        culprits = f" (because of {sorted(self._left_out)})" if self._left_out else ""
        log(ERROR, "JoPEQSumStrategy: round %d: %s%s", report.server_round, error, culprits)
        # what the protocol refuses may go well in the next round, other settings do not
        lasting = [f for f in report.failed if f.is_refusal and f.code not in ("protocol", "app")]
        count = len(found.messages) - len({f.node for f in lasting})
        if lasting and count < threshold:
            others = {f.node for f in lasting if f.code != "budget-spent"}
            is_spent = len(found.messages) - len(others) >= threshold
            listed = "; ".join(map(str, lasting))
            text = f"round {report.server_round}: {error} ({listed})"
            raise self._failure(text, arrays, "budget-spent" if is_spent else None)


class _Round:
    """One round: what was sent to whom, and what came back."""

    def __init__(
        self, server: Server, grid: Grid, messages: list[Message], strategy: JoPEQSumStrategy
    ) -> None:
        self.server, self.report = server, strategy.reports[-1]
        self.messages = {message.metadata.dst_node_id: message for message in messages}
        self.start: tuple[Model, list[str], int, ArrayRecord] | None = None
        self._grid, self._strategy = grid, strategy
        self._asked: set[int] = set()

    def ask(
        self, step: str, sent: dict[int, bytes], dimension: int | None = None
    ) -> list[tuple[int, bytes]]:
        """Send a message of the protocol to each client; the answers that came in time."""
        messages = [self.message(node, data, dimension) for node, data in sent.items()]
        replies = self._grid.send_and_receive(messages, timeout=self._strategy.timeout)
        found, number = self.read(replies), self.report.server_round
        told = "JoPEQSumStrategy: round %d, %s: %d of %d clients answered"
        log(INFO, told, number, step, len(found), len(messages))
        return found

    def message(
        self, node: int, data: bytes, dimension: int | None = None, *, is_train: bool = False
    ) -> Message:
        """One message to a client, with the model and all if its app is to train."""
        first = self.messages[node]
        content = RecordDict(dict(first.content) if is_train else {})
        content[RECORD] = record = ConfigRecord({"message": data})
        if dimension is not None:  # of the updates, with the terms of a new round
            record["dimension"] = dimension
        down = self.report.bytes_down
        down[node] = down.get(node, 0) + len(data) + array_bytes(content)
        self._asked.add(node)
        kind = first.metadata.message_type
        return Message(content, dst_node_id=node, message_type=kind)

    def read(self, replies: Iterable[Message]) -> list[tuple[int, bytes]]:
        """The protocol's messages in these replies; error replies count as dropouts."""
        received, found = list(replies), []
        self._strategy.name_missing(self._asked, received)
        self._asked = set()
        for reply in received:
            node = reply.metadata.src_node_id
            if reply.has_error():
                self._strategy.name_failed(reply)
                continue
            record = reply.content.config_records.get(RECORD, ConfigRecord())
            data: Any = record.get("message", b"")
            up = self.report.bytes_up
            up[node] = up.get(node, 0) + (len(data) if isinstance(data, bytes) else 0)
            found.append((node, data))
        return found

    def close(self, entries: int, epsilon: float) -> None:
        """Keep in the report the clients that are in the sum, and why others are not."""
        alive = self.server.alive if entries else ()
        for node, reason in self.server.refused.items():
            number = self.report.server_round
            log(WARNING, "JoPEQ: left out of round %d: node %d: %s", number, node, reason)
        self.report.rejected = dict(self.server.refused)
        self.report.bytes_up = {node: self.report.bytes_up[node] for node in alive}
        self.report.entries = dict.fromkeys(alive, entries)
        self.report.epsilon = dict.fromkeys(alive, epsilon)


def _move(model: Model, names: list[str], mean: Any) -> dict[str, Array]:
    """The server's arrays after the mean update, which is in the coordinates of the clients'."""
    update, end = {}, 0
    for name in names:
        shape, size = model.floats[name].shape, model.floats[name].size
        start, end = end, end + size
        update[name] = np.asarray(mean[start:end], np.float32).reshape(shape)
    return {name: Array(value) for name, value in move(model.floats, update).items()}
