"""The node's configuration: what a hospital or a device decides for itself, by keys ``jopeq-…``."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from jopeq.files import check_own_file
from jopeq.flower.refusals import RefusedError
from jopeq.ledger import Ledger

Metrics = Mapping[str, "float | None"]
"""Metrics that leave a client: a declared constant, or None for the app's own value."""

PREFIX = "jopeq-"
LIMITS = ("epsilon", "delta", "rounds", "sampling")
"""The numbers that ``jopeq-max-…`` bounds."""

_TEXT = "text"  # of a column that jopeq-columns lists


def _read_number(value: Any, least: float, most: float) -> float:
    found = float(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
        raise ValueError(f"a number from {least:g} to {most:g} is needed")
    return float(found)


def _number(least: float, most: float) -> Callable[[Any], float]:
    return lambda value: _read_number(value, least, most)


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text in quotes is needed")
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is needed")
    return value


def _read_name(value: Any) -> str:
    if not re.fullmatch(r"\w[\w.-]{0,99}", str(value)):
        raise ValueError("a name of letters, digits, '_', '.' and '-' is needed")
    return str(value)


def read_columns(text: Any) -> dict[str, bool]:
    """Patterns of columns that surveys may ask for; True where they hold text."""
    found = {}
    for one in _listed(_read_text(text)):
        name, *kind = map(str.strip, one.split("="))
        if kind not in ([], [_TEXT]):
            raise ValueError(f"NAME or NAME={_TEXT} is needed, separated by commas")
        found[name] = bool(kind)
    return found


def read_metrics(metrics: Any) -> Metrics:
    """The metrics that leave a client, from code or from the text of ``jopeq-metrics``.

    >>> read_metrics("num-examples=600, loss")
    {'num-examples': 600.0, 'loss': None}
    >>> read_metrics({"num-examples": 600})
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


def _listed(text: str) -> list[str]:
    return [one for one in map(str.strip, text.split(",")) if one]


def _read_hashes(value: Any) -> set[str]:
    found = set(_listed(_read_text(value).lower()))
    if not found or any(re.fullmatch("[0-9a-f]{64}", one) is None for one in found):
        raise ValueError("what `sha256sum app.fab` prints is needed, of each app that may run")
    return found


_LEAST = math.ulp(0.0)  # the first number above 0
_KEYS: dict[str, Callable[[Any], Any]] = {
    "app-sha256": _read_hashes,
    "budget": _number(_LEAST, 1e9),
    "budget-delta": _number(0.0, 1.0),
    "client": _read_name,
    "columns": read_columns,
    "identity": _read_text,
    "ledger": _read_text,
    "ledger-required": _read_bool,
    "max-delta": _number(0.0, 1.0),
    "max-epsilon": _number(_LEAST, 1e9),
    "max-rounds": _number(1.0, 1e9),
    "max-sampling": _number(_LEAST, 1.0),
    "metrics": lambda value: read_metrics(_read_text(value)),
    "trusted": _read_text,
}


def read_node(config: Mapping[str, Any]) -> dict[str, Any]:
    """The ``jopeq-…`` entries of a node's configuration, without the prefix.

    ``ValueError`` with key, value and remedy for an unknown key and for a value that fits none.
    """
    found = {}
    for key, value in _given(config).items():
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, 1) or sorted(_KEYS)
            raise ValueError(
                f"{PREFIX}{key} is {value!r:.80}, and no such key is known: use "
                f"{', '.join(PREFIX + one for one in near)}, or leave it out"
            )
        try:
            found[key] = _KEYS[key](value)
        except ValueError as error:
            raise ValueError(f"{PREFIX}{key} is {value!r:.80}: {error}") from error
    return found


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key.removeprefix(PREFIX): value
        for key, value in config.items()
        if key.startswith(PREFIX) and (value != "" or key == f"{PREFIX}app-sha256")
    }


def refuse_run_keys(config: Mapping[str, Any]) -> None:
    """Refuse ``jopeq-…`` keys of a run: whoever starts the run must not choose ε."""
    if given := _given(config):
        raise ValueError(
            f"the run's configuration sets {PREFIX}{next(iter(given))}, and nothing of jopeq is "
            "read there: give the scheme in code, budget and ledger in code or the node's "
            "configuration"
        )


def check_node(config: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the configuration of a node that takes part in private sums.

    Each problem is a sentence with key, value and remedy; none means that a guarded node can start.
    """
    found = []

    def check(step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            found.append(str(error))

    for key, value in _given(config).items():
        check(partial(read_node, {PREFIX + key: value}))
    good = {key: value for key, value in _given(config).items() if key in _KEYS}
    for key in ("max-epsilon", "max-delta", "ledger", "identity", "trusted"):
        if key not in good:
            found.append(f"{PREFIX}{key} is missing: set it in the node's configuration")
    check(lambda: refuse_budget(good))
    if "ledger" in good:
        check(lambda: Ledger.load(str(good["ledger"])))
    if {"identity", "trusted"} <= good.keys():
        check(lambda: read_keys(str(good["identity"]), str(good["trusted"])))
    return found


def refuse_budget(node: Mapping[str, Any]) -> None:
    """Refuse ``jopeq-budget`` where the ledger's file has the budget: nothing is ignored."""
    for key in ("budget", "budget-delta"):
        if key in node:
            raise ValueError(
                f"jopeq-{key} is {node[key]!r}, and a sum takes its budget from the ledger: leave "
                "the key out, and name in jopeq-ledger a file of `jopeq ledger init --budget ε "
                "--delta δ`"
            )


def check_columns(listed: Mapping[str, bool], asked: tuple[tuple[str, str], ...]) -> None:
    """Refuse questions about columns that are not listed, and for numbers of text.

    This is known before any table is read: the list is the hospital's own, and public.
    """
    for name, kind in asked:
        fitting = [is_text for pattern, is_text in listed.items() if fnmatchcase(name, pattern)]
        if not fitting or (kind == "numbers" and any(fitting)):
            raise RefusedError("limits") from ValueError(
                f"{kind} of {name!r:.80} are asked for, and jopeq-columns is {', '.join(listed)}"
            )


# Keys of identities


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


def read_keys(own: str | None, others: str | None) -> dict[str, Any]:
    """``identity`` and ``trusted`` in these two files; nothing where both are None."""
    if own is None and others is None:
        return {}
    if own is None or others is None:
        raise ValueError("jopeq-identity and jopeq-trusted belong together: give both, or neither")
    check_own_file(Path(own).resolve(), is_secret=True)
    key = load_pem_private_key(Path(own).read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"jopeq-identity must be an Ed25519 key, got {type(key).__name__}")
    trusted = read_trusted(others)
    if key.public_key().public_bytes_raw() not in trusted:
        raise ValueError(f"jopeq-trusted: {others} must list the public key of this node too")
    return {"identity": key, "trusted": trusted}
