"""The options that describe a scheme, shared by the commands that take one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from jopeq.cli.output import with_flags
from jopeq.registry import SCHEMES, scheme

Made = TypeVar("Made")

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead")]
Epsilon = Annotated[
    float | None,
    typer.Option(help="ε per sample; sphere: per update; sums: per client or record, all rounds"),
]
Rate = Annotated[float | None, typer.Option(help="bits per entry")]
Parameter = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", help="NAME=VALUE of another parameter; may be repeated"),
]
Tables = Annotated[
    list[Path], typer.Option("--csv", help="a hospital's table with a line of names; repeated")
]
Delta = Annotated[float, typer.Option(help="δ at which ε is stated")]
Threshold = Annotated[int, typer.Option(help="fewest hospitals in a sum")]
Colluding = Annotated[int, typer.Option(help="hospitals that may be curious")]
PerPerson = Annotated[int, typer.Option(help="most records of one person, wherever they are")]
Plot = Annotated[Path | None, typer.Option(help="draw the result into this file")]


def was_given(context: typer.Context, name: str) -> bool:
    """Check if the user wrote this option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_values(
    texts: Iterable[str] | None, option: str = "--parameter", **others: Any
) -> dict[str, Any]:
    """The values of NAME=VALUE texts, as JSON or else as text, and ``others`` that are not None."""
    found = {name: value for name, value in others.items() if value is not None}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option} takes NAME=VALUE, got {text!r}")
        if name in found:
            raise typer.BadParameter(f"{name} is given twice: {found[name]!r} and {value!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def name_of(scheme_option: str) -> str:
    """The name in --scheme; one written package.module:Class is imported, which registers it."""
    module, colon, attribute = scheme_option.partition(":")
    if not colon:
        return scheme_option
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(
            f"--scheme {scheme_option}: {error}: check the names, and that the module's folder is "
            "on PYTHONPATH"
        ) from error
    if found not in SCHEMES.values():
        raise typer.BadParameter(
            f"--scheme {scheme_option} is no registered scheme: put @jopeq.register above a class "
            "of Scheme"
        )
    return str(found.name)


def build_any(name: str, given: Mapping[str, Any]) -> Any:
    """The scheme with these parameters; wrong ones end the command with an error for the user."""
    name = name_of(name)
    return build(partial(scheme, name), name, given)


def build(make: Callable[..., Made], name: str, given: Mapping[str, Any]) -> Made:
    """Call ``make`` with these parameters for ``name``, with the same errors."""
    try:
        return make(**given)
    except ValueError as error:
        raise typer.BadParameter(with_flags(str(error))) from error
    except TypeError as error:  # a parameter is missing or has a wrong type
        raise typer.BadParameter(
            f"scheme {name!r}: {error}: give it as an option, or as NAME=VALUE"
        ) from error
