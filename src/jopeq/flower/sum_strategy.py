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
        self._frozen = check_frozen(frozen)
        self._mean: tuple[Message, Model, NDArray[Any], ArrayRecord] | None = None
        task = Task(scheme=scheme, dimension=1, run=run)  # until a model tells its dimension
        self._rounds = self._sums = SumServer(task, "SumStrategy", **options)

    def list_sent(self, model: Model) -> list[str]:
        return sent_names(model, self._frozen)

    def announce(self, arrays: ArrayRecord, clients: int, rounds: int) -> None:
        """Compare the rounds with the scheme's, then log what to expect."""
        model = Model(RecordDict({"arrays": arrays}))
        warn_unused(model, self._frozen)
        self._take(model)
        done = len(self.reports)
        if done + rounds > self.scheme.rounds:
            self._rounds.warn(
                "%d rounds are asked for%s and a client takes part in rounds=%d of the scheme: for "
                "more give both ends a scheme with more rounds",
                *(rounds, f" after {done}" if done else "", self.scheme.rounds),
            )
        super().announce(arrays, clients, rounds)
        self._sums.announce()

    def _take(self, model: Model) -> None:
        self._sums.take(sum(model.floats[name].size for name in self.list_sent(model)))

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
        self._take(model)
        self.prepare(self._sums.task.dimension, arrays)
        mean = self._sums.sum(grid, first.content, number=number, timeout=self._timeout)
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

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "dimension": self._sums.task.dimension}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums.take(state.get("dimension", 1))
        super().load_state_dict(state)
