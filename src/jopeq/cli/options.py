"""The options that describe a scheme, shared by the commands that take one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Annotated, Any, TypeVar

import typer

from jopeq.cli.output import with_flags
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.sums.secure_sum import SecureSum

Made = TypeVar("Made")
Command = TypeVar("Command", bound=Callable[..., None])

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead")]
SMALL_MODELS = ("linear", "mlp", "lenet")  # whose threads would wait for one another
SCHEME_OPTIONS: dict[str, Any] = {
    "epsilon": Annotated[
        float | None,
        typer.Option(
            help="privacy asked for: per sample; sphere: per update; sum: per client, all rounds"
        ),
    ],
    "rate": Annotated[float | None, typer.Option(help="bits per entry")],
    "lattice": Annotated[str | None, typer.Option(help="Z, A2, D4 or E8")],
    "gamma": Annotated[float | None, typer.Option(help="radius of the codebook's support")],
    "law": Annotated[str | None, typer.Option(help="laplace or t")],
    "parameter": Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            help="any other parameter of the scheme, NAME=VALUE; may be repeated",
        ),
    ],
}


def takes_scheme(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options ``SCHEME_OPTIONS``, behind its own ``--scheme``.

    The command finds their values in its context: ``given_options`` reads them there.
    """

    @wraps(command)
    def without(**values: Any) -> None:
        command(**{name: v for name, v in values.items() if name not in SCHEME_OPTIONS})

    signature = inspect.signature(command, eval_str=True)
    found = list(signature.parameters.values())
    place = 1 + list(signature.parameters).index("scheme")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found[place:place] = [
        inspect.Parameter(name, kind, default=None, annotation=option)
        for name, option in SCHEME_OPTIONS.items()
    ]
    without.__signature__ = signature.replace(parameters=found)  # type: ignore[attr-defined]
    without.__annotations__ = {one.name: one.annotation for one in found}
    return without


def in_groups(groups: Mapping[str, Sequence[str]]) -> Callable[[Command], Command]:
    """Show the options of a command's help under these headings."""

    def group(command: Command) -> Command:
        options = inspect.signature(command, eval_str=True).parameters
        for heading, names in groups.items():
            for name in names:
                options[name].annotation.__metadata__[0].rich_help_panel = heading
        return command

    return group


def was_given(context: typer.Context, name: str) -> bool:
    """Whether the user wrote this option, or its key in a file of options."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")


def given_options(context: typer.Context) -> dict[str, Any]:
    """Those of ``SCHEME_OPTIONS`` that the user gave."""
    values = {name: context.params[name] for name in SCHEME_OPTIONS}
    return {name: value for name, value in values.items() if value not in (None, [], ())}


def with_usual(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, and usual values of the parameters that the user did not give."""
    asked = {text.partition("=")[0] for text in given.get("parameter", ())}
    return {**{key: value for key, value in usual.items() if key not in asked}, **given}


def build_scheme(name: str, parameter: list[str] | None = None, **parameters: Any) -> Scheme:
    """As ``build_any``, for commands that code payloads."""
    if name == SecureSum.name:
        raise typer.BadParameter(
            "scheme 'sum' makes shares, not payloads: see jopeq train --people, jopeq audit, and "
            "jopeq plan"
        )
    built: Scheme = build_any(name, parameter, **parameters)
    return built


def build_any(name: str, parameter: list[str] | None = None, **parameters: Any) -> Any:
    """The scheme of these options; wrong ones end the command with an error for the user."""
    return build(partial(scheme, name), name, parameter, **parameters)


def build(
    make: Callable[..., Made], name: str, parameter: list[str] | None = None, **parameters: Any
) -> Made:
    """What ``make`` makes of the options for ``name``, as ``build_any`` does.

    ``parameter`` has NAME=VALUE texts. A value is read as JSON, or as text where it is not JSON.
    """
    given = {key: value for key, value in parameters.items() if value is not None}
    for text in parameter or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--parameter takes NAME=VALUE, got {text!r}")
        if key in given:
            raise typer.BadParameter(f"{key} is given twice: {given[key]!r} and {value!r}")
        try:
            given[key] = json.loads(value)
        except ValueError:
            given[key] = value
    try:
        return make(**given)
    except ValueError as error:
        raise typer.BadParameter(with_flags(str(error))) from error
    except TypeError as error:  # Python's own, of a parameter that is missing or of a wrong type
        raise typer.BadParameter(
            f"scheme {name!r}: {error}: give it as an option, or with --parameter NAME=VALUE"
        ) from error
