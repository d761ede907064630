"""``Wrapper``: what strategies around another share, and how they screen replies for it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from logging import INFO, WARNING
from statistics import median_high, median_low
from typing import Any, Literal, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    Result,
    Strategy,
)

from jopeq import kernels
from jopeq.analysis.learning import judge, mean_error
from jopeq.flower.arrays import Model, array_bytes, is_float
from jopeq.flower.server import RoundFailedError, RoundReport, Rounds

_STATE_FORMAT = 4
_OPTIMIZER = ("m_t", "v_t", "momentum_vector", "current_arrays", "clipping_norm")
"""Attributes that Flower's strategies keep from round to round."""


class Wrapper(Strategy):
    """A strategy around ``inner``; ``scheme`` says what clients send."""

    def __init__(self, inner: Strategy, scheme: Any) -> None:
        if not isinstance(inner, Strategy):
            raise TypeError(
                f"inner must be a strategy of flwr.serverapp.strategy, got {type(inner)!r}: the "
                "older API (flwr.server.strategy) carries no payloads"
            )
        self.inner, self.scheme = inner, scheme
        self._rounds = Rounds(type(self).__name__)
        self._left = 1  # rounds that are still to come, as far as known
        self._timeout = 3600.0
        self._resumed = self._before = 0  # rounds before this run, once it starts

    @property
    def reports(self) -> list[RoundReport]:
        """A report for each round."""
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

        The run ends with the model when too few clients can pay for another round. After
        ``load_state_dict`` rounds are numbered on, as FedAdam's moments need it.
        """
        history = self._rounds.history = Result(arrays=initial_arrays)
        self._left, self._timeout = num_rounds, timeout
        self._before, self._resumed = self._resumed, 0
        there = max(len(list(grid.get_node_ids())), int(self._largest("min_available_nodes")))
        sampled = int(there * (self._largest("fraction_train") or 1))
        sampled = max(sampled, int(self._largest("min_train_nodes")))
        self.announce(initial_arrays, sampled, num_rounds)

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

    def _largest(self, name: str) -> float:
        return max(getattr(one, name, 0) for one in chain(self.inner))

    def prepare(self, entries: int, arrays: ArrayRecord) -> None:
        """Load the kernels that a round will need before it begins with these arrays."""
        kernels.prepare(entries * self._left)
        self._left, self._rounds.history.arrays = 1, arrays

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        number = self._before + server_round
        return self.count_bytes(list(self.inner.configure_evaluate(number, arrays, config, grid)))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let ``inner`` do it, without replies that do not fit."""
        received = list(replies)
        good = [one for one in received if not one.has_error() and one.content.metric_records]
        bad = bad_metrics(good, self.inner)
        for index, reason in sorted(bad.items(), reverse=True):
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
        least = max(self._largest("min_train_nodes"), self._largest("min_available_nodes"))
        able = self._rounds.able(grid, int(least))
        return cast(Grid, _Available(grid, able)) if self._rounds.refusing else grid

    def keep(
        self, arrays: ArrayRecord | None, metrics: MetricRecord | None, server_round: int
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        history = self._rounds.history
        if metrics is not None:
            history.train_metrics_clientapp[server_round] = metrics
        if arrays is not None:
            history.arrays = arrays
        return arrays, metrics

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """The state that a later run goes on from, to be pickled; the model is not in it."""
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
        """Go on from ``state_dict``. Load what you saved yourself: unpickling can run any code."""
        if state.get("format") != _STATE_FORMAT:
            raise ValueError(f"format must be {_STATE_FORMAT}, got {state.get('format')!r}")
        if state["scheme"] != self.scheme.spec:
            told = f"the state is of scheme {state['scheme']}, this strategy of {self.scheme.spec}"
            raise ValueError(f"{told}: make the strategy with the same settings")
        strangers = set().union(*state["inner"]).difference(_OPTIMIZER)
        if strangers or len(state["inner"]) != len(list(chain(self.inner))):
            raise ValueError("the state was saved with other strategies inside: wrap the same ones")
        self._rounds.load_state_dict(state)
        self._resumed = self._rounds.report.server_round if self.reports else 0
        for one, saved in zip(chain(self.inner), state["inner"], strict=True):
            vars(one).update(deepcopy(saved))


class _Available:
    def __init__(self, grid: Grid, able: list[int]) -> None:
        self._grid, self.get_node_ids = grid, lambda: able

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


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


# Replies that would spoil the round for all clients, found before ``inner`` sees them

Phase = Literal["train", "evaluate"]

_LARGEST_WEIGHT = 1 << 63  # a sum of a few larger weights may be infinite, and every mean 0


def chain(inner: Any) -> Iterator[Any]:
    """A strategy and the strategies that it wraps, as Flower's wrappers for privacy do."""
    while inner is not None:
        yield inner
        inner = getattr(inner, "strategy", None)


_MEANS = [kind.aggregate_train for kind in (FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi)]


def averages(inner: Any) -> bool:
    """True if a strategy reads the clients' arrays for their weighted mean alone.

    Only Flower's own code is known to: a strategy that replaces ``aggregate_train`` is not.
    """
    while type(inner) is DifferentialPrivacyClientSideFixedClipping:
        inner = inner.strategy
    return getattr(inner.aggregate_train, "__func__", None) in _MEANS


@contextmanager
def one_reply(inner: Any, replies: list[Message], *, is_mean: bool) -> Iterator[list[Message]]:
    """The replies that an averaging strategy needs where all of them hold the mean: one.

    Its function for metrics gets the contents of all, and so do Flower's wrappers for privacy,
    which count replies.
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


def bad_metrics(replies: list[Message], inner: Any) -> dict[int, str]:
    """Position of each reply whose metrics do not fit the others', and why."""
    key = weight_key(inner)
    layouts = [_layout(reply, key) for reply in replies]
    bad = {}
    for index, reply in enumerate(replies):
        if (count := len(reply.content.metric_records)) > 1:  # at which Flower's would raise
            bad[index] = f"it has {count} metric records, and strategies accept one"
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


def drop_uneven_lists(replies: list[Message], inner: Any, phase: Phase = "train") -> None:
    """Leave out metrics whose lists differ in length, unless the user's own function gets them:
    Flower's mean of metrics would raise.
    """
    usual = FedAvg().train_metrics_aggr_fn  # the same for evaluation
    own = (getattr(one, f"{phase}_metrics_aggr_fn", None) for one in chain(inner))
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
            told = (
                "JoPEQ: metric %r is left out, its lists differ in length: give the inner strategy"
            )
            log(WARNING, f"{told} a %s_metrics_aggr_fn that can put them together", name, phase)
            for reply in replies:
                reply.content.metric_records[group].pop(name, None)


def too_far(norms: Sequence[float], ratio: float) -> dict[int, str]:
    """Position of each update that is longer than ``ratio`` times the usual, and why.

    The usual norm is the upper median of those above 0: an honest one's if most are honest. Of
    fewer than three, none is called unusual.
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

    All ``replies`` carry a weight or none does: they have passed ``bad_metrics``.
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
