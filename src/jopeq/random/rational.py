"""e^ε and ln in rational arithmetic, rounded to the private side."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

MAX_EPSILON = 64.0  # ratios of 64-bit counts end at ε = 64 ln 2 = 44.4; beyond is the same


def exp_floor(epsilon: float) -> Fraction:
    """A rational number just below e^ε, for exact comparisons on the private side.

    >>> float(exp_floor(1.0)), exp_floor(1.0) < Fraction(27182818284590452354, 10**19)
    (2.718281828459045, True)
    """
    with localcontext() as context:
        context.prec = 60
        return Fraction(Decimal(min(epsilon, MAX_EPSILON)).exp().next_minus())


def log_ceiling(ratio: Fraction) -> float:
    """The smallest float that is not below ln(ratio)."""
    if ratio == 1:
        return 0.0
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(ratio.numerator).ln() - Decimal(ratio.denominator).ln()
        nearest = float(exact)
        return nearest if Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)
