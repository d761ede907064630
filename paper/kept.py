"""All kept results behind docs/results.md, section by section."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paper import cifar, mnist, snr
from paper.attack_tables import attacks_of
from paper.attacks import ATTACKS_FILE, PICTURES_FILE, read_pictures
from paper.frames import frame_of, runs_of
from paper.kept_runs import read_records

SECTIONS = (
    *("table1", "table1_code", "fig2", "fig3", "table2", "longer", "snr"),
    *("fig4", "repository", "fig5", "fig6"),
)


@dataclass(frozen=True)
class Results:
    """One frame a section; empty where not all of its runs are kept."""

    table1: pd.DataFrame
    table1_code: pd.DataFrame
    fig2: pd.DataFrame
    fig3: pd.DataFrame
    table2: pd.DataFrame
    longer: pd.DataFrame
    snr: pd.DataFrame
    fig4: pd.DataFrame
    repository: pd.DataFrame
    fig5: pd.DataFrame
    fig6: pd.DataFrame
    pictures: dict[str, NDArray[np.uint8]]

    @property
    def sections(self) -> list[str]:
        """The names of those that can be shown."""
        return [name for name in SECTIONS if not getattr(self, name).empty]


def read_results(folder: Path) -> Results:
    """All that is kept in a folder."""
    table1, attacks = folder / "table1.jsonl", folder / ATTACKS_FILE
    return Results(
        table1=runs_of(mnist.own_jobs(count=1), table1),
        table1_code=runs_of(mnist.code_jobs(count=1), table1),
        fig2=runs_of(mnist.fig2_jobs(), folder / "fig2.jsonl"),
        fig3=runs_of(mnist.fig3_jobs(count=1), table1, folder / "fig3.jsonl"),
        table2=runs_of(cifar.table2_jobs(count=1), folder / "table2.jsonl"),
        longer=runs_of(cifar.longer_jobs(), folder / "table2.jsonl"),
        snr=frame_of(read_records(folder / snr.FILE, snr.Conventions)),
        fig4=attacks_of("fig4", attacks),
        repository=attacks_of("repository", attacks),
        fig5=attacks_of("fig5", attacks),
        fig6=attacks_of("fig6", attacks),
        pictures=read_pictures(folder / PICTURES_FILE),
    )
