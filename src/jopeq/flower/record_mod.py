"""``RecordMod``: the client's side of records in Flower. A hospital's total becomes a masked share.

A round of training, or a survey, is one message of a circle (``jopeq.circle``) with the model or
nothing beside it; the terms come from a ``RecordSum``. The hospital's own node configuration
decides what it takes part in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common.logger import log
from numpy.typing import NDArray

from jopeq.circle import Attempt, CircleClient, CircleTerms, Plan, digest
from jopeq.circle.circle import Kind, kind_of
from jopeq.errors import ProtocolError
from jopeq.files import alone, atomic, check_own_file, own_folder
from jopeq.flower.arrays import own_content
from jopeq.flower.budget import Budget, refuse_budget
from jopeq.flower.mod import ClientAppCallable, is_train, let_through
from jopeq.flower.refusals import RefusedError, refusing
from jopeq.flower.settings import read, read_metrics
from jopeq.flower.sum_mod import read_keys
from jopeq.ledger import Ledger
from jopeq.random.streams import fresh_seed
from jopeq.statistics import Survey
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.evaluation import EVALUATED
from jopeq.sums.record_plan import epsilon_left
from jopeq.sums.record_sum import RecordSum

RECORD = "jopeq-records"
"""Key of the config record that carries a message of the circle either way."""

LARGEST_LOSS = "largest-loss"
"""Key in the configuration of an evaluation: what a record's loss is cut at."""

LIMITS = ("epsilon", "delta", "rounds", "sampling")
"""What ``jopeq-max-…`` of a node's configuration bounds."""

_AHEAD = 8  # rounds accounted for at once: the accountant takes a second to import
_FOUND = "_jopeq_found"  # of a reply within the process: Flower sends content and metadata alone
_MOVED = 2.0**-20  # the least that a server may assume of an app it chose
_TEXT = "text"  # of a column that jopeq-columns lists


@dataclass(frozen=True)
class Task:
    """What a circle of hospitals sums: clipped gradients, evaluations, or the rows of a survey."""

    scheme: RecordSum
    dimension: int
    run: str
    survey: Survey | None = None
    is_evaluation: bool = False

    @classmethod
    def of_survey(cls, survey: Survey, run: str) -> Task:
        """One round in which every record takes part."""
        return cls(survey.sum, survey.dimension, run, survey)

    @classmethod
    def of_evaluation(cls, scheme: RecordSum, run: str) -> Task:
        """How well a model does on the records: ``scheme`` is ``evaluation`` of another."""
        return cls(scheme, EVALUATED, run, is_evaluation=True)

    @property
    def message_type(self) -> str:
        """Flower's."""
        if self.is_evaluation:
            return MessageType.EVALUATE
        return MessageType.TRAIN if self.survey is None else MessageType.QUERY

    @property
    def name(self) -> str:
        """Of the run in ledger and audit file."""
        return self.run if self.survey is None else f"{self.survey.name} {self.run}".rstrip()

    @property
    def offer(self) -> dict[str, str | int]:
        """What a server tells of the task beside the circle's message."""
        spec = self.scheme.spec if self.survey is None else self.survey.spec
        return {"scheme": spec, "dimension": self.dimension, "run": self.run}

    def terms(self, *, unsigned: bool) -> CircleTerms:
        """The circle's terms. A survey is among them, so that it is in every transcript."""
        scheme, dimension, survey = self.scheme, self.dimension, self.survey

        def plan(clients: int) -> Plan:
            bits = scheme.plan(dimension, clients).bits
            return Plan(bits=bits, length=dimension, text=scheme.spec_for(dimension, clients))

        return CircleTerms(
            circle=self.name,
            spec=f"{scheme.spec} of {dimension} entries" if survey is None else survey.spec,
            plan=plan,
            clients=scheme.clients,
            threshold=scheme.threshold,
            colluding=scheme.colluding,
            dropouts=scheme.dropouts,
            unsigned=unsigned,
            **({} if survey is None else {"attempts": survey.attempts}),
        )


_agreed: ContextVar[Task | None] = ContextVar("agreed", default=None)


def check_scheme(scheme: RecordSum, unsigned: bool) -> None:
    """``ValueError`` for no ``RecordSum``, and for a threshold that protects nobody."""
    if not isinstance(scheme, RecordSum):
        raise ValueError(
            f"scheme must be a RecordSum, got {scheme!r}: a SecureSum goes with JoPEQSumMod, other "
            "schemes with JoPEQMod"
        )
    Task(scheme, 1, "").terms(unsigned=unsigned)


def digest_content(content: RecordDict, message_type: str) -> bytes:
    """What a client acts on, hashed: type, arrays and configuration of a message."""
    parts = [message_type.encode()]
    for key in sorted(content):
        record = content[key]
        parts += [key.encode(), type(record).__name__.encode()]
        if isinstance(record, ArrayRecord):
            for name, array in record.items():
                parts += [repr((name, array.dtype, tuple(array.shape), array.stype)).encode()]
                parts += [array.data]
        else:
            parts += [repr(sorted(record.items())).encode()]
    return digest(*parts)


def reply_total(msg: Message, total: ClippedTotal) -> Message:
    """An app's reply to a train or evaluate message: the total for ``RecordMod``, in this process.

    The reply itself is empty. Without the mod nothing of the total leaves the node.
    """
    return _reply_found(msg, total)


def reply_table(msg: Message, table: Any) -> Message:
    """An app's reply to a query message: the hospital's table for ``RecordMod``, in this process.

    The mod makes the rows of the survey from the table, one row of each record. The reply itself is
    empty. Without the mod nothing of the table leaves the node.
    """
    return _reply_found(msg, table)


def _reply_found(msg: Message, found: object) -> Message:
    reply = Message(RecordDict(), reply_to=msg)
    vars(reply)[_FOUND] = found
    return reply


def agreed_task() -> Task | None:
    """What the outermost mod has agreed to; None outside a message of a circle."""
    return _agreed.get()


class RecordMod:
    """Sends the total of a hospital's clipped rows as a masked share of a sum, and nothing else.

    The app answers a message that trains or evaluates with ``reply_total(msg, total)``, and a
    survey, which is a query message, with ``reply_table(msg, table)``. Everything that may be
    refused is refused, and the share is in the ledger's file, before the app is called. An app that
    fails, exits or returns no total of the right dimension and clip, or a table that lacks a
    column, sends a share of 0, and
    only the node's log tells. Text in a column of numbers counts as missing. Metrics leave in
    answers to other evaluate and query messages only where ``jopeq-metrics`` of the node's
    configuration names them; arrays, configs and the texts of errors never do.

    The node's configuration decides what its hospital takes part in: ``jopeq-max-epsilon``,
    ``-delta``, ``-rounds`` and ``-sampling`` bound the scheme, ``jopeq-columns`` lists what surveys
    may ask about, ``jopeq-ledger`` names the ledger, ``jopeq-identity`` and ``jopeq-trusted`` the
    keys. Of several of these mods the outermost acts.

    Parameters
    ----------
    scheme : Optional[RecordSum]
        The hospital's own; a server that offers another is refused. None takes the server's if the
        node's configuration bounds ε and δ (``jopeq guard``).
    run : str (default: "")
        Name of the run, the same on both ends; each has its rounds in the ledger.
    unsigned : bool (default: False)
        For simulations: no identities.
    dimension : Optional[int] (default: None)
        Entries of a total, if known: other terms are refused.
    check : Optional[callable] (default: None)
        Called with the content of a message to train or evaluate on, and whether it is the latter,
        before anything is charged; raises to refuse the model.
    surveys : Optional[Collection[Survey]] (default: ())
        The surveys that are answered. None takes any within the node's configuration, which must
        bound ε and δ and list the columns.
    """

    def __init__(
        self,
        scheme: RecordSum | None,
        *,
        run: str = "",
        unsigned: bool = False,
        dimension: int | None = None,
        check: Callable[[RecordDict, bool], object] | None = None,
        surveys: Collection[Survey] | None = (),
    ) -> None:
        if scheme is not None:
            check_scheme(scheme, unsigned)
        for survey in surveys or ():
            Task.of_survey(survey, run).terms(unsigned=unsigned)
        self._scheme, self._run, self._unsigned = scheme, run, unsigned
        self._dimension, self._check, self._surveys = dimension, check, surveys

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer one message."""
        if _agreed.get() is not None:
            return call_next(msg, ctxt)
        try:
            msg.content = own_content(msg)
            with refusing("settings"):
                node = _read_node(ctxt.node_config)
                if not _is_of_circle(msg):
                    return _answer_other(msg, ctxt, call_next, node)
                task, data = self._agree(msg)
            content = None
            if kind_of(data) != Kind.ASK and (len(msg.content) or task.survey is not None):
                content = digest_content(msg.content, msg.metadata.message_type)
                with refusing("model"):
                    if self._check is not None and task.survey is None:
                        self._check(msg.content, task.is_evaluation)
            with refusing("settings"):
                self._check_limits(node, task)
                terms = task.terms(unsigned=self._unsigned)
            with refusing("budget"):
                files = _Files(ctxt, node, task)
            with refusing("settings"):
                client = files.client(terms, node)
            with refusing("protocol"):
                reply = client.answer(
                    data,
                    content=content,
                    train=lambda _: _compute(msg, ctxt, call_next, task),
                    encode=lambda attempt, values: _encode(task.scheme, attempt, values),
                )
        except RefusedError as refused:
            return refused.reply(msg, self)
        return Message(RecordDict({RECORD: ConfigRecord({"message": reply})}), reply_to=msg)

    def _agree(self, msg: Message) -> tuple[Task, bytes]:
        """The task and the circle's message, if they are this client's own."""
        record = msg.content.config_records.get(RECORD)
        if record is None or not isinstance(data := record.get("message"), bytes):
            raise ProtocolError(
                "the server sent no message of a circle, and this client answers nothing else: use "
                "RecordStrategy there"
            )
        del msg.content[RECORD]
        spec, dimension, run = (record.get(name) for name in ("scheme", "dimension", "run"))
        kind = _kind_of_message(msg)
        if kind == MessageType.QUERY:
            return self._agree_survey(str(spec), str(run)), data
        if kind == MessageType.EVALUATE:
            found = _read_scheme(spec) if self._scheme is None else self._scheme.evaluation
            own = run if self._scheme is None else self._run
            if (found.spec, EVALUATED, own) != (spec, dimension, run):
                raise ProtocolError(
                    f"the server evaluates {run!r:.80} of {spec!r:.300}, this client {own!r:.80} "
                    f"of {found.spec!r}; nothing was sent"
                )
            return Task.of_evaluation(found, str(run)), data
        if not isinstance(dimension, int) or dimension != (self._dimension or dimension):
            raise ProtocolError(
                f"the server sums {dimension!r:.40} entries, this app {self._dimension}"
            )
        if self._scheme is None:
            return Task(_read_scheme(spec), dimension, str(run)), data
        if (spec, run) != (self._scheme.spec, self._run):
            raise ProtocolError(
                f"the server's run is {run!r:.80} of {spec!r:.300}, this client's {self._run!r} of "
                f"{self._scheme.spec!r}; nothing was sent"
            )
        return Task(self._scheme, dimension, self._run), data

    def _agree_survey(self, spec: str, run: str) -> Task:
        if self._surveys is None:
            survey = Survey.from_spec(spec)
            if survey.spec != spec or survey.colluding < 1:
                raise ValueError(f"spec {spec!r:.300} is none of a survey, or its colluding is 0")
            return Task.of_survey(survey, run)
        for survey in self._surveys:
            if (survey.spec, self._run) == (spec, run):
                return Task.of_survey(survey, run)
        raise ProtocolError(
            f"the server's survey is {run!r:.80} of {spec!r:.300}, which is none of the "
            f"{len(self._surveys)} surveys of {self._run!r} that this client answers"
        )

    def _check_limits(self, node: Mapping[str, Any], task: Task) -> None:
        """Refuse what is beyond the node's configuration."""
        scheme, survey = task.scheme, task.survey
        found = {name: float(getattr(scheme, name)) for name in LIMITS}
        found["rounds"] = float(scheme.sums)
        if self._unsigned:
            found["epsilon"] = epsilon_left(scheme, task.dimension, 1)
            told = "RecordMod: unsigned: a server that invents hospitals leaves a record ε = %.3g"
            log(WARNING, told, found["epsilon"])
        needed = [f"max-{name}" for name in LIMITS[:2]]
        if survey is not None:
            needed.append("columns")
        missing = [key for key in needed if key not in node]
        if missing and (self._scheme if survey is None else self._surveys) is None:
            raise ValueError(f"jopeq-{missing[0]} of the node's configuration must be set")
        for name, value in found.items():
            most = float(node.get(f"max-{name}", value))
            if not value <= most:
                beyond = ValueError(f"{name} is {value:g}, and jopeq-max-{name} is {most:g}")
                raise RefusedError("limits") from beyond
        if survey is not None and "columns" in node:
            _check_columns(str(node["columns"]), survey)


def _kind_of_message(msg: Message) -> str:
    return msg.metadata.message_type.split(".")[0]


def _is_of_circle(msg: Message) -> bool:
    """Whether a message trains, or is a survey or an evaluation."""
    return is_train(msg) or RECORD in msg.content


def _check_columns(listed: str, survey: Survey) -> None:
    """Refuse questions about columns that are not listed, and for numbers of text.

    This is known before any table is read: the list is the hospital's own, and public.
    """
    pairs = [tuple(map(str.strip, one.split("="))) for one in listed.split(",")]
    if strange := [pair for pair in pairs if pair[1:] not in ((), (_TEXT,))]:
        raise ValueError(f"jopeq-columns must be NAME or NAME={_TEXT}, got {'='.join(strange[0])}")
    for name, kind in survey.asked:
        fitting = [rest for pattern, *rest in pairs if fnmatchcase(name, pattern)]
        if not fitting or (kind == "numbers" and [_TEXT] in fitting):
            beyond = ValueError(f"the survey asks for {kind} of {name!r:.80}, and jopeq-columns is "
                                f"{listed!r}")  # fmt: skip
            raise RefusedError("limits") from beyond


def _read_node(config: Mapping[str, Any]) -> dict[str, Any]:
    node = read(config)
    refuse_budget(node)
    known = {f"max-{name}" for name in LIMITS}
    if strangers := [key for key in node if key.startswith("max-") and key not in known]:
        raise ValueError(f"jopeq-{strangers[0]} bounds nothing: use one of {sorted(known)}")
    return node


def _read_scheme(spec: Any) -> RecordSum:
    """The scheme that a server names, if its assumptions are no bolder than the usual ones."""
    name, parameters = json.loads(spec)
    scheme = RecordSum(**parameters)
    if name != scheme.name or scheme.spec != spec:
        raise ValueError(f"spec {spec!r:.300} is none of a RecordSum")
    if scheme.colluding < 1 or scheme.batch_dependence < _MOVED:
        raise ValueError(
            f"colluding must be at least 1 and batch_dependence at least {_MOVED:g}, got {spec}"
        )
    return scheme


def _answer_other(
    msg: Message, context: Context, call_next: ClientAppCallable, node: Mapping[str, Any]
) -> Message:
    """The answer to evaluate and query messages: the metrics that the node lets through."""
    reply = _call(msg, context, call_next)
    returned = RecordDict() if reply is None else RecordDict(dict(reply.content))
    metrics = let_through(returned, read_metrics(node.get("metrics", "")), context)
    return Message(RecordDict({"metrics": metrics} if metrics else {}), reply_to=msg)


def _call(msg: Message, context: Context, call_next: ClientAppCallable) -> Message | None:
    """The app's reply; None if it failed: whether it did may depend on a record."""
    try:
        reply = call_next(msg, context)
        if not reply.has_error():
            return reply
        log(ERROR, "RecordMod: the app failed, which nobody else learns: %s", reply.error.reason)
    except BaseException:  # an exit tells as much as an error
        log(ERROR, "RecordMod: the app failed, which nobody else learns", exc_info=True)
    return None


def _compute(
    msg: Message, context: Context, call_next: ClientAppCallable, task: Task
) -> NDArray[np.int64]:
    """The total of what the app found, zeros if there is none."""
    token = _agreed.set(task)
    try:
        reply = _call(msg, context, call_next)
    finally:
        _agreed.reset(token)
    try:
        found = None if reply is None else vars(reply).get(_FOUND)
        if task.survey is not None and found is not None:
            found = task.survey.total(found, tell=lambda error: log(ERROR, "RecordMod: %s", error))
        if isinstance(found, ClippedTotal):
            if (found.dimension, found.clip) == (task.dimension, task.scheme.clip):
                return np.array(found.values)
            log(
                ERROR,
                "RecordMod: a total of 0 is sent: the app's has %d entries clipped to %g, the terms"
                " say %d and %g",
                *(found.dimension, found.clip, task.dimension, task.scheme.clip),
            )
        elif reply is not None:
            needed = "reply_total(msg, total)" if task.survey is None else "reply_table(msg, table)"
            log(ERROR, "RecordMod: a total of 0 is sent: answer with %s", needed)
    except BaseException:
        log(ERROR, "RecordMod: a total of 0 is sent", exc_info=True)
    return np.zeros(task.dimension, dtype=np.int64)


def _encode(scheme: RecordSum, attempt: Attempt, values: NDArray[np.int64]) -> NDArray[Any]:
    clients = scheme.clients if scheme.dropouts == "recover" else attempt.clients
    total = ClippedTotal.restore(values, scheme.clip)
    return scheme.encode(total, seed=attempt.seed, clients=clients)


class _Files:
    """A hospital's ledger, and beside it the folder of its circles."""

    def __init__(
        self,
        context: Context,
        node: Mapping[str, Any],
        task: Task,
    ) -> None:
        self._state, self._task = context.state, task
        if "ledger" in node:  # its own budget counts: the ledger of a data set outlives runs
            found = Ledger.load(node["ledger"])
            epsilon, delta = found.budget, found.delta
        else:
            epsilon = float(node.get("max-epsilon", task.scheme.epsilon))
            delta = float(node.get("max-delta", task.scheme.delta))
        self._budget = Budget(epsilon=epsilon, delta=delta).of_node(context.node_config)
        with self._budget.alone():
            self._budget.open(self._state)  # made if it is new

    def client(self, terms: CircleTerms, node: Mapping[str, Any]) -> CircleClient:
        """The hospital as a member of the circle."""
        home = own_folder(self._budget.file.with_name(f"{self._budget.file.name}.circle"))
        keys = read_keys(node.get("identity"), node.get("trusted"))
        if terms.unsigned == bool(keys):
            raise ValueError(
                "this node has keys (jopeq-identity, jopeq-trusted) and the app is unsigned: it "
                "would be let in without them"
                if keys
                else "jopeq-identity and jopeq-trusted of the node's configuration must name this "
                "hospital's key and the public keys of all; unsigned=True is for simulations"
            )
        client = CircleClient(
            terms,
            home,
            charge=self._charge,
            count=lambda: Ledger.load(self._budget.file).rounds,
            **(keys or {"identity": _passing_identity(home)}),
        )
        if keys:
            log(INFO, "RecordMod: fingerprint of the trusted hospitals: %s", client.fingerprint)
        return client

    def _charge(self, attempt: Attempt) -> dict[str, Any]:
        task = self._task
        with self._budget.opened(self._state) as ledger:
            ahead = 0 if ledger.rounds % _AHEAD else _AHEAD - 1
            ledger.participate(task.scheme, task.dimension, run=task.name, ahead=ahead)
        spent = ledger.spent.epsilon
        told = "RecordMod: round %d, attempt %d: ε = %.4g of %g is spent for every record"
        log(INFO, told, attempt.round, attempt.attempt, spent, ledger.budget)
        return {"epsilon": spent}


def _passing_identity(home: Path) -> Ed25519PrivateKey:
    """The key of an unsigned client, which nobody trusts."""
    path = home / "unsigned.key"
    with alone(home / ".unsigned.lock"):
        if not path.exists():
            with atomic(path, mode=0o600) as file:
                file.write(fresh_seed())
        check_own_file(path, is_secret=True)
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
