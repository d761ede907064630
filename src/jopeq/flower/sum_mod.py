"""``JoPEQSumMod``: the client's side of a secure sum inside Flower."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from logging import ERROR
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.logger import log

from jopeq.circle import Client, Terms
from jopeq.circle.messages import Kind, kind_of
from jopeq.errors import ProtocolError
from jopeq.files import atomic, check_own_file
from jopeq.flower.arrays import Model, own_content, whole_update
from jopeq.flower.budget import Budget, refuse_budget
from jopeq.flower.mod import ClientAppCallable, app_content, is_train, other_reply
from jopeq.flower.refusals import RefusedError, refusing
from jopeq.flower.settings import frozen_names, matches, read, warn_unused
from jopeq.sums.secure_sum import SecureSum

RECORD = "jopeq-sum"
"""Key of the config record that carries a message of ``jopeq.circle`` either way."""


def check_scheme(scheme: SecureSum) -> None:
    """``ValueError`` for no secure sum, and for a threshold that protects nobody."""
    if not isinstance(scheme, SecureSum):
        raise ValueError(
            f"scheme must be a SecureSum, got {scheme!r}: other schemes go with JoPEQMod and "
            "JoPEQStrategy"
        )
    _terms(scheme, spec="", bits=1, length=1)


def terms_of(scheme: SecureSum, dimension: int, *, is_signed: bool) -> Terms:
    """The terms of a new round of updates of this dimension."""
    plan, spec = scheme.plan(dimension), scheme.spec_for(dimension)
    return _terms(scheme, spec=spec, bits=plan.bits, length=plan.kept, is_signed=is_signed)


def _terms(scheme: SecureSum, **rest: Any) -> Terms:
    counts = {name: getattr(scheme, name) for name in ("clients", "threshold", "colluding")}
    return Terms(**counts, **rest)


def sent_names(model: Model, frozen: Iterable[str]) -> list[str]:
    """The float arrays whose updates are summed, in the message's order."""
    return [name for name in model.floats if not matches(*model.places[name], frozen)]


def read_trusted(path: str | os.PathLike[str] | None) -> frozenset[bytes]:
    """The public keys in a file that nobody else can write: 64 hexadecimal digits a line.

    What follows them after a space is a comment, and so is a line that begins with ``#``.
    """
    if path is None:
        return frozenset()
    check_own_file(Path(path).resolve())
    keys = set()
    for number, line in enumerate(Path(path).read_text("utf-8-sig").splitlines(), 1):
        word = line.split(maxsplit=1)[0] if line.strip() else "#"
        if word.startswith("#"):
            continue
        if re.fullmatch("[0-9a-fA-F]{64}", word) is None:
            raise ValueError(
                f"{path}, line {number}: a public key is 64 hexadecimal digits, got {word!r:.80}"
            )
        keys.add(bytes.fromhex(word))
    if not keys:
        raise ValueError(f"{path} holds no public key: write one a line, 64 hexadecimal digits")
    return frozenset(keys)


def read_keys(own: Any, others: Any) -> dict[str, Any]:
    """``identity`` and ``trusted`` in these two files; nothing where both are None."""
    if own is None and others is None:
        return {}
    if own is None or others is None:
        raise ValueError("identity and trusted belong together: give both, or neither")
    check_own_file(Path(own).resolve(), is_secret=True)
    key = load_pem_private_key(Path(own).read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"identity must be an Ed25519 key, got {type(key).__name__}")
    return {"identity": key, "trusted": read_trusted(others)}


class JoPEQSumMod:
    """Sends each update as a share of a sum that the server learns, and nothing else of it.

    Put the mod first. The server's strategy must be ``JoPEQSumStrategy`` with the same scheme. A
    round is several train messages; the app trains once. Everything that may be refused is refused
    before the app trains, by a code and a fixed sentence; the client's log has the details. An app
    that fails or exits sends a masked share of 0. Metrics and configs stay on the client. Replies
    to other messages (evaluate, query) lose their arrays.

    The ledger's file counts the rounds and allows ``scheme.participations``. The secrets of a round
    are kept in a file beside the ledger, under the ledger's lock, and removed when the client
    opens: a SuperNode may answer many messages at once, each in a process of its own and with a
    copy of Flower's state, and a server could make two copies open two lists of survivors.

    Parameters
    ----------
    scheme : SecureSum
        The client's own; a server that offers another is refused.
    ledger : Optional[path] (default: None)
        The ledger's file, made once by ``jopeq ledger init --budget ε --delta δ`` with the scheme's
        ε and δ; ``jopeq-ledger`` of the node's configuration replaces it. Without both, a file in
        Flower's home of the node, made on first use. ``jopeq-budget`` is refused.
    frozen : Iterable[str] or "auto" (default: ())
        Patterns of array names that are never sent; the strategy's must be the same. "auto" sends
        what ``model`` trains (``requires_grad``).
    model : Optional[Module or callable] (default: None)
        For "auto": the app's PyTorch module, or what makes it.
    identity, trusted : Optional[path] (default: None)
        For signed rounds: a PEM file with this client's Ed25519 private key, and a file with the
        public keys of all clients, in hexadecimal, one a line. ``jopeq-identity`` and
        ``jopeq-trusted`` of the node's configuration take their place.
    is_server_trusted : bool (default: False)
        Takes part without identities in cohorts of more than 100 clients too, where a server that
        lies could open a single client.
    """

    def __init__(
        self,
        scheme: SecureSum,
        *,
        ledger: str | os.PathLike[str] | None = None,
        frozen: Iterable[str] = (),
        model: Any = None,
        identity: str | os.PathLike[str] | None = None,
        trusted: str | os.PathLike[str] | None = None,
        is_server_trusted: bool = False,
    ) -> None:
        check_scheme(scheme)
        self._scheme, self._frozen = scheme, frozen_names(frozen, model)
        self._ledger, self._identity, self._trusted = ledger, identity, trusted
        self._is_server_trusted = is_server_trusted
        self._has_warned = False

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer one message of a round."""
        try:
            msg.content = own_content(msg)
            if not is_train(msg):
                warn, self._has_warned = not self._has_warned, True
                return other_reply(msg, ctxt, call_next, warn=warn)
            with refusing("budget"):
                files = _Files(self._scheme, self._ledger, ctxt)
            with refusing("settings"):
                record = msg.content.config_records.get(RECORD)
                if record is None or not isinstance(record.get("message"), bytes):
                    raise ProtocolError(
                        "the server sent no message of a secure sum, and this client answers "
                        "nothing else: wrap its strategy in JoPEQSumStrategy"
                    )
                identity = self._keys(ctxt)
            data: bytes = record["message"]  # type: ignore[assignment]
            kind = kind_of(data)
            if kind == Kind.TERMS:
                reply = self._begin(data, record.get("dimension"), ctxt, files, identity)
            elif kind == Kind.INBOX:
                reply = self._train(data, msg, ctxt, call_next, files, identity)
            else:
                reply = _answer(kind, data, files, identity)
        except RefusedError as refused:
            return refused.reply(msg, self)
        return Message(RecordDict({RECORD: ConfigRecord({"message": reply})}), reply_to=msg)

    def _keys(self, context: Context) -> dict[str, Any]:
        """``identity`` and ``trusted`` of a client that signs; nothing for others."""
        node = read(context.node_config)
        return read_keys(node.get("identity", self._identity), node.get("trusted", self._trusted))

    def _begin(
        self, data: bytes, dimension: Any, context: Context, files: _Files, identity: dict[str, Any]
    ) -> bytes:
        """Agree to the terms of a new round, if they are this client's own."""
        with refusing("settings"):  # and not under the lock: a large plan takes seconds
            offered = Terms.from_bytes(data)
            if offered.spec != self._scheme.spec_for(dimension):
                raise ProtocolError(
                    f"the server's spec is {offered.spec!r:.300}, this client's is "
                    f"{self._scheme.spec_for(dimension)!r:.300}; nothing was sent"
                )
            mine = terms_of(self._scheme, dimension, is_signed=bool(identity))
            mine = replace(mine, seed=offered.seed, round=offered.round)
            mine.check(data)
        with files.alone():
            with refusing("budget"):  # now, not in the middle of the round
                files.spend(dimension, is_real=False)
            with refusing("protocol"):
                client = Client(
                    mine,
                    context.node_id,
                    is_server_trusted=self._is_server_trusted,
                    **identity,
                )
                reply = client.keys(data)
                files.save(client)
        return reply

    def _train(
        self,
        data: bytes,
        msg: Message,
        context: Context,
        call_next: ClientAppCallable,
        files: _Files,
        identity: dict[str, Any],
    ) -> bytes:
        """The masked share: all checks and the charge first, then the app."""
        with files.alone():
            with refusing("model"):
                model = Model(msg.content)
                warn_unused(model, self._frozen)
                names = sent_names(model, self._frozen)
                dimension = sum(model.floats[name].size for name in names)
            with refusing("protocol"):
                client = files.load(identity)
                if client.terms.spec != self._scheme.spec_for(dimension):
                    raise ProtocolError(
                        f"the model has {dimension} entries to send, and the terms of the round "
                        f"are {client.terms.spec}"
                    )
                try:
                    client.receive(data)
                except ProtocolError as error:
                    if not error.clients:
                        raise
                    log(ERROR, "JoPEQSumMod: %s", error)
                    return client.complain(error.clients)  # nothing is charged
            with refusing("budget"):
                files.spend(dimension, is_real=True)
                files.save(client)  # whoever repeats the message is refused from here on
        msg.content.pop(RECORD)
        returned = app_content(msg, context, call_next)
        for content in (returned, RecordDict()):  # the second stands for an update of 0
            try:
                parts = whole_update(model, content, names).values()
                flat = np.concatenate([np.ravel(part) for part in parts])
                share = self._scheme.encode(flat, seed=client.terms.seed)
                break
            except BaseException:
                log(ERROR, "JoPEQSumMod: the update could not be encoded", exc_info=True)
        else:
            raise RefusedError("encoding")
        with files.alone(), refusing("protocol"):
            current = files.load(identity)
            if current.to_bytes() != client.to_bytes():
                raise ProtocolError("another round has begun while the app trained")
            reply = current.mask(share)
            files.save(current)
        return reply


def _answer(kind: int, data: bytes, files: _Files, identity: dict[str, Any]) -> bytes:
    """Answer a message that needs neither model nor app."""
    with files.alone(), refusing("protocol"):
        client = files.load(identity)
        steps = {Kind.ROSTER: client.shares, Kind.SIGNATURES: client.open}
        steps[Kind.SURVIVORS] = client.sign if identity else client.open
        if kind not in steps:
            raise ProtocolError(f"a client answers no message of kind {kind}")
        reply = steps[Kind(kind)](data)
        files.save(client)
    return reply


class _Files:
    """A client's ledger, and beside it the secrets of the round it takes part in."""

    def __init__(self, scheme: SecureSum, path: Any, context: Context) -> None:
        refuse_budget(read(context.node_config))
        cost = scheme.guarantee
        self._scheme, self._node, self._state = scheme, context.node_id, context.state
        budget = Budget(epsilon=cost.epsilon, delta=cost.delta, path=path)
        self._budget = budget.of_node(context.node_config)
        self._round = self._budget.file.with_name(f".{self._budget.file.name}.round")

    @contextmanager
    def alone(self) -> Iterator[None]:
        with ExitStack() as stack:
            with refusing("budget"):
                stack.enter_context(self._budget.alone())
            yield

    def spend(self, dimension: int, *, is_real: bool) -> None:
        """Count a round in the ledger's file; raises if there is none left."""
        ledger = self._budget.open(self._state)
        ledger.participate(self._scheme, dimension)
        if is_real:
            self._budget.keep(ledger, self._state)

    def load(self, identity: dict[str, Any]) -> Client:
        if not self._round.exists():
            raise ProtocolError("this client takes part in no round: the round has not begun here")
        check_own_file(self._round, is_secret=True)
        # whether unsigned terms will do was decided when the round began
        kept = self._round.read_bytes()
        client = Client.from_bytes(kept, is_server_trusted=True, **identity)
        if client.me != self._node:
            raise ProtocolError(
                f"{self._round} holds the round of node {client.me}, this is node {self._node}: "
                "give each client of this home a name of its own (jopeq-client)"
            )
        return client

    def save(self, client: Client) -> None:
        """Write the state down before the reply leaves; after the last one, remove it."""
        if client.phase == "done":
            self._round.unlink()
            return
        with atomic(self._round, mode=0o600) as file:
            file.write(client.to_bytes())
