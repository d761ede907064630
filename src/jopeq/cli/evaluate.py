"""``jopeq evaluate``: the quality of a fitted model on tables, one file per hospital."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jopeq.cli.options import AsJson, Colluding, Delta, PerPerson, Plot, Tables, Threshold
from jopeq.cli.output import explain_errors, print_result
from jopeq.models import Category, Fit
from jopeq.models import evaluate as evaluate_fit


def evaluate(
    model: Annotated[Path, typer.Argument(help="file that jopeq fit --out has saved")],
    files: Tables,
    records: Annotated[int, typer.Option(help="public estimate of all records")],
    epsilon: Annotated[float, typer.Option(help="ε of one record, on top of the fit's")],
    cut: Annotated[float, typer.Option(help="predict the outcome from this chance on")] = 0.5,
    by: Annotated[
        str | None, typer.Option(help="also by group: 'COLUMN LEVEL LEVEL …', such as 'sex F M'")
    ] = None,
    delta: Delta = 1e-5,
    threshold: Threshold = 3,
    colluding: Colluding = 1,
    hospitals_per_person: PerPerson = 1,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """AUC, calibration, sensitivity and more of a classifier, from one private sum.

    All files are read in this process. Use records that the model was not fitted to.
    """
    with explain_errors("MODEL or --plot"):
        column, *levels = (by or "").split() or [""]
        found = evaluate_fit(
            Fit.load(model), files, epsilon=epsilon, delta=delta, records=records,
            threshold=threshold, cut=cut, by=Category(column, levels) if by else None,
            colluding=colluding, hospitals_per_person=hospitals_per_person,
        )  # fmt: skip
        print_result(found, as_json, plot)
