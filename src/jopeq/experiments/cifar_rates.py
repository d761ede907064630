"""Table II's learning rates: which is better than the paper's, and what changes to the end."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from jopeq.experiments.cifar import COLUMNS, GRID, LEARNING_RATE, schemes_at
from jopeq.experiments.page_words import counted, signed
from jopeq.federated.runs import Run, grouped


def accuracy_after(run: Run, rounds: int) -> float:
    """Test accuracy of the best validation round among the first ``rounds``."""
    if run.test is None:
        if rounds >= run.rounds:
            return run.test_accuracy
        raise ValueError(f"{run.label}, seed {run.seed}: it was not tested after every round")
    first = run.validation[:rounds]
    return run.test[first.index(max(first))]


def whole_rates(runs: Sequence[Run]) -> list[float]:
    """The paper's rate, and those with as many rounds."""
    papers = {run.rounds for run in runs if run.settings["lr"] == LEARNING_RATE}
    others = {run.settings["lr"] for run in runs if run.rounds in papers} - {LEARNING_RATE}
    return [LEARNING_RATE, *sorted(others)]


def best_rate(runs: Sequence[Run]) -> float | None:
    """Of one scheme's runs: the rate of the best validation accuracy; None without a choice."""
    gains = _beside_papers(runs)
    if not gains:
        return None
    best = max(gains, key=lambda lr: gains[lr])
    return best if gains[best] > (0.0, 0.0) else LEARNING_RATE


def rates_verdict(runs: Sequence[Run]) -> str:
    """What each rate of the grid did beside the paper's."""
    rows = grouped(runs, lambda run: (run.label, run.scheme)).values()
    by_row = [_beside_papers(group) for group in rows]
    sentences = []
    for lr in GRID:
        tried = [row[lr] for row in by_row if lr in row]
        if not tried:
            continue
        gains = [100 * gain[1] for gain in tried if gain > (0.0, 0.0)]
        words = f"{lr:g}{_shorter(runs, lr)} is better in {len(gains)} of {len(tried)} schemes"
        if gains:
            words += f" (test accuracy {min(gains):+.1f} to {max(gains):+.1f} points)"
        diverged = sum(run.settings["lr"] == lr and run.diverged is not None for run in runs)
        sentences.append(words + (f", and {diverged} diverged" if diverged else ""))
    return f"Beside lr {LEARNING_RATE:g}: {'; '.join(sentences)}." if sentences else ""


def _shorter(runs: Sequence[Run], lr: float) -> str:
    """What a rate has less of than the paper's: rounds and seeds."""
    if lr in whole_rates(runs):
        return ""
    mine = [run for run in runs if run.settings["lr"] == lr]
    rounds = max(run.rounds for run in mine)
    return f" ({rounds} rounds, {counted(len({run.seed for run in mine}), 'seed')})"


def _beside_papers(runs: Sequence[Run]) -> dict[float, tuple[float, float]]:
    """By other rates: validation and test accuracy above the paper's rate, after as many rounds.

    Means over the seeds that both rates have.
    """
    by_rate = grouped(runs, lambda run: run.settings["lr"])
    papers = {run.seed: run for run in by_rate.pop(LEARNING_RATE, [])}
    gains = {}
    for lr, mine in by_rate.items():
        pairs = [_gain(run, papers[run.seed]) for run in mine if run.seed in papers]
        if pairs:
            validation, test = zip(*pairs, strict=True)
            gains[lr] = (statistics.fmean(validation), statistics.fmean(test))
    return gains


def _gain(run: Run, paper: Run) -> tuple[float, float]:
    rounds = min(run.rounds, paper.rounds)
    best, of_paper = (max(one.validation[:rounds]) for one in (run, paper))
    return best - of_paper, accuracy_after(run, rounds) - accuracy_after(paper, rounds)


def calibration_verdict(runs: Sequence[Run]) -> str:
    """What ``jopeq`` loses when its noise is calibrated to the ε that is asked for."""
    at_papers, at_best = [], []
    for column in COLUMNS:
        rows = schemes_at(*column)
        found = []
        for label in ("jopeq, published", "jopeq"):
            mine = [run for run in runs if (run.label, run.scheme) == (label, rows[label].spec)]
            by_rate = grouped(mine, lambda run: run.settings["lr"])
            best = best_rate(mine)
            if best is None:
                return ""
            found.append([_mean_accuracy(by_rate[lr]) for lr in (LEARNING_RATE, best)])
        published, corrected = found
        at_papers.append(100 * (corrected[0] - published[0]))
        at_best.append(100 * (corrected[1] - published[1]))
    return (
        "`jopeq` calibrated to the ε that is asked for, against the published parameters: "
        f"{_listed(at_papers)} points in the three columns at lr {LEARNING_RATE:g}, "
        f"{_listed(at_best)} at the best lr of each."
    )


def _mean_accuracy(runs: Sequence[Run]) -> float:
    return statistics.fmean(run.test_accuracy for run in runs)


def _listed(numbers: Sequence[float]) -> str:
    *first, last = (signed(number, 1) for number in numbers)
    return f"{', '.join(first)} and {last}"


def rising(runs: Sequence[Run]) -> str:
    """By how much the rows still change at the end, at each rate of as many rounds."""
    words = []
    for lr in whole_rates(runs):
        changes = last_changes(runs, lr)
        if changes:
            middle = statistics.median(changes)
            words.append(
                f"{middle:+.1f} points in the median row at lr {lr:g} "
                f"({changes[0]:+.1f} to {changes[-1]:+.1f} in all rows)"
            )
    return ", ".join(words)


def last_changes(runs: Sequence[Run], lr: float, rounds: int = 10) -> list[float]:
    """Points by which each row's last rounds are above those before in validation, ascending."""
    whole = [
        run
        for run in runs
        if run.settings["lr"] == lr and len(run.validation) == run.rounds >= 2 * rounds
    ]
    return sorted(
        100
        * statistics.fmean(
            statistics.fmean(run.validation[-rounds:])
            - statistics.fmean(run.validation[-2 * rounds : -rounds])
            for run in group
        )
        for group in grouped(whole, lambda run: (run.label, run.scheme)).values()
    )
