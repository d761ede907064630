"""The pictures of docs/entries.md and docs/guarantees.md, from the library: ``make figures``.

Noise is drawn from a fixed key here, so that the same code draws the same pictures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from numpy.typing import NDArray

from jopeq import scheme
from jopeq.analysis.exact import exact_epsilon, log_channel
from jopeq.entries.quantized import JoPEQ, SubtractiveDither
from jopeq.entries.spread import best_spread, normalised_error
from jopeq.lattice import Lattice
from jopeq.noise import add_noise
from jopeq.privacy.guarantee import places_up
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq_lab.pictures.colours import FAINT, GREY, INK, LOOKS, ORDERED, PAGE
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, plain_number, save

Array = NDArray[np.float64]

_SEED = b"jopeq: a dither for the pictures"
_KEY = b"jopeq: a noise for pictures only"
_EPSILON, _RATE = 4.0, 2.0
SPREADS = np.round(np.linspace(0.75, 4.5, 26), 2).tolist()
*_, _MOVED, _DECODED = ORDERED
_LIGHT = "#fefefe"  # on a coloured map, on a dark page too


def draw_cells(panels: Any, draws: int = 1500) -> None:
    """One sample on A2: to its nearest point, with dither, and with noise as well."""
    noisy = JoPEQ(epsilon=6.0, rate=2.5, lattice=Lattice("A2"), clip=1.0)
    gamma = noisy.codebook.gamma
    quiet = SubtractiveDither(rate=2.5, lattice=Lattice("A2"), clip=1.0, gamma=gamma)
    book: Any = quiet.codebook
    sample = np.array([0.45, 0.3])
    dithers = quiet.codec.dither(0, draws, SharedStream(_SEED))
    points = book.points(book.quantize(sample + dithers)[0])
    home = book.points(book.quantize(sample[None])[0])[0]
    chosen = _clearest(sample, dithers, points, home)
    moved, point = sample + dithers[chosen], points[chosen]
    decoded = point - dithers[chosen]
    angles = math.pi / 6 + math.pi / 3 * np.arange(6)
    hexagon = book.lattice.step / math.sqrt(3) * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    for panel in panels:
        for corner in book.codewords:
            panel.add_patch(Polygon(corner + hexagon, fill=False, ec=FAINT, lw=0.8))
        panel.plot(*book.codewords.T, ".", color=GREY, ms=4)
        panel.add_patch(Circle((0, 0), 1.0, fill=False, ec=INK, lw=1, ls="--"))
        panel.set(xlim=(-1.7, 1.7), ylim=(-1.8, 1.5), aspect="equal", xticks=[], yticks=[])
    first, second, third = panels
    for panel, *way in ((first, sample, home, home), (second, moved, point, decoded)):
        panel.plot(*way[0], "o", color=_MOVED, ms=5)
        panel.annotate("", way[1], way[0], arrowprops={"arrowstyle": "->", "color": _MOVED})
        panel.plot(*way[1], "s", color=_MOVED, ms=7)
        panel.plot(*sample, "+", color=INK, ms=13, mew=2)
        panel.plot(*way[2], "x", color=_DECODED, ms=9, mew=2)
    second.scatter(*(sample + dithers).T, s=2, color=_MOVED, alpha=0.25, lw=0, rasterized=True)
    for end, start, colour in ((moved, sample, _MOVED), (decoded, point, _DECODED)):
        second.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour})
    sdq, jopeq = LOOKS["sdq"].colour, LOOKS["jopeq"].colour
    for coder, colour, alpha in ((noisy, jopeq, 0.35), (quiet, sdq, 0.7)):
        streams: Any = {"seed": _SEED, "noise": PrivateStream.reproducible(_KEY)}
        many = coder.decode(coder.encode(np.tile(sample, (draws, 1)), **streams))
        third.scatter(*many.T, s=3, color=colour, alpha=alpha, lw=0, rasterized=True)
    third.plot(*sample, "+", color=INK, ms=13, mew=2)
    ends = {"nearest": (_MOVED, "s"), "decoded": (_DECODED, "x")}
    _legend(first, "Nearest point:\nits error depends on x", {"x, the sample": (INK, "+"), **ends})
    marks = {"x": (INK, "+"), "x + d": (_MOVED, "o"), "any x + d": (_MOVED, "."), **ends}
    _legend(second, "Add a dither d,\nand subtract it again", marks)
    marks = {"sdq": (sdq, "o"), f"jopeq, ε = {noisy.epsilon:g}": (jopeq, "o")}
    _legend(third, f"Decoded {draws:,} times", marks)


def _clearest(sample: Array, dithers: Array, points: Array, home: Array) -> int:
    """The dither into another cell that leaves all that is drawn furthest apart."""
    still = np.broadcast_to(sample, points.shape)
    drawn = np.stack([still, sample + dithers, points, points - dithers])
    apart = np.linalg.norm(drawn[:, None] - drawn, axis=-1)
    closest = apart[np.triu_indices(len(drawn), 1)].min(axis=0)
    is_elsewhere = np.linalg.norm(points - home, axis=1) > 1e-9
    return int(np.argmax(np.where(is_elsewhere, closest, -1.0)))


def _legend(panel: Any, title: str, marks: Mapping[str, tuple[str, str]]) -> None:
    """The title above the panel, and below it what its marks mean."""
    handles = [
        Line2D([], [], color=colour, marker=marker, ls="", label=name)
        for name, (colour, marker) in marks.items()
    ]
    panel.set_title(title, fontsize=10)
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 3, "fontsize": 9}
    panel.legend(handles=handles, frameon=False, columnspacing=0.6, handletextpad=0.2, **place)


def draw_pipeline(panels: Any) -> None:
    """Fig. 1 of the paper, with four numbers going through it."""
    steps = pipeline_steps()
    (panel,) = panels
    panel.set_axis_off()
    row = 0.5  # rows go down
    for place, (side, title, formula, numbers, source) in enumerate(steps):
        if place == 0 or side != steps[place - 1][0]:
            words = f"client: scheme jopeq, ε = {_EPSILON:g}, R = {_RATE:g}"
            panel.text(0.0, row, words if side == "client" else "server", va="center")
            panel.axhline(row - 0.3, color=GREY, lw=1, ls=":" if place else "")
            row += 0.3
        box: Any = {"boxstyle": "round,pad=0,rounding_size=0.02", "fc": PAGE, "ec": GREY}
        panel.add_patch(FancyBboxPatch((0.0, row), 0.76, 0.64, **box))
        middle = row + 0.32
        panel.text(0.02, middle, title, weight="bold", va="center")
        panel.text(0.17, middle, formula, fontsize=9, va="center")
        digits: Any = {"family": "monospace", "fontsize": 8.5, "va": "center", "ha": "center"}
        for column, number in enumerate(numbers):
            panel.text(0.42 + 0.097 * column, middle, number, **digits)
        if source:
            colour = _DECODED if "private" in source else _MOVED
            style: Any = {"va": "center", "fontsize": 8.5, "color": colour}
            style["arrowprops"] = {"arrowstyle": "-|>", "color": colour}
            panel.annotate(source, (0.765, middle), (0.82, middle), **style)
        row += 0.8
        if place + 1 < len(steps) and steps[place + 1][0] == side:
            arrow = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0}
            panel.annotate("", (0.07, row), (0.07, row - 0.16), arrowprops=arrow)
        elif place + 1 < len(steps):
            row += 0.4
    panel.set(xlim=(0.0, 1.0), ylim=(row, 0.2))


def pipeline_steps() -> list[tuple[str, str, str, list[str], str]]:
    """Four numbers through ``jopeq``: side, title, formula, numbers and random bits of each step.

    Raises if the steps do not make the payload.
    """
    coder = JoPEQ(epsilon=_EPSILON, rate=_RATE)
    update = np.array([0.012, -0.031, 0.004, 0.02])
    unit = float(np.float32(coder.spread * float(np.linalg.norm(update)) / math.sqrt(len(update))))
    scaled = update / unit
    shared, private = SharedStream(_SEED), PrivateStream.reproducible(_KEY)
    dither = coder.codec.dither(0, len(update), shared)[:, 0]
    letters = coder.codec.to_letters(scaled[:, None], 0, shared, private).values
    assert coder.noise is not None
    noisy = add_noise(coder.noise, scaled[:, None], PrivateStream.reproducible(_KEY), 0)[:, 0]
    payload = coder.encode(update, seed=_SEED, noise=PrivateStream.reproducible(_KEY))
    decoded = coder.decode(payload)
    points = coder.codebook.points(letters)[:, 0]
    if not np.allclose((points - dither) * unit, decoded, rtol=1e-5, atol=1e-7):
        raise AssertionError("the steps that are shown do not make the payload that is sent")
    shared_bits, private_bits = "shared:\nfrom the seed", "private:\nfrom OS entropy"
    packed = math.ceil(_RATE * len(update) / 8)
    size = f"{_RATE:g} bits each: {packed} byte; a header once a model"
    return [
        ("client", "update", "h", _shown(update, 3), ""),
        ("client", "scale", f"x = h / {unit:.4f}", _shown(scaled, 2), ""),
        ("client", "+ noise", "x + n", _shown(noisy, 2), private_bits),
        ("client", "+ dither", "x + n + d", _shown(noisy + dither, 2), shared_bits),
        ("client", "nearest", "letter", [str(letter) for letter in letters], ""),
        ("client", "pack", size, [], ""),
        ("server", "unpack", "point", _shown(points, 2), ""),
        ("server", "− dither", "point − d", _shown(points - dither, 2), shared_bits),
        ("server", "unscale", "h̃", _shown(decoded, 3), ""),
    ]


def _shown(values: Any, digits: int) -> list[str]:
    return [f"{value:+.{digits}f}".replace("-", "−") for value in values]


def draw_surface(
    panels: Any,
    epsilons: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
    rates: Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0),
) -> None:
    """The error at the centre of [−1, 1] over ε and R, for three schemes on one scale."""
    errors = {}
    for name in ("laplace+sdq", "jopeq", "response"):
        rows = [[scheme(name, epsilon=e, rate=r).distortion for e in epsilons] for r in rates]
        errors[name] = np.array(rows)
    norm = LogNorm(min(e.min() for e in errors.values()), max(e.max() for e in errors.values()))
    places, levels = np.arange(len(epsilons)), [0.1, 0.3, 1.0, 3.0]
    for panel, (name, found) in zip(panels, errors.items(), strict=True):
        mesh: Any = {"shading": "nearest", "cmap": "viridis_r", "norm": norm, "rasterized": True}
        image = panel.pcolormesh(places, rates, found, **mesh)
        lines = panel.contour(places, rates, found, levels, colors=_LIGHT, linewidths=1)
        panel.clabel(lines, fmt="%g", fontsize=8)
        panel.set_xticks(places, [f"{epsilon:g}" for epsilon in epsilons], fontsize=8)
        title = f"{name} (spends more than ε)" if name == "jopeq" else name
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_yticks(rates)
    figure = panel.figure
    figure.supxlabel("ε asked for, per entry", fontsize=10)
    figure.supylabel("rate R, bits per entry", fontsize=10)
    bar = figure.colorbar(image, ax=panels, label="mean squared error, x = 0", pad=0.01)
    bar.ax.yaxis.set_major_formatter(lambda value, _: plain_number(value))


def draw_server_view(panels: Any, dither: float = 0.1) -> None:
    """P(letter | x) for one known dither: compression alone, the paper's scheme, one whose ε holds.

    The server concludes x from a letter; the arrow shows by how much, which is e^ε.
    """
    inputs = np.linspace(-1.0, 1.0, 1601)  # finely: where a letter becomes impossible, curves jump
    least = math.inf
    for panel, name in zip(panels, ("sdq", "jopeq", "response"), strict=True):
        coder = scheme(name, rate=_RATE, **({} if name == "sdq" else {"epsilon": _EPSILON}))
        exact, chances = exact_epsilon(coder), np.exp(log_channel(coder, dither, inputs))
        assert exact is not None
        least = min(least, chances[chances > 0].min())
        for letter, line in enumerate(chances.T):
            panel.plot(inputs, line, color=ORDERED[letter], label=f"{letter}")
        low, high = chances.min(axis=0), chances.max(axis=0)
        if low.min() > 0:  # the letter that tells the most, at the end where it is less likely
            letter = int(np.argmax(high / low))
            place = 1.06 if chances[-1, letter] < chances[0, letter] else -1.06
            style = {"arrowstyle": "<->", "color": ORDERED[letter], "shrinkA": 0, "shrinkB": 0}
            panel.annotate("", (place, low[letter]), (place, high[letter]), arrowprops=style)
        held = "no ε" if math.isinf(exact.server) else f"ε = {places_up(exact.server)}"
        asked = "" if name == "sdq" else f" (asked for {_EPSILON:g})"
        dress(panel, f"{name}: {held}{asked}", xlim=(-1.12, 1.12))
        plain_log(panel, "y")
    panels[0].set_ylim(least / 30, 1.6)
    panels[0].legend(title="letter", fontsize=8, loc="lower center", ncols=4, frameon=False)
    panel.figure.supxlabel("x, the client's entry; the dither is known", fontsize=10)
    panel.figure.supylabel("P(letter | x)", fontsize=10)


def save_spread(path: Path, clients: Sequence[int] = (1, 10, 100, 1000)) -> None:
    """Error against the spread: a curve for each number of clients, with a dot at its minimum."""
    subject = scheme("response", epsilon=_EPSILON, rate=_RATE)
    figure, (panel,) = new_panels(1, 3.8)
    names = []
    for count, colour in zip(clients, ORDERED, strict=False):
        errors = [normalised_error(subject, spread, count) for spread in SPREADS]
        best = best_spread(subject, count)
        panel.plot(SPREADS, errors, color=colour)
        panel.plot([best], [normalised_error(subject, best, count)], "o", color=colour)
        names.append((errors[-1], f"{count:,} client{'s' if count > 1 else ''}", colour))
    panel.axvline(3.0, color=GREY, linewidth=1, linestyle=":")
    panel.annotate(" the paper's 3", (3.0, 0.98), xycoords=("data", "axes fraction"), va="top")
    dress(panel, f"response, ε = {_EPSILON:g}, R = {_RATE:g}, Gaussian updates", xlabel="spread")
    panel.set_ylabel("E‖mean − h‖² / ‖h‖²")
    plain_log(panel, "y")
    name_lines(panel, names)
    save(figure, path)


FIGURES: Any = {  # how many panels, inches of each, whether they share their vertical axis
    "concept-cells": (draw_cells, 3, 3.6, False),
    "concept-pipeline": (draw_pipeline, 1, 5.0, False),
    "concept-surface": (draw_surface, 3, 2.6, True),
    "concept-server": (draw_server_view, 3, 2.8, True),
}


def save_concepts(folder: Path) -> None:
    """Every figure as an SVG file."""
    for name, (draw, count, height, shared) in FIGURES.items():
        figure, panels = new_panels(count, height, sharey=shared)
        draw(panels)
        save(figure, folder / f"{name}.svg", phone=count > 1)


if __name__ == "__main__":
    save_concepts(Path(sys.argv[1]))
    save_spread(Path(sys.argv[1], "spread.svg"))
