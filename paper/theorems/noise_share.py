"""Theorem III.3 as a map: the noise's share of the variance, and the ε that the server faces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jopeq.analysis.exact import exact_epsilon
from jopeq.entries.quantized import JoPEQ
from paper.theorems.setting import Effort

BOUNDARY = math.sqrt(24.0)  # of γε/2^R, from which on no noise is added
EXAMPLES = ((2.0, 2), (4.0, 2), (4.0, 4), (4.0, 16), (6.0, 2), (8.0, 2))  # ε and letters


def noise_share_part(effort: Effort) -> dict[str, Any]:
    """Share and exact ε (null: ∞) over ε and letters, for the paper's γ = 2R + 1/ε."""
    epsilons = np.round(np.geomspace(0.5, 8.0, effort.map_epsilons), 4).tolist()
    rows = [[_point(epsilon, letters) for epsilon in epsilons] for letters in effort.map_letters]
    maps = ("coarseness", "share", "exact")
    return {
        "epsilons": epsilons,
        "letters": list(effort.map_letters),
        **{name: [[point[name] for point in row] for row in rows] for name in maps},
        "boundary": BOUNDARY,
        "examples": [_point(epsilon, letters) for epsilon, letters in EXAMPLES],
    }


def _point(epsilon: float, letters: int) -> dict[str, Any]:
    coder = JoPEQ(epsilon=epsilon, rate=math.log2(letters))
    gamma = coder.target.gamma(math.log2(letters))
    coarse = gamma * epsilon / letters
    found = exact_epsilon(coder)
    if found is None:
        raise TypeError(f"a scalar scheme should have an exact ε, got {coder.spec}")
    return {
        "epsilon": epsilon,
        "letters": letters,
        "gamma": gamma,
        "coarseness": round(coarse, 6),
        "share": max(0.0, 1.0 - (coarse / BOUNDARY) ** 2),
        "exact": round(found.server, 6) if math.isfinite(found.server) else None,
    }
