"""``JoPEQSumStrategy``: the server's side. Any averaging strategy gets the mean of a secure sum."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from logging import ERROR, INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from jopeq.errors import ProtocolError
from jopeq.flower.payload import Model, moved
from jopeq.flower.screening import weigh
from jopeq.flower.settings import without_frozen
from jopeq.flower.sum_mod import RECORD, Sum, check_scheme, read_trusted, terms_of
from jopeq.flower.wrapper import (
    RoundReport,
    Wrapper,
    array_bytes,
    is_refusal,
    prepare_kernels,
    with_types,
)
from jopeq.secure import Server


class JoPEQSumStrategy(Wrapper):
    """Wraps FedAvg, FedAvgM, FedAdam, FedYogi or another strategy that averages.

    ``inner`` samples the clients, at most ``scheme.clients`` of them. In ``configure_train`` they
    exchange keys and shares; in ``aggregate_train`` the survivors open the sum. ``inner`` then sees
    one reply: the server's arrays plus the mean update, all clients weighing the same.

    A client that does not answer in time, answers with an error or sends something that cannot be
    used has dropped out. If fewer than ``scheme.threshold`` are left, nothing is opened and the
    model stays as it is. If that is because clients refused, the round raises
    ``RoundFailedError``.

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
    frozen : Iterable[str] (default: ())
        Patterns of array names that are never sent; the mods' must be the same.
    trusted : Optional[path] (default: None)
        For signed rounds: the file with the public keys of all clients.
    """

    def __init__(
        self,
        inner: Strategy,
        scheme: Sum,
        *,
        timeout: float = 3600.0,
        frozen: Iterable[str] = (),
        trusted: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(inner)
        if isinstance(frozen, str):
            raise ValueError(f"frozen must be a list of names, got {frozen!r}: use [{frozen!r}]")
        check_scheme(scheme)
        if not isinstance(timeout, (int, float)) or not 0.0 < timeout < math.inf:
            raise ValueError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        self._scheme, self._timeout, self._frozen = scheme, timeout, tuple(frozen)
        self._trusted = read_trusted(trusted)
        self._round: _Round | None = None

    def summary(self) -> None:
        """Log the scheme and its guarantee, then the summary of ``inner``."""
        log(INFO, "\t├──> JoPEQ secure sum:")
        log(INFO, "\t│\t├── Scheme: %s", self._scheme.spec)
        log(INFO, "\t│\t└── %s", self._scheme.guarantee)
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let ``inner`` choose the clients, exchange keys and shares, then send the model."""
        available = self._available(grid, arrays)
        messages = list(self.inner.configure_train(server_round, arrays, config, available))
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
        report = RoundReport(server_round, self._scheme.spec)
        self.reports.append(report)
        model = Model(messages[0].content)
        names = without_frozen(model, model.floats, self._frozen)
        dimension = sum(model.floats[name].size for name in names)
        prepare_kernels(dimension * self._rounds)
        self._rounds = 1  # announced
        terms = terms_of(self._scheme, dimension, is_signed=bool(self._trusted))
        server = Server(terms, trusted=self._trusted)
        found = self._round = _Round(server, grid, messages, self._timeout, report, self._error)
        try:
            roster = server.roster(found.ask(dict.fromkeys(found.messages, server.offer)))
            inboxes = server.inboxes(found.ask(roster))
        except ProtocolError as error:
            self._give_up(found, error, arrays)
            return []
        found.start = (model, names, dimension, arrays)
        return [found.message(node, inbox, is_train=True) for node, inbox in inboxes.items()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Open the sum of the clients that answered, and give ``inner`` their mean."""
        received = list(replies)
        found, self._round = self._round, None
        if found is None or found.start is None:
            metrics = None if found is None else found.report.metrics()
            return self._kept(None, metrics, server_round)
        model, names, dimension, before = found.start
        server = found.server
        try:
            last = server.survivors(found.read(received))
            if server.terms.is_signed:
                last = server.signatures(found.ask(last))
            total = server.total(found.ask(last))
        except ProtocolError as error:
            self._give_up(found, error, before)
            return self._kept(None, found.report.metrics(), server_round)
        count, seed = len(server.alive), server.terms.seed
        mean = self._scheme.decode(total, seed=seed, dimension=dimension, clients=count)
        good = next(r for r in received if r.metadata.src_node_id in server.alive)
        good.content = RecordDict(dict(model.records(_moved(model, names, mean))))
        weigh([good], self.inner, [1])
        errors = [reply for reply in received if reply.has_error()]
        arrays, metrics = self.inner.aggregate_train(server_round, [good, *errors])
        found.close(dimension, self._scheme.guarantee.epsilon)
        metrics = MetricRecord() if metrics is None else metrics
        metrics.update(found.report.metrics())
        arrays = None if arrays is None else with_types(arrays, before)
        return self._kept(arrays, metrics, server_round)

    def _give_up(self, found: _Round, error: ProtocolError, arrays: ArrayRecord) -> None:
        """End a round without a sum; raise if the clients' refusals alone explain that."""
        found.start = None
        found.close(0, 0.0)
        log(ERROR, "JoPEQSumStrategy: round %d: %s", found.report.server_round, error)
        if len(found.messages) - len(found.refused) < self._scheme.threshold:
            reasons = sorted(one for one in found.report.failed if one[0] in found.refused)
            listed = "; ".join(f"node {node}: {reason}" for node, reason in reasons)
            text = f"round {found.report.server_round}: {error} ({listed or 'none refused'})"
            raise self._failure(text, arrays)


class _Round:
    """One round: what was sent to whom, and what came back."""

    def __init__(
        self,
        server: Server,
        grid: Grid,
        messages: list[Message],
        timeout: float,
        report: RoundReport,
        note: Callable[[Message], None],
    ) -> None:
        self.server, self.report, self._note = server, report, note
        self.messages = {message.metadata.dst_node_id: message for message in messages}
        self.refused: set[int] = set()
        self.start: tuple[Model, list[str], int, ArrayRecord] | None = None
        self._grid, self._timeout = grid, timeout

    def ask(self, sent: dict[int, bytes]) -> list[tuple[int, bytes]]:
        """Send a message of the protocol to each client; the answers that came in time."""
        messages = [self.message(node, data) for node, data in sent.items()]
        return self.read(self._grid.send_and_receive(messages, timeout=self._timeout))

    def message(self, node: int, data: bytes, *, is_train: bool = False) -> Message:
        """One message to a client, with the model and all if its app is to train."""
        first = self.messages[node]
        content = RecordDict(dict(first.content) if is_train else {})
        content[RECORD] = ConfigRecord({"message": data})
        down = self.report.bytes_down
        down[node] = down.get(node, 0) + len(data) + array_bytes(content)
        kind = first.metadata.message_type
        return Message(content, dst_node_id=node, message_type=kind)

    def read(self, replies: Iterable[Message]) -> list[tuple[int, bytes]]:
        """The protocol's messages in these replies; error replies count as dropouts."""
        found = []
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                self._note(reply)
                if is_refusal(reply):
                    self.refused.add(node)
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
            log(WARNING, "JoPEQSumStrategy: rejected a reply of node %d: %s", node, reason)
        self.report.rejected = dict(self.server.refused)
        self.report.bytes_up = {node: self.report.bytes_up[node] for node in alive}
        self.report.entries = dict.fromkeys(alive, entries)
        self.report.epsilon = dict.fromkeys(alive, epsilon)


def _moved(model: Model, names: list[str], mean: Any) -> dict[str, Array]:
    """The server's arrays after the mean update, which is in the coordinates of the clients'."""
    update, end = {}, 0
    for name in names:
        shape, size = model.floats[name].shape, model.floats[name].size
        start, end = end, end + size
        update[name] = np.asarray(mean[start:end], np.float32).reshape(shape)
    return {name: Array(value) for name, value in moved(model.floats, update).items()}
