"""The pictures of docs/concepts.md and docs/guarantees.md, from the library: ``make figures``.

Noise is drawn from a fixed key here, so that the same code draws the same pictures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from numpy.typing import NDArray

from jopeq import Lattice, scheme
from jopeq.analysis.drawing import new_figure, new_panels
from jopeq.analysis.exact import exact_epsilon, log_channel
from jopeq.analysis.theory import hexagon
from jopeq.noise import add_noise
from jopeq.privacy.guarantee import places_up
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.quantized import JoPEQ, SubtractiveDither
from jopeq.schemes.spread import best_spread, normalised_error

Array = NDArray[np.float64]

_SEED = b"jopeq: a dither for the pictures"
_KEY = b"jopeq: a noise for pictures only"
_EPSILON, _RATE = 4.0, 2.0
SPREADS = np.round(np.linspace(0.75, 4.5, 26), 2).tolist()
_SETTINGS: Any = {"font.size": 10, "axes.titlesize": 11, "svg.hashsalt": "jopeq"}


def draw_cells(figure: Any, draws: int = 1500) -> None:
    """One sample on A2: to its nearest point, with dither, and with noise as well."""
    noisy = JoPEQ(epsilon=6.0, rate=2.5, lattice=Lattice("A2"), clip=1.0)
    gamma = noisy.codebook.gamma
    quiet = SubtractiveDither(rate=2.5, lattice=Lattice("A2"), clip=1.0, gamma=gamma)
    book: Any = quiet.codebook
    sample = np.array([0.45, 0.3])
    dithers = quiet.dither(0, draws, SharedStream(_SEED))
    points = book.points(book.quantize(sample + dithers)[0])
    home = book.points(book.quantize(sample[None])[0])[0]
    chosen = _clearest(sample, dithers, points, home)
    moved, point = sample + dithers[chosen], points[chosen]
    decoded = point - dithers[chosen]
    panels = figure.subplots(1, 3)
    for panel in panels:
        for corner in book.codewords:
            cell = corner + hexagon(book.lattice.step)
            panel.add_patch(Polygon(cell, fill=False, ec="0.75", lw=0.8))
        panel.plot(*book.codewords.T, ".", color="0.45", ms=4)
        panel.add_patch(Circle((0, 0), 1.0, fill=False, ec="black", lw=1, ls="--"))
        panel.set(xlim=(-1.7, 1.7), ylim=(-1.9, 1.5), aspect="equal", xticks=[], yticks=[])
    first, second, third = panels
    for panel, *way in ((first, sample, home, home), (second, moved, point, decoded)):
        panel.plot(*way[0], "o", color="C0", ms=5)
        panel.annotate("", way[1], way[0], arrowprops={"arrowstyle": "->", "color": "C0"})
        panel.plot(*way[1], "s", color="C0", ms=7)
        panel.plot(*sample, "k+", ms=13, mew=2)
        panel.plot(*way[2], "x", color="C3", ms=9, mew=2)
    second.scatter(*(sample + dithers).T, s=2, color="C0", alpha=0.25, lw=0, rasterized=True)
    for end, start, colour in ((moved, sample, "C0"), (decoded, point, "C3")):
        second.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour})
    first.set_title("nearest point: the error depends on x")
    second.set_title("+ dither d, − d at the server")
    for coder, colour, alpha in ((noisy, "C1", 0.35), (quiet, "C3", 0.5)):
        streams: Any = {"seed": _SEED, "noise": PrivateStream.reproducible(_KEY)}
        many = coder.decode(coder.encode(np.tile(sample, (draws, 1)), **streams))
        third.scatter(*many.T, s=3, color=colour, alpha=alpha, lw=0, rasterized=True)
    third.plot(*sample, "k+", ms=13, mew=2)
    third.set_title(f"decoded {draws:,} times")
    _legend(first, {"x, the sample": "k+", "nearest codeword": "C0s", "decoded": "C3x"})
    _legend(second, {"x + d": "C0o", "any x + d": "C0.", "nearest": "C0s", "decoded": "C3x"})
    _legend(third, {"sdq": "C3o", f"jopeq, ε = {noisy.epsilon:g}": "C1o"})


def _clearest(sample: Array, dithers: Array, points: Array, home: Array) -> int:
    """The dither into another cell that leaves all that is drawn furthest apart."""
    still = np.broadcast_to(sample, points.shape)
    drawn = np.stack([still, sample + dithers, points, points - dithers])
    apart = np.linalg.norm(drawn[:, None] - drawn, axis=-1)
    closest = apart[np.triu_indices(len(drawn), 1)].min(axis=0)
    is_elsewhere = np.linalg.norm(points - home, axis=1) > 1e-9
    return int(np.argmax(np.where(is_elsewhere, closest, -1.0)))


def _legend(panel: Any, marks: Mapping[str, str]) -> None:
    handles = [
        Line2D([], [], color=mark[:-1], marker=mark[-1], ls="", label=name)
        for name, mark in marks.items()
    ]
    layout = {"borderpad": 0.3, "handletextpad": 0.1, "columnspacing": 1.0}
    panel.legend(handles=handles, fontsize=8, loc="lower center", ncols=len(marks), **layout)


def draw_pipeline(figure: Any) -> None:
    """Fig. 1 of the paper, with four numbers going through it."""
    steps = pipeline_steps()
    panel = figure.subplots()
    panel.set_axis_off()
    panel.set(xlim=(-0.05, len(steps) + 0.1), ylim=(-0.7, 1.5))
    round_box = "round,pad=0.02,rounding_size=0.05"
    for place, (side, title, formula, numbers, source) in enumerate(steps):
        ground = "#dbe7ff" if side == "client" else "#dff3df"
        box: Any = {"boxstyle": round_box, "fc": ground, "ec": "0.4"}
        panel.add_patch(FancyBboxPatch((place + 0.06, 0.0), 0.8, 1.0, **box))
        middle: Any = {"ha": "center", "va": "center"}
        panel.text(place + 0.46, 0.86, title, weight="bold", **middle)
        panel.text(place + 0.46, 0.64, formula, fontsize=9, **middle)
        for row, number in enumerate(numbers):
            digits: Any = {"family": "monospace", "fontsize": 8.5, **middle}
            panel.text(place + 0.46, 0.46 - 0.13 * row, number, **digits)
        if place + 1 < len(steps):
            arrow = {"arrowstyle": "-|>", "color": "0.3"}
            panel.annotate("", (place + 1.06, 0.5), (place + 0.87, 0.5), arrowprops=arrow)
        if source:
            colour = "C3" if "private" in source else "C0"
            arrow = {"arrowstyle": "-|>", "color": colour}
            style: Any = {"ha": "center", "fontsize": 8.5, "color": colour, "arrowprops": arrow}
            panel.annotate(source, (place + 0.46, -0.02), (place + 0.46, -0.5), **style)
    border = sum(step[0] == "client" for step in steps)
    panel.text(0.06, 1.22, f"client: scheme jopeq, ε = {_EPSILON:g}, R = {_RATE:g}", fontsize=10)
    panel.text(border + 0.06, 1.22, "server", fontsize=10)
    panel.plot([border - 0.035] * 2, [-0.62, 1.4], color="0.5", lw=1, ls=":")


def pipeline_steps() -> list[tuple[str, str, str, list[str], str]]:
    """Four numbers through ``jopeq``: side, title, formula, numbers and random bits of each step.

    Raises if the steps do not make the payload.
    """
    coder = JoPEQ(epsilon=_EPSILON, rate=_RATE)
    update = np.array([0.012, -0.031, 0.004, 0.02])
    unit = float(np.float32(coder.spread * float(np.linalg.norm(update)) / math.sqrt(len(update))))
    scaled = update / unit
    shared, private = SharedStream(_SEED), PrivateStream.reproducible(_KEY)
    dither = coder.dither(0, len(update), shared)[:, 0]
    letters = coder.to_letters(scaled[:, None], 0, shared, private).values
    assert coder.noise is not None
    noisy = add_noise(coder.noise, scaled[:, None], PrivateStream.reproducible(_KEY), 0)[:, 0]
    payload = coder.encode(update, seed=_SEED, noise=PrivateStream.reproducible(_KEY))
    decoded = coder.decode(payload)
    points = coder.codebook.points(letters)[:, 0]
    if not np.allclose((points - dither) * unit, decoded, rtol=1e-5, atol=1e-7):
        raise AssertionError("the steps that are shown do not make the payload that is sent")
    shared_bits, private_bits = "shared:\nfrom the seed", "private:\nfrom OS entropy"
    size = [f"{len(payload)} bytes", "with header", "and CRC"]
    return [
        ("client", "update", "h", _shown(update, 3), ""),
        ("client", "scale", f"x = h / {unit:.4f}", _shown(scaled, 2), ""),
        ("client", "+ noise", "x + n", _shown(noisy, 2), private_bits),
        ("client", "+ dither", "x + n + d", _shown(noisy + dither, 2), shared_bits),
        ("client", "nearest", "letter", [str(letter) for letter in letters], ""),
        ("client", "pack", f"{len(letters)}·{_RATE:g} bits", size, ""),
        ("server", "unpack", "point", _shown(points, 2), ""),
        ("server", "− dither", "point − d", _shown(points - dither, 2), shared_bits),
        ("server", "unscale", "h̃", _shown(decoded, 3), ""),
    ]


def _shown(values: Any, digits: int) -> list[str]:
    return [f"{value:+.{digits}f}".replace("-", "−") for value in values]


def draw_surface(
    figure: Any,
    epsilons: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
    rates: Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0),
) -> None:
    """The error at the centre of [−1, 1] over ε and R, for three schemes on one scale."""
    errors = {}
    for name in ("laplace+sdq", "jopeq", "response"):
        rows = [[scheme(name, epsilon=e, rate=r).distortion for e in epsilons] for r in rates]
        errors[name] = np.array(rows)
    panels = figure.subplots(1, len(errors), sharey=True)
    norm = LogNorm(min(e.min() for e in errors.values()), max(e.max() for e in errors.values()))
    places, levels = np.arange(len(epsilons)), [0.1, 0.3, 1.0, 3.0]
    for panel, (name, found) in zip(panels, errors.items(), strict=True):
        mesh: Any = {"shading": "nearest", "cmap": "viridis_r", "norm": norm, "rasterized": True}
        image = panel.pcolormesh(places, rates, found, **mesh)
        lines = panel.contour(places, rates, found, levels, colors="white", linewidths=1)
        panel.clabel(lines, fmt="%g", fontsize=8)
        panel.set_xticks(places, [f"{epsilon:g}" for epsilon in epsilons], fontsize=8)
        title = f"{name} (spends more than ε)" if name == "jopeq" else name
        panel.set(title=title, xlabel="ε asked for, per entry", yticks=rates)
    panels[0].set_ylabel("rate R, bits per entry")
    figure.colorbar(image, ax=panels, label="mean squared error, x = 0", pad=0.01)


def draw_server_view(figure: Any, dither: float = 0.1) -> None:
    """P(letter | x) for one known dither: compression alone, the paper's scheme, one whose ε holds.

    The server concludes x from a letter; the arrow shows by how much, which is e^ε.
    """
    inputs = np.linspace(-1.0, 1.0, 1601)  # finely: where a letter becomes impossible, curves jump
    panels = figure.subplots(1, 3, sharey=True)
    least = math.inf
    for panel, name in zip(panels, ("sdq", "jopeq", "response"), strict=True):
        coder = scheme(name, rate=_RATE, **({} if name == "sdq" else {"epsilon": _EPSILON}))
        exact, chances = exact_epsilon(coder), np.exp(log_channel(coder, dither, inputs))
        assert exact is not None
        least = min(least, chances[chances > 0].min())
        panel.set_yscale("log")
        for letter, line in enumerate(chances.T):
            panel.plot(inputs, line, color=f"C{letter}", label=f"{letter}")
        low, high = chances.min(axis=0), chances.max(axis=0)
        if low.min() > 0:  # the letter that tells the most, at the end where it is less likely
            letter = int(np.argmax(high / low))
            place = 1.06 if chances[-1, letter] < chances[0, letter] else -1.06
            style = {"arrowstyle": "<->", "color": f"C{letter}", "shrinkA": 0, "shrinkB": 0}
            panel.annotate("", (place, low[letter]), (place, high[letter]), arrowprops=style)
        held = "no ε" if math.isinf(exact.server) else f"ε = {places_up(exact.server)}"
        asked = "" if name == "sdq" else f" (asked for {_EPSILON:g})"
        panel.set(xlim=(-1.12, 1.12), title=f"{name}: {held}{asked}")
        panel.set_xlabel("x, the client's number")
        panel.grid(alpha=0.3)
    panels[0].set(ylim=(least / 30, 1.6), ylabel="P(letter | x), dither known")
    panels[0].legend(title="letter", fontsize=8, loc="lower center", ncols=4)


def save_spread(path: Path, clients: Sequence[int] = (1, 10, 100, 1000)) -> None:
    """Error against the spread: a curve for each number of clients, with a dot at its minimum."""
    subject = scheme("response", epsilon=_EPSILON, rate=_RATE)
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
    panel.set_title(f"response, ε = {_EPSILON:g}, R = {_RATE:g}, Gaussian updates")
    panel.grid(alpha=0.3, which="both")
    panel.legend()
    figure.savefig(path, dpi=150)


FIGURES: Any = {
    "concept-cells": (draw_cells, (10.5, 3.9)),
    "concept-pipeline": (draw_pipeline, (11.5, 3.2)),
    "concept-surface": (draw_surface, (11.5, 3.7)),
    "concept-server": (draw_server_view, (10.5, 3.5)),
}


def save_concepts(folder: Path) -> None:
    """Every figure as an SVG file."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_SETTINGS):
        for name, (draw, size) in FIGURES.items():
            figure = new_figure(size)
            draw(figure)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=200)


if __name__ == "__main__":
    save_concepts(Path(sys.argv[1]))
    save_spread(Path(sys.argv[1], "spread.png"))
