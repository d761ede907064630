"""``SumMod``: the client's side of every private sum. What an app found becomes a masked share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log

from jopeq.circle import Attempt, CircleClient, CircleTerms, Due, fingerprint, joins
from jopeq.errors import BudgetSpentError, ProtocolError
from jopeq.files import alone, atomic, check_own_file, own_folder
from jopeq.flower.arrays import Model, check_frozen, sent_names, update_of, warn_unused
from jopeq.flower.client import App, Mod, Work, hand_over, other_reply
from jopeq.flower.node import LIMITS, Budget, budget_of, check_columns, read_keys, refuse_budget
from jopeq.flower.refusals import SENTENCES, RefusedError
from jopeq.flower.tasks import (
    RECORD,
    Offer,
    Query,
    Sum,
    Task,
    check_scheme,
    digest_content,
    query_task,
)
from jopeq.random.streams import PrivateStream, fresh_seed
from jopeq.statistics import Survey
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_plan import epsilon_left
from jopeq.sums.record_sample import Indices, draw_sample
from jopeq.sums.record_sum import ClientSum, RecordSum

_AHEAD = 8  # rounds accounted for at once: the accountant takes a second to import


def reply_total(msg: Message, total: ClippedTotal) -> Message:
    """An app's reply to a train or evaluate message: the total for ``SumMod``, in this process.

    With ``sampling`` below 1 answer with ``reply_sample``.
    """
    return hand_over(msg, total)


@dataclass(frozen=True)
class _Sampled:
    count: int
    total_of: Callable[[Indices], ClippedTotal]
    most_records: int | None


def reply_sample(
    msg: Message,
    count: int,
    total_of: Callable[[Indices], ClippedTotal],
    *,
    most_records: int | None = None,
) -> Message:
    """An app's reply to a train or evaluate message, for a sample that ``SumMod`` draws.

    ``total_of(drawn)`` makes the exact total of the drawn ones of ``count`` records or patients;
    ``most_records`` is the public bound on them. The ledger is charged for a sample, so with
    ``sampling`` below 1 the mod takes no total of a sample that it has not drawn.
    """
    return hand_over(msg, _Sampled(count, total_of, most_records))


def reply_table(msg: Message, table: Any) -> Message:
    """An app's reply to a query message: the hospital's table for ``SumMod``, in this process.

    The reply itself is empty: without the mod nothing of the table leaves the node.
    """
    return hand_over(msg, table)


class SumMod(Mod):
    """Sends a masked share of a sum that the server learns, and nothing else of it.

    With a ``ClientSum`` the app trains as in any Flower app, and the update, trained minus
    received, becomes the share. With a ``RecordSum`` the app answers a message that trains or
    evaluates with ``reply_sample`` or, where all records are in every sample, with
    ``reply_total(msg, total)``; it answers a survey, which is a query message, with
    ``reply_table(msg, table)``.

    Everything that may be refused is refused, and the share is in the ledger's file, before the app
    is called. An app that fails or exits, a total of another dimension or clip, or a table that
    lacks a column makes a share of 0, and only the node's log tells. Metrics leave only in answers
    to other messages, as ``jopeq-metrics`` names them; arrays, configs and texts of errors never
    do. The node's configuration (docs/flower.md) decides what its hospital takes part in.

    Parameters
    ----------
    scheme : Optional[ClientSum or RecordSum]
        The client's own; a server that offers another is refused. None takes the server's
        ``RecordSum`` if the node's configuration bounds ε and δ (``jopeq guard``).
    run : str (default: "")
        Name of the run, the same on both ends; each has its rounds in the ledger.
    unsigned : bool (default: False)
        For simulations: no identities.
    frozen
        As for ``PayloadMod``: what a ``ClientSum`` leaves out. The strategy's must be the same.
    dimension, evaluated : Optional[int] (default: None)
        Entries of a total, and of an evaluation's, if known: other terms are refused.
    check : Optional[callable] (default: None)
        ``check(content, is_evaluation)`` raises to refuse a model before anything is charged.
    surveys : collection of Survey and Model, callable or None (default: ())
        What query messages may ask for. None takes any within the node's configuration, which must
        bound ε and δ and list the columns; a callable raises to refuse one of these.
    """

    def __init__(
        self,
        scheme: Sum | None,
        *,
        run: str = "",
        unsigned: bool = False,
        frozen: Iterable[str] = (),
        dimension: int | None = None,
        evaluated: int | None = None,
        check: Callable[[RecordDict, bool], object] | None = None,
        surveys: Collection[Query] | Callable[[Query], object] | None = (),
    ) -> None:
        if scheme is not None:
            check_scheme(scheme, unsigned, RecordSum, ClientSum)
        for survey in () if surveys is None or callable(surveys) else surveys:
            query_task(survey, run).terms(unsigned=unsigned)
        self.app = ""  # its hash, where a guard knows it
        self._scheme, self._run, self._unsigned = scheme, run, unsigned
        self._frozen = check_frozen(frozen)
        self._dimension, self._evaluated = dimension, evaluated
        self._check, self._surveys = check, surveys

    def answer(self, app: App, node: Mapping[str, Any]) -> Message:
        refuse_budget(node)
        offer = Offer.take(app.msg)
        if offer is None:
            return other_reply(app, node.get("metrics", {}))
        task = self._agree(offer)
        self._check_limits(node, task)
        terms, state = task.terms(unsigned=self._unsigned), app.context.state
        keys = _read_keys(node, terms, offer)
        hospitals = fingerprint(keys.get("trusted", ()))
        if keys:
            log(INFO, "SumMod: fingerprint of the trusted hospitals: %s", hospitals)
        app.code, is_free, total_of = "model", joins(offer.data), None
        if not is_free and (len(app.msg.content) or task.asked):
            total_of = task.prepare(app.msg.content)
        content = None if is_free else digest_content(app.msg.content, offer.kind)
        app.code = "budget"
        epsilon = node.get("max-epsilon", task.scheme.epsilon)
        delta = node.get("max-delta", task.scheme.delta)
        given = Budget(epsilon=epsilon, delta=delta, keeps_its_own=True)  # whatever a file has
        budget = budget_of(node, app.context.node_config, given) or given
        about = {
            "asked": task.words,
            "app": self.app,
            "hospital": str(node.get("client", app.context.node_id)),
            "asker": f"run {app.msg.metadata.run_id} of the hospitals {hospitals}",
        }
        told: dict[str, Any] = {}  # and rounds that can still be paid: a ledger reveals no record
        with budget.opened(state) as ledger:
            app.code = "protocol"

            sums = task.scheme, task.dimension

            def charge(attempt: Attempt) -> dict[str, float]:
                ahead = 0 if ledger.rounds % _AHEAD else _AHEAD - 1
                spent = ledger.charge(*sums, run=task.label, ahead=ahead, about=about)
                budget.keep(ledger, state)
                told["covers"] = ledger.covers(*sums, run=task.label)
                at = attempt.round, attempt.attempt
                text = "SumMod: round %d, attempt %d: ε = %.4g of %g spent, %d more rounds covered"
                log(INFO, text, *at, spent, ledger.budget, told["covers"])
                return {"epsilon": spent}

            home = budget.file.with_name(f"{budget.file.name}.circle")
            keys = keys or {"identity": _passing_identity(own_folder(home))}
            client = CircleClient(terms, home, charge=charge, count=lambda: ledger.rounds, **keys)
            if is_free:  # refuse what could not be paid before others pay theirs
                told["covers"] = ledger.covers(*sums, run=task.label)
                if not told["covers"]:
                    raise BudgetSpentError("the ledger pays for no more round of this run")
            due = client.accept(offer.data, content=content)
        reply = due if isinstance(due, bytes) else _finish(due, app, task, total_of)
        record = ConfigRecord({"message": reply, **told})
        return Message(RecordDict({RECORD: record}), reply_to=app.msg)

    def _agree(self, offer: Offer) -> Task:
        """The task that is offered, if it is this client's own."""
        if offer.kind == MessageType.QUERY:
            return self._agree_query(offer)
        own, is_evaluation = self._scheme, offer.kind == MessageType.EVALUATE
        run = str(offer.run) if own is None else self._run
        scheme: Sum = offer.read_scheme() if own is None else own
        if own is not None and is_evaluation:
            if isinstance(own, ClientSum):
                raise ProtocolError("a ClientSum has no evaluations: nothing was sent")
            scheme = own.evaluation
        dimension = (self._evaluated if is_evaluation else self._dimension) or offer.dimension
        task = Task(
            scheme=scheme,
            dimension=dimension,
            run=run,
            kind=offer.kind,
            needs=() if own is not None else ("max-epsilon", "max-delta"),
            prepare=partial(self._prepare, offer.kind, scheme, dimension),
            words="to see how well a model does" if is_evaluation else "to train a model",
        )
        if (task.spec, dimension, run) != (offer.spec, offer.dimension, offer.run):
            mine, theirs = (run, dimension, task.spec), (offer.run, offer.dimension, offer.spec)
            raise ProtocolError(
                f"the server's terms are {theirs!r:.500}, this client's {mine!r:.500}"
            )
        return task

    def _agree_query(self, offer: Offer) -> Task:
        agreed, run = self._surveys, str(offer.run)
        needs: tuple[str, ...] = ("max-epsilon", "max-delta", "columns")
        if agreed is None or callable(agreed):
            query = offer.read_query()
            if agreed is not None:
                agreed(query)
        else:
            found = [one for one in agreed if (one.spec, self._run) == (offer.spec, run)]
            if not found:
                asked = f"{run!r:.80} of {offer.spec!r:.300}"
                raise ProtocolError(
                    f"{asked} is none of this client's surveys and models of {self._run!r}"
                )
            query, needs = found[0], ()
        is_later = not isinstance(query, Survey) and offer.dimension != query.method.dimension(0)
        return query_task(query, run, needs, step=int(is_later))

    def _check_limits(self, node: Mapping[str, Any], task: Task) -> None:
        """Refuse what is beyond the node's configuration."""
        scheme = task.mechanism
        for key in task.needs:
            if key not in node:
                raise ValueError(f"jopeq-{key} of the node's configuration must be set")
        for name in LIMITS:
            value = float(scheme.sums if name == "rounds" else getattr(scheme, name))
            if self._unsigned and name == "epsilon":
                value = epsilon_left(scheme, task.dimension, 1)
                told = "SumMod: unsigned: a server that invents clients leaves one of them ε = %.3g"
                log(WARNING, told, value)
            most = node.get(f"max-{name}", value)
            if not value <= most:
                beyond = ValueError(f"{name} is {value:g}, and jopeq-max-{name} is {most:g}")
                raise RefusedError("limits") from beyond
        if "columns" in node:
            check_columns(node["columns"], task.asked)

    def _prepare(
        self, kind: str, scheme: Sum, dimension: int, content: RecordDict
    ) -> Callable[[Any], Any]:
        """Refuse a model that cannot be used; what makes the total of what the app found."""
        if self._check is not None:
            self._check(content, kind == MessageType.EVALUATE)
        if not isinstance(scheme, ClientSum):
            return partial(_total_of, scheme)
        before = Model(content)
        warn_unused(before, self._frozen)
        names = sent_names(before, self._frozen)
        count = sum(before.floats[name].size for name in names)
        if count != dimension:
            raise ValueError(f"the model has {count} entries to send, and the terms {dimension}")
        return lambda returned: scheme.total(update_of(before, returned, names, is_private=True))


def _total_of(scheme: RecordSum, found: Any) -> Any:
    """The total that an app handed over, or that of a sample drawn for it."""
    if isinstance(found, _Sampled):
        most = scheme.capacity(found.most_records)
        return found.total_of(draw_sample(found.count, scheme.sampling, most, PrivateStream()))
    if scheme.sampling < 1.0:
        told = f"sampling={scheme.sampling:g} and the mod has drawn no sample for the app's total"
        raise ValueError(f"{told}: answer with reply_sample(msg, count, total_of)")
    return found


def _read_keys(node: Mapping[str, Any], terms: CircleTerms, offer: Offer) -> dict[str, Any]:
    """Return the node's keys, if the terms need them and the server has the same list."""
    keys = read_keys(node.get("identity"), node.get("trusted"))
    if terms.unsigned == bool(keys):
        if keys:
            raise ValueError("this node has keys (jopeq-identity) and the app is unsigned=True")
        raise ValueError(
            "jopeq-identity and jopeq-trusted of the node's configuration must name this "
            "hospital's key and the public keys of all; unsigned=True is for simulations"
        )
    if keys:
        mine = theirs = keys["trusted"]
        if isinstance(listed := offer.trusted, bytes):
            theirs = {listed[at : at + 32] for at in range(0, len(listed), 32)}
        if theirs != mine:  # nothing of either list is a secret
            lacks = [
                ", ".join(f"{key.hex()[:8]}…" for key in sorted(one)) or "none"
                for one in (theirs - mine, mine - theirs)
            ]
            told = f"fingerprint {fingerprint(mine)} here and {fingerprint(theirs)} on the server"
            told += f"; missing here {lacks[0]}, missing there {lacks[1]}"
            raise RefusedError("trusted", f"{SENTENCES['trusted']}: {told}")
    return keys


def _passing_identity(home: Path) -> Ed25519PrivateKey:
    """The key of an unsigned client, which nobody trusts."""
    path = home / "unsigned.key"
    with alone(home / ".unsigned.lock"):
        if not path.exists():
            with atomic(path, mode=0o600) as file:
                file.write(fresh_seed())
        check_own_file(path, is_secret=True)
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())


def _finish(due: Due, app: App, task: Task, total_of: Callable[[Any], Any] | None) -> bytes:
    """The share of what the app found, masked; of zeros, if it found nothing that fits."""
    work, attempt = Work(task), due.attempt
    returned = app.call(work)
    try:
        if total_of is None:
            raise TypeError("the message has no content to work on")
        total = total_of(returned if work.found is None else work.found)
        if not isinstance(total, ClippedTotal):
            raise TypeError("the app must answer with reply_sample, reply_total or reply_table")
        if (total.dimension, total.clip) != (task.dimension, task.scheme.clip):
            found, wanted = (total.dimension, total.clip), (task.dimension, task.scheme.clip)
            raise ValueError(f"the app's total has dimension and clip {found}, the terms {wanted}")
    except BaseException:
        log(ERROR, "SumMod: a total of 0 is sent", exc_info=True)
        total = ClippedTotal(task.dimension, task.scheme.clip)
    clients = len(attempt.entries) or None
    return due.finish(task.mechanism.encode(total, seed=attempt.seed, clients=clients))
