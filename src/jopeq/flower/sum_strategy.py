"""``SumStrategy``: any averaging strategy gets the mean of a private sum over clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from jopeq.flower.arrays import Model, check_frozen, move, sent_names, split, warn_unused
from jopeq.flower.server import SumOptions, SumServer
from jopeq.flower.tasks import Task, check_scheme
from jopeq.flower.wrapper import Wrapper, averages, chain, weigh, with_types
from jopeq.sums.record_sum import ClientSum


class SumStrategy(Wrapper):
    """Wraps FedAvg, FedAvgM, FedAdam, FedYogi or another of Flower's strategies that average.

    A round asks a random cohort of up to ``scheme.clients`` nodes, out of all that are there, and
    waits for ``scheme.threshold`` of them, at most for the ``timeout`` of ``start``. ``inner`` says
    what they are sent, and sees one reply: the server's arrays plus the plain mean of the updates.
    Whoever does not answer in time or as agreed has dropped out; a warning names it, and later
    rounds ask it less often. When too few clients can pay for another round, ``start`` returns the
    model. ``reports`` holds a ``RoundReport`` for each round.

    Parameters
    ----------
    inner : Strategy
        Makes the message to the clients, and turns the mean into the next model.
    scheme, frozen, run
        The same as on the clients, or they refuse.
    options
        See ``SumOptions``: ``trusted`` or ``unsigned``, ``min_available_nodes``, ``deadline``.
    """

    def __init__(
        self,
        inner: Strategy,
        scheme: ClientSum,
        *,
        frozen: Iterable[str] = (),
        run: str = "",
        **options: Unpack[SumOptions],
    ) -> None:
        check_scheme(scheme, options.get("unsigned", False), ClientSum)
        super().__init__(inner, scheme)
        if not averages(inner):
            raise ValueError(
                "inner must average, as a private sum shows the mean alone: use FedAvg, FedProx, "
                f"FedAvgM, FedAdam, FedAdagrad or FedYogi, got {type([*chain(inner)][-1]).__name__}"
            )
        self._frozen, self._run = check_frozen(frozen), run
        self._options = options
        self._saved: Mapping[str, Any] = {}
        self._mean: tuple[Message, Model, NDArray[Any], ArrayRecord] | None = None
        self._new_server(1)  # refuses impossible settings

    def _new_server(self, dimension: int) -> SumServer:
        task = Task(scheme=self.scheme, dimension=dimension, run=self._run)
        return SumServer(task, "SumStrategy", **self._options)

    def _serve(self, dimension: int) -> SumServer:
        """The server of sums of this dimension: the model tells it."""
        before = self._rounds
        if isinstance(before, SumServer) and before.task.dimension == dimension:
            return before
        self._rounds = found = self._new_server(dimension)
        for name in ("history", "reports", "refusing"):
            setattr(found, name, getattr(before, name))
        if self._saved:
            found.load_state_dict(self._saved)
        self._saved = {}
        found.announce()
        return found

    def list_sent(self, model: Model) -> list[str]:
        return sent_names(model, self._frozen)

    def announce(self, arrays: ArrayRecord, clients: int, rounds: int) -> None:
        """Compare the rounds with the scheme's, then log what to expect."""
        warn_unused(Model(RecordDict({"arrays": arrays})), self._frozen)
        done = len(self.reports)
        if done + rounds > self.scheme.rounds:
            self._rounds.warn(
                "%d rounds are asked for%s and a client takes part in rounds=%d of the scheme: for "
                "more give both ends a scheme with more rounds",
                *(rounds, f" after {done}" if done else "", self.scheme.rounds),
            )
        super().announce(arrays, clients, rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Exchange messages with the clients until there is a sum; nothing is left to send."""
        number = self._before + server_round
        messages = list(self.inner.configure_train(number, arrays, config, grid))
        if not messages:
            return []
        first = messages[0]
        model = Model(first.content)
        dimension = sum(model.floats[name].size for name in self.list_sent(model))
        server = self._serve(dimension)
        self.prepare(dimension, arrays)
        mean = server.sum(grid, first.content, number=number, timeout=self._timeout)
        self._mean = first, model, mean, arrays
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give ``inner`` the mean of the sum that ``configure_train`` got."""
        if self._mean is None:
            return self.keep(None, None, server_round)
        (first, model, mean, before), self._mean = self._mean, None
        update = split(np.asarray(mean, np.float32), model, self.list_sent(model))
        moved = model.record(move(model, update))
        reply = Message(RecordDict({model.key: moved}), reply_to=first)
        weigh([reply], self.inner, [1.0])
        report = self._rounds.report
        found, metrics = self.inner.aggregate_train(report.server_round, [reply])
        metrics = MetricRecord() if metrics is None else metrics
        metrics.update(report.metrics())
        return self.keep(with_types(found, before), metrics, server_round)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict``; the sums do so when the model tells their dimension."""
        super().load_state_dict(state)
        self._saved = state if "server" in state else {}
