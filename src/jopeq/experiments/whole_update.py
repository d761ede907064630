"""What ε for the *whole* update costs: the error of a mean over clients, measured and computed.

All clients hold the same update h, so that nothing but coding is measured: the normalised error is
E‖mean of K decoded updates − h‖² / ‖h‖². No ε-LDP mechanism does better than the order of
d/(K·min(ε, ε²)) in the worst case (Duchi, Rogers 2019), so that many more entries than clients are
hopeless at a small ε: where the normalised error exceeds 1, sending nothing at all, and taking the
update for zero, would have been closer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jopeq import samplers
from jopeq.drawing import new_panels
from jopeq.randomness import PrivateStream
from jopeq.schemes.update_response import UpdateResponse

DIMENSIONS = (100, 10_000)
EPSILONS = (1.0, 8.0, 64.0)
CLIENTS = (10, 1000)
RATE = 4.0


@dataclass(frozen=True)
class WholeUpdateRow:
    """The mean over ``clients`` of one update of ``dimension`` entries, ε-LDP as a whole."""

    dimension: int
    epsilon: float
    clients: int
    measured: float  # normalised error
    predicted: float
    order: float  # d/(K·min(ε, ε²)): what theory allows, up to a constant


def whole_update_table(
    dimensions: Iterable[int] = DIMENSIONS,
    epsilons: Sequence[float] = EPSILONS,
    clients: Sequence[int] = CLIENTS,
) -> list[WholeUpdateRow]:
    """One row for each dimension, ε and number of clients. Seeds are fixed: always the same table.

    As many updates are coded as the largest number of clients; fewer clients are measured in
    groups of them.
    """
    rows = []
    for dimension in dimensions:
        update = _update(dimension)
        for epsilon in epsilons:
            coder = UpdateResponse(epsilon=epsilon, rate=RATE, clip=1.0)
            measured = mean_errors(coder, update, clients)
            rows += [
                WholeUpdateRow(
                    dimension=dimension,
                    epsilon=epsilon,
                    clients=count,
                    measured=error,
                    predicted=coder.expected_error(dimension) / count,
                    order=dimension / (count * min(epsilon, epsilon**2)),
                )
                for count, error in zip(clients, measured, strict=True)
            ]
    return rows


def mean_errors(
    coder: UpdateResponse, update: NDArray[np.float64], clients: Sequence[int]
) -> list[float]:
    """‖mean of K decoded updates − h‖²/‖h‖² for each K, averaged over disjoint groups."""
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


def draw_whole_update(rows: Sequence[WholeUpdateRow], path: str | Path) -> Path:
    """Error against clients, a panel a dimension, as PNG or SVG: dots measured, lines computed."""
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"path must end in .png or .svg, got {path.name!r}")
    if not rows:
        raise ValueError("rows are empty: make some with whole_update_table()")
    dimensions = sorted({row.dimension for row in rows})
    epsilons = sorted({row.epsilon for row in rows})
    drawn = [value for row in rows for value in (row.measured, row.predicted, row.order)]
    low, high = 0.3 * min(0.3, *drawn), 5.0 * max(2.0, *drawn)
    size = (max(4.2 * len(dimensions), 5.5), 4.0)
    figure, panels = new_panels(len(dimensions), size, sharey=True)
    for panel, dimension in zip(panels, dimensions, strict=True):
        for number, epsilon in enumerate(epsilons):
            here = [row for row in rows if (row.dimension, row.epsilon) == (dimension, epsilon)]
            here.sort(key=lambda row: row.clients)
            counts = [row.clients for row in here]
            colour = f"C{number}"
            panel.loglog(counts, [row.predicted for row in here], color=colour)
            panel.loglog(counts, [row.order for row in here], color=colour, ls=":", lw=0.9)
            measured = [row.measured for row in here]
            panel.loglog(counts, measured, "o", color=colour, label=f"ε = {epsilon:g}")
        panel.axhline(1.0, color="black", lw=0.8)
        panel.axhspan(1.0, high, color="0.93", zorder=0)
        panel.text(0.98, 0.97, "hopeless", transform=panel.transAxes, ha="right", va="top")
        panel.set(title=f"d = {dimension}", xlabel="clients K", ylim=(low, high))
    panels[0].set_ylabel("E‖mean − h‖² / ‖h‖²")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        title="dots: measured, lines: computed, dotted: d/(K·min(ε, ε²))",
        loc="outside lower center",
        ncols=len(epsilons),
    )
    figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    return path


def _update(dimension: int) -> NDArray[np.float64]:
    """A fixed Gaussian direction of length 1."""
    stream = PrivateStream.reproducible(hashlib.sha256(b"jopeq whole update").digest())
    values = samplers.normal(stream, 0, dimension)
    unit: NDArray[np.float64] = values / np.linalg.norm(values)
    return unit
