"""The file that keeps a client's ledger inside Flower."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log

from jopeq.errors import BudgetExceededError
from jopeq.files import alone, own_folder
from jopeq.flower.node import read_node
from jopeq.ledger import Ledger

MARK = "jopeq-ledger"
"""Key of the record in Flower's state that holds the rounds which the ledger's file must know."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ε over all rounds, at δ, and the file that keeps the ledger of a client.

    A file at ``path`` must exist (``jopeq ledger init``). Without one, a file in Flower's home of
    the node is made when it is first used, unless it ``is_required`` (``jopeq-ledger-required``). A
    deleted ledger must not count as an unspent one: a second file next to it, and Flower's state
    during a run, remember that it was there. A lost home, or a new container, takes all three
    along: only a required ledger notices that.

    Flower's state could not hold the ledger: a SuperNode may answer many messages at once, each
    with a copy of that state, and a killed process loses its copy. ``keeps_its_own`` accepts
    whatever budget a file at ``path`` has: the ledger of a data set outlives runs.
    """

    epsilon: float
    delta: float = 0.0
    path: str | os.PathLike[str] | None = None
    client: str = "client"
    is_required: bool = False
    keeps_its_own: bool = False

    @property
    def file(self) -> Path:
        """The ledger's file without links, so that every path to the file has the same lock."""
        if self.path is not None:
            return Path(self.path).resolve()
        home = Path(os.environ.get("FLWR_HOME") or "~/.flwr").expanduser()
        return own_folder(home / "jopeq" / "ledgers") / f"{self.client}.json"

    @contextmanager
    def opened(self, state: RecordDict) -> Iterator[Ledger]:
        """The ledger as the last message left it, locked: two messages cannot both spend the rest.

        ``state`` is Flower's, which remembers how many rounds the file has seen.
        """
        file = self.file
        with alone(file.with_name(f".{file.name}.lock")):
            least = int(str(state.config_records.get(MARK, ConfigRecord()).get("rounds", 0)))
            if self.path is None:
                self._make(file, is_new=not least)
            found = Ledger.load(file)
            if found.rounds < least:
                raise BudgetExceededError(
                    f"{file} knows {found.rounds} rounds and this run alone has had {least}: an "
                    "older copy has taken its place; restore the newest one",
                    code="ledger-lost",
                )
            is_same = (found.budget, found.delta) == (self.epsilon, self.delta)
            if not (is_same or (self.keeps_its_own and self.path is not None)):
                raise BudgetExceededError(
                    f"this client's ledger {file} was opened with budget {found.budget:g} at δ = "
                    f"{found.delta:g}, its settings now say {self.epsilon:g} at δ = "
                    f"{self.delta:g}: keep the budget, or start a new ledger knowingly; nothing "
                    "was sent",
                    code="ledger-settings",
                )
            yield found

    def keep(self, ledger: Ledger, state: RecordDict) -> None:
        """Write down what was charged to the opened ledger, before anything is sent."""
        ledger.save(self.file)
        state[MARK] = ConfigRecord({"rounds": ledger.rounds})

    def _make(self, file: Path, *, is_new: bool) -> None:
        """Make the client's own file, if the client has never had one."""
        mark = file.with_name(f".{file.name}.made")
        if not file.exists():
            if mark.exists() or not is_new:
                raise BudgetExceededError(
                    f"the ledger {file} is gone, and with it what this client has spent: restore "
                    f"it from a backup; if it has spent nothing, remove {mark} too",
                    code="ledger-lost",
                )
            if self.is_required:
                raise BudgetExceededError(
                    f"there is no ledger {file} and jopeq-ledger-required is true: restore it from "
                    "a backup, or mount its volume; for a client that has spent nothing, make it "
                    "by `jopeq ledger init`",
                    code="ledger-missing",
                )
            Ledger.create(file, self.epsilon, self.delta)
            log(
                WARNING,
                "JoPEQ: this client had no ledger. A new one, %s, starts a budget of ε = %g for "
                "all rounds anew. If the client has taken part before, stop it and restore the "
                "old file; jopeq-ledger-required=true refuses to make one",
                file,
                self.epsilon,
            )
        mark.touch()


def budget_of(
    node: Mapping[str, Any], config: Mapping[str, Any], code: Budget | None
) -> Budget | None:
    """The budget of a node's configuration, which wins over the one that the app's code gives.

    With ``jopeq-budget`` nothing of the code's budget is left, neither its δ nor its file. Clients
    of one home without a name of their own share one ledger, which counts too much rather than too
    little. Node ids are no names: the server gives them out.
    """
    found = Budget(epsilon=node["budget"]) if "budget" in node else code
    if found is None:
        if "budget-delta" in node or "ledger" in node:
            raise ValueError("jopeq-budget-delta and jopeq-ledger need jopeq-budget: set it too")
        return None
    at = config.get("partition-id")
    return Budget(
        epsilon=found.epsilon,
        delta=node.get("budget-delta", found.delta),
        path=node.get("ledger", found.path),
        client=node.get("client", "client" if at is None else f"partition-{at}"),
        is_required=node.get("ledger-required", False),
        keeps_its_own=found.keeps_its_own,
    )


def ledger_file(config: Mapping[str, Any]) -> Path:
    """Where the ledger of a node with this configuration is."""
    own = Budget(epsilon=1.0)
    return (budget_of(read_node(config), config, own) or own).file
