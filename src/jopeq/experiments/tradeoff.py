"""Distortion against rate for several ε: which scheme to choose, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jopeq.experiments.drawing import new_panels
from jopeq.plan import edge_bias
from jopeq.schemes import scheme

EPSILONS = (1.0, 2.0, 4.0)
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
SCHEMES = ("laplace", "laplace+sdq", "jopeq", "mvu", "staircase", "response")


@dataclass(frozen=True)
class TradeoffPoint:
    """Distortion at the centre of one scalar scheme."""

    name: str
    epsilon: float
    rate: float
    distortion: float
    proven: float
    bias: float  # at the end of [−1, 1]


def tradeoff(
    epsilons: Sequence[float] = EPSILONS, rates: Sequence[float] = RATES
) -> list[TradeoffPoint]:
    """The points of the figure, for the scalar schemes that promise privacy."""
    points = []
    for epsilon in epsilons:
        for rate in rates:
            for name in SCHEMES:
                if name == "mvu" and rate > 4:
                    continue
                parameters: dict[str, Any] = {} if name == "laplace" else {"rate": rate}
                if name == "staircase":
                    parameters = {"rate": rate, "coding": "entropy"}
                try:
                    built = scheme(name, epsilon=epsilon, **parameters)
                except ValueError:  # what the entropy coder needs is more than the rate
                    if name != "staircase":
                        raise
                    continue
                points.append(
                    TradeoffPoint(
                        name,
                        epsilon,
                        rate,
                        built.distortion,
                        built.guarantee.epsilon,
                        edge_bias(built),
                    )
                )
    return points


def save_tradeoff(path: Path, points: Sequence[TradeoffPoint] | None = None) -> None:
    """Draw the points, one panel an ε.

    Schemes that spend more than asked for are dashed; hollow points are biased by more than 0.05
    at the ends: clamping makes their error look small, but no number of clients averages it out.
    """
    drawn = tradeoff() if points is None else points
    epsilons = sorted({point.epsilon for point in drawn})
    figure, panels = new_panels(len(epsilons), (4.0 * len(epsilons), 4.2))
    for panel, epsilon in zip(panels, epsilons, strict=True):
        for index, name in enumerate(SCHEMES):
            line = [p for p in drawn if p.name == name and p.epsilon == epsilon]
            if not line:
                continue
            holds = all(p.proven <= epsilon * (1 + 1e-6) for p in line)
            colour = f"C{index}"
            rates, errors = [p.rate for p in line], [p.distortion for p in line]
            label = name if holds else f"{name} (spends more than ε)"
            panel.plot(rates, errors, "-" if holds else "--", color=colour, label=label)
            fills = ["white" if abs(p.bias) > 0.05 else colour for p in line]
            panel.scatter(rates, errors, s=22, c=fills, edgecolors=colour, zorder=3)
        panel.set_title(f"ε = {epsilon:g} per entry")
        panel.set_yscale("log")
        panel.set_xlabel("rate R, bits per entry")
        panel.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("mean squared error at the centre of [−1, 1]")
    panels[-1].legend(fontsize=8)
    figure.supxlabel("hollow points: biased at the ends of the interval", fontsize=8)
    figure.savefig(path, dpi=150)
