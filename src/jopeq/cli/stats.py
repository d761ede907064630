"""``jopeq stats``: private statistics over tables, one file per hospital, to try and to teach."""

from __future__ import annotations

from typing import Annotated

import typer

from jopeq.cli.options import AsJson, Colluding, Delta, PerPerson, Plot, Tables, Threshold
from jopeq.cli.output import explain_errors, print_result
from jopeq.statistics import Survey, parse_question


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
    hospitals_per_person: PerPerson = 1,
    records: Annotated[int, typer.Option(help="public bound on all records")] = 1_000_000,
    minimum: Annotated[
        float | None, typer.Option(help="withhold answers if the noisy count is smaller")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="it is public that no value is missing")
    ] = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Counts, means, histograms, quantiles, correlations, survival, with one ε for all.

    Questions: 'count', 'COLUMN: mean LOWER UPPER', 'COLUMN: variance LOWER UPPER',
    'COLUMN: histogram LOWER UPPER bins=20' (or all edges), 'COLUMN: quartiles LOWER UPPER',
    'COLUMN: quantiles LOWER UPPER at=0.1,0.9', 'COLUMN: proportions CATEGORY …',
    'COLUMN: correlation LOWER UPPER OTHER LOWER UPPER', 'TIME: survival EVENT LOWER UPPER bins=12
    by=COLUMN:LEVEL,LEVEL' (EVENT is 1 or 0). importance=2 makes an answer more accurate.

    All files are read in this process. If tables must stay in their hospitals, ask on Flower
    (jopeq.flower.ask).
    """
    with explain_errors("--plot"):
        survey = Survey(
            tuple(map(parse_question, ask)), epsilon=epsilon, delta=delta,
            clients=max(len(files), threshold), threshold=threshold, colluding=colluding,
            hospitals_per_person=hospitals_per_person, records=records, minimum=minimum,
            complete=complete,
        )  # fmt: skip
        print_result(survey.ask(files), as_json, plot)
