"""``JoPEQMod``: what a ClientApp returns becomes a payload before it leaves the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from logging import ERROR, WARNING
from pathlib import Path
from typing import Any

from flwr.app import (
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from jopeq.errors import BudgetExceededError, JoPEQError
from jopeq.files import alone
from jopeq.flower.downlink import DEFAULT, coder_of, is_compressed, restore
from jopeq.flower.payload import RECORD, Model, Values, to_record, update_between, whole_update
from jopeq.flower.settings import Settings, agree, read
from jopeq.privacy import AdaptiveClip, Ledger
from jopeq.schemes import Scheme
from jopeq.schemes.state import encode_state
from jopeq.wire.entries import Entries

# A client's ledger between rounds: in Flower's state of the run, or in a file across runs


LEDGER_STATE = "jopeq-ledger"


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
        elif (record := context.state.config_records.get(LEDGER_STATE)) is not None:
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
            context.state[LEDGER_STATE] = ConfigRecord({"ledger": ledger.to_json()})


# ``JoPEQMod``: what a ClientApp returns becomes a payload before it leaves the device


ClientAppCallable = Callable[[Message, Context], Message]
STATE = "jopeq-metrics"


class JoPEQMod:
    """Encodes the update of every train message; all other messages pass.

    The update, trained minus received, is formed here from all float arrays of all array records.
    Integer and boolean arrays are not sent: the server keeps its own. Put it last among mods that
    change arrays, so that it encodes what they return: ``ClientApp(mods=[JoPEQMod(), ...])``, the
    first mod being the last to see the reply.

    A scheme that names an ε is held to it against a server that chooses the model: whether and
    what the mod answers must not depend on the data but through the noised payload.

    - Whatever may be refused (settings that differ from the server's, a spent budget, a model that
      cannot be read) is refused before the app trains, with code ``MOD_FAILED_PRECONDITION``. The
      cost follows from the model's shapes and is written down before the app trains.
    - Every reply then holds the same arrays. An array that the app leaves out, or returns in
      another shape or kind, counts as unchanged; NaN counts as 0. If the app raises, or answers
      with an error or without arrays, the update is 0. The client's log tells, the reply does not.
    - Metrics that are not named in ``metrics``, and all configs, stay on the client.

    With ``none``, ``sdq`` and ``dq`` nothing is private: metrics, configs and errors of the app
    pass, and an update that cannot be encoded becomes an error reply.

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
    metrics : Iterable[str] (default: ())
        Names of metrics that a private scheme lets through, as single numbers and in the clear: no
        guarantee covers them (``jopeq-metrics``); with ``scheme`` only.
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
        metrics: Iterable[str] = (),
        downlink: Scheme | None = None,
    ) -> None:
        self._downlink = downlink
        for name, value in (("frozen", frozen), ("metrics", metrics)):
            if isinstance(value, str):
                raise ValueError(f"{name} must be a list of names, got {value!r}: use [{value!r}]")
        patterns, allowed = tuple(frozen), tuple(metrics)
        if scheme is None and (adaptive_clip is not None or patterns or allowed):
            raise ValueError(
                "adaptive_clip, frozen and metrics need scheme: give it too, or set all by key"
            )
        if budget is None and (delta != 0.0 or ledger is not None):
            raise ValueError("delta and ledger belong to a budget: give it too")
        self._settings = None
        if scheme is not None:
            self._settings = Settings(
                scheme=scheme, adaptive_clip=adaptive_clip, frozen=patterns, metrics=allowed
            )
        self._budget = None
        if budget is not None:
            self._budget = Budget(epsilon=budget, delta=delta, path=ledger)

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Let the app train, then replace the arrays of its reply by the payload."""
        try:
            task = self._prepared(msg, ctxt)
        except Exception as error:  # whatever the server sent; nothing private was touched yet
            return _refusal(msg, error)
        if task is None:
            return call_next(msg, ctxt)
        if task.settings.is_private:
            return _private_reply(msg, ctxt, call_next, task)
        reply = call_next(msg, ctxt)
        if reply.has_error():
            return reply
        try:
            reply.content = _public_content(reply.content, task)
        except (JoPEQError, ValueError, TypeError) as error:
            return _refusal(msg, error)
        return reply

    def _prepared(self, msg: Message, ctxt: Context) -> _Task | None:
        """What encoding the reply will need, paid for; None where the reply is to pass as it is."""
        settings = self._settings or Settings.from_config(ctxt.run_config)
        if settings is None:
            return None
        offered = msg.content.config_records.get(RECORD)
        if is_compressed(offered):
            coder = coder_of(self._downlink, read(ctxt.run_config)) or DEFAULT
            restore(msg.content, offered, ctxt.state, coder)
        if not _is_train(msg):
            if settings.is_private:
                log(
                    WARNING,
                    "JoPEQMod: the app's answer to a message of type %r leaves in the clear",
                    msg.metadata.message_type,
                )
            return None
        scheme = agree(settings, offered)
        budget = self._budget or _budget_from(ctxt)
        model = Model(msg.content)
        names = [name for name in model.floats if not settings.is_frozen(name)]
        if settings.is_private:  # what cannot be encoded is known from names, types and shapes
            Entries.of_state({name: model.floats[name] for name in names})
        task = _Task(model, settings, scheme, names)
        if budget is not None:
            _charge(budget, ctxt, task)
        return task


@dataclass(frozen=True)
class _Task:
    """One train message: the server's model, and how to encode what training adds to it."""

    model: Model
    settings: Settings
    scheme: Scheme
    names: list[str]  # the arrays that may be sent

    @property
    def entries(self) -> int:
        return sum(self.model.floats[name].size for name in self.names)

    def clip_bit(self, update: Mapping[str, Values]) -> int | None:
        """Whether the update is within the clip, as the adaptive rule randomizes it."""
        rule, scheme = self.settings.adaptive_clip, self.scheme
        if rule is None or scheme.clip is None:
            return None
        # a clip of whole updates bounds one sample that has all entries
        is_whole = scheme.guarantee.unit == "update"
        dimension = max(1, self.entries) if is_whole else scheme.dimension
        return rule.bit(update, scheme.clip, dimension)


def _charge(budget: Budget, context: Context, task: _Task) -> None:
    """Write down what the reply costs, as the model's public shapes tell."""
    rule = task.settings.adaptive_clip
    with budget.alone():
        ledger = budget.open(context, allow_any_scheme=rule is not None)
        if rule is not None:
            ledger.charge(rule.guarantee, "clip bit")
        ledger.charge_update(task.scheme, task.entries)
        budget.keep(context, ledger)


def _private_reply(
    msg: Message, context: Context, call_next: ClientAppCallable, task: _Task
) -> Message:
    """A reply in which nothing depends on the data but the payload and the metrics let through."""
    returned = RecordDict()
    try:
        reply = call_next(msg, context)
        if reply.has_error():
            log(ERROR, "JoPEQMod: the app failed, 0 is sent as its update: %s", reply.error.reason)
        else:
            returned = RecordDict(dict(reply.content))
    except Exception:
        log(ERROR, "JoPEQMod: the app failed, 0 is sent as its update", exc_info=True)
    try:
        content = RecordDict()
        metrics = _let_through(returned, task.settings.metrics, context)
        if metrics:
            content["metrics"] = metrics
        update = whole_update(task.model, returned, task.names)
        bit = task.clip_bit(update)
        content["arrays"] = to_record(encode_state(task.scheme, update))
        if bit is not None:
            content[RECORD] = ConfigRecord({"clip-bit": bit})
        return Message(content, reply_to=msg)
    except Exception:
        log(ERROR, "JoPEQMod: the update could not be encoded", exc_info=True)
        return _error(msg, "the reply could not be made (see this node's log)")


def _let_through(returned: RecordDict, allowed: tuple[str, ...], context: Context) -> MetricRecord:
    """The metrics that may leave: always all of them, each a number.

    What the app does not return is what it returned last, or else 1, so that a failure does not
    show in a metric that stays the same from round to round.
    """
    found = {
        name: value for record in returned.metric_records.values() for name, value in record.items()
    }
    kept = [*(name for name in found if name not in allowed), *returned.config_records]
    if kept:
        log(
            WARNING,
            "JoPEQMod: %s of the app's reply stay on this client, since no ε covers them; name a "
            "metric in metrics=[…] (jopeq-metrics) to send it in the clear",
            ", ".join(map(repr, kept)),
        )
    last = context.state.metric_records.get(STATE, MetricRecord())
    result = MetricRecord()
    for name in allowed:
        value = found.get(name)
        result[name] = value if isinstance(value, int | float) else last.get(name, 1)
    if result:
        context.state[STATE] = result.copy()
    return result


def _public_content(content: RecordDict, task: _Task) -> RecordDict:
    """The content of a reply without privacy: all its records, with the payload for the arrays."""
    result = RecordDict()
    for key, record in content.items():
        if key not in content.array_records:
            result[key] = record
    if RECORD in result:
        raise ValueError(f"the reply's record {RECORD!r} is reserved: rename it")
    update = {
        name: value
        for name, value in update_between(task.model, content).items()
        if name in task.names
    }
    bit = task.clip_bit(update)
    payload = encode_state(task.scheme, update)
    result["arrays" if "arrays" not in result else "jopeq-arrays"] = to_record(payload)
    if bit is not None:  # each record costs Flower a request of about a kilobyte
        result[RECORD] = ConfigRecord({"clip-bit": bit})
    return result


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
    if isinstance(error, OSError):  # it names files of this node
        reason = "the ledger's file cannot be read or written (see this node's log)"
    return _error(msg, reason)


def _error(msg: Message, reason: str) -> Message:
    return Message(
        Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=f"JoPEQMod: {reason}"), reply_to=msg
    )
