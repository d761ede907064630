"""Theorem III.3 as a map: what is left for the noise, and what ε the server faces there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jopeq.experiments.theory_setting import Effort
from jopeq.privacy.exact import exact_epsilon
from jopeq.schemes.jopeq import JoPEQ
from jopeq.theory.noise_share import BOUNDARY, coarseness, noise_share

LOWEST, HIGHEST = 0.5, 8.0  # of ε
EXAMPLES = ((2.0, 2), (4.0, 2), (4.0, 4), (4.0, 16), (6.0, 2), (8.0, 2))  # ε and letters


def noise_share_part(effort: Effort) -> dict[str, Any]:
    """Share and exact ε over a grid of ε and letters, for the paper's γ = 2R + 1/ε.

    An ε of null stands for ∞.
    """
    epsilons = np.round(np.geomspace(LOWEST, HIGHEST, effort.map_epsilons), 4).tolist()
    rows = [[_point(epsilon, letters) for epsilon in epsilons] for letters in effort.map_letters]
    return {
        "epsilons": epsilons,
        "letters": list(effort.map_letters),
        "coarseness": [[point["coarseness"] for point in row] for row in rows],
        "share": [[point["share"] for point in row] for row in rows],
        "exact": [[point["exact"] for point in row] for row in rows],
        "boundary": BOUNDARY,
        "examples": [_point(epsilon, letters) for epsilon, letters in EXAMPLES],
    }


def _point(epsilon: float, letters: int) -> dict[str, Any]:
    coder = JoPEQ(epsilon=epsilon, rate=math.log2(letters))
    gamma = coder._target.gamma(math.log2(letters))
    found = exact_epsilon(coder)
    if found is None:
        raise TypeError(f"a scalar scheme should have an exact ε, got {coder.spec}")
    return {
        "epsilon": epsilon,
        "letters": letters,
        "gamma": gamma,
        "coarseness": round(float(coarseness(epsilon, letters, gamma)), 6),
        # not rounded: it may be as small as one likes, and is divided by
        "share": float(noise_share(epsilon, letters, gamma)),
        "exact": round(found.server, 6) if math.isfinite(found.server) else None,
    }
