"""A client's privacy budget over all rounds: counts ε and refuses to exceed the budget."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.errors import BudgetExceededError, BudgetSpentError, LedgerError
from jopeq.files import atomic, check_own_file
from jopeq.privacy.accounting import Composition, Mechanism, check_count, check_delta, check_number
from jopeq.privacy.guarantee import Guarantee, count_of, digits_up
from jopeq.schemes.base import Scheme
from jopeq.sphere.round import Round
from jopeq.sums.record_accounting import RecordRounds, epsilon_within
from jopeq.sums.record_sum import RecordSum
from jopeq.sums.secure_sum import SecureSum

_FORMAT = "jopeq-ledger-1"
_ROUNDING = 1e-12  # so that three times 0.1 fits a budget of 0.3


class Ledger:
    """Encodes as long as the client's ε over all rounds stays within ``budget``.

    The adversary is the server, who keeps every payload. With ``delta=0`` costs add up; with a
    ``delta`` above 0 all samples of all rounds are composed by the best theorem at that δ (see
    ``Composition.epsilon_at``). The budget holds whenever the client stops.

    A ledger keeps to its first scheme, so that a mistaken configuration cannot spend the budget
    unseen. Ledgers of other schemes add to what a client spends in all. A ledger is safe among
    threads, but two copies do not know of each other's spending: keep one ledger per client,
    ``create`` its file once, and ``save`` the ledger there before a payload leaves.

    An update is charged before its values are read, and stays charged if encoding fails: a server
    that sees whether a payload comes must not learn anything for free. Only the update's type or
    the configuration can lead to a refusal without a charge.

    >>> import numpy as np, jopeq
    >>> ledger = Ledger(budget=900.0)
    >>> scheme = jopeq.scheme("laplace", epsilon=4.0, clip=0.1)
    >>> payloads = [ledger.encode(scheme, np.zeros(100)) for _ in range(2)]
    >>> ledger.rounds, ledger.spent.epsilon, ledger.remaining
    (2, 800.0, 100.0)
    >>> ledger.encode(scheme, np.zeros(100))
    Traceback (most recent call last):
    ...
    jopeq.errors.BudgetSpentError: this update costs ε = 400 and the client's total would be \
1,200, above its budget of 900 (spent so far: 800 in 2 rounds); nothing was encoded
    """

    def __init__(self, budget: float, delta: float = 0.0) -> None:
        check_number("budget", budget)
        if not 0.0 < budget < math.inf:
            raise ValueError(f"budget must be a positive finite number, got {budget!r}")
        check_delta(delta)
        self._budget, self._delta = float(budget), float(delta)
        self._scheme: str | None = None
        self._rounds, self._spent = 0, Composition()
        self._assumptions: tuple[str, ...] = ()
        self._adversary, self._participations = "server", 0
        self._runs: dict[str, tuple[RecordRounds, int]] = {}  # of records: spent, and planned
        self._dates: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._kept: str | None = None  # the state of the file that this ledger goes on from

    def __repr__(self) -> str:
        return (
            f"Ledger(budget={_plain(self.budget)}, delta={self.delta:g}, "
            f"spent={digits_up(self.spent.epsilon)}, rounds={self.rounds})"
        )

    def __reduce__(self) -> tuple[Callable[[str], Ledger], tuple[str]]:
        return (Ledger.from_json, (self.to_json(),))

    # The state of the budget

    @property
    def budget(self) -> float:
        """The largest ε of the client, all rounds together."""
        return self._budget

    @property
    def delta(self) -> float:
        """The δ at which ε is stated."""
        return self._delta

    @property
    def scheme(self) -> str | None:
        """The spec of the ledger's scheme; None before the first update."""
        return self._scheme

    @property
    def rounds(self) -> int:
        """How many updates were charged."""
        return self._rounds

    @property
    def participations(self) -> int | None:
        """How many rounds of a secure sum the ε covers; None where updates are charged."""
        return self._participations or None

    @property
    def runs(self) -> dict[str, tuple[int, int]]:
        """Rounds spent and rounds planned of every run of a ``RecordSum``."""
        return {name: (spent.rounds, planned) for name, (spent, planned) in self._runs.items()}

    @property
    def dates(self) -> dict[str, tuple[str, str]]:
        """First and last day (UTC) of each run, under "" of all else; "" if older than dates."""
        return dict(self._dates)

    @property
    def spent(self) -> Guarantee:
        """The client's guarantee so far; a record's where runs of a ``RecordSum`` were charged."""
        with self._lock:
            spent, assumptions, rounds = self._spent, self._assumptions, self._rounds
            runs = [run for run, _ in self._runs.values()]
        if runs:
            return Guarantee(
                epsilon=epsilon_within(runs, self._delta, self._budget),
                delta=self._delta,
                unit="record",
                adversary="sum",
                assumptions=assumptions,
            )
        epsilon, theorem = spent.epsilon_at(self._delta)
        if spent.counts and self._adversary == "server":
            assumptions = (*assumptions, f"{count_of(rounds, 'round')} composed by {theorem}")
        return Guarantee(
            epsilon=epsilon,
            delta=self._delta if spent.counts else 0.0,
            unit="client",
            adversary=self._adversary,
            assumptions=assumptions,
            composition=spent,
        )

    @property
    def remaining(self) -> float:
        """Budget minus spent ε."""
        return max(0.0, self._budget - self.spent.epsilon)

    # Encoding and charging

    def encode(
        self,
        scheme: Scheme,
        update: Any,
        *,
        seed: bytes | None = None,
        secret: bytes | None = None,
    ) -> bytes:
        """``scheme.encode(update, …)``, if the budget allows it; else ``BudgetExceededError``."""
        entries = scheme.codec.read(update)  # refuses what it cannot take before a charge
        sizes = map(math.prod, entries.shapes)
        self.charge_update(scheme, dict(zip(entries.names, sizes, strict=True)))
        # these very entries: the update may have changed meanwhile
        return scheme.codec.encode(entries, scheme.codec.limits(), seed=seed, secret=secret)[0]

    def report(
        self, terms: Round, update: Any, *, client: int, secret: bytes | None = None
    ) -> bytes:
        """``terms.report(update, …)`` of a round of ``sphere``, if the budget allows it."""
        terms.check_sender(client, secret)  # refused without a charge
        self.charge_update(terms.scheme, terms.dimension)
        return terms.report(update, client=client, secret=secret)

    def charge_update(self, scheme: Scheme, entries: int | Mapping[str, int]) -> None:
        """Charge one payload of so many entries, before anything reads the entries.

        For a caller that encodes later with ``scheme.encode``. Raises ``BudgetExceededError`` as
        ``encode`` does. A scheme without a public clip is refused.

        >>> import jopeq
        >>> ledger = Ledger(budget=900.0)
        >>> ledger.charge_update(jopeq.scheme("laplace", epsilon=4.0, clip=0.1), entries=100)
        >>> ledger
        Ledger(budget=900, delta=0, spent=400, rounds=1)
        """
        check_clip_is_public(scheme)
        cost = scheme.guarantee
        if isinstance(entries, Mapping):
            cost = scheme.cost(entries)
        elif cost.unit == "sample":
            cost = cost.for_update(entries)
        with self._lock:
            self._check_scheme(scheme.spec)
            self._record(self._check(cost), scheme.guarantee)
            self._rounds += 1
            self._scheme = scheme.spec
            self._note_day()

    def participate(
        self, scheme: SecureSum | RecordSum, dimension: int, *, run: str = "", ahead: int = 0
    ) -> None:
        """Charge one of the rounds that the ε of a secure sum covers, before anything is sent.

        That ε is of all ``scheme.participations`` rounds together, against whoever sees only sums:
        the first round costs the whole of it, the others nothing, and one more is refused. Such a
        ledger takes nothing else, and no update of another dimension.

        The rounds of a ``RecordSum`` are charged one by one, and those of all its runs are composed
        by their privacy losses, for every record of the data set that the ledger belongs to. A run
        is a scheme, a dimension and the name ``run``; each has ``scheme.rounds`` rounds. Records
        may come and go between rounds: ε holds for each. ``ahead`` computes ε of so many rounds
        more, which later processes then find on disk.
        """
        if isinstance(scheme, RecordSum):
            self._participate_records(scheme, dimension, run, ahead)
            return
        cost, spec = scheme.guarantee, scheme.spec_for(dimension)
        with self._lock:
            self._check_scheme(spec)
            if (self._spent.counts and self._adversary != "sum") or self._runs:
                raise LedgerError(
                    "a secure sum needs a ledger that keeps to this sum alone", code="scheme"
                )
            if self._rounds >= scheme.participations:
                raise BudgetSpentError(
                    f"this client has taken part in participations={self._rounds} rounds, all that "
                    f"its ε of {digits_up(cost.epsilon, 6)} covers; nothing was sent. Before the "
                    "first round, give both ends a scheme with as many participations as there "
                    "will be rounds"
                )
            self._check_process()
            if not self._rounds:
                self._record(self._within(cost, "taking part"), cost)
            self._adversary, self._scheme = "sum", spec
            self._participations = scheme.participations
            self._rounds += 1
            self._note_day()

    def _participate_records(self, scheme: RecordSum, dimension: int, run: str, ahead: int) -> None:
        name = f"{run}: {scheme.spec} of {dimension} entries"
        once = scheme.spend(dimension, 1)
        with self._lock:
            self._check_process()
            if self._spent.counts or self._delta == 0.0:
                raise ValueError(
                    "rounds of records need a ledger of their own with a delta above 0: "
                    "Ledger(budget, delta=1e-5)"
                )
            before, planned = self._runs.get(name, (replace(once, rounds=0), scheme.rounds))
            if before.rounds >= planned:
                raise BudgetSpentError(
                    f"all rounds={planned} of this run are spent; nothing was sent. Give both ends "
                    "a scheme of more rounds, or a new run a name of its own"
                )
            multiplier = min(before.multiplier, once.multiplier)
            spent = replace(before, rounds=before.rounds + 1, multiplier=multiplier)
            after = {**self._runs, name: (spent, planned)}
            if not epsilon_within(
                [one for one, _ in after.values()], self._delta, self._budget
            ) <= (self._budget * (1.0 + _ROUNDING)):
                raise BudgetSpentError(
                    f"one more round would exceed the budget of ε = {_plain(self._budget)} for "
                    f"every record (spent so far in {self._rounds} rounds); nothing was sent"
                )
            for more in range(1, min(ahead, planned - spent.rounds) + 1):
                later = {**after, name: (replace(spent, rounds=spent.rounds + more), planned)}
                epsilon_within([one for one, _ in later.values()], self._delta, self._budget)
            self._runs, self._adversary, self._scheme = after, "sum", scheme.spec
            known = (*self._assumptions, *scheme.guarantee.assumptions)
            self._assumptions = tuple(dict.fromkeys(known))
            self._rounds += 1
            self._note_day(name)

    def _note_day(self, run: str = "") -> None:
        today = datetime.now(UTC).date().isoformat()
        self._dates[run] = self._dates.get(run, (today, ""))[0], today

    def _check_scheme(self, spec: str) -> None:
        if self._scheme not in (None, spec):
            raise LedgerError(
                f"this ledger is bound to scheme {self._scheme}, got {spec}: use that scheme, or "
                "give the other a ledger of its own",
                code="scheme",
            )

    def _check(self, cost: Guarantee) -> Composition:
        """The composition after this update; raises if that exceeds the budget."""
        if cost.adversary != "server":
            raise LedgerError(
                f"a ledger counts against the server, this guarantee is against {cost.adversary!r}",
                code="unit",
            )
        if self._adversary != "server":
            raise LedgerError(
                "this ledger counts rounds of a secure sum: use another for updates", code="scheme"
            )
        if cost.unit != "update":
            raise LedgerError(
                f"a ledger counts updates, this guarantee is of one {cost.unit}", code="unit"
            )
        return self._within(cost, "this update")

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(
                "this ledger belongs to another process, and a copy would spend the same budget "
                "again: load the ledger's file in this process",
                code="process",
            )

    def _within(self, cost: Guarantee, what: str) -> Composition:
        self._check_process()
        if math.isinf(cost.epsilon):
            raise BudgetExceededError(
                f"{what} has no privacy guarantee against the server, which no budget allows: use "
                "a scheme with a finite s.guarantee.epsilon; nothing was encoded",
                code="no-guarantee",
            )
        after = self._spent + cost.mechanisms
        if self._delta == 0.0 and any(m.delta for m, _ in after.counts):
            raise BudgetExceededError(
                f"{what} is private only up to a δ above 0, this ledger allows none: use "
                "Ledger(..., delta=1e-5); nothing was encoded",
                code="needs-delta",
            )
        total = after.epsilon_at(self._delta)[0]
        if total > self._budget * (1.0 + _ROUNDING):
            spent = self._spent.epsilon_at(self._delta)[0]
            alone = cost.mechanisms.epsilon_at(self._delta)[0]
            raise BudgetSpentError(
                f"{what} costs ε = {digits_up(alone, 6)} and the client's total would be "
                f"{digits_up(total, 6)}, above its budget of {_plain(self._budget)} (spent so far: "
                f"{digits_up(spent, 6)} in {self._rounds} "
                "rounds); nothing was encoded"
            )
        return after

    def _record(self, after: Composition, cost: Guarantee) -> None:
        self._spent = after
        self._assumptions = tuple(dict.fromkeys((*self._assumptions, *cost.assumptions)))

    # To disk and back

    def to_json(self) -> str:
        """The whole ledger, with a checksum against accidents (not against a forger)."""
        with self._lock:
            content = {
                "format": _FORMAT,
                "budget": self._budget,
                "delta": self._delta,
                "scheme": self._scheme,
                "rounds": self._rounds,
                "spent": [[m.epsilon, m.delta, times] for m, times in self._spent.counts],
                "assumptions": list(self._assumptions),
                "dates": {run: list(days) for run, days in self._dates.items()},
            }
            if self._adversary != "server":
                content["adversary"] = self._adversary
                content["participations"] = self._participations
            if self._runs:
                content["runs"] = [
                    [name, planned, *astuple(run)] for name, (run, planned) in self._runs.items()
                ]
        return json.dumps({**content, "sha256": _checksum(content)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger ``to_json`` wrote; ``ValueError`` for anything else."""
        try:
            content = json.loads(text, parse_constant=_refuse)
            found = content.pop("sha256")
            if content.pop("format") != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT!r}")
            if found != _checksum({"format": _FORMAT, **content}):
                raise ValueError("its checksum does not match its content")
            return cls._restored(**content)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise LedgerError(
                f"this is not a ledger as jopeq saved it ({error}): restore it from a backup; "
                "starting an empty one would forget what the client has spent",
                code="damaged",
            ) from error

    @classmethod
    def _restored(
        cls,
        *,
        budget: float,
        delta: float,
        scheme: str | None,
        rounds: int,
        spent: list[list[Any]],
        assumptions: list[str],
        adversary: str = "server",
        participations: int = 0,
        runs: list[list[Any]] | None = None,
        dates: dict[str, tuple[str, str]] | None = None,
    ) -> Ledger:
        if adversary not in ("server", "sum"):
            raise ValueError(f"it counts against {adversary!r}")
        if not all(isinstance(text, str | None) for text in (scheme, *assumptions)):
            raise ValueError("scheme and assumptions must be texts")
        ledger = cls(budget, delta)
        counts = []
        for epsilon, own_delta, times in spent:
            check_number("epsilon", epsilon)
            check_delta(own_delta)
            counts.append((Mechanism(epsilon, own_delta), check_count("times", times)))
        ledger._scheme, ledger._rounds = scheme, check_count("rounds", rounds)
        ledger._spent = Composition(tuple(counts))
        ledger._assumptions, ledger._adversary = tuple(assumptions), adversary
        ledger._participations = check_count("participations", participations)
        for name, planned, multiplier, sampling, copies, times, *rest in runs or []:
            for number in (multiplier, sampling, *rest):
                check_number("run", number)
            counts_of_run = (check_count("copies", copies, 1), check_count("rounds", times, 1))
            run = RecordRounds(multiplier, sampling, *counts_of_run, *rest)
            ledger._runs[str(name)] = run, check_count("planned", planned, 1)
        kept = dict.fromkeys(ledger._runs or [""] * bool(rounds), ("", "")) | (dates or {})
        ledger._dates = {name: (str(first), str(last)) for name, (first, last) in kept.items()}
        return ledger

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger so that ``path`` holds the old one or the new one, never half of it.

        A link at ``path`` stays: the file that the link leads to is replaced. A file that has
        changed since this ledger was loaded or saved is not: another copy has spent there.
        """
        target, text = Path(path).resolve(), self.to_json()
        if target.exists() and _read(target) != self._kept:
            raise LedgerError(
                f"{target} holds another state than this ledger was loaded from: load it again, so "
                "that nothing spent is forgotten",
                code="changed",
            )
        with atomic(target, mode=0o600) as file:  # for the client's own eyes
            file.write((text + "\n").encode())
        self._kept = text

    @classmethod
    def create(cls, path: str | os.PathLike[str], budget: float, delta: float = 0.0) -> Ledger:
        """A new ledger and its file; ``FileExistsError`` where there is a file already.

        Create a ledger once for each client: a new file in place of a lost one forgets the spent ε.
        ``jopeq ledger init`` does the same.
        """
        ledger = cls(budget, delta)
        try:
            with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
                file.write((ledger.to_json() + "\n").encode())
            ledger._kept = ledger.to_json()
        except FileExistsError as error:
            raise FileExistsError(
                f"{os.fspath(path)} exists: Ledger.load continues a ledger; for a new client "
                "choose another path"
            ) from error
        return ledger

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Ledger:
        """The ledger saved at ``path``; ``FileNotFoundError`` where there is none.

        ``PermissionError`` where another user could have written or exchanged the file.
        """
        try:
            text = _read(Path(path).resolve())
            ledger = cls.from_json(text)
            ledger._kept = text
            return ledger
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no ledger {os.fspath(path)}: restore a lost one from a backup; for a "
                "client that has spent nothing, make it by `jopeq ledger init` or Ledger.create"
            ) from error


def check_clip_is_public(scheme: Scheme) -> None:
    """Raise ``LedgerError`` where payloads carry the update's norm, which no ε covers."""
    if scheme.is_private and scheme.clip is None:
        raise LedgerError(
            f"scheme {scheme.name!r} without a clip sends the update's norm in the clear, which no "
            "budget covers: give clip",
            code="norm",
        )


def _plain(budget: float) -> str:
    """Every digit: a rounded budget could read larger than the budget is."""
    return repr(budget).removesuffix(".0")


def _read(path: Path) -> str:
    """The text of a ledger's file that nobody else can have forged."""
    check_own_file(path)
    return path.read_text("utf-8", errors="replace").removesuffix("\n")


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"it holds {constant}")


def printable(text: str) -> str:
    r"""The text of others for a terminal or a page: what would steer either is escaped.

    >>> printable("mnist \x1b[2J")
    'mnist \\x1b[2J'
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
