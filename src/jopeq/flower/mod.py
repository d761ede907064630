"""``JoPEQMod``: the client's side. An app's reply becomes a payload before it leaves the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from logging import ERROR, INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import MessageTypeLegacy
from flwr.common.logger import log

from jopeq.entries.layer_clips import check_clip
from jopeq.errors import JoPEQError
from jopeq.flower.arrays import (
    RECORD,
    Model,
    Values,
    own_content,
    to_record,
    update_between,
    whole_update,
)
from jopeq.flower.budget import Budget, budget_from
from jopeq.flower.refusals import RefusedError, refusing
from jopeq.flower.settings import (
    Metrics,
    Settings,
    agree,
    frozen_names,
    matches,
    read,
    read_metrics,
    refuse_run_keys,
    warn_unused,
)
from jopeq.ledger import check_clip_is_public
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Counts
from jopeq.wire.entries import Entries

ClientAppCallable = Callable[[Message, Context], Message]

METRICS_STATE = "jopeq-metrics"
"""Key of the record in Flower's state that holds the metrics of the last reply."""

SECAGG = "secaggplus_configs"  # the record that Flower's SecAgg+ adds to its messages

_MOST_CLIPPED = 0.5  # of the samples: what is left of the update is mostly signs


class JoPEQMod:
    """Encodes the update of every train message.

    The mod forms the update, trained minus received, from all float arrays of all array records.
    Integer and boolean arrays are not sent: the server keeps its own. Running statistics of
    normalisation layers are sent in coordinates of their own (``jopeq.state_update``). Put the mod
    first, before mods that change arrays: the first mod is the last to see the reply.

    The client's log has the bytes and the clipped share of every reply.

    With a scheme that names an ε, the server may choose any model and still learns nothing from the
    reply but the noised payload:

    - Refusals come before the app trains: settings that differ from the server's, a spent budget, a
      model that cannot be read. The server reads a code and one fixed sentence for each kind of
      refusal (``jopeq.flower.refusals``); the client's log has the details. The cost follows from
      the model's shapes and is in the ledger's file before the app trains.
    - After training, every reply holds the same arrays. An array that the app leaves out, or
      returns in another shape or kind, counts as unchanged; NaN counts as 0. If the app raises,
      exits, or answers with an error or without arrays, the update is 0. Only the client's log
      tells.
    - Metrics that ``metrics`` does not name, and all configs, stay on the client.
    - Replies to other messages (evaluate, query) lose their arrays, and errors of the app lose
      their text. Their metrics pass in the clear. ``get_parameters`` of Flower's older clients is
      refused.

    With ``none``, ``sdq`` and ``dq`` nothing is private: metrics, configs and errors of the app
    pass, and an update that cannot be encoded becomes an error reply.

    Parameters
    ----------
    scheme : Scheme
        From ``jopeq.scheme``, given here: the run's configuration comes from whoever starts the
        run, and must not choose ε.
    budget : Optional[float] (default: None)
        Largest ε of this client, all rounds together; beyond it, error replies.
        ``jopeq-budget`` of the node's configuration replaces it, with δ and file. A budget needs a
        scheme with a clip.
    delta : float (default: 0.0)
        The δ at which the budget is stated; ``jopeq-budget-delta`` replaces it.
    ledger : Optional[path] (default: None)
        The ledger's file, made once by ``jopeq ledger init``; ``jopeq-ledger`` replaces it. Without
        both, a file in Flower's home of the node, made on first use.
    frozen : Iterable[str] or "auto" (default: ())
        Patterns of array names that are never sent. "auto" sends what ``model`` trains
        (``requires_grad``).
    model : Optional[Module or callable] (default: None)
        For "auto": the app's PyTorch module, or what makes it.
    metrics : Iterable[str] or Mapping[str, float] (default: ())
        Metrics that a private scheme sends in the clear, single numbers that no ε covers. A mapping
        (``{"num-examples": 600}``) declares constants, which are sent whatever the app returns. A
        list of names sends the app's values, which can show that training failed.
        ``jopeq-metrics`` of the node's configuration replaces it.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        budget: float | None = None,
        delta: float = 0.0,
        ledger: str | os.PathLike[str] | None = None,
        frozen: Iterable[str] = (),
        model: Any = None,
        metrics: Iterable[str] | Mapping[str, float] = (),
    ) -> None:
        if isinstance(metrics, str):
            raise ValueError(f"metrics must be a list of names, got {metrics!r}: use [{metrics!r}]")
        if budget is None and (delta != 0.0 or ledger is not None):
            raise ValueError("delta and ledger belong to a budget: give it too")
        self._settings = Settings(
            scheme=scheme, frozen=frozen_names(frozen, model), metrics=read_metrics(metrics)
        )
        self._budget = None
        if budget is not None:
            self._budget = Budget(epsilon=budget, delta=delta, path=ledger)
            check_clip_is_public(scheme)
        self._has_warned = False

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Let the app train, then replace the arrays of its reply by the payload."""
        try:
            settings, budget = self._configure(ctxt)
            with refusing("model"):
                msg.content = own_content(msg)
                if SECAGG in msg.content.config_records:
                    raise RefusedError("secagg")
            if not is_train(msg):
                _take_offer(msg)
                if not settings.is_private:
                    return call_next(msg, ctxt)
                warn, self._has_warned = not self._has_warned, True
                return other_reply(msg, ctxt, call_next, warn=warn)
            task = _prepare(msg, ctxt, settings, budget)
            if settings.is_private:
                return _private_reply(msg, ctxt, call_next, task)
        except RefusedError as refused:
            return refused.reply(msg, self)
        reply = call_next(msg, ctxt)
        if reply.has_error():
            return reply
        try:
            reply.content = _public_content(reply.content, task)
        except (JoPEQError, ValueError, TypeError) as error:
            # the scheme has no ε, so the server may read why
            return RefusedError("encoding", str(error)).reply(msg, self)
        return reply

    def _configure(self, context: Context) -> tuple[Settings, Budget | None]:
        """Settings and budget of this client; its node's configuration wins over the code."""
        node, settings = read(context.node_config), self._settings
        with refusing("budget"):
            budget = budget_from(context.node_config, self._budget)
        with refusing("settings"):
            refuse_run_keys(context.run_config)
            if "metrics" in node:
                settings = replace(settings, metrics=read_metrics(node["metrics"]))
            if budget is not None:
                check_clip_is_public(settings.scheme)
        return settings, budget


# Before the app trains: everything that may be refused


@dataclass(frozen=True)
class _Task:
    """One train message: the server's model, and how to encode what training adds to it."""

    model: Model
    settings: Settings
    scheme: Scheme
    names: list[str]  # the arrays that may be sent

    @property
    def sizes(self) -> dict[str, int]:
        return {name: self.model.floats[name].size for name in self.names}

    def encode(self, update: Mapping[str, Values], content: RecordDict) -> None:
        """Put the payload into the reply."""
        payload, counted = self.scheme.encode(update, counts=True)
        content["arrays" if "arrays" not in content else "jopeq-arrays"] = to_record(payload)
        _describe(self.scheme, counted)


def _describe(scheme: Scheme, counted: Counts) -> None:
    """Log what coding did to this update. Nothing of it leaves the client."""
    is_overload = scheme.is_whole or not scheme.is_private
    lost = counted.overloaded if is_overload else counted.clipped
    share = lost / max(counted.samples, 1)
    told = "JoPEQMod: sent %d bytes (%.2f bits an entry), %.1f%% of the update clipped"
    log(INFO, told, counted.payload_bytes, counted.bits_per_entry, 100.0 * share)
    if share > _MOST_CLIPPED and scheme.clip is not None:
        remedy = "JoPEQMod: the clip %g cuts most of this update: raise it, or use clip='layers'"
        log(WARNING, remedy, scheme.clip)


def _prepare(msg: Message, context: Context, settings: Settings, budget: Budget | None) -> _Task:
    """All that encoding the reply will need, checked and paid for."""
    offered = _take_offer(msg)
    with refusing("settings"):
        scheme = agree(settings, offered)
    with refusing("model"):
        model = Model(msg.content)
        warn_unused(model, settings.frozen)
        if scheme.per == "layers" and offered is not None and "clips" in offered:
            scheme = scheme.with_clips(_clips(offered["clips"], list(model.floats)))
        names = [n for n in model.floats if not matches(*model.places[n], settings.frozen)]
        if settings.is_private:  # names, types and shapes tell whether the update can be encoded
            Entries.of_state({name: model.floats[name] for name in names})
    task = _Task(model, settings, scheme, names)
    entries = sum(task.sizes.values())
    if entries > getattr(scheme, "max_entries", entries):
        raise RefusedError("too-many-entries")
    if budget is not None:
        with refusing("budget"), budget.opened(state=context.state) as ledger:
            ledger.charge(scheme, task.sizes)
    return task


def _take_offer(msg: Message) -> ConfigRecord | None:
    """The server's record, taken out: Flower's own mods want the app's config record alone."""
    offered = msg.content.config_records.get(RECORD)
    if offered is not None:
        del msg.content[RECORD]
    return offered


def _clips(offered: object, names: list[str]) -> dict[str, float]:
    """The server's clips of this round, one for each array that is sent."""
    clips = offered if isinstance(offered, list) else []
    if len(clips) != len(names) or not all(isinstance(clip, float) for clip in clips):
        raise JoPEQError(f"the server sent {len(clips)} clips for {len(names)} arrays")
    for clip in clips:
        check_clip(float(clip))
    return dict(zip(names, map(float, clips), strict=True))


def is_train(msg: Message) -> bool:
    """Whether the message asks for training."""
    return msg.metadata.message_type.split(".")[0] == MessageType.TRAIN


def other_reply(
    msg: Message, context: Context, call_next: ClientAppCallable, *, warn: bool
) -> Message:
    """The app's reply to a message that does not train, without arrays: updates are private.

    The model that an app keeps between rounds is its update in the clear.
    """
    kind = msg.metadata.message_type
    if kind == MessageTypeLegacy.GET_PARAMETERS:
        raise RefusedError("message-type")
    if warn:
        log(WARNING, "JoPEQ: metrics of %r leave in the clear, no ε covers them", kind)
    try:
        reply = call_next(msg, context)
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
    except BaseException as error:  # whose text may quote a record; an exit tells as much
        log(ERROR, "JoPEQ: the app failed", exc_info=True)
        raise RefusedError("app") from error
    if arrays := list(reply.content.array_records):
        log(WARNING, "JoPEQ: array records %s of a %r reply stay here", arrays, kind)
        kept = {key: item for key, item in reply.content.items() if key not in arrays}
        reply.content = RecordDict(kept)
    return reply


# After the app has trained: nothing may tell about the data but the noised payload


def _private_reply(
    msg: Message, context: Context, call_next: ClientAppCallable, task: _Task
) -> Message:
    returned = app_content(msg, context, call_next)
    for content in (returned, RecordDict()):  # the second stands for an update of 0
        try:
            return Message(_private_content(content, context, task), reply_to=msg)
        except BaseException:
            log(ERROR, "JoPEQMod: the update could not be encoded", exc_info=True)
    raise RefusedError("encoding")


def app_content(msg: Message, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """What the app returned; nothing, which stands for an update of 0, if the app failed.

    An app that exits (``if isnan(loss): sys.exit()``) fails like any other: that no reply comes
    would tell one bit of the data that no ε counts. Whoever started the process ends it afterwards.
    """
    try:
        reply = call_next(msg, context)
        if not reply.has_error():
            return RecordDict(dict(reply.content))
        log(ERROR, "JoPEQ: the app failed, 0 is sent as its update: %s", reply.error.reason)
    except BaseException:
        log(ERROR, "JoPEQ: the app failed, 0 is sent as its update", exc_info=True)
    return RecordDict()


def _private_content(returned: RecordDict, context: Context, task: _Task) -> RecordDict:
    content = RecordDict()
    metrics = let_through(returned, task.settings.metrics, context)
    if metrics:
        content["metrics"] = metrics
    task.encode(whole_update(task.model, returned, task.names), content)
    return content


def let_through(returned: RecordDict, allowed: Metrics, context: Context) -> MetricRecord:
    """The metrics that may leave: always all of them, each a number.

    A declared constant is sent as declared. For any other metric that the app does not return, the
    last value is sent again, or 1 in the first round of a run.
    """
    records = returned.metric_records.values()
    found = {name: value for record in records for name, value in record.items()}
    kept = [*(name for name in found if name not in allowed), *returned.config_records]
    if kept:
        log(
            WARNING,
            f"JoPEQMod: {', '.join(map(repr, kept))} of the app's reply stay on this client, as "
            "no ε covers them; name a metric in metrics=[…] (jopeq-metrics) to send it in clear",
        )
    last = context.state.metric_records.get(METRICS_STATE, MetricRecord())
    result = MetricRecord()
    for name, constant in allowed.items():
        value = found.get(name) if constant is None else constant
        result[name] = value if isinstance(value, int | float) else last.get(name, 1)
    if result:
        context.state[METRICS_STATE] = result.copy()
    return result


def _public_content(content: RecordDict, task: _Task) -> RecordDict:
    """The content of a reply without privacy: all its records, with the payload for the arrays."""
    arrays = content.array_records
    result = RecordDict({key: record for key, record in content.items() if key not in arrays})
    if RECORD in result:
        raise ValueError(f"the reply's record {RECORD!r} is reserved: rename it")
    changes = update_between(task.model, content)
    task.encode({name: value for name, value in changes.items() if name in task.names}, result)
    return result
