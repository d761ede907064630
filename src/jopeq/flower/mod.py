"""``JoPEQMod``: the client's side. An app's reply becomes a payload before it leaves the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import ERROR, INFO, WARNING

from flwr.app import ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode, MessageTypeLegacy
from flwr.common.logger import log

from jopeq.entries.adaptive_clip import AdaptiveClip, check_clip
from jopeq.errors import BudgetSpentError, JoPEQError
from jopeq.flower.budget import Budget, budget_from
from jopeq.flower.payload import (
    RECORD,
    Model,
    Values,
    keep_statistics,
    restore_statistics,
    to_record,
    update_between,
    whole_update,
)
from jopeq.flower.settings import (
    BUDGET_SPENT,
    Forms,
    Metrics,
    Settings,
    agree,
    check_forms,
    declared,
    is_delta,
    read,
    start_deltas,
    without_frozen,
)
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Counts
from jopeq.wire.entries import Entries
from jopeq.wire.scaling import is_statistic

ClientAppCallable = Callable[[Message, Context], Message]

METRICS_STATE = "jopeq-metrics"
"""Key of the record in Flower's state that holds the metrics of the last reply."""

# All that a server reads of a refusal. Amounts, paths and NumPy's errors stay in the client's log.
SETTINGS_REFUSED = "the settings of client and server do not fit (see this node's log)"
BUDGET_REFUSED = "this client's budget does not allow a reply (see this node's log)"
MODEL_REFUSED = "the server's model cannot be used (see this node's log)"
TYPE_REFUSED = "messages of this type are not answered"
TOO_MANY_ENTRIES = (
    "the model has more entries than max_entries of the scheme allows: raise it "
    "(jopeq-max-entries) on both ends, or freeze arrays"
)
SECAGG = "secaggplus_configs"  # the record that Flower's SecAgg+ adds to its messages
SECAGG_REFUSED = (
    "Flower's SecAgg+ adds integers up and cannot carry payloads: use JoPEQSumMod and "
    "JoPEQSumStrategy"
)
APP_FAILED = "the app failed (see this node's log)"
ENCODING_FAILED = "the reply could not be made (see this node's log)"

_MOST_CLIPPED = 0.5  # of the samples: what is left of the update is mostly signs


class JoPEQMod:
    """Encodes the update of every train message.

    The mod forms the update, trained minus received, from all float arrays of all array records.
    Integer and boolean arrays are not sent: the server keeps its own. Running statistics of
    normalisation layers are sent in coordinates of their own (``jopeq.state_update``), or with a
    scheme of ``statistics="local"`` stay here and replace the server's in every message. Put the
    mod first, before mods that change arrays: the first mod is the last to see the reply.

    The client's log has the bytes and the clipped share of every reply.

    With a scheme that names an ε, the server may choose any model and still learns nothing from the
    reply but the noised payload:

    - Refusals come before the app trains: settings that differ from the server's, a spent budget, a
      model that cannot be read. The server reads one fixed sentence for each kind of refusal, with
      code ``MOD_FAILED_PRECONDITION``; the client's log has the details. The cost follows from the
      model's shapes and is in the ledger's file before the app trains.
    - After training, every reply holds the same arrays. An array that the app leaves out, or
      returns in another shape or kind, counts as unchanged; NaN counts as 0. If the app raises, or
      answers with an error or without arrays, the update is 0. Only the client's log tells.
    - Metrics that ``metrics`` does not name, and all configs, stay on the client.
    - Replies to other messages (evaluate, query) lose their arrays, and errors of the app lose
      their text. Their metrics pass in the clear. ``get_parameters`` of Flower's older clients is
      refused.

    With ``none``, ``sdq`` and ``dq`` nothing is private: metrics, configs and errors of the app
    pass, and an update that cannot be encoded becomes an error reply.

    Parameters
    ----------
    scheme : Optional[Scheme] (default: None)
        From ``jopeq.scheme``. If None, the ``jopeq-…`` keys of the run configuration decide. The
        run configuration cannot change or turn off a scheme that is given here.
    budget : Optional[float] (default: None)
        Largest ε of this client, all rounds together; beyond it, error replies. If None,
        ``jopeq-budget`` of the node's configuration, or else of the run's. A budget needs a scheme
        with a clip.
    delta : float (default: 0.0)
        The δ at which the budget is stated (``jopeq-budget-delta``); 0 with an adaptive clip.
    ledger : Optional[path] (default: None)
        The ledger's file, made once by ``jopeq ledger init``. If None, ``jopeq-ledger`` of the
        node's configuration (the run's is ignored), or else a file in Flower's home of the node,
        made on first use.
    adaptive_clip : Optional[AdaptiveClip] (default: None)
        Follow the server's clip and answer with one private bit; with ``scheme`` only.
    frozen : Iterable[str] (default: ())
        Patterns of array names that are never sent; with ``scheme`` only.
    metrics : Iterable[str] or Mapping[str, float] (default: ())
        Metrics that a private scheme sends in the clear, single numbers that no ε covers. A mapping
        (``{"num-examples": 600}``) declares constants, which are sent whatever the app returns. A
        list of names sends the app's values, which can show that training failed. With ``scheme``
        only; ``jopeq-metrics`` of the node's configuration replaces it.
    reply : str or Mapping[str, str] (default: "model")
        What the app returns: the trained "model", or its "delta" to the received one, as FedSGD's
        gradients. A mapping tells array records apart: ``{"control": "delta"}`` for SCAFFOLD.
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
        metrics: Iterable[str] | Mapping[str, float] = (),
        reply: Forms = "model",
    ) -> None:
        for name, value in (("frozen", frozen), ("metrics", metrics)):
            if isinstance(value, str):
                raise ValueError(f"{name} must be a list of names, got {value!r}: use [{value!r}]")
        patterns, allowed = tuple(frozen), declared(metrics)
        if scheme is None and (adaptive_clip or patterns or allowed):
            raise ValueError("adaptive_clip, frozen and metrics need scheme: give it too")
        if budget is None and (delta != 0.0 or ledger is not None):
            raise ValueError("delta and ledger belong to a budget: give it too")
        self._settings = None
        if scheme is not None:
            self._settings = Settings(
                scheme=scheme,
                adaptive_clip=adaptive_clip,
                frozen=patterns,
                metrics=allowed,
            )
        self._budget = None
        if budget is not None:
            self._budget = Budget(epsilon=budget, delta=delta, path=ledger)
            if self._settings is not None:
                self._budget.check(self._settings)
        self._reply = check_forms(reply)
        self._has_warned = False

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Let the app train, then replace the arrays of its reply by the payload."""
        try:
            settings, budget = self._configured(ctxt)
            if settings is None:
                return call_next(msg, ctxt)
            with refusing(MODEL_REFUSED):
                if SECAGG in msg.content.config_records:
                    raise RefusedError(SECAGG_REFUSED)
                restore_statistics(msg.content, ctxt.state)
            if not is_train(msg):
                _offered(msg)
                if not settings.is_private:
                    return call_next(msg, ctxt)
                warn, self._has_warned = not self._has_warned, True
                return other_reply(msg, ctxt, call_next, warn=warn)
            task = _prepared(msg, ctxt, settings, budget, self._reply)
        except RefusedError as refused:
            log(ERROR, "JoPEQMod: %s", refused.__cause__ or refused)
            return refusal(msg, str(refused))
        if settings.is_private:
            return _private_reply(msg, ctxt, call_next, task)
        reply = call_next(msg, ctxt)
        if reply.has_error():
            return reply
        try:
            reply.content = _public_content(reply.content, ctxt, task)
        except (JoPEQError, ValueError, TypeError) as error:
            log(ERROR, "JoPEQMod: %s", error)
            return refusal(msg, str(error))  # the scheme has no ε, so the server may read why
        return reply

    def _configured(self, context: Context) -> tuple[Settings | None, Budget | None]:
        """Settings and budget of this client; settings are None where the run turns jopeq off."""
        with refusing(BUDGET_REFUSED):
            budget, is_own = self._budget, True
            node, run = read(context.node_config), read(context.run_config)
            if budget is None:
                is_own = "budget" in node or "ledger" in node
                budget = budget_from(node, run)
            if budget is not None:
                budget = budget.of_node(context.node_config)
        with refusing(SETTINGS_REFUSED):
            settings = self._settings or Settings.from_config(context.run_config)
            if settings is None:
                if budget is not None and is_own:
                    raise ValueError(
                        "jopeq-enabled=false of the run would send updates in the clear, and this "
                        "client has a budget: leave jopeq on, or remove the budget"
                    )
                return None, None
            if "metrics" in node:
                settings = replace(settings, metrics=declared(node["metrics"]))
            if budget is not None:
                budget.check(settings)
        return settings, budget


# Before the app trains: everything that may be refused


class RefusedError(JoPEQError):
    """What the server reads; ``__cause__`` has the details for the client's log."""


@contextmanager
def refusing(sentence: str) -> Iterator[None]:
    """Turn any error into a refusal: the server chose the input, and nothing private was read."""
    try:
        yield
    except RefusedError:
        raise
    except BudgetSpentError as error:
        raise RefusedError(BUDGET_SPENT) from error
    except Exception as error:
        raise RefusedError(sentence) from error


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
        """Put the payload into the reply, and the bit of an adaptive clip beside it."""
        rule, scheme = self.settings.adaptive_clip, self.scheme
        payload, counted = scheme.encode(update, counts=True)
        content["arrays" if "arrays" not in content else "jopeq-arrays"] = to_record(payload)
        _describe(scheme, counted)
        if rule is not None and scheme.clip is not None:
            # a clip of whole updates bounds one sample that has all entries
            dimension = max(1, sum(self.sizes.values())) if scheme.is_whole else scheme.dimension
            content[RECORD] = ConfigRecord({"clip-bit": rule.bit(update, scheme.clip, dimension)})

    def keep(self, returned: RecordDict, context: Context) -> None:
        """Remember the running statistics that stay here."""
        if self.scheme.statistics == "local":
            keep_statistics(self.model, returned, context.state)


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


def _prepared(
    msg: Message, context: Context, settings: Settings, budget: Budget | None, reply: Forms
) -> _Task:
    """All that encoding the reply will need, checked and paid for."""
    offered = _offered(msg)
    with refusing(SETTINGS_REFUSED):
        scheme = agree(settings, offered)
    with refusing(MODEL_REFUSED):
        model = start_deltas(Model(msg.content), reply)
        sent = [name for name in model.floats if scheme.sends(name)]
        if scheme.per == "layers" and offered is not None and "clips" in offered:
            scheme = scheme.with_clips(_clips(offered["clips"], sent))
        names = without_frozen(model, sent, settings.frozen)
        # a difference of running statistics is no update of theirs
        names = [n for n in names if not (is_statistic(n) and is_delta(reply, model.places[n][0]))]
        if settings.is_private:  # names, types and shapes tell whether the update can be encoded
            Entries.of_state({name: model.floats[name] for name in names})
    task = _Task(model, settings, scheme, names)
    entries = sum(task.sizes.values())
    if entries > getattr(scheme, "max_entries", entries):
        raise RefusedError(TOO_MANY_ENTRIES)
    if budget is not None:
        rule, state = settings.adaptive_clip, context.state
        is_any = rule is not None
        with (
            refusing(BUDGET_REFUSED),
            budget.opened(allow_any_scheme=is_any, state=state) as ledger,
        ):
            if rule is not None:
                ledger.charge(rule.guarantee, "clip bit")
            ledger.charge_update(scheme, task.sizes)
    return task


def _offered(msg: Message) -> ConfigRecord | None:
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


def refusal(msg: Message, reason: str) -> Message:
    """The error reply that tells the server no more than ``reason``."""
    return Message(
        Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=f"JoPEQMod: {reason}"), reply_to=msg
    )


def other_reply(
    msg: Message, context: Context, call_next: ClientAppCallable, *, warn: bool
) -> Message:
    """The app's reply to a message that does not train, without arrays: updates are private.

    The model that an app keeps between rounds is its update in the clear.
    """
    kind = msg.metadata.message_type
    if kind == MessageTypeLegacy.GET_PARAMETERS:
        raise RefusedError(TYPE_REFUSED)
    if warn:
        log(WARNING, "JoPEQMod: metrics of %r leave in the clear, no ε covers them", kind)
    try:
        reply = call_next(msg, context)
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
    except Exception:  # whose text may quote a record
        log(ERROR, "JoPEQMod: the app failed", exc_info=True)
        return refusal(msg, APP_FAILED)
    if arrays := list(reply.content.array_records):
        log(WARNING, "JoPEQMod: array records %s of a %r reply stay here", arrays, kind)
        kept = {key: item for key, item in reply.content.items() if key not in arrays}
        reply.content = RecordDict(kept)
    return reply


# After the app has trained: nothing may tell about the data but the noised payload


def _private_reply(
    msg: Message, context: Context, call_next: ClientAppCallable, task: _Task
) -> Message:
    returned = app_content(msg, context, call_next)
    task.keep(returned, context)
    for content in (returned, RecordDict()):  # the second stands for an update of 0
        try:
            return Message(_private_content(content, context, task), reply_to=msg)
        except Exception:
            log(ERROR, "JoPEQMod: the update could not be encoded", exc_info=True)
    return refusal(msg, ENCODING_FAILED)


def app_content(msg: Message, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """What the app returned; nothing, which stands for an update of 0, if the app failed."""
    try:
        reply = call_next(msg, context)
        if not reply.has_error():
            return RecordDict(dict(reply.content))
        log(ERROR, "JoPEQMod: the app failed, 0 is sent as its update: %s", reply.error.reason)
    except Exception:
        log(ERROR, "JoPEQMod: the app failed, 0 is sent as its update", exc_info=True)
    return RecordDict()


def _private_content(returned: RecordDict, context: Context, task: _Task) -> RecordDict:
    content = RecordDict()
    metrics = _let_through(returned, task.settings.metrics, context)
    if metrics:
        content["metrics"] = metrics
    task.encode(whole_update(task.model, returned, task.names), content)
    return content


def _let_through(returned: RecordDict, allowed: Metrics, context: Context) -> MetricRecord:
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


def _public_content(content: RecordDict, context: Context, task: _Task) -> RecordDict:
    """The content of a reply without privacy: all its records, with the payload for the arrays."""
    task.keep(content, context)
    arrays = content.array_records
    result = RecordDict({key: record for key, record in content.items() if key not in arrays})
    if RECORD in result:
        raise ValueError(f"the reply's record {RECORD!r} is reserved: rename it")
    changes = update_between(task.model, content)
    task.encode({name: value for name, value in changes.items() if name in task.names}, result)
    return result
