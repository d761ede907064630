"""All schemes by name, for specifications, configuration files and the command line."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterable
from dataclasses import MISSING, fields, replace
from typing import Any, Literal, TypeVar, cast, overload

from jopeq.entries.additive import LaplaceNoise, MakeLaw, StudentNoise, Uncompressed, name_law
from jopeq.entries.channelled import MinimumVarianceUnbiased, Response
from jopeq.entries.layer_clips import START
from jopeq.entries.quantized import (
    JoPEQ,
    LaplaceThenDither,
    NonSubtractiveDither,
    StudentThenDither,
    SubtractiveDither,
)
from jopeq.entries.spread import best_spread
from jopeq.lattice.lattices import Lattice, name_lattice
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import ClientSum, RecordSum

SCHEMES: dict[str, type[Scheme]] = {
    kind.name: kind
    for kind in (
        Uncompressed,
        SubtractiveDither,
        NonSubtractiveDither,
        LaplaceNoise,
        StudentNoise,
        LaplaceThenDither,
        StudentThenDither,
        JoPEQ,
        MinimumVarianceUnbiased,
        Response,
    )
}
"""The class of every scheme, by the name that ``scheme`` takes.

``scheme`` also makes a ``Sphere`` ("sphere"), a ``ClientSum`` ("clients") and a ``RecordSum``
("records"), which are no ``Scheme``: one report or share decodes to nothing.
"""
_OTHERS: dict[str, type[Sphere] | type[ClientSum] | type[RecordSum]] = {
    kind.name: kind for kind in (Sphere, ClientSum, RecordSum)
}

Thing = TypeVar("Thing", bound=type[Scheme] | Lattice | MakeLaw)


def register(thing: Thing, name: str | None = None) -> Thing:
    """Make a scheme, a lattice or a noise law of yours known by its name in this process.

    Specifications, payloads, ledgers and messages hold names alone, and no code is ever imported
    because of one: every process that reads them registers the same thing first, under the same
    name. A class of schemes has its ``name`` itself, and ``register`` may stand above it as a
    decorator. A lattice and a law are given one; a law is a function of ε and of the entries of a
    sample that returns a ``jopeq.noise.Law``, for ``law=`` of ``JoPEQ``.
    """
    if isinstance(thing, type) and issubclass(thing, Scheme):
        own = vars(thing)
        if name is not None or "name" not in own or inspect.isabstract(thing):
            raise ValueError(f"{thing.__name__} must define all of a Scheme and its own name")
        if "__dataclass_params__" not in own or not own["__dataclass_params__"].frozen:
            raise ValueError(f"{thing.__name__} must be a @dataclass(frozen=True, kw_only=True)")
        if _check_name(thing.name) in (*SCHEMES, *_OTHERS):
            raise ValueError(f"scheme {thing.name!r} is known already: choose another name")
        SCHEMES[thing.name] = thing
    elif isinstance(thing, Lattice):
        name_lattice(_check_name(name), thing)
    elif callable(thing) and not isinstance(thing, type):
        name_law(_check_name(name), cast(MakeLaw, thing))
    else:
        raise ValueError(
            "register takes a class of Scheme, a Lattice, or a function that makes a Law, got "
            f"{thing!r:.100}"
        )
    return thing


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9+._-]{0,39}", name):
        raise ValueError(
            f"name must be up to 40 small letters, digits or any of + . _ -, got {name!r:.60}"
        )
    return name


def parameters_of(name: str) -> tuple[str, ...]:
    """The names of the parameters that ``scheme(name, …)`` takes, in alphabetical order.

    >>> parameters_of("laplace")
    ('center', 'clip', 'epsilon', 'per', 'spread')
    """
    kind = _class_of(name)
    if kind is Uncompressed:
        return ()
    return tuple(sorted(field.name for field in fields(kind) if field.init))


@overload
def scheme(name: Literal["sphere"], **parameters: Any) -> Sphere: ...


@overload
def scheme(name: Literal["clients"], **parameters: Any) -> ClientSum: ...


@overload
def scheme(name: Literal["records"], **parameters: Any) -> RecordSum: ...


@overload
def scheme(name: str, **parameters: Any) -> Scheme: ...


def scheme(name: str, **parameters: Any) -> Scheme | Sphere | ClientSum | RecordSum:
    """The scheme of that name. Its class, ``SCHEMES[name]``, explains each parameter.

    ``spread="auto"`` with ``clients=K`` takes the spread of least error for the mean of K clients
    (see ``jopeq.entries.spread``). ``clip="layers"`` gives every tensor a public clip of its own
    (see ``jopeq.entries.LayerClips``).

    >>> scheme("sdq", rate=2.0, lattice="A2").dimension
    2
    """
    kind, known = _class_of(name), parameters_of(name)
    if name not in _OTHERS:
        if parameters.get("clip") == "layers":
            parameters = {**parameters, "clip": START, "per": "layers"}
        elif isinstance(clip := parameters.get("clip"), str):
            raise ValueError(f"clip must be a number or 'layers', got {clip!r}")
        if parameters.get("spread") == "auto" or "clients" in parameters:
            return _with_best_spread(name, **parameters)
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"scheme {name!r} has no parameter {parameter!r}{_did_you_mean(parameter, known)} "
                f"It takes {', '.join(known) or 'none'}"
            )
    required = (field.name for field in fields(kind) if field.default is MISSING)
    missing = [each for each in required if parameters.get(each) is None]
    if missing:
        raise ValueError(f"{missing[0]} must be given: scheme {name!r} needs {', '.join(missing)}")
    return kind(**parameters)


def _class_of(name: str) -> type[Scheme] | type[Sphere] | type[ClientSum] | type[RecordSum]:
    known = {**SCHEMES, **_OTHERS}
    if not isinstance(name, str) or name not in known:
        hint = _did_you_mean(str(name), known)
        raise ValueError(f"scheme must be one of {', '.join(known)}, got {name!r}{hint}")
    return known[name]


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f", did you mean {close[0]!r}?" if close else "."


def _with_best_spread(
    name: str, spread: object = None, clients: Any = None, **others: Any
) -> Scheme:
    if spread != "auto" or clients is None:
        raise ValueError("spread='auto' and clients=K go together: give both or neither")
    if others.get("clip") is not None:
        raise ValueError("spread belongs to norm scaling and clip replaces it: drop one of them")
    built = scheme(name, **others)
    return replace(built, spread=best_spread(built, clients))


def scheme_from_spec(spec: str) -> Scheme:
    """The scheme that a configuration names (see ``Scheme.spec``).

    Build it from a source you trust, never from a payload: a specification may name a channel that
    takes a minute to design, or a codebook of a million points.

    >>> scheme_from_spec('["jopeq",{"epsilon":4.0,"rate":1.0}]').guarantee.nominal
    4.0
    """
    try:
        match json.loads(spec):
            case [str(name), dict(parameters)] if "name" not in parameters:
                has_channel = name in ("response", "mvu")
                fingerprint = parameters.pop("fingerprint", None) if has_channel else None
                built: Scheme = scheme(name, **parameters)
            case _:
                raise TypeError("a specification is a name and an object of parameters")
    except (TypeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"not a scheme specification: {spec!r:.200}") from error
    found = getattr(built, "fingerprint", None)
    if fingerprint not in (None, found):
        raise ValueError(
            f"the channel of {spec!r:.200} is {found} here: use the same jopeq and SciPy versions "
            "on both ends, or scheme='response', whose channel needs no solver"
        )
    return built
