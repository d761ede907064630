"""``jopeq fit``: private regression over tables, one file a hospital, to try and to teach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from jopeq.cli.options import AsJson, Colluding, Delta, Tables, Threshold
from jopeq.cli.output import explain_errors, print_json
from jopeq.models import Model, parse_column
from jopeq.models.model import MODELS


def fit(
    files: Tables,
    outcome: Annotated[str, typer.Option(help="the column that is explained")],
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
            help="file with a line 'number age 18 100' for each column", exists=True, dir_okay=False
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="values of the outcome, as in '0 1'; by default these")
    ] = None,
    bounds: Annotated[str | None, typer.Option(help="linear: 'LOWER UPPER' outcome")] = None,
    most: Annotated[float | None, typer.Option(help="poisson: the largest count")] = None,
    event: Annotated[
        str | None, typer.Option(help="hazard: the column of 1 (event) and 0 (censored)")
    ] = None,
    cuts: Annotated[
        str | None, typer.Option(help="hazard: 'START CUT … END' of the times in the outcome")
    ] = None,
    goal: Annotated[str | None, typer.Option(help="inference or prediction")] = None,
    additive: Annotated[
        bool, typer.Option("--additive", help="a shape for every number, not a slope")
    ] = False,
    messages: Annotated[int | None, typer.Option(help="how many sums")] = None,
    delta: Delta = 1e-5,
    threshold: Threshold = 3,
    colluding: Colluding = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="say what to expect, and fit nothing")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="draw coefficients into this file")] = None,
    out: Annotated[Path | None, typer.Option(help="save the fit as JSON")] = None,
    as_json: AsJson = False,
) -> None:
    """Regression (logistic, softmax, linear, Poisson, hazard) in a few private sums.

    A column with missing values is named with missing=true: 'age 18 100 missing=true'.

    All files are read in this process: where tables must stay in their hospitals, fit on Flower
    (jopeq.flower).
    """
    given: dict[str, Any] = {"most": most, "bounds": bounds and tuple(map(float, bounds.split()))}
    given["classes"] = classes and tuple(map(_value, classes.split()))
    given |= {"event": event, "cuts": cuts and tuple(map(float, cuts.split()))}
    with explain_errors("--plot or --out"):
        lines = [f"number {one}" for one in number or ()]
        lines += [f"category {one}" for one in category or ()]
        lines += [f"bins {one}" for one in bins or ()]
        if columns is not None:
            lines += [one for one in columns.read_text().splitlines() if one.strip()]
        made = _build(
            model,
            outcome,
            tuple(map(parse_column, lines)),
            **{name: value for name, value in given.items() if value is not None},
            epsilon=epsilon,
            delta=delta,
            clients=max(len(files), threshold),
            threshold=threshold,
            colluding=colluding,
            records=records,
            goal=goal,
            additive=additive,
            messages=messages,
        )
        if plan:
            typer.echo(str(made.plan()))
            return
        found = made.fit(files)
        if plot is not None:
            found.plot().savefig(plot)
        if out is not None:
            found.save(out)
    if as_json:
        print_json(json.loads(found.to_json()))
    else:
        typer.echo(str(found))


def _build(word: str, outcome: str, columns: Any, **terms: Any) -> Model:
    if word not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {word!r}")
    try:
        return MODELS[word](outcome, columns, **terms)
    except TypeError as error:  # an option of another kind of model
        raise ValueError(f"model {word!r} takes no such option: {error}") from error


def _value(word: str) -> Any:
    return float(word) if word.lstrip("-").replace(".", "", 1).isdigit() else word
