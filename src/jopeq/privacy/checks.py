"""Checks and rounding that all of the accounting shares."""

from __future__ import annotations

import operator
from collections.abc import Callable
from numbers import Real
from typing import SupportsIndex


def check_delta(delta: float) -> None:
    """Raise unless 0 ≤ δ < 1."""
    if not (isinstance(delta, Real) and 0.0 <= float(delta) < 1.0):
        raise ValueError(f"delta must be from 0 to below 1, got {delta!r}")


def check_count(name: str, value: SupportsIndex) -> int:
    """``value`` as an int that is not negative."""
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if count < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return count


def check_number(name: str, value: float) -> None:
    """Raise unless value ≥ 0; NaN is refused, inf is not."""
    if not (isinstance(value, Real) and float(value) >= 0.0):
        raise ValueError(f"{name} must be a number not below 0, got {value!r}")


def private_side(value: float, limit: float, holds: Callable[[float], bool]) -> float:
    """``value``, raised by as little as makes ``holds`` true, never above ``limit``."""
    step = max(value, 1e-3) * 1e-15
    while value < limit and not holds(value):
        value += step
        step *= 2.0
    return min(value, limit)
