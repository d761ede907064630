"""The budget of a client inside Flower, and the file that keeps its ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path

from flwr.common.logger import log

from jopeq.errors import BudgetExceededError
from jopeq.files import alone
from jopeq.flower.settings import Settings
from jopeq.privacy import Ledger


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ε over all rounds, at δ. The file at ``path`` keeps the ledger of a node.

    The file must exist (``jopeq ledger init``): a deleted ledger must not count as nothing spent.
    Flower's state could not hold the ledger: a SuperNode may answer many messages at once, each
    with a copy of that state, and a killed process loses its copy.
    """

    epsilon: float
    delta: float = 0.0
    path: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        Ledger(self.epsilon, self.delta)  # refuses impossible numbers

    @property
    def file(self) -> Path:
        """The ledger's file without links, so that every path to the file has the same lock."""
        if self.path is None:
            raise BudgetExceededError(
                f"a budget needs a file: `jopeq ledger init PATH --budget {self.epsilon:g}` makes "
                "one; give ledger=PATH, or jopeq-ledger in the node's configuration"
            )
        return Path(self.path).resolve()

    def check(self, settings: Settings) -> None:
        """Raise ``ValueError`` if this budget could not cover all that these settings send."""
        if settings.is_private and settings.scheme.clip is None:
            raise ValueError(
                f"scheme {settings.scheme.name!r} without a clip sends the update's norm in the "
                "clear, which no budget covers: give clip"
            )
        if settings.adaptive_clip is not None and self.delta > 0.0:
            raise ValueError(
                "an adaptive clip lets the server choose the mechanisms of later rounds, and "
                "composition at a δ above 0 does not allow that: use delta=0, or fix the clip"
            )

    @contextmanager
    def opened(self, *, allow_any_scheme: bool) -> Iterator[Ledger]:
        """The ledger as the last message left it, written down when the block succeeds.

        The file is locked meanwhile: two messages cannot both spend what is left.
        """
        with self.alone():
            found = self.open(allow_any_scheme=allow_any_scheme)
            yield found
            self.keep(found)

    def alone(self) -> AbstractContextManager[None]:
        """The lock of the ledger's file."""
        return alone(self.file.with_name(f".{self.file.name}.lock"))

    def open(self, *, allow_any_scheme: bool) -> Ledger:
        """The ledger as the file has it."""
        return self._checked(Ledger.load(self.file), allow_any_scheme)

    def keep(self, ledger: Ledger) -> None:
        """Write the ledger down."""
        ledger.save(self.file)

    def _checked(self, found: Ledger, allow_any_scheme: bool) -> Ledger:
        if (found.budget, found.delta) != (self.epsilon, self.delta):
            raise BudgetExceededError(
                f"this client's ledger was opened with budget {found.budget:g} at δ = "
                f"{found.delta:g}, its settings now say {self.epsilon:g} at δ = {self.delta:g}: "
                "keep the budget, or start a new ledger knowingly; nothing was sent"
            )
        if allow_any_scheme and not found.allows_any_scheme:
            raise BudgetExceededError(
                "this client's ledger keeps to one scheme, and an adaptive clip changes the scheme "
                "from round to round: make the ledger by `jopeq ledger init --any-scheme`, or fix "
                "the clip; nothing was sent"
            )
        return found


def budget_from(node: Mapping[str, object], run: Mapping[str, object]) -> Budget | None:
    """The node's budget or else the run's, each with its own δ; the file is the node's alone."""
    given = node if "budget" in node else run
    if given is run and float(str(node.get("budget-delta", 0.0))) != 0.0:
        raise ValueError(
            "jopeq-budget-delta of a node goes with a budget of its own: set jopeq-budget there too"
        )
    delta = float(str(given.get("budget-delta", 0.0)))
    path = node.get("ledger")
    if "ledger" in run:
        log(WARNING, "JoPEQMod: jopeq-ledger is ignored in the run's configuration: set the node's")
    if "budget" in given:
        epsilon = float(str(given["budget"]))
        return Budget(epsilon=epsilon, delta=delta, path=None if path is None else str(path))
    if delta != 0.0 or path is not None:
        raise ValueError("jopeq-budget-delta and jopeq-ledger need jopeq-budget: set it too")
    return None
