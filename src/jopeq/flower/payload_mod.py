"""``PayloadMod``: an app's update becomes a payload before it leaves the device."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from logging import ERROR, INFO, WARNING
from typing import Any, cast

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log

from jopeq.entries.layer_clips import check_clip
from jopeq.errors import JoPEQError
from jopeq.flower.arrays import (
    Model,
    Values,
    check_frozen,
    sent_names,
    to_record,
    update_of,
    warn_unused,
)
from jopeq.flower.client import App, Mod, other_reply
from jopeq.flower.node import Budget, Metrics, budget_of, read_metrics
from jopeq.flower.refusals import RefusedError
from jopeq.ledger import Ledger, check_clip_is_public
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Counts
from jopeq.sphere.sphere import Round, Sphere
from jopeq.wire.entries import Entries

RECORD = "jopeq"
"""Key of the config record in which the server names its scheme."""

PROTOCOL = 3
SECAGG = "secaggplus_configs"  # the record that Flower's SecAgg+ adds to its messages

_MOST_CLIPPED = 0.5  # of the samples: what is left of the update is mostly signs


def check_scheme(scheme: Any) -> Scheme | Sphere:
    """The scheme; ``ValueError`` for one that makes neither payloads nor reports."""
    if not isinstance(scheme, Scheme | Sphere):
        raise ValueError(f"scheme must be made by jopeq.scheme(...), got {scheme!r}")
    return scheme


def offer(scheme: Scheme | Sphere, terms: Round | None = None, number: int = 0) -> ConfigRecord:
    """The server's settings of one round; for a ``Sphere`` its terms and the client's number."""
    record = ConfigRecord({"protocol": PROTOCOL, "scheme": scheme.spec})
    if terms is not None:
        record["terms"], record["number"] = terms.terms, number
    return record


class PayloadMod(Mod):
    """Encodes the update of every train message: trained minus received, of all float arrays.

    Put the mod first, before mods that change arrays: the first mod is the last to see the reply.

    With a scheme that names an ε, the server may choose any model and still learns nothing from the
    reply but the noised payload. Refusals come before the app trains, and the cost, which follows
    from the model's shapes, is in the ledger's file. Whatever the app does then, every reply holds
    the same arrays; docs/flower.md tells what counts as which update. Configs, texts of errors,
    metrics that ``metrics`` does not name and arrays in replies to other messages stay on the
    client. With ``none``, ``sdq`` and ``dq`` nothing is private, and all of these pass.

    Parameters
    ----------
    scheme : Scheme or Sphere
        From ``jopeq.scheme``, given here: the run's configuration comes from whoever starts the
        run, and must not choose ε.
    budget : Optional[float] (default: None)
        Largest ε of this client, all rounds together; beyond it, error replies. It needs a scheme
        with a clip. ``jopeq-budget`` of the node's configuration replaces it, with δ and file.
    delta, ledger
        The δ at which the budget is stated, and the ledger's file, made once by ``jopeq ledger
        init``; by default one in Flower's home of the node, made on first use.
    frozen : Iterable[str] (default: ())
        Patterns of array names that are never sent, the same as the strategy's:
        ``find_frozen(model)`` has those that a PyTorch model does not train.
    metrics : Iterable[str] or Mapping[str, float] (default: ())
        Numbers that a private scheme sends in the clear; no ε covers them. A mapping
        (``{"num-examples": 600}``) declares constants, a list of names sends the app's values,
        which can show that training failed. ``jopeq-metrics`` of the node replaces it.
    """

    def __init__(
        self,
        scheme: Scheme | Sphere,
        *,
        budget: float | None = None,
        delta: float = 0.0,
        ledger: str | os.PathLike[str] | None = None,
        frozen: Iterable[str] = (),
        metrics: Iterable[str] | Mapping[str, float] = (),
    ) -> None:
        if isinstance(metrics, str):
            raise ValueError(f"metrics must be a list of names, got {metrics!r}: use [{metrics!r}]")
        if budget is None and (delta != 0.0 or ledger is not None):
            raise ValueError("delta and ledger belong to a budget: give it too")
        self._scheme, self._frozen = check_scheme(scheme), check_frozen(frozen)
        self._metrics, self._budget = read_metrics(metrics), None
        if budget is not None:
            Ledger(budget, delta)  # refuses impossible numbers
            self._budget = Budget(epsilon=budget, delta=delta, path=ledger)
            check_clip_is_public(scheme)

    def answer(self, app: App, node: Mapping[str, Any]) -> Message:
        app.code = "budget"
        budget = budget_of(node, app.context.node_config, self._budget)
        app.code = "settings"
        if budget is not None:
            check_clip_is_public(self._scheme)
        offered = app.msg.content.config_records.get(RECORD)
        if offered is not None:  # Flower's own mods want the app's config record alone
            del app.msg.content[RECORD]
        if SECAGG in app.msg.content.config_records:
            raise RefusedError("secagg")
        allowed: Metrics = node.get("metrics", self._metrics)
        if app.kind != MessageType.TRAIN:
            if not self._scheme.is_private:
                app.code = ""
                return app.call_next(app.msg, app.context)
            return other_reply(app, allowed)
        task = self._prepare(app, offered)
        if budget is not None:
            app.code = "budget"
            with budget.opened(app.context.state) as ledger:
                ledger.charge(task.scheme, task.sizes)
                budget.keep(ledger, app.context.state)
        if self._scheme.is_private:
            return _private_reply(app, task, allowed)
        return _public_reply(app, task)

    def _prepare(self, app: App, offered: ConfigRecord | None) -> _Coding:
        """All that encoding the reply will need, checked before anything is paid for."""
        scheme = _agree(self._scheme, offered)
        app.code = "model"
        model = Model(app.msg.content)
        warn_unused(model, self._frozen)
        clips = None if offered is None else offered.get("clips")
        if clips is not None and isinstance(scheme, Scheme) and scheme.per == "layers":
            scheme = scheme.with_clips(_clips(clips, list(model.floats)))
        task = _Coding(model, scheme, sent_names(model, self._frozen), offered)
        if scheme.is_private:  # names, types and shapes tell whether it can be encoded
            Entries.of({name: model.floats[name] for name in task.names})
        entries = sum(task.sizes.values())
        if isinstance(scheme, Sphere) and entries > scheme.max_entries:
            raise RefusedError("too-many-entries")
        if task.round is not None:
            task.round.check_client(cast(ConfigRecord, offered)["number"])
        if task.round is not None and task.round.dimension != entries:
            told = f"the server's round has {task.round.dimension} entries, this client's {entries}"
            raise ValueError(f"{told}: give both ends the same frozen")
        return task


def _agree(scheme: Scheme | Sphere, offered: ConfigRecord | None) -> Scheme | Sphere:
    """The scheme of this round, if both ends have the same.

    A server that offers nothing does not know jopeq. Any payload makes it stop, where a refusal
    would let it train on without this client.
    """
    if offered is None:
        if isinstance(scheme, Sphere):
            raise ValueError(
                "the server sent no terms of a round: a Sphere needs PayloadStrategy there"
            )
        return scheme
    if offered.get("protocol") != PROTOCOL:
        told = f"the server speaks protocol {offered.get('protocol')!r} and this client {PROTOCOL}"
        raise ValueError(f"{told}: use the same jopeq version on both ends")
    if offered.get("scheme") != scheme.spec:
        told = f"the server uses scheme {offered.get('scheme')!s} and this client {scheme.spec}"
        raise ValueError(f"{told}; nothing was sent")
    return scheme


def _clips(offered: object, names: list[str]) -> dict[str, float]:
    """The server's clips of this round, one for each array that is sent."""
    clips = offered if isinstance(offered, list) else []
    if len(clips) != len(names) or not all(isinstance(clip, float) for clip in clips):
        raise JoPEQError(f"the server sent {len(clips)} clips for {len(names)} arrays")
    for clip in clips:
        check_clip(float(clip))
    return dict(zip(names, map(float, clips), strict=True))


@dataclass(frozen=True)
class _Coding:
    """One train message: the server's model, and how to encode what training adds to it."""

    model: Model
    scheme: Scheme | Sphere
    names: list[str]  # the arrays that may be sent
    offered: ConfigRecord | None

    @cached_property
    def round(self) -> Round | None:
        """The terms of a ``Sphere`` that came with the message; reports are bare bytes."""
        if not isinstance(self.scheme, Sphere) or self.offered is None:
            return None
        return Round.from_terms(cast(bytes, self.offered.get("terms", b"")), scheme=self.scheme)

    @property
    def sizes(self) -> dict[str, int]:
        return {name: self.model.floats[name].size for name in self.names}

    def encode(self, update: Mapping[str, Values], content: RecordDict) -> None:
        if self.round is not None and self.offered is not None:
            number = cast(int, self.offered.get("number"))
            payload = self.round.report(update, client=number)
        else:
            scheme = cast(Scheme, self.scheme)
            payload, counted = scheme.encode(update, counts=True)
            _describe(scheme, counted)
        content["arrays" if "arrays" not in content else "jopeq-arrays"] = to_record(payload)


def _describe(scheme: Scheme, counted: Counts) -> None:
    """Log what coding did to this update. Nothing of it leaves the client."""
    lost = counted.clipped if scheme.is_private else counted.overloaded
    share = lost / max(counted.samples, 1)
    told = "PayloadMod: sent %d bytes (%.2f bits an entry), %.1f%% of the update clipped"
    log(INFO, told, counted.payload_bytes, counted.bits_per_entry, 100.0 * share)
    if share > _MOST_CLIPPED and scheme.clip is not None:
        remedy = "PayloadMod: the clip %g cuts most of this update: raise it, or use clip='layers'"
        log(WARNING, remedy, scheme.clip)


def _private_reply(app: App, task: _Coding, allowed: Metrics) -> Message:
    """After training nothing may tell about the data but the noised payload."""
    returned = app.call()
    content = app.metrics(returned, allowed)
    for found in (returned, RecordDict()):  # the second stands for an update of 0
        try:
            task.encode(update_of(task.model, found, task.names, is_private=True), content)
            return Message(content, reply_to=app.msg)
        except BaseException:
            log(ERROR, "PayloadMod: the update could not be encoded", exc_info=True)
    raise RefusedError("encoding")


def _public_reply(app: App, task: _Coding) -> Message:
    """The app's reply with all its records, and the payload instead of the arrays."""
    app.code = ""
    reply = app.call_next(app.msg, app.context)
    if reply.has_error():
        return reply
    app.code, arrays = "encoding", reply.content.array_records
    content = RecordDict({key: one for key, one in reply.content.items() if key not in arrays})
    try:
        if RECORD in content:
            raise ValueError(f"the reply's record {RECORD!r} is reserved: rename it")
        update = update_of(task.model, reply.content, task.names, is_private=False)
        task.encode(update, content)
    except (JoPEQError, ValueError, TypeError) as error:
        # the scheme has no ε, so the server may read why
        raise RefusedError("encoding", str(error)) from error
    reply.content = content
    return reply
