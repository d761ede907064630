"""Tasks: what a circle of clients sums, in words that both ends compare.

A message of a circle is Flower's message of the task's kind, with the record ``RECORD``: the
circle's bytes, the task's words, and on the way up how many rounds the client's ledger covers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from logging import ERROR
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log

from jopeq.circle import CircleTerms, Plan, digest
from jopeq.errors import ProtocolError
from jopeq.models import Model, model_from_spec
from jopeq.statistics import Survey
from jopeq.sums.record_sum import ClientSum, RecordSum

RECORD = "jopeq-sum"
"""Key of the config record that carries a message of the circle either way."""

SCORING = "scoring"
"""Key in the configuration of an evaluation: the spec of the ``Scoring`` that is summed."""

_MOST_SPEC, _MOST_NAME = 1 << 17, 200  # characters: a survey of a thousand columns
_MOVED = 2.0**-20  # the least that a server may assume of an app it chose

Sum = RecordSum | ClientSum
Query = Survey | Model
"""The subject of query messages: a survey is one sum, the fit of a model several."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One sum that is taken again and again: of updates, of clipped gradients, of a table's rows.

    ``kind`` is Flower's type of the messages, ``spec`` the terms that are compared, ``label`` the
    run's name in ledger and audit file, ``words`` what is asked, for people. ``needs`` are keys
    that the node's configuration must have because the server chose the terms, ``asked`` the
    columns that are read and how, ``attempts`` the most at one round, each charged.

    ``prepare(content)``, of the client, refuses a message that cannot be used, before anything is
    charged. It returns a function from what the app handed over, else from the content of its
    reply, to the ``ClippedTotal``.
    """

    scheme: Sum
    dimension: int
    run: str
    kind: str = MessageType.TRAIN
    spec: str = ""
    label: str = ""
    words: str = ""
    needs: tuple[str, ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    attempts: int = 8
    prepare: Callable[[RecordDict], Callable[[Any], Any]] = field(
        default=lambda content: lambda found: found, compare=False
    )
    mechanism: RecordSum = field(init=False)
    """The sum that shares are made by."""

    def __post_init__(self) -> None:
        scheme = self.scheme
        mechanism = scheme.sum if isinstance(scheme, ClientSum) else scheme
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "spec", self.spec or scheme.spec)
        object.__setattr__(self, "label", self.label or self.run)

    @property
    def offer(self) -> dict[str, str | int]:
        """The task as a server tells it in every message."""
        return {"scheme": self.spec, "dimension": self.dimension, "run": self.run}

    def terms(self, *, unsigned: bool) -> CircleTerms:
        """The circle's terms, which are in every transcript."""
        scheme = self.scheme
        return CircleTerms(
            circle=self.label, spec=f"{self.spec} of {self.dimension} entries",
            plan=partial(_circle_plan, self.mechanism, self.dimension), clients=scheme.clients,
            threshold=scheme.threshold, colluding=scheme.colluding, attempts=self.attempts,
            dropouts=scheme.dropouts, unsigned=unsigned,
        )  # fmt: skip


@lru_cache(maxsize=64)
def _circle_plan(mechanism: RecordSum, dimension: int, clients: int) -> Plan:
    """The vectors of a cohort, with the numbers of its plan."""
    found = mechanism.plan(dimension, clients)
    return Plan(bits=found.bits, length=dimension, text=json.dumps(found.integers[1:]))


def query_task(query: Query, run: str, needs: tuple[str, ...] = (), *, step: int = 0) -> Task:
    """The sum of a survey, or of a step of a fit; the app hands over its table."""
    tell = partial(log, ERROR, "JoPEQ: %s: %s", query.name)

    def prepare(content: RecordDict) -> Callable[[Any], Any]:
        if isinstance(query, Survey):
            return lambda table: query.total(table, tell=tell)
        at, sent = read_step(content)
        if (entries := query.method.dimension(at)) != dimension:
            raise ValueError(f"step {at} has {entries} entries, and the terms {dimension}")
        nobody = query.read({name: () for name, _ in query.keys})
        query.total(nobody, at, sent)  # refuses arrays that are none of the model's
        return lambda table: query.total(query.read(table, tell=tell, pad=True), at, sent)

    asked: tuple[tuple[str, str], ...]
    if isinstance(query, Survey):
        scheme, dimension, asked = query.sum, query.dimension, query.asked
        columns = dict[str, list[str]]()
        for one in query.questions:
            columns.setdefault(one.name, []).append(one.column)
        words = " and ".join(f"{name} of {', '.join(some)}" for name, some in columns.items())
        attempts = scheme.rounds
    else:
        scheme, dimension, asked = query.sum_of(step), query.method.dimension(step), query.keys
        given = dict.fromkeys(name for name, _ in query.design.keys)
        outcome = " and ".join(dict.fromkeys(name for name, _ in query.outcome_keys))
        words = f"a {query.word} model of {outcome} by {', '.join(given)}"
        attempts = 1 + query.repeats
    return Task(
        scheme=scheme, dimension=dimension, run=run, kind=MessageType.QUERY, spec=query.spec,
        label=f"{query.name} {run}".rstrip(), words=words, needs=needs, asked=asked,
        attempts=attempts, prepare=prepare,
    )  # fmt: skip


def step_content(step: int, sent: Mapping[str, Any]) -> RecordDict:
    """The records that come with a message of a fit."""
    arrays = ArrayRecord({name: Array(np.array(one)) for name, one in sent.items()})
    return RecordDict({"sent": arrays, "fit": ConfigRecord({"step": step})})


def read_step(content: RecordDict) -> tuple[int, dict[str, Any]]:
    """The step of a fit, and the public arrays that it is computed with."""
    (arrays,), (config,) = content.array_records.values(), content.config_records.values()
    sent = {name: array.numpy() for name, array in arrays.items()}
    return int(str(config["step"])), sent


def check_scheme(scheme: Any, unsigned: bool, *kinds: type[Any]) -> None:
    """``ValueError`` for another kind of scheme, and for a threshold that protects nobody."""
    if not isinstance(scheme, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"scheme must be a {names}, got {scheme!r}: a RecordSum goes with RecordStrategy, a "
            "ClientSum with SumStrategy, other schemes with PayloadStrategy"
        )
    Task(scheme=scheme, dimension=1, run="").terms(unsigned=unsigned)


class Offer(NamedTuple):
    """The task that a server's message names, as it came."""

    kind: str
    spec: Any
    dimension: Any
    run: Any
    data: bytes
    trusted: Any

    @classmethod
    def take(cls, msg: Message) -> Offer | None:
        """The offer of a message, taken out of it; None if the message belongs to no circle."""
        kind = msg.metadata.message_type.split(".")[0]
        record = msg.content.config_records.get(RECORD)
        if record is None and kind != MessageType.TRAIN:
            return None
        if record is None or not isinstance(data := record.get("message"), bytes):
            raise ProtocolError(
                "the server sent no message of a secure sum, and this client answers nothing else: "
                "use SumStrategy or RecordStrategy there"
            )
        del msg.content[RECORD]
        spec, run = record.get("scheme"), record.get("run")
        for text, most in ((spec, _MOST_SPEC), (run, _MOST_NAME)):
            if not isinstance(text, str) or len(text) > most:
                raise ProtocolError(f"texts of at most {most} characters are read: {text!r:.80}")
        return cls(kind, spec, record.get("dimension"), run, data, record.get("trusted"))

    def read_scheme(self) -> RecordSum:
        """The scheme that a server names, if its assumptions are no bolder than the usual ones."""
        name, parameters = json.loads(self.spec)
        scheme = RecordSum(**parameters)
        if name != scheme.name or scheme.spec != self.spec:
            raise ValueError(f"spec {self.spec!r:.300} is none of a RecordSum")
        if scheme.colluding < 1 or scheme.batch_dependence < _MOVED:
            least = f"colluding must be at least 1 and batch_dependence at least {_MOVED:g}"
            raise ValueError(f"{least}, got {self.spec}")
        return scheme

    def read_query(self) -> Query:
        """The survey or model that a server names, if it lets one hospital be curious."""
        is_model = self.spec.startswith('{"model"')
        query = model_from_spec(self.spec) if is_model else Survey.from_spec(self.spec)
        if query.spec != self.spec or query.colluding < 1:
            raise ValueError(f"spec {self.spec!r:.300} asks for nothing, or its colluding is 0")
        return query


def digest_content(content: RecordDict, kind: str) -> bytes:
    """Hash of what a client acts on: type, arrays and configuration of a message.

    Records are hashed one by one, so that no two contents give the same bytes.
    """
    parts = [kind.encode()]
    for key in sorted(content):
        record = content[key]
        inner = [key.encode(), type(record).__name__.encode()]
        if isinstance(record, ArrayRecord):
            for name, array in record.items():
                inner += [repr((name, array.dtype, tuple(array.shape), array.stype)).encode()]
                inner += [array.data]
        else:
            inner += [repr(sorted(record.items())).encode()]
        parts.append(digest(*inner))
    return digest(*parts)
