"""Refusals: what a server reads of a client that does not answer. A code, and who refused.

A Flower message has content or an error, never both, and an error is a number and a text. The text
of a refusal is ``CLASS [code]: sentence``; programs read class and code, people the sentence.
"""

from __future__ import annotations

import re
from logging import ERROR
from typing import NamedTuple

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from jopeq.errors import BudgetSpentError, JoPEQError

# All that a server reads. Amounts, paths and the errors of an app stay in the client's log.
SENTENCES = {
    "settings": "the settings of client and server do not fit (see this node's log)",
    "budget": "this client's budget does not allow a reply (see this node's log)",
    "budget-spent": "this client's budget is spent, it does not train again",
    "limits": "the terms are beyond what this node's configuration allows (see this node's log)",
    "model": "the server's model cannot be used (see this node's log)",
    "message-type": "messages of this type are not answered",
    "too-many-entries": "the model has more entries than max_entries of the scheme allows: raise "
    "max_entries on both ends, or freeze arrays",
    "secagg": "Flower's SecAgg+ adds integers up and cannot carry payloads: use SumMod and "
    "SumStrategy",
    "trusted": "your lists of trusted hospitals differ",
    "protocol": "a message of the secure sum was refused (see this node's log)",
    "encoding": "the reply could not be made (see this node's log)",
}


class RefusedError(JoPEQError):
    """One of ``SENTENCES`` by its code; ``__cause__`` has the details for the client's log."""

    def __init__(self, code: str, said: str | None = None) -> None:
        super().__init__(said or SENTENCES[code], code=code)

    def reply(self, msg: Message, made_by: object) -> Message:
        name = type(made_by).__name__
        log(ERROR, "%s: %s", name, self.__cause__ or self)
        reason = f"{name} [{self.code}]: {self}"
        return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=msg)


def refusal_of(error: Exception, code: str) -> RefusedError:
    """The refusal for an error: the server chose the input, and nothing private was read."""
    if isinstance(error, RefusedError):
        return error
    refused = RefusedError(error.code if isinstance(error, BudgetSpentError) else code)
    refused.__cause__ = error
    return refused


class Failure(NamedTuple):
    """An error reply as the server reads it; ``code`` is a mod's, or Flower's number in words."""

    node: int
    made_by: str
    code: str
    reason: str

    @property
    def is_refusal(self) -> bool:
        """True if a mod refused, rather than an app failed or a node was lost."""
        return bool(self.made_by)

    def __str__(self) -> str:
        return f"node {self.node}: {self.reason}"


def read_failure(reply: Message) -> Failure:
    """The reason in an error reply, on one line: the client wrote it."""
    reason = reply.error.reason or f"error {reply.error.code}"
    said = repr(reason[:400])[1:-1]
    node = int(reply.metadata.src_node_id)
    found = re.match(r"(\w{1,40}) \[([a-z-]{1,40})\]: ", reason)
    if reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION and found is not None:
        return Failure(node, found[1], found[2], said)
    return Failure(node, "", f"flower-{reply.error.code}", said)
