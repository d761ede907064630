"""Schemes of every kind, and what makes their payloads repeat."""

from __future__ import annotations

from typing import Any

import jopeq
from jopeq.random.streams import PrivateStream

SEED, NOISE = bytes(range(32)), bytes(range(100, 132))
RATED = {"epsilon": 4.0, "rate": 2.0}
GENERATOR = ((1.0, 0.3), (0.0, 1.2))
SCHEMES = [
    jopeq.scheme("none"),
    jopeq.scheme("sdq", rate=2.0),
    jopeq.scheme("sdq", rate=1.6, center=True),
    jopeq.scheme("sdq", rate=3.0, clip=0.5),
    jopeq.scheme("sdq", rate=2.0, lattice="A2", per="tensor"),
    *(jopeq.scheme("sdq", rate=1.0, lattice=lattice) for lattice in ("D4", "E8")),
    jopeq.scheme("sdq", rate=2.0, lattice=GENERATOR),
    jopeq.scheme("dq", rate=2.0),
    jopeq.scheme("laplace", epsilon=2.0),
    jopeq.scheme("t", epsilon=2.0, size=3),
    jopeq.scheme("laplace+sdq", epsilon=2.0, rate=2.0),
    jopeq.scheme("t+sdq", epsilon=2.0, rate=2.0, lattice="A2"),
    jopeq.scheme("jopeq", epsilon=4.0, rate=1.0),
    jopeq.scheme("jopeq", epsilon=3.0, rate=2.0, lattice="A2"),
    jopeq.scheme("jopeq", epsilon=2.0, rate=2.0, clip=1.0),
    jopeq.scheme("response", **RATED),
    jopeq.scheme("mvu", **RATED),
]


def fixed(scheme: jopeq.Scheme) -> dict[str, Any]:
    """Arguments that make a payload repeat."""
    noise = PrivateStream.reproducible(NOISE)
    return {"noise": noise, "seed": SEED if scheme.codec.has_dither else None}
