"""The pictures of docs/results.md, drawn from the kept results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jopeq.analysis.drawing import draw_mean_and_range, new_figure, new_panels
from jopeq.attacks.picture import Column, save_grid
from jopeq.schemes import Scheme
from paper import cifar, mnist
from paper.attack_tables import fig5_curves, server_epsilon
from paper.attacks import ORIGINALS
from paper.cells import (
    ATTACKERS,
    FIG5_EPSILONS,
    UNCLIPPED,
    Cell,
    fig4_schemes,
    fig5_schemes,
    fig6_schemes,
)

# Training


def save_fig2(runs: pd.DataFrame, path: Path) -> None:
    """SNR against R, one panel an ε."""
    grid = mnist.fig2_grid(runs)
    figure, panels = new_panels(len(mnist.FIG2_EPSILONS), (4.0 * len(mnist.FIG2_EPSILONS), 4.0))
    for panel, epsilon in zip(panels, mnist.FIG2_EPSILONS, strict=True):
        for index, (name, line) in enumerate(grid.loc[epsilon].iterrows()):
            panel.plot(line.index, line, "o-", markersize=4, color=f"C{index}", label=name)
        panel.set_title(f"ε = {epsilon:g}")
        panel.set_xlabel("rate R, bits per entry")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("SNR at the server, 20·log10, dB")
    panels[-1].legend(fontsize=8)
    figure.savefig(path, dpi=150)


def save_fig3(runs: pd.DataFrame, path: Path) -> None:
    """Validation accuracy against rounds, mean and range over seeds."""
    figure, (panel,) = new_panels(1, (7.2, 4.6))
    _draw_curves(panel, runs.groupby("label", sort=False)["validation"], 1.4)
    panel.set_xlabel("round")
    panel.set_ylabel("validation accuracy")
    panel.set_ylim(bottom=0.85)
    panel.set_title("MNIST, linear model, 10 clients, R = 1, ε = 4")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


def save_table2(runs: pd.DataFrame, path: Path) -> None:
    """Validation accuracy against rounds at the last column: a row of panels a learning rate."""
    rate, epsilon = cifar.COLUMNS[-1]
    rows = cifar.schemes_at(rate, epsilon)
    published = [label for label in rows if label in ("none", "sdq") or "published" in label]
    ours = ["none", *(label for label in rows if label not in published)]
    parts = {"the paper's rows": published, "corrected, and ours": ours}
    rates = sorted({cifar.LEARNING_RATE, *cifar.GRID} - {cifar.TOO_HIGH}, reverse=True)
    cells = dict(list(runs.groupby([*cifar.ROW, "lr"])["validation"]))
    figure = new_figure((11.0, 0.6 + 3.8 * len(rates)))
    panels = figure.subplots(len(rates), 2, squeeze=False, sharex=True, sharey=True)
    for lr, row in zip(rates, panels, strict=True):
        for panel, (title, labels) in zip(row, parts.items(), strict=True):
            curves = [(label, cells[label, rows[label].spec, lr]) for label in labels]
            _draw_curves(panel, curves, 1.3)
            panel.set_ylim(0.05, 0.8)
            panel.grid(alpha=0.3)
            panel.legend(fontsize=7, loc="lower right")
            panel.set_title(f"{title}, lr {lr:g}", fontsize=10)
        row[0].set_ylabel("validation accuracy")
    for panel in panels[-1]:
        panel.set_xlabel("round")
    title = f"CIFAR-10, {cifar.CLIENTS} clients, R = {rate:g}, ε = {epsilon:g}"
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)


def _draw_curves(panel: Any, curves: Iterable[tuple[str, pd.Series]], linewidth: float) -> None:
    for index, (label, seeds) in enumerate(curves):
        rounds = list(zip(*seeds, strict=False))  # a run that diverged has fewer rounds
        draw_mean_and_range(panel, rounds, color=f"C{index}", label=label, linewidth=linewidth)


# Attacks


def save_fig4(attacks: pd.DataFrame, path: Path) -> None:
    """SSIM against the epoch, mean over images and the middle half of them."""
    figure, panels = new_panels(2, (11.0, 4.4))
    for panel, (method, title) in zip(panels, ATTACKERS.items(), strict=True):
        for index, label in enumerate(fig4_schemes()):
            # the adaptive attack on a raw gradient is the paper's
            used = "label" if label == "raw" else method
            curve = attacks[(attacks.label == label) & (attacks.method == used)]
            curve = curve.sort_values("epoch")
            _draw_images(panel, curve.epoch, curve.ssim, f"C{index}", label=label, markersize=3)
        _draw_grey(panel, attacks.grey_ssim)
        panel.set_xlabel("epoch of training")
        panel.set_title(title)
        panel.set_ylim(-0.05, 1.02)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("SSIM of the reconstruction")
    panels[0].legend(fontsize=8, loc="center left")
    figure.savefig(path, dpi=150)


def save_fig5(attacks: pd.DataFrame, path: Path) -> None:
    """MSE against 2/ε by both attackers, and beside it the exact ε against the server."""
    points = fig5_curves(attacks)
    schemes = {key: one for key, one in fig5_schemes().items() if one.spread != UNCLIPPED}
    curves = list(dict.fromkeys(curve for curve, _ in schemes))
    places = [2.0 / epsilon for epsilon in FIG5_EPSILONS]
    figure, panels = new_panels(3, (14.1, 4.4))
    for panel, (method, title) in zip(panels, ATTACKERS.items(), strict=False):
        for index, curve in enumerate(curves):
            mine = points[(points.curve == curve) & (points.method == method)]
            _draw_images(panel, places, mine.mse, f"C{index}", label=curve, markersize=4)
            free = points[(points.curve == f"{curve}, no clipping") & (points.method == method)]
            if not free.empty:
                style: Any = {"label": f"{curve}, no clipping", "markersize": 4, "ls": "--"}
                _draw_images(panel, places, free.mse, f"C{index}", mfc="white", **style)
        _draw_grey(panel, attacks.grey_mse)
        panel.set_title(title)
        panel.set_ylabel("MSE of the reconstruction")
        panel.set_yscale("log")
    _draw_exact(panels[-1], schemes, curves)
    for panel in panels:
        panel.set_xscale("log")
        panel.set_xlabel("2/ε, ε being what was asked for")
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=150)


def save_fig6(
    attacks: pd.DataFrame, pictures: Mapping[str, NDArray[np.uint8]], method: str, path: Path
) -> None:
    """The picture grid of one attacker."""
    columns = []
    for label, scheme in fig6_schemes().items():
        images = pictures[Cell(label, scheme.spec, method).picture]
        is_it = (attacks.label == label) & (attacks.method == method) & (attacks.variant == "")
        columns.append(Column(label.replace(", ", "\n", 1), images, attacks.ssim[is_it].item()))
    title = f"{ATTACKERS[method]}, first weights; SSIM under each picture"
    save_grid(pictures[ORIGINALS], columns, path, title)


def _draw_images(panel: Any, places: Any, images: Any, color: str, **style: Any) -> None:
    """At each place the mean over images as a line, and the middle half of them as a band."""
    means = [np.mean(values) for values in images]
    panel.plot(places, means, marker="o", color=color, **style)
    low, high = np.transpose([np.quantile(values, (0.25, 0.75)) for values in images])
    panel.fill_between(places, low, high, color=color, alpha=0.1, linewidth=0)
    for edge in (low, high):  # bands overlap
        panel.plot(places, edge, color=color, alpha=0.5, linewidth=0.5)


def _draw_grey(panel: Any, values: pd.Series) -> None:
    height, style = values.iloc[0], {"color": "0.4", "linewidth": 0.9, "linestyle": "--"}
    panel.axhline(height, label="a plain grey image", **style)


def _draw_exact(
    panel: Any, schemes: Mapping[tuple[str, float], Scheme], curves: Sequence[str]
) -> None:
    """The ε that holds against the server.

    Noise is drawn with bounded tails, 48 of its scales long: at a larger ε some outputs rule out
    some inputs, and strictly no ε holds. The ε of the ideal law is then drawn hollow.
    """
    top = 30.0 * max(FIG5_EPSILONS)
    for index, curve in enumerate(curves):
        color, mine = f"C{index}", {e: schemes[curve, e] for e in FIG5_EPSILONS}
        noises = {e: getattr(scheme, "noise", None) for e, scheme in mine.items()}
        laws = {e: math.inf if law is None else law.epsilon() for e, law in noises.items()}
        known = [(2.0 / e, law) for e, law in laws.items() if math.isfinite(law)]
        if known:
            panel.plot(*zip(*known, strict=True), "-", color=color, linewidth=1.2)
        for epsilon, law in laws.items():
            if math.isfinite(law):
                face = color if math.isfinite(server_epsilon(mine[epsilon])) else "white"
                panel.plot(2.0 / epsilon, law, "o", color=color, markersize=5, mfc=face)
            else:
                panel.plot(2.0 / epsilon, top * 1.5 ** (index - 1), "x", color=color, markersize=6)
    panel.set_yscale("log")
    panel.axhline(top / 3, color="0.5", linewidth=0.8, linestyle=":")
    panel.annotate("×  no noise, no ε", (0.03, 0.94), xycoords="axes fraction", fontsize=8)
    panel.annotate(
        "○  ε of the law; as drawn, with tails of\n    48 scales, none strictly holds",
        (0.03, 0.08),
        xycoords="axes fraction",
        fontsize=8,
    )
    panel.set_ylim(top=top * 20)
    panel.set_ylabel("exact ε of one entry against the server")
    panel.set_title("what is guaranteed")
