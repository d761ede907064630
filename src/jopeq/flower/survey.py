"""Surveys on Flower: a ClientApp that answers them, and the server's question.

A survey (``jopeq.statistics.Survey``) is one sum of a circle, by ``query`` messages. ``RecordMod``
is the hospital's end of it, as of training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from logging import INFO, WARNING
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid

from jopeq.flower.circle_grid import CircleGrid
from jopeq.flower.record_mod import RecordMod, Task, agreed_task, reply_table
from jopeq.statistics import Answers, Survey
from jopeq.sums.record_plan import epsilon_left

Table = Callable[[Context], Any]


def survey_client(
    table: Table,
    *,
    surveys: Collection[Survey] | None = None,
    run: str = "",
    unsigned: bool = False,
) -> ClientApp:
    """A ClientApp that answers surveys. ``record_client`` makes one that also trains.

    Parameters
    ----------
    table : callable
        ``table(context)`` gives the hospital's table, one row a record: what ``Survey.rows`` takes.
        It is called after the share is charged, and must read nothing else of the server. An error
        is in the node's log and sends the share of an empty hospital.
    surveys : Optional[Collection[Survey]] (default: None)
        The surveys that this hospital has agreed to. None answers any within the configuration of
        the node, which must have ``jopeq-max-epsilon``, ``jopeq-max-delta`` and ``jopeq-columns``.
    run, unsigned
        As for ``RecordMod``.
    """
    mod = RecordMod(None, run=run, unsigned=unsigned, surveys=surveys)
    return answer_surveys(ClientApp(mods=[mod]), table, surveys)


def answer_surveys(
    app: ClientApp, table: Table, surveys: Collection[Survey] | None = None
) -> ClientApp:
    """The same app, which answers surveys too; one of its mods is a ``RecordMod`` for them."""

    @app.query()
    def query(msg: Message, context: Context) -> Message:
        agreed = agreed_task()
        if surveys is not None and (agreed is None or agreed.survey not in surveys):
            raise ValueError("this app has not agreed to this survey")
        return reply_table(msg, table(context))

    return app


def ask(
    grid: Grid,
    survey: Survey,
    *,
    trusted: str | os.PathLike[str] | None = None,
    unsigned: bool = False,
    run: str = "",
    min_available_nodes: int | None = None,
    deadline: float | None = None,
    timeout: float = 3600.0,
) -> Answers:
    """Ask the hospitals, and return the answers; ``RoundFailedError`` if there is no sum.

    The first messages ask who is there and cost nothing; the next make the shares. A hospital that
    does not answer then costs the others one of ``survey.attempts``, and a smaller cohort is asked.

    Parameters
    ----------
    grid : Grid
        Of Flower's ServerApp.
    survey : Survey
        The questions, and the ε that all answers together cost.
    trusted : Optional[path] (default: None)
        File with the public keys of all hospitals, in hexadecimal, one a line.
    unsigned : bool (default: False)
        For simulations: anybody takes part.
    run : str (default: "")
        As on the clients. A ledger takes a survey once; under another name it takes it anew.
    min_available_nodes : Optional[int] (default: None)
        Nodes to wait for before anything is asked, by default ``survey.threshold``.
    deadline : Optional[float] (default: None)
        Seconds that an exchange waits for replies, by default as for ``RecordStrategy``.
    timeout : float (default: 3600.0)
        Seconds that all of it may take.
    """
    if not isinstance(survey, Survey):
        raise ValueError(f"survey must be a jopeq.statistics.Survey, got {survey!r:.80}")
    circle = CircleGrid(
        Task.of_survey(survey, run),
        name="ask",
        trusted=trusted,
        unsigned=unsigned,
        min_available_nodes=min_available_nodes,
        deadline=deadline,
    )
    log(INFO, "ask: %s: %s", survey.name, survey.sum.guarantee)
    if unsigned:
        told = "ask: unsigned: ε = %.3g against a server that invents hospitals"
        log(WARNING, told, epsilon_left(survey.sum, survey.dimension, 1))
    else:
        log(INFO, "ask: fingerprint of the trusted hospitals: %s", circle.server.fingerprint)
    decoded = circle.sum(grid, RecordDict(), number=1, timeout=timeout)
    return survey.answers(decoded, clients=len(circle.server.cohort))
