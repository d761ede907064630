"""Table II and its curves, from the runs that were kept."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jopeq.experiments.cifar import (
    AUTHORS_CODE,
    CLIENTS,
    COLUMNS,
    LEARNING_RATE,
    PAPER,
    as_in_the_code,
    schemes_at,
)
from jopeq.experiments.cifar_rates import accuracy_after, best_rate, whole_rates
from jopeq.experiments.drawing import draw_mean_and_range, new_figure
from jopeq.experiments.page_words import table
from jopeq.experiments.snr_conventions import Conventions
from jopeq.federated.runs import Run, decibels, grouped, over_seeds

_CODE = "as the code quantizes"
_SAMPLES = {1: "an entry", 2: "a pair"}  # what an ε is of


def shown(runs: Sequence[Run]) -> list[Run]:
    """The runs of as many rounds as most have at the same rate."""
    found = []
    for mine in grouped(runs, lambda run: run.settings["lr"]).values():
        counts = Counter(run.rounds for run in mine)
        rounds = max(counts, key=lambda rounds: (counts[rounds], rounds))
        found += [run for run in mine if run.rounds == rounds]
    return found


def table2_markdown(runs: Sequence[Run]) -> str:
    """One table a column of the paper's: paper and ours side by side."""
    seeds = max(len({run.seed for run in group}) for group in _cells(runs).values())
    return "\n\n".join(_column(runs, number, seeds) for number in range(len(COLUMNS)))


def _cells(runs: Sequence[Run]) -> dict[Any, list[Run]]:
    return grouped(runs, lambda run: (run.label, run.scheme, run.settings["lr"]))


def _column(runs: Sequence[Run], number: int, seeds: int) -> str:
    rate, epsilon = COLUMNS[number]
    cells = _cells(runs)
    head = (
        *("scheme", f"accuracy: paper / ours, lr {LEARNING_RATE:g}", "best lr"),
        *("SNR dB: paper / ours", "bits per parameter", "ε asked", "ε proven"),
    )
    rows = []
    for label, coder in schemes_at(rate, epsilon).items():
        mine = cells.get((label, coder.spec, LEARNING_RATE))
        if not mine:
            continue
        theirs = _of_paper(label, number)
        paper, paper_snr = (
            ("–", "–") if theirs is None else (f"{100 * theirs[0]:.0f}", _decibels(theirs[1]))
        )
        first, length = mine[0], coder.dimension
        rows.append(
            (
                _named(label),
                f"{paper} / **{_accuracy(mine, seeds)}**",
                _best_rate(label, coder.spec, cells, seeds),
                f"{paper_snr} / {_snr(mine)}",
                f"{first.bits_per_parameter:.2f}",
                "–" if first.nominal is None else f"{first.nominal:g}",
                "none" if first.epsilon is None else f"{first.epsilon:.2f} {_SAMPLES[length]}",
            )
        )
    return f"**R = {rate:g}, ε = {epsilon:g}**\n\n{table(head, rows)}"


def _of_paper(label: str, number: int) -> tuple[float, float] | None:
    """Table II has the published (s², ν), and no word on the number of points."""
    name = label.removesuffix(", published")
    is_theirs = label in ("none", "sdq") or label != name
    return PAPER[name][number] if is_theirs and name in PAPER else None


def _accuracy(runs: Sequence[Run], seeds: int) -> str:
    cell = over_seeds([run.test_accuracy for run in runs])
    text = str(cell)
    if cell.count < seeds:
        text += f" ({cell.count} of {seeds} seeds)"
    diverged = sum(run.diverged is not None for run in runs)
    return text + (f", {diverged} diverged" if diverged else "")


def _best_rate(label: str, spec: str, cells: dict[Any, list[Run]], seeds: int) -> str:
    """The best rate, and what its runs reach."""
    mine = {lr: group for (*row, lr), group in cells.items() if row == [label, spec]}
    best = best_rate([run for group in mine.values() for run in group])
    if best is None:
        return "–"
    if best == LEARNING_RATE:
        return f"{LEARNING_RATE:g}"
    rounds = mine[best][0].rounds
    is_short = rounds < mine[LEARNING_RATE][0].rounds
    return f"{best:g}: {_accuracy(mine[best], seeds)}" + (f", {rounds} rounds" * is_short)


def _named(label: str) -> str:
    """`scheme`, and what is said of it."""
    name, comma, rest = label.partition(",")
    return f"`{name}`{comma}{rest}"


def _snr(runs: Sequence[Run]) -> str:
    """Of the mean over seeds, and by how much seeds differ."""
    mean = decibels(runs)
    if mean is None:
        return _decibels(math.inf)
    of_seeds = [found for run in runs if (found := decibels([run])) is not None]
    spread = f" ± {statistics.stdev(of_seeds):.2f}" if len(of_seeds) > 1 else ""
    return _decibels(mean) + spread


def _decibels(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}"


# Beside the authors' code


def authors_markdown(runs: Sequence[Run]) -> str:
    """R = 1, ε = 3: after as many rounds as the authors' code was run."""
    both = "authors' code / ours"
    rows = []
    for name, label, mine in _beside(runs):
        rounds, accuracy, snr = AUTHORS_CODE[name]
        ours = over_seeds([accuracy_after(run, rounds) for run in mine])
        accuracies = f"{100 * accuracy:.1f} / **{ours}**"
        rows.append((_named(label), str(rounds), accuracies, f"{_decibels(snr)} / {_snr(mine)}"))
    return table(("scheme", "rounds", f"accuracy: {both}", f"SNR dB: {both}"), rows)


def verdict(runs: Sequence[Run]) -> str:
    """Which rows reach the authors' code after as many rounds, and which do not."""
    better, worse = [], []
    for name, label, mine in _beside(runs):
        rounds, accuracy, _ = AUTHORS_CODE[name]
        ours = statistics.fmean(accuracy_after(run, rounds) for run in mine)
        if ours >= accuracy:
            better.append(_named(label))
        else:
            words = f"{_named(label)} ({100 * (ours - accuracy):+.1f} points)"
            worse.append(words + _fewer_points() if label.endswith("published") else words)
    sentences = []
    if better:
        sentences.append(f"At least as accurate as the code: {'; '.join(better)}.")
    if worse:
        sentences.append(f"Below the code: {'; '.join(worse)}.")
    return " ".join(sentences)


def _fewer_points() -> str:
    rate, _ = COLUMNS[-1]
    ours, theirs = 2 ** (2 * rate), (2**rate + 1) ** 2
    return f", which has {ours:g} points where the code has {theirs:g}"


def _beside(runs: Sequence[Run]) -> list[tuple[str, str, list[Run]]]:
    """(the code's name, our label, our runs) of what both have."""
    rows = schemes_at(*COLUMNS[-1])
    found = []
    for name in AUTHORS_CODE:
        honest = name if name == "none" else f"{name}, published"
        wanted = [(honest, rows[honest])]
        if name != "none":
            wanted.append((f"{honest}, {_CODE}", as_in_the_code(rows[honest])))
        for label, coder in wanted:
            mine = _cells(runs).get((label, coder.spec, LEARNING_RATE))
            rounds, *_ = AUTHORS_CODE[name]
            if mine and all(run.test is not None and run.rounds >= rounds for run in mine):
                found.append((name, label, mine))
    return found


# SNR


def conventions_markdown(rows: Sequence[Conventions]) -> str:
    """The paper's SNRs, and how they become ours."""
    steps = ("as in the code", "one scale, one SNR", "γ of the text", "our points", "at R bits")
    lines = []
    for row in rows:
        values = (row.paper, row.code, row.whole, row.text, row.points, row.bits)
        place = (f"`{row.scheme}`", f"{row.rate:g}", f"{row.epsilon:g}")
        lines.append((*place, *(f"{value:.2f}" for value in values)))
    return table(("scheme", "R", "ε", "paper", *steps), lines)


def largest_gap(rows: Sequence[Conventions]) -> float:
    """Between the paper's SNRs and those of its quantizer on Gaussian tensors, in dB."""
    return max(abs(row.paper - row.code) for row in rows)


# The curves


def save_table2(runs: Sequence[Run], path: Path) -> None:
    """Validation accuracy against rounds at the last column: a row of panels a learning rate."""
    column = COLUMNS[-1]
    rows = schemes_at(*column)
    cells = _cells(runs)
    published = [label for label in rows if label in ("none", "sdq") or "published" in label]
    ours = ["none", *(label for label in rows if label not in published)]
    parts = {"the paper's rows": published, "corrected, and ours": ours}
    rates = whole_rates(runs)
    figure = new_figure((11.0, 0.6 + 3.8 * len(rates)))
    panels = figure.subplots(len(rates), 2, squeeze=False, sharex=True, sharey=True)
    for lr, row in zip(rates, panels, strict=True):
        for panel, (title, labels) in zip(row, parts.items(), strict=True):
            groups = [cells.get((label, rows[label].spec, lr), []) for label in labels]
            _draw_curves(panel, dict(zip(labels, groups, strict=True)))
            panel.set_title(f"{title}, lr {lr:g}", fontsize=10)
        row[0].set_ylabel("validation accuracy")
    for panel in panels[-1]:
        panel.set_xlabel("round")
    rate, epsilon = column
    figure.suptitle(f"CIFAR-10, {CLIENTS} clients, R = {rate:g}, ε = {epsilon:g}", fontsize=11)
    figure.savefig(path, dpi=150)


def _draw_curves(panel: Any, groups: dict[str, list[Run]]) -> None:
    for index, (label, group) in enumerate(groups.items()):
        if group:
            # a run that diverged has fewer rounds
            rounds = list(zip(*(run.validation for run in group), strict=False))
            draw_mean_and_range(panel, rounds, color=f"C{index}", label=label, linewidth=1.3)
    panel.set_ylim(0.05, 0.8)
    panel.grid(alpha=0.3)
    if panel.lines:
        panel.legend(fontsize=7, loc="lower right")
