"""The parameters of a scheme: one form for each value, the text of each class, JSON."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_count, check_real
from jopeq.lattice.lattices import Lattice

_SECTION = "Parameters\n----------\n"


def as_annotated(name: str, kind: str, value: Any) -> Any:
    """``value`` as the plain bool, int or float that its annotation ``kind`` names."""
    if value is None and "None" in kind:
        return None
    if kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, got {value!r}")
        return bool(value)
    if "int" in kind:
        return check_count(name, value, None)
    return check_real(name, value) if "float" in kind else value


def take_annotated(instance: Any) -> None:
    """Bring the fields of a frozen dataclass to their types: 4 and 4.0 make equal schemes."""
    for each in fields(instance):
        if each.init:
            value = as_annotated(each.name, str(each.type), getattr(instance, each.name))
            object.__setattr__(instance, each.name, value)


def as_array(name: str, value: Any) -> NDArray[np.float64]:
    """``value`` as floats, whatever its shape."""
    try:
        if isinstance(value, (bool, np.bool_, str)):
            raise TypeError
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be numbers, got {value!r:.100}") from None


def to_json(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Lattice):
        return value.name if value.generator is None else value.generator
    return value


def spec_of(scheme: Any) -> str:
    """Name and parameters that are not defaults, as JSON."""
    changed = {
        each.name: to_json(getattr(scheme, each.name))
        for each in fields(scheme)
        if each.name != "clips" and getattr(scheme, each.name) != each.default
    }
    return json.dumps([scheme.name, changed], separators=(",", ":"), sort_keys=True)


LatticeLike = Lattice | str | tuple[tuple[float, ...], ...]
"""A lattice, its name, or a generator matrix."""


class LatticeParameter:
    """A field that takes a ``LatticeLike`` and holds a ``Lattice`` of magnification 1."""

    def __get__(self, instance: Any, owner: Any = None) -> Lattice:
        return Lattice("Z") if instance is None else instance.__dict__["lattice"]

    def __set__(self, instance: Any, value: LatticeLike) -> None:
        instance.__dict__["lattice"] = _to_lattice(value)


LATTICE = LatticeParameter()


def _to_lattice(value: Any) -> Lattice:
    if isinstance(value, Lattice):
        return value.scale(1.0)
    if isinstance(value, str):
        return Lattice(value)
    generator = as_array("lattice", value)
    if generator.ndim != 2:
        raise ValueError(f"lattice must be a name or a generator matrix, got {value!r}")
    return Lattice(generator=tuple(map(tuple, generator.tolist())))


def inherit_parameter_docs(kind: type) -> None:
    """Append the parameters that the base class documents to the docstring of ``kind``."""
    if kind.__doc__ is None or kind.__base__ is None:
        return
    text, _, own = inspect.cleandoc(kind.__doc__).partition(_SECTION)
    inherited = inspect.cleandoc(kind.__base__.__doc__ or "").partition(_SECTION)[2]
    entries = re.split(r"^(?=\w+ : )", f"{own.rstrip()}\n{inherited}".lstrip(), flags=re.MULTILINE)
    named = {entry.split(" ", 1)[0]: entry.rstrip() for entry in reversed(entries) if entry}
    kind.__doc__ = f"{text.rstrip()}\n\n{_SECTION}" + "\n".join(reversed(named.values()))
