"""``RecordStrategy``: the server's side of records. Any PyTorch optimizer steps with their mean."""

from __future__ import annotations

import csv
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from jopeq.analysis.learning import judge
from jopeq.errors import ProtocolError, TooFewClientsError
from jopeq.files import atomic
from jopeq.flower.record_mod import RECORD, check_scheme, digest_content, make_terms
from jopeq.flower.refusals import Failure, read_failure
from jopeq.flower.sum_mod import read_trusted
from jopeq.flower.wrapper import RoundFailedError, RoundReport, array_bytes, prepare_kernels
from jopeq.secure import Attempt, CircleServer
from jopeq.secure.circle import Kind, kind_of
from jopeq.sums.record_accounting import epsilon_of
from jopeq.sums.record_plan import epsilon_left
from jopeq.sums.record_sum import RecordSum
from jopeq.torch.clipped_sum import count_entries

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

_POLL, _WAIT = 0.2, 3.0  # seconds between two looks: for replies, for nodes
_FIRST_DEADLINE, _LEAST_DEADLINE, _SLOWEST = 600.0, 30.0, 3.0
_LASTING = ("settings", "limits", "model", "budget", "budget-spent")
_FORMAT = 1


class RecordStrategy(Strategy):
    """Trains a PyTorch model on the records of hospitals, of which it learns noisy sums alone.

    A round is one message to each hospital and back; hospitals that are new, or were away, are
    asked for their keys beside it. If a hospital does not answer, the others are asked again (an
    attempt more in every ledger). While there are too few hospitals the round waits, ``timeout`` of
    ``start`` at most. The optimizer steps with the mean of the records' clipped gradients.

    Hospitals may join and leave between rounds. When too few can pay for another round, ``start``
    returns the model. Plan a few more ``rounds`` in the scheme than the run will have: every
    attempt takes one. ``reports`` has a ``RoundReport`` for each round. Evaluate on the server's
    own data, by ``evaluate_fn`` of ``start``; the hospitals' records are not evaluated.

    Parameters
    ----------
    scheme : RecordSum
        The same as the clients'.
    model : nn.Module
        Trained in place.
    optimizer : callable
        Makes an optimizer of ``torch.optim`` from the parameters that are trained.
    schedule : Optional[callable] (default: None)
        Makes a learning-rate schedule from the optimizer; it steps once a round.
    trusted : Optional[path] (default: None)
        File with the public keys of all hospitals, in hexadecimal, one a line.
    unsigned : bool (default: False)
        For simulations: anybody takes part.
    run : str (default: "")
        As on the clients.
    min_available_nodes : Optional[int] (default: None)
        Nodes that a round waits for, by default ``scheme.threshold``.
    deadline : Optional[float] (default: None)
        Seconds that an attempt waits for replies. By default three times the slowest attempt that
        succeeded, 30 at least; 600 for the first.
    checkpoint : Optional[path] (default: None)
        File of model, optimizer, schedule and protocol, written after each round. If there is one,
        ``start`` goes on from it.
    table : Optional[path] (default: None)
        CSV file that gets a row a round.
    writer : Optional[SummaryWriter] (default: None)
        Gets the same numbers by ``add_scalar``.
    """

    def __init__(
        self,
        scheme: RecordSum,
        *,
        model: nn.Module,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
        trusted: str | os.PathLike[str] | None = None,
        unsigned: bool = False,
        run: str = "",
        min_available_nodes: int | None = None,
        deadline: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        table: str | os.PathLike[str] | None = None,
        writer: Any = None,
    ) -> None:
        check_scheme(scheme, unsigned)
        if unsigned == (trusted is not None):
            raise ValueError(
                f"trusted must name the file of all hospitals' public keys, got {trusted!r}: or "
                "unsigned=True for a simulation without keys"
            )
        least = scheme.threshold if min_available_nodes is None else min_available_nodes
        if not scheme.threshold <= least <= scheme.clients:
            raise ValueError(
                f"min_available_nodes must be from threshold={scheme.threshold} to "
                f"clients={scheme.clients}, got {least}"
            )
        if deadline is not None and not 0.0 < deadline < math.inf:
            raise ValueError(f"deadline must be a number of seconds above 0, got {deadline!r}")
        self.scheme, self.model, self.dimension = scheme, model, count_entries(model)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = optimizer(self._trained)
        self.schedule = None if schedule is None else schedule(self.optimizer)
        self.reports: list[RoundReport] = []
        self._run, self._unsigned, self._least, self._deadline = run, unsigned, least, deadline
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._table, self._writer = None if table is None else Path(table), writer
        self._server = CircleServer(
            make_terms(scheme, self.dimension, run, unsigned=unsigned),
            trusted=read_trusted(trusted),
            is_plausible=is_plausible,
        )
        self._shares: Counter[str] = Counter()  # charged to each identity
        self._refusing: dict[int, Failure] = {}  # nodes that will not take part, and why
        self._slowest, self._done, self._history = 0.0, 0, Result()
        self._timeout, self._row = 3600.0, dict[str, float]()

    def summary(self) -> None:
        """Log scheme, guarantee and what to expect."""
        scheme, plan = self.scheme, self.scheme.plan(self.dimension)
        log(INFO, "\t├──> JoPEQ: %s", scheme.spec)
        log(INFO, "\t│\t├── %s", scheme.guarantee)
        if self._unsigned:
            told = "\t│\t├── unsigned: ε = %.3g against a server that invents hospitals"
            log(WARNING, told, epsilon_left(scheme, self.dimension, 1))
        else:
            told = "\t│\t├── fingerprint of the trusted hospitals: %s"
            log(INFO, told, self._server.fingerprint)
        verdict = judge(plan.error, scheme.rounds)
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
        """As Flower's ``Strategy.start``: ``num_rounds`` in all, those before a resume included.

        By default the rounds are the scheme's, and the model starts as it was given.
        ``timeout`` is how long a round may take, attempts and waiting for hospitals included.
        """
        rounds = self.scheme.rounds if num_rounds is None else num_rounds
        if not 0 <= rounds <= self.scheme.rounds:
            raise ValueError(
                f"num_rounds must be from 0 to rounds={self.scheme.rounds} of the scheme, got "
                f"{rounds}: give both ends a scheme of more rounds"
            )
        if evaluate_config is not None:
            raise ValueError("evaluate_config: hospitals do not evaluate; use evaluate_fn")
        if self._checkpoint is not None and self._checkpoint.exists():
            self.load_state_dict(torch.load(self._checkpoint, weights_only=True))
            log(INFO, "RecordStrategy: going on after round %d", self._done)
        elif initial_arrays is not None:
            self.model.load_state_dict(initial_arrays.to_torch_state_dict())
        self._timeout, before = timeout, self._done
        prepare_kernels(self.dimension * max(0, rounds - before))
        arrays = ArrayRecord(self.model.state_dict())
        self._history = Result(arrays=arrays)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(before + number, arrays)
            if number:
                self._write_down(before + number, found or MetricRecord())
            if found is not None:
                self._history.evaluate_metrics_serverapp[before + number] = found
            return found

        try:
            super().start(
                grid, arrays, max(0, rounds - before), timeout, train_config, None, evaluate
            )
        except RoundFailedError as error:
            if error.code != "budget-spent":
                raise
            log(WARNING, "RecordStrategy: the run ends here, with the last model: %s", error)
        return self._history

    # A round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Exchange messages with the hospitals until there is a sum; nothing is left to send."""
        number = self._done + 1
        config = ConfigRecord({**config, "server-round": number})
        content = RecordDict({"arrays": arrays, "config": config})
        hashed = digest_content(content, MessageType.TRAIN)
        report, began = RoundReport(number, self.scheme.spec), time.monotonic()
        self.reports.append(report)
        tries, until = 0, began + self._timeout
        while True:
            nodes, charged = self._nodes(grid, until), self._shares.total()
            try:
                messages = self._server.start(nodes, round_number=number, content=hashed)
                while messages:
                    messages = self._server.step(self._exchange(grid, messages, content, report))
                break
            except TooFewClientsError as error:  # nothing was opened: wait for hospitals
                log(WARNING, "RecordStrategy: round %d: %s", number, error)
                tries += self._shares.total() > charged
                if tries >= self._server.terms.attempts or time.monotonic() > until:
                    raise self._failure(f"round {number}: {error}") from error
                time.sleep(_WAIT)
            except ProtocolError as error:
                raise self._failure(f"round {number}: {error}; raise signal of the scheme, or look "
                                    "for a hospital that sends garbage") from error  # fmt: skip
            finally:
                report.rejected |= self._server.refused
        self._finish(report, time.monotonic() - began)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Step with the mean gradient of the sum that ``configure_train`` got."""
        server, report = self._server, self.reports[-1]
        if server.total is None or server.attempt is None:
            raise ProtocolError("no sum is open: configure_train comes first")
        mean = self.scheme.decode(
            server.total,
            seed=server.attempt.seed,
            dimension=self.dimension,
            clients=len(server.cohort),
        )
        sizes = [p.numel() for p in self._trained]
        for p, part in zip(self._trained, np.split(mean, np.cumsum(sizes)[:-1]), strict=True):
            p.grad = torch.from_numpy(part.reshape(p.shape)).to(p)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        self._done += 1
        if self._checkpoint is not None:
            with atomic(self._checkpoint) as file:
                torch.save(self.state_dict(), file)
        metrics, arrays = report.metrics(), ArrayRecord(self.model.state_dict())
        self._history.train_metrics_clientapp[self._done] = metrics
        self._history.arrays = arrays
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No messages: an evaluation of hospitals' records would cost ε."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """No metrics."""
        return None

    def _nodes(self, grid: Grid, until: float) -> list[int]:
        """The nodes to ask, once there are enough of them."""
        told = 0.0
        while True:
            there = set(grid.get_node_ids())
            self._refusing = {n: f for n, f in self._refusing.items() if n in there}
            able = sorted(there - self._refusing.keys(), key=lambda n: n not in self._server.cohort)
            if len(able) >= self._least:
                return able[: self.scheme.clients]
            lasting = list(self._refusing.values())
            if lasting and len(there) >= self._least:
                others = [f for f in lasting if f.code != "budget-spent"]
                is_spent = len(there) - len(others) >= self._least
                listed = "; ".join(map(str, lasting))
                raise self._failure(
                    f"{len(able)} hospitals are left and {self._least} are needed: {listed}",
                    "budget-spent" if is_spent else None,
                )
            if time.monotonic() > until:
                raise self._failure(f"{len(able)} hospitals came and {self._least} are needed")
            if time.monotonic() - told > 10.0:
                told = time.monotonic()
                log(INFO, "RecordStrategy: %d of %d hospitals are there", len(able), self._least)
            time.sleep(_WAIT if told else 0.0)

    def _exchange(
        self, grid: Grid, sent: dict[int, bytes], content: RecordDict, report: RoundReport
    ) -> list[tuple[int, bytes]]:
        """Send each message, and collect the answers that come in time."""
        began, limit = time.monotonic(), self._limit()
        self._count_shares(sent)
        messages = [self._message(node, data, content, limit) for node, data in sent.items()]
        for message in messages:
            node = message.metadata.dst_node_id
            down = array_bytes(message.content) + len(sent[node])
            report.bytes_down[node] = report.bytes_down.get(node, 0) + down
        waiting = dict(zip(grid.push_messages(messages), sent, strict=True))
        found = list[tuple[int, bytes]]()
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    self._note_failure(read_failure(reply)._replace(node=node), report)
                    continue
                record = reply.content.config_records.get(RECORD, ConfigRecord())
                data: Any = record.get("message", b"")
                data = data if isinstance(data, bytes) else b""
                report.bytes_up[node] = report.bytes_up.get(node, 0) + len(data)
                found.append((node, data))
            if not waiting or time.monotonic() - began > limit:
                break
            time.sleep(_POLL)
        for node in waiting.values():
            report.missing.append(node)
            told = "RecordStrategy: round %d: node %d did not answer in %.0f s"
            log(WARNING, told, report.server_round, node, limit)
        if not waiting and len(found) == len(sent):
            self._slowest = max(self._slowest, time.monotonic() - began)
        return found

    def _limit(self) -> float:
        if self._deadline is not None:
            return self._deadline
        if not self._slowest:
            return _FIRST_DEADLINE
        return max(_LEAST_DEADLINE, _SLOWEST * self._slowest)

    def _message(self, node: int, data: bytes, content: RecordDict, limit: float) -> Message:
        is_trained = self._server.is_training and kind_of(data) != Kind.ASK
        own = RecordDict(dict(content) if is_trained else {})
        own[RECORD] = ConfigRecord(
            {
                "message": data,
                "scheme": self.scheme.spec,
                "dimension": self.dimension,
                "run": self._run,
            }
        )
        return Message(own, dst_node_id=node, message_type=MessageType.TRAIN, ttl=limit)

    def _count_shares(self, sent: Mapping[int, bytes]) -> None:
        """What this exchange will cost those who answer it."""
        attempt = self._server.attempt
        if self.scheme.dropouts == "recover":
            self._shares["all"] += self._server.is_training
        elif attempt is not None and Kind.ATTEMPT in map(kind_of, sent.values()):
            self._shares.update(entry.identity.hex() for entry in attempt.entries)

    def _note_failure(self, failure: Failure, report: RoundReport) -> None:
        report.failed.append(failure)
        if failure.is_refusal and failure.code in _LASTING:
            self._refusing[failure.node] = failure
        log(WARNING, "RecordStrategy: round %d: %s", report.server_round, failure)

    def _finish(self, report: RoundReport, seconds: float) -> None:
        """Keep in the report what came of the round, and log its line."""
        server = self._server
        attempt = 0 if server.attempt is None else server.attempt.attempt
        report.entries = dict.fromkeys(server.cohort, self.dimension)
        report.epsilon = dict.fromkeys(server.cohort, self.epsilon)
        report.bytes_up = {node: report.bytes_up.get(node, 0) for node in server.cohort}
        up = sum(report.bytes_up.values())
        self._row = {
            "round": report.server_round,
            "attempt": attempt,
            "hospitals": len(server.cohort),
            "bytes": up,
            "seconds": round(seconds, 3),
            "epsilon": self.epsilon,
        }
        log(
            INFO,
            "RecordStrategy: round %d, attempt %d: %d hospitals, %s bytes up, %.1f s, ε = %.4g of "
            "%g spent for a record",
            *(report.server_round, attempt, len(server.cohort), f"{up:,}", seconds),
            *(self.epsilon, self.scheme.epsilon),
        )

    @property
    def epsilon(self) -> float:
        """ε spent so far in this run, of a record of the hospital that sent most shares."""
        shares = min(max(self._shares.values(), default=0), self.scheme.rounds)
        spent = self.scheme.spend(self.dimension, shares)
        return epsilon_of((spent,), self.scheme.delta, self.scheme.epsilon)

    def _write_down(self, number: int, metrics: MetricRecord) -> None:
        """The round's row in table and writer, with what ``evaluate_fn`` found."""
        numbers = {name: v for name, v in metrics.items() if isinstance(v, int | float)}
        row = {**self._row, **numbers}
        if self._writer is not None:
            for name, value in row.items():
                self._writer.add_scalar(f"jopeq/{name}", value, number)
        if self._table is not None:
            is_new = not self._table.exists()
            with self._table.open("a", newline="", encoding="utf-8") as file:
                rows = csv.writer(file)
                if is_new:
                    rows.writerow(row)
                rows.writerow(row.values())

    def _failure(self, text: str, code: str | None = None) -> RoundFailedError:
        log(ERROR, "RecordStrategy: %s", text)
        return RoundFailedError(text, self._history.arrays, self.reports, self._history, code)

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
            "server": self._server.state_dict(),
            "shares": dict(self._shares),
            "slowest": self._slowest,
            "reports": [
                {**asdict(report), "failed": [tuple(one) for one in report.failed]}
                for report in self.reports
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` of a strategy with the same settings returned."""
        found = state.get("format"), state.get("scheme")
        if found != (_FORMAT, self.scheme.spec):
            raise ValueError(
                f"the state is of format and scheme {found}, this strategy of "
                f"{(_FORMAT, self.scheme.spec)}: make the strategy with the same settings, or "
                "remove the checkpoint"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self._server.load_state_dict(state["server"])
        self._shares, self._slowest = Counter(state["shares"]), state["slowest"]
        self._done = state["round"]
        self.reports = [
            RoundReport(**{**one, "failed": [Failure(*f) for f in one["failed"]]})
            for one in state["reports"]
        ]


def is_plausible(total: Any, attempt: Attempt) -> bool:
    """Whether a total can be a Gaussian's: one bad share makes it uniform, which masks are.

    A quarter of uniform integers lies in the outer quarter of the ring, within six deviations;
    of few integers nothing can be said.
    """
    size = 1 << attempt.plan.bits
    centred = (total.astype(np.int64) + size // 2) % size - size // 2
    outer, count = int(np.count_nonzero(8 * np.abs(centred) >= 3 * size)), len(total)
    slack = 6.0 * math.sqrt(3.0 * count) / 4.0
    return slack >= count / 4.0 or outer < count / 4.0 - slack
