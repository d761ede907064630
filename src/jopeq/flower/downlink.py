"""The way down: the server's model as a coded difference from the model that a client holds.

The server keeps the *reference*, the model as its clients decode it. Each new model is sent as
``sdq`` of (model − reference), and the reference moves by the decoded difference. The next
difference therefore makes up for the error of the last (error feedback), and all clients hold the
same bits. A client that is behind gets the differences it missed, or the reference itself if that
is shorter.

Updates come back relative to the reference and are added to the exact model.

A client decodes with its own scheme alone: a server cannot make it build another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from jopeq.errors import JoPEQError, PayloadError
from jopeq.flower.payload import RECORD, STYPE, Model, Values, changed, moved, to_array, widened
from jopeq.flower.settings import SettingsMismatchError
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.schemes.state import decode_state, encode_state

DEFAULT = scheme("sdq", rate=4.0)
STATE = "jopeq-model"
STATE_LOST = "this client lost the model that the server's differences start from"
_DIFFERENCES, _INTEGERS = "jopeq-differences", "jopeq-integers"


def coder_of(chosen: bool | Scheme | None, given: Mapping[str, Any]) -> Scheme | None:
    """The scheme of the way down, from code or else from ``jopeq-downlink``; None sends it raw."""
    if chosen is None:  # a number is the rate; true is the default scheme
        setting = given.get("downlink", False)
        chosen = setting if isinstance(setting, bool) else scheme("sdq", rate=setting)
    if isinstance(chosen, Scheme):
        return chosen
    return DEFAULT if chosen else None


class StateLostError(JoPEQError):
    """The client does not hold the model that the server's differences start from."""


class Downlink:
    """The server's side."""

    def __init__(self, scheme: Scheme = DEFAULT) -> None:
        if scheme.name != "sdq":
            raise ValueError(f"downlink codes with scheme 'sdq', got {scheme.name!r}")
        self._scheme = scheme
        self._version = 0
        self._exact: dict[str, Values] = {}
        self._reference: dict[str, Values] = {}
        self._payloads: dict[int, bytes] = {}  # the difference that leads to each version
        self._held: dict[int, int] = {}  # the version each node answered to

    def send(self, messages: Iterable[Message]) -> list[Message]:
        """Replace the model of each message by the differences that its node lacks."""
        result = list(messages)
        if not result:
            return result
        content = result[0].content
        model = Model(content)
        others = (message.content for message in result if message.content is not content)
        if any(other.array_records != content.array_records for other in others):
            raise ValueError("downlink needs a strategy that sends all clients the same model")
        self._advance(model)
        for message in result:
            message.content = self._content(message.content, model, message.metadata.dst_node_id)
        return result

    def heard(self, replies: Iterable[Message]) -> None:
        """Remember which nodes hold the version sent last; a node that failed may hold nothing."""
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                self._held.pop(node, None)
            else:
                self._held[node] = self._version

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next difference depends on."""
        return {
            "scheme": self._scheme.spec,
            "version": self._version,
            "exact": dict(self._exact),
            "reference": dict(self._reference),
            "payloads": dict(self._payloads),
            "held": dict(self._held),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._version = state["version"]
        self._exact, self._reference = dict(state["exact"]), dict(state["reference"])
        self._payloads, self._held = dict(state["payloads"]), dict(state["held"])

    def _advance(self, model: Model) -> None:
        exact = model.floats
        if _shapes(exact) != _shapes(self._reference):  # the first model, or another one
            self._payloads.clear()
            self._held.clear()
            self._reference = {name: value.copy() for name, value in exact.items()}
        elif all(np.array_equal(value, self._exact[name]) for name, value in exact.items()):
            return
        else:
            reference = widened(self._reference)
            difference = changed(reference, exact)
            payload = encode_state(self._scheme, difference)
            decoded = decode_state(self._scheme, payload, like=reference)
            self._reference = moved(self._reference, decoded)
            self._payloads[self._version + 1] = payload
            self._forget()
        self._exact = exact
        self._version += 1

    def _forget(self) -> None:
        """Drop old differences: together with the later ones they are as long as the model."""
        room = self._whole_bytes
        for step in sorted(self._payloads, reverse=True):
            room -= len(self._payloads[step])
            if room <= 0:
                del self._payloads[step]

    @property
    def _whole_bytes(self) -> int:
        return sum(value.nbytes for value in self._reference.values())

    def _content(self, content: RecordDict, model: Model, node: int) -> RecordDict:
        arrays = content.array_records
        result = RecordDict({key: item for key, item in content.items() if key not in arrays})
        base = self._held.get(node, 0)
        missing = [self._payloads.get(step) for step in range(base + 1, self._version + 1)]
        payloads = [payload for payload in missing if payload is not None]
        are_shorter = sum(map(len, payloads)) < self._whole_bytes
        if base == 0 or len(payloads) < len(missing) or not are_shorter:
            base = 0
            floats = {name: Array(value) for name, value in self._reference.items()}
            for key, record in model.records(floats).items():
                result[key] = record
        else:
            steps = zip(range(base + 1, self._version + 1), payloads, strict=True)
            coded = {str(step): to_array(payload) for step, payload in steps}
            result[_DIFFERENCES] = ArrayRecord(coded)
            integers = {n: model.array(n) for n in model.places if n not in model.floats}
            result[_INTEGERS] = ArrayRecord(integers)
        offered = result.config_records.get(RECORD, ConfigRecord()).copy()
        offered["model-version"], offered["model-base"] = self._version, base
        offered["model-scheme"] = self._scheme.spec
        result[RECORD] = offered
        return result


def is_compressed(offered: ConfigRecord | None) -> TypeGuard[ConfigRecord]:
    """Whether a message's model came through ``Downlink``."""
    return offered is not None and "model-version" in offered


def restore(
    content: RecordDict, offered: ConfigRecord, state: RecordDict, coder: Scheme = DEFAULT
) -> None:
    """The client's side: put the whole model into the message, and keep it for the next one.

    ``coder`` is the client's own scheme of the way down; another one is refused by its name.
    """
    if offered.get("model-scheme") != coder.spec:
        raise SettingsMismatchError(
            f"the server codes its model with {offered.get('model-scheme')!r:.200} and this client "
            f"reads {coder.spec}: set jopeq-downlink (or downlink=) alike on both ends"
        )
    version, base = int(str(offered["model-version"])), int(str(offered.get("model-base", 0)))
    if base:
        records = _caught_up(content, coder, state, version, base)
        for key in (_DIFFERENCES, _INTEGERS):
            del content[key]
        for key, record in records.items():
            content[key] = record
    records = dict(content.array_records.items())
    for key in [key for key in state if key.startswith(f"{STATE}/")]:
        del state[key]
    for key, record in records.items():
        state[f"{STATE}/{key}"] = ArrayRecord(dict(record))
    state[STATE] = ConfigRecord({"version": version})


def _caught_up(
    content: RecordDict, coder: Scheme, state: RecordDict, version: int, base: int
) -> dict[str, ArrayRecord]:
    stored = state.config_records.get(STATE)
    held = 0 if stored is None else int(str(stored["version"]))
    if not base <= held <= version:
        raise StateLostError(
            f"this client holds version {held} of the model and the server sent the differences "
            f"from {base} to {version}: the server will send the whole model next time"
        )
    prefix, kept = f"{STATE}/", state.array_records.items()
    own = {key.removeprefix(prefix): item for key, item in kept if key.startswith(prefix)}
    model = Model(RecordDict(dict(own)))
    floats = model.floats
    records = content.array_records
    if _DIFFERENCES not in records or _INTEGERS not in records:
        raise PayloadError("the server's message lacks the differences it announces")
    differences = records[_DIFFERENCES]
    for step in range(held + 1, version + 1):
        coded = differences.get(str(step))
        if coded is None or coded.stype != STYPE:
            raise PayloadError(f"the difference to version {step} of the model is no jopeq payload")
        floats = moved(floats, decode_state(coder, coded.data, like=widened(floats)))
    arrays = {name: Array(value) for name, value in floats.items()}
    return model.records({**records[_INTEGERS], **arrays})


def _shapes(arrays: dict[str, Values]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(value.dtype), value.shape) for name, value in arrays.items()}
