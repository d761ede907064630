"""The settings of both ends, from code or from Flower's configuration (keys ``jopeq-…``).

The server offers its settings with each train message, and the client checks that both ends agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from flwr.common.logger import log

from jopeq.errors import JoPEQError
from jopeq.flower.payload import Model
from jopeq.registry import SCHEMES, parameters_of, scheme
from jopeq.schemes.base import Scheme
from jopeq.schemes.model import find_frozen

Metrics = Mapping[str, "float | None"]
"""Metrics that leave a client: a declared constant, or None for the app's own value."""

Forms = str | Mapping[str, str]
"""What array records hold: a "model" or a "delta", all alike or by name (others: a model)."""

PREFIX = "jopeq-"
# Every other key that starts with the prefix is a parameter of the scheme.
_OWN = ("enabled", "scheme", "budget", "budget-delta", "ledger", "frozen", "metrics")


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
                f"scheme must be made by jopeq.scheme(...), got {self.scheme!r}: "
                "or leave it out and set jopeq-scheme in the run configuration; a SecureSum goes "
                "with JoPEQSumMod and JoPEQSumStrategy"
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings | None:
        """The settings in a run configuration; None if it turns jopeq off.

        Keys are ``jopeq-scheme`` and the scheme's parameters; an empty text counts as not given.

        >>> settings = Settings.from_config(
        ...     {"jopeq-scheme": "response", "jopeq-epsilon": 4, "jopeq-rate": 2, "lr": 0.1}
        ... )
        >>> settings.scheme.epsilon, settings.scheme.rate
        (4.0, 2.0)
        """
        given = read(config)
        is_enabled = given.get("enabled", True)
        if not isinstance(is_enabled, bool):
            raise ValueError(f"jopeq-enabled must be true or false, got {is_enabled!r}")
        if not is_enabled:
            return None
        own = {name: given.pop(name) for name in _OWN if name in given}
        if "scheme" not in own:
            raise ValueError(
                "no scheme is set: pass one in code, or set jopeq-scheme in the run configuration "
                "(jopeq-enabled=false turns jopeq off)"
            )
        parameters = {name.replace("-", "_"): value for name, value in given.items()}
        return cls(
            scheme=scheme(str(own["scheme"]), **_taken(str(own["scheme"]), parameters)),
            frozen=_listed(own.get("frozen", "")),
            metrics=declared(own.get("metrics", "")),
        )

    @property
    def is_private(self) -> bool:
        """Whether the scheme names an ε: then nothing but the payload may tell about the data."""
        return self.scheme.is_private


def _taken(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that this scheme takes.

    ``flwr run --run-config "jopeq-scheme='sdq'"`` leaves the app's ``jopeq-epsilon`` in place:
    parameters of other schemes are left out with a warning, all others are the scheme's to refuse.
    """
    known = {key for kind in SCHEMES for key in parameters_of(kind)}
    mine = parameters_of(name) if name in SCHEMES else tuple(parameters)
    left = [key for key in parameters if key in known and key not in mine]
    if left:
        keys = ", ".join(f"{PREFIX}{key.replace('_', '-')}" for key in left)
        log(WARNING, "JoPEQ: scheme %r has no %s: left out", name, keys)
    return {key: value for key, value in parameters.items() if key not in left}


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


def declared(metrics: str | Iterable[str] | Mapping[str, float]) -> Metrics:
    """The metrics that leave a client, from code or from the text of ``jopeq-metrics``.

    >>> declared("num-examples=600, loss")
    {'num-examples': 600.0, 'loss': None}
    >>> declared({"num-examples": 600})
    {'num-examples': 600}
    """
    if isinstance(metrics, str):
        pairs = [text.partition("=") for text in _listed(metrics)]
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


def _listed(texts: Any) -> tuple[str, ...]:
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


# Models and deltas


def check_forms(reply: Forms) -> Forms:
    """``reply`` as given; ``ValueError`` unless it says "model" or "delta"."""
    forms = reply.values() if isinstance(reply, Mapping) else (reply,)
    for form in forms:
        if form not in ("model", "delta"):
            raise ValueError(
                f"reply must be 'model', 'delta' or a mapping of record names to them, got {form!r}"
            )
    return reply


def is_delta(reply: Forms, record: str) -> bool:
    """Whether this array record holds a delta."""
    return (reply.get(record, "model") if isinstance(reply, Mapping) else reply) == "delta"


def start_deltas(model: Model, reply: Forms) -> Model:
    """The model that updates start from: 0 where a record holds deltas, which are the updates."""
    for name, value in model.floats.items() if reply != "model" else ():
        if is_delta(reply, model.places[name][0]):
            model.floats[name] = np.zeros_like(value)
    return model
