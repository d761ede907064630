"""Runs of one setting with several seeds, put together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jopeq.experiments.runs import Run


@dataclass(frozen=True)
class OverSeeds:
    """Mean and standard deviation over seeds; printed in percent, of one seed its value alone."""

    mean: float
    deviation: float
    count: int

    def __str__(self) -> str:
        spread = f" ± {100 * self.deviation:.2f}" if self.count > 1 else ""
        return f"{100 * self.mean:.2f}{spread}"


def over_seeds(values: Sequence[float]) -> OverSeeds:
    """Of some values; the deviation of one value is 0."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return OverSeeds(statistics.fmean(values), spread, len(values))


def decibels(runs: Iterable[Run]) -> float | None:
    """20·log10 of the mean SNR, as in the paper's tables; None when nothing was lost."""
    values = [run.snr for run in runs]
    if not values or None in values:
        return None
    return 20.0 * math.log10(statistics.fmean(value for value in values if value is not None))


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Runs by key, in the order they come."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups
