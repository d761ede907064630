"""``JoPEQMod``: what a ClientApp returns becomes a payload before it leaves the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from logging import ERROR
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from jopeq.errors import JoPEQError, UpdateError
from jopeq.flower.agreement import agree
from jopeq.flower.budget import Budget
from jopeq.flower.downlink import DEFAULT, coder_of, is_compressed, restore
from jopeq.flower.model import Model, ReplyError, update_between
from jopeq.flower.payload import RECORD, to_record
from jopeq.flower.settings import Settings, read
from jopeq.privacy import AdaptiveClip
from jopeq.schemes import Scheme
from jopeq.state import encode_state

ClientAppCallable = Callable[[Message, Context], Message]


class JoPEQMod:
    """Encodes the update of every train message; all other messages pass.

    The update, trained minus received, is formed here from all float arrays of all array records.
    Integer and boolean arrays are not sent: the server keeps its own. Whatever cannot be encoded
    (NaN, settings that differ from the server's, a spent budget) becomes an error reply with code
    ``MOD_FAILED_PRECONDITION``, and nothing of the update leaves. Put it last among mods that
    change arrays, so that it encodes what they return: ``ClientApp(mods=[JoPEQMod(), ...])``, the
    first mod being the last to see the reply.

    Metrics and configs of the reply travel as they are: no guarantee speaks of them.

    Parameters
    ----------
    scheme : Optional[Scheme] (default: None)
        From ``jopeq.scheme``. If None, the ``jopeq-…`` keys of the run configuration decide,
        which cannot change or turn off what is given here.
    budget : Optional[float] (default: None)
        Largest ε of this client, all rounds together; beyond it, error replies. If None,
        ``jopeq-budget`` of the node's configuration or else of the run's.
    delta : float (default: 0.0)
        The δ at which the budget is stated (``jopeq-budget-delta``).
    ledger : Optional[path] (default: None)
        File that keeps the ledger across runs (``jopeq-ledger``); by default it lives in the
        context's state, as long as the run.
    adaptive_clip : Optional[AdaptiveClip] (default: None)
        Follow the server's clip and answer with one private bit; with ``scheme`` only.
    frozen : Iterable[str] (default: ())
        Patterns of array names that are never sent; with ``scheme`` only.
    downlink : Optional[Scheme] (default: None)
        The strategy's ``downlink``, where that is a scheme of your own: a compressed model of any
        other scheme is refused. If None, ``jopeq-downlink`` decides, else ``sdq`` at 4 bits.
    """

    def __init__(
        self,
        scheme: Scheme | None = None,
        *,
        budget: float | None = None,
        delta: float = 0.0,
        ledger: str | os.PathLike[str] | None = None,
        adaptive_clip: AdaptiveClip | None = None,
        frozen: Iterable[str] = (),
        downlink: Scheme | None = None,
    ) -> None:
        self._downlink = downlink
        patterns = tuple(frozen)
        if scheme is None and (adaptive_clip is not None or patterns):
            raise ValueError("adaptive_clip and frozen need scheme: give it too, or set all by key")
        if budget is None and (delta != 0.0 or ledger is not None):
            raise ValueError("delta and ledger belong to a budget: give it too")
        self._settings = None
        if scheme is not None:
            self._settings = Settings(scheme=scheme, adaptive_clip=adaptive_clip, frozen=patterns)
        self._budget = None
        if budget is not None:
            self._budget = Budget(epsilon=budget, delta=delta, path=ledger)

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Let the app train, then replace the arrays of its reply by the payload."""
        try:
            prepared = self._prepared(msg, ctxt)
        except Exception as error:  # whatever the server sent; nothing private was touched yet
            return _refusal(msg, error)
        reply = call_next(msg, ctxt)
        if prepared is None or reply.has_error():
            return reply
        try:
            return _encoded(reply, ctxt, *prepared)
        except (JoPEQError, ValueError, TypeError, OSError) as error:  # the ledger's file too
            return _refusal(msg, error)

    def _prepared(
        self, msg: Message, ctxt: Context
    ) -> tuple[Model, Settings, Scheme, Budget | None] | None:
        """What encoding the reply will need; None where it is to pass as it is."""
        settings = self._settings or Settings.from_config(ctxt.run_config)
        if settings is None:
            return None
        offered = msg.content.config_records.get(RECORD)
        if is_compressed(offered):
            coder = coder_of(self._downlink, read(ctxt.run_config)) or DEFAULT
            restore(msg.content, offered, ctxt.state, coder)
        if not _is_train(msg):
            return None
        scheme = agree(settings, offered)
        budget = self._budget or _budget_from(ctxt)
        model = Model(msg.content)
        model.floats  # noqa: B018 (reads the arrays, before anybody trains on them)
        return model, settings, scheme, budget


def _encoded(
    reply: Message,
    context: Context,
    model: Model,
    settings: Settings,
    scheme: Scheme,
    budget: Budget | None,
) -> Message:
    """The reply with its payload, and with the ledger written down before."""
    content = RecordDict()
    for key, record in reply.content.items():
        if key not in reply.content.array_records:
            content[key] = record
    if RECORD in content:
        raise ValueError(f"the reply's record {RECORD!r} is reserved: rename it")
    update = {
        name: value
        for name, value in update_between(model, reply.content).items()
        if not settings.is_frozen(name)
    }
    rule = settings.adaptive_clip
    answer = ConfigRecord()
    if rule is not None and scheme.clip is not None:
        # a clip of whole updates bounds one sample that has all entries
        is_whole = scheme.guarantee.unit == "update"
        entries = max(1, sum(value.size for value in update.values()))
        answer["clip-bit"] = rule.bit(
            update, scheme.clip, entries if is_whole else scheme.dimension
        )
    if budget is None:
        payload = encode_state(scheme, update)
    else:
        with budget.alone():
            ledger = budget.open(context, allow_any_scheme=rule is not None)
            if rule is not None:
                ledger.charge(rule.guarantee, "clip bit")
            payload = ledger.encode_state(scheme, update)
            budget.keep(context, ledger)
    content["arrays" if "arrays" not in content else "jopeq-arrays"] = to_record(payload)
    if answer:  # each record costs Flower a request of about a kilobyte
        content[RECORD] = answer
    reply.content = content
    return reply


def _budget_from(context: Context) -> Budget | None:
    """The node's budget or else the run's, each with its δ; a ledger of the node always counts."""
    node, run = read(context.node_config), read(context.run_config)
    given: Mapping[str, Any] = node if "budget" in node else run
    if given is run and float(node.get("budget-delta", 0.0)) != 0.0:
        raise ValueError(
            "jopeq-budget-delta of a node goes with a budget of its own: set jopeq-budget there too"
        )
    delta = float(given.get("budget-delta", 0.0))
    path = node.get("ledger", given.get("ledger"))
    if "budget" in given:
        return Budget(epsilon=float(given["budget"]), delta=delta, path=path)
    if delta != 0.0 or path is not None:
        raise ValueError("jopeq-budget-delta and jopeq-ledger need jopeq-budget: set it too")
    return None


def _is_train(msg: Message) -> bool:
    return msg.metadata.message_type.split(".")[0] == MessageType.TRAIN


def _refusal(msg: Message, error: Exception) -> Message:
    log(ERROR, "JoPEQMod: %s", error)
    reason = str(error)
    if isinstance(error, UpdateError) and not isinstance(error, ReplyError):
        # The full message quotes an entry of the update, which is not for the server to read.
        reason = "the update holds numbers that cannot be encoded (see this node's log)"
    elif isinstance(error, OSError):  # it names files of this node
        reason = "the ledger's file cannot be read or written (see this node's log)"
    return Message(
        Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=f"JoPEQMod: {reason}"), reply_to=msg
    )
