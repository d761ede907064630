"""``jopeq stats``: private statistics over tables, one file a hospital, to try and to teach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jopeq.cli.options import AsJson, Colluding, Delta, Tables, Threshold
from jopeq.cli.output import explain_errors, print_json
from jopeq.statistics import Survey, parse_question
from jopeq.statistics.tables import read_csv


def stats(
    files: Tables,
    ask: Annotated[
        list[str],
        typer.Option(help="'COLUMN: QUESTION …', such as 'age: mean 0 120'; may be repeated"),
    ],
    epsilon: Annotated[float, typer.Option(help="ε of one record, for all questions together")],
    delta: Delta = 1e-5,
    threshold: Threshold = 3,
    colluding: Colluding = 1,
    hospitals_per_person: Annotated[
        int, typer.Option(help="hospitals in which one person may be")
    ] = 1,
    records: Annotated[int, typer.Option(help="public bound on all records")] = 1_000_000,
    minimum: Annotated[
        float | None, typer.Option(help="say nothing of fewer records, by the noisy count")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="it is public that no value is missing")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="draw histograms and survival curves into this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Counts, means, histograms, quantiles, correlations, survival, with one ε for all.

    Questions: 'count', 'COLUMN: mean LOWER UPPER', 'COLUMN: variance LOWER UPPER',
    'COLUMN: histogram LOWER UPPER bins=20' (or all edges), 'COLUMN: quartiles LOWER UPPER',
    'COLUMN: quantiles LOWER UPPER at=0.1,0.9', 'COLUMN: proportions CATEGORY …',
    'COLUMN: correlation LOWER UPPER OTHER LOWER UPPER', 'TIME: survival EVENT LOWER UPPER bins=12
    by=COLUMN:LEVEL,LEVEL' (EVENT is 1 or 0). An importance=2 gives one more accuracy.

    All files are read in this process: where tables must stay in their hospitals, ask on Flower
    (jopeq.flower.ask).
    """
    with explain_errors("--plot"):
        survey = Survey(
            tuple(map(parse_question, ask)),
            epsilon=epsilon,
            delta=delta,
            clients=max(len(files), threshold),
            threshold=threshold,
            colluding=colluding,
            hospitals_per_person=hospitals_per_person,
            records=records,
            minimum=minimum,
            complete=complete,
        )
        numeric = {name for name, kind in survey.asked if kind == "numbers"}
        answers = survey.ask([read_csv(path, numeric) for path in files])
        if plot is not None:
            answers.plot().savefig(plot)
    if as_json:
        print_json(answers.as_dict())
    else:
        typer.echo(str(answers))
        if plot is not None:
            typer.echo(f"saved {plot}")
