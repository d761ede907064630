"""``Wrapper``: what both strategies share. Reports, the history, and nodes that cannot pay."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from logging import INFO, WARNING
from typing import Any, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from jopeq import kernels
from jopeq.analysis.learning import judge, mean_error
from jopeq.errors import JoPEQError
from jopeq.flower.arrays import Model, is_float
from jopeq.flower.refusals import Failure, read_failure
from jopeq.flower.screening import bad_metrics, chain, drop_uneven_lists
from jopeq.schemes.base import Scheme
from jopeq.sums.client_sum import ClientSum

_STATE_FORMAT = 3
_OPTIMIZER = ("m_t", "v_t", "momentum_vector", "current_arrays", "clipping_norm")
"""What Flower's strategies remember from round to round."""


@dataclass
class RoundReport:
    """One round as the server saw it. Keys are node ids."""

    server_round: int
    scheme: str
    bytes_up: dict[int, int] = field(default_factory=dict)  # payloads that were accepted
    bytes_down: dict[int, int] = field(default_factory=dict)  # arrays sent to train and evaluate
    entries: dict[int, int] = field(default_factory=dict)  # entries in each payload
    rejected: dict[int, str] = field(default_factory=dict)  # why each unusable reply was rejected
    failed: list[Failure] = field(default_factory=list)  # error replies
    missing: list[int] = field(default_factory=list)  # nodes that did not answer
    epsilon: dict[int, float] = field(default_factory=dict)  # spent towards the server so far

    @property
    def bits_per_parameter(self) -> float:
        """Payload bits, header and checksum included, per entry of the update."""
        entries = sum(self.entries.values())
        return 8.0 * sum(self.bytes_up.values()) / entries if entries else 0.0

    def metrics(self) -> MetricRecord:
        """For the run's history: single numbers, of the round and, after a slash, of each node."""
        record = MetricRecord(
            {
                "jopeq-clients": len(self.bytes_up),
                "jopeq-rejected": len(self.rejected),
                "jopeq-failed": len(self.failed),
                "jopeq-missing": len(self.missing),
                "jopeq-bytes-up": sum(self.bytes_up.values()),
                "jopeq-bytes-down": sum(self.bytes_down.values()),
                "jopeq-bits-per-parameter": self.bits_per_parameter,
                "jopeq-epsilon": max(self.epsilon.values(), default=0.0),
            }
        )
        by_node: dict[str, Mapping[int, float]] = {
            "jopeq-bytes-up": self.bytes_up,
            "jopeq-bytes-down": self.bytes_down,
            "jopeq-epsilon": self.epsilon,
        }
        for name, values in by_node.items():
            record.update({f"{name}/{node}": value for node, value in sorted(values.items())})
        return record


class RoundFailedError(JoPEQError):
    """No client's reply could be used. ``code`` is ``budget-spent`` where clients cannot pay more.

    ``arrays`` is the model the round started from, ``reports`` are those of all rounds, and
    ``history`` is what ``start`` would have returned of the rounds before.
    """

    code = "round-failed"

    def __init__(
        self,
        message: str,
        arrays: ArrayRecord | None,
        reports: list[RoundReport],
        history: Result,
        code: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.arrays, self.reports, self.history = arrays, reports, history


class Wrapper(Strategy):
    """What ``JoPEQStrategy`` and ``JoPEQSumStrategy`` share.

    A node that says that its budget is spent is not sampled for training again. ``mechanism`` is
    the scheme; ``threshold`` is the fewest clients that a round can do with.
    """

    def __init__(self, inner: Strategy, mechanism: Scheme | ClientSum, threshold: int = 0) -> None:
        if not isinstance(inner, Strategy):
            raise TypeError(
                f"inner must be a strategy of flwr.serverapp.strategy, got {type(inner)!r}: those "
                "of flwr.server.strategy belong to Flower's older API, which carries no payloads"
            )
        self.inner, self.mechanism = inner, mechanism
        self.reports: list[RoundReport] = []
        self._history = Result()
        self._rounds = 1  # that are still to come, as far as known
        self._threshold = threshold
        self._exhausted: set[int] = set()
        self._left_out: set[int] = set()  # of the next round, for what they did in this one
        self._resumed = self._before = 0  # rounds before this run, once it starts

    @abstractmethod
    def list_sent(self, model: Model) -> list[str]:
        """Names of the arrays whose updates clients send."""

    def summary(self) -> None:
        """Log the scheme and its guarantee, then the summary of ``inner``."""
        log(INFO, "\t├──> JoPEQ settings:")
        log(INFO, "\t│\t├── Scheme: %s", self.mechanism.spec)
        log(INFO, "\t│\t└── %s", self.mechanism.guarantee)
        self.inner.summary()

    def announce(self, arrays: ArrayRecord, clients: int, rounds: int) -> None:
        """Log dimension, bits and what to expect of a run: loudly where it is hopeless."""
        scheme, model = self.mechanism, Model(RecordDict({"arrays": arrays}))
        dimension = sum(model.floats[name].size for name in self.list_sent(model))
        if not dimension:
            return
        if isinstance(scheme, ClientSum):
            plan = scheme.plan(dimension)
            bits = f"{plan.kept:,} kept at {plan.bits} bits"
        else:
            bits = f"{scheme.bits_per_entry:.3g} bits each"
        error, lasting = mean_error(scheme, dimension, clients)
        verdict = judge(error, rounds, lasting=lasting)
        level = WARNING if verdict.is_hopeless else INFO
        log(level, "JoPEQ: %s entries, %s; %s", f"{dimension:,}", bits, verdict)

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
        """As Flower's ``Strategy.start``; a ``RoundFailedError`` carries the rounds before it.

        When too few clients can pay for another round, the run ends and returns the model. After
        ``load_state_dict`` rounds are numbered on, as the moments of FedAdam need it.
        """
        self._history, self._rounds = Result(arrays=initial_arrays), num_rounds
        self._before, self._resumed = self._resumed, 0
        self.announce(initial_arrays, self._estimate_sample(grid), num_rounds)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = cast(Any, evaluate_fn)(number, arrays)
            if found is not None:
                self._history.evaluate_metrics_serverapp[number] = found
            return cast(MetricRecord | None, found)

        given = (grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config)
        try:
            return super().start(*given, None if evaluate_fn is None else evaluate)
        except RoundFailedError as error:
            if error.code != "budget-spent":
                raise
            log(WARNING, "JoPEQ: the run ends here, with the last model: %s", error)
            return self._history
        finally:
            self._before = 0

    def _estimate_sample(self, grid: Grid) -> int:
        """About how many clients ``inner`` will sample in a round."""

        def largest(name: str) -> float:
            return max((getattr(one, name, 0) for one in chain(self.inner)), default=0)

        there = max(len(list(grid.get_node_ids())), int(largest("min_available_nodes")))
        return max(int(there * (largest("fraction_train") or 1)), int(largest("min_train_nodes")))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As ``inner`` does it; the bytes that are sent are counted."""
        number = self._before + server_round
        messages = list(self.inner.configure_evaluate(number, arrays, config, grid))
        return self._count_bytes(messages)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """As ``inner`` does it, with the bytes sent down and without replies that do not fit."""
        received = list(replies)
        good = [reply for reply in received if not reply.has_error()]
        for index, reason in bad_metrics(good, self.inner, "evaluate").items():
            node = good[index].metadata.src_node_id
            log(WARNING, "JoPEQ: left out the evaluation of node %d: %s", node, reason)
            received.remove(good[index])
        usable = [reply for reply in received if not reply.has_error()]
        drop_uneven_lists(usable, self.inner, "evaluate")
        metrics = self.inner.aggregate_evaluate(self._before + server_round, received)
        if self.reports and metrics is not None:
            metrics["jopeq-bytes-down"] = sum(self.reports[-1].bytes_down.values())
        if metrics is not None:
            self._history.evaluate_metrics_clientapp[server_round] = metrics
        return metrics

    def _count_bytes(self, messages: list[Message]) -> list[Message]:
        """The messages; their arrays count in the round's report."""
        down = self.reports[-1].bytes_down if self.reports else {}
        for message in messages:
            node = message.metadata.dst_node_id
            down[node] = down.get(node, 0) + array_bytes(message.content)
        return messages

    def _available(self, grid: Grid, arrays: ArrayRecord) -> Grid:
        """The grid without the nodes whose budgets are spent, or that spoiled the last round.

        ``RoundFailedError`` if Flower would wait for ever for nodes that will not come back.
        """
        there = set(grid.get_node_ids())
        names = ("min_train_nodes", "min_available_nodes")
        least = max(getattr(one, n, 0) for one in chain(self.inner) for n in names)
        needed, spent = max(least, self._threshold), there & self._exhausted
        if spent and (len(there) >= needed > len(there - spent) or there == spent):
            raise self._failure(
                f"{len(spent)} of {len(there)} clients have spent their budgets and {needed} are "
                "needed: lower min_train_nodes and min_available_nodes, or end the run here",
                arrays,
                "budget-spent",
            )
        left_out, self._left_out = self._left_out, set()
        if len(there - spent - left_out) < needed:
            left_out = set()
        absent = self._exhausted | left_out
        return cast(Grid, _Available(grid, absent)) if absent else grid

    def name_failed(self, reply: Message) -> Failure:
        """Write an error reply down; Flower may answer for several nodes under one id."""
        failure = read_failure(reply)
        self.reports[-1].failed.append(failure)
        if failure.code == "budget-spent":
            self._exhausted.add(failure.node)
        log(WARNING, "JoPEQ: left out of round %d: %s", self.reports[-1].server_round, failure)
        return failure

    def name_missing(self, asked: Iterable[int], replies: Collection[Message]) -> None:
        """Name the nodes that did not answer."""
        answered = {reply.metadata.src_node_id for reply in replies}
        for node in sorted(set(asked) - answered):
            self.reports[-1].missing.append(node)
            number = self.reports[-1].server_round
            log(WARNING, "JoPEQ: left out of round %d: node %d did not answer", number, node)

    def _failure(
        self, message: str, arrays: ArrayRecord | None, code: str | None = None
    ) -> RoundFailedError:
        return RoundFailedError(message, arrays, self.reports, self._history, code)

    def _keep(
        self, arrays: ArrayRecord | None, metrics: MetricRecord | None, server_round: int
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The result of a round, which the history keeps too."""
        if metrics is not None:
            self._history.train_metrics_clientapp[server_round] = metrics
        if arrays is not None:
            self._history.arrays = arrays
        return arrays, metrics

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """What a later run needs to go on: plain values and arrays, to be pickled.

        Nodes without budget, the reports, and the momentum and moments of Flower's own inner
        strategies. The model is not in it.
        """
        return {
            "format": _STATE_FORMAT,
            "scheme": self.mechanism.spec,
            "exhausted": sorted(self._exhausted),
            "reports": [asdict(report) for report in self.reports],
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
        if state["scheme"] != self.mechanism.spec:
            raise ValueError(
                f"the state was saved with scheme {state['scheme']} and this strategy has "
                f"{self.mechanism.spec}: make the strategy with the same settings"
            )
        strangers = set().union(*state["inner"]).difference(_OPTIMIZER)
        if strangers or len(state["inner"]) != len(list(chain(self.inner))):
            raise ValueError("the state was saved with other strategies inside: wrap the same ones")
        self._exhausted = set(state["exhausted"])
        self.reports = [RoundReport(**report) for report in state["reports"]]
        self._resumed = self.reports[-1].server_round if self.reports else 0
        for one, saved in zip(chain(self.inner), state["inner"], strict=True):
            vars(one).update(deepcopy(saved))


class _Available:
    """A grid without some of its nodes."""

    def __init__(self, grid: Grid, absent: set[int]) -> None:
        self._grid, self._absent = grid, absent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> list[int]:
        return [node for node in self._grid.get_node_ids() if node not in self._absent]


def prepare_kernels(entries: int) -> None:
    """Load the kernels that a round will need before the round begins, and say so."""
    started, were_loaded = time.perf_counter(), kernels.are_loaded()
    kernels.prepare(entries)
    if kernels.are_loaded() and not were_loaded:
        log(INFO, "JoPEQ: compiled kernels loaded in %.1f s", time.perf_counter() - started)


def with_types(arrays: ArrayRecord, before: ArrayRecord | None) -> ArrayRecord:
    """The aggregate with the server's integers, and floats in their former types.

    Averaging turns int64 into float64, which would grow the model and confuse its clients.
    """
    before = before or ArrayRecord()
    for name in [name for name in arrays if name in before]:
        old = before[name]
        if not old.dtype.startswith("float") and not is_float(old.numpy()):
            arrays[name] = old
        elif arrays[name].dtype != old.dtype:
            arrays[name] = Array(arrays[name].numpy().astype(old.numpy().dtype))
    return arrays


def array_bytes(content: RecordDict) -> int:
    """Bytes of all arrays of a message."""
    return sum(len(a.data) for record in content.array_records.values() for a in record.values())
