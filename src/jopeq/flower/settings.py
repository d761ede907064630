"""The settings of both ends, from code and from a node's configuration (keys ``jopeq-…``).

The server offers its settings with each train message, and the client checks that both ends agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from logging import WARNING
from typing import Any

from flwr.app import ConfigRecord
from flwr.common.logger import log

from jopeq.errors import JoPEQError
from jopeq.flower.arrays import Model
from jopeq.schemes.base import Scheme
from jopeq.schemes.model import find_frozen

Metrics = Mapping[str, "float | None"]
"""Metrics that leave a client: a declared constant, or None for the app's own value."""

PREFIX = "jopeq-"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The scheme that client and server must agree on, and the client's own rules.

    ``scheme`` codes the updates. Arrays whose name matches a pattern of ``frozen`` are never sent.
    ``metrics`` are the metrics that a private scheme lets through, in the clear.
    """

    scheme: Scheme
    frozen: tuple[str, ...] = ()
    metrics: Metrics = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, Scheme):
            raise ValueError(
                f"scheme must be made by jopeq.scheme(...), got {self.scheme!r}: a ClientSum goes "
                "with JoPEQSumMod and JoPEQSumStrategy"
            )

    @property
    def is_private(self) -> bool:
        """Whether the scheme names an ε: then nothing but the payload may tell about the data."""
        return self.scheme.is_private


def matches(record: str, name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits the array's name, with or without its record's."""
    names = (name, f"{record}/{name}")
    return any(fnmatchcase(one, pattern) for one in names for pattern in patterns)


def frozen_names(frozen: Iterable[str], model: Any = None) -> tuple[str, ...]:
    """Patterns of arrays that are never sent; of "auto", the names that ``model`` does not train.

    ``model`` is a PyTorch module, or what makes one: the choice is the app's, before it sees data.
    """
    if frozen == "auto":
        if model is None:
            raise ValueError(
                "frozen='auto' sends what the app's model trains: give model too, the module or "
                "the function that makes it"
            )
        is_made = hasattr(model, "named_modules") and not isinstance(model, type)
        return find_frozen(model if is_made else model())
    if isinstance(frozen, str) or model is not None:
        raise ValueError(
            f"frozen must be a list of names, got {frozen!r}: use ['{frozen}'], or 'auto' with "
            "model"
        )
    return tuple(frozen)


def warn_unused(model: Model, frozen: Iterable[str]) -> None:
    """Name the patterns that match nothing: what they were to keep at home is sent."""
    for pattern in frozen:
        if not any(matches(*place, (pattern,)) for place in model.places.values()):
            log(WARNING, "JoPEQ: frozen: %r matches no array, so it keeps nothing at home", pattern)


def read_metrics(metrics: str | Iterable[str] | Mapping[str, float]) -> Metrics:
    """The metrics that leave a client, from code or from the text of ``jopeq-metrics``.

    >>> read_metrics("num-examples=600, loss")
    {'num-examples': 600.0, 'loss': None}
    >>> read_metrics({"num-examples": 600})
    {'num-examples': 600}
    """
    if isinstance(metrics, str):
        pairs = [text.partition("=") for text in _list(metrics)]
        given = {name.strip(): float(value) if sign else None for name, sign, value in pairs}
    elif isinstance(metrics, Mapping):
        given = dict(metrics)
    else:
        return dict.fromkeys(metrics)
    for name, value in given.items():
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if not (is_number or (value is None and isinstance(metrics, str))):
            raise ValueError(f"metric {name!r} must be declared as a number, got {value!r}")
    return given


def refuse_run_keys(config: Mapping[str, Any]) -> None:
    """Refuse ``jopeq-…`` keys of a run: whoever starts the run must not choose ε."""
    if given := read(config):
        raise ValueError(
            f"the run's configuration sets {PREFIX}{next(iter(given))}, and nothing of jopeq is "
            "read there: give the scheme in code, budget and ledger in code or the node's "
            "configuration"
        )


def _list(texts: Any) -> tuple[str, ...]:
    return tuple(filter(None, (text.strip() for text in str(texts).split(","))))


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The ``jopeq-…`` entries of a configuration, without the prefix."""
    return {
        key.removeprefix(PREFIX): value
        for key, value in config.items()
        if key.startswith(PREFIX) and value != ""
    }


# What the server offers each round, and the client's check


PROTOCOL = 3


class SettingsMismatchError(JoPEQError, ValueError):
    """Client and server were set up differently; nothing was sent."""

    code = "settings"


def offer(scheme: Scheme) -> ConfigRecord:
    """The server's settings of one round."""
    return ConfigRecord({"protocol": PROTOCOL, "scheme": scheme.spec})


def agree(mine: Settings, offered: ConfigRecord | None) -> Scheme:
    """The scheme of this round; ``SettingsMismatchError`` names both ends' settings.

    Without an offer (a server that does not know jopeq) a fixed scheme is used all the same: its
    payload makes such a server stop, where a refusal would let it train on without this client.
    """
    scheme = mine.scheme
    if offered is None:
        return scheme
    if offered.get("protocol") != PROTOCOL:
        raise SettingsMismatchError(
            f"the server speaks protocol {offered.get('protocol')!r} and this client {PROTOCOL}: "
            "use the same jopeq version on both ends"
        )
    if offered.get("scheme") != scheme.spec:
        raise SettingsMismatchError(
            f"the server uses scheme {offered.get('scheme')!s} and this client {scheme.spec}; "
            "nothing was sent"
        )
    return scheme
