"""The figures of docs/theory.md, from the kept numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm

from jopeq.analysis.drawing import new_figure
from paper.theorems.aggregation import FEATURES
from paper.theorems.convergence import CLIPPED, NAMES, SPLITS
from paper.words import short, signed

Part = Mapping[str, Any]

SIGMAS = 5  # standard errors that a bar is long
_BAND = 1.63  # 1% of Brownian bridges leave it
_COLOURS = {"Z": "C0", "A2": "C1", "D4": "C2", "E8": "C3"}
_SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.fontsize": 9,
    "svg.hashsalt": "jopeq",  # the same numbers make the same file
}


def draw_dither(part: Part, figure: Any) -> None:
    """Theorem II.5: empirical distributions, and where codebooks end."""
    left, right = figure.subplots(1, 2)
    left.axhspan(-_BAND, _BAND, color="grey", alpha=0.15, label="99% of uniform samples")
    for row in part["lattices"]:
        plural = "s" if row["dimension"] > 1 else ""
        label = f"{row['lattice']}, {row['dimension']} coordinate{plural}"
        for bridge in row["bridges"]:
            grid = np.linspace(0.0, 1.0, len(bridge))
            left.plot(grid, bridge, color=_COLOURS[row["lattice"]], lw=1, label=label)
            label = ""  # one entry of the legend for all coordinates
    left.set(
        xlabel="coordinate of the error in the cell, folded to [0, 1)",
        ylabel="√n · (measured − uniform) distribution",
        title="Where in its cell the error lies",
        ylim=(-2.6, 2.6),
    )
    left.legend(ncols=2, loc="lower center", fontsize=8)
    for row in part["overload"]:
        name, shares = row["lattice"], 100 * np.array(row["overloaded"])
        right.plot(row["radii"], shares, color=_COLOURS[name], label=name)
    right.axvline(1.0, color="black", lw=1, ls=":")
    right.annotate("‖x‖ = γ", (1.0, 96), xytext=(-4, 0), textcoords="offset points", ha="right")
    right.set(
        xlabel="distance of the input from the origin, ‖x‖/γ",
        ylabel="overloaded samples, %",
        title=f"Where codebooks of R = {part['rate']:g} end",
    )
    right.legend(loc="upper left")


def draw_total_error(part: Part, figure: Any) -> None:
    """Theorems III.1 and III.2: densities, and Kolmogorov distance against R."""
    first, second, third = figure.subplots(1, 3)
    shown = part["densities"]
    styles = ("k-", "C3-", "C1-", "C2--")
    for (label, values), style in zip(shown["curves"].items(), styles, strict=True):
        first.plot(shown["x"], values, style, lw=1.5, label=label)
    first.set(xlabel="total error, in scaled units", ylabel="density")
    first.set(title=f"Z, ε = {shown['epsilon']:g}", ylim=(0, None))
    first.legend()
    titles = {"line": "Z, against Laplace", "plane": "A2, against multivariate t"}
    for panel, (key, title) in zip((second, third), titles.items(), strict=True):
        epsilons = sorted({row["epsilon"] for row in part[key]})
        colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.9, len(epsilons)))
        for epsilon, colour in zip(epsilons, colours, strict=True):
            line = [row for row in part[key] if row["epsilon"] == epsilon]
            x, y = ([row[name] for row in line] for name in ("rate", "kolmogorov"))
            panel.plot(x, y, "-", color=colour, label=f"ε = {epsilon:g}")
            fills = [colour if row["has_noise"] else "white" for row in line]
            panel.scatter(x, y, s=26, c=fills, edgecolors=[colour], zorder=3)
        panel.set(xlabel="rate R, bits per entry", title=title, yscale="log")
        panel.set_ylabel("Kolmogorov distance, total error to target")
    own = max(row["kolmogorov"] for row in part["staircase"])
    second.axhline(own, color="C2", ls="--", lw=1.5)
    place: Any = {"xytext": (0, 4), "textcoords": "offset points"}
    second.annotate("staircase to its own law, every ε", (1.0, own), color="C2", **place)
    third.legend(loc="lower left", title="hollow: no noise left", title_fontsize=8)


def draw_noise_share(part: Part, figure: Any) -> None:
    """Theorem III.3: the noise's share of the variance, and the server's ε."""
    left, right = figure.subplots(1, 2)
    epsilons, rates = np.array(part["epsilons"]), np.log2(part["letters"])
    coarse, shares = np.array(part["coarseness"]), 100 * np.array(part["share"])
    exact = np.array([[np.inf if v is None else v for v in row] for row in part["exact"]])
    excess = exact / epsilons
    mesh: Any = {"shading": "nearest", "rasterized": True}  # thousands of cells, one small picture
    image = left.pcolormesh(epsilons, rates, shares, cmap="viridis", **mesh)
    figure.colorbar(image, ax=left, label="noise's share of the error variance, %")
    mesh |= {"cmap": "magma_r", "norm": LogNorm(1.0, 10.0)}
    image = right.pcolormesh(epsilons, rates, np.ma.masked_invalid(excess), **mesh)
    bar = figure.colorbar(image, ax=right, label="exact ε against the server / ε asked for")
    bar.set_ticks([1, 1.5, 2, 3, 5, 10], labels=["1", "1.5", "2", "3", "5", "10 and more"])
    lines = right.contour(epsilons, rates, np.minimum(excess, 1e3), [1.1, 1.5], colors="C0")
    right.clabel(lines, fmt=lambda level: f"×{level:g}", fontsize=9)
    inside = [part["boundary"], coarse.max() + 1]
    for panel, colour in ((left, "white"), (right, "black")):
        panel.contourf(epsilons, rates, coarse, inside, colors="none", hatches=["///"])
        panel.contour(epsilons, rates, coarse, inside[:1], colors=colour, linewidths=2)
        panel.set(xscale="log", xlabel="ε asked for", ylabel="rate R, bits per entry")
        panel.set(xlim=(epsilons[0], epsilons[-1]), ylim=(rates[0], rates[-1]))
        panel.set_xticks([0.5, 1, 2, 4, 8], labels=["0.5", "1", "2", "4", "8"])
        panel.minorticks_off()
    right.set_facecolor("0.75")
    left.set_title("Hatched: √24 ≤ γε/2ᴿ, no noise at all")
    right.set_title("Hatched: ε = ∞")


def draw_aggregation(part: Part, figure: Any) -> None:
    """Theorem III.4: measured error and bound against K."""
    titles = ("Features of one size", "The j-th feature of size 1/j")
    for panel, features, title in zip(figure.subplots(1, 2), FEATURES, titles, strict=True):
        rows = [r for r in part["rows"] if r["features"] == features and r["weights"] == "equal"]
        for row, mark, colour in zip(rows, "os^", ("C0", "C3", "C2"), strict=True):
            label = f"{row['scheme']} (slope {signed(row['slope'])})"
            style: Any = {"fmt": mark, "ms": 5, "color": colour, "mfc": "none", "label": label}
            bars = SIGMAS * np.array(row["error"])
            panel.errorbar(row["counts"], row["measured"], yerr=bars, **style)
        panel.plot(rows[0]["counts"], rows[0]["exact"], "k:", lw=1.2, label="9σ²·Σα²‖h‖²")
        panel.plot(rows[0]["counts"], rows[0]["bound"], "k-", lw=1.2, label="bound of the theorem")
        panel.set(xscale="log", yscale="log", xlabel="clients K", title=title)
        panel.set_ylabel(r"$\mathrm{E}\,\Vert\tilde{w} - w\Vert^2$")
        panel.grid(alpha=0.3)
        panel.legend(loc="lower left", fontsize=8)


def draw_convergence(part: Part, figure: Any) -> None:
    """Theorem III.5: F(w_t) − F* of every problem, and the bounds."""
    grid = figure.subplots(len(NAMES), len(SPLITS), sharex=True)
    colours = {"none": "C0", "jopeq": "C3", CLIPPED: "C7"}
    places = [(name, split) for name in NAMES for split in SPLITS]
    for panel, place in zip(grid.flat, places, strict=True):
        rows = {r["scheme"]: r for r in part["rows"] if (r["problem"], r["split"]) == place}
        for scheme, row in rows.items():
            name = "no coding" if scheme == "none" else scheme
            _band(panel, row, colours[scheme], f"{name} (slope {signed(row['slope'])})")
        row = rows["jopeq"]
        panel.plot(row["times"], row["printed"], "k--", lw=1.2, label="bound, as printed")
        panel.plot(row["times"], row["corrected"], "k-", lw=1.2, label="bound, corrected")
        panel.set(xscale="log", yscale="log", title=f"{', '.join(place)}, ψ = {row['gap']:.2g}")
        panel.grid(alpha=0.3)
        least = min(min(row["lowest"]) for row in rows.values())
        panel.set_ylim(bottom=least / 300)  # room for the legend
        panel.legend(fontsize=8, loc="lower left")
    for panel in grid[1]:
        panel.set_xlabel("local step t")
    for panel in grid[:, 0]:
        panel.set_ylabel("F(w_t) − F*")


def draw_constant(part: Part, figure: Any) -> None:
    """Where the printed constant fails: a small loss, started at its optimum."""
    panel, row = figure.subplots(), part["from_optimum"]
    _band(panel, row, "C3", "jopeq, measured")
    bounds = (("printed", "k--", "as printed"), ("proof", "k:", "as derived"))
    for form, style, name in (*bounds, ("corrected", "k-", "corrected")):
        panel.plot(row["times"], row[form], style, lw=1.2, label=f"bound, {name}")
    title = f"Loss times {short(row['factor'])}, started at w*"
    panel.set(xscale="log", yscale="log", xlabel="local step t", ylabel="F(w_t) − F*", title=title)
    panel.grid(alpha=0.3)
    panel.legend(loc="center right")


def _band(panel: Any, row: Part, colour: str, label: str) -> None:
    """The mean of all seeds as a line, their range as a band."""
    panel.plot(row["times"], row["losses"], color=colour, label=label)
    panel.fill_between(row["times"], row["lowest"], row["highest"], color=colour, alpha=0.15, lw=0)


FIGURES: Mapping[str, tuple[str, Callable[[Part, Any], None], tuple[float, float]]] = {
    "theory-dither": ("dither", draw_dither, (9.6, 4.0)),
    "theory-total-error": ("total_error", draw_total_error, (12.0, 4.0)),
    "theory-noise-share": ("noise_share", draw_noise_share, (10.4, 4.2)),
    "theory-aggregation": ("aggregation", draw_aggregation, (9.6, 4.4)),
    "theory-convergence": ("convergence", draw_convergence, (13.2, 7.6)),
    "theory-constant": ("convergence", draw_constant, (6.0, 4.0)),
}


def drawn(parts: Mapping[str, Part]) -> dict[Path, bytes]:
    """Every figure as the name and content of an SVG file."""
    files = {}
    with mpl.rc_context(_SETTINGS):
        for name, (part, draw, size) in FIGURES.items():
            figure, file = new_figure(size), io.BytesIO()
            draw(parts[part], figure)
            figure.savefig(file, format="svg", metadata={"Date": None})
            files[Path(f"{name}.svg")] = file.getvalue()
    return files
