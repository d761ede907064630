"""Checks of numbers that a caller gives: each returns the plain number or names what is wrong."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np


def check_count(name: str, value: Any, least: int | None = 0, most: int | None = None) -> int:
    """``value`` as an int from ``least`` to ``most``; None sets no bound.

    >>> check_count("clients", 1, least=2)
    Traceback (most recent call last):
    ...
    ValueError: clients must be a whole number of at least 2, got 1
    """
    try:
        count = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        count = None
    is_below = count is not None and least is not None and count < least
    if count is None or is_below or (most is not None and count > most):
        bounds = "" if least is None else f" of at least {least}"
        if most is not None:
            bounds = f" from {least} to {most}"
        raise ValueError(f"{name} must be a whole number{bounds}, got {value!r}")
    return count


def check_real(name: str, value: Any) -> float:
    """``value`` as a float; NaN and infinities pass."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large, got {value!r:.20}…") from None


def check_number(name: str, value: Any) -> None:
    """Raise unless value ≥ 0; NaN is refused, inf is not."""
    if not (isinstance(value, Real) and float(value) >= 0.0):
        raise ValueError(f"{name} must be a number not below 0, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Raise unless 0 < value < ∞."""
    if not (isinstance(value, Real) and 0.0 < float(value) < math.inf):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def check_delta(delta: float) -> None:
    """Raise unless 0 ≤ δ < 1."""
    if not (isinstance(delta, Real) and 0.0 <= float(delta) < 1.0):
        raise ValueError(f"delta must be from 0 to below 1, got {delta!r}")


def check_recovery(clients: int, threshold: int, colluding: int) -> None:
    """Raise unless the threshold lets a sum open without missing members, and only once."""
    if 2 * threshold <= clients + colluding:
        raise ValueError(
            f"threshold must be above (clients + colluding)/2 = {(clients + colluding) / 2:g} to "
            f"recover sums that lack clients, got {threshold}: with fewer, a server could open "
            "both secrets of a client; raise threshold"
        )


def set_fields(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
