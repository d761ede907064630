"""The unit ball that privacy is proven for: who is moved into it, and what its scale gives away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from jopeq.portable import squares

if TYPE_CHECKING:
    from jopeq.schemes.base import Scheme

Array = NDArray[np.float64]


def into_unit_ball(samples: Array) -> tuple[Array, int]:
    """Samples moved radially into the unit ball, and how many had to be."""
    if samples.shape[1] == 1:
        clipped = np.clip(samples, -1.0, 1.0)
        return clipped, int(np.count_nonzero(clipped != samples))
    norms = np.sqrt(squares(samples))
    outside = norms > 1.0
    # one part in 10¹² short, so that rounding cannot leave the ball
    factors = np.where(outside, (1.0 - 1e-12) / np.where(outside, norms, 1.0), 1.0)
    return samples * factors[:, None], int(outside.sum())


def scaling_assumptions(scheme: Scheme) -> tuple[str, ...]:
    """What the scale gives away, and what a sample is when the update is rotated."""
    found = []
    if scheme.clip is None:
        whose = "every tensor's" if scheme.per == "tensor" else "the update's"
        norm = "norm travels in the clear and is not covered"
        both = "norm and mean travel in the clear and are not covered"
        found.append(f"{whose} {both if scheme.center else norm}")
    if scheme.rotate:
        found.append(
            "a sample is one of the rotated update: an entry of the update itself touches all "
            "samples of its block, up to 65,536, so read ε per update"
        )
    return tuple(found)
