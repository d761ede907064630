"""A client's privacy budget over all rounds: counts ε and refuses to exceed the budget."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from jopeq.checks import check_count, check_delta, check_number, check_positive
from jopeq.errors import BudgetExceededError, BudgetSpentError, LedgerError, PlanError
from jopeq.files import atomic, check_own_file
from jopeq.privacy.accounting import Composition, Mechanism
from jopeq.privacy.guarantee import Guarantee, count_of, digits_up
from jopeq.random.rational import MAX_EPSILON
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_accounting import LEAST_DELTA, RecordRounds, epsilon_within, is_delta_short
from jopeq.sums.record_sum import ClientSum, RecordSum

_FORMAT = "jopeq-ledger-2"
_About = Mapping[str, str]
_ROUNDING = 1e-12  # so that three times 0.1 fits a budget of 0.3


@dataclass(frozen=True, kw_only=True)
class Run:
    """Rounds of one private sum that a ledger was charged for, and the days of first and last.

    ``about`` says in words what was ``asked``, by which ``asker``, of which ``hospital``, by which
    ``app``.
    """

    name: str
    scheme: str  # its spec
    entries: int
    planned: int
    first: str = ""
    last: str = ""
    spent: RecordRounds
    about: _About = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.name, self.scheme, self.entries

    def with_rounds(self, more: int) -> Run:
        return replace(self, spent=replace(self.spent, rounds=self.spent.rounds + more))

    @classmethod
    def restored(cls, *, spent: dict[str, Any], **rest: Any) -> Run:
        """The run that ``asdict`` wrote; ``ValueError`` or ``TypeError`` for anything else."""
        run = cls(**rest, spent=RecordRounds(**spent))
        texts = run.name, run.scheme, run.first, run.last, *run.about, *run.about.values()
        "".join(texts)  # TypeError for anything but texts
        for name in ("entries", "planned"):
            check_count(name, rest[name], 1)
        for name, number in spent.items():
            check_number(name, number)
        for name in ("rounds", "hospitals_per_person"):
            check_count(name, spent[name], 1)
        return run


class Ledger:
    """Encodes as long as the client's ε over all rounds stays within ``budget``.

    The adversary is the server, who keeps every payload. With ``delta=0`` costs add up; with a
    ``delta`` above 0 all samples of all rounds are composed by the best theorem at that δ (see
    ``Composition.epsilon_at``). A ledger of updates keeps to its first scheme, so that a mistaken
    configuration cannot spend the budget unseen.

    Threads may share a ledger, but two copies do not know of each other's spending: keep one per
    client, ``create`` its file once, and ``save`` it there before a payload leaves. An update is
    charged before its values are read, and stays charged if encoding fails: whether a payload comes
    must tell nothing for free.

    >>> import numpy as np, jopeq
    >>> ledger = Ledger(budget=900.0)
    >>> scheme = jopeq.scheme("laplace", epsilon=4.0, clip=0.1)
    >>> payloads = [ledger.encode(scheme, np.zeros(100)) for _ in range(2)]
    >>> ledger.rounds, ledger.spent.epsilon, ledger.remaining
    (2, 800.0, 100.0)
    """

    def __init__(self, budget: float, delta: float = 0.0) -> None:
        check_positive("budget", budget)
        check_delta(delta)
        self._budget, self._delta = float(budget), float(delta)
        self._most = self._budget * (1.0 + _ROUNDING)
        self._scheme: str | None = None
        self._rounds, self._spent = 0, Composition()
        self._assumptions: tuple[str, ...] = ()
        self._unit = "client"
        self._runs: dict[tuple[str, str, int], Run] = {}
        self._days = ("", "")  # first and last, of updates
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._kept: str | None = None  # the state of the file that this ledger goes on from

    def __repr__(self) -> str:
        spent = f"spent={digits_up(self.spent.epsilon)}, rounds={self.rounds}"
        return f"Ledger(budget={_plain(self.budget)}, delta={self.delta:g}, {spent})"

    def __reduce__(self) -> tuple[Callable[[str], Ledger], tuple[str]]:
        return Ledger.from_json, (self.to_json(),)

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
        """The spec of the last charge; None before the first."""
        return self._scheme

    @property
    def rounds(self) -> int:
        """The number of updates, or shares of a private sum, that were charged."""
        return self._rounds

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of private sums; none where updates are charged."""
        return tuple(self._runs.values())

    @property
    def days(self) -> tuple[str, str]:
        """First and last day (UTC) of a charge; "" where nothing was charged."""
        return (
            min((run.first for run in self.runs), default=self._days[0]),
            max((run.last for run in self.runs), default=self._days[1]),
        )

    @property
    def spent(self) -> Guarantee:
        """The client's guarantee so far; a record's where runs of a ``RecordSum`` were charged."""
        with self._lock:
            spent, assumptions, rounds = self._spent, self._assumptions, self._rounds
            runs = self.runs
        if runs:
            return Guarantee(
                epsilon=self._epsilon_with(),
                delta=self._delta,
                unit=self._unit,
                adversary="sum",
                covers=(f"{count_of(self._rounds, 'round')}, failed attempts included",),
                assumptions=assumptions,
            )
        epsilon, theorem = spent.epsilon_at(self._delta)
        return Guarantee(
            epsilon=epsilon,
            delta=self._delta if spent.counts else 0.0,
            unit="client",
            covers=(f"{count_of(rounds, 'round')}, by {theorem}",) if spent.counts else (),
            assumptions=assumptions,
            composition=spent,
        )

    @property
    def remaining(self) -> float:
        """Budget minus spent ε."""
        return max(0.0, self._budget - self.spent.epsilon)

    # Encoding and charging

    def encode(
        self, scheme: Scheme, update: Any, *, seed: bytes | None = None, secret: bytes | None = None
    ) -> bytes:
        """``scheme.encode(update, …)``, if the budget allows it; else ``BudgetExceededError``."""
        entries = scheme.codec.read(update)  # refuses what it cannot take before a charge
        self.charge(scheme, dict(zip(entries.names, map(math.prod, entries.shapes), strict=True)))
        # these very entries: the update may have changed meanwhile
        return scheme.codec.encode(entries, scheme.codec.limits(), seed=seed, secret=secret)[0]

    def charge(
        self,
        scheme: Scheme | Sphere | RecordSum | ClientSum,
        entries: int | Mapping[str, int],
        *,
        run: str = "",
        ahead: int = 0,
        about: _About | None = None,
    ) -> float:
        """Charge one payload, report, or share of a private sum, before anything reads the data.

        Returns the ε of all that was charged so far, this included. ``entries`` of an update may be
        told by tensor.

        Rounds of all runs of private sums are composed by their privacy losses, for every record
        of the data set (or for the client). A run is a scheme, a dimension and the name ``run``, of
        ``scheme.rounds`` rounds. Records may come and go between rounds: ε holds for each.
        ``ahead`` computes ε of so many rounds more, which later processes then find on disk.
        ``about`` is kept for people (``Run.about``).
        """
        if os.getpid() != self._process:
            told = "this ledger belongs to another process, and a copy would spend its budget again"
            raise LedgerError(f"{told}: load the ledger's file in this process", code="process")
        if not isinstance(scheme, RecordSum | ClientSum):
            return self._charge_update(scheme, entries)
        if isinstance(entries, Mapping):
            entries = sum(entries.values())
        with self._lock:
            begun, unit = self._begin(scheme, entries, run), scheme.guarantee.unit
            left = begun.planned - begun.spent.rounds
            if not left:
                told = f"all rounds={begun.planned} of this run are spent; nothing was sent"
                raise BudgetSpentError(f"{told}: take more rounds, or a run of another name")
            after = begun.with_rounds(1)
            if (spent := self._epsilon_with(after)) > self._most:
                runs = {**self._runs, begun.key: after}.values()
                told = f"one more round would exceed the budget of ε = {_plain(self._budget)}"
                told += f" for every {unit} (spent in {self._rounds} rounds); nothing was sent"
                if is_delta_short([one.spent for one in runs], self._delta, self._budget):
                    told += f": δ = {self._delta:g} is used up, fewer and larger sums spend less"
                raise BudgetSpentError(told)
            for more in range(2, min(1 + ahead, left) + 1):
                self._epsilon_with(begun.with_rounds(more))
            asked = dict(begun.about)
            for key, text in (about or {}).items():
                if text and text not in asked.setdefault(key, text).split("; "):
                    asked[key] += f"; {text}"
            self._runs[begun.key] = replace(after, last=_today(), about=asked)
            known = *self._assumptions, *scheme.guarantee.assumptions
            self._assumptions, self._unit = tuple(dict.fromkeys(known)), unit
            self._scheme, self._rounds = scheme.spec, self._rounds + 1
            return spent

    def covers(self, scheme: RecordSum | ClientSum, entries: int, *, run: str = "") -> int:
        """The number of further rounds of a private sum's run that can be charged.

        >>> sums = ClientSum(epsilon=1.0, clip=1.0, clients=10, threshold=8, rounds=10)
        >>> [Ledger(budget, 1e-5).covers(sums, 50) for budget in (1.0, 0.5)]
        [10, 2]
        """

        def is_beyond(more: int) -> bool:
            return self._epsilon_with(begun.with_rounds(more)) > self._most

        with self._lock:
            begun = self._begin(scheme, entries, run)
            left = begun.planned - begun.spent.rounds
            if not left or self._epsilon_with(begun.with_rounds(left)) <= self._most:
                return left
            return bisect_left(range(1, left), True, key=is_beyond)

    def most_epsilon(self, scheme: RecordSum | ClientSum, entries: int) -> float:
        """The largest ε, to a thousandth of the budget, whose whole run this ledger still pays for.

        The run is ``scheme``'s with another ε, and evaluations count as rounds; 0 if there is none.

        >>> sums = ClientSum(epsilon=1.0, clip=1.0, clients=10, threshold=8, rounds=10)
        >>> ledger = Ledger(2.0, 1e-5)
        >>> _ = ledger.charge(sums, 50)
        >>> ledger.most_epsilon(sums, 50)
        1.972
        """

        def is_paid(epsilon: float) -> bool:
            try:
                new = self._begin(replace(scheme, epsilon=epsilon), entries, "\0")
            except PlanError:  # too little for these records, or too much for δ
                return epsilon <= self.remaining
            return self._epsilon_with(new.with_rounds(sums)) <= self._most

        sums = scheme.sums if isinstance(scheme, RecordSum) else scheme.rounds
        step = min(self._budget, MAX_EPSILON) / 1000.0
        return step * bisect_left(range(1, 1001), True, key=lambda k: not is_paid(step * k))

    def _begin(self, scheme: RecordSum | ClientSum, entries: int, name: str) -> Run:
        """The run as far as it was charged; raises where this ledger cannot count it."""
        once, unit = scheme.spend(entries, 1), scheme.guarantee.unit
        if self._spent.counts or self._delta < LEAST_DELTA:
            told = f"a ledger of sums needs a delta of at least {LEAST_DELTA:g} and has no updates"
            raise LedgerError(f"{told}: Ledger(budget, delta=1e-5)", code="scheme")
        if self._runs and unit != self._unit:
            told = f"this ledger counts what a {self._unit} spends, the scheme protects a {unit}"
            raise LedgerError(f"{told}: give it a ledger of its own", code="unit")
        new = Run(
            name=name, scheme=scheme.spec, entries=entries, planned=scheme.rounds, first=_today(),
            spent=replace(once, rounds=0),
        )  # fmt: skip
        run = self._runs.get(new.key, new)
        least = min(run.spent.multiplier, once.multiplier)
        return replace(run, spent=replace(run.spent, multiplier=least))

    def _epsilon_with(self, *changed: Run) -> float:
        """ε of all runs, of which these take the place of those of their keys."""
        runs = dict(self._runs)
        for run in changed:
            runs[run.key] = run
        return _epsilon(tuple(map(attrgetter("spent"), runs.values())), self._delta, self._budget)

    def _charge_update(self, scheme: Scheme | Sphere, entries: int | Mapping[str, int]) -> float:
        check_clip_is_public(scheme)
        cost = scheme.guarantee
        if isinstance(entries, Mapping):
            cost = scheme.cost(entries)
        elif cost.unit == "sample":
            cost = cost.for_update(entries)
        with self._lock:
            if self._scheme not in (None, scheme.spec):
                told = f"this ledger is bound to scheme {self._scheme}, got {scheme.spec}"
                raise LedgerError(f"{told}: give the other a ledger of its own", code="scheme")
            if (cost.adversary, cost.unit) != ("server", "update"):
                told = f"one {cost.unit} against {cost.adversary!r}"
                raise LedgerError(
                    f"updates against the server are counted here, got {told}", code="unit"
                )
            if self._runs:
                raise LedgerError(
                    "this ledger counts rounds of a private sum: use another for updates",
                    code="scheme",
                )
            if math.isinf(cost.epsilon):
                raise BudgetExceededError(
                    "this update has no privacy guarantee against the server: no budget allows it",
                    code="no-guarantee",
                )
            after = self._spent + cost.mechanisms
            if self._delta == 0.0 and any(m.delta for m, _ in after.counts):
                raise BudgetExceededError(
                    "this update needs a δ above 0, this ledger has none: Ledger(..., delta=1e-5)",
                    code="needs-delta",
                )
            total = after.epsilon_at(self._delta)[0]
            if total > self._most:
                spent = self._spent.epsilon_at(self._delta)[0]
                alone = cost.mechanisms.epsilon_at(self._delta)[0]
                raise BudgetSpentError(
                    f"this update costs ε = {digits_up(alone, 6)} and the client's total would be "
                    f"{digits_up(total, 6)}, above its budget of {_plain(self._budget)} (spent so "
                    f"far: {digits_up(spent, 6)} in {self._rounds} rounds); nothing was encoded"
                )
            known = *self._assumptions, *scheme.guarantee.assumptions
            self._assumptions, self._spent = tuple(dict.fromkeys(known)), after
            self._scheme, self._rounds = scheme.spec, self._rounds + 1
            self._days = self._days[0] or _today(), _today()
            return total

    # To disk and back

    def to_json(self) -> str:
        """The whole ledger, with a checksum against accidents (not against a forger)."""
        with self._lock:
            content = self._content
        return json.dumps({**content, "sha256": _checksum(content)}, indent=1, allow_nan=False)

    @property
    def _content(self) -> dict[str, Any]:
        spent = []
        for mechanism, times in self._spent.counts:
            spent.append([mechanism.epsilon, mechanism.delta, times])
        return {
            "format": _FORMAT,
            "budget": self._budget,
            "delta": self._delta,
            "scheme": self._scheme,
            "rounds": self._rounds,
            "spent": spent,
            "assumptions": list(self._assumptions),
            "days": list(self._days),
            "unit": self._unit,
            "runs": list(map(asdict, self._runs.values())),
        }

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger ``to_json`` wrote; ``ValueError`` for anything else."""
        try:
            content = json.loads(text, parse_constant=_refuse)
            if content.pop("sha256") != _checksum(content):
                raise ValueError("its checksum does not match its content")
            return cls._restored(content)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
                ValueError) as error:  # fmt: skip
            told = f"this is not a ledger as jopeq saved it ({error}): restore it from a backup"
            raise LedgerError(f"{told}; an empty one would forget ε", code="damaged") from error

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> Ledger:
        ledger = cls(content["budget"], content["delta"])
        if content.keys() != ledger._content.keys() or content["format"] != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT!r}")
        scheme, unit, (first, last) = content["scheme"], content["unit"], content["days"]
        if unit not in ("client", "record"):
            raise ValueError(f"it counts what a {unit!r} spends")
        "".join(("" if scheme is None else scheme, *content["assumptions"], first, last))
        counts = []  # the line before raises TypeError for anything but texts
        for epsilon, own_delta, times in content["spent"]:
            check_number("epsilon", epsilon)
            check_delta(own_delta)
            counts.append((Mechanism(epsilon, own_delta), check_count("times", times)))
        ledger._scheme, ledger._unit, ledger._days = scheme, unit, (first, last)
        ledger._rounds = check_count("rounds", content["rounds"])
        ledger._spent = Composition(tuple(counts))
        ledger._assumptions = tuple(content["assumptions"])
        charged = 0
        for one in content["runs"]:
            run = Run.restored(**one)
            if ledger._runs.setdefault(run.key, run) is not run:  # one of them would not count
                raise ValueError("it lists a run twice")
            charged += run.spent.rounds
        if ledger._runs and ledger._rounds != charged:
            raise ValueError("its rounds are not those of its runs")
        return ledger

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger so that ``path`` holds the old one or the new one, never half of it.

        The file that a link leads to is replaced, and the link stays. A file that has changed since
        this ledger was loaded or saved is refused: another copy has spent there.
        """
        target, text = Path(path).resolve(), self.to_json()
        if target.exists() and _read(target) != self._kept:
            told = f"{target} holds another state than this ledger was loaded from"
            raise LedgerError(
                f"{told}: load it again, so that nothing is forgotten", code="changed"
            )
        with atomic(target, mode=0o600) as file:  # for the client's own eyes
            file.write((text + "\n").encode())
        self._kept = text

    @classmethod
    def create(cls, path: str | os.PathLike[str], budget: float, delta: float = 0.0) -> Ledger:
        """A new ledger and its file, once for each client; as ``jopeq ledger init``.

        ``FileExistsError`` where there is one: a new file for a lost one forgets the spent ε.
        """
        ledger = cls(budget, delta)
        try:
            with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
                file.write((ledger.to_json() + "\n").encode())
            ledger._kept = ledger.to_json()
        except FileExistsError as error:
            told = f"{os.fspath(path)} exists: Ledger.load continues a ledger"
            raise FileExistsError(f"{told}; for a new client choose another path") from error
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
            told = f"there is no ledger {os.fspath(path)}: restore a lost one from a backup"
            raise FileNotFoundError(f"{told}; make a first one by `jopeq ledger init`") from error


@lru_cache(maxsize=64)
def _epsilon(runs: tuple[RecordRounds, ...], delta: float, budget: float) -> float:
    """ε of these rounds, which a ledger asks for several times in a row."""
    return epsilon_within(runs, delta, budget)


def check_clip_is_public(scheme: Scheme | Sphere) -> None:
    """Raise ``LedgerError`` where payloads carry the update's norm, which no ε covers."""
    if scheme.is_private and scheme.clip is None:
        told = f"scheme {scheme.name!r} without a clip sends the update's norm in the clear"
        raise LedgerError(f"{told}: give clip", code="norm")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


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
