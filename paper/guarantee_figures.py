"""The pictures of docs/guarantees.md: the errors of ``response``: ``make figures``.

``spread.png`` shows the normalised error against the spread for several numbers of clients.
``whole_update.png`` shows what ε for the *whole* update costs. All clients hold the same update h,
so that only coding is measured: E‖mean of K decoded updates − h‖²/‖h‖². No ε-LDP mechanism does
better than the order of d/(K·min(ε, ε²)) in the worst case (Duchi, Rogers 2019). Where the error
exceeds 1, sending nothing, and taking the update for zero, would have been closer.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq import scheme
from jopeq.analysis.drawing import new_panels
from jopeq.random import samplers
from jopeq.random.streams import PrivateStream
from jopeq.schemes.sphere import Sphere
from jopeq.schemes.spread import best_spread, normalised_error

SPREADS = np.round(np.linspace(0.75, 4.5, 26), 2).tolist()


def save_spread(path: Path, clients: Sequence[int] = (1, 10, 100, 1000)) -> None:
    """A curve for each number of clients, with a dot at its minimum and the paper's 3 as a line."""
    subject = scheme("response", epsilon=4.0, rate=2.0)
    figure, (panel,) = new_panels(1, (6.4, 4.2))
    for index, count in enumerate(clients):
        errors = [normalised_error(subject, spread, count) for spread in SPREADS]
        best = best_spread(subject, count)
        label = f"{count:,} client{'s' if count > 1 else ''}"
        panel.plot(SPREADS, errors, color=f"C{index}", label=label)
        panel.plot([best], [normalised_error(subject, best, count)], "o", color=f"C{index}")
    panel.axvline(3.0, color="grey", linewidth=1, linestyle=":")
    panel.annotate("the paper's 3", (3.0, 0.98), xycoords=("data", "axes fraction"), va="top")
    panel.set(yscale="log", xlabel="spread", ylabel="E‖mean − h‖² / ‖h‖²")
    panel.set_title("response, ε = 4, R = 2, Gaussian updates")
    panel.grid(alpha=0.3, which="both")
    panel.legend()
    figure.savefig(path, dpi=150)


class WholeUpdate(NamedTuple):
    """The mean over ``clients`` of one update of ``dimension`` entries, ε-LDP as a whole."""

    dimension: int
    epsilon: float
    clients: int
    measured: float  # normalised error
    predicted: float
    order: float  # d/(K·min(ε, ε²)): what theory allows, up to a constant


def whole_updates(
    dimensions: Sequence[int] = (100, 10_000),
    epsilons: Sequence[float] = (1.0, 4.0, 16.0),
    clients: Sequence[int] = (10, 1000),
) -> list[WholeUpdate]:
    """One row for each dimension, ε and number of clients, from fixed seeds."""
    rows = []
    for dimension in dimensions:
        stream = PrivateStream.reproducible(hashlib.sha256(b"jopeq whole update").digest())
        update = samplers.normal(stream, 0, dimension)
        update /= np.linalg.norm(update)
        for epsilon in epsilons:
            coder = Sphere(epsilon=epsilon, clip=1.0)
            errors = _mean_errors(coder, update, clients)
            for count, measured in zip(clients, errors, strict=True):
                predicted = coder.expected_error(dimension) / count
                order = dimension / (count * min(epsilon, epsilon**2))
                rows.append(WholeUpdate(dimension, epsilon, count, measured, predicted, order))
    return rows


def _mean_errors(coder: Sphere, update: NDArray[np.float64], clients: Sequence[int]) -> list[float]:
    """‖mean of K decoded updates − h‖²/‖h‖² for each K, averaged over disjoint groups of K."""
    sums = [np.zeros_like(update) for _ in clients]
    errors: list[list[float]] = [[] for _ in clients]
    energy = float(update @ update)
    for client in range(1, max(clients) + 1):
        seed = hashlib.sha256(b"jopeq whole update %d" % client).digest()
        noise = PrivateStream.reproducible(hashlib.sha256(seed).digest())
        decoded = coder.decode(coder.encode(update, seed=seed, noise=noise))
        for total, count, found in zip(sums, clients, errors, strict=True):
            total += decoded
            if client % count == 0:
                found.append(float(np.square(total / count - update).sum()) / energy)
                total[:] = 0.0
    return [math.fsum(found) / len(found) for found in errors]


def save_whole_update(path: Path, rows: Sequence[WholeUpdate]) -> None:
    """Error against clients, a panel a dimension: dots measured, lines computed."""
    dimensions, epsilons = sorted({r.dimension for r in rows}), sorted({r.epsilon for r in rows})
    drawn = [value for row in rows for value in (row.measured, row.predicted, row.order)]
    low, high = 0.3 * min(0.3, *drawn), 5.0 * max(2.0, *drawn)
    size = (max(4.2 * len(dimensions), 5.5), 4.0)
    figure, panels = new_panels(len(dimensions), size, sharey=True)
    for panel, dimension in zip(panels, dimensions, strict=True):
        for number, epsilon in enumerate(epsilons):
            here = [row for row in rows if (row.dimension, row.epsilon) == (dimension, epsilon)]
            counts, style = [row.clients for row in here], {"color": f"C{number}"}
            panel.loglog(counts, [row.predicted for row in here], **style)
            panel.loglog(counts, [row.order for row in here], ls=":", lw=0.9, **style)
            dots: Any = {"label": f"ε = {epsilon:g}", **style}
            panel.loglog(counts, [row.measured for row in here], "o", **dots)
        panel.axhline(1.0, color="black", lw=0.8)
        panel.axhspan(1.0, high, color="0.93", zorder=0)
        panel.text(0.98, 0.97, "hopeless", transform=panel.transAxes, ha="right", va="top")
        panel.set(title=f"d = {dimension}", xlabel="clients K", ylim=(low, high))
    panels[0].set_ylabel("E‖mean − h‖² / ‖h‖²")
    title = "dots: measured, lines: computed, dotted: d/(K·min(ε, ε²))"
    place: Any = {"loc": "outside lower center", "ncols": len(epsilons)}
    figure.legend(*panels[0].get_legend_handles_labels(), title=title, **place)
    figure.savefig(path)


if __name__ == "__main__":
    save_spread(Path(sys.argv[1], "spread.png"))
    save_whole_update(Path(sys.argv[1], "whole_update.png"), whole_updates())
