"""The choices of a hospital or a device: ``jopeq-…`` keys of its node, identities, the ledger."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from logging import WARNING
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from flwr.app import ConfigRecord, RecordDict
from flwr.common.logger import log

from jopeq.errors import BudgetExceededError
from jopeq.files import alone, check_own_file, own_folder
from jopeq.flower.refusals import RefusedError
from jopeq.ledger import Ledger

Metrics = Mapping[str, "float | None"]
"""Metrics that leave a client: a declared constant, or None for the app's own value."""

PREFIX = "jopeq-"
LIMITS = ("epsilon", "delta", "rounds", "sampling")
"""The numbers that ``jopeq-max-…`` bounds."""

_TEXT = "text"  # of a column that jopeq-columns lists


def _number(least: float, most: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        found = float(value) if isinstance(value, str) else value
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if not (is_number and least <= found <= most):
            raise ValueError(f"a number from {least:g} to {most:g} is needed")
        return float(found)

    return read


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text in quotes is needed")
    return value


def _read_name(value: Any) -> str:
    if not re.fullmatch(r"\w[\w.-]{0,99}", str(value)):
        raise ValueError("a name of letters, digits, '_', '.' and '-' is needed")
    return str(value)


def read_columns(text: Any) -> dict[str, bool]:
    """Patterns of columns that surveys may ask for; True where they hold text."""
    found = {}
    for one in _listed(_read_text(text)):
        name, *kind = map(str.strip, one.split("="))
        if kind not in ([], [_TEXT]):
            raise ValueError(f"NAME or NAME={_TEXT} is needed, separated by commas")
        found[name] = bool(kind)
    return found


def read_metrics(metrics: Any) -> Metrics:
    """The metrics that leave a client, from code or from the text of ``jopeq-metrics``.

    >>> read_metrics("num-examples=600, loss")
    {'num-examples': 600.0, 'loss': None}
    >>> read_metrics({"num-examples": 600})
    {'num-examples': 600}
    """
    if isinstance(metrics, str):
        pairs = [text.partition("=") for text in _listed(metrics)]
        given = {name.strip(): float(value) if sign else None for name, sign, value in pairs}
    elif isinstance(metrics, Mapping):
        given = dict(metrics)
    else:
        return dict.fromkeys(metrics)
    for name, value in given.items():
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if not (is_number or (value is None and isinstance(metrics, str))):
            raise ValueError(f"metric {name!r} must be declared as a number, got {value!r}")
    return given


def _listed(text: str) -> list[str]:
    return [one for one in map(str.strip, text.split(",")) if one]


def _read_hashes(value: Any) -> set[str]:
    found = set(_listed(_read_text(value).lower()))
    if not found or any(re.fullmatch("[0-9a-f]{64}", one) is None for one in found):
        raise ValueError("what `sha256sum app.fab` prints is needed, of each app that may run")
    return found


_LEAST = math.ulp(0.0)  # the first number above 0
_KEYS: dict[str, Callable[[Any], Any]] = {
    "app-sha256": _read_hashes,
    "budget": _number(_LEAST, 1e9),
    "budget-delta": _number(0.0, 1.0),
    "client": _read_name,
    "columns": read_columns,
    "identity": _read_text,
    "ledger": _read_text,
    "max-delta": _number(0.0, 1.0),
    "max-epsilon": _number(_LEAST, 1e9),
    "max-rounds": _number(1.0, 1e9),
    "max-sampling": _number(_LEAST, 1.0),
    "metrics": lambda value: read_metrics(_read_text(value)),
    "trusted": _read_text,
}


def read_node(config: Mapping[str, Any]) -> dict[str, Any]:
    """The ``jopeq-…`` entries of a node's configuration, without the prefix.

    ``ValueError`` with key, value and remedy for an unknown key and for a value that fits none.
    """
    found = {}
    for name, value in config.items():
        key = name.removeprefix(PREFIX)
        if key == name or (value == "" and key != "app-sha256"):
            continue
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, 1) or sorted(_KEYS)
            raise ValueError(
                f"{PREFIX}{key} is {value!r:.80}, and no such key is known: use "
                f"{', '.join(PREFIX + one for one in near)}, or leave it out"
            )
        try:
            found[key] = _KEYS[key](value)
        except ValueError as error:
            raise ValueError(f"{PREFIX}{key} is {value!r:.80}: {error}") from error
    return found


def refuse_run_keys(config: Mapping[str, Any]) -> None:
    """Refuse ``jopeq-…`` keys of a run: whoever starts the run must not choose ε."""
    for key in config:
        if key.startswith(PREFIX) and config[key] != "":
            raise ValueError(
                f"the run's configuration sets {key}, and nothing of jopeq is read there: give the "
                "scheme in code, budget and ledger in code or the node's configuration"
            )


def check_node(config: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the configuration of a node that takes part in private sums.

    Each problem is a sentence with key, value and remedy; none means that a guarded node can start.
    """
    found: list[str] = []
    good: dict[str, Any] = {}

    def check(step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            found.append(str(error))

    for name, value in config.items():
        check(lambda one={name: value}: good.update(read_node(one)))  # type: ignore[misc]
    for key in ("max-epsilon", "max-delta", "ledger", "identity", "trusted"):
        if config.get(PREFIX + key, "") == "":
            found.append(f"{PREFIX}{key} is missing: set it in the node's configuration")
    check(lambda: refuse_budget(good))
    if "ledger" in good:
        check(lambda: Ledger.load(good["ledger"]))
    if {"identity", "trusted"} <= good.keys():
        check(lambda: read_keys(good["identity"], good["trusted"]))
    return found


def refuse_budget(node: Mapping[str, Any]) -> None:
    """Refuse ``jopeq-budget`` where the ledger's file has the budget: nothing is ignored."""
    for key in ("budget", "budget-delta"):
        if key in node:
            raise ValueError(
                f"jopeq-{key} is {node[key]!r}, and a sum takes its budget from the ledger: leave "
                "the key out, and make jopeq-ledger by `jopeq ledger init --budget ε --delta δ`"
            )


def check_columns(listed: Mapping[str, bool], asked: tuple[tuple[str, str], ...]) -> None:
    """Refuse questions about columns that the hospital does not list, and for numbers of text."""
    for name, kind in asked:
        fitting = [is_text for pattern, is_text in listed.items() if fnmatchcase(name, pattern)]
        if not fitting or (kind == "numbers" and any(fitting)):
            raise RefusedError("limits") from ValueError(
                f"{kind} of {name!r:.80} are asked for, and jopeq-columns is {', '.join(listed)}"
            )


# Keys of identities


def read_trusted(path: str | os.PathLike[str] | None) -> frozenset[bytes]:
    """The public keys in a file that nobody else can write: 64 hexadecimal digits a line.

    What follows them after a space is a comment, and so is a line that begins with ``#``.
    """
    if path is None:
        return frozenset()
    check_own_file(Path(path).resolve())
    keys = set()
    for number, line in enumerate(Path(path).read_text("utf-8-sig").splitlines(), 1):
        word = line.split(maxsplit=1)[0] if line.strip() else "#"
        if word.startswith("#"):
            continue
        if re.fullmatch("[0-9a-fA-F]{64}", word) is None:
            raise ValueError(
                f"{path}, line {number}: a public key is 64 hexadecimal digits, got {word!r:.80}"
            )
        keys.add(bytes.fromhex(word))
    if not keys:
        raise ValueError(f"{path} holds no public key: write one a line, 64 hexadecimal digits")
    return frozenset(keys)


def read_keys(own: str | None, others: str | None) -> dict[str, Any]:
    """``identity`` and ``trusted`` in these two files; nothing where both are None."""
    if own is None and others is None:
        return {}
    if own is None or others is None:
        raise ValueError("jopeq-identity and jopeq-trusted belong together: give both, or neither")
    check_own_file(Path(own).resolve(), is_secret=True)
    key = load_pem_private_key(Path(own).read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"jopeq-identity must be an Ed25519 key, got {type(key).__name__}")
    trusted = read_trusted(others)
    if key.public_key().public_bytes_raw() not in trusted:
        raise ValueError(f"jopeq-trusted: {others} must list the public key of this node too")
    return {"identity": key, "trusted": trusted}


# The ledger

MARK = "jopeq-ledger"
"""Key of the record in Flower's state that holds the rounds which the ledger's file must know."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """ε over all rounds, at δ, and the file that keeps the ledger of a client.

    A file at ``path`` must exist (``jopeq ledger init``). Without a path, a file in Flower's home
    of the node is made on first use. A deleted ledger must not count as unspent: a second file next
    to it, and Flower's state during a run, remember it. A new container loses all three, which only
    a path notices.

    Flower's state could not hold the ledger: a SuperNode may answer many messages at once, each
    with a copy of that state, and a killed process loses its copy. ``keeps_its_own`` accepts
    whatever budget a file at ``path`` has: the ledger of a data set outlives runs.
    """

    epsilon: float
    delta: float = 0.0
    path: str | os.PathLike[str] | None = None
    client: str = "client"
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
                told = f"{file} knows {found.rounds} rounds and this run alone has had {least}"
                raise BudgetExceededError(
                    f"{told}: an older copy is in place, restore the newest one", code="ledger-lost"
                )
            is_any_fine = self.keeps_its_own and self.path is not None
            if not is_any_fine and (found.budget, found.delta) != (self.epsilon, self.delta):
                raise BudgetExceededError(
                    f"{file} has budget {found.budget:g} at δ = {found.delta:g}, its settings now "
                    f"say {self.epsilon:g} at δ = {self.delta:g}: keep it or take a new file",
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
                    f"the ledger {file} is gone: restore it; if nothing was spent, remove {mark}",
                    code="ledger-lost",
                )
            Ledger.create(file, self.epsilon, self.delta)
            told = (
                "JoPEQ: this client had no ledger: %s starts a budget of ε = %g. If it has taken "
                "part before, restore the old file; a ledger that jopeq-ledger names is never made"
            )
            log(WARNING, told, file, self.epsilon)
        mark.touch()


def budget_of(
    node: Mapping[str, Any], config: Mapping[str, Any], code: Budget | None
) -> Budget | None:
    """The budget of a node's configuration, else the one that the app's code gives.

    With ``jopeq-budget`` nothing of the code's budget is left, neither its δ nor its file. Clients
    of one home without names share one ledger, which counts too much rather than too little. Node
    ids are no names: the server gives them out.
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
        keeps_its_own=found.keeps_its_own,
    )


def ledger_file(config: Mapping[str, Any]) -> Path:
    """Where the ledger of a node with this configuration is."""
    own = Budget(epsilon=1.0)
    return (budget_of(read_node(config), config, own) or own).file
