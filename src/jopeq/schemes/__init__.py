"""All schemes, by name."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from jopeq.schemes.additive import LaplaceScheme, StudentScheme
from jopeq.schemes.base import Scheme, Statistics
from jopeq.schemes.jopeq import JoPEQ
from jopeq.schemes.none import NoScheme
from jopeq.schemes.sdq import NonSubtractiveDither, SubtractiveDither
from jopeq.schemes.separate import LaplaceThenDither, StudentThenDither

__all__ = ["SCHEMES", "Scheme", "Statistics", "scheme", "scheme_from_spec"]

SCHEMES: dict[str, type[Scheme]] = {
    kind.name: kind
    for kind in (
        NoScheme,
        SubtractiveDither,
        NonSubtractiveDither,
        LaplaceScheme,
        StudentScheme,
        LaplaceThenDither,
        StudentThenDither,
        JoPEQ,
    )
}


def scheme(name: str, **parameters: Any) -> Scheme:
    """The scheme of that name.

    >>> scheme("sdq", rate=2.0, lattice="A2").dimension
    2
    >>> scheme("jopeq", epsilon=4.0, rate=1.0, epsilom=3)
    Traceback (most recent call last):
    ...
    ValueError: scheme 'jopeq' has no parameter 'epsilom': it takes center, clip, coding, epsilon, \
gamma, lattice, law, nu, paper_sensitivity, per, rate, spread, squared_scale, step
    """
    if name not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {name!r}")
    kind = SCHEMES[name]
    known = {field.name: field for field in fields(kind)}
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"scheme {name!r} has no parameter {parameter!r}: it takes "
                f"{', '.join(sorted(known))}"
            )
    if "epsilon" in known and parameters.get("epsilon") is None:
        raise ValueError(f"scheme {name!r} needs epsilon, the privacy asked for per sample")
    return kind(**parameters)


def scheme_from_spec(spec: str) -> Scheme:
    """The scheme a payload or a configuration names (see ``Scheme.spec``).

    >>> scheme_from_spec('["jopeq",{"epsilon":4.0,"rate":1.0}]').guarantee.nominal
    4.0
    """
    try:
        name, parameters = json.loads(spec)
        parameters = dict(parameters)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a scheme specification: {spec!r}") from error
    return scheme(name, **parameters)
