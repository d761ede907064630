"""The file of a run, ``jopeq train --config run.toml``: options, and settings too rare for one.

Keys are the options' names with underscores. An option on the command line wins over its key.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import typer

_SETTINGS = "jopeq run file"  # where a context keeps the keys that are no options
_NO_KEYS = ("config", "resume", "as_json", "help")
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
}


def settings_of(context: click.Context) -> dict[str, Any]:
    """The keys of the run's file that are no options."""
    found: dict[str, Any] = context.meta.get(_SETTINGS, {})
    return found


def read_run_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take the file's options as defaults of the command, and keep its other settings."""
    if path is None or context.resilient_parsing:
        return path
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of TOML and of UTF-8 alike
        raise typer.BadParameter(f"--config {path} cannot be read ({error})") from error
    options = {str(option.name) for option in context.command.params} - {*_NO_KEYS}
    only = _keys_of_files(options)
    for key, value in found.items():
        if key not in options and key not in only:
            near = get_close_matches(key, [*options, *only], 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise typer.BadParameter(f"--config {path} has the unknown key {key!r}{hint}")
        if key in only and not _is_of(value, only[key]):
            raise typer.BadParameter(
                f"--config {path}: {key} must be of type {only[key]}, got {value!r}"
            )
    context.default_map = {key: _as_words(v) for key, v in found.items() if key in options}
    context.meta[_SETTINGS] = {key: value for key, value in found.items() if key in only}
    return path


def _keys_of_files(options: set[str]) -> dict[str, str]:
    """Settings of all kinds of runs that are no options, and their types."""
    from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, TrainConfig

    kinds = (TrainConfig, PeopleConfig, HospitalsConfig)
    found = {field.name: str(field.type) for kind in kinds for field in fields(kind)}
    return {name: kind for name, kind in found.items() if name not in options}


def _is_of(value: Any, kind: str) -> bool:
    kinds = _KINDS[kind.removesuffix(" | None")]
    return isinstance(value, kinds) and (kinds == (bool,) or not isinstance(value, bool))


def _as_words(value: Any) -> Any:
    """A value as the command line would give it, so that the option's own type reads it."""
    if isinstance(value, dict):  # of ``parameter``
        return [f"{name}={json.dumps(one)}" for name, one in value.items()]
    if isinstance(value, list):
        return [str(one) for one in value]
    return value if isinstance(value, bool) else str(value)
