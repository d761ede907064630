"""What docs/results.md says of the MNIST runs in words, from their numbers."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence

from jopeq.experiments.mnist import AUTHORS_CODE, MODELS
from jopeq.experiments.mnist_report import fig2_place
from jopeq.experiments.page_words import reflow
from jopeq.federated.runs import Run, grouped, over_seeds

_WIDTH = 104  # of the page's lines


def above_the_code(runs: Sequence[Run], model: str) -> list[float]:
    """Points by which each row that the authors' code has is above its single run, ascending."""
    column = MODELS.index(model)
    rows = grouped((run for run in runs if run.model == model), lambda run: run.label)
    return sorted(
        100 * (statistics.fmean(run.test_accuracy for run in rows[label]) - theirs[column])
        for label, theirs in AUTHORS_CODE.items()
        if label in rows
    )


def mlp_words(runs: Sequence[Run]) -> str:
    """By how much the MLP is better, if all of its rows are."""
    gaps = above_the_code(runs, "mlp")
    if not gaps or gaps[0] <= 0.0:
        return ""
    return _item(
        f"Our MLP is {gaps[0]:.1f} to {gaps[-1]:.1f} points better than the code's, with the same "
        "layers (32 and 16 units): inputs here are in [0, 1] and the initialisation is PyTorch's; "
        "which of the two does it was not traced further."
    )


def cnn_words(runs: Sequence[Run]) -> str:
    """By how much the CNN is worse, if all of its rows are, and what that is worth."""
    gaps = above_the_code(runs, "cnn")
    groups = grouped((run for run in runs if run.model == "cnn"), lambda run: run.label).values()
    cells = [over_seeds([run.test_accuracy for run in group]) for group in groups]
    repeated = [cell for cell in cells if cell.count > 1]
    if not gaps or gaps[-1] >= 0.0 or not repeated:
        return ""
    deviation = 100 * math.sqrt(statistics.fmean(cell.deviation**2 for cell in repeated))
    error = deviation * math.sqrt(1 + 1 / min(cell.count for cell in repeated))
    far = sum(-gap > 2 * error for gap in gaps)
    alone = (
        f"{far} of them stand out alone, for a reason that was not traced."
        if far
        else f"no row stands out alone, but {len(gaps)} of {len(gaps)} on one side, "
        f"{-statistics.fmean(gaps):.2f} on average, hints at a small difference that was not "
        "traced."
    )
    return _item(
        f"The CNN is below the single run of the code in all {len(gaps)} rows, by {-gaps[-1]:.2f} "
        f"to {-gaps[0]:.2f} points. The standard error of one such difference is about "
        f"{error:.2f} points ({deviation:.2f} between our seeds), so {alone}"
    )


def clamped_words(runs: Sequence[Run]) -> str:
    """Where Figure 2 has ``staircase`` clamped, its entropy being above the rate."""
    places = sorted(
        {
            (place.epsilon, place.rate)
            for run in runs
            if (place := fig2_place(run.label)) is not None
            and place.name == "staircase"
            and json.loads(run.scheme)[1]["coding"] == "fixed"
        }
    )
    shown = [f"ε = {epsilon:g}, R = {rate:g}" for epsilon, rate in places]
    return f"; clamped to R bits at {' and '.join(shown)}" if shown else ""


def used_words(runs: Sequence[Run]) -> str:
    """How many bits are used of the largest rate of Figure 2."""
    placed = [(place, run) for run in runs if (place := fig2_place(run.label)) is not None]
    most = max((place.rate for place, _ in placed), default=0.0)
    words = []
    for name, verb in (("staircase", "stops using more than"), ("response", "more than")):
        bits = [
            run.bits_per_parameter
            for place, run in placed
            if (place.name, place.rate) == (name, most)
        ]
        if bits:
            ends = dict.fromkeys((f"{min(bits):.1f}", f"{max(bits):.1f}"))
            words.append(f"`{name}` {verb} {' to '.join(ends)} bits")
    return f": {', '.join(words)}, headers included" if len(words) == 2 else ""


def last_spread(runs: Sequence[Run]) -> float:
    """Points between the best and the worst curve of Figure 3 after the last round."""
    groups = grouped(runs, lambda run: run.label).values()
    ends = [statistics.fmean(run.validation[-1] for run in group) for group in groups]
    return 100 * (max(ends) - min(ends))


def _item(text: str) -> str:
    return reflow(f"- {text}", _WIDTH) + "\n"
