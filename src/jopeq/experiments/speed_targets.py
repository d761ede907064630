"""What the codecs were meant to reach on two cores, against what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Any]

SCALAR_FIXED_RATE = ("sdq", "laplace+sdq", "t+sdq", "jopeq", "staircase", "response")


@dataclass(frozen=True)
class Target:
    """``scheme`` is to do ``way`` at ``least`` times the speed of ``rival``."""

    scheme: str
    way: str  # "encode" or "decode"
    rival: str  # "copy" or "eager"
    least: float


TARGETS = (
    Target("sdq", "encode", "copy", 0.25),
    Target("response", "encode", "copy", 0.20),
    Target("sdq", "encode", "eager", 4.0),
    Target("jopeq", "encode", "eager", 12.0),
    Target("laplace+sdq", "encode", "eager", 12.0),
    Target("jopeq A2", "encode", "eager", 10.0),
    Target("sdq E8", "encode", "eager", 5.0),
    *(Target(name, "decode", "copy", 0.30) for name in SCALAR_FIXED_RATE),
)


# what is meant, how its rows begin, way, entries a second: on an H200, for each of these rows
GPU_TARGETS = (
    ("sdq on Z", "sdq R", "encode", 250e9),
    ("response", "response", "encode", 120e9),
    ("jopeq on Z", "jopeq ε=4 R", "encode", 80e9),
    ("all schemes", "", "decode", 250e9),
)


@dataclass(frozen=True)
class Outcome:
    """A target, the ratio at the largest size that both sides did, and that size."""

    target: Target
    ratio: float
    of_new_copy: float | None  # the same against a copy into fresh memory
    entries: int

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.target.least


def outcomes(codecs: Results) -> Iterator[Outcome]:
    """All targets whose two sides were measured; copy is into an array that exists."""
    for target in TARGETS:
        row = codecs["schemes"][target.scheme]
        rivals = codecs["copy"]["into"] if target.rival == "copy" else row["eager"]
        pairs = list(zip(codecs["sizes"], row[target.way], rivals, strict=True))
        both = [(size, ours, theirs) for size, ours, theirs in pairs if ours and theirs]
        if not both:
            continue
        size, ours, theirs = both[-1]
        fresh = codecs["copy"]["new"][codecs["sizes"].index(size)]
        of_new_copy = ours / fresh if target.rival == "copy" else None
        yield Outcome(target, ours / theirs, of_new_copy, size)
