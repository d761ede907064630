"""The kept results as data frames, and numbers as the pages write them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from jopeq.federated.runs import Job, Run, job_key, read, read_records, run_key

# Kept results


def frame_of(records: Iterable[Any]) -> pd.DataFrame:
    """One row a record, with its settings as columns of their own."""
    frame = pd.DataFrame([vars(record) for record in records])
    if frame.empty:
        return frame
    settings = pd.DataFrame(frame.pop("settings").tolist(), index=frame.index)
    return frame.join(settings[settings.columns.difference(frame.columns, sort=False)])


def frame_of_file(path: Path, kind: type[Any]) -> pd.DataFrame:
    """The records of a JSON Lines file."""
    return frame_of(read_records(path, kind))


def runs_of(jobs: Iterable[Job], *files: Path) -> pd.DataFrame:
    """The kept runs of some jobs, whatever their seeds, in the order of the jobs.

    Empty if a job has no run at all: a table with holes is not shown.
    """
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
    """20·log10 of the mean SNR, as in the paper's tables; infinite where nothing was lost."""
    return math.inf if snr.isna().any() else 20.0 * math.log10(snr.mean())


# Numbers on a page


def percents(accuracies: pd.Series) -> str:
    """Mean ± standard deviation over seeds, in percent; of one seed its value alone."""
    spread = f" ± {100 * accuracies.std():.2f}" if len(accuracies) > 1 else ""
    return f"{100 * accuracies.mean():.2f}{spread}"


def number(value: float | None, digits: int = 2) -> str:
    """With so many digits; ∞ and – where there is none.

    >>> number(1.256), number(float("inf")), number(None), number(float("nan"))
    ('1.26', '∞', '–', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{value:.{digits}f}"


def plain(value: float | None) -> str:
    """As short as it can be written; – where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:g}"


def signed(value: float, digits: int = 1) -> str:
    """With a true plus or minus sign; without one if it rounds to zero.

    >>> signed(-1.26), signed(0.04), signed(2)
    ('−1.3', '0.0', '+2.0')
    """
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def short(value: float) -> str:
    """Two digits; small and large numbers as powers of ten.

    >>> short(0.29), short(1.6e-5), short(12345.0)
    ('0.29', '1.6·10⁻⁵', '1.2·10⁴')
    """
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{raised}" if mantissa == "1.0" else f"{mantissa}·10{raised}"
    return f"{value:.2g}" if abs(value) < 100 else f"{value:,.0f}"


def code(label: str) -> str:
    """A row's label with the scheme's name as code.

    >>> code("response, R=2, spread auto")
    '`response`, R=2, spread auto'
    """
    name, comma, rest = label.partition(",")
    return f"`{name}`{comma}{rest}"


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table of a frame of texts, without its index."""
    rows = [frame.columns, ["---"] * frame.shape[1], *frame.itertuples(index=False)]
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([lines[0], lines[1].replace(" ", ""), *lines[2:]])
