"""The server's engine: who is there, the exchange of messages, sums, reports, checkpoints.

``Rounds`` keeps the reports of any front; ``SumServer`` takes private sums.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from logging import ERROR, INFO, WARNING
from typing import Any, TypedDict

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from jopeq.circle import Attempt, CircleServer, fingerprint
from jopeq.circle.circle import Kind, kind_of
from jopeq.errors import JoPEQError, ProtocolError, TooFewClientsError
from jopeq.flower.arrays import array_bytes
from jopeq.flower.node import read_trusted
from jopeq.flower.refusals import Failure, read_failure
from jopeq.flower.tasks import RECORD, Task, digest_content
from jopeq.random.streams import fresh_seed
from jopeq.sums.record_accounting import epsilon_of
from jopeq.sums.record_plan import epsilon_left
from jopeq.sums.record_sum import ClientSum
from jopeq.sums.shares import centre, is_uniform

SPENT = "budget-spent"

_POLL, _WAIT = 0.2, 3.0  # seconds between two looks: for replies, for nodes
_FIRST_DEADLINE, _LEAST_DEADLINE, _SLOWEST = 600.0, 30.0, 3.0
_LASTING = ("settings", "limits", "model", "budget")


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
        up, down, epsilon = self.bytes_up, self.bytes_down, self.epsilon
        totals: dict[str, int | float] = {
            "clients": len(up),
            "rejected": len(self.rejected),
            "failed": len(self.failed),
            "missing": len(self.missing),
            "bytes-up": sum(up.values()),
            "bytes-down": sum(down.values()),
            "bits-per-parameter": self.bits_per_parameter,
            "epsilon": max(epsilon.values(), default=0.0),
        }
        for name, values in (("bytes-up", up), ("bytes-down", down), ("epsilon", epsilon)):
            totals |= {f"{name}/{node}": value for node, value in sorted(values.items())}
        return MetricRecord({f"jopeq-{name}": value for name, value in totals.items()})


class RoundFailedError(JoPEQError):
    """No client's reply could be used. ``code`` is ``budget-spent`` where clients cannot pay more.

    It carries the model the round began with (``arrays``), the ``reports`` of all rounds, and the
    ``history`` that ``start`` would have returned of the rounds before.
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


class Rounds:
    """Reports of all rounds, the history, and the nodes that will not take part.

    ``name`` speaks in the log. After refusals of ``lasting`` codes, and where a budget is spent, a
    node is not asked again.
    """

    def __init__(self, name: str, lasting: Collection[str] = ()) -> None:
        self.name, self._lasting = name, {*lasting, SPENT}
        self.reports: list[RoundReport] = []
        self.history = Result()
        self.refusing: dict[int, Failure] = {}

    @property
    def report(self) -> RoundReport:
        return self.reports[-1]

    def able(self, grid: Grid, least: int) -> list[int]:
        """The nodes that may take part.

        ``RoundFailedError`` where so many refuse that waiting for ``least`` others is in vain.
        """
        there, least = set(grid.get_node_ids()), max(1, least)
        for node in self.refusing.keys() - there:
            if self.refusing[node].code != SPENT:
                del self.refusing[node]
        able = sorted(there - self.refusing.keys())
        if len(able) < least <= len(there):
            refusing = [one for node, one in self.refusing.items() if node in there]
            told = f"{len(able)} nodes are left and {least} are needed: "
            is_spent = len(there) - sum(one.code != SPENT for one in refusing) >= least
            code = SPENT if is_spent else None
            raise self.failure(told + "; ".join(map(str, refusing)), code)
        return able

    def note_missing(self, nodes: Iterable[int]) -> None:
        for node in sorted(nodes):
            self.report.missing.append(node)
            number = self.report.server_round
            self.warn("left out of round %d: node %d did not answer", number, node)

    def read(self, reply: Message, node: int | None = None) -> bool:
        """True if a reply has content; an error is written down.

        Flower may answer for several nodes under one id: ``node`` says whose message it answers.
        """
        if not reply.has_error():
            return True
        failure = read_failure(reply)
        failure = failure if node is None else failure._replace(node=node)
        self.report.failed.append(failure)
        if failure.is_refusal and failure.code in self._lasting:
            self.refusing[failure.node] = failure
        self.warn("left out of round %d: %s", self.report.server_round, failure)
        return False

    def warn(self, text: str, *values: object) -> None:
        log(WARNING, f"{self.name}: {text}", *values)

    def failure(self, text: str, code: str | None = None) -> RoundFailedError:
        """An error that carries all reports, once it is logged."""
        log(ERROR, "%s: %s", self.name, text)
        return RoundFailedError(text, self.history.arrays, self.reports, self.history, code)

    def end(self, error: RoundFailedError) -> Result:
        """Return the run when too few can pay for another round; other errors are raised."""
        if error.code != SPENT:
            raise error
        self.warn("the run ends here, with the last model: %s", error)
        return self.history

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        told = [{**asdict(one), "failed": [tuple(f) for f in one.failed]} for one in self.reports]
        spent = [tuple(one) for one in self.refusing.values() if one.code == SPENT]
        return {"reports": told, "unable": spent}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.reports[:] = [RoundReport(**one) for one in state["reports"]]
        for report in self.reports:
            report.failed = [Failure(*one) for one in report.failed]
        self.refusing = {one[0]: Failure(*one) for one in state["unable"]}


class SumOptions(TypedDict, total=False):
    """Whom a server of sums asks.

    Attributes
    ----------
    trusted : Optional[path]
        File with the public keys of all clients, in hexadecimal, one a line. It is read before
        each round: clients may join and leave.
    unsigned : bool
        For simulations, instead of ``trusted``: anybody takes part.
    min_available_nodes : Optional[int]
        Nodes that a round waits for, by default ``scheme.threshold``.
    deadline : Optional[float]
        Seconds that an exchange waits for replies. By default three times the slowest that had all
        of them, 30 at least; 600 for the first.
    """

    trusted: str | os.PathLike[str] | None
    unsigned: bool
    min_available_nodes: int | None
    deadline: float | None


class SumServer(Rounds):
    """Asks clients for the sums of one task; ``name`` is of whom the log speaks."""

    def __init__(
        self,
        task: Task,
        name: str,
        *,
        trusted: str | os.PathLike[str] | None = None,
        unsigned: bool = False,
        min_available_nodes: int | None = None,
        deadline: float | None = None,
    ) -> None:
        super().__init__(name, _LASTING)
        scheme = task.scheme
        if unsigned == (trusted is not None):
            raise ValueError(
                f"trusted must name the file of public keys, got {trusted!r}, or unsigned=True"
            )
        least = scheme.threshold if min_available_nodes is None else min_available_nodes
        if not scheme.threshold <= least <= scheme.clients:
            bounds = f"threshold={scheme.threshold} to clients={scheme.clients}"
            raise ValueError(f"min_available_nodes must be from {bounds}, got {least}")
        if deadline is not None and not 0.0 < deadline < math.inf:
            raise ValueError(f"deadline must be a number of seconds above 0, got {deadline!r}")
        self.task, self._least, self._deadline = task, least, deadline
        self._unsigned, self._file = unsigned, trusted
        self._trusted = read_trusted(trusted)
        self.server = self._new_server()
        self.row: dict[str, float] = {}  # the last round in numbers
        self.beside: list[SumServer] = []  # sums of the same run, whose shares ε counts too
        self.keep: Callable[[], object] = lambda: None
        """Called when shares were counted, before their messages leave: a killed server must
        remember them."""
        self._shares: Counter[str] = Counter()  # charged to each client
        self._covers: dict[int, int] = {}  # rounds that each node's ledger pays for
        self._slowest = 0.0

    def _new_server(self) -> CircleServer:
        terms = self.task.terms(unsigned=self._unsigned)
        return CircleServer(terms, trusted=self._trusted, is_plausible=is_plausible)

    def take(self, dimension: int) -> None:
        """Sum vectors of this dimension from now on."""
        if dimension != self.task.dimension:
            self.task = replace(self.task, dimension=dimension)
            self.server = self._new_server()

    def announce(self) -> None:
        """Log whom the sums are safe from."""
        if self._file is not None:
            told = "%s: fingerprint of the trusted hospitals: %s"
            log(INFO, told, self.name, fingerprint(self._trusted))
        else:
            left = epsilon_left(self.task.mechanism, self.task.dimension, 1)
            self.warn("unsigned: ε = %.3g against a server that invents clients", left)

    def sum(self, grid: Grid, content: RecordDict, *, number: int, timeout: float) -> NDArray[Any]:
        """Exchange messages until the sum is there, and decode it.

        ``content`` comes with every message that makes clients compute.
        """
        hashed = digest_content(content, self.task.kind)
        began, tries = time.monotonic(), 0
        self.reports.append(RoundReport(number, self.task.scheme.spec))
        while True:
            nodes, charged = self._nodes(grid, began + timeout), self._shares.total()
            try:
                messages = self.server.start(nodes, round_number=number, content=hashed)
                while messages:
                    found = self._exchange(grid, messages, content)
                    messages = self.server.step(found, done=self.refusing.keys())
                break
            except TooFewClientsError as error:  # nothing was opened: wait for clients
                self.warn("round %d: %s", number, error)
                tries += self._shares.total() > charged
                if tries >= self.task.attempts or time.monotonic() > began + timeout:
                    self.able(grid, self._least)  # which knows why
                    raise self.failure(f"round {number}: {error}") from error
                time.sleep(_WAIT)
            except ProtocolError as error:
                why = "clients vanish or lie, or largest_mean (rounds of a survey) is too small"
                raise self.failure(f"round {number}: {error}; {why}") from error
            finally:
                self.report.rejected |= self.server.refused
        self._finish(time.monotonic() - began)
        total, attempt, cohort = self.server.total, self.server.attempt, self.server.cohort
        if total is None or attempt is None:
            raise ProtocolError("no sum is open")
        given = {"dimension": self.task.dimension, "clients": len(cohort)}
        return self.task.scheme.decode(total, seed=attempt.seed, **given)

    def _nodes(self, grid: Grid, until: float) -> list[int]:
        """The nodes to ask, once there are enough: random ones for a ``ClientSum``.

        Hospitals of the last cohort come first: they have sent their keys.
        """
        told, most = 0.0, self.task.scheme.clients
        while True:
            self._follow_list()
            able = self.able(grid, self._least)
            if len(able) >= self._least:
                if isinstance(self.task.scheme, ClientSum):
                    return sorted(able, key=lambda _: fresh_seed())[:most]
                last = self.server.cohort
                return sorted(able, key=lambda node: node not in last)[:most]
            if time.monotonic() > until:
                raise self.failure(f"{len(able)} nodes came and {self._least} are needed")
            if time.monotonic() - told > 10.0:
                told = time.monotonic()
                log(INFO, "%s: %d of %d nodes are there", self.name, len(able), self._least)
            time.sleep(_WAIT if told else 0.0)

    def _follow_list(self) -> None:
        """Read the list of trusted hospitals again: hospitals come and go."""
        found = read_trusted(self._file)
        if found != self._trusted:
            told = "the list of trusted hospitals has changed: %d new, %d gone, fingerprint now %s"
            new, gone = len(found - self._trusted), len(self._trusted - found)
            self.warn(told, new, gone, fingerprint(found))
            before, self._trusted = self.server, found
            self.server = self._new_server()
            self.server.load_state_dict(before.state_dict())

    def _exchange(
        self, grid: Grid, sent: dict[int, bytes], content: RecordDict
    ) -> list[tuple[int, bytes]]:
        """Send each message, and collect the answers that come in time."""
        began, down, limit = time.monotonic(), self.report.bytes_down, self._deadline
        if limit is None:
            slowest = max(_LEAST_DEADLINE, _SLOWEST * self._slowest)
            limit = slowest if self._slowest else _FIRST_DEADLINE
        self._count_shares(sent)
        messages, given, size = [], self.task.offer, array_bytes(content)
        for node, data in sent.items():
            is_trained = self.server.is_training and kind_of(data) != Kind.ASK
            own = RecordDict(dict(content) if is_trained else {})
            own[RECORD] = record = ConfigRecord({"message": data, **given})
            if not is_trained:  # lists that differ are told before anybody has paid
                record["trusted"] = b"".join(sorted(self._trusted))
            down[node] = down.get(node, 0) + len(data) + size * is_trained
            kind = self.task.kind
            messages.append(Message(own, dst_node_id=node, message_type=kind, ttl=limit))
        waiting = dict(zip(grid.push_messages(messages), sent, strict=True))
        found = list[tuple[int, bytes]]()
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if self.read(reply, node):
                    found.append((node, self._read_record(node, reply)))
            if not waiting or time.monotonic() - began > limit:
                break
            time.sleep(_POLL)
        self.note_missing(waiting.values())
        if not waiting and len(found) == len(sent):
            self._slowest = max(self._slowest, time.monotonic() - began)
        return found

    def _read_record(self, node: int, reply: Message) -> bytes:
        """The circle's bytes of a reply; note what the node says of its ledger."""
        record = reply.content.config_records.get(RECORD, ConfigRecord())
        data, covers = record.get("message", b""), record.get("covers")
        if isinstance(covers, int):
            planned = self.task.scheme.rounds
            if node not in self._covers and covers < planned:
                self.warn("node %d: its ledger covers %d of %d rounds", node, covers, planned)
            self._covers[node] = covers
            if covers < 1:
                told = "its ledger covers no more rounds"
                self.refusing[node] = Failure(node, "SumMod", SPENT, told)
        data = data if isinstance(data, bytes) else b""
        up = self.report.bytes_up
        up[node] = up.get(node, 0) + len(data)
        return data

    def _count_shares(self, sent: Mapping[int, bytes]) -> None:
        """Count the shares that this exchange will cost those who answer it."""
        attempt, before = self.server.attempt, self._shares.total()
        if self.task.scheme.dropouts == "recover":
            self._shares.update(map(str, sent) if self.server.is_training else ())
        elif attempt is not None and Kind.ATTEMPT in map(kind_of, sent.values()):
            self._shares.update(entry.identity.hex() for entry in attempt.entries)
        if self._shares.total() > before:
            for one in self.beside:  # of the keys they sent the serials are old now
                one.server.forget(sent)
            self.keep()

    def _finish(self, seconds: float) -> None:
        """Keep in the report what came of the round, and log its line."""
        report, scheme, cohort = self.report, self.task.scheme, self.server.cohort
        attempt = 0 if self.server.attempt is None else self.server.attempt.attempt
        report.entries = dict.fromkeys(cohort, self.task.dimension)
        report.epsilon = dict.fromkeys(cohort, epsilon := self.epsilon)
        report.bytes_up = {node: report.bytes_up.get(node, 0) for node in cohort}
        up = sum(report.bytes_up.values())
        self.row = {
            "round": report.server_round,
            "attempt": attempt,
            "hospitals": len(cohort),
            "bytes": up,
            "seconds": round(seconds, 3),
            "epsilon": epsilon,
        }
        told = "%s: round %d, attempt %d: %d clients, %s bytes up, %.1f s, ε = %.4g of %g spent"
        numbers = self.name, report.server_round, attempt, len(cohort), f"{up:,}", seconds
        log(INFO, f"{told} for a %s", *numbers, epsilon, scheme.epsilon, scheme.guarantee.unit)

    @property
    def epsilon(self) -> float:
        """ε spent so far in this run, at the client that sent most shares."""
        scheme = self.task.scheme
        tasks = [(one.task, one.shares) for one in (self, *self.beside)]
        spent = [task.scheme.spend(task.dimension, shares) for task, shares in tasks]
        return epsilon_of(spent, scheme.delta, scheme.epsilon)

    @property
    def shares(self) -> int:
        """Charged to the client that sent most."""
        return min(max(self._shares.values(), default=0), self.task.scheme.rounds)

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "server": self.server.state_dict(),
            "shares": dict(self._shares),
            "slowest": self._slowest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict``; the list of trusted hospitals may have changed since."""
        super().load_state_dict(state)
        self.server.load_state_dict(state["server"])
        self._shares, self._slowest = Counter(state["shares"]), state["slowest"]


def is_plausible(total: Any, attempt: Attempt) -> bool:
    """True if a total can be a Gaussian's: one bad share makes it uniform, which masks are."""
    bits, length = attempt.plan.bits, attempt.plan.length
    return not is_uniform(centre(total, bits, length), bits)
