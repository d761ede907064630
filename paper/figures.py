"""The pictures of docs/paper.md, drawn from the kept results."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jopeq.schemes.base import Scheme
from jopeq_lab.attacks.picture import Row, save_grid
from jopeq_lab.pictures.colours import GREY, PAGE, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save
from paper import cells, cifar, mnist
from paper.attacks import ORIGINALS
from paper.cells import fig5_curves, server_epsilon
from paper.words import number

# Training

_FIG3_PARTS = {"round 1": (0, 1), "rounds 2 to 10": (1, 10), "the last 25 rounds": (-25, None)}


def save_fig2(runs: pd.DataFrame, path: Path) -> None:
    """SNR against R, one panel per ε."""
    grid = mnist.fig2_grid(runs)
    limits = grid.min(axis=None) - 1, grid.max(axis=None) + 1
    figure, panels = new_panels(len(mnist.FIG2_EPSILONS), 2.4, sharey=True)
    for panel, epsilon in zip(panels, mnist.FIG2_EPSILONS, strict=True):
        dress(panel, f"ε = {epsilon:g} per entry", ylim=limits)
        names = []
        for name, points in grid.loc[epsilon].iterrows():
            look, line = look_of(name), points.dropna()
            panel.plot(line.index, line, color=look.colour, marker=look.marker, markersize=5)
            names.append((line.iloc[-1], name, look.colour))
        name_lines(panel, names)
    figure.supxlabel("rate R, bits per entry", fontsize=10)
    figure.supylabel("SNR, dB", fontsize=10)
    save(figure, path, phone=True)


def save_fig3(runs: pd.DataFrame, path: Path) -> None:
    """Each scheme's distance to ``none`` in points, by part of the training: mean and range."""
    parts = {title: mnist.apart_from_none(runs, *part) for title, part in _FIG3_PARTS.items()}
    order = next(iter(parts.values())).mean(axis=1).sort_values().index
    far = min(distances.min(axis=None) for distances in parts.values())
    figure, panels = new_panels(len(parts), 3.0, sharey=True)
    for panel, (title, distances) in zip(panels, parts.items(), strict=True):
        dress(panel, title, xlim=(1.3 * far, -0.15 * far), ylim=(-0.6, len(order) - 0.4))
        panel.axvline(0.0, color=GREY, linewidth=0.9, linestyle="--")
        for place, label in enumerate(order):
            look, seeds = look_of(label), distances.loc[label]
            mean, ends = seeds.mean(), (seeds.min(), seeds.max())
            panel.plot(ends, (place, place), color=look.colour, linewidth=1.2)
            panel.plot(mean, place, marker=look.marker, color=look.colour, markersize=5)
            style: Any = {"color": look.colour, "fontsize": 9, "ha": "right", "va": "center"}
            where = {"xytext": (-7, 0), "textcoords": "offset points"}
            panel.annotate(number(mean, 2), (ends[0], place), **where, **style)
        panel.set_yticks(range(len(order)), [textwrap.fill(label, 16) for label in order])
    figure.supxlabel("validation accuracy less that of none (dashed), points", fontsize=10)
    save(figure, path, phone=True)


def save_table2(runs: pd.DataFrame, path: Path) -> None:
    """Validation accuracy against rounds at the last column: two panels per learning rate."""
    rate, epsilon = cifar.COLUMNS[-1]
    rows = cifar.schemes_at(rate, epsilon)
    published = [label for label in rows if label in ("none", "sdq") or "published" in label]
    ours = ["none", *(label for label in rows if label not in published)]
    parts = {"the paper's rows": published, "corrected, and ours": ours}
    rates = sorted({cifar.LEARNING_RATE, *cifar.GRID} - {cifar.TOO_HIGH}, reverse=True)
    curves_of = dict(list(runs.groupby([*cifar.ROW, "lr"])["validation"]))
    figure, panels = new_panels(len(rates) * len(parts), 2.2, sharey=True)
    places = [(lr, *part) for lr in rates for part in parts.items()]
    for panel, (lr, title, labels) in zip(panels, places, strict=True):
        dress(panel, f"lr {lr:g}: {title}", ylim=(5, 80))
        curves = [(label, curves_of[label, rows[label].spec, lr]) for label in labels]
        _draw_curves(panel, curves, every=40)
    figure.supxlabel("round", fontsize=10)
    figure.supylabel("validation accuracy, %", fontsize=10)
    title = f"CIFAR-10, {cifar.CLIENTS} clients, R = {rate:g}, ε = {epsilon:g}"
    figure.suptitle(title, fontsize=11)
    save(figure, path, phone=True)


def _draw_curves(panel: Any, curves: Iterable[tuple[str, pd.Series]], every: int) -> None:
    """Draw percentages: the mean of seeds as a named line with markers, their range as a band."""
    names = []
    for index, (label, seeds) in enumerate(curves):
        # a run that diverged has fewer rounds
        rounds = [[100 * one for one in values] for values in zip(*seeds, strict=False)]
        look = look_of(label)
        style: Any = {"marker": look.marker, "markersize": 4, "markevery": (5 * index, every)}
        places, means = range(1, len(rounds) + 1), list(map(statistics.fmean, rounds))
        panel.plot(places, means, color=look.colour, label=label, linewidth=1.2, **style)
        band = [min(values) for values in rounds], [max(values) for values in rounds]
        panel.fill_between(places, *band, color=look.colour, alpha=0.12, linewidth=0)
        names.append((np.mean(rounds[-1]), label.removesuffix(", published"), look.colour))
    name_lines(panel, names)


# Attacks


def save_fig4(attacks: pd.DataFrame, path: Path) -> None:
    """SSIM against the epoch, mean over images and the middle half of them."""
    figure, panels = new_panels(2, 3.2, sharey=True)
    for panel, (method, title) in zip(panels, cells.ATTACKERS.items(), strict=True):
        dress(panel, title, ylim=(-0.05, 1.02))
        names = [_draw_grey(panel, attacks.grey_ssim)]
        for label in cells.fig4_schemes():
            # the adaptive attack on a raw gradient is the paper's
            used = "label" if label == "raw" else method
            curve = attacks[(attacks.label == label) & (attacks.method == used)]
            curve = curve.sort_values("epoch")
            names.append(_draw_images(panel, curve.epoch, curve.ssim, label, markersize=3))
        name_lines(panel, names)
    figure.supxlabel("epoch of training", fontsize=10)
    figure.supylabel("SSIM of the reconstruction", fontsize=10)
    save(figure, path, phone=True)


def save_fig5(attacks: pd.DataFrame, path: Path) -> None:
    """MSE against ε by both attackers, and the exact ε against the server."""
    points = fig5_curves(attacks)
    schemes = {
        key: one for key, one in cells.fig5_schemes().items() if one.spread != cells.UNCLIPPED
    }
    curves = list(dict.fromkeys(curve for curve, _ in schemes))
    figure, panels = new_panels(3, 3.2)
    panels[1].sharey(panels[0])
    named = []
    for panel, (method, title) in zip(panels, cells.ATTACKERS.items(), strict=False):
        # in two lines, so that no name of a line reaches it
        dress(panel, title.replace(" (", "\n("), ylabel="MSE of the reconstruction")
        plain_log(panel, "y")
        names = [_draw_grey(panel, attacks.grey_mse)]
        for curve in curves:
            mine = points[(points.curve == curve) & (points.method == method)]
            names.append(_draw_images(panel, cells.FIG5_EPSILONS, mine.mse, curve, markersize=4))
            free = points[(points.curve == f"{curve}, no clipping") & (points.method == method)]
            if not free.empty:
                style: Any = {"markersize": 4, "linestyle": "--", "markerfacecolor": PAGE}
                label = f"{curve},\nnot clipped"
                names.append(_draw_images(panel, cells.FIG5_EPSILONS, free.mse, label, **style))
        named.append((panel, names))
    for panel, names in named:  # the limits come from both
        name_lines(panel, names)
    _draw_exact(panels[-1], schemes, curves)
    plain_log(panels[-1], "x")
    figure.supxlabel("ε asked for, per entry: weaker noise to the right", fontsize=10)
    save(figure, path, phone=True)


def save_fig6(
    attacks: pd.DataFrame, pictures: Mapping[str, NDArray[np.uint8]], method: str, path: Path
) -> None:
    """The picture grid of one attacker."""
    rows = []
    for label, scheme in cells.fig6_schemes().items():
        images = pictures[cells.Cell(label, scheme.spec, method).picture]
        is_it = (attacks.label == label) & (attacks.method == method) & (attacks.variant == "")
        rows.append(Row(label.replace(", ", "\n", 1), images, attacks.ssim[is_it].item()))
    save_grid(pictures[ORIGINALS], rows, path, cells.ATTACKERS[method])


def _draw_images(
    panel: Any, places: Any, images: Any, label: str, **style: Any
) -> tuple[float, str, str]:
    """The mean over images as a line, the middle half of them as a band; its name for the end."""
    look, means = look_of(label), [np.mean(values) for values in images]
    panel.plot(places, means, marker=look.marker, color=look.colour, **style)
    low, high = np.transpose([np.quantile(values, (0.25, 0.75)) for values in images])
    panel.fill_between(places, low, high, color=look.colour, alpha=0.1, linewidth=0)
    for edge in (low, high):  # bands overlap
        panel.plot(places, edge, color=look.colour, alpha=0.5, linewidth=0.5)
    return float(means[-1]), label, look.colour


def _draw_grey(panel: Any, values: pd.Series) -> tuple[float, str, str]:
    panel.axhline(values.iloc[0], color=GREY, linewidth=0.9, linestyle="--")
    return values.iloc[0], "a plain\ngrey image", GREY


def _draw_exact(
    panel: Any, schemes: Mapping[tuple[str, float], Scheme], curves: Sequence[str]
) -> None:
    """The ε that holds against the server.

    The sampler truncates noise at 48 of its scales: at a larger ε some outputs rule out some
    inputs, and strictly no ε holds. The ε of the ideal law is then drawn hollow.
    """
    top, names = 30.0 * max(cells.FIG5_EPSILONS), []
    for index, curve in enumerate(curves):
        color, _, marker = look_of(curve)
        mine = {e: schemes[curve, e] for e in cells.FIG5_EPSILONS}
        noises = {e: getattr(scheme, "noise", None) for e, scheme in mine.items()}
        laws = {e: math.inf if law is None else law.epsilon() for e, law in noises.items()}
        known = [(e, law) for e, law in laws.items() if math.isfinite(law)]
        if known:
            panel.plot(*zip(*known, strict=True), "-", color=color, linewidth=1.2)
        none_at = top * 2.0 ** (index - 1)
        for epsilon, law in laws.items():
            if math.isfinite(law):
                face = color if math.isfinite(server_epsilon(mine[epsilon])) else PAGE
                panel.plot(epsilon, law, marker, color=color, markersize=5, mfc=face)
            else:
                panel.plot(epsilon, none_at, "x", color=color, markersize=6)
        last = laws[cells.FIG5_EPSILONS[-1]]
        names.append((last if math.isfinite(last) else none_at, curve, color))
    panel.axhline(top / 3, color=GREY, linewidth=0.8, linestyle=":")
    panel.annotate("× no noise, no ε", (0.02, 0.95), xycoords="axes fraction", fontsize=9)
    dress(panel, "guaranteed: filled holds,\nhollow is the ideal law", ylim=(3, top * 40))
    plain_log(panel, "y")
    panel.set_ylabel("exact ε, one entry")
    name_lines(panel, names)
