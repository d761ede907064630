"""Normalised error against the spread, for several numbers of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jopeq.drawing import new_panels
from jopeq.schemes import scheme
from jopeq.spread import best_spread, normalised_error

EPSILON, RATE = 4.0, 2.0
CLIENTS = (1, 10, 100, 1000)
SPREADS = tuple(np.round(np.linspace(0.75, 4.5, 26), 2).tolist())


@dataclass(frozen=True)
class SpreadCurve:
    """E‖mean − h‖²/‖h‖² of Gaussian updates over the spread, and where it is least."""

    clients: int
    spreads: tuple[float, ...]
    errors: tuple[float, ...]
    best: float
    least: float


def spread_curves(
    clients: Sequence[int] = CLIENTS, spreads: Sequence[float] = SPREADS
) -> list[SpreadCurve]:
    """One curve a number of clients, all of ``response`` at ε = 4, R = 2."""
    subject = scheme("response", epsilon=EPSILON, rate=RATE)
    curves = []
    for count in clients:
        best = best_spread(subject, count)
        curves.append(
            SpreadCurve(
                clients=count,
                spreads=tuple(spreads),
                errors=tuple(normalised_error(subject, spread, count) for spread in spreads),
                best=best,
                least=normalised_error(subject, best, count),
            )
        )
    return curves


def save_spread_curves(path: Path, curves: Sequence[SpreadCurve] | None = None) -> None:
    """Draw the curves, with a dot at each minimum and the paper's 3 as a line."""
    figure, (panel,) = new_panels(1, (6.4, 4.2))
    for index, curve in enumerate(spread_curves() if curves is None else curves):
        colour = f"C{index}"
        label = f"{curve.clients:,} client{'s' if curve.clients > 1 else ''}"
        panel.plot(curve.spreads, curve.errors, color=colour, label=label)
        panel.plot([curve.best], [curve.least], "o", color=colour)
    panel.axvline(3.0, color="grey", linewidth=1, linestyle=":")
    panel.annotate("the paper's 3", (3.0, 0.98), xycoords=("data", "axes fraction"), va="top")
    panel.set_yscale("log")
    panel.set_xlabel("spread")
    panel.set_ylabel("E‖mean − h‖² / ‖h‖²")
    panel.set_title(f"response, ε = {EPSILON:g}, R = {RATE:g}, Gaussian updates")
    panel.grid(alpha=0.3, which="both")
    panel.legend()
    figure.savefig(path, dpi=150)
