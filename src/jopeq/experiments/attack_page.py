"""The part of docs/results.md that shows Figures 4 to 6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jopeq.experiments.attack_cells import (
    COARSE,
    EARLY,
    FIG5_EPSILONS,
    FIGURES,
    ITERATIONS,
    Cell,
    fig4_cells,
    fig4_schemes,
    fig5_cells,
    fig6_schemes,
    figure_cells,
)
from jopeq.experiments.attack_figures import ATTACKS_FILE, PICTURES_FILE
from jopeq.experiments.attack_report import (
    attacks_markdown,
    fig4_epochs,
    fig5_attackers,
    found_for,
    recovered,
    save_fig4,
    save_fig5,
    save_fig6,
)
from jopeq.experiments.attack_runs import ORIGINALS, Attacked, read, read_pictures
from jopeq.experiments.attack_training import BATCH, LEARNING_RATE, MOMENTUM
from jopeq.experiments.page_words import short, table

_HEAD = """
## Figures 4 to 6: gradient inversion

LeNet with sigmoids, weights uniform in ±½, CIFAR-10, the gradient of one image at a time, the
first {images} training images, in {dtype} on {machines}. An iteration is 20
evaluations of the objective, as the DLG authors' code counts: at most {iterations} of
them.{waiting}
The paper's attack minimizes the squared distance of gradients, the true label given. SSIM has
windows of 7×7 pixels and data_range 1; an image with an SSIM above 0.5 counts as
recovered, intervals are 95%. A plain grey image reaches an SSIM of {grey_ssim:.2f} and an MSE of
{grey_mse:.3f}, which is what somebody who saw nothing would get. See also what these attacks
[can and cannot show](attacks.md#what-this-can-and-cannot-show).
"""

_FIG6 = """
### Figure 6: what is left of an image

`jopeq reproduce fig6 --data-dir DIR`. Weights as they are before training. The
[attacks](attacks.md#the-attacks) start near grey, and L-BFGS has a line search; *published*: from
N(0, 1) and without it, as in the DLG authors' code; *stopped early*: after {early} iterations.

{pictures}

{table}

From raw gradients {raw} of the {images} images are recovered. From the others:

{verdict}
"""

_FIG4 = """
### Figure 4: SSIM through training

`jopeq reproduce fig4 --data-dir DIR`. One client, lr {lr:g}, momentum {momentum:g}, batches of
{batch}; attacked at {epochs}. Line: mean over images; band: the middle half of them,
between the quartiles. A few images that are reconstructed much worse than the rest can pull the
mean out of the band. The curve of raw gradients on the right is that of the left: where the
gradient is exact nothing can be gained by knowing the scheme, and the adaptive attack on it was run
before training only.

![SSIM against the epoch]({figures}/fig4.png)

Mean SSIM, and the largest share recovered at any of the epochs:

{table}
"""

_FIG5 = """
### Figure 5: MSE against 2/ε

`jopeq reproduce fig5 --data-dir DIR`. The weaker the noise, the further to the left. Line: mean
over images; band: the middle half of them, between the quartiles, out of which a few images that
are reconstructed much worse than the rest can pull the mean. On the right: the ε of one entry
against the server, who knows the dither. Full points hold as drawn; hollow ones are those of the
law, of which no more than 48 scales are drawn, so that strictly none holds; × marks settings in
which no noise is added at all (Theorem III.3's regime).

![MSE against 2/ε]({figures}/fig5.png)

{saturation}

`jopeq` at R = 4 is flat, and at R = 8 from ε = 100 on: no noise is added there, and the
distortion is that of the cells. That `laplace` and R = 16 level off too, where little or no noise
is left, is not the noise's doing: entries beyond three times their root mean square are clipped, as
the mechanism needs it, and a squared distance takes the clipped ones at face value. Whoever knows
the scheme does not.
"""


def attack_section(results: Path, figures: Path, relative: str) -> str:
    """The section and its figures, of what ``results`` holds; empty where it holds nothing."""
    attacked = read(results / ATTACKS_FILE)
    if not attacked:
        return ""
    parts = [_head(attacked)]
    parts.append(_fig6(attacked, results / PICTURES_FILE, figures, relative))
    if len(fig4_epochs(attacked)) > 1:
        save_fig4(attacked, figures / "fig4.png")
        parts.append(_fig4(attacked, relative))
    if fig5_attackers(attacked):
        save_fig5(attacked, figures / "fig5.png")
        parts.append(_FIG5.format(figures=relative, saturation=_saturation(attacked)))
    return "".join(parts)


def _head(attacked: Sequence[Attacked]) -> str:
    most = max(one.images for one in attacked)
    shown = [one for one in attacked if one.images == most]
    machines = dict.fromkeys(
        f"{one.settings['device']} with PyTorch {one.settings['torch']}" for one in shown
    )
    return _HEAD.format(
        images=most,
        machines=" and ".join(machines),
        iterations=ITERATIONS,
        waiting=_waiting(shown),
        **{"grey_ssim": np.nan, "grey_mse": np.nan, **shown[-1].settings},
    )


def _waiting(attacked: Sequence[Attacked]) -> str:
    """Which attacks had less than the page says, and might have gained by more."""
    shown = (cell for name in FIGURES for cell in figure_cells(name))
    wanted = {cell.key: cell.config().iterations for cell in shown}
    short = [one for one in attacked if not one.is_final(wanted.get(one.key, 0))]
    if not short:
        return ""
    methods = ", ".join(dict.fromkeys(one.method for one in short))
    budgets = [one.iterations for one in short]
    had = " to ".join(map(str, sorted({min(budgets), max(budgets)})))
    return (
        f" **{len(short)} of {len(attacked)} attacks ({methods}) have had only {had} so far, and "
        "might gain by more.**"
    )


def _fig6(attacked: Sequence[Attacked], kept: Path, figures: Path, relative: str) -> str:
    by_cell = found_for(figure_cells("fig6"), attacked)
    raw = by_cell.get(Cell("raw", fig4_schemes()["raw"].spec).key)
    if raw is None:
        return ""
    pictures = read_pictures(kept)
    shown = []
    if ORIGINALS in pictures:
        for method in ("label", "adaptive"):
            name = f"fig6_{method}.png"
            if save_fig6(pictures[ORIGINALS], attacked, pictures, method, figures / name):
                shown.append(f"![The {method} attack, image by image]({relative}/{name})")
    return _FIG6.format(
        pictures="\n\n".join(shown),
        table=attacks_markdown(attacked),
        raw=recovered(raw),
        images=raw.images,
        early=EARLY,
        verdict=_verdict(by_cell),
    )


_WHO = {
    ("label", ""): "The paper's attack",
    ("label", "stopped early"): f"The same stopped after {EARLY} iterations",
    ("dlg", ""): "DLG",
    ("idlg", ""): "iDLG",
    ("inverting", ""): "Inverting gradients",
    ("adaptive", ""): "The adaptive attacker",
}


def _verdict(by_cell: dict[Any, Attacked]) -> str:
    """Who recovers what from what else was sent, in words, from the numbers."""
    words = []
    others = {label: scheme for label, scheme in fig6_schemes().items() if label != "raw"}
    for (method, variant), who in _WHO.items():
        cells = [Cell(label, scheme.spec, method, 0, variant) for label, scheme in others.items()]
        found = {cell.label: by_cell[cell.key] for cell in cells if cell.key in by_cell}
        hit = [f"{label} {recovered(one)}" for label, one in found.items() if recovered(one).hits]
        spared = [label for label, one in found.items() if not recovered(one).hits]
        if found:
            images = f" images from {'; '.join(hit)}" if hit else ""
            none = f"{', and' if hit else ''} none from {'; '.join(spared)}" if spared else ""
            words.append(f"- {who} recovers{images}{none}.")
    return "\n".join(words)


def _fig4(attacked: Sequence[Attacked], relative: str) -> str:
    epochs = fig4_epochs(attacked)
    is_all = epochs == list(range(epochs[-1] + 1))
    return _FIG4.format(
        lr=LEARNING_RATE,
        momentum=MOMENTUM,
        batch=BATCH,
        epochs=f"every epoch from 0 to {epochs[-1]}"
        if is_all
        else f"epochs {', '.join(map(str, epochs))}",
        figures=relative,
        table=_fig4_table(attacked),
    )


def _fig4_table(attacked: Sequence[Attacked]) -> str:
    """One row a curve, one column a coarse epoch."""
    found = found_for(fig4_cells(), attacked)
    epochs = [epoch for epoch in fig4_epochs(attacked) if epoch % COARSE == 0]
    rows = []
    for method in ("label", "adaptive"):
        for label, scheme in fig4_schemes().items():
            cells = [Cell(label, scheme.spec, method, epoch) for epoch in epochs]
            mine = [found.get(cell.key) for cell in cells]
            if not any(mine):
                continue
            curve = [one for key, one in found.items() if key[:2] == (scheme.spec, method)]
            most = max(map(recovered, curve), key=lambda share: share.value)
            means = (f"{np.mean(one.ssim):.3f}" if one else "–" for one in mine)
            rows.append((label, method, *means, str(most)))
    heads = (f"epoch {epoch}" for epoch in epochs)
    return table(("scheme", "attack", *heads, "recovered, at most"), rows)


def _saturation(attacked: Sequence[Attacked]) -> str:
    """The MSE at the smallest and the largest ε of every curve."""
    found = found_for(fig5_cells(), attacked)
    ends: dict[tuple[str, str], list[float]] = {}
    for cell in fig5_cells():
        if cell.key in found:
            curve = cell.label.rpartition(", ")[0]
            ends.setdefault((curve, cell.method), []).append(float(np.mean(found[cell.key].mse)))
    rows = [
        (curve, method, short(values[0]), short(values[-1]))
        for (curve, method), values in ends.items()
        if len(values) == len(FIG5_EPSILONS)
    ]
    return table(("curve", "attack", "MSE at the smallest ε", "MSE at the largest ε"), rows)
