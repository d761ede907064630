"""The figures of docs/paper.md, from the kept numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from jopeq_lab.pictures.colours import GREY, INK, LOOKS, ORDERED, PAGE, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, stacked, svg
from paper.theorems.aggregation import FEATURES, SHOWN
from paper.theorems.convergence import CLIPPED, NAMES, SPLITS
from paper.words import signed

Part = Mapping[str, Any]

SIGMAS = 5  # standard errors that a bar is long
_BAND = 1.63  # 1% of Brownian bridges leave it
_ON_MAPS, _LIGHT, _DARK = "#1f77b4", "#fefefe", "#010101"  # the same on a dark page
_LINES = (("exact", "9σ²·Σα²‖h‖²", ":"), ("bound", "bound of the theorem", "-"))
_BOUNDS = (("printed", "bound, as printed", "--"), ("corrected", "bound, corrected", "-"))
_COLOURS = dict(zip(("Z", "A2", "D4", "E8"), ORDERED, strict=True))


def draw_dither(part: Part, panels: Any) -> None:
    """Theorem II.5: empirical distributions, and where codebooks end."""
    first, second = panels
    first.axhspan(-_BAND, _BAND, color=GREY, alpha=0.15)
    first.annotate("99% of uniform samples", (0.01, -_BAND), va="bottom", fontsize=8, color=GREY)
    for row in part["lattices"]:
        colour, plural = _COLOURS[row["lattice"]], "s" if row["dimension"] > 1 else ""
        label = f"{row['lattice']}: {row['dimension']} coordinate{plural}"
        for bridge in row["bridges"]:
            first.plot(np.linspace(0.0, 1.0, len(bridge)), bridge, color=colour, lw=1, label=label)
            label = ""  # one entry of the legend for all coordinates
    dress(first, "Where in its cell the error lies", ylim=(-2.9, 2.6))
    first.set(xlabel="coordinate of the error in the cell, folded to [0, 1)")
    first.set_ylabel("√n · (measured − uniform)")
    first.legend(ncols=2, loc="lower center", fontsize=8, frameon=False)
    names = []
    for row in part["overload"]:
        name, shares = row["lattice"], 100 * np.array(row["overloaded"])
        second.plot(row["radii"], shares, color=_COLOURS[name])
        names.append((shares[-1], name, _COLOURS[name]))
    second.axvline(1.0, color=INK, lw=1, ls=":")
    second.annotate("‖x‖ = γ", (1.0, 96), xytext=(-4, 0), textcoords="offset points", ha="right")
    dress(second, f"Where codebooks of R = {part['rate']:g} end", ylabel="overloaded samples, %")
    second.set_xlabel("distance of the input from the origin, ‖x‖/γ")
    name_lines(second, names)


def draw_total_error(part: Part, panels: Any) -> None:
    """Theorems III.1 and III.2: densities, and Kolmogorov distance against R."""
    first, second, third = panels
    shown, jopeq = part["densities"], LOOKS["jopeq"].colour
    styles = ((INK, "-"), (jopeq, "-"), (jopeq, ":"))
    for (label, values), (colour, dashes) in zip(shown["curves"].items(), styles, strict=True):
        first.plot(shown["x"], values, dashes, color=colour, lw=1.5, label=label)
    dress(first, f"Z, ε = {shown['epsilon']:g}", xlabel="total error, in scaled units")
    first.set(ylabel="density", ylim=(0, None))
    first.legend(fontsize=8, frameon=False)
    titles = {"line": "Z, against Laplace", "plane": "A2, against multivariate t"}
    for panel, (key, title) in zip((second, third), titles.items(), strict=True):
        names = []
        for epsilon in sorted({row["epsilon"] for row in part[key]}):
            line = [row for row in part[key] if row["epsilon"] == epsilon]
            x, y = ([row[name] for row in line] for name in ("rate", "kolmogorov"))
            panel.plot(x, y, "-", color=jopeq)
            fills = [jopeq if row["has_noise"] else PAGE for row in line]
            panel.scatter(x, y, s=26, c=fills, edgecolors=jopeq, marker="^", zorder=3)
            names.append((y[-1], f"ε = {epsilon:g}", jopeq))
        dress(panel, f"{title};\nhollow: no noise left", xlabel="rate R, bits per entry")
        panel.set_ylabel("distance, error to target")
        plain_log(panel, "y")
        panel.set_ylim(bottom=min(height for height, *_ in names) / 2)
        name_lines(panel, names)


def draw_noise_share(part: Part, panels: Any) -> None:
    """Theorem III.3: the noise's share of the variance, and the server's ε."""
    first, second = panels
    epsilons, rates = np.array(part["epsilons"]), np.log2(part["letters"])
    coarse, shares = np.array(part["coarseness"]), 100 * np.array(part["share"])
    exact = np.array([[np.inf if v is None else v for v in row] for row in part["exact"]])
    excess = exact / epsilons
    mesh: Any = {"shading": "nearest", "rasterized": True}  # thousands of cells, one small picture
    image = first.pcolormesh(epsilons, rates, shares, cmap="viridis", **mesh)
    first.figure.colorbar(
        image, ax=first, location="bottom", label="noise's share of the variance, %"
    )
    mesh |= {"cmap": "magma_r", "norm": LogNorm(1.0, 10.0)}
    image = second.pcolormesh(epsilons, rates, np.ma.masked_invalid(excess), **mesh)
    bar = second.figure.colorbar(image, ax=second, location="bottom", label="exact ε / ε asked for")
    bar.set_ticks([1, 1.5, 2, 3, 5, 10], labels=["1", "1.5", "2", "3", "5", "≥ 10"])
    lines = second.contour(epsilons, rates, np.minimum(excess, 1e3), [1.1, 1.5], colors=_ON_MAPS)
    second.clabel(lines, fmt=lambda level: f"×{level:g}", fontsize=9)
    second.set_facecolor("0.75")
    inside = [part["boundary"], coarse.max() + 1]
    for panel, colour in ((first, _LIGHT), (second, _DARK)):
        panel.contourf(epsilons, rates, coarse, inside, colors="none", hatches=["///"])
        panel.contour(epsilons, rates, coarse, inside[:1], colors=colour, linewidths=2)
        plain_log(panel, "x", [0.5, 1, 2, 4, 8])
        panel.set(xlim=(epsilons[0], epsilons[-1]), ylim=(rates[0], rates[-1]))
        panel.set(xlabel="ε asked for", ylabel="rate R, bits per entry")
    first.set_title("Hatched: √24 ≤ γε/2ᴿ, no noise at all", loc="left", fontsize=10)
    second.set_title("Hatched: ε = ∞", loc="left", fontsize=10)


_LIKE = ("response", "jopeq", "records")  # looks for three kinds of one scheme


def draw_aggregation(part: Part, panels: Any) -> None:
    """Theorem III.4: measured error and bound against K."""
    titles = ("Features of one size", "The j-th feature of size 1/j")
    for panel, features, title in zip(panels, FEATURES, titles, strict=True):
        shown = {(features, name, "equal") for name in SHOWN}
        rows = [r for r in part["rows"] if (r["features"], r["scheme"], r["weights"]) in shown]
        for row, like in zip(rows, _LIKE, strict=True):
            look, label = LOOKS[like], f"{row['scheme']} (slope {signed(row['slope'])})"
            style: Any = {"fmt": look.marker, "ms": 5, "color": look.colour}
            bars = SIGMAS * np.array(row["error"])
            panel.errorbar(row["counts"], row["measured"], yerr=bars, label=label, **style)
        for line, name, dashes in _LINES:
            panel.plot(rows[0]["counts"], rows[0][line], dashes, color=INK, lw=1.2, label=name)
        dress(panel, title, ylabel=r"$E\,\|\tilde{w} - w\|^2$")
        plain_log(panel, "x")
        plain_log(panel, "y")
        panel.legend(loc="lower left", fontsize=8, frameon=False)
    panel.figure.supxlabel("clients K", fontsize=10)


def draw_convergence(part: Part, panels: Any) -> None:
    """Theorem III.5: F(w_t) − F* of every problem, and the bounds."""
    places = [(name, split) for name in NAMES for split in SPLITS]
    for panel, place in zip(panels, places, strict=True):
        mine = [r for r in part["rows"] if (r["problem"], r["split"]) == place]
        rows = {r["scheme"]: r for r in mine if r["scheme"] in ("none", "jopeq", CLIPPED)}
        names = [_band(panel, row, scheme) for scheme, row in rows.items()]
        names += [_bound(panel, rows["jopeq"], *bound) for bound in _BOUNDS]
        dress(
            panel,
            f"{', '.join(place)}, ψ = {rows['jopeq']['gap']:.2g}",
            ylabel=r"$F(w_t) - F^\star$",
        )
        plain_log(panel, "x")
        plain_log(panel, "y")
        name_lines(panel, names)
    panel.figure.supxlabel("local step t", fontsize=10)


def _bound(panel: Any, row: Part, form: str, name: str, dashes: str) -> tuple[float, str, str]:
    panel.plot(row["times"], row[form], dashes, color=INK, lw=1.2)
    return row[form][-1], name, INK


def _band(panel: Any, row: Part, scheme: str) -> tuple[float, str, str]:
    """The mean of all seeds as a line, their range as a band; the name of the line."""
    colour = GREY if scheme == CLIPPED else look_of(scheme).colour
    panel.plot(row["times"], row["losses"], color=colour)
    panel.fill_between(row["times"], row["lowest"], row["highest"], color=colour, alpha=0.15, lw=0)
    name = "no coding" if scheme == "none" else scheme
    slope = f", slope {signed(row['slope'])}" if "slope" in row else ""
    return row["losses"][-1], name + slope, colour


Panels = tuple[int, float, bool]  # how many, inches of each, whether they share their axis
FIGURES: Mapping[str, tuple[str, Callable[[Part, Any], None], Panels]] = {
    "theory-dither": ("dither", draw_dither, (2, 3.4, False)),
    "theory-total-error": ("total_error", draw_total_error, (3, 3.0, False)),
    "theory-noise-share": ("noise_share", draw_noise_share, (2, 4.0, True)),
    "theory-aggregation": ("aggregation", draw_aggregation, (2, 3.6, True)),
    "theory-convergence": ("convergence", draw_convergence, (6, 2.4, True)),
}


def drawn(parts: Mapping[str, Part]) -> dict[Path, bytes]:
    """Every figure as the name and content of an SVG file."""
    files = {}
    for name, (part, draw, (count, height, shared)) in FIGURES.items():
        figure, panels = new_panels(count, height, sharex=shared)
        draw(parts[part], panels)
        files[Path(f"{name}.svg")] = svg(figure)
        files[Path(f"{name}-phone.svg")] = svg(stacked(figure))
    return files
