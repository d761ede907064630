"""Distortion against rate for several ε: which scheme to choose, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jopeq.errors import DesignError
from jopeq.registry import scheme
from jopeq_lab.pictures.colours import GREY, PAGE, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save

RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
SCHEMES = ("laplace", "laplace+sdq", "jopeq", "mvu", "response")
_TICKS = [unit * 10.0**power for power in range(-4, 4) for unit in (1, 2, 5)]
BIASED = 0.05  # at the end of [−1, 1]; a point with more is drawn hollow


@dataclass(frozen=True)
class TradeoffPoint:
    """Distortion at the centre of one scalar scheme."""

    name: str
    epsilon: float
    rate: float
    distortion: float
    proven: float
    bias: float  # at the end of [−1, 1]


def tradeoff(epsilons: Sequence[float], rates: Sequence[float] = RATES) -> list[TradeoffPoint]:
    """The points of the figure, for the scalar schemes that promise privacy.

    What a scheme refuses has no point: ``mvu`` beyond 5 bits or between whole ones.
    """
    found = (
        _point(name, epsilon, rate) for epsilon in epsilons for rate in rates for name in SCHEMES
    )
    return [point for point in found if point is not None]


def _point(name: str, epsilon: float, rate: float) -> TradeoffPoint | None:
    parameters: dict[str, Any] = {} if name == "laplace" else {"rate": rate}
    try:
        built = scheme(name, epsilon=epsilon, **parameters)
        distortion, proven = built.distortion, built.guarantee.epsilon
    except (ValueError, DesignError):
        if name != "mvu":
            raise
        return None
    return TradeoffPoint(name, epsilon, rate, distortion, proven, built.bias())


def tradeoff_around(epsilon: float, rate: float) -> list[TradeoffPoint]:
    """The points for an ε, half of it and double of it, at the usual rates and at this one."""
    return tradeoff((epsilon / 2, epsilon, 2 * epsilon), sorted({*RATES, rate}))


def save_tradeoff(
    path: Path, points: Sequence[TradeoffPoint], *, marked: float | None = None
) -> None:
    """Draw the points, one panel per ε, a line at the marked rate; again for phones.

    Schemes that spend more ε than requested are dashed; hollow points are biased by more than 0.05
    at the ends: clamping makes their error look small, but no number of clients averages it out.
    """
    epsilons = sorted({point.epsilon for point in points})
    all_errors = [point.distortion for point in points]
    limits = min(all_errors) / 1.3, max(all_errors) * 1.3
    figure, panels = new_panels(len(epsilons), 3.4, sharey=True)
    for panel, epsilon in zip(panels, epsilons, strict=True):
        names = []
        dress(panel, f"ε = {epsilon:g} per entry")
        plain_log(panel, "y", _TICKS)
        panel.set_ylim(limits)  # ticks widen it
        for name in SCHEMES:
            line = [p for p in points if p.name == name and p.epsilon == epsilon]
            if not line:
                continue
            holds = all(p.proven <= epsilon * (1 + 1e-6) for p in line)
            colour, _, marker = look_of(name)
            rates, errors = [p.rate for p in line], [p.distortion for p in line]
            dashes = "-" if holds else "--"
            panel.plot(rates, errors, dashes, color=colour, marker=marker, markersize=5)
            fills = [PAGE if abs(p.bias) > BIASED else colour for p in line]
            points_at = {"s": 22, "c": fills, "edgecolors": colour, "marker": marker, "zorder": 3}
            panel.scatter(rates, errors, **points_at)
            names.append((errors[-1], name, colour))
        if marked is not None:
            panel.axvline(marked, color=GREY, linewidth=0.9, linestyle=":", zorder=0)
        name_lines(panel, names)
    note = "rate R, bits per entry" + (f" (dotted: {marked:g})" if marked is not None else "")
    note += f"\ndashed: spends more than ε; hollow: biased by more than {BIASED:g} at ±1"
    figure.supxlabel(note, fontsize=10)
    figure.supylabel("mean squared error at 0", fontsize=10)
    save(figure, path, phone=True)
