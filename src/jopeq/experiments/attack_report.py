"""Figures 4 to 6 and their tables, from the attacks that were kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.attacks.metrics import RECOVERED, Share, share
from jopeq.attacks.picture import Column, save_grid
from jopeq.experiments.attack_cells import (
    FIG5_EPSILONS,
    Cell,
    fig4_cells,
    fig4_schemes,
    fig5_cells,
    fig5_schemes,
    fig6_cells,
    fig6_schemes,
    method_cells,
)
from jopeq.experiments.attack_runs import Attacked, picture_name
from jopeq.experiments.drawing import new_panels
from jopeq.experiments.page_words import table
from jopeq.privacy.exact import exact_epsilon
from jopeq.privacy.guarantee import digits_up
from jopeq.schemes import Scheme

ATTACKERS = {"label": "the paper's attack (label given)", "adaptive": "adaptive attacker"}


def found_for(cells: Iterable[Cell], attacked: Iterable[Attacked]) -> dict[Any, Attacked]:
    """What was kept of some cells, by key, the one over most images if there are several."""
    wanted = {cell.key for cell in cells}
    found: dict[Any, Attacked] = {}
    for one in attacked:
        best = found.get(one.key)
        if one.key in wanted and (best is None or one.images >= best.images):
            found[one.key] = one
    return found


def recovered(one: Attacked) -> Share:
    """The share of images with an SSIM above 0.5; one without a loss was never found."""
    pairs = zip(one.ssim, one.loss, strict=True)
    return share(sum(ssim > RECOVERED and loss is not None for ssim, loss in pairs), one.images)


@lru_cache(maxsize=256)
def server_epsilon(scheme: Scheme) -> float:
    """The exact ε of one entry against the server where it is computed, else the proven one."""
    proven = scheme.guarantee
    if proven.is_exact or math.isinf(proven.epsilon):
        return proven.epsilon
    exact = exact_epsilon(scheme)
    return proven.epsilon if exact is None else exact.server


def fig4_epochs(attacked: Sequence[Attacked]) -> list[int]:
    """The epochs that were attacked."""
    return sorted({one.epoch for one in found_for(fig4_cells(), attacked).values()})


def _draw_curve(
    panel: Any, places: Sequence[float], images: Sequence[Sequence[float]], **style: Any
) -> None:
    """At each place the mean over images as a line, and the middle half of them as a band."""
    panel.plot(places, [np.mean(values) for values in images], "o-", **style)
    low, high = np.transpose([np.quantile(values, (0.25, 0.75)) for values in images])
    panel.fill_between(places, low, high, color=style["color"], alpha=0.1, linewidth=0)
    for edge in (low, high):  # bands overlap
        panel.plot(places, edge, color=style["color"], alpha=0.5, linewidth=0.5)


def save_fig4(attacked: Sequence[Attacked], path: Path) -> None:
    """SSIM against the epoch, mean over images and the middle half of them."""
    found = found_for(fig4_cells(), attacked)
    figure, panels = new_panels(2, (11.0, 4.4))
    for panel, (method, title) in zip(panels, ATTACKERS.items(), strict=True):
        for index, (label, scheme) in enumerate(fig4_schemes().items()):
            # the adaptive attack on a raw gradient is the paper's
            used = "label" if label == "raw" else method
            mine = [one for one in found.values() if (one.spec, one.method) == (scheme.spec, used)]
            curve = {one.epoch: one.ssim for one in sorted(mine, key=lambda one: one.epoch)}
            if curve:
                style = {"color": f"C{index}", "label": label, "markersize": 3}
                _draw_curve(panel, list(curve), list(curve.values()), **style)
        _grey_line(panel, found.values(), "grey_ssim")
        panel.set_xlabel("epoch of training")
        panel.set_title(title)
        panel.set_ylim(-0.05, 1.02)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("SSIM of the reconstruction")
    panels[0].legend(fontsize=8, loc="center left")
    _save(figure, path)


def fig5_attackers(attacked: Sequence[Attacked]) -> dict[str, str]:
    """The methods with curves to draw, and their titles; one point a curve is no curve."""
    found = found_for(fig5_cells(), attacked)
    curves = len({curve for curve, _ in fig5_schemes()})
    counts = Counter(method for _, method, *_ in found)
    return {method: title for method, title in ATTACKERS.items() if counts[method] > curves}


def save_fig5(attacked: Sequence[Attacked], path: Path) -> None:
    """MSE against 2/ε by both attackers, and beside it the exact ε against the server."""
    found = found_for(fig5_cells(), attacked)
    schemes = fig5_schemes()
    curves = list(dict.fromkeys(curve for curve, _ in schemes))
    shown = fig5_attackers(attacked)
    figure, panels = new_panels(1 + len(shown), (4.7 * (1 + len(shown)), 4.4))
    for panel, (method, title) in zip(panels, shown.items(), strict=False):
        for index, curve in enumerate(curves):
            points = {
                2.0 / epsilon: found[key].mse
                for epsilon in FIG5_EPSILONS
                if (key := (schemes[curve, epsilon].spec, method, 0, "")) in found
            }
            if points:
                style = {"color": f"C{index}", "label": curve, "markersize": 4}
                _draw_curve(panel, list(points), list(points.values()), **style)
        _grey_line(panel, found.values(), "grey_mse")
        panel.set_title(title)
        panel.set_ylabel("MSE of the reconstruction")
        panel.set_yscale("log")
    _draw_exact(panels[-1], schemes, curves)
    for panel in panels:
        panel.set_xscale("log")
        panel.set_xlabel("2/ε, ε being what was asked for")
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    _save(figure, path)


def _draw_exact(
    panel: Any, schemes: dict[tuple[str, float], Scheme], curves: Sequence[str]
) -> None:
    """The ε that holds against the server.

    Noise is drawn with bounded tails, 48 of its scales long: at a larger ε some outputs rule out
    some inputs, and strictly none holds. What the law would promise is drawn hollow then.
    """
    top = 30.0 * max(FIG5_EPSILONS)
    for index, curve in enumerate(curves):
        color, mine = f"C{index}", {e: schemes[curve, e] for e in FIG5_EPSILONS}
        laws = {e: _law_epsilon(scheme) for e, scheme in mine.items()}
        known = [(2.0 / e, law) for e, law in laws.items() if math.isfinite(law)]
        if known:
            panel.plot(*zip(*known, strict=True), "-", color=color, linewidth=1.2)
        for epsilon, law in laws.items():
            holds = math.isfinite(server_epsilon(mine[epsilon]))
            if math.isfinite(law):
                face = color if holds else "white"
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


def _law_epsilon(scheme: Scheme) -> float:
    noise = getattr(scheme, "noise", None)
    return math.inf if noise is None else float(noise.epsilon())


def save_fig6(
    originals: NDArray[np.uint8],
    attacked: Sequence[Attacked],
    pictures: dict[str, NDArray[np.uint8]],
    method: str,
    path: Path,
) -> bool:
    """The picture grid of one attacker; False where nothing was kept for it."""
    found = found_for(fig6_cells(), attacked)
    columns = []
    for label, scheme in fig6_schemes().items():
        cell = Cell(label, scheme.spec, method)
        name = picture_name(cell)
        if cell.key in found and name in pictures:
            heading = label.replace(", ", "\n", 1)
            columns.append(Column(heading, pictures[name], found[cell.key].ssim))
    if not columns:
        return False
    rows = min(len(originals), *(len(column.images) for column in columns))
    title = f"{ATTACKERS[method]}, first weights; SSIM under each picture"
    save_grid(originals[:rows], columns, path, title)
    return True


def attacks_markdown(attacked: Sequence[Attacked]) -> str:
    """Every scheme and attack at the first weights."""
    cells = [*fig6_cells(), *method_cells()]
    labels = {cell.spec: cell.label for cell in cells}
    found = found_for(cells, attacked)
    head = ("scheme", "ε per entry, server", "attack", "SSIM, mean", "recovered", "MSE")
    rows = []
    for spec, label in labels.items():
        for cell in dict.fromkeys(cell for cell in cells if cell.spec == spec):
            one = found.get(cell.key)
            if one is None:
                continue
            epsilon = server_epsilon(cell.scheme)
            shown = "none" if math.isinf(epsilon) else digits_up(epsilon, 3)
            method = f"{cell.method}, {cell.variant}" if cell.variant else cell.method
            read = f"{one.labels_right}/{one.images}" if cell.method in ("dlg", "idlg") else "given"
            quality = (f"{np.mean(one.ssim):.3f}", str(recovered(one)), f"{np.mean(one.mse):.4f}")
            rows.append((label, shown, method, *quality, read))
    return table((*head, "labels read"), rows)


def _grey_line(panel: Any, found: Iterable[Attacked], name: str) -> None:
    values = [one.settings[name] for one in found if name in one.settings]
    if values:
        panel.axhline(
            values[0], color="0.4", linewidth=0.9, linestyle="--", label="a plain grey image"
        )


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
