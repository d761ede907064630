"""``RecordMod``: the client's side of records in Flower. A hospital's total becomes a masked share.

A round is one message of a circle (``jopeq.secure``) with the model beside it; the terms come from
a ``RecordSum``. The hospital's own node configuration decides what it takes part in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common.logger import log
from numpy.typing import NDArray

from jopeq.errors import ProtocolError
from jopeq.files import alone, atomic, check_own_file, own_folder
from jopeq.flower.budget import Budget
from jopeq.flower.mod import ClientAppCallable, is_train, let_through
from jopeq.flower.payload import own_content
from jopeq.flower.refusals import RefusedError, refusing
from jopeq.flower.settings import declared, read
from jopeq.flower.sum_mod import read_keys
from jopeq.ledger import Ledger
from jopeq.random.streams import fresh_seed
from jopeq.secure import Attempt, CircleClient, CircleTerms, Plan, digest
from jopeq.secure.circle import Kind, kind_of
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_plan import epsilon_left
from jopeq.sums.record_sum import RecordSum

RECORD = "jopeq-records"
"""Key of the config record that carries a message of the circle either way."""

LIMITS = ("epsilon", "delta", "rounds", "sampling")
"""What ``jopeq-max-…`` of a node's configuration bounds."""

_TOTAL = "_jopeq_total"  # of a reply within the process: Flower sends content and metadata alone
_AHEAD = 8  # rounds accounted for at once: the accountant takes a second to import
_MOVED = 2.0**-20  # the least that a server may assume of an app it chose
_agreed: ContextVar[RecordSum | None] = ContextVar("agreed", default=None)


def check_scheme(scheme: RecordSum, unsigned: bool) -> None:
    """``ValueError`` for no ``RecordSum``, and for a threshold that protects nobody."""
    if not isinstance(scheme, RecordSum):
        raise ValueError(
            f"scheme must be a RecordSum, got {scheme!r}: a SecureSum goes with JoPEQSumMod, other "
            "schemes with JoPEQMod"
        )
    make_terms(scheme, 1, "", unsigned=unsigned)


def make_terms(scheme: RecordSum, dimension: int, run: str, *, unsigned: bool) -> CircleTerms:
    """The circle's terms for totals of this dimension."""

    def plan(clients: int) -> Plan:
        bits = scheme.plan(dimension, clients).bits
        return Plan(bits=bits, length=dimension, text=scheme.spec_for(dimension, clients))

    return CircleTerms(
        circle=run,
        spec=f"{scheme.spec} of {dimension} entries",
        plan=plan,
        clients=scheme.clients,
        threshold=scheme.threshold,
        colluding=scheme.colluding,
        dropouts=scheme.dropouts,
        unsigned=unsigned,
    )


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
    """An app's reply to a train message: the total for ``RecordMod``, within this process.

    The reply itself is empty. Without the mod nothing of the total leaves the node.
    """
    reply = Message(RecordDict(), reply_to=msg)
    vars(reply)[_TOTAL] = total
    return reply


def agreed_scheme() -> RecordSum | None:
    """The scheme whose terms the outermost mod has agreed to; None outside a train message."""
    return _agreed.get()


class RecordMod:
    """Sends the total of a hospital's clipped rows as a masked share of a sum, and nothing else.

    The app answers a train message with ``reply_total(msg, total)``. Everything that may be
    refused is refused, and the share is in the ledger's file, before the app is called. An app
    that fails, exits or returns no total of the right dimension and clip sends a share of 0, and
    only the node's log tells. Metrics leave in answers to evaluate and query messages only where
    ``jopeq-metrics`` of the node's configuration names them; arrays, configs and the texts of
    errors never do.

    The node's configuration decides what its hospital takes part in: ``jopeq-max-epsilon``,
    ``-delta``, ``-rounds`` and ``-sampling`` bound the scheme, ``jopeq-ledger`` names the ledger,
    ``jopeq-identity`` and ``jopeq-trusted`` the keys. Of several of these mods the outermost acts.

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
        Called with the content of a message to train on, before anything is charged; raises to
        refuse the model.
    """

    def __init__(
        self,
        scheme: RecordSum | None,
        *,
        run: str = "",
        unsigned: bool = False,
        dimension: int | None = None,
        check: Callable[[RecordDict], object] | None = None,
    ) -> None:
        if scheme is not None:
            check_scheme(scheme, unsigned)
        self._scheme, self._run, self._unsigned = scheme, run, unsigned
        self._dimension, self._check = dimension, check

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer one message."""
        if _agreed.get() is not None:
            return call_next(msg, ctxt)
        try:
            msg.content = own_content(msg)
            with refusing("settings"):
                node = _read_node(ctxt.node_config)
                if not is_train(msg):
                    return _answer_other(msg, ctxt, call_next, node)
                scheme, dimension, run, data = self._agree(msg)
            content = None
            if len(msg.content) and kind_of(data) != Kind.ASK:
                content = digest_content(msg.content, msg.metadata.message_type)
                with refusing("model"):
                    if self._check is not None:
                        self._check(msg.content)
            with refusing("settings"):
                self._check_limits(node, scheme, dimension)
                terms = make_terms(scheme, dimension, run, unsigned=self._unsigned)
            with refusing("budget"):
                files = _Files(ctxt, node, scheme, dimension, run)
            with refusing("settings"):
                client = files.client(terms, node)
            with refusing("protocol"):
                reply = client.answer(
                    data,
                    content=content,
                    train=lambda _: _train(msg, ctxt, call_next, scheme, dimension),
                    encode=lambda attempt, values: _encode(scheme, attempt, values),
                )
        except RefusedError as refused:
            return refused.reply(msg, self)
        return Message(RecordDict({RECORD: ConfigRecord({"message": reply})}), reply_to=msg)

    def _agree(self, msg: Message) -> tuple[RecordSum, int, str, bytes]:
        """Scheme, dimension, run and the circle's message, if they are this client's own."""
        record = msg.content.config_records.get(RECORD)
        if record is None or not isinstance(data := record.get("message"), bytes):
            raise ProtocolError(
                "the server sent no message of a circle, and this client answers nothing else: use "
                "RecordStrategy there"
            )
        del msg.content[RECORD]
        spec, dimension, run = (record.get(name) for name in ("scheme", "dimension", "run"))
        if not isinstance(dimension, int) or dimension != (self._dimension or dimension):
            raise ProtocolError(
                f"the server sums {dimension!r:.40} entries, this app {self._dimension}"
            )
        if self._scheme is None:
            return _read_scheme(spec), dimension, str(run), data
        if (spec, run) != (self._scheme.spec, self._run):
            raise ProtocolError(
                f"the server's run is {run!r:.80} of {spec!r:.300}, this client's {self._run!r} of "
                f"{self._scheme.spec!r}; nothing was sent"
            )
        return self._scheme, dimension, self._run, data

    def _check_limits(self, node: Mapping[str, Any], scheme: RecordSum, dimension: int) -> None:
        """Refuse what is beyond the node's configuration."""
        found = {name: float(getattr(scheme, name)) for name in LIMITS}
        if self._unsigned:
            found["epsilon"] = epsilon_left(scheme, dimension, 1)
            told = "RecordMod: unsigned: a server that invents hospitals leaves a record ε = %.3g"
            log(WARNING, told, found["epsilon"])
        missing = [name for name in LIMITS[:2] if f"max-{name}" not in node]
        if self._scheme is None and missing:
            raise ValueError(f"jopeq-max-{missing[0]} of the node's configuration must be set")
        for name, value in found.items():
            most = float(node.get(f"max-{name}", value))
            if not value <= most:
                beyond = ValueError(f"{name} is {value:g}, and jopeq-max-{name} is {most:g}")
                raise RefusedError("limits") from beyond


def _read_node(config: Mapping[str, Any]) -> dict[str, Any]:
    node = read(config)
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
    if scheme.colluding < 1 or scheme.moved < _MOVED:
        raise ValueError(f"colluding must be at least 1 and moved at least {_MOVED:g}, got {spec}")
    return scheme


def _answer_other(
    msg: Message, context: Context, call_next: ClientAppCallable, node: Mapping[str, Any]
) -> Message:
    """The answer to evaluate and query messages: the metrics that the node lets through."""
    reply = _call(msg, context, call_next)
    returned = RecordDict() if reply is None else RecordDict(dict(reply.content))
    metrics = let_through(returned, declared(node.get("metrics", "")), context)
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


def _train(
    msg: Message, context: Context, call_next: ClientAppCallable, scheme: RecordSum, dimension: int
) -> NDArray[np.int64]:
    """The app's total, zeros if there is none."""
    token = _agreed.set(scheme)
    try:
        reply = _call(msg, context, call_next)
    finally:
        _agreed.reset(token)
    try:
        total = None if reply is None else vars(reply).get(_TOTAL)
        if isinstance(total, ClippedTotal):
            if (total.dimension, total.clip) == (dimension, scheme.clip):
                return np.array(total.values)
            log(
                ERROR,
                "RecordMod: a total of 0 is sent: the app's has %d entries clipped to %g, the terms"
                " say %d and %g",
                *(total.dimension, total.clip, dimension, scheme.clip),
            )
        elif reply is not None:
            log(ERROR, "RecordMod: a total of 0 is sent: answer with reply_total(msg, total)")
    except BaseException:
        log(ERROR, "RecordMod: a total of 0 is sent", exc_info=True)
    return np.zeros(dimension, dtype=np.int64)


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
        scheme: RecordSum,
        dimension: int,
        run: str,
    ) -> None:
        self._state = context.state
        self._charged = scheme, dimension, run
        if "ledger" in node:  # its own budget counts: the ledger of a data set outlives runs
            found = Ledger.load(node["ledger"])
            epsilon, delta = found.budget, found.delta
        else:
            epsilon = float(node.get("max-epsilon", scheme.epsilon))
            delta = float(node.get("max-delta", scheme.delta))
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
        scheme, dimension, run = self._charged
        with self._budget.opened(self._state) as ledger:
            ahead = 0 if ledger.rounds % _AHEAD else _AHEAD - 1
            ledger.participate(scheme, dimension, run=run, ahead=ahead)
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
