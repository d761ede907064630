"""The figures of docs/theory.md, from the numbers that were kept."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jopeq.experiments.drawing import new_figure
from jopeq.experiments.page_words import short, signed
from jopeq.experiments.theory_convergence import CLIPPED
from jopeq.experiments.theory_page_parts import Part, reading
from jopeq.experiments.theory_problems import NAMES, SPLITS

SIGMAS = 5  # standard errors that a bar is long

_LATTICE_COLOURS = {"Z": "C0", "A2": "C1", "D4": "C2", "E8": "C3"}
_SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.fontsize": 9,
    "svg.hashsalt": "jopeq",  # the same numbers make the same file
}
# 1% of Brownian bridges leave ±1.63
_BAND = 1.63


@reading("dither")
def draw_dither(part: Part, figure: Any) -> None:
    """Theorem II.5: empirical distributions, and where codebooks end."""
    left, right = _panels(figure, 2)
    left.axhspan(-_BAND, _BAND, color="grey", alpha=0.15, label="99% of uniform samples")
    for row in part["lattices"]:
        for index, bridge in enumerate(row["bridges"]):
            grid = np.linspace(0.0, 1.0, len(bridge))
            label = f"{row['lattice']}, {row['dimension']} coordinate" if index == 0 else None
            label = f"{label}s" if label and row["dimension"] > 1 else label
            left.plot(grid, bridge, color=_LATTICE_COLOURS[row["lattice"]], lw=1, label=label)
    left.set(
        xlabel="coordinate of the error in the cell, folded to [0, 1)",
        ylabel="√n · (measured − uniform) distribution",
        title="Where in its cell the error lies",
        ylim=(-2.6, 2.6),
    )
    left.legend(ncols=2, loc="lower center", fontsize=8)
    for row in part["overload"]:
        shares = 100 * np.array(row["overloaded"])
        right.plot(
            row["radii"], shares, color=_LATTICE_COLOURS[row["lattice"]], label=row["lattice"]
        )
    right.axvline(1.0, color="black", lw=1, ls=":")
    right.annotate("‖x‖ = γ", (1.0, 96), xytext=(-4, 0), textcoords="offset points", ha="right")
    right.set(
        xlabel="distance of the input from the origin, ‖x‖/γ",
        ylabel="overloaded samples, %",
        title=f"Where codebooks of R = {part['rate']:g} end",
    )
    right.legend(loc="upper left")


@reading("total_error")
def draw_total_error(part: Part, figure: Any) -> None:
    """Theorems III.1 and III.2: densities, and Kolmogorov distance against R."""
    first, second, third = _panels(figure, 3)
    shown = part["densities"]
    styles = ["k-", "C3-", "C1-", "C2--"]
    for (label, values), style in zip(shown["curves"].items(), styles, strict=True):
        first.plot(shown["x"], values, style, lw=1.5, label=label)
    first.set(
        xlabel="total error, in scaled units",
        ylabel="density",
        title=f"Z, ε = {shown['epsilon']:g}",
        ylim=(0, None),
    )
    first.legend()
    for panel, key, title in (
        (second, "line", "Z, against Laplace"),
        (third, "plane", "A2, against multivariate t"),
    ):
        rows = part[key]
        epsilons = sorted({row["epsilon"] for row in rows})
        colours = _shades(len(epsilons))
        for epsilon, colour in zip(epsilons, colours, strict=True):
            line = [row for row in rows if row["epsilon"] == epsilon]
            x = [row["rate"] for row in line]
            y = [row["kolmogorov"] for row in line]
            panel.plot(x, y, "-", color=colour, label=f"ε = {epsilon:g}")
            fills = [colour if row["has_noise"] else "white" for row in line]
            panel.scatter(x, y, s=26, c=fills, edgecolors=[colour], zorder=3)
        panel.set(
            xlabel="rate R, bits per entry",
            ylabel="Kolmogorov distance, total error to target",
            title=title,
            yscale="log",
        )
    staircase = max(row["kolmogorov"] for row in part["staircase"])
    second.axhline(staircase, color="C2", ls="--", lw=1.5)
    second.annotate(
        "staircase to its own law, every ε",
        (1.0, staircase),
        xytext=(0, 4),
        textcoords="offset points",
        color="C2",
    )
    third.legend(loc="lower left", title="hollow: no noise left", title_fontsize=8)


@reading("noise_share")
def draw_noise_share(part: Part, figure: Any) -> None:
    """Theorem III.3: the noise's share of the variance, and what the server's ε is there."""
    from matplotlib.colors import LogNorm

    left, right = _panels(figure, 2)
    epsilons = np.array(part["epsilons"])
    rates = np.log2(part["letters"])
    coarse = np.array(part["coarseness"])
    shares = 100 * np.array(part["share"])
    exact = np.array([[math.inf if v is None else v for v in row] for row in part["exact"]])
    excess = exact / epsilons
    mesh: Any = {"shading": "nearest", "rasterized": True}  # thousands of cells, one small picture
    image = left.pcolormesh(epsilons, rates, shares, cmap="viridis", **mesh)
    figure.colorbar(image, ax=left, label="noise's share of the error variance, %")
    finite = np.ma.masked_invalid(excess)
    image = right.pcolormesh(
        epsilons, rates, finite, cmap="magma_r", norm=LogNorm(1.0, 10.0), **mesh
    )
    bar = figure.colorbar(image, ax=right, label="exact ε against the server / ε asked for")
    bar.set_ticks([1, 1.5, 2, 3, 5, 10], labels=["1", "1.5", "2", "3", "5", "10 and more"])
    lines = right.contour(epsilons, rates, np.minimum(excess, 1e3), [1.1, 1.5], colors="C0")
    right.clabel(lines, fmt=lambda level: f"×{level:g}", fontsize=9)
    for panel, colour in ((left, "white"), (right, "black")):
        panel.contourf(
            epsilons, rates, coarse, [part["boundary"], coarse.max() + 1],
            colors="none", hatches=["///"],
        )  # fmt: skip
        panel.contour(epsilons, rates, coarse, [part["boundary"]], colors=colour, linewidths=2)
        panel.set(xscale="log", xlabel="ε asked for", ylabel="rate R, bits per entry")
        panel.set(xlim=(epsilons[0], epsilons[-1]), ylim=(rates[0], rates[-1]))
        panel.set_xticks([0.5, 1, 2, 4, 8], labels=["0.5", "1", "2", "4", "8"])
        panel.minorticks_off()
    right.set_facecolor("0.75")
    left.set_title("Hatched: √24 ≤ γε/2ᴿ, no noise at all")
    right.set_title("Hatched: ε = ∞")


@reading("aggregation")
def draw_aggregation(part: Part, figure: Any) -> None:
    """Theorem III.4: measured error and bound against K."""
    panels = _panels(figure, 2)
    titles = {
        "even": "Features of one size",
        "peaked": "The j-th feature of size 1/j",
    }
    for panel, features in zip(panels, titles, strict=True):
        rows = [r for r in part["rows"] if r["features"] == features and r["weights"] == "equal"]
        for row, mark, colour in zip(rows, "os^", ("C0", "C3", "C2"), strict=True):
            label = f"{row['scheme']} (slope {signed(row['slope'])})"
            panel.errorbar(
                row["counts"], row["measured"], yerr=SIGMAS * np.array(row["error"]),
                fmt=mark, ms=5, color=colour, mfc="none", label=label,
            )  # fmt: skip
        panel.plot(rows[0]["counts"], rows[0]["exact"], "k:", lw=1.2, label="9σ²·Σα²‖h‖²")
        panel.plot(rows[0]["counts"], rows[0]["bound"], "k-", lw=1.2, label="bound of the theorem")
        panel.set(
            xscale="log",
            yscale="log",
            xlabel="clients K",
            ylabel=r"$\mathrm{E}\,\Vert\tilde{w} - w\Vert^2$",
            title=titles[features],
        )
        panel.grid(alpha=0.3)
        panel.legend(loc="lower left", fontsize=8)


@reading("convergence")
def draw_convergence(part: Part, figure: Any) -> None:
    """Theorem III.5: F(w_t) − F* of every problem, and the bounds."""
    grid = figure.subplots(2, 2, sharex=True)
    colours = {"none": "C0", "jopeq": "C3", CLIPPED: "C7"}
    texts = {"none": "no coding"}
    for line, name in zip(grid, NAMES, strict=True):
        for panel, split in zip(line, SPLITS, strict=True):
            rows = [r for r in part["rows"] if (r["problem"], r["split"]) == (name, split)]
            for row in rows:
                colour = colours[row["scheme"]]
                label = f"{texts.get(row['scheme'], row['scheme'])} (slope {signed(row['slope'])})"
                panel.plot(row["times"], row["losses"], color=colour, label=label)
                panel.fill_between(
                    row["times"], row["lowest"], row["highest"], color=colour, alpha=0.15, lw=0
                )
            row = next(r for r in rows if r["scheme"] == "jopeq")
            panel.plot(row["times"], row["printed"], "k--", lw=1.2, label="bound, as printed")
            panel.plot(row["times"], row["corrected"], "k-", lw=1.2, label="bound, corrected")
            panel.set(xscale="log", yscale="log", title=f"{name}, {split}, ψ = {row['gap']:.2g}")
            panel.grid(alpha=0.3)
            panel.set_ylim(bottom=min(min(r["lowest"]) for r in rows) / 300)  # for the legend
            panel.legend(fontsize=8, loc="lower left")
    for panel in grid[1]:
        panel.set_xlabel("local step t")
    for panel in grid[:, 0]:
        panel.set_ylabel("F(w_t) − F*")


@reading("convergence")
def draw_constant(part: Part, figure: Any) -> None:
    """Where the printed constant fails: a small loss, started at its optimum."""
    (panel,) = _panels(figure, 1)
    row = part["from_optimum"]
    panel.plot(row["times"], row["losses"], color="C3", label="jopeq, measured")
    panel.fill_between(row["times"], row["lowest"], row["highest"], color="C3", alpha=0.15, lw=0)
    for form, style in (("printed", "k--"), ("proof", "k:"), ("corrected", "k-")):
        names = {"printed": "as printed", "proof": "as derived", "corrected": "corrected"}
        panel.plot(row["times"], row[form], style, lw=1.2, label=f"bound, {names[form]}")
    panel.set(
        xscale="log",
        yscale="log",
        xlabel="local step t",
        ylabel="F(w_t) − F*",
        title=f"Loss times {short(row['factor'])}, started at w*",
    )
    panel.grid(alpha=0.3)
    panel.legend(loc="center right")


FIGURES: Mapping[str, tuple[str, Callable[[Part, Any], None], tuple[float, float]]] = {
    "theory-dither": ("dither", draw_dither, (9.6, 4.0)),
    "theory-total-error": ("total_error", draw_total_error, (12.0, 4.0)),
    "theory-noise-share": ("noise_share", draw_noise_share, (10.4, 4.2)),
    "theory-aggregation": ("aggregation", draw_aggregation, (9.6, 4.4)),
    "theory-convergence": ("convergence", draw_convergence, (9.6, 7.6)),
    "theory-constant": ("convergence", draw_constant, (6.0, 4.0)),
}


def save_figures(parts: Mapping[str, Part], folder: Path) -> None:
    """Every figure as an SVG file; none is written unless all can be drawn."""
    import matplotlib as mpl

    drawn = {}
    with mpl.rc_context(_SETTINGS):
        for name, (part, draw, size) in FIGURES.items():
            figure = new_figure(size)
            draw(parts[part], figure)
            file = io.BytesIO()
            figure.savefig(file, format="svg", metadata={"Date": None})
            drawn[name] = file.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in drawn.items():
        (folder / f"{name}.svg").write_bytes(content)


def _panels(figure: Any, count: int) -> Any:
    return figure.subplots(1, count, squeeze=False)[0]


def _shades(count: int) -> Any:
    import matplotlib as mpl

    return mpl.colormaps["viridis"](np.linspace(0.0, 0.9, count))
