"""``jopeq fit``: private regression over tables, one file per hospital, to try and to teach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jopeq.cli.options import (
    AsJson,
    Colluding,
    Delta,
    Parameter,
    PerPerson,
    Plot,
    Tables,
    Threshold,
    read_values,
)
from jopeq.cli.output import explain_errors, print_result
from jopeq.models import parse_column
from jopeq.models.model import MODELS


def fit(
    files: Tables,
    outcome: Annotated[str, typer.Option(help="column to explain")],
    records: Annotated[int, typer.Option(help="public estimate of all records")],
    epsilon: Annotated[float, typer.Option(help="ε of one record, for the whole fit")],
    model: Annotated[str, typer.Option(help=f"one of {', '.join(MODELS)}")] = "logistic",
    number: Annotated[
        list[str] | None, typer.Option(help="'COLUMN LOWER UPPER', such as 'age 18 100'; repeated")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(help="'COLUMN LEVEL LEVEL …', such as 'sex F M'; repeated")
    ] = None,
    bins: Annotated[
        list[str] | None, typer.Option(help="'COLUMN LOWER UPPER count=16': a shape; repeated")
    ] = None,
    columns: Annotated[
        Path | None,
        typer.Option(
            help="file with a line like 'number age 18 100' per column", exists=True, dir_okay=False
        ),
    ] = None,
    parameter: Parameter = None,
    delta: Delta = 1e-5,
    threshold: Threshold = 3,
    colluding: Colluding = 1,
    hospitals_per_person: PerPerson = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="say what to expect, and fit nothing")
    ] = False,
    plot: Plot = None,
    out: Annotated[Path | None, typer.Option(help="save the fit as JSON")] = None,
    as_json: AsJson = False,
) -> None:
    """Regression (logistic, softmax, linear, Poisson, hazard) in a few private sums.

    Mark a column with missing values by missing=true: 'age 18 100 missing=true'. Other parameters
    of a model go as -p NAME=VALUE: classes=[0,1], bounds=[80,220], most=8, event=COLUMN,
    cuts=[0,12,60], goal=prediction, additive=true, messages=12.

    All files are read in this process. If tables must stay in their hospitals, fit on Flower
    (jopeq.flower).
    """
    with explain_errors("--plot or --out"):
        if model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {model!r}")
        asked = {"number": number, "category": category, "bins": bins}
        lines = [f"{kind} {one}" for kind, texts in asked.items() for one in texts or ()]
        if columns is not None:
            lines += [one for one in columns.read_text().splitlines() if one.strip()]
        terms = read_values(
            parameter, epsilon=epsilon, delta=delta, clients=max(len(files), threshold),
            threshold=threshold, colluding=colluding, records=records,
            hospitals_per_person=hospitals_per_person,
        )  # fmt: skip
        try:
            made = MODELS[model](outcome, tuple(map(parse_column, lines)), **terms)
        except TypeError as error:
            raise ValueError(f"model {model!r} takes no such parameters: {error}") from error
        if plan:
            typer.echo(str(made.plan()))
            return
        found = made.fit(files)
        if out is not None:
            found.save(out)
        print_result(found, as_json, plot)
