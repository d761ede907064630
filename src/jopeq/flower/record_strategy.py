"""``RecordStrategy``: the server's side of records. Any PyTorch optimizer steps with their mean."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from csv import writer
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray
from torch import nn

from jopeq import kernels
from jopeq.analysis.learning import judge_records
from jopeq.checks import check_count
from jopeq.errors import ProtocolError
from jopeq.files import atomic
from jopeq.flower.server import RoundFailedError, RoundReport, SumOptions, SumServer
from jopeq.flower.tasks import SCORING, Task, check_scheme
from jopeq.statistics import Scoring
from jopeq.sums.record_sum import RecordSum
from jopeq.torch.clipped_sum import count_entries

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

_FORMAT = 4
_OUTCOMES = Scoring()


def _keys(name: str) -> tuple[str, ...]:
    """The names of a figure and of the ends of its interval in metrics."""
    key = name.replace(" ", "-").lower()
    return key, f"{key}-lower", f"{key}-upper"


class RecordStrategy(Strategy):
    """Trains a PyTorch model on the records of hospitals, of which it learns noisy sums alone.

    A round is one message to each hospital and back; new hospitals, and those that were away, are
    asked for their keys at the same time. If one does not answer, the others are asked again: plan
    a few more ``rounds`` in the scheme than the run will have. While there are too few hospitals
    the round waits, ``timeout`` of ``start`` at most; when too few can pay for another round,
    ``start`` returns the model. ``reports`` has a ``RoundReport`` for each round. ``evaluations``
    of the scheme are private sums about the model on the hospitals' records, within the same ε.

    Parameters
    ----------
    scheme, run, scoring
        The same as on the clients.
    model : nn.Module
        Trained in place.
    optimizer, schedule : callable
        ``optimizer(parameters)`` makes one of ``torch.optim``, ``schedule(optimizer)`` a schedule
        of learning rates, which steps once per round.
    checkpoint : Optional[path] (default: None)
        File of model, optimizer, schedule and protocol, written before each attempt leaves and
        after each round. If it exists, ``start`` goes on from it.
    csv : Optional[path] (default: None)
        A CSV file that gets a row per round.
    evaluate_every : Optional[int] (default: None)
        Rounds between evaluations, which are spread over all rounds by default.
    options
        See ``SumOptions``: ``trusted`` or ``unsigned``, ``min_available_nodes``, ``deadline``.
    """

    def __init__(
        self,
        scheme: RecordSum,
        *,
        model: nn.Module,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
        run: str = "",
        checkpoint: str | os.PathLike[str] | None = None,
        csv: str | os.PathLike[str] | None = None,
        evaluate_every: int | None = None,
        scoring: Scoring = _OUTCOMES,
        **options: Unpack[SumOptions],
    ) -> None:
        check_scheme(scheme, options.get("unsigned", False), RecordSum)
        self.scheme, self.model, self.dimension = scheme, model, count_entries(model)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = optimizer(self._trained)
        self.schedule = None if schedule is None else schedule(self.optimizer)
        self._done, self._timeout = 0, 3600.0
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._csv = None if csv is None else Path(csv)
        if evaluate_every is not None and not (evaluate_every >= 1 and scheme.evaluations):
            told = f"at least 1, got {evaluate_every!r}, and evaluations of the scheme not 0"
            raise ValueError(f"evaluate_every must be {told}")
        task = Task(scheme=scheme, dimension=self.dimension, run=run)
        self._sums = SumServer(task, "RecordStrategy", **options)
        self._sums.keep = self._save
        self.reports: list[RoundReport] = self._sums.reports
        self._evaluation: SumServer | None = None
        if scheme.evaluations:
            given, kind = scheme.evaluation, MessageType.EVALUATE
            task = Task(scheme=given, dimension=scoring.dimension, run=run, kind=kind)
            self._evaluation = SumServer(task, "RecordStrategy: evaluation", **options)
            self._sums.beside, self._evaluation.beside = [self._evaluation], [self._sums]
            self._evaluation.keep = self._save
        self._every = evaluate_every or max(1, scheme.rounds // max(1, scheme.evaluations))
        self._scoring, self._found = scoring, dict[str, float]()
        self._mean: NDArray[np.float64] | None = None

    @property
    def epsilon(self) -> float:
        """ε spent so far in this run, of a record of the hospital that sent most shares."""
        return self._sums.epsilon

    def summary(self) -> None:
        scheme, plan = self.scheme, self.scheme.plan(self.dimension)
        log(INFO, "\t├──> JoPEQ: %s", scheme.spec)
        for line in str(scheme.guarantee).splitlines():
            log(INFO, "\t│\t%s", line)
        self._sums.announce()
        verdict = judge_records(plan, scheme.rounds)
        level = WARNING if verdict.is_hopeless else INFO
        told = "\t│\t└── %s entries of %d bits; %s"
        log(level, told, f"{self.dimension:,}", plan.bits, verdict)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run ``num_rounds`` in all, earlier ones included, as Flower's ``Strategy.start``.

        By default the rounds are the scheme's, and the model starts as it was given.
        ``timeout`` is how long a round may take, attempts and waiting for hospitals included.
        """
        given = self.scheme.rounds if num_rounds is None else num_rounds
        rounds = check_count("num_rounds", given, 0, self.scheme.rounds)
        if evaluate_config is not None and self._evaluation is None:
            raise ValueError("evaluate_config: the scheme has no evaluations; use evaluate_fn")
        if self._checkpoint is not None and self._checkpoint.exists():
            self.load_state_dict(torch.load(self._checkpoint, weights_only=True))
            log(INFO, "RecordStrategy: going on after round %d", self._done)
        elif initial_arrays is not None:
            self.model.load_state_dict(initial_arrays.to_torch_state_dict())
        self._timeout, before = timeout, self._done
        kernels.prepare(self.dimension * max(0, rounds - before))
        arrays = ArrayRecord(self.model.state_dict())
        history = self._sums.history = Result(arrays=arrays)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(before + number, arrays)
            if number:
                self._write_down(found or MetricRecord())
            if found is not None:
                history.evaluate_metrics_serverapp[before + number] = found
            return found

        try:
            super().start(
                *(grid, arrays, max(0, rounds - before), timeout, train_config),
                *(evaluate_config, evaluate),
            )
        except RoundFailedError as error:
            self._sums.end(error)
        return history

    # A round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Exchange messages with the hospitals until there is a sum; nothing is left to send."""
        number = self._done + 1
        config = ConfigRecord({**config, "server-round": number})
        content = RecordDict({"arrays": arrays, "config": config})
        self._mean = self._sums.sum(grid, content, number=number, timeout=self._timeout)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Step with the mean gradient of the sum that ``configure_train`` got."""
        if self._mean is None:
            raise ProtocolError("no sum is open: configure_train comes first")
        mean, self._mean = self._mean, None
        sizes = [p.numel() for p in self._trained]
        for p, part in zip(self._trained, np.split(mean, np.cumsum(sizes)[:-1]), strict=True):
            p.grad = torch.from_numpy(part.reshape(p.shape)).to(p)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        self._done += 1
        self._save()
        metrics, arrays = self.reports[-1].metrics(), ArrayRecord(self.model.state_dict())
        self._sums.history.train_metrics_clientapp[self._done] = metrics
        self._sums.history.arrays = arrays
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Evaluate on the hospitals' records, if it is time; nothing is left to send."""
        server, self._found = self._evaluation, {}
        if server is None or self._done % self._every or server.shares >= self.scheme.evaluations:
            return []
        own: dict[str, Any] = {"server-round": self._done, SCORING: self._scoring.spec}
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, **own})})
        try:
            mean = server.sum(grid, content, number=self._done, timeout=self._timeout)
        except RoundFailedError:  # it is logged; training goes on
            return []
        finally:
            self._save()
        clients = len(server.server.cohort)
        found = self._scoring.read(mean, self.scheme.evaluation, clients)
        if not found.figures:
            log(WARNING, "RecordStrategy: evaluation: mostly noise, or no hospital evaluates")
            return []
        for name, interval in {**found.figures, "records": found.records}.items():
            told = "RecordStrategy: hospitals' records: {} {:.4g} ({:.4g} to {:.4g})"
            log(INFO, told.format(name, *interval))
            ends = zip(_keys(name), interval, strict=True)
            self._found |= {key: end for key, end in ends if end is not None}
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The metrics that ``configure_evaluate`` found; ``-lower``, ``-upper`` bound 95%."""
        if not self._found:
            return None
        metrics = MetricRecord(dict(self._found))
        self._sums.history.evaluate_metrics_clientapp[self._done] = metrics
        return metrics

    def _save(self) -> None:
        if self._checkpoint is not None:
            with atomic(self._checkpoint) as file:
                torch.save(self.state_dict(), file)

    def _write_down(self, metrics: MetricRecord) -> None:
        """The round's row in the table, with what ``evaluate_fn`` found."""
        if self._csv is None:
            return
        numbers = {name: v for name, v in metrics.items() if isinstance(v, int | float)}
        row = {**self._sums.row, **numbers, "epsilon": self.epsilon}
        if self._evaluation is not None:
            keys = [key for name in (*self._scoring.figures, "records") for key in _keys(name)]
            row |= {f"hospitals-{key}": self._found.get(key, math.nan) for key in keys}
        is_new = not self._csv.exists()
        with self._csv.open("a", newline="", encoding="utf-8") as file:
            rows = writer(file)
            if is_new:
                rows.writerow(row)
            rows.writerow(row.values())

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """All that a later run needs: plain values and tensors."""
        return {
            "format": _FORMAT,
            "scheme": self.scheme.spec,
            "round": self._done,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            **self._sums.state_dict(),
            "evaluation": None if self._evaluation is None else self._evaluation.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` of a strategy with the same settings returned."""
        found = state.get("format"), state.get("scheme")
        if found != (_FORMAT, self.scheme.spec):
            raise ValueError(
                f"the state is of {found}, this strategy of {(_FORMAT, self.scheme.spec)}: give "
                "the same settings or remove the checkpoint"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self._sums.load_state_dict(state)
        if self._evaluation is not None:
            self._evaluation.load_state_dict(state["evaluation"])
        self._done = state["round"]
        self.reports[:] = [one for one in self.reports if one.server_round <= self._done]
