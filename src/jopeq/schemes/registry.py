"""All schemes, by name."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from typing import Any

from jopeq.schemes.additive import GaussianScheme, LaplaceScheme, RadialScheme, StudentScheme
from jopeq.schemes.base import Opened, Scheme, Statistics
from jopeq.schemes.channelled import MinimumVarianceUnbiased, Response
from jopeq.schemes.none import NoScheme
from jopeq.schemes.quantized import (
    GaussianThenDither,
    JoPEQ,
    LaplaceThenDither,
    NonSubtractiveDither,
    RadialThenDither,
    StudentThenDither,
    SubtractiveDither,
)
from jopeq.schemes.staircase import Staircase
from jopeq.schemes.whole_update import UpdateResponse

__all__ = ["SCHEMES", "Opened", "Scheme", "Statistics", "scheme", "scheme_from_spec"]

SCHEMES: dict[str, type[Scheme]] = {
    kind.name: kind
    for kind in (
        NoScheme,
        SubtractiveDither,
        NonSubtractiveDither,
        LaplaceScheme,
        StudentScheme,
        RadialScheme,
        GaussianScheme,
        LaplaceThenDither,
        StudentThenDither,
        RadialThenDither,
        GaussianThenDither,
        JoPEQ,
        MinimumVarianceUnbiased,
        Staircase,
        Response,
    )
}
"""The class of every scheme, by the name that ``scheme`` takes."""


def scheme(name: str, **parameters: Any) -> Scheme:
    """The scheme of that name.

    ``spread="auto"`` with ``clients=K`` takes the spread of least error for the mean of K clients
    (see ``jopeq.schemes.spread``).

    >>> scheme("sdq", rate=2.0, lattice="A2").dimension
    2
    >>> scheme("jopeq", epsilon=4.0, rate=1.0, epsilom=3)
    Traceback (most recent call last):
    ...
    ValueError: scheme 'jopeq' has no parameter 'epsilom': it takes center, clip, coding, delta, \
epsilon, gamma, lattice, law, nu, paper_sensitivity, per, rate, rotate, spread, squared_scale, step
    """
    if parameters.get("spread") == "auto" or "clients" in parameters:
        return _with_best_spread(name, parameters)
    if not isinstance(name, str) or name not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {name!r}")
    kind = SCHEMES[name]
    if kind is Response and "unit" in parameters:
        kind, parameters = _of_unit(**parameters)
    known = {field.name: field for field in fields(kind)}
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"scheme {name!r} has no parameter {parameter!r}: it takes "
                f"{', '.join(sorted(known))}"
            )
    unit = "update" if kind is UpdateResponse else "sample"
    needed = {"epsilon": f", the privacy asked for per {unit}", "rate": " (bits per entry)"}
    for parameter, meaning in needed.items():
        is_needed = parameter in known and known[parameter].default is MISSING
        if is_needed and parameters.get(parameter) is None:
            raise ValueError(f"scheme {name!r} needs {parameter}{meaning}")
    return kind(**parameters)


def _with_best_spread(name: str, parameters: dict[str, Any]) -> Scheme:
    from jopeq.schemes.spread import best_spread

    others = {key: value for key, value in parameters.items() if key not in ("spread", "clients")}
    if parameters.get("spread") != "auto" or "clients" not in parameters:
        raise ValueError("spread='auto' and clients=K go together: give both or neither")
    if others.get("clip") is not None:
        raise ValueError("spread belongs to norm scaling and clip replaces it: drop one of them")
    built = scheme(name, **others)
    return replace(built, spread=best_spread(built, parameters["clients"]))


def _of_unit(*, unit: Any, **parameters: Any) -> tuple[type[Scheme], dict[str, Any]]:
    """``response`` protects each sample, the default, or the update as a whole."""
    if unit == "update":
        return UpdateResponse, parameters
    if unit != "sample":
        raise ValueError(f"unit must be 'sample' or 'update', got {unit!r}")
    return Response, parameters


def scheme_from_spec(spec: str) -> Scheme:
    """The scheme that a configuration names (see ``Scheme.spec``).

    Build it from a source you trust, never from a payload: a specification may name a channel that
    takes a minute to design, or a codebook of a million points.

    >>> scheme_from_spec('["jopeq",{"epsilon":4.0,"rate":1.0}]').guarantee.nominal
    4.0
    """
    try:
        name, parameters = json.loads(spec)
        if not isinstance(parameters, dict) or "name" in parameters:
            raise TypeError("its second part is not an object of parameters")
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a scheme specification: {spec!r:.200}") from error
    return scheme(name, **parameters)
