"""``CircleGrid``: the server's end of a circle of hospitals over Flower's grid, for one sum.

Training and surveys share it: messages out, replies in time, refusals, missing hospitals, and what
every attempt costs. The client's end is ``RecordMod``.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from logging import ERROR, INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from jopeq.circle import Attempt, CircleServer
from jopeq.circle.circle import Kind, kind_of
from jopeq.errors import ProtocolError, TooFewClientsError
from jopeq.flower.record_mod import RECORD, Task, digest_content
from jopeq.flower.refusals import Failure, read_failure
from jopeq.flower.sum_mod import read_trusted
from jopeq.flower.wrapper import RoundFailedError, RoundReport, array_bytes
from jopeq.sums.record_accounting import RecordRounds, epsilon_of
from jopeq.sums.shares import centre, is_uniform

_POLL, _WAIT = 0.2, 3.0  # seconds between two looks: for replies, for nodes
_FIRST_DEADLINE, _LEAST_DEADLINE, _SLOWEST = 600.0, 30.0, 3.0
_LASTING = ("settings", "limits", "model", "budget", "budget-spent")


class CircleGrid:
    """Asks hospitals for the sums of one task.

    ``reports`` has a ``RoundReport`` for each round. ``history`` is what a ``RoundFailedError``
    carries beside them.

    Parameters
    ----------
    task : Task
        What is summed; the same as the clients'.
    name : str
        Of whom the log speaks.
    trusted, unsigned, min_available_nodes, deadline
        As for ``RecordStrategy``.
    """

    def __init__(
        self,
        task: Task,
        *,
        name: str,
        trusted: str | os.PathLike[str] | None,
        unsigned: bool,
        min_available_nodes: int | None,
        deadline: float | None,
    ) -> None:
        scheme = task.scheme
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
        self._task, self._name, self._least, self._deadline = task, name, least, deadline
        self.server = CircleServer(
            task.terms(unsigned=unsigned),
            trusted=read_trusted(trusted),
            is_plausible=is_plausible,
        )
        self.reports: list[RoundReport] = []
        self.history = Result()
        self.row: dict[str, float] = {}
        """The last round in numbers."""
        self.beside: list[CircleGrid] = []
        """Circles of the same run, whose shares ε counts too."""
        self.keep: Callable[[], object] = lambda: None
        """Called when shares were counted, before their messages leave: a server that is killed
        meanwhile must remember them."""
        self._shares: Counter[str] = Counter()  # charged to each identity
        self._refusing: dict[int, Failure] = {}  # nodes that will not take part, and why
        self._slowest = 0.0

    def sum(
        self, grid: Grid, content: RecordDict, *, number: int, timeout: float
    ) -> NDArray[np.float64]:
        """Exchange messages until the hospitals' sum is there; its mean row.

        ``content`` comes with every message that makes hospitals compute.
        """
        hashed = digest_content(content, self._task.message_type)
        report, began = RoundReport(number, self._task.scheme.spec), time.monotonic()
        self.reports.append(report)
        tries, until = 0, began + timeout
        while True:
            nodes, charged = self._nodes(grid, until), self._shares.total()
            try:
                messages = self.server.start(nodes, round_number=number, content=hashed)
                while messages:
                    messages = self.server.step(self._exchange(grid, messages, content, report))
                break
            except TooFewClientsError as error:  # nothing was opened: wait for hospitals
                log(WARNING, "%s: round %d: %s", self._name, number, error)
                tries += self._shares.total() > charged
                if tries >= self.server.terms.attempts or time.monotonic() > until:
                    self._able(grid)
                    raise self.failure(f"round {number}: {error}") from error
                time.sleep(_WAIT)
            except ProtocolError as error:
                raise self.failure(
                    f"round {number}: {error}; look for hospitals that vanish or send garbage, or "
                    "raise largest_mean of the scheme (attempts of a survey)"
                ) from error
            finally:
                report.rejected |= self.server.refused
        self._finish(report, time.monotonic() - began)
        return self._decode()

    def _decode(self) -> NDArray[np.float64]:
        server = self.server
        if server.total is None or server.attempt is None:
            raise ProtocolError("no sum is open")
        return self._task.scheme.decode(
            server.total,
            seed=server.attempt.seed,
            dimension=self._task.dimension,
            clients=len(server.cohort),
        )

    def _nodes(self, grid: Grid, until: float) -> list[int]:
        """The nodes to ask, once there are enough of them."""
        told = 0.0
        while True:
            able = self._able(grid)
            if len(able) >= self._least:
                return able[: self._task.scheme.clients]
            if time.monotonic() > until:
                raise self.failure(f"{len(able)} hospitals came and {self._least} are needed")
            if time.monotonic() - told > 10.0:
                told = time.monotonic()
                log(INFO, "%s: %d of %d hospitals are there", self._name, len(able), self._least)
            time.sleep(_WAIT if told else 0.0)

    def _able(self, grid: Grid) -> list[int]:
        """The nodes that may take part, those of the last cohort first.

        ``RoundFailedError`` where others are there, and too many of them refuse.
        """
        there = set(grid.get_node_ids())
        self._refusing = {n: f for n, f in self._refusing.items() if n in there}
        able = sorted(there - self._refusing.keys(), key=lambda n: n not in self.server.cohort)
        lasting = list(self._refusing.values())
        if lasting and len(able) < self._least <= len(there):
            others = [f for f in lasting if f.code != "budget-spent"]
            is_spent = len(there) - len(others) >= self._least
            listed = "; ".join(map(str, lasting))
            raise self.failure(
                f"{len(able)} hospitals are left and {self._least} are needed: {listed}",
                "budget-spent" if is_spent else None,
            )
        return able

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
            told = "%s: round %d: node %d did not answer in %.0f s"
            log(WARNING, told, self._name, report.server_round, node, limit)
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
        is_trained = self.server.is_training and kind_of(data) != Kind.ASK
        own = RecordDict(dict(content) if is_trained else {})
        own[RECORD] = ConfigRecord({"message": data, **self._task.offer})
        return Message(own, dst_node_id=node, message_type=self._task.message_type, ttl=limit)

    def _count_shares(self, sent: Mapping[int, bytes]) -> None:
        """What this exchange will cost those who answer it."""
        attempt = self.server.attempt
        before = self._shares.total()
        if self._task.scheme.dropouts == "recover":
            self._shares["all"] += self.server.is_training
        elif attempt is not None and Kind.ATTEMPT in map(kind_of, sent.values()):
            self._shares.update(entry.identity.hex() for entry in attempt.entries)
        if self._shares.total() > before:
            self.keep()

    def _note_failure(self, failure: Failure, report: RoundReport) -> None:
        report.failed.append(failure)
        if failure.is_refusal and failure.code in _LASTING:
            self._refusing[failure.node] = failure
        log(WARNING, "%s: round %d: %s", self._name, report.server_round, failure)

    def _finish(self, report: RoundReport, seconds: float) -> None:
        """Keep in the report what came of the round, and log its line."""
        server = self.server
        attempt = 0 if server.attempt is None else server.attempt.attempt
        report.entries = dict.fromkeys(server.cohort, self._task.dimension)
        report.epsilon = dict.fromkeys(server.cohort, self.epsilon)
        report.bytes_up = {node: report.bytes_up.get(node, 0) for node in server.cohort}
        up = sum(report.bytes_up.values())
        self.row = {
            "round": report.server_round,
            "attempt": attempt,
            "hospitals": len(server.cohort),
            "bytes": up,
            "seconds": round(seconds, 3),
            "epsilon": self.epsilon,
        }
        log(
            INFO,
            "%s: round %d, attempt %d: %d hospitals, %s bytes up, %.1f s, ε = %.4g of %g spent for "
            "a record",
            *(self._name, report.server_round, attempt, len(server.cohort), f"{up:,}", seconds),
            *(self.epsilon, self._task.scheme.epsilon),
        )

    @property
    def epsilon(self) -> float:
        """ε spent so far in this run, of a record of the hospital that sent most shares."""
        spent = [circle.spent for circle in (self, *self.beside)]
        return epsilon_of(spent, self._task.scheme.delta, self._task.scheme.epsilon)

    @property
    def shares(self) -> int:
        """Charged to the hospital that sent most."""
        return min(max(self._shares.values(), default=0), self._task.scheme.rounds)

    @property
    def spent(self) -> RecordRounds:
        """These shares, as the accountant composes them."""
        return self._task.scheme.spend(self._task.dimension, self.shares)

    def failure(self, text: str, code: str | None = None) -> RoundFailedError:
        """An error that carries all reports, once it is logged."""
        log(ERROR, "%s: %s", self._name, text)
        return RoundFailedError(text, self.history.arrays, self.reports, self.history, code)

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """All that a later run needs, in plain values."""
        return {
            "server": self.server.state_dict(),
            "shares": dict(self._shares),
            "slowest": self._slowest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict``; other keys are left alone."""
        self.server.load_state_dict(state["server"])
        self._shares, self._slowest = Counter(state["shares"]), state["slowest"]


def is_plausible(total: Any, attempt: Attempt) -> bool:
    """Whether a total can be a Gaussian's: one bad share makes it uniform, which masks are."""
    bits, length = attempt.plan.bits, attempt.plan.length
    return not is_uniform(centre(total, bits, length, length), bits)
