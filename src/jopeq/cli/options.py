"""The options that describe a scheme, shared by the commands that take one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from jopeq.schemes import SCHEMES, Scheme, scheme

SchemeName = Annotated[str, typer.Option("--scheme", help=f"one of {', '.join(SCHEMES)}")]
Epsilon = Annotated[float | None, typer.Option(help="privacy asked for, per sample")]
Rate = Annotated[float | None, typer.Option(help="bits per entry")]
LatticeName = Annotated[str | None, typer.Option("--lattice", help="Z, A2, D4 or E8")]
Gamma = Annotated[float | None, typer.Option(help="radius of the codebook's support")]
LawName = Annotated[str | None, typer.Option("--law", help="laplace, t, l2 or gaussian")]
Coding = Annotated[str | None, typer.Option(help="fixed or entropy")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter", "-p", help="any other parameter of the scheme, NAME=VALUE; may be repeated"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead")]


def build_scheme(name: str, others: list[str] | None = None, **parameters: Any) -> Scheme:
    """The scheme, from the options that were given; what is wrong ends the command politely.

    ``others`` are NAME=VALUE texts; a value is read as JSON, or taken as text if it is none.
    """
    given = {key: value for key, value in parameters.items() if value is not None}
    for text in others or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--parameter takes NAME=VALUE, got {text!r}")
        if key in given:
            raise typer.BadParameter(f"{key} is given twice: {given[key]!r} and {value!r}")
        given[key] = _value(value)
    try:
        return scheme(name, **given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except TypeError as error:  # Python's own, of a parameter that is missing or of a wrong type
        said = str(error).rpartition("() ")[2]
        raise typer.BadParameter(
            f"scheme {name!r}: {said}: give it as an option, or with --parameter NAME=VALUE"
        ) from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
