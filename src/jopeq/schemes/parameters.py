"""A scheme's parameters in the one form its specification has, whatever type they came as."""

from __future__ import annotations

import numbers
import operator
from typing import Any

import numpy as np

from jopeq.lattice import Lattice


def normal(name: str, kind: str, value: Any) -> Any:
    """``value`` as the plain bool, int or float that its annotation ``kind`` asks for."""
    if value is None and "None" in kind:
        return None
    if kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, got {value!r}")
        return bool(value)
    if "int" in kind:
        return _whole(name, value)
    return _real(name, value) if "float" in kind else value


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None


def _real(name: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large, got {value!r:.20}…") from None


def plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Lattice):
        return value.name if value.generator is None else value.generator
    return value
