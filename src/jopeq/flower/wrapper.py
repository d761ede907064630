"""``Wrapper``: what the strategies that wrap another strategy share."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from logging import INFO, WARNING
from typing import Any, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from jopeq import kernels
from jopeq.analysis.learning import judge, mean_error
from jopeq.flower.arrays import Model, array_bytes, is_float
from jopeq.flower.screening import (
    bad_metrics,
    chain,
    drop_uneven_lists,
    weigh,
    weights_of,
)
from jopeq.flower.server import RoundFailedError, RoundReport, Rounds

_STATE_FORMAT = 4
_OPTIMIZER = ("m_t", "v_t", "momentum_vector", "current_arrays", "clipping_norm")
"""Attributes that Flower's strategies keep from round to round."""


class Wrapper(Strategy):
    """A strategy around ``inner``; ``scheme`` says what clients send."""

    def __init__(self, inner: Strategy, scheme: Any) -> None:
        if not isinstance(inner, Strategy):
            raise TypeError(
                f"inner must be a strategy of flwr.serverapp.strategy, got {type(inner)!r}: those "
                "of flwr.server.strategy belong to Flower's older API, which carries no payloads"
            )
        self.inner, self.scheme = inner, scheme
        self._rounds = Rounds(type(self).__name__)
        self._left = 1  # rounds that are still to come, as far as known
        self._timeout = 3600.0
        self._resumed = self._before = 0  # rounds before this run, once it starts

    @property
    def reports(self) -> list[RoundReport]:
        """One for each round."""
        return self._rounds.reports

    @abstractmethod
    def list_sent(self, model: Model) -> list[str]:
        """Names of the arrays whose updates clients send."""

    def summary(self) -> None:
        """Log the scheme and its guarantee, then the summary of ``inner``."""
        log(INFO, "\t├──> JoPEQ settings:")
        log(INFO, "\t│\t├── Scheme: %s", self.scheme.spec)
        for line in str(self.scheme.guarantee).splitlines():
            log(INFO, "\t│\t%s", line)
        self.inner.summary()

    def announce(self, arrays: ArrayRecord, clients: int, rounds: int) -> None:
        """Log dimension and what to expect of a run: loudly where it is hopeless."""
        model = Model(RecordDict({"arrays": arrays}))
        dimension = sum(model.floats[name].size for name in self.list_sent(model))
        if dimension:
            error, lasting = mean_error(self.scheme, dimension, clients)
            verdict = judge(error, rounds, lasting=lasting)
            level = WARNING if verdict.is_hopeless else INFO
            log(level, "JoPEQ: %s entries; %s", f"{dimension:,}", verdict)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run as Flower's ``Strategy.start``; a ``RoundFailedError`` carries the rounds before it.

        When too few clients can pay for another round, the run ends and returns the model. After
        ``load_state_dict`` rounds are numbered on, as the moments of FedAdam need it.
        """
        history = self._rounds.history = Result(arrays=initial_arrays)
        self._left, self._timeout = num_rounds, timeout
        self._before, self._resumed = self._resumed, 0
        self.announce(initial_arrays, self._estimate_sample(grid), num_rounds)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = cast(Any, evaluate_fn)(number, arrays)
            if found is not None:
                history.evaluate_metrics_serverapp[number] = found
            return cast(MetricRecord | None, found)

        given = (grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config)
        try:
            return super().start(*given, None if evaluate_fn is None else evaluate)
        except RoundFailedError as error:
            return self._rounds.end(error)
        finally:
            self._before = 0

    def _estimate_sample(self, grid: Grid) -> int:
        """About how many clients ``inner`` will sample in a round."""

        def largest(name: str) -> float:
            return max((getattr(one, name, 0) for one in chain(self.inner)), default=0)

        there = max(len(list(grid.get_node_ids())), int(largest("min_available_nodes")))
        return max(int(there * (largest("fraction_train") or 1)), int(largest("min_train_nodes")))

    def prepare(self, entries: int, arrays: ArrayRecord) -> None:
        """Load the kernels that a round will need before it begins with these arrays."""
        prepare_kernels(entries * self._left)
        self._left = 1  # announced
        self._rounds.history.arrays = arrays

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let ``inner`` do it; the bytes that are sent are counted."""
        number = self._before + server_round
        return self.count_bytes(list(self.inner.configure_evaluate(number, arrays, config, grid)))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let ``inner`` do it, with the bytes sent down and without replies that do not fit.

        Clients send the metrics that they name, which may be none.
        """
        received = list(replies)
        good = [one for one in received if not one.has_error() and one.content.metric_records]
        for index, reason in reversed(bad_metrics(good, self.inner, "evaluate").items()):
            node = good[index].metadata.src_node_id
            self._rounds.warn("left out the evaluation of node %d: %s", node, reason)
            del good[index]
        if received and not good:
            return None
        drop_uneven_lists(good, self.inner, "evaluate")
        weigh(good, self.inner, weights_of(good, self.inner))
        errors = [reply for reply in received if reply.has_error()]
        metrics = self.inner.aggregate_evaluate(self._before + server_round, [*good, *errors])
        if metrics is not None:
            if self.reports:
                metrics["jopeq-bytes-down"] = sum(self._rounds.report.bytes_down.values())
            self._rounds.history.evaluate_metrics_clientapp[server_round] = metrics
        return metrics

    def count_bytes(self, messages: list[Message]) -> list[Message]:
        """The messages; their arrays count in the round's report."""
        down = self._rounds.report.bytes_down if self.reports else {}
        for message in messages:
            node = message.metadata.dst_node_id
            down[node] = down.get(node, 0) + array_bytes(message.content)
        return messages

    def available(self, grid: Grid) -> Grid:
        """The grid without the nodes whose budgets are spent.

        ``RoundFailedError`` if Flower would wait for ever for nodes that will not come back.
        """
        names = ("min_train_nodes", "min_available_nodes")
        least = max(getattr(one, n, 0) for one in chain(self.inner) for n in names)
        able = self._rounds.able(grid, least)
        return cast(Grid, _Available(grid, able)) if self._rounds.refusing else grid

    def keep(
        self, arrays: ArrayRecord | None, metrics: MetricRecord | None, server_round: int
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The result of a round, which the history keeps too."""
        history = self._rounds.history
        if metrics is not None:
            history.train_metrics_clientapp[server_round] = metrics
        if arrays is not None:
            history.arrays = arrays
        return arrays, metrics

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """The state that a later run goes on from: plain values and arrays, to be pickled.

        Nodes without budget, the reports, and the momentum and moments of Flower's own inner
        strategies. The model is not in it.
        """
        return {
            "format": _STATE_FORMAT,
            "scheme": self.scheme.spec,
            **self._rounds.state_dict(),
            "inner": [
                {name: deepcopy(vars(one)[name]) for name in _OPTIMIZER if name in vars(one)}
                for one in chain(self.inner)
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` of a strategy with the same settings returned.

        Load only what you saved yourself: unpickling can run any code.
        """
        if state.get("format") != _STATE_FORMAT:
            raise ValueError(f"format must be {_STATE_FORMAT}, got {state.get('format')!r}")
        if state["scheme"] != self.scheme.spec:
            raise ValueError(
                f"the state was saved with scheme {state['scheme']} and this strategy has "
                f"{self.scheme.spec}: make the strategy with the same settings"
            )
        strangers = set().union(*state["inner"]).difference(_OPTIMIZER)
        if strangers or len(state["inner"]) != len(list(chain(self.inner))):
            raise ValueError("the state was saved with other strategies inside: wrap the same ones")
        self._rounds.load_state_dict(state)
        self._resumed = self._rounds.report.server_round if self.reports else 0
        for one, saved in zip(chain(self.inner), state["inner"], strict=True):
            vars(one).update(deepcopy(saved))


class _Available:
    """A grid with some of its nodes."""

    def __init__(self, grid: Grid, able: list[int]) -> None:
        self._grid, self._able = grid, set(able)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> list[int]:
        return [node for node in self._grid.get_node_ids() if node in self._able]


def prepare_kernels(entries: int) -> None:
    """Load the kernels that a round will need before the round begins, and say so."""
    started, were_loaded = time.perf_counter(), kernels.are_loaded()
    kernels.prepare(entries)
    if kernels.are_loaded() and not were_loaded:
        log(INFO, "JoPEQ: compiled kernels loaded in %.1f s", time.perf_counter() - started)


def with_types(arrays: ArrayRecord | None, before: ArrayRecord | None) -> ArrayRecord | None:
    """The aggregate with the server's integers, and floats in their former types.

    Averaging turns int64 into float64, which would grow the model and confuse its clients.
    """
    if arrays is None:
        return None
    before = before or ArrayRecord()
    for name in [name for name in arrays if name in before]:
        old = before[name]
        if not old.dtype.startswith("float") and not is_float(old.numpy()):
            arrays[name] = old
        elif arrays[name].dtype != old.dtype:
            arrays[name] = Array(arrays[name].numpy().astype(old.numpy().dtype))
    return arrays
