"""``jopeq fit``: private regression over tables, one file per hospital, to try and to teach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jopeq.cli.options import AsJson, Colluding, Delta, PerPerson, Plot, Tables, Threshold
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
    classes: Annotated[
        str | None, typer.Option(help="values of the outcome; logistic: '0 1' by default")
    ] = None,
    bounds: Annotated[str | None, typer.Option(help="linear: 'LOWER UPPER' outcome")] = None,
    most: Annotated[float | None, typer.Option(help="poisson: the largest count")] = None,
    event: Annotated[
        str | None, typer.Option(help="hazard: column of 1 (event) and 0 (censored)")
    ] = None,
    cuts: Annotated[
        str | None, typer.Option(help="hazard: 'START CUT … END' of the times in the outcome")
    ] = None,
    goal: Annotated[str | None, typer.Option(help="inference or prediction")] = None,
    additive: Annotated[
        bool, typer.Option("--additive", help="fit a shape for every number, not a slope")
    ] = False,
    messages: Annotated[int | None, typer.Option(help="number of sums")] = None,
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

    Mark a column with missing values by missing=true: 'age 18 100 missing=true'.

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
        given: dict[str, Any] = {
            "classes": classes and tuple(map(_value, classes.split())),
            "bounds": bounds and tuple(map(float, bounds.split())),
            "cuts": cuts and tuple(map(float, cuts.split())),
            "most": most, "event": event,
        }  # fmt: skip
        terms: dict[str, Any] = {name: one for name, one in given.items() if one is not None}
        try:
            made = MODELS[model](
                outcome, tuple(map(parse_column, lines)), **terms, epsilon=epsilon, delta=delta,
                clients=max(len(files), threshold), threshold=threshold, colluding=colluding,
                hospitals_per_person=hospitals_per_person, records=records, goal=goal,
                additive=additive, messages=messages,
            )  # fmt: skip
        except TypeError as error:  # an option of another model
            raise ValueError(f"model {model!r} takes no such option: {error}") from error
        if plan:
            typer.echo(str(made.plan()))
            return
        found = made.fit(files)
        if out is not None:
            found.save(out)
        print_result(found, as_json, plot)


def _value(word: str) -> Any:
    return float(word) if word.lstrip("-").replace(".", "", 1).isdigit() else word
