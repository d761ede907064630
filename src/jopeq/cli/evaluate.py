"""``jopeq evaluate``: how good a fitted model is on tables, one file a hospital."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jopeq.cli.options import AsJson, Colluding, Delta, Tables, Threshold
from jopeq.cli.output import explain_errors, print_json
from jopeq.models import Fit
from jopeq.models import evaluate as evaluate_fit
from jopeq.statistics import Category


def evaluate(
    model: Annotated[Path, typer.Argument(help="what jopeq fit --out has saved")],
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
    plot: Annotated[
        Path | None, typer.Option(help="draw ROC and calibration curves into this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """AUC, calibration, sensitivity and more of a classifier, from one private sum.

    All files are read in this process. Take records that the model was not fitted to.
    """
    with explain_errors("MODEL or --plot"):
        column, *levels = (by or "").split() or [""]
        found = evaluate_fit(
            Fit.load(model),
            files,
            epsilon=epsilon,
            delta=delta,
            records=records,
            threshold=threshold,
            cut=cut,
            by=Category(column, tuple(levels)) if by else None,
            colluding=colluding,
        )
        if plot is not None:
            found.plot().savefig(plot)
    if as_json:
        print_json(found.as_dict())
    else:
        typer.echo(str(found))
