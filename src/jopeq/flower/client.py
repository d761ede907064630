"""The client's engine: agree, charge, call the app, reply. Fronts say what a reply holds.

Everything that may be refused is refused before the app is called, and paid for before that. What
the app does afterwards decides nothing that the server sees but the noised values of a reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from logging import ERROR, WARNING
from typing import Any

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.common.constant import MessageTypeLegacy
from flwr.common.logger import log

from jopeq.flower.arrays import own_content
from jopeq.flower.node import Metrics, read_node, refuse_run_keys
from jopeq.flower.refusals import RefusedError, refusal_of
from jopeq.flower.tasks import Task

ClientAppCallable = Callable[[Message, Context], Message]

METRICS_STATE = "jopeq-metrics"
"""Key of the record in Flower's state that holds the metrics of the last reply of a kind."""


@dataclass
class Work:
    """A task that was agreed to and paid for, while the app works on it."""

    task: Task
    found: object = None
    """The object that the app gave to ``reply_sample``, ``reply_total`` or ``reply_table``."""


_work: ContextVar[Work | None] = ContextVar("work", default=None)


def agreed_task() -> Task | None:
    """The task that the outermost mod has agreed to; None outside a message of a circle."""
    return getattr(_work.get(), "task", None)


def hand_over(msg: Message, found: object) -> Message:
    """An empty reply; ``found`` goes to the mod that waits for it, in this process."""
    if (work := _work.get()) is not None:
        work.found = found
    return Message(RecordDict(), reply_to=msg)


@dataclass
class App:
    """The app behind a mod, the one message that it is called with, and where its mod is.

    ``code`` is what a refusal from here on is called; "" where errors are the app's own.
    """

    msg: Message
    context: Context
    call_next: ClientAppCallable
    code: str = "model"

    @property
    def kind(self) -> str:
        return self.msg.metadata.message_type.split(".")[0]

    def call(self, work: Work | None = None) -> RecordDict:
        """The app's reply, empty if the app failed: whether it did may depend on a record.

        An app that exits (``if isnan(loss): sys.exit()``) fails like any other: a missing reply
        would tell one bit of the data that no ε counts.
        """
        token = _work.set(work)
        try:
            reply = self.call_next(self.msg, self.context)
            if not reply.has_error():
                return RecordDict(dict(reply.content))
            log(ERROR, "JoPEQ: the app failed, which nobody else learns: %s", reply.error.reason)
        except BaseException:
            log(ERROR, "JoPEQ: the app failed, which nobody else learns", exc_info=True)
        finally:
            _work.reset(token)
        return RecordDict()

    def metrics(self, returned: RecordDict, allowed: Metrics) -> RecordDict:
        """The metrics that may leave: always all of them, each a number.

        For one that is not declared, and that the app does not return, the last value is sent
        again, or 1 in the first round of a run.
        """
        records = returned.metric_records.values()
        found = {name: value for record in records for name, value in record.items()}
        kept = [*(name for name in found if name not in allowed), *returned.config_records]
        if kept:
            told = "JoPEQ: %s of the app's reply stay on this client, as no ε covers them; name a"
            more = f"{told} metric in metrics=[…] (jopeq-metrics) to send it in clear"
            log(WARNING, more, ", ".join(map(repr, kept)))
        state, key = self.context.state, f"{METRICS_STATE}-{self.kind}"
        last, result = state.metric_records.get(key, MetricRecord()), MetricRecord()
        for name, constant in allowed.items():
            value = found.get(name) if constant is None else constant
            result[name] = value if isinstance(value, int | float) else last.get(name, 1)
        if not result:
            return RecordDict()
        state[key] = result.copy()
        return RecordDict({"metrics": result})


class Mod(ABC):
    """The base of all mods. Of several around an app the outermost acts."""

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        if _work.get() is not None:
            return call_next(msg, ctxt)
        app = App(msg, ctxt, call_next)
        try:
            msg.content = own_content(msg)
            app.code = "settings"
            refuse_run_keys(ctxt.run_config)
            return self.answer(app, read_node(ctxt.node_config))
        except Exception as error:
            if not app.code:
                raise
            return refusal_of(error, app.code).reply(msg, self)

    @abstractmethod
    def answer(self, app: App, node: Mapping[str, Any]) -> Message:
        """The reply; an error refuses the message by the code that ``app`` has."""


def other_reply(app: App, allowed: Metrics) -> Message:
    """The reply to a message that takes no share and sends no update: named metrics alone.

    The model that an app keeps between rounds is its update in the clear, and the text of an error
    may quote a record.
    """
    if app.msg.metadata.message_type == MessageTypeLegacy.GET_PARAMETERS:
        raise RefusedError("message-type")
    returned = app.call()
    if arrays := list(returned.array_records):
        log(WARNING, "JoPEQ: array records %s of a %r reply stay here", arrays, app.kind)
    return Message(app.metrics(returned, allowed), reply_to=app.msg)
