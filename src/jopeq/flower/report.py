"""What a server tells of its rounds, and how a run ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from logging import ERROR, WARNING
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from jopeq.errors import JoPEQError
from jopeq.flower.refusals import Failure, read_failure

SPENT = "budget-spent"


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


class Rounds:
    """Reports of all rounds, the history, and the nodes that will not take part.

    Parameters
    ----------
    name : str
        Of whom the log speaks.
    lasting : Collection[str]
        Codes of refusals after which a node is not asked again. A spent budget always is one.
    """

    def __init__(self, name: str, lasting: Collection[str] = ()) -> None:
        self.name, self._lasting = name, {*lasting, SPENT}
        self.reports: list[RoundReport] = []
        self.history = Result()
        self.refusing: dict[int, Failure] = {}

    @property
    def report(self) -> RoundReport:
        """The last round's."""
        return self.reports[-1]

    def able(self, grid: Grid, least: int) -> list[int]:
        """The nodes that may take part.

        ``RoundFailedError`` where so many refuse that waiting for ``least`` others is in vain.
        """
        there = set(grid.get_node_ids())
        self.refusing = {
            n: one for n, one in self.refusing.items() if n in there or one.code == SPENT
        }
        able = sorted(there - self.refusing.keys())
        if len(able) < max(1, least) <= len(there):
            refusing = [one for n, one in self.refusing.items() if n in there]
            is_spent = len(there) - sum(one.code != SPENT for one in refusing) >= least
            raise self.failure(
                f"{len(able)} nodes are left and {max(1, least)} are needed: "
                f"{'; '.join(map(str, refusing))}",
                SPENT if is_spent else None,
            )
        return able

    def note_failed(self, failure: Failure) -> None:
        """Write an error reply down, and whether its node will be asked again."""
        self.report.failed.append(failure)
        if failure.is_refusal and failure.code in self._lasting:
            self.refusing[failure.node] = failure
        self.warn("left out of round %d: %s", self.report.server_round, failure)

    def note_missing(self, asked: Iterable[int], replies: Collection[Message]) -> None:
        """Name the nodes that did not answer."""
        answered = {reply.metadata.src_node_id for reply in replies}
        for node in sorted(set(asked) - answered):
            self.report.missing.append(node)
            self.warn(
                "left out of round %d: node %d did not answer", self.report.server_round, node
            )

    def read(self, reply: Message, node: int | None = None) -> bool:
        """Whether a reply has content; an error is written down.

        Flower may answer for several nodes under one id.
        """
        if not reply.has_error():
            return True
        failure = read_failure(reply)
        self.note_failed(failure if node is None else failure._replace(node=node))
        return False

    def warn(self, text: str, *values: object) -> None:
        """Log a warning."""
        log(WARNING, f"{self.name}: {text}", *values)

    def failure(self, text: str, code: str | None = None) -> RoundFailedError:
        """An error that carries all reports, once it is logged."""
        log(ERROR, "%s: %s", self.name, text)
        return RoundFailedError(text, self.history.arrays, self.reports, self.history, code)

    def end(self, error: RoundFailedError) -> Result:
        """What a run returns when too few can pay for another round; other errors are raised."""
        if error.code != SPENT:
            raise error
        self.warn("the run ends here, with the last model: %s", error)
        return self.history

    # To disk and back

    def state_dict(self) -> dict[str, Any]:
        """Reports, and who cannot pay, in plain values."""
        return {
            "reports": [
                {**asdict(report), "failed": [tuple(one) for one in report.failed]}
                for report in self.reports
            ],
            "unable": [tuple(one) for one in self.refusing.values() if one.code == SPENT],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict``."""
        self.reports[:] = [
            RoundReport(**{**one, "failed": [Failure(*f) for f in one["failed"]]})
            for one in state["reports"]
        ]
        self.refusing = {one.node: one for one in (Failure(*f) for f in state["unable"])}
