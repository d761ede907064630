"""The budget of a client inside Flower, and the file that keeps its ledger."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log

from jopeq.errors import BudgetExceededError
from jopeq.files import alone, own_folder
from jopeq.flower.settings import read
from jopeq.ledger import Ledger

MARK = "jopeq-ledger"
"""Key of the record in Flower's state that holds the rounds which the ledger's file must know."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ε over all rounds, at δ. A file keeps the ledger of a client: ``path``, or its own.

    A file at ``path`` must exist (``jopeq ledger init``). The client's own lies in Flower's home of
    the node and is made when it is first used, unless it ``is_required``
    (``jopeq-ledger-required``). A deleted ledger must not count as an unspent one: a second file
    beside it, and Flower's state during a run, remember that it was there. A lost home, or a new
    container, takes all three along: only a required ledger notices that.

    Flower's state could not hold the ledger: a SuperNode may answer many messages at once, each
    with a copy of that state, and a killed process loses its copy.
    """

    epsilon: float
    delta: float = 0.0
    path: str | os.PathLike[str] | None = None
    client: str = "client"
    is_required: bool = False

    def __post_init__(self) -> None:
        Ledger(self.epsilon, self.delta)  # refuses impossible numbers

    def of_node(self, config: Mapping[str, Any]) -> Budget:
        """The budget with the file that the node's configuration names or stands for."""
        given = read(config)
        path = given.get("ledger", self.path)
        is_required = given.get("ledger-required", False)
        if not isinstance(is_required, bool):
            raise ValueError(f"jopeq-ledger-required must be true or false, got {is_required!r}")
        return replace(self, path=path, client=client_name(config), is_required=is_required)

    @property
    def file(self) -> Path:
        """The ledger's file without links, so that every path to the file has the same lock."""
        if self.path is not None:
            return Path(self.path).resolve()
        home = Path(os.environ.get("FLWR_HOME") or "~/.flwr").expanduser()
        return own_folder(home / "jopeq" / "ledgers") / f"{self.client}.json"

    @contextmanager
    def opened(self, state: RecordDict) -> Iterator[Ledger]:
        """The ledger as the last message left it, written down when the block succeeds.

        The file is locked meanwhile: two messages cannot both spend what is left.
        """
        with self.alone():
            found = self.open(state)
            yield found
            self.keep(found, state)

    def alone(self) -> AbstractContextManager[None]:
        """The lock of the ledger's file."""
        return alone(self.file.with_name(f".{self.file.name}.lock"))

    def open(self, state: RecordDict) -> Ledger:
        """The ledger as the file has it.

        ``state`` is Flower's, which remembers how many rounds the file has seen.
        """
        least = int(str(state.config_records.get(MARK, ConfigRecord()).get("rounds", 0)))
        if self.path is None:
            self._make(is_new=not least)
        found = Ledger.load(self.file)
        if found.rounds < least:
            raise BudgetExceededError(
                f"{self.file} knows {found.rounds} rounds and this run alone has had {least}: an "
                "older copy has taken its place; restore the newest one",
                code="ledger-lost",
            )
        return self._check(found)

    def _make(self, *, is_new: bool) -> None:
        """Make the client's own file, if the client has never had one."""
        mark = self.file.with_name(f".{self.file.name}.made")
        if not self.file.exists():
            if mark.exists() or not is_new:
                raise BudgetExceededError(
                    f"the ledger {self.file} is gone, and with it what this client has spent: "
                    f"restore it from a backup; if it has spent nothing, remove {mark} too",
                    code="ledger-lost",
                )
            if self.is_required:
                raise BudgetExceededError(
                    f"there is no ledger {self.file} and jopeq-ledger-required is true: restore it "
                    "from a backup, or mount its volume; for a client that has spent nothing, make "
                    "it by `jopeq ledger init`",
                    code="ledger-missing",
                )
            Ledger.create(self.file, self.epsilon, self.delta)
            log(
                WARNING,
                "JoPEQ: this client had no ledger. A new one, %s, starts a budget of ε = %g for "
                "all rounds anew. If the client has taken part before, stop it and restore the "
                "old file; jopeq-ledger-required=true refuses to make one",
                self.file,
                self.epsilon,
            )
        mark.touch()

    def keep(self, ledger: Ledger, state: RecordDict) -> None:
        """Write the ledger down."""
        ledger.save(self.file)
        state[MARK] = ConfigRecord({"rounds": ledger.rounds})

    def _check(self, found: Ledger) -> Ledger:
        if (found.budget, found.delta) != (self.epsilon, self.delta):
            raise BudgetExceededError(
                f"this client's ledger {self.file} was opened with budget {found.budget:g} at δ = "
                f"{found.delta:g}, its settings now say {self.epsilon:g} at δ = {self.delta:g}: "
                "keep the budget, or start a new ledger knowingly; nothing was sent",
                code="ledger-settings",
            )
        return found


def client_name(config: Mapping[str, Any]) -> str:
    """Whose ledger it is: ``jopeq-client`` of the node's configuration, else its partition.

    Clients of one home without a name of their own share one ledger, which counts too much rather
    than too little. Node ids are no names: the server gives them out.
    """
    name = str(config.get("jopeq-client", ""))
    if not name:
        return f"partition-{config['partition-id']}" if "partition-id" in config else "client"
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise ValueError(
            f"jopeq-client must consist of letters, digits, '_', '.' and '-', got {name!r}"
        )
    return name


def budget_from(config: Mapping[str, Any], code: Budget | None) -> Budget | None:
    """The budget of a node's configuration, which wins over the one that the app's code gives.

    With ``jopeq-budget`` nothing of the code's budget is left, neither its δ nor its file.
    """
    node = read(config)
    budget = Budget(epsilon=float(str(node["budget"]))) if "budget" in node else code
    if budget is not None:
        delta = float(str(node.get("budget-delta", budget.delta)))
        return replace(budget, delta=delta).of_node(config)
    if "budget-delta" in node or "ledger" in node:
        raise ValueError("jopeq-budget-delta and jopeq-ledger need jopeq-budget: set it too")
    return None


def refuse_budget(node: Mapping[str, Any]) -> None:
    """Refuse ``jopeq-budget`` where the ledger's file has the budget: nothing is ignored."""
    for key in ("budget", "budget-delta"):
        if key in node:
            raise ValueError(
                f"jopeq-{key} is {node[key]!r}, and a sum takes its budget from the ledger: leave "
                "the key out, and name in jopeq-ledger a file of `jopeq ledger init --budget ε "
                "--delta δ`"
            )
