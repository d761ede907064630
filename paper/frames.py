"""The kept training runs as data frames."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from paper.kept_runs import Job, Run, job_key, read, run_key


def frame_of(records: Iterable[Any]) -> pd.DataFrame:
    """One row a record, with its settings as columns of their own."""
    frame = pd.DataFrame([vars(record) for record in records])
    if frame.empty:
        return frame
    settings = pd.DataFrame(frame.pop("settings").tolist(), index=frame.index)
    return frame.join(settings[settings.columns.difference(frame.columns, sort=False)])


def runs_of(jobs: Iterable[Job], *files: Path) -> pd.DataFrame:
    """The kept runs of some jobs, whatever their seeds, in the order of the jobs.

    Empty if a job has no run at all: a table with holes is not shown.
    """
    if not any(file.exists() for file in files):
        return pd.DataFrame()  # making the jobs' schemes takes a while
    order = {_without_seed(job_key(job)): None for job in jobs}
    found: dict[tuple[Any, ...], dict[int, Run]] = {key: {} for key in order}
    for run in (run for file in files for run in read(file)):
        key = _without_seed(run_key(run))
        if key in found:
            found[key].setdefault(run.seed, run)
    if not all(found.values()):
        return pd.DataFrame()
    return frame_of(run for seeds in found.values() for _, run in sorted(seeds.items()))


def _without_seed(key: tuple[Any, ...]) -> tuple[Any, ...]:
    label, spec, model, data, _, *rest = key
    return label, spec, model, data, *rest


def decibels(snr: pd.Series) -> float:
    """20·log10 of the mean SNR, as the authors' code prints it; infinite where nothing was lost."""
    return math.inf if snr.isna().any() else 20.0 * math.log10(snr.mean())
