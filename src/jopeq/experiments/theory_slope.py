"""How fast a measured curve falls, as the exponent of a power law."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the straight line through the points in double logarithmic scale, by least squares.

    >>> round(slope([1, 10, 100], [8.0, 0.8, 0.08]), 12)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
