"""Surveys on Flower: a ClientApp that answers them, and the server's question.

A survey (``jopeq.statistics.Survey``) is one private sum, taken by ``query`` messages. ``SumMod``
is the hospital's end of it, as it is for training.
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

from jopeq.flower.client import agreed_task
from jopeq.flower.sum_mod import SumMod, reply_table
from jopeq.flower.sum_server import SumServer
from jopeq.flower.tasks import survey_task
from jopeq.statistics import Answers, Survey

Table = Callable[[Context], Any]


def survey_client(
    load: Table,
    *,
    surveys: Collection[Survey] | None = None,
    run: str = "",
    unsigned: bool = False,
) -> ClientApp:
    """A ClientApp that answers surveys. ``record_client`` makes one that also trains.

    Parameters
    ----------
    load : callable
        ``load(context)`` gives the hospital's table, one row a record: what ``Survey.rows`` takes.
        It is called after the share is charged, and must read nothing else of the server. An error
        is in the node's log and sends the share of an empty hospital.
    surveys : Optional[Collection[Survey]] (default: None)
        The surveys that this hospital has agreed to. None answers any within the configuration of
        the node, which must have ``jopeq-max-epsilon``, ``jopeq-max-delta`` and ``jopeq-columns``.
    run, unsigned
        As for ``SumMod``.
    """
    mod = SumMod(None, run=run, unsigned=unsigned, surveys=surveys)
    return answer_surveys(ClientApp(mods=[mod]), load, surveys)


def answer_surveys(
    app: ClientApp, load: Table, surveys: Collection[Survey] | None = None
) -> ClientApp:
    """Make the app answer surveys too; one of its mods is a ``SumMod`` for them."""
    specs = None if surveys is None else {survey.spec for survey in surveys}

    @app.query()
    def query(msg: Message, context: Context) -> Message:
        agreed = agreed_task()
        if specs is not None and (agreed is None or agreed.spec not in specs):
            raise ValueError("this app has not agreed to this survey")
        return reply_table(msg, load(context))

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
    does not answer then costs the others one of ``survey.rounds``, and a smaller cohort is asked.

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
    server = SumServer(
        survey_task(survey, run),
        name="ask",
        trusted=trusted,
        unsigned=unsigned,
        min_available_nodes=min_available_nodes,
        deadline=deadline,
    )
    log(INFO, "ask: %s: %s", survey.name, survey.sum.guarantee)
    log(WARNING if unsigned else INFO, "ask: %s", server.describe())
    decoded = server.sum(grid, RecordDict(), number=1, timeout=timeout)
    return survey.answers(decoded, clients=len(server.server.cohort))
