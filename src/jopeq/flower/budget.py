"""A client's ledger between rounds: in Flower's state of the run, or in a file across runs."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context

from jopeq.errors import BudgetExceededError
from jopeq.privacy import Ledger
from jopeq.whole_files import alone

STATE = "jopeq-ledger"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ε over all rounds, at δ; ``path`` keeps the ledger of a node across runs.

    Flower's state belongs to one run: a server that starts a new run finds an empty ledger there.
    The file must exist (``jopeq ledger init``): a deleted one must not count as nothing spent.
    """

    epsilon: float
    delta: float = 0.0
    path: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        self._new(False)

    def _new(self, allow_any_scheme: bool) -> Ledger:
        return Ledger(self.epsilon, self.delta, allow_any_scheme=allow_any_scheme)

    def alone(self) -> AbstractContextManager[None]:
        """Held from ``open`` to ``keep``, so that two runs of a node cannot both spend the rest."""
        if self.path is None:  # Flower's state belongs to one run, one message at a time
            return nullcontext()
        path = Path(self.path)
        return alone(path.with_name(f".{path.name}.lock"))

    def open(self, context: Context, *, allow_any_scheme: bool) -> Ledger:
        """The ledger as the last round left it."""
        if self.path is not None:
            found = Ledger.load(self.path)
        elif (record := context.state.config_records.get(STATE)) is not None:
            found = Ledger.from_json(str(record["ledger"]))
        else:
            return self._new(allow_any_scheme)
        if (found.budget, found.delta) != (self.epsilon, self.delta):
            raise BudgetExceededError(
                f"this client's ledger was opened with budget {found.budget:g} at δ = "
                f"{found.delta:g}, its settings now say {self.epsilon:g} at δ = {self.delta:g}: "
                "keep the budget, or start a new ledger knowingly; nothing was sent"
            )
        if allow_any_scheme and not found.allows_any_scheme:
            raise BudgetExceededError(
                "this client's ledger keeps to one scheme, and an adaptive clip changes it from "
                "round to round: make the ledger by `jopeq ledger init --any-scheme`, or fix the "
                "clip; nothing was sent"
            )
        return found

    def keep(self, context: Context, ledger: Ledger) -> None:
        """Write the ledger down; to be done before the payload leaves."""
        if self.path is not None:
            ledger.save(self.path)
        else:
            context.state[STATE] = ConfigRecord({"ledger": ledger.to_json()})
